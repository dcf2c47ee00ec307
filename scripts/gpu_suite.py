#!/usr/bin/env python3
# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Every measurement of docs/performance.md on one CUDA GPU, Edge and Nano, in one go.

Each part runs in a process of its own with a time limit, the most important first; a part that
fails costs nothing but itself. Tables go to standard output and to suite.md, figures to suite.json
in the folder --out, both rewritten after every part.

    PYTHONPATH=. python scripts/gpu_suite.py --out results
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

# Steady reserved memory of the targets and some room: what a ballast process leaves free.
FREE_GB = {"bf16": {"edge": 4.5, "nano": 16.2}, "fp8": {"edge": 3.0, "nano": 9.0}}
# What the schemes part measures one after the other: name -> fields of bench_common.Target.
VARIANTS: dict[str, dict[str, Any]] = {
    "bf16": {"scheme": "bf16"},
    "bf16 both branches": {"scheme": "bf16", "branches_per_pass": 2},
    "fp8 accurate": {"scheme": "fp8"},
    "fp8 fast": {"scheme": "fp8", "accumulate": "fast"},
    "fp8 fast interval": {
        "scheme": "fp8",
        "accumulate": "fast",
        "guidance_interval": (960.0, 1001.0),
    },
    "fp8 fast int8qk": {"scheme": "fp8", "accumulate": "fast", "attention": "int8qk"},
    "fp8_fast": {"scheme": "fp8_fast"},
    "int8": {"scheme": "int8"},
    "int8wo": {"scheme": "int8wo"},
    "int4wo": {"scheme": "int4wo"},
}
# part -> (seconds it may take, seconds without which it is not worth starting)
PARTS: dict[str, tuple[int, int]] = {
    "checkpoint_edge": (90, 10),
    "request_edge": (150, 50),
    "schemes_edge": (200, 30),
    "checkpoint_nano": (200, 30),
    "request_nano": (220, 80),
    "schemes_nano": (300, 60),
    "ready_edge": (120, 30),
    "ready_nano": (150, 50),
    "fit_edge": (90, 25),
    "fit_nano": (150, 45),
    "fit8_edge": (90, 25),
    "fit8_nano": (150, 45),
    "soak_edge": (180, 60),
    "soak8_edge": (150, 50),
    "text_edge": (120, 25),
    "text_nano": (180, 50),
    "compiled_edge": (180, 60),
    "compiled_nano": (240, 80),
}
_NOT_STARTED = "not started"


def target(family: str, folder: Path, options: argparse.Namespace, **more: Any) -> Any:
    """The policy under test; in bfloat16 where nothing else is said."""
    from cosmos_lite_ros.policy.bench_common import Target

    fields = {"checkpoint": str(folder), "device": options.device, **more}
    return Target(family, **fields)  # type: ignore[arg-type]


