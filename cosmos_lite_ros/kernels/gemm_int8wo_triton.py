# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
# Triton carries no type information.
# mypy: disable-error-code="import-untyped, no-untyped-def, untyped-decorator"
"""Triton kernel of ``gemm_int8wo``: weights become bfloat16 in registers.

The tile is computed transposed, weights times activations: Hopper's matrix unit takes only its
first operand from registers.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from cosmos_lite_ros.kernels.gemm_tiles import grid_of, load_step, tile_of, to_bfloat16
from cosmos_lite_ros.kernels.tables import GemmConfig, gemm_config


@triton.jit
def gemm_int8wo_kernel(
    x_ptr,
    w_ptr,
    scale_ptr,
    out_ptr,
    rows,
    columns,
    depth,
    x_stride,
    w_stride,
    out_stride,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    SPLIT: tl.constexpr,
    EVEN_K: tl.constexpr,
):
    """BLOCK_M rows of x, BLOCK_N rows of w."""
    tile_m, tile_n = tile_of(rows, columns, BLOCK_M, BLOCK_N, GROUP_M)
    m = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    STEP: tl.constexpr = BLOCK_K // SPLIT
    k = tl.arange(0, STEP)
    w_ptrs = w_ptr + (n % columns)[:, None] * w_stride + k[None, :]
    x_ptrs = x_ptr + (m % rows)[None, :] * x_stride + k[:, None]
    total = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
    for start in range(0, depth, BLOCK_K):
        for i in tl.static_range(0, SPLIT):
            left = depth - start - i * STEP
            w, x = load_step(w_ptrs + i * STEP, x_ptrs + i * STEP, k, left, EVEN_K)
            total = tl.dot(to_bfloat16(w, 0), x, total)
        w_ptrs += BLOCK_K
        x_ptrs += BLOCK_K
    scale = tl.load(scale_ptr + n, mask=n < columns, other=0.0)
    scaled = tl.trans(total * scale[:, None])
    inside = (m < rows)[:, None] & (n < columns)[None, :]
    out_ptrs = out_ptr + m[:, None] * out_stride + n[None, :]
    tl.store(out_ptrs, scaled.to(out_ptr.dtype.element_ty), mask=inside)


def launch(
    x: Tensor, w: Tensor, scale: Tensor, out: Tensor, *, config: GemmConfig | None = None
) -> None:
    """``gemm_int8wo`` of checked arguments; ``config`` in the place of the table's."""
    config = config or gemm_config("gemm_int8wo", out, x.shape[1])
    if out.numel() == 0:
        return
    gemm_int8wo_kernel[grid_of(out, config)](
        x,
        w,
        scale,
        out,
        *out.shape,
        x.shape[1],
        x.stride(0),
        w.stride(0),
        out.stride(0),
        **config.constants(),
        EVEN_K=x.shape[1] % config.block_k == 0,
        **config.options(),
        enable_fp_fusion=True,
    )
