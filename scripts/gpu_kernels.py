#!/usr/bin/env python3
# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Check and time the Triton kernels on a CUDA GPU at the networks' real shapes; prints two tables.

``python scripts/gpu_kernels.py [check] [bench]``, both by default.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from test.kernels.makers import REAL, Case, error_limit

CALLS = 20
REPLAYS = 20
# More than any L2: what a kernel reads was never written just before.
COLD_BYTES = 400_000_000
# Calls of one layer by case name, layers of the generation tower.
LAYERS = {
    "Edge": (
        28,
        {
            "rms_norm_3093x2048_delta": 2,
            "qk_rope_3093x8x2x128_text141_spare0": 1,
            "relu2_3093x9216": 1,
            "heads_to_rows_3093x8x2x128": 1,
        },
    ),
    "Nano": (
        36,
        {
            "rms_norm_3093x4096_delta_twice": 2,
            "qk_rope_3093x8x4x128_text95_spare0_twice": 1,
            "swiglu_3093x12288": 1,
            "heads_to_rows_3093x8x4x128": 1,
        },
    ),
}


def captured(work: Callable[[], None]) -> torch.cuda.CUDAGraph:
    """A graph of ``work``, which has run once before."""
    work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph


def check_case(case: Case, dtype: torch.dtype) -> float:
    """The worst error against the twin in float64, 1 being the most that roundings explain.

    Raises:
        AssertionError: the call allocated, or a captured call wrote something else.
    """
    arguments = case.make(dtype, "cuda")
    function = case.implementation("public")
    function(**arguments)  # compiles
    eager = case.make(dtype, "cuda")
    torch.cuda.synchronize()
    before = torch.cuda.memory_stats()["allocation.all.allocated"]
    torch.cuda.set_sync_debug_mode("error")
    function(**eager)
    torch.cuda.set_sync_debug_mode("default")
    assert torch.cuda.memory_stats()["allocation.all.allocated"] == before, "it allocated"
    graphed = case.make(dtype, "cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        function(**graphed)
    graph.replay()
    exact = case.run("twin", torch.float64, "cuda")
    worst = 0.0
    for name in case.written:
        assert torch.equal(eager[name], graphed[name]), f"{case.name}: {name} of a graph differs"
        error = (eager[name].double() - exact[name]).abs()
        share = (error / error_limit(case, dtype, name, exact[name])).nan_to_num(nan=torch.inf)
        worst = max(worst, float(share.max()))
    return worst


def check_kernels() -> dict[str, float]:
    """Worst error of every real case by name and dtype, as ``check_case`` counts it; prints it."""
    found = {}
    print("| kernel | bfloat16 | float32 |\n|---|---|---|")
    for case in REAL:
        row = []
        for dtype in (torch.bfloat16, torch.float32):
            worst = check_case(case, dtype)
            found[f"{case.name}/{dtype}"] = worst
            row.append(f"{worst:.3f}{'' if worst <= 1 else ' WRONG'}")
        print(f"| {case.name} | {' | '.join(row)} |", flush=True)
    print("error against float64, 1.000 being the most that its roundings explain\n")
    return found


def copies(arguments: dict[str, Any], count: int) -> list[dict[str, Any]]:
    """The arguments and count - 1 copies of them."""
    made = [arguments]
    for _ in range(count - 1):
        made.append(
            {k: v.clone() if isinstance(v, Tensor) else v for k, v in arguments.items()},
        )
    return made


def traffic(arguments: dict[str, Any]) -> int:
    """Bytes that must be read and written."""
    total = 0
    for name, value in arguments.items():
        if isinstance(value, Tensor):
            if name in ("k_out", "v_out"):
                value = value[:, : arguments["q_out"].shape[1]]
            total += value.numel() * value.element_size()
    if arguments.get("delta") is not None:
        total += arguments["x"].nbytes  # read and written
    return total


def microseconds(function: Callable[..., None], sets: list[dict[str, Any]]) -> float:
    """One call's time: median over replays of a graph of CALLS calls that go round the sets."""

    def work() -> None:
        for i in range(CALLS):
            function(**sets[i % len(sets)])

    graph = captured(work)
    times = []
    for _ in range(REPLAYS + 3):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) * 1e3 / CALLS)
    return statistics.median(times[3:])


def host_microseconds(function: Callable[..., None], arguments: dict[str, Any]) -> float:
    """What one call costs the CPU, as when a graph is captured."""
    function(**arguments)
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(100):
        function(**arguments)
    elapsed = time.perf_counter() - start
    torch.cuda.synchronize()
    return elapsed * 1e4


def _copy(source: Tensor, target: Tensor) -> None:
    target.copy_(source)


def copy_bandwidth() -> float:
    """GB/s of a large copy, read and written bytes: what a memory-bound kernel can reach."""
    source = torch.zeros(COLD_BYTES // 2, dtype=torch.bfloat16, device="cuda")
    target = torch.empty_like(source)
    took = microseconds(_copy, [{"source": source, "target": target}])
    return 2 * source.nbytes / took / 1e3


def bench_kernels() -> dict[str, dict[str, float]]:
    """Times of every real case in bfloat16, printed as a table and returned by name.

    cold: the arguments go round more memory than any L2; warm: the same ones each time; torch: the
    twin, cold; host: CPU time of a call.
    """
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, captured {CALLS} calls")
    print(f"copy of {COLD_BYTES / 1e6:.0f} MB: {copy_bandwidth():.0f} GB/s\n")
    print("| kernel | MB | cold us | GB/s | warm us | GB/s | torch us | host us |")
    print("|---|---|---|---|---|---|---|---|")
    found = {}
    for case in REAL:
        arguments = case.make(torch.bfloat16, "cuda")
        size = traffic(arguments)
        count = min(max(-(-COLD_BYTES // size), 2), CALLS)
        sets = copies(arguments, count)
        kernel, twin = case.implementation("public"), case.implementation("twin")
        row = {
            "megabytes": size / 1e6,
            "cold_us": microseconds(kernel, sets),
            "warm_us": microseconds(kernel, sets[:1]),
            "torch_us": microseconds(twin, sets),
            "host_us": host_microseconds(kernel, arguments),
        }
        found[case.name] = row
        cold, warm = (size / row[k] / 1e3 for k in ("cold_us", "warm_us"))
        print(
            f"| {case.name} | {row['megabytes']:.1f} | {row['cold_us']:.1f} | {cold:.0f} | "
            f"{row['warm_us']:.1f} | {warm:.0f} | {row['torch_us']:.1f} | {row['host_us']:.0f} |",
            flush=True,
        )
    for family, (layers, calls) in LAYERS.items():
        for temperature in ("cold", "warm"):
            once = sum(found[name][f"{temperature}_us"] * n for name, n in calls.items())
            total = once * layers * 4 / 1e3
            print(f"{family}, pointwise of 4 forwards, {temperature}: {total:.2f} ms")
    return found


def main() -> int:
    """Exit code 1 where a kernel is wrong, 3 without a GPU."""
    if not torch.cuda.is_available():
        print("found no CUDA GPU, expected one: the kernels run there", file=sys.stderr)
        return 3
    wanted = sys.argv[1:] or ["check", "bench"]
    with torch.inference_mode():
        worst = max(check_kernels().values()) if "check" in wanted else 0.0
        if "bench" in wanted:
            bench_kernels()
    return 0 if worst <= 1 else 1


if __name__ == "__main__":
    raise SystemExit(main())
