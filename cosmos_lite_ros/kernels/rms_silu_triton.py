# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
# Triton carries no type information.
# mypy: disable-error-code="import-untyped, no-untyped-def, untyped-decorator"
"""Triton kernel of ``rms_silu``: several rows a program, one pass."""

from __future__ import annotations

import math

import triton
import triton.language as tl
from torch import Tensor

from cosmos_lite_ros.kernels.rms_silu import NORM_FLOOR

# Rows are short (160 to 640 channels of 100 k to 6 k pixels): 4096 elements in four warps are four
# 16-byte loads a thread in bfloat16, and a row lies in one warp, so that its sum needs no shared
# memory up to 256 channels and stays cheap above.
ELEMENTS = 4096
WARPS = 4


@triton.jit
def rms_silu_kernel(
    x_ptr,
    bias_ptr,
    gamma_ptr,
    out_ptr,
    x_stride,
    out_stride,
    rows,
    root,
    floor,
    C: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
    BIAS: tl.constexpr,
    SILU: tl.constexpr,
):
    """The floor by comparison: a maximum would turn the length of a row with NaN into it."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    columns = tl.arange(0, BLOCK)
    inside = (row < rows)[:, None] & (columns < C)[None, :]
    x = tl.load(x_ptr + row[:, None] * x_stride + columns[None, :], mask=inside, other=0.0)
    gamma = tl.load(gamma_ptr + columns, mask=columns < C, other=0.0).to(tl.float32) * root
    if BIAS:
        bias = tl.load(bias_ptr + columns, mask=columns < C, other=0.0).to(tl.float32)
        x = (x.to(tl.float32) + bias[None, :]).to(x.dtype)
    wide = x.to(tl.float32)
    length = tl.sqrt(tl.sum(wide * wide, axis=1))
    length = tl.where(length < floor, floor, length)
    y = wide / length[:, None] * gamma[None, :]
    if SILU:
        y = y / (1.0 + tl.exp(-y))
    out = out_ptr + row[:, None] * out_stride + columns[None, :]
    tl.store(out, y.to(x.dtype), mask=inside)


def launch(x: Tensor, gamma: Tensor, out: Tensor, *, bias: Tensor | None, silu: bool) -> None:
    """``rms_silu`` of checked arguments."""
    rows, channels = x.shape
    if rows == 0:
        return
    block = triton.next_power_of_2(channels)
    rows_per_program = max(ELEMENTS // block, 1)
    rms_silu_kernel[(triton.cdiv(rows, rows_per_program),)](
        x,
        gamma if bias is None else bias,
        gamma,
        out,
        x.stride(0),
        out.stride(0),
        rows,
        math.sqrt(channels),
        NORM_FLOOR,
        C=channels,
        BLOCK=block,
        ROWS=rows_per_program,
        BIAS=bias is not None,
        SILU=silu,
        num_warps=WARPS,
        enable_fp_fusion=True,
    )
