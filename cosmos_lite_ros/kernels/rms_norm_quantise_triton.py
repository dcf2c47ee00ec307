# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
# Triton carries no type information.
# mypy: disable-error-code="import-untyped, no-untyped-def, untyped-decorator"
"""Triton kernel of ``rms_norm_quantise``: one program a row, the row in registers, one pass."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from cosmos_lite_ros.kernels.quantise_triton import magnitude, quantised, scale_of

# As rms_norm: 16 elements a thread.
ELEMENTS_PER_WARP = 16 * 32


@triton.jit
def rms_norm_quantise_kernel(
    x_ptr,
    delta_ptr,
    weight_ptr,
    q_ptr,
    scale_ptr,
    x_stride,
    delta_stride,
    q_stride,
    eps,
    limit,
    H: tl.constexpr,
    BLOCK: tl.constexpr,
    ADD: tl.constexpr,
    TWICE: tl.constexpr,
):
    """The norm of ``rms_norm``; a NaN in a row is NaN in its scale."""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    inside = columns < H
    x_row = x_ptr + row * x_stride + columns
    x = tl.load(x_row, mask=inside, other=0.0)
    weight = tl.load(weight_ptr + columns, mask=inside, other=0.0).to(tl.float32)
    if ADD:
        delta = tl.load(delta_ptr + row * delta_stride + columns, mask=inside, other=0.0)
        x = (x.to(tl.float32) + delta.to(tl.float32)).to(x.dtype)
        tl.store(x_row, x, mask=inside)
    wide = x.to(tl.float32)
    normalised = wide * tl.rsqrt(tl.sum(wide * wide, axis=0) / H + eps)
    if TWICE:
        normalised = normalised.to(x.dtype).to(tl.float32)
    y = (normalised * weight).to(x.dtype).to(tl.float32)
    scale, inverse = scale_of(tl.max(magnitude(y), axis=0), limit)
    tl.store(scale_ptr + row, scale)
    q = quantised(y, inverse, limit, q_ptr.dtype.element_ty)
    tl.store(q_ptr + row * q_stride + columns, q, mask=inside)


def launch(
    x: Tensor,
    weight: Tensor,
    eps: float,
    q: Tensor,
    scale: Tensor,
    limit: float,
    *,
    delta: Tensor | None,
    twice: bool,
) -> None:
    """``rms_norm_quantise`` of checked arguments."""
    rows, width = x.shape
    if rows == 0:
        return
    block = triton.next_power_of_2(width)
    second = x if delta is None else delta
    rms_norm_quantise_kernel[(rows,)](
        x,
        second,
        weight,
        q,
        scale,
        x.stride(0),
        second.stride(0),
        q.stride(0),
        eps,
        float(limit),
        H=width,
        BLOCK=block,
        ADD=delta is not None,
        TWICE=twice,
        num_warps=min(max(block // ELEMENTS_PER_WARP, 1), 16),
        enable_fp_fusion=True,
    )
