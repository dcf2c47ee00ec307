# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
# Triton carries no type information.
# mypy: disable-error-code="import-untyped, no-untyped-def, untyped-decorator"
"""Triton kernels of ``relu2`` and ``swiglu``: a stretch of one row a program."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

# Four 16-byte loads a thread under way in bfloat16: 32 elements of one input, or 16 of each of two.
WARPS = 4
RELU2_BLOCK = 32 * 32 * WARPS
SWIGLU_BLOCK = 16 * 32 * WARPS


@triton.jit
def relu2_kernel(x_ptr, out_ptr, x_stride, out_stride, width, blocks, BLOCK: tl.constexpr):
    """A comparison and not a maximum, which would drop NaN."""
    program = tl.program_id(0)
    row = (program // blocks).to(tl.int64)
    columns = (program % blocks) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < width
    x = tl.load(x_ptr + row * x_stride + columns, mask=inside, other=0.0).to(tl.float32)
    x = tl.where(x < 0.0, 0.0, x)
    out = (x * x).to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + row * out_stride + columns, out, mask=inside)


@triton.jit
def swiglu_kernel(x_ptr, out_ptr, x_stride, out_stride, width, blocks, BLOCK: tl.constexpr):
    """width is I: the second input lies I columns behind the first."""
    program = tl.program_id(0)
    row = (program // blocks).to(tl.int64)
    columns = (program % blocks) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < width
    source = x_ptr + row * x_stride + columns
    gate = tl.load(source, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(source + width, mask=inside, other=0.0).to(tl.float32)
    out = gate / (1.0 + tl.exp(-gate)) * up
    tl.store(out_ptr + row * out_stride + columns, out.to(out_ptr.dtype.element_ty), mask=inside)


def launch_relu2(x: Tensor, out: Tensor) -> None:
    """``relu2`` of checked arguments."""
    rows, width = x.shape
    if x.is_contiguous() and out.is_contiguous():
        # One long row: 9216 columns are no multiple of the block.
        rows, width = 1, rows * width
    if rows * width == 0:
        return
    blocks = triton.cdiv(width, RELU2_BLOCK)
    relu2_kernel[(rows * blocks,)](
        x,
        out,
        x.stride(0),
        out.stride(0),
        width,
        blocks,
        BLOCK=RELU2_BLOCK,
        num_warps=WARPS,
        enable_fp_fusion=True,
    )


def launch_swiglu(gate_up: Tensor, out: Tensor) -> None:
    """``swiglu`` of checked arguments."""
    rows, width = out.shape
    if rows * width == 0:
        return
    blocks = triton.cdiv(width, SWIGLU_BLOCK)
    swiglu_kernel[(rows * blocks,)](
        gate_up,
        out,
        gate_up.stride(0),
        out.stride(0),
        width,
        blocks,
        BLOCK=SWIGLU_BLOCK,
        num_warps=WARPS,
        enable_fp_fusion=True,
    )