def run_checkpoint(family: str, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Write the checkpoint, or leave an earlier one as it is."""
    from cosmos_lite_ros.policy.random_checkpoint import make_random

    started = time.perf_counter()
    if not folder.is_dir():
        make_random(family, folder)  # type: ignore[arg-type]
    size = sum(f.stat().st_size for f in folder.rglob("*") if f.is_file())
    seconds = time.perf_counter() - started
    return {"markdown": f"{size / 1e9:.2f} GB, {seconds:.0f} s", "bytes": size, "seconds": seconds}


def run_request(family: str, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """``bench request``."""
    from cosmos_lite_ros.policy.bench_request import RequestOptions, bench_request
    from cosmos_lite_ros.policy.bench_tables import markdown

    chosen = RequestOptions(calls=options.calls, duty_calls=options.duty_calls)
    report = bench_request(target(family, folder, options), chosen, say)
    return {"markdown": markdown(report), "report": report}


def run_fit(
    family: str, folder: Path, options: argparse.Namespace, scheme: str = "bf16"
) -> dict[str, Any]:
    """``bench fit``."""
    from cosmos_lite_ros.policy.bench_fit import bench_fit
    from cosmos_lite_ros.policy.bench_tables import markdown

    free = round(FREE_GB[scheme][family] * 1e9)
    report = bench_fit(target(family, folder, options, scheme=scheme), free, 50, say)
    return {"markdown": markdown(report), "report": report}


def run_fit8(family: str, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """``bench fit`` in fp8."""
    return run_fit(family, folder, options, "fp8")


def run_schemes(family: str, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """A short ``bench request`` of each variant."""
    import torch

    from cosmos_lite_ros.policy.bench_request import RequestOptions, bench_request

    chosen = RequestOptions(calls=min(options.calls, 30), duty_calls=0, peers=False)
    head = ["variant", "request ms", "p95", "encode", "denoise", "first / median", "steady GB"]
    lines = [" | ".join(head), " | ".join("---" for _ in head)]
    reports = {}
    end = time.perf_counter() + options.limit_s - 15
    for name, fields in VARIANTS.items():
        if options.variants and name not in options.variants.split(","):
            continue
        if time.perf_counter() > end:
            lines.append(f"{name} | not started")
            continue
        try:
            r = bench_request(target(family, folder, options, **fields), chosen, say)
        except Exception as error:  # the others still count
            lines.append(f"{name} | {type(error).__name__}: {str(error)[:300]}")
            say(traceback.format_exc())
            continue
        finally:
            gc.collect()
            torch.cuda.empty_cache()
        reports[name] = r
        steady = r["memory"]["steady"]["reserved"]
        cells = [
            r["request"]["median_ms"],
            r["request"]["p95_ms"],
            r["stages"]["encode_ms"],
            r["stages"]["denoise_ms"],
        ]
        lines.append(
            f"{name} | "
            + " | ".join(f"{c:.1f}" for c in cells)
            + f" | {r['first_after_ready']['first_over_median']:.3f} | {(steady or 0) / 1e9:.2f}"
            + f" | load {r['load_s']:.1f} s, ready {r['load_s'] + r['warm_up_s']:.1f} s"
        )
        say(lines[-1])
    return {"markdown": "\n".join(lines), "reports": reports}


def run_ready(family: str, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """From the start of a process to the first request in fp8: all caches cold, then warm."""
    largest = max(folder.rglob("*.safetensors"), key=lambda f: f.stat().st_size)
    lines = ["caches | process, s | of it imports | load | warm-up", "--- | --- | --- | --- | ---"]
    with tempfile.TemporaryDirectory() as kernels:
        environment = {**os.environ, "TRITON_CACHE_DIR": kernels}
        dropped = drop_page_cache()
        started = time.perf_counter()
        read = 0
        with largest.open("rb", buffering=0) as file:
            while read < 4_000_000_000 and (block := file.read(1 << 24)):
                read += len(block)
        bandwidth = read / (time.perf_counter() - started) / 1e9
        drop_page_cache()
        for state in ("cold", "warm"):
            command = [sys.executable, __file__, "--ready", str(folder), "--out", str(options.out)]
            started = time.perf_counter()
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, timeout=options.limit_s
            )
            if done.returncode:
                raise SystemExit(done.stderr[-2000:])
            took = [time.perf_counter() - started, *json.loads(done.stdout.splitlines()[-1])]
            lines.append(f"{state} | " + " | ".join(f"{seconds:.1f}" for seconds in took))
    page = "page cache dropped" if dropped else "page cache could not be dropped: not cold"
    lines.append(f"\n{page}; the disk then reads {bandwidth:.2f} GB/s")
    return {"markdown": "\n".join(lines)}


def drop_page_cache() -> bool:
    """Forget what is in memory of the disk; whether that was allowed."""
    os.sync()
    try:
        Path("/proc/sys/vm/drop_caches").write_text("3")
    except OSError:
        return False
    return True


def be_ready(folder: str) -> int:
    """In a process of its own: load and warm up in fp8, print the seconds."""
    started = time.perf_counter()
    from cosmos_lite_ros.policy.bench_common import Target, set_tokens
    from cosmos_lite_ros.policy.checkpoint import inspect
    from cosmos_lite_ros.policy.engine import PolicyEngine

    imported = time.perf_counter()
    target = Target(inspect(folder).config.family, checkpoint=folder, scheme="fp8")
    engine = PolicyEngine.load(target.settings(Path(folder)))
    loaded = time.perf_counter()
    set_tokens(engine)
    engine.warm_up()
    ready = time.perf_counter()
    engine.close()
    print(json.dumps([imported - started, loaded - imported, ready - loaded]))
    return 0


def run_soak(
    family: str, folder: Path, options: argparse.Namespace, *, fp8: bool = False
) -> dict[str, Any]:
    """``bench soak``."""
    from cosmos_lite_ros.policy.bench_soak import bench_soak
    from cosmos_lite_ros.policy.bench_tables import markdown

    fields = {"scheme": "fp8", "accumulate": "fast"} if fp8 else {}
    report = bench_soak(target(family, folder, options, **fields), options.soak_requests, say)
    return {"markdown": markdown(report), "report": report}


def run_soak8(family: str, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """``bench soak`` in fp8."""
    return run_soak(family, folder, options, fp8=True)


def run_text(family: str, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """A new instruction by residency: the script beside this one."""
    script = Path(__file__).resolve().parent / "gpu_text.py"
    command = [sys.executable, str(script), str(folder), "--runs", "8"]
    with tempfile.TemporaryFile("w+") as printed:
        try:
            # Before this part's own end, so that the rows there are do not get lost.
            code = subprocess.run(command, stdout=printed, timeout=options.limit_s - 10).returncode
            ended = f"exit code {code}" if code else ""
        except subprocess.TimeoutExpired:
            ended = f"not done after {options.limit_s - 10:.0f} s"
        printed.seek(0)
        text = printed.read().strip()
    if ended and not text:
        raise SystemExit(ended)
    return {"markdown": f"{text}\n\n{ended}".strip()}


def run_compiled(family: str, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """The stock transformer, eager and with its blocks compiled."""
    import torch

    from cosmos_lite_ros.contract.prompt import build_prompt
    from cosmos_lite_ros.policy.bench_common import INSTRUCTION, SyntheticTokens
    from cosmos_lite_ros.policy.bench_peers import bench_peers
    from cosmos_lite_ros.policy.checkpoint import inspect
    from cosmos_lite_ros.policy.reference import ReferencePolicy

    info = inspect(str(folder))
    reference = ReferencePolicy(str(folder), device=options.device, dtype=torch.bfloat16)
    tokens = SyntheticTokens(info.config.family, info.config.vocab_size)
    texts = tokens.encode(build_prompt(INSTRUCTION, info.config.family)), tokens.encode("")
    report = bench_peers(reference, info, texts, calls=10, compiled=True, say=say)
    eager = report["stock_transformer_4_forwards"]
    compiled = report["stock_transformer_4_forwards_compiled"]
    text = (
        f"stock transformer, 4 forwards: eager {eager['median_ms']:.1f} ms, blocks compiled "
        f"{compiled['median_ms']:.1f} ms (compiling took {compiled['compile_s']:.0f} s)"
    )
    return {"markdown": text, "report": report}


RUNS: dict[str, Callable[[str, Path, argparse.Namespace], dict[str, Any]]] = {
    "checkpoint": run_checkpoint,
    "request": run_request,
    "schemes": run_schemes,
    "fit": run_fit,
    "fit8": run_fit8,
    "ready": run_ready,
    "soak": run_soak,
    "soak8": run_soak8,
    "text": run_text,
    "compiled": run_compiled,
}


def say(text: str) -> None:
    """Progress, into the part's log."""
    print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)


