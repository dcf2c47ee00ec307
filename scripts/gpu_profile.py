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
import sys
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
