# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""T0: the same request gives the same bits, again and in another process, in every graph variant.

A control request and one with the video are two graphs, and so two variants: each is repeatable by
itself. On CUDA the first request of a text length runs without its graph and the next ones replay
it, so the repetitions compare the two. Another request, of another instruction, comes in between.

Run as a program it reads settings from its input and prints digests: the other process.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

import torch

from cosmos_lite_ros.errors import CosmosLiteError
from cosmos_lite_ros.policy.compare.gate import Judgement
from cosmos_lite_ros.policy.compare.requests import FrozenRequest, frozen_requests
from cosmos_lite_ros.policy.compare.statistics import Verdict
from cosmos_lite_ros.policy.engine import EngineSettings, PolicyEngine
from cosmos_lite_ros.policy.sampler import SamplerSettings

VARIANTS: Final = ("control", "preview")
# Which of the two requests is asked for, one after the other.
_ORDER: Final = (0, 1, 0, 1)
_ONCE: Final = (0, 1)
_TIMEOUT_S: Final = 1800.0

# By variant, the digest of every answer in order.
Digests = dict[str, list[str]]


def digests(engine: PolicyEngine, order: Sequence[int] = _ORDER) -> Digests:
    """Ask and hash: two requests of different instructions, in this order, in each variant."""
    asked = frozen_requests(2)
    return {
        variant: [_digest(engine, asked[i], variant == "preview") for i in order]
        for variant in VARIANTS
    }


def _digest(engine: PolicyEngine, request: FrozenRequest, preview: bool) -> str:
    chunk = engine.act(request.observation, seed=request.seed, preview=preview)
    h = hashlib.sha256(chunk.as_array().tobytes())
    if chunk.predicted_video_latent is not None:
        h.update(chunk.predicted_video_latent.tobytes())
    return h.hexdigest()


def judge_null_floor(here: Digests, there: Digests | None) -> Judgement:
    """T0 from the digests of this process and of another; without the other it is undecided."""
    checks, notes = [], []
    for variant, answers in here.items():
        again = all(
            answers[i] == answers[_ORDER.index(request)] for i, request in enumerate(_ORDER)
        )
        checks.append({"variant": variant, "what": "again in this process", "equal": again})
        if there is not None:
            equal = answers[: len(_ONCE)] == there[variant]
            checks.append({"variant": variant, "what": "in another process", "equal": equal})
    same = all(check["equal"] for check in checks)
    verdict: Verdict = "pass" if same else "fail"
    if there is None:
        notes.append("no other process was asked")
        verdict = "undecided" if same else "fail"
    return Judgement("T0", (), {"checks": checks}, tuple(notes), verdict)


def other_process(
    settings: Sequence[EngineSettings], timeout_s: float = _TIMEOUT_S
) -> list[Digests]:
    """Digests of each of these engines, loaded one after the other in a process of its own.

    With this process's number of CPU threads, which decides how sums are split.

    Raises:
        CosmosLiteError: the process failed, or took too long.
    """
    threads = torch.get_num_threads()
    asked = [{**asdict(each), "threads": threads} for each in settings]
    try:
        done = subprocess.run(
            [sys.executable, "-m", "cosmos_lite_ros.policy.compare.null_floor"],
            input=json.dumps(asked),
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise CosmosLiteError(
            f"the other process of T0 took more than {timeout_s:.0f} s: try a smaller checkpoint"
        ) from error
    if done.returncode != 0:
        said = done.stderr.strip().splitlines() or ["nothing"]
        raise CosmosLiteError(
            f"the other process of T0 ended with {done.returncode} and said: {said[-1]}"
        )
    found: list[Digests] = json.loads(done.stdout.splitlines()[-1])
    return found


def settings_of(values: dict[str, Any]) -> EngineSettings:
    """From ``asdict`` and JSON back to settings."""
    sampler = dict(values["sampler"])
    interval = sampler["guidance_interval"]
    sampler["guidance_interval"] = None if interval is None else tuple(interval)
    return EngineSettings(**{**values, "sampler": SamplerSettings(**sampler)})


def _main() -> None:
    found = []
    for values in json.load(sys.stdin):
        engine = PolicyEngine.load(settings_of(values))
        found.append(digests(engine, _ONCE))
        engine.close()
    print(json.dumps(found))


if __name__ == "__main__":
    _main()
