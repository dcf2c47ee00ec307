# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
# Triton carries no type information.
# mypy: disable-error-code="import-untyped, no-untyped-def, untyped-decorator"
"""Triton kernels of ``relu2_quantise`` and ``swiglu_quantise``, both of one pass.

By rows: one program a row, the row in registers in two parts, each a power of two wide (9216 is
8192 + 1024), since one part would be 16384. By blocks: one program a stretch of one row.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from cosmos_lite_ros.kernels.gemm_checks import SCALE_BLOCK
from cosmos_lite_ros.kernels.quantise_triton import magnitude, quantised, scale_of

# By rows: 72 elements a thread of squared ReLU, 2 x 48 of SwiGLU. Read on an H200 for 6186
# rows: 47.8 us with 4 warps and 50.5 with 8 of the one, 99.7 with 8 and 106.9 with 4 of the other.
ROW_WARPS = 4
SWIGLU_WARPS = 8
# By blocks: 16 elements a thread of each input.
STRETCH = 16 * 32 * 4
STRETCH_WARPS = 4


@triton.jit
def _relu2(source, inside):
    """A comparison and not a maximum, which would drop NaN."""
    x = tl.load(source, mask=inside, other=0.0)
    wide = x.to(tl.float32)
    wide = tl.where(wide < 0.0, 0.0, wide)
    return (wide * wide).to(x.dtype)


@triton.jit
def _swiglu(source, inside, width):
    gate = tl.load(source, mask=inside, other=0.0)
    up = tl.load(source + width, mask=inside, other=0.0).to(tl.float32)
    wide = gate.to(tl.float32)
    return (wide / (1.0 + tl.exp(-wide)) * up).to(gate.dtype)


@triton.jit
def _activated(source, inside, width, SWIGLU: tl.constexpr):
    return _swiglu(source, inside, width) if SWIGLU else _relu2(source, inside)


@triton.jit
def activation_rows_kernel(
    x_ptr,
    q_ptr,
    scale_ptr,
    x_stride,
    q_stride,
    limit,
    WIDTH: tl.constexpr,
    FIRST: tl.constexpr,
    SECOND: tl.constexpr,
    SWIGLU: tl.constexpr,
):
    """One row. SECOND is 0 where WIDTH is no more than FIRST."""
    row = tl.program_id(0).to(tl.int64)
    source = x_ptr + row * x_stride
    target = q_ptr + row * q_stride
    head = tl.arange(0, FIRST)
    y = _activated(source + head, head < WIDTH, WIDTH, SWIGLU)
    largest = tl.max(magnitude(y.to(tl.float32)), axis=0)
    if SECOND > 0:
        tail = FIRST + tl.arange(0, SECOND)
        z = _activated(source + tail, tail < WIDTH, WIDTH, SWIGLU)
        largest = tl.maximum(largest, tl.max(magnitude(z.to(tl.float32)), axis=0))
    scale, inverse = scale_of(largest, limit)
    tl.store(scale_ptr + row, scale)
    q = quantised(y.to(tl.float32), inverse, limit, q_ptr.dtype.element_ty)
    tl.store(target + head, q, mask=head < WIDTH)
    if SECOND > 0:
        q = quantised(z.to(tl.float32), inverse, limit, q_ptr.dtype.element_ty)
        tl.store(target + tail, q, mask=tail < WIDTH)


@triton.jit
def activation_blocks_kernel(
    x_ptr,
    q_ptr,
    scale_ptr,
    x_stride,
    q_stride,
    scale_stride,
    width,
    stretches,
    limit,
    BLOCKS: tl.constexpr,
    BLOCK: tl.constexpr,
    SWIGLU: tl.constexpr,
):
    """BLOCKS blocks of one row; columns behind the row are zeros to its last block."""
    program = tl.program_id(0)
    row = (program // stretches).to(tl.int64)
    block = (program % stretches) * BLOCKS + tl.arange(0, BLOCKS)
    columns = block[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
    inside = columns < width
    source = x_ptr + row * x_stride + columns
    y = _activated(source, inside, width, SWIGLU).to(tl.float32)
    scale, inverse = scale_of(tl.max(magnitude(y), axis=1), limit)
    tl.store(scale_ptr + row * scale_stride + block, scale, mask=block * BLOCK < width)
    q = quantised(y, inverse[:, None], limit, q_ptr.dtype.element_ty)
    tl.store(q_ptr + row * q_stride + columns, q, mask=inside)


def launch_relu2_quantise(x: Tensor, q: Tensor, scale: Tensor, limit: float) -> None:
    """``relu2_quantise`` of checked arguments."""
    _launch(x, q, scale, limit, swiglu=False)


def launch_swiglu_quantise(gate_up: Tensor, q: Tensor, scale: Tensor, limit: float) -> None:
    """``swiglu_quantise`` of checked arguments."""
    _launch(gate_up, q, scale, limit, swiglu=True)


def _launch(x: Tensor, q: Tensor, scale: Tensor, limit: float, *, swiglu: bool) -> None:
    rows, width = q.shape
    if rows * width == 0:
        return
    if scale.ndim == 1:
        first = triton.next_power_of_2(width // 2 + 1)
        second = triton.next_power_of_2(width - first) if width > first else 0
        activation_rows_kernel[(rows,)](
            x,
            q,
            scale,
            x.stride(0),
            q.stride(0),
            float(limit),
            WIDTH=width,
            FIRST=first,
            SECOND=second,
            SWIGLU=swiglu,
            num_warps=SWIGLU_WARPS if swiglu else ROW_WARPS,
            enable_fp_fusion=True,
        )
        return
    stretches = triton.cdiv(width, STRETCH)
    activation_blocks_kernel[(rows * stretches,)](
        x,
        q,
        scale,
        x.stride(0),
        q.stride(0),
        scale.stride(0),
        width,
        stretches,
        float(limit),
        BLOCKS=STRETCH // SCALE_BLOCK,
        BLOCK=SCALE_BLOCK,
        SWIGLU=swiglu,
        num_warps=STRETCH_WARPS,
        enable_fp_fusion=True,
    )
