# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Matrix products on trial: random arguments as a quantised network has them, launches, times."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from cosmos_lite_ros.kernels.gemm_checks import blocks_of

# Where a kernel's arguments hold the weight.
_WEIGHT = {"gemm_int8wo": 1, "gemm_int4wo": 1}
# Values that are drawn in float32 at a time: 64 MB.
_CHUNK = 1 << 24


def arguments(
    kernel: str, rows: int, columns: int, depth: int, device: torch.device, weight: Tensor | None
) -> tuple[Tensor, ...]:
    """Random arguments of a kernel's launch, as a quantised network has them.

    Args:
        kernel: one of ``KERNELS``.
        rows, columns, depth: M, N and K.
        device: where.
        weight: ``random_weights`` to take the weight from; None draws it.
    """
    generator = torch.Generator(device).manual_seed(rows + columns + depth)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, device=device)

    def scales(*shape: int) -> Tensor:
        return normal(*shape).abs() * 1e-3 + 1e-3

    count = columns * depth // (2 if kernel == "gemm_int4wo" else 1)
    if weight is None:
        weight = random_weights(kernel, count, device)
    matrix = weight[:count].view(columns, -1)
    out = torch.empty((rows, columns), dtype=torch.bfloat16, device=device)
    if kernel in _WEIGHT:
        shape = (rows, depth)
        x = torch.randn(shape, generator=generator, device=device, dtype=torch.bfloat16)
        groups = (blocks_of(depth),) if kernel == "gemm_int4wo" else ()
        return x, matrix, scales(columns, *groups), out
    blocked = (blocks_of(depth),) if kernel == "gemm_int8_blocked" else ()
    a = _quantised(kernel, rows * depth, generator).view(rows, depth)
    return a, scales(rows, *blocked), matrix, scales(columns), out


def _quantised(kernel: str, count: int, generator: torch.Generator) -> Tensor:
    """Normal values as a kernel's operand, about a fifth of its largest magnitude."""
    limit = 28.0 if kernel == "gemm_fp8_fast" else 448.0 if "fp8" in kernel else 127.0
    dtype = torch.float8_e4m3fn if "fp8" in kernel else torch.int8
    found = torch.empty(count, dtype=dtype, device=generator.device)
    for start in range(0, count, _CHUNK):
        part = found[start : start + _CHUNK]
        drawn = torch.randn(part.shape, generator=generator, device=generator.device)
        drawn.mul_(limit / 5).clamp_(-limit, limit)
        part.copy_(drawn if "fp8" in kernel else drawn.round_())
    return found


def random_weights(kernel: str, count: int, device: torch.device) -> Tensor:
    """``count`` weights of a kernel's format in a row, uint8 pairs for int4."""
    generator = torch.Generator(device).manual_seed(count)
    if kernel != "gemm_int4wo":
        return _quantised(kernel, count, generator)
    # Two of 1..15, stored + 8.
    low, high = (
        torch.randint(1, 16, (count,), generator=generator, device=device, dtype=torch.uint8)
        for _ in range(2)
    )
    return low | (high << 4)


def launcher(kernel: str) -> Callable[..., None]:
    """The kernel's launch function, with its fixed arguments."""
    from cosmos_lite_ros.kernels import (
        gemm_fp8_triton,
        gemm_int4wo_triton,
        gemm_int8_triton,
        gemm_int8wo_triton,
    )

    def unpromoted(*positional: Any, **named: Any) -> None:
        gemm_fp8_triton.launch(*positional, fast_accumulation=True, **named)

    found: dict[str, Callable[..., None]] = {
        "gemm_fp8": gemm_fp8_triton.launch,
        "gemm_fp8_unpromoted": unpromoted,
        "gemm_fp8_fast": gemm_fp8_triton.launch_fast,
        "gemm_int8": gemm_int8_triton.launch,
        "gemm_int8_blocked": gemm_int8_triton.launch,
        "gemm_int8wo": gemm_int8wo_triton.launch,
        "gemm_int4wo": gemm_int4wo_triton.launch,
    }
    return found[kernel]


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


def microseconds(work: Callable[[], None], calls: int, replays: int, warm_up: int = 1) -> float:
    """Time of one of the ``calls`` that ``work`` makes: median over replays of a captured graph."""
    work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    times = []
    for _ in range(warm_up + replays):
        start, end = (_event() for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) * 1e3 / calls)
    return float(statistics.median(times[warm_up:]))


def argument_sets(
    kernel: str, shape: tuple[int, int, int], pool: Tensor, most: int
) -> list[tuple[Tensor, ...]]:
    """Arguments with different weights, as many as the pool has room for."""
    first = arguments(kernel, *shape, pool.device, pool)
    weight = _WEIGHT.get(kernel, 2)
    count = first[weight].numel()
    sets = []
    for i in range(max(min(most, pool.numel() // count), 1)):
        matrix = pool[i * count : (i + 1) * count].view(first[weight].shape)
        sets.append((*first[:weight], matrix, *first[weight + 1 :]))
    return sets
