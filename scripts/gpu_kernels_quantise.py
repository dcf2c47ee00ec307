#!/usr/bin/env python3
# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Check and time the quantising kernels and the int8 attention on a CUDA GPU at real shapes.

``python scripts/gpu_kernels_quantise.py [check] [bench] [sweep]``, the first two by default; sweep
times the attention with other tiles (a minute).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from cosmos_lite_ros.kernels.activation import relu2, swiglu
from cosmos_lite_ros.kernels.attention_int8qk import (
    Workspace,
    attention_int8qk,
    attention_int8qk_twin,
)
from cosmos_lite_ros.kernels.gather import heads_to_rows
from cosmos_lite_ros.kernels.quantise import dequantise
from cosmos_lite_ros.kernels.rms_norm import rms_norm
from scripts.gpu_kernels import CALLS, COLD_BYTES, microseconds
from test.kernels.attention_makers import REAL, Attention, exact, relative_error
from test.kernels.quantise_makers import Case, real

ROWS = (3093, 6186)
BF16 = torch.bfloat16
# Of float64 attention: rows of one head, or the scores would not fit.
EXACT_ROWS = 1024
Arguments = dict[str, Any]


def copied(arguments: Arguments, dtype: torch.dtype | None = None) -> Arguments:
    """A copy; with ``dtype``, of the bfloat16 tensors in it."""

    def copy(value: Any) -> Any:
        if isinstance(value, Workspace):
            return Workspace(*(getattr(value, f.name).clone() for f in fields(value)))
        if not isinstance(value, Tensor):
            return value
        return value.to(dtype) if dtype and value.dtype == BF16 else value.clone()

    return {name: copy(value) for name, value in arguments.items()}


def run_as_promised(function: Callable[..., None], arguments: Arguments) -> Arguments:
    """The arguments after a captured call.

    Raises:
        AssertionError: a call allocated on the GPU, or a captured one wrote something else.
    """
    function(**copied(arguments))  # compiles
    eager, graphed = copied(arguments), copied(arguments)
    torch.cuda.synchronize()
    before = torch.cuda.memory_stats()["allocation.all.allocated"]
    torch.cuda.set_sync_debug_mode("error")
    function(**eager)
    torch.cuda.set_sync_debug_mode("default")
    assert torch.cuda.memory_stats()["allocation.all.allocated"] == before, "it allocated"
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        function(**graphed)
    graph.replay()
    torch.cuda.synchronize()
    for name, value in eager.items():
        if isinstance(value, Tensor):
            same = [t.view(torch.uint8) for t in (value.contiguous(), graphed[name].contiguous())]
            assert torch.equal(*same), f"{name} of a graph differs"
    return graphed


def check_case(case: Case) -> tuple[float, float, float]:
    """Share of q and of the scales that differ from the twin's, and the worst error.

    The error is against float64, 1 being the most that the definition explains.

    Raises:
        AssertionError: as ``run_as_promised``, or a planted NaN did not show in its row alone.
    """
    arguments = case.make(BF16, "cuda")
    found = run_as_promised(case.implementation("public"), arguments)
    twin = copied(arguments)
    case.implementation("twin")(**twin)
    differs = (found["q"].view(torch.int8) != twin["q"].view(torch.int8)).float().mean()
    scales = (found["scale"] != twin["scale"]).float().mean()
    expected = case.exact(copied(arguments, torch.float64))
    back = dequantise(found["q"], found["scale"], torch.float64, case.block)
    error = (back - expected).abs() / case.widest_error(expected, BF16)
    del expected, back
    source = arguments[case.source]
    row = 7
    source[(0, row, 0, 3) if source.ndim == 4 else (row, 3)] = torch.nan
    case.implementation("public")(**arguments)
    broken = (~arguments["scale"].isfinite()).reshape(len(arguments["q"]), -1).any(1)
    assert broken.nonzero().flatten().tolist() == [row], "NaN did not show in its row alone"
    return float(differs), float(scales), float(error.nan_to_num(nan=torch.inf).max())


