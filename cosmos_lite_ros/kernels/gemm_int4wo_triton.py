# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
# Triton carries no type information.
# mypy: disable-error-code="import-untyped, no-untyped-def, untyped-decorator"
"""Triton kernel of ``gemm_int4wo``: weights are unpacked to bfloat16 in registers.

The tile is computed transposed, weights times activations, as in ``gemm_int8wo_triton``.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from cosmos_lite_ros.kernels.gemm_tiles import grid_of, tile_of, to_bfloat16
from cosmos_lite_ros.kernels.tables import GemmConfig, gemm_config


@triton.jit
def gemm_int4wo_kernel(
    x_ptr,
    packed_ptr,
    scale_ptr,
    out_ptr,
    rows,
    columns,
    depth,
    x_stride,
    packed_stride,
    scale_stride,
    out_stride,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    SPLIT: tl.constexpr,
    EVEN_K: tl.constexpr,
):
    """BLOCK_K is the number of columns that share a scale."""
    tile_m, tile_n = tile_of(rows, columns, BLOCK_M, BLOCK_N, GROUP_M)
    m = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    STEP: tl.constexpr = BLOCK_K // SPLIT
    k = tl.arange(0, STEP)
    half = tl.arange(0, STEP // 2)
    packed_ptrs = packed_ptr + (n % columns)[:, None] * packed_stride + half[None, :]
    x_ptrs = x_ptr + (m % rows)[None, :] * x_stride + k[:, None]
    scale_ptrs = scale_ptr + (n % columns) * scale_stride
    total = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
    for start in range(0, depth, BLOCK_K):
        group = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
        for i in tl.static_range(0, SPLIT):
            if EVEN_K:
                packed = tl.load(packed_ptrs + i * (STEP // 2))
                x = tl.load(x_ptrs + i * STEP)
            else:
                left = depth - start - i * STEP
                packed = tl.load(
                    packed_ptrs + i * (STEP // 2), mask=half[None, :] < left // 2, other=0
                )
                x = tl.load(x_ptrs + i * STEP, mask=k[:, None] < left, other=0.0)
            weight = to_bfloat16(tl.interleave(packed & 15, packed >> 4), 8)
            group = tl.dot(weight, x, group)
        total += group * tl.load(scale_ptrs)[:, None]
        packed_ptrs += BLOCK_K // 2
        x_ptrs += BLOCK_K
        scale_ptrs += 1
    scaled = tl.trans(total)
    inside = (m < rows)[:, None] & (n < columns)[None, :]
    out_ptrs = out_ptr + m[:, None] * out_stride + n[None, :]
    tl.store(out_ptrs, scaled.to(out_ptr.dtype.element_ty), mask=inside)


def launch(
    x: Tensor, packed: Tensor, scale: Tensor, out: Tensor, *, config: GemmConfig | None = None
) -> None:
    """``gemm_int4wo`` of checked arguments; ``config`` in the place of the table's."""
    config = config or gemm_config("gemm_int4wo", out, x.shape[1])
    if out.numel() == 0:
        return
    gemm_int4wo_kernel[grid_of(out, config)](
        x,
        packed,
        scale,
        out,
        *out.shape,
        x.shape[1],
        x.stride(0),
        packed.stride(0),
        scale.stride(0),
        out.stride(0),
        **config.constants(),
        EVEN_K=x.shape[1] % config.block_k == 0,
        **config.options(),
        enable_fp_fusion=True,
    )