def run_part(options: argparse.Namespace) -> int:
    """In the part's own process: the result as JSON into a file."""
    kind, _, family = options.part.partition("_")
    result = RUNS[kind](family, options.scratch / family, options)
    Path(options.result).write_text(json.dumps(result))
    return 0


def start_part(name: str, seconds: float, options: argparse.Namespace) -> dict[str, Any]:
    """One part in a process of its own; its result, or why there is none."""
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as scratch:
        result, log = Path(scratch) / "result.json", Path(scratch) / "log"
        command = [sys.executable, __file__, "--part", name, "--result", str(result)]
        command += ["--out", str(options.out), "--scratch", str(options.scratch)]
        command += ["--limit-s", str(seconds)]
        command += ["--calls", str(options.calls), "--duty-calls", str(options.duty_calls)]
        command += ["--soak-requests", str(options.soak_requests), "--device", options.device]
        command += ["--variants", options.variants]
        with log.open("w") as errors:
            process = subprocess.Popen(
                command, stdout=errors, stderr=subprocess.STDOUT, start_new_session=True
            )
            try:
                code = process.wait(seconds)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                # The part's own children too: a ballast process must not stay.
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        if code == 0 and result.is_file():
            found = json.loads(result.read_text())
        else:
            why = f"not done after {seconds:.0f} s" if code is None else f"exit code {code}"
            tail = "\n".join(log.read_text(errors="replace").strip().splitlines()[-12:])
            found = {"failed": why, "markdown": f"FAILED: {why}\n\n```\n{tail}\n```"}
    return {**found, "wall_s": time.perf_counter() - started}