def check_quantise() -> bool:
    """Check every kernel at every real shape; prints a table. Whether all are right."""
    right = True
    print("| kernel | q differs | scales differ | error |\n|---|---|---|---|")
    for rows in ROWS:
        for case in real(rows):
            differs, scales, error = check_case(case)
            good = error <= 1 and differs <= (0 if case.bit_equal else 0.002)
            right &= good
            verdict = "" if good else " WRONG"
            print(
                f"| {case.name} | {differs:.6f} | {scales:.4f} | {error:.3f}{verdict} |", flush=True
            )
    print("differs: from the twin on this GPU; error: against float64, 1 explained by rounding\n")
    return right & check_attention()


def part(arguments: Arguments) -> Arguments:
    """The first rows of the first head: what float64 attention is computed of."""
    rows = {"q": arguments["q"][:1, :EXACT_ROWS], "out": arguments["out"][:1, :EXACT_ROWS]}
    return {**rows, "k": arguments["k"][:1], "v": arguments["v"][:1]}


def backends(a: Arguments) -> dict[str, Callable[[], Tensor]]:
    """Attention in bfloat16 by SDPA backend, those that this GPU has."""
    found = {}
    for name in ("CUDNN", "FLASH"):
        backend = getattr(SDPBackend, f"{name}_ATTENTION")

        def run(backend: Any = backend) -> Tensor:
            with sdpa_kernel(backend):
                return scaled_dot_product_attention(a["q"][None], a["k"][None], a["v"][None])[0]

        try:
            run()
        except RuntimeError as error:
            print(f"sdpa {name.lower()}: {str(error).splitlines()[0]}")
        else:
            found[f"sdpa {name.lower()}"] = run
    return found


def check_attention() -> bool:
    """The kernels against their twin and float64, with outliers; prints a table."""
    right = True
    print("| attention | keys differ | from twin | error | of sdpa |\n|---|---|---|---|---|")
    for family, shape in REAL.items():
        for outlier in ("none", "both"):
            for float16_sum in (False, True):
                case = Attention(
                    shape.heads, shape.rows, shape.keys, outlier=outlier, float16_sum=float16_sum
                )
                a = case.make(BF16, "cuda")
                found = run_as_promised(attention_int8qk, a)
                twin = copied(a)
                attention_int8qk_twin(**twin)
                keys = (found["workspace"].k != twin["workspace"].k).float().mean()
                apart = relative_error(found["out"], twin["out"].double())
                expected = exact(part(a))
                error = relative_error(part(found)["out"], expected)
                sdpa = [
                    relative_error(run()[:1, :EXACT_ROWS], expected) for run in backends(a).values()
                ]
                a["q"][3, 1000, 5] = torch.nan
                attention_int8qk(**a)
                lost = a["out"].isnan().any(-1).nonzero().tolist()
                good = apart < 6e-3 and error < 0.03 and keys < 0.001 and lost == [[3, 1000]]
                right &= good
                name = f"{family} {outlier}{' float16 sum' * float16_sum}"
                print(
                    f"| {name} | {keys:.6f} | {apart:.5f} | {error:.5f} | "
                    f"{', '.join(f'{s:.5f}' for s in sdpa)} |{'' if good else ' WRONG'}",
                    flush=True,
                )
    print("relative L2; error: against float64 over 1024 rows of one head\n")
    return right


def in_bfloat16(case: Case, a: Arguments) -> tuple[Callable[..., None], Arguments]:
    """The kernel that stores bfloat16 instead of quantising, with the same inputs."""
    out = torch.empty(a["q"].shape, dtype=BF16, device="cuda")
    inputs = {n: v for n, v in a.items() if n not in ("q", "scale", "limit")}
    function: Callable[..., None] = {
        "rms_norm_quantise": rms_norm,
        "relu2_quantise": relu2,
        "swiglu_quantise": swiglu,
        "heads_to_rows_quantise": heads_to_rows,
    }[case.function]
    return function, {**inputs, "out": out}


def nbytes(arguments: Arguments) -> int:
    total = sum(v.nbytes for v in arguments.values() if isinstance(v, Tensor))
    return total + (arguments["x"].nbytes if arguments.get("delta") is not None else 0)


