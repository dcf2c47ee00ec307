#!/usr/bin/env python3
# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Where a request's GPU time goes: kernels of one denoising, summed by name, in a table.

``PYTHONPATH=. python scripts/gpu_profile.py CHECKPOINT [scheme=fp8] [accumulate=fast] ...``:
further arguments are fields of ``bench_common.Target``. Graphs are replayed; the profiler sees
their kernels.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from cosmos_lite_ros.policy.bench_common import (
    Requests,
    Target,
    ask,
    on_engine,
    set_tokens,
    settle,
)
from cosmos_lite_ros.policy.checkpoint import inspect
from cosmos_lite_ros.policy.engine import PolicyEngine

REPLAYS = 5
LINES = 24


def print_overhead(engine: PolicyEngine, instruction: str) -> None:
    """Requests back to back: the clock around them, and how long the GPU worked."""
    made, runner = Requests(), engine._runner
    pictures = [made.new() for _ in range(30)]
    rows = []
    denoise = runner.denoise
    events: list[torch.cuda.Event] = []

    def mark() -> None:
        events.append(torch.cuda.Event(enable_timing=True))
        events[-1].record()

    def timed(*arguments: Any, **options: Any) -> Any:
        mark()
        found = denoise(*arguments, **options)
        mark()
        return found

    runner.denoise = timed  # type: ignore[method-assign]
    for views in pictures:
        started = time.perf_counter()
        observation = views.observation(instruction)
        arranged = time.perf_counter()
        chunk = engine.act(observation)
        ended = time.perf_counter()
        torch.cuda.synchronize()
        worked = events[-2].elapsed_time(events[-1])
        times = (ended - started, arranged - started, chunk.latency_s, chunk.encode_s)
        rows.append([*(1e3 * t for t in times), worked])
    runner.denoise = denoise  # type: ignore[method-assign]
    names = ("request", "arrange", "engine", "inputs and encode, GPU", "denoise, GPU")
    medians = [statistics.median(column) for column in zip(*rows[5:], strict=True)]
    print(", ".join(f"{n} {m:.2f} ms" for n, m in zip(names, medians, strict=True)))


def main(folder: str, *fields: str) -> None:
    """Load, warm up, profile, print."""
    values: dict[str, Any] = dict(field.split("=", 1) for field in fields)
    if "branches_per_pass" in values:
        values["branches_per_pass"] = int(values["branches_per_pass"])
    family = inspect(folder).config.family
    target = Target(family, checkpoint=folder, **values)
    engine = PolicyEngine.load(target.settings(Path(folder)))
    instruction, _ = set_tokens(engine)
    engine.warm_up()
    views = Requests().new()
    ask(engine, views, instruction)
    settle(engine)

    print_overhead(engine, instruction)

    def replay() -> None:
        for _ in range(REPLAYS):
            engine._runner.encode()
            engine._runner.denoise(*engine._fill_slots(instruction), engine.settings.sampler)
        torch.cuda.synchronize()

    on_engine(engine, replay)
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        on_engine(engine, replay)
    spent: dict[str, list[float]] = defaultdict(list)
    for event in profiler.events():
        if event.device_type == torch.autograd.DeviceType.CUDA:
            spent[event.name].append(event.device_time_total / 1e3)
    print(json.dumps({k: str(v) for k, v in engine.effective.items()}))
    total = sum(sum(times) for times in spent.values()) / REPLAYS
    print(f"{total:8.2f} ms of kernels a request")
    for name, times in sorted(spent.items(), key=lambda item: -sum(item[1]))[:LINES]:
        count = len(times) / REPLAYS
        print(f"{sum(times) / REPLAYS:8.2f} ms  {count:6.0f} x  {name[:110]}")
    engine.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
