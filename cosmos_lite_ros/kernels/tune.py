# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
# Triton carries no type information.
# mypy: disable-error-code="import-untyped"
"""Candidates of configurations, and their measurement on the GPU at hand into a table."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from typing import Final

import torch
from torch import Tensor

from cosmos_lite_ros.errors import EnvironmentLacksError
from cosmos_lite_ros.kernels.gemm_checks import SCALE_BLOCK
from cosmos_lite_ros.kernels.shapes import ACTION_ROWS, RELEASED, ROLES, TOKEN_ROWS
from cosmos_lite_ros.kernels.tables import (
    KERNELS,
    Entry,
    GemmConfig,
    Table,
    architecture_of,
    number_of,
)
from cosmos_lite_ros.kernels.trial import (
    argument_sets,
    arguments,
    launcher,
    microseconds,
    random_weights,
)

Say = Callable[[str], None]
# Both guidance branches' action rows, one branch, both branches.
ROWS: Final = (2 * ACTION_ROWS, TOKEN_ROWS, 2 * TOKEN_ROWS)
SMALL_ROWS: Final = 128
# Which matrices each kernel multiplies in some scheme.
ROLES_OF: Final[dict[str, tuple[str, ...]]] = {
    **dict.fromkeys(KERNELS, ROLES),
    "gemm_int8": ("qkv", "out", "up"),
    "gemm_int8_blocked": ("down",),
    "gemm_int4wo": ("up", "down"),
}
_GROUP: Final = 8
# Weights, more than any L2, so that none is found there; a request reads none twice.
_POOL_BYTES: Final = 320_000_000
_CALLS: Final = 10
_REPLAYS: Final = 3
# A candidate this much slower than the best so far in a first look is not measured further.
_HOPELESS: Final = 1.25

Cut = tuple[int, int, int, int, int, int]
# block_m, block_n, block_k, split, num_warps, num_stages; the first is the choice where nothing was
# measured. Ampere, Ada and GeForce Blackwell: 99 KB of shared memory, products from registers; two
# products a step keep Triton 3.7 and newer from carrying single bytes from step to step (sm_8x).
_MMA: Final[dict[str, tuple[Cut, ...]]] = {
    "gemm_fp8": (
        (128, 128, 128, 2, 8, 4),
        (128, 128, 128, 2, 8, 3),
        (128, 128, 128, 1, 8, 4),
        (64, 128, 128, 2, 4, 3),
    ),
    "gemm_fp8_unpromoted": (
        (128, 128, 128, 2, 8, 4),
        (128, 256, 128, 2, 8, 3),
        (128, 128, 128, 1, 8, 4),
        (64, 128, 128, 2, 4, 3),
    ),
    "gemm_fp8_fast": (
        (128, 128, 128, 2, 8, 4),
        (128, 128, 128, 2, 8, 3),
        (128, 128, 64, 1, 8, 4),
        (64, 128, 128, 2, 4, 3),
    ),
    "gemm_int8": (
        (128, 128, 128, 2, 8, 4),
        (128, 256, 128, 2, 8, 3),
        (128, 128, 128, 1, 8, 4),
        (64, 128, 128, 2, 4, 3),
    ),
    "gemm_int8_blocked": (
        (128, 128, 128, 2, 8, 4),
        (128, 128, 128, 2, 8, 3),
        (64, 128, 128, 2, 4, 3),
    ),
    "gemm_int8wo": (
        (128, 128, 64, 1, 8, 4),
        (128, 128, 64, 1, 8, 3),
        (128, 128, 64, 2, 8, 4),
        (64, 128, 64, 1, 4, 4),
    ),
    "gemm_int4wo": (
        (128, 128, 128, 2, 8, 3),
        (128, 128, 128, 4, 8, 3),
        (64, 128, 128, 2, 4, 3),
    ),
}
# Hopper: 227 KB, products of 64 rows and more straight from shared memory.
_WGMMA: Final[dict[str, tuple[Cut, ...]]] = {
    "gemm_fp8": (
        (128, 128, 128, 1, 8, 4),
        (128, 128, 128, 1, 8, 3),
        (128, 128, 64, 1, 8, 5),
        (64, 128, 128, 1, 4, 4),
    ),
    "gemm_fp8_unpromoted": (
        (128, 256, 128, 1, 8, 3),
        (128, 256, 128, 1, 8, 4),
        (128, 128, 128, 1, 8, 4),
        (128, 128, 128, 1, 4, 3),
    ),
    "gemm_fp8_fast": (
        (128, 256, 64, 1, 8, 4),
        (128, 128, 64, 1, 8, 4),
        (128, 128, 128, 2, 8, 3),
    ),
    "gemm_int8": (
        (128, 256, 128, 1, 8, 3),
        (128, 256, 128, 1, 8, 4),
        (128, 128, 128, 1, 8, 4),
        (128, 128, 128, 1, 4, 3),
    ),
    "gemm_int8_blocked": (
        (128, 128, 128, 1, 8, 4),
        (128, 128, 128, 1, 8, 3),
        (64, 256, 128, 1, 8, 3),
    ),
    "gemm_int8wo": (
        (256, 128, 64, 1, 8, 4),
        (128, 128, 64, 1, 8, 4),
        (128, 128, 128, 2, 8, 3),
        (128, 256, 64, 1, 8, 3),
    ),
    "gemm_int4wo": (
        (128, 128, 128, 1, 8, 3),
        (128, 128, 128, 2, 8, 3),
        (128, 128, 128, 4, 8, 3),
    ),
}
# Few rows: the weights' bandwidth decides, so narrow tiles and many loads under way.
_MMA_SMALL: Final[dict[str, tuple[Cut, ...]]] = {
    "gemm_int8wo": ((64, 32, 128, 1, 4, 4), (64, 64, 128, 1, 4, 3)),
    "gemm_int4wo": ((64, 32, 128, 2, 4, 4), (64, 64, 128, 2, 4, 3)),
    "gemm_fp8_fast": ((64, 32, 128, 2, 4, 4), (64, 64, 128, 2, 4, 4)),
}
_WGMMA_SMALL: Final[dict[str, tuple[Cut, ...]]] = {
    "gemm_int8wo": ((64, 64, 128, 1, 4, 4), (64, 128, 128, 1, 8, 3)),
    "gemm_int4wo": ((64, 64, 128, 1, 4, 4), (64, 64, 128, 2, 4, 3)),
    "gemm_fp8_fast": ((64, 32, 128, 2, 4, 5), (64, 64, 64, 1, 4, 6)),
}
_SMALL: Final[tuple[Cut, ...]] = ((64, 32, 128, 1, 4, 5), (64, 64, 128, 1, 4, 4))


def candidates(kernel: str, rows: int, architecture: str) -> list[GemmConfig]:
    """What is worth trying for a kernel; the first where nothing is measured."""
    hopper = 90 <= number_of(architecture) < 120
    if rows <= SMALL_ROWS:
        small = _WGMMA_SMALL if hopper else _MMA_SMALL
        cuts = small.get(kernel, _SMALL)
    else:
        cuts = (_WGMMA if hopper else _MMA)[kernel]
    return [GemmConfig(m, n, k, split, _GROUP, w, s) for m, n, k, split, w, s in cuts]


def shapes(kernel: str) -> Iterable[tuple[int, int, int]]:
    """M, N, K that a table lists for a kernel."""
    for layer in RELEASED.values():
        for role in ROLES_OF[kernel]:
            for rows in ROWS:
                yield rows, *layer.matrix(role)


def supported(architecture: str) -> list[str]:
    """The kernels that an architecture has arithmetic for."""
    number = number_of(architecture)
    return [name for name, (major, minor) in KERNELS.items() if major * 10 + minor <= number]


def default_table(architecture: str) -> Table:
    """A table of first candidates, for an architecture that is not at hand."""
    entries = tuple(
        Entry(kernel, *shape, candidates(kernel, shape[0], architecture)[0])
        for kernel in supported(architecture)
        for shape in shapes(kernel)
    )
    return Table(architecture, "", entries)


def _compile(kernel: str, configs: list[GemmConfig], index: int) -> str:
    """In a process of its own: compile into Triton's cache by one small launch each."""
    torch.cuda.set_device(index)
    device = torch.device("cuda", index)
    # Triton compiles again for strides of scales that are multiples of 16, as of 2048 columns.
    for depth in (9 * SCALE_BLOCK, 16 * SCALE_BLOCK):
        given = arguments(kernel, 2 * ACTION_ROWS, 4 * SCALE_BLOCK, depth, device, None)
        for config in configs:
            launcher(kernel)(*given, config=config)
    torch.cuda.synchronize()
    return kernel