def cold_and_warm(function: Callable[..., None], arguments: Arguments) -> tuple[float, float]:
    """Microseconds a call: going round more memory than any L2, and with the same arguments."""
    count = min(max(-(-COLD_BYTES // nbytes(arguments)), 2), CALLS)
    sets = [arguments, *(copied(arguments) for _ in range(count - 1))]
    return microseconds(function, sets), microseconds(function, sets[:1])


def bench_quantise(rows: tuple[int, ...] = ROWS) -> dict[str, dict[str, float]]:
    """Times of every real case beside its bfloat16 counterpart, printed and returned by name."""
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, captured {CALLS} calls\n")
    print("| kernel | MB | cold us | GB/s | warm us | bf16 cold us | bf16 warm us |")
    print("|---|---|---|---|---|---|---|")
    found = {}
    for case in (case for n in rows for case in real(n) if case.kind != "e4m3_28"):
        arguments = case.make(BF16, "cuda")
        size = nbytes(arguments)
        cold, warm = cold_and_warm(case.implementation("public"), arguments)
        plain_cold, plain_warm = cold_and_warm(*in_bfloat16(case, arguments))
        found[case.name] = {
            "cold_us": cold,
            "warm_us": warm,
            "bf16_cold_us": plain_cold,
            "bf16_warm_us": plain_warm,
        }
        print(
            f"| {case.name} | {size / 1e6:.1f} | {cold:.1f} | {size / cold / 1e3:.0f} | "
            f"{warm:.1f} | {plain_cold:.1f} | {plain_warm:.1f} |",
            flush=True,
        )
    print()
    return {**found, **bench_attention()}


def _discard(run: Callable[[], Tensor]) -> None:
    run()


def bench_attention() -> dict[str, dict[str, float]]:
    """int8 attention beside SDPA at Edge's and Nano's shapes, printed and returned by name."""
    print("| attention | us | TFLOP/s |\n|---|---|---|")
    found: dict[str, dict[str, float]] = {}
    for family, case in REAL.items():
        a = case.make(BF16, "cuda")
        work = 4 * case.heads * case.rows * case.keys * case.width
        one = {**a, "q": a["q"][:, :1], "out": a["out"][:, :1]}
        calls: dict[str, Callable[..., None]] = {
            name: partial(_discard, run) for name, run in backends(a).items()
        }
        calls["int8qk"] = partial(attention_int8qk, **a)
        calls["int8qk float16 sum"] = partial(attention_int8qk, **{**a, "float16_sum": True})
        calls["int8qk keys and values only"] = partial(attention_int8qk, **one)
        for name, call in calls.items():
            took = microseconds(call, [{}])
            found[f"{family} {name}"] = {"us": took}
            speed = "-" if "only" in name else f"{work / took / 1e6:.0f}"
            print(f"| {family} {name} | {took:.1f} | {speed} |", flush=True)
    print()
    return found


def sweep_attention(*, float16_sum: bool = False) -> None:
    """The attention's time with other tiles; about five seconds of compilation each."""
    from cosmos_lite_ros.kernels.attention_int8qk_triton import Tile, launch

    tiles = [
        Tile(rows, keys, warps, stages)
        for rows, keys, warps in ((64, 64, 4), (64, 128, 4), (128, 64, 8), (128, 128, 8))
        for stages in (2, 3)
    ]
    print("| tile | Edge us | Nano us |\n|---|---|---|")
    for tile in tiles:
        cells = []
        for case in REAL.values():
            a = {**case.make(BF16, "cuda"), "float16_sum": float16_sum, "tile": tile}
            try:
                cells.append(f"{microseconds(partial(launch, **a), [{}]):.1f}")
            except Exception as error:  # out of shared memory or registers, by any name
                cells.append(type(error).__name__)
        name = f"{tile.rows}x{tile.keys} {tile.warps} warps {tile.stages} stages"
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def main() -> int:
    """Exit code 1 where a kernel is wrong, 3 without a GPU."""
    if not torch.cuda.is_available():
        print("found no CUDA GPU, expected one: the kernels run there", file=sys.stderr)
        return 3
    wanted = sys.argv[1:] or ["check", "bench"]
    right = True
    with torch.inference_mode():
        if "check" in wanted:
            right = check_quantise()
        if "bench" in wanted:
            bench_quantise()
        if "sweep" in wanted:
            sweep_attention()
    return 0 if right else 1


if __name__ == "__main__":
    raise SystemExit(main())
