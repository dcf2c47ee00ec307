# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
# Triton carries no type information.
# mypy: disable-error-code="import-untyped, no-untyped-def, untyped-decorator"
"""Triton kernel of ``residual_add``: several rows a program, one pass."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

# As rms_silu: four 16-byte loads a thread of each input in bfloat16.
ELEMENTS = 4096
WARPS = 4


@triton.jit
def residual_add_kernel(
    x_ptr,
    bias_ptr,
    shortcut_ptr,
    out_ptr,
    x_stride,
    shortcut_stride,
    out_stride,
    rows,
    C: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Both sums in float32, each rounded."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    columns = tl.arange(0, BLOCK)
    inside = (row < rows)[:, None] & (columns < C)[None, :]
    x = tl.load(x_ptr + row[:, None] * x_stride + columns[None, :], mask=inside)
    shortcut = shortcut_ptr + row[:, None] * shortcut_stride + columns[None, :]
    around = tl.load(shortcut, mask=inside).to(tl.float32)
    bias = tl.load(bias_ptr + columns, mask=columns < C).to(tl.float32)
    first = (x.to(tl.float32) + bias[None, :]).to(x.dtype).to(tl.float32)
    out = out_ptr + row[:, None] * out_stride + columns[None, :]
    tl.store(out, (first + around).to(x.dtype), mask=inside)


def launch(x: Tensor, bias: Tensor, shortcut: Tensor, out: Tensor) -> None:
    """``residual_add`` of checked arguments."""
    rows, channels = x.shape
    if rows == 0:
        return
    block = triton.next_power_of_2(channels)
    rows_per_program = max(ELEMENTS // block, 1)
    residual_add_kernel[(triton.cdiv(rows, rows_per_program),)](
        x,
        bias,
        shortcut,
        out,
        x.stride(0),
        shortcut.stride(0),
        out.stride(0),
        rows,
        C=channels,
        BLOCK=block,
        ROWS=rows_per_program,
        num_warps=WARPS,
        enable_fp_fusion=True,
    )