def compile_all(
    wanted: dict[str, list[GemmConfig]], device: torch.device, workers: int, say: Say
) -> None:
    """Fill Triton's cache with processes side by side."""
    if workers < 2:
        return
    jobs = [(kernel, [config]) for kernel, configs in wanted.items() for config in configs]
    say(f"compiling {len(jobs)} kernels in {workers} processes")
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context) as pool:
        done = [pool.submit(_compile, name, configs, device.index) for name, configs in jobs]
        for each in done:
            each.result()


def tune(
    device: torch.device, say: Say, *, workers: int = 1, kernels: Iterable[str] | None = None
) -> Table:
    """Measure all candidates on a GPU: a table of the fastest.

    Args:
        device: a CUDA device with an index, the current one.
        say: told of the progress.
        workers: processes that compile.
        kernels: which; None for all that the GPU has arithmetic for.

    Raises:
        EnvironmentLacksError: no CUDA device.
    """
    if device.type != "cuda":
        raise EnvironmentLacksError(
            f"found device {device}, expected a CUDA GPU: tune measures there"
        )
    import triton

    architecture = architecture_of(torch.cuda.get_device_capability(device))
    names = [n for n in supported(architecture) if kernels is None or n in kernels]
    wanted = {
        name: list(dict.fromkeys(c for rows in ROWS for c in candidates(name, rows, architecture)))
        for name in names
    }
    compile_all(wanted, device, workers, say)
    entries = []
    for name in names:
        pool = random_weights(name, _POOL_BYTES, device)
        for shape in shapes(name):
            config, took = _fastest(name, shape, candidates(name, shape[0], architecture), pool)
            entries.append(Entry(name, *shape, config, round(took, 1)))
            say(f"{name} {shape[0]}x{shape[1]}x{shape[2]}: {took:.1f} us with {config}")
    measured_on = (
        f"{torch.cuda.get_device_name(device)}, torch {torch.__version__}, "
        f"triton {triton.__version__}"
    )
    return Table(architecture, measured_on, tuple(entries))


def _fastest(
    kernel: str, shape: tuple[int, int, int], configs: list[GemmConfig], pool: Tensor
) -> tuple[GemmConfig, float]:
    """The fastest configuration and its time; one that cannot be launched is passed over."""
    sets = argument_sets(kernel, shape, pool, _CALLS)
    launch = launcher(kernel)

    def time(config: GemmConfig, calls: int, replays: int) -> float:
        def work() -> None:
            for i in range(calls):
                launch(*sets[i % len(sets)], config=config)

        return microseconds(work, calls, replays)

    best: tuple[GemmConfig, float] | None = None
    refusals = []
    for config in configs:
        try:
            first = time(config, 2, 2)
        except Exception as error:  # more shared memory than this GPU has, or what Triton refuses
            refusals.append(f"{config}: {error}")
            continue
        if best is not None and first > best[1] * _HOPELESS:
            continue
        took = time(config, _CALLS, _REPLAYS)
        if best is None or took < best[1]:
            best = config, took
    if best is None:
        raise EnvironmentLacksError(f"no configuration of {kernel} runs here: {refusals[0]}")
    return best
