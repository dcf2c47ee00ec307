# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""``bench fit``: the honest proof that a policy fits a card of a given size.

A ballast process takes one plain allocation, so that exactly the given amount of the card is free.
Then a fresh process loads the policy, answers requests, hears one new instruction. A cap of the
allocator would not count the context and the libraries; this does.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from cosmos_lite_ros.errors import BadInputError, CosmosLiteError, EnvironmentLacksError
from cosmos_lite_ros.policy.bench_common import (
    NEW_INSTRUCTION,
    Card,
    Report,
    Requests,
    Say,
    Target,
    ask,
    checkpoint_folder,
    machine,
    on_engine,
    set_tokens,
    settle,
    summary,
)
from cosmos_lite_ros.policy.engine import PolicyEngine

_MODULE = "cosmos_lite_ros.policy.bench_fit"
_START_S = 120
_STOP_S = 20
_TRY_S = 900
# Granularity of the device's memory.
_STEP_BYTES = 2 * 2**20


def bench_fit(target: Target, free_bytes: int, requests: int, say: Say) -> Report:
    """Take the rest of the card, then try in a fresh process; ``passed`` says how it went.

    Raises:
        BadInputError: not a CUDA device, or no requests.
        EnvironmentLacksError: no GPU, or less is free than asked for.
    """
    if not target.device.startswith("cuda"):
        raise BadInputError(f"device is {target.device!r}, expected cuda: a CPU has no ballast")
    if requests < 1 or free_bytes < 1:
        raise BadInputError("expected at least one request and more than 0 GB free")
    target.find_device()
    with checkpoint_folder(target, say) as folder, ballast(target.device, free_bytes) as held:
        say(f"{held['free'] / 1e9:.3f} GB of the card are free, loading in a fresh process")
        report = _try_in_process(target, folder, requests)
    return {
        "bench": "fit",
        "target": asdict(target),
        "free_wanted": free_bytes,
        "free": held["free"],
        "card_total": held["total"],
        "ballast": held["ballast"],
        **report,
    }


@contextmanager
def ballast(device: str, free_bytes: int) -> Iterator[dict[str, int]]:
    """Another process holds the card's memory but for ``free_bytes``; it ends with the block.

    Yields:
        bytes: ``free`` as that process sees it, ``total`` of the card, ``ballast`` allocated.

    Raises:
        EnvironmentLacksError: less is free than asked for, or the process failed.
    """
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", _MODULE, "ballast", device, str(free_bytes)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            # The process says one line, or ends.
            line = process.stdout.readline()
            if not line:
                process.wait(_START_S)
                errors.seek(0)
                raise EnvironmentLacksError(
                    f"the ballast process failed: {_last_line(errors.read())}"
                )
            yield json.loads(line)
        finally:
            process.stdin.close()
            try:
                process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def try_fit(target: Target, folder: Path, requests: int) -> Report:
    """Load, answer ``requests`` requests, one with a new instruction and one more, in here.

    Raises:
        CosmosLiteError: as ``PolicyEngine.load``.
        torch.OutOfMemoryError: it does not fit.
    """
    card = Card(target.find_device())
    started = time.perf_counter()
    engine = PolicyEngine.load(target.settings(folder))
    try:
        load_s = time.perf_counter() - started
        instruction, tokens = set_tokens(engine)
        load_peak = card.peak()
        engine.warm_up()
        made = Requests()
        times = [ask(engine, made.new(), instruction)[0] for _ in range(requests)]
        new_ms, _ = ask(engine, made.new(), NEW_INSTRUCTION)
        settle(engine)
        next_ms, _ = ask(engine, made.new(), NEW_INSTRUCTION)
        settle(engine)
        return {
            "machine": machine(card.device),
            "effective": engine.effective,
            "tokens": tokens,
            "load_s": load_s,
            "request": summary(times),
            "new_instruction_ms": new_ms,
            "following_ms": next_ms,
            "load_peak": load_peak,
            "peak": card.peak(),
            "memory": on_engine(engine, card.snapshot),
            "card_counts_from": card.baseline,
        }
    finally:
        engine.close()


def _try_in_process(target: Target, folder: Path, requests: int) -> Report:
    with tempfile.TemporaryDirectory(prefix="cosmos_lite_ros_") as scratch:
        file = Path(scratch) / "report.json"
        given = json.dumps({**asdict(target), "checkpoint": str(folder)})
        try:
            done = subprocess.run(
                [sys.executable, "-m", _MODULE, "try", given, str(requests), str(file)],
                capture_output=True,
                text=True,
                timeout=_TRY_S,
            )
        except subprocess.TimeoutExpired:
            return {"passed": False, "error": f"not done after {_TRY_S} s"}
        if done.returncode != 0 or not file.is_file():
            return {"passed": False, "error": _last_line(done.stderr)}
        return {"passed": True, "error": None, **json.loads(file.read_text())}


def _last_line(text: str) -> str:
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return lines[-1].strip() if lines else "it said nothing"


def _hold(device_name: str, free_bytes: int) -> None:
    """The ballast process: one allocation, one line, then wait for the end of its input."""
    device = torch.device("cuda", torch.device(device_name).index or 0)
    torch.cuda.set_device(device)
    free, total = torch.cuda.mem_get_info(device)
    if free < free_bytes:
        raise EnvironmentLacksError(
            f"{device} has {free / 1e9:.2f} GB free, {free_bytes / 1e9:.2f} GB asked for: close "
            "other programs on it"
        )
    size = (free - free_bytes) // _STEP_BYTES * _STEP_BYTES
    held: list[Any] = []
    if size:
        held.append(torch.empty(size, dtype=torch.uint8, device=device))
    torch.cuda.synchronize(device)
    now = torch.cuda.mem_get_info(device)[0]
    print(json.dumps({"free": now, "total": total, "ballast": size}), flush=True)
    sys.stdin.read()


def main() -> int:
    """The two processes that ``bench_fit`` starts."""
    parser = argparse.ArgumentParser(description=__doc__)
    roles = parser.add_subparsers(dest="role", required=True)
    hold = roles.add_parser("ballast")
    hold.add_argument("device")
    hold.add_argument("free_bytes", type=int)
    attempt = roles.add_parser("try")
    attempt.add_argument("target")
    attempt.add_argument("requests", type=int)
    attempt.add_argument("file", type=Path)
    arguments = parser.parse_args()
    try:
        if arguments.role == "ballast":
            _hold(arguments.device, arguments.free_bytes)
        else:
            target = Target(**json.loads(arguments.target))
            report = try_fit(target, Path(target.checkpoint), arguments.requests)
            arguments.file.write_text(json.dumps(report))
    except (CosmosLiteError, torch.OutOfMemoryError) as error:
        print(f"error: {error}".replace("\n", " "), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
