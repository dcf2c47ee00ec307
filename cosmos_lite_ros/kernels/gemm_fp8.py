# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""e4m3 matrix products: float32 accumulation, and float16 accumulation promoted every 64."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from cosmos_lite_ros.errors import BadInputError
from cosmos_lite_ros.kernels.dispatch import check, on_gpu
from cosmos_lite_ros.kernels.gemm_checks import check_out, check_sizes, inner_of

E4M3 = torch.float8_e4m3fn
# Largest magnitudes: of e4m3, and of both sides of a product whose sums of FAST_BLOCK terms must
# stay below float16's 65504: 64 * 28 * 28 = 50176.
LIMIT = 448.0
FAST_LIMIT = 28.0
FAST_BLOCK = 64
# Columns that one matrix instruction adds up: its float16 sum is rounded once each of them.
_INSTRUCTION_COLUMNS = 32
Backend = Literal["scaled_mm", "triton"]


def gemm_fp8(
    a: Tensor,
    a_scale: Tensor,
    b: Tensor,
    b_scale: Tensor,
    out: Tensor,
    *,
    fast_accumulation: bool = False,
) -> None:
    """``out = (a @ b.T) * a_scale[:, None] * b_scale``, accumulated in float32.

    Args:
        a: [M, K] float8_e4m3fn, rows may be strided.
        a_scale: [M] float32, one factor a row; NaN makes the row NaN.
        b: [N, K] float8_e4m3fn, a weight matrix.
        b_scale: [N] float32.
        out: [M, N] bfloat16 or float32.
        fast_accumulation: leave the sum to the matrix unit, which keeps about 14 bits of it on
            sm_90 (and 13 on sm_89, by what is published). False adds every 128 terms in float32.

    Raises:
        BadInputError: shapes, dtypes or devices that do not belong together.
        EnvironmentLacksError: CUDA tensors and no Triton, or a GPU without e4m3 arithmetic.
    """
    _check(a, a_scale, b, b_scale, out)
    if on_gpu(out, a, a_scale, b, b_scale):
        from cosmos_lite_ros.kernels.gemm_fp8_triton import launch

        launch(a, a_scale, b, b_scale, out, fast_accumulation=fast_accumulation)
    else:
        gemm_fp8_twin(a, a_scale, b, b_scale, out)


def gemm_fp8_twin(a: Tensor, a_scale: Tensor, b: Tensor, b_scale: Tensor, out: Tensor) -> None:
    """``gemm_fp8`` in torch, on any device; float64 ``out`` is computed in float64."""
    inner = inner_of(out)
    product = a.to(inner) @ b.to(inner).T
    out.copy_(product * a_scale[:, None].to(inner) * b_scale.to(inner))


def gemm_fp8_fast(a: Tensor, a_scale: Tensor, b: Tensor, b_scale: Tensor, out: Tensor) -> None:
    """``gemm_fp8`` with sums of 64 terms in float16, which are added up in float32.

    Both sides must have been scaled to a largest magnitude of 28 (``FAST_LIMIT``): then no sum of
    64 terms leaves float16. With larger values it becomes inf, as the hardware's does.

    Args, Raises: as ``gemm_fp8``.
    """
    _check(a, a_scale, b, b_scale, out)
    if on_gpu(out, a, a_scale, b, b_scale):
        from cosmos_lite_ros.kernels.gemm_fp8_triton import launch_fast

        launch_fast(a, a_scale, b, b_scale, out)
    else:
        gemm_fp8_fast_twin(a, a_scale, b, b_scale, out)


def gemm_fp8_fast_twin(a: Tensor, a_scale: Tensor, b: Tensor, b_scale: Tensor, out: Tensor) -> None:
    """``gemm_fp8_fast`` in torch, on any device; rounds to float16 where the hardware does.

    float64 ``out`` adds everything up in float64 and rounds nothing.
    """
    inner = inner_of(out)
    wide_a, wide_b = a.to(inner), b.to(inner)
    total = torch.zeros(out.shape, dtype=inner, device=out.device)
    for start in range(0, a.shape[1], FAST_BLOCK):
        block: Tensor | None = None
        for first in range(start, min(start + FAST_BLOCK, a.shape[1]), _INSTRUCTION_COLUMNS):
            columns = slice(first, min(first + _INSTRUCTION_COLUMNS, start + FAST_BLOCK))
            terms = wide_a[:, columns] @ wide_b[:, columns].T
            block = terms if block is None else block + terms
            if inner is torch.float32:
                block = block.half().to(inner)
        if block is not None:
            total += block
    out.copy_(total * a_scale[:, None].to(inner) * b_scale.to(inner))


def linear_fp8(
    a: Tensor,
    a_scale: Tensor,
    b: Tensor,
    b_scale: Tensor,
    out: Tensor,
    *,
    fast: bool,
    backend: Backend,
) -> None:
    """``gemm_fp8`` by ``torch._scaled_mm`` row-wise or by the Triton kernel; a CPU runs the twin.

    Which one a GPU should use is the answer of ``probe``. ``_scaled_mm`` takes its workspace from
    torch's caching allocator, so the first call with a shape may allocate.

    Args:
        a, a_scale, b, b_scale, out: as ``gemm_fp8``; ``out`` bfloat16 for ``scaled_mm``.
        fast: leave the sum to the matrix unit (``use_fast_accum``).
        backend: scaled_mm or triton.

    Raises:
        BadInputError: as ``gemm_fp8``, or an unknown backend.
    """
    if backend not in ("scaled_mm", "triton"):
        raise BadInputError(f"backend is {backend!r}, expected scaled_mm or triton")
    if backend == "triton" or out.device.type != "cuda":
        gemm_fp8(a, a_scale, b, b_scale, out, fast_accumulation=fast)
        return
    _check(a, a_scale, b, b_scale, out)
    torch._scaled_mm(
        a,
        b.T,
        scale_a=a_scale[:, None],
        scale_b=b_scale[None],
        out_dtype=out.dtype,
        use_fast_accum=fast,
        out=out,
    )


def _check(a: Tensor, a_scale: Tensor, b: Tensor, b_scale: Tensor, out: Tensor) -> None:
    check("a", a, (a.shape[0], b.shape[-1]), E4M3)
    check("b", b, (b.shape[0], a.shape[-1]), E4M3)
    check("a_scale", a_scale, (a.shape[0],), torch.float32)
    check("b_scale", b_scale, (b.shape[0],), torch.float32)
    check_out(out, a.shape[0], b.shape[0])
    check_sizes(a, b, out)