def gpu_line() -> str:
    """What nvidia-smi says of the card."""
    fields = "name,driver_version,power.limit,clocks.max.sm,memory.total"
    command = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
        return done.stdout.strip().splitlines()[0]
    except (OSError, subprocess.SubprocessError, IndexError):
        return "nvidia-smi does not answer"


def headline(results: dict[str, Any]) -> str:
    """One table of what matters most, printed last."""
    reports = [
        r["report"] for n, r in results.items() if n.startswith("request_") and "report" in r
    ]
    lines = []
    if reports:
        from cosmos_lite_ros.policy.bench_tables import compare

        lines.append(compare(reports).markdown() + "\n")
    for name, result in results.items():
        state = result.get("failed") or "done"
        report = result.get("report") or {}
        if report.get("bench") == "fit":
            state = "passed" if report["passed"] else f"FAILED: {report['error']}"
        lines.append(f"- {name}: {state}, {result['wall_s']:.0f} s")
    return "\n".join(lines)


def run_all(options: argparse.Namespace) -> int:
    """Every part that the budget allows."""
    options.out.mkdir(parents=True, exist_ok=True)
    options.scratch.mkdir(parents=True, exist_ok=True)
    wanted = options.only.split(",") if options.only else list(PARTS)
    unknown = sorted(set(wanted) - set(PARTS))
    if unknown:
        print(f"unknown parts {unknown}, expected some of {', '.join(PARTS)}", file=sys.stderr)
        return 2
    # What needs a checkpoint makes it first.
    needed = {f"checkpoint_{name.partition('_')[2]}" for name in wanted}
    end = time.perf_counter() + options.budget_s
    results: dict[str, Any] = {}
    page = [f"{gpu_line()}\n"]
    for name, (limit_s, least_s) in PARTS.items():
        if name not in wanted and name not in needed:
            continue
        left_s = end - time.perf_counter()
        if left_s < least_s:
            why = f"{_NOT_STARTED}: {left_s:.0f} s left of {options.budget_s} s"
            results[name] = {"failed": why, "markdown": why, "wall_s": 0.0}
        else:
            results[name] = start_part(name, min(limit_s, left_s), options)
        page.append(f"### {name}\n\n{results[name]['markdown']}\n")
        print(page[-1], flush=True)
        (options.out / "suite.json").write_text(json.dumps(results, indent=1))
        (options.out / "suite.md").write_text("\n".join(page))
    page.append(headline(results))
    print(f"{page[0]}\n{page[-1]}", flush=True)
    (options.out / "suite.md").write_text("\n".join(page) + "\n")
    return 0 if not any("failed" in r for r in results.values()) else 1


def main() -> int:
    """Read the options."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="folder for suite.json, suite.md")
    parser.add_argument(
        "--scratch",
        type=Path,
        default=Path(tempfile.gettempdir()) / "cosmos_lite_ros_suite",
        help="folder of the checkpoints: 8 GB and 32 GB, reused where they are there",
    )
    parser.add_argument("--budget-s", type=float, default=540, help="seconds for everything")
    parser.add_argument("--only", default="", help=f"some of {','.join(PARTS)}")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--calls", type=int, default=50)
    parser.add_argument("--duty-calls", type=int, default=10)
    parser.add_argument("--soak-requests", type=int, default=1000)
    parser.add_argument("--variants", default="", help=f"some of {','.join(VARIANTS)}")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    parser.add_argument("--ready", help=argparse.SUPPRESS)
    parser.add_argument("--result", help=argparse.SUPPRESS)
    parser.add_argument("--limit-s", type=float, default=600, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.ready:
        return be_ready(options.ready)
    return run_part(options) if options.part else run_all(options)


if __name__ == "__main__":
    sys.exit(main())
