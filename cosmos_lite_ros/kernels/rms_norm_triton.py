# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
# Triton carries no type information.
# mypy: disable-error-code="import-untyped, no-untyped-def, untyped-decorator"
"""Triton kernel of ``rms_norm``: one program a row, the row in registers, one pass."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

# 16 elements a thread: two 16-byte loads of x and two of delta under way in bfloat16, and about 50
# registers, so that ten programs share a multiprocessor.
ELEMENTS_PER_WARP = 16 * 32


@triton.jit
def rms_norm_kernel(
    x_ptr,
    delta_ptr,
    weight_ptr,
    out_ptr,
    x_stride,
    delta_stride,
    out_stride,
    eps,
    H: tl.constexpr,
    BLOCK: tl.constexpr,
    ADD: tl.constexpr,
    TWICE: tl.constexpr,
):
    """One row; the sum of squares of a NaN is NaN, so a broken row stays broken."""
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
    out_row = out_ptr + row * out_stride + columns
    tl.store(out_row, (normalised * weight).to(x.dtype), mask=inside)


def launch(
    x: Tensor, weight: Tensor, eps: float, out: Tensor, *, delta: Tensor | None, twice: bool
) -> None:
    """``rms_norm`` of checked arguments."""
    rows, width = x.shape
    if rows == 0:
        return
    block = triton.next_power_of_2(width)
    second = x if delta is None else delta
    rms_norm_kernel[(rows,)](
        x,
        second,
        weight,
        out,
        x.stride(0),
        second.stride(0),
        out.stride(0),
        eps,
        H=width,
        BLOCK=block,
        ADD=delta is not None,
        TWICE=twice,
        num_warps=min(max(block // ELEMENTS_PER_WARP, 1), 16),
        enable_fp_fusion=True,
    )
