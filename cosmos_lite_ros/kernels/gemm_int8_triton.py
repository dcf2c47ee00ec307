# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
# Triton carries no type information.
# mypy: disable-error-code="import-untyped, no-untyped-def, untyped-decorator"
"""Triton kernel of ``gemm_int8``: one tile of the output a program, sums in int32."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from cosmos_lite_ros.kernels.gemm_tiles import grid_of, load_step, tile_of
from cosmos_lite_ros.kernels.tables import GemmConfig, gemm_config


@triton.jit
def gemm_int8_kernel(
    a_ptr,
    a_scale_ptr,
    b_ptr,
    b_scale_ptr,
    out_ptr,
    rows,
    columns,
    depth,
    a_stride,
    a_scale_stride,
    b_stride,
    out_stride,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    SPLIT: tl.constexpr,
    EVEN_K: tl.constexpr,
    BLOCKED: tl.constexpr,
):
    """BLOCKED: a has one scale for each BLOCK_K columns of a row, else one for each row."""
    tile_m, tile_n = tile_of(rows, columns, BLOCK_M, BLOCK_N, GROUP_M)
    m = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    STEP: tl.constexpr = BLOCK_K // SPLIT
    k = tl.arange(0, STEP)
    a_ptrs = a_ptr + (m % rows)[:, None] * a_stride + k[None, :]
    b_ptrs = b_ptr + (n % columns)[None, :] * b_stride + k[:, None]
    a_scale_ptrs = a_scale_ptr + (m % rows) * a_scale_stride
    if BLOCKED:
        total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    else:
        total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.int32)
    for start in range(0, depth, BLOCK_K):
        if BLOCKED:
            block = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.int32)
            for i in tl.static_range(0, SPLIT):
                left = depth - start - i * STEP
                a, b = load_step(a_ptrs + i * STEP, b_ptrs + i * STEP, k, left, EVEN_K)
                block = tl.dot(a, b, block, out_dtype=tl.int32)
            total += block.to(tl.float32) * tl.load(a_scale_ptrs)[:, None]
            a_scale_ptrs += 1
        else:
            for i in tl.static_range(0, SPLIT):
                left = depth - start - i * STEP
                a, b = load_step(a_ptrs + i * STEP, b_ptrs + i * STEP, k, left, EVEN_K)
                total = tl.dot(a, b, total, out_dtype=tl.int32)
        a_ptrs += BLOCK_K
        b_ptrs += BLOCK_K
    b_scale = tl.load(b_scale_ptr + n, mask=n < columns, other=0.0)
    if BLOCKED:
        scaled = total * b_scale[None, :]
    else:
        scaled = total.to(tl.float32) * tl.load(a_scale_ptrs)[:, None] * b_scale[None, :]
    inside = (m < rows)[:, None] & (n < columns)[None, :]
    out_ptrs = out_ptr + m[:, None] * out_stride + n[None, :]
    tl.store(out_ptrs, scaled.to(out_ptr.dtype.element_ty), mask=inside)


def launch(
    a: Tensor,
    a_scale: Tensor,
    b: Tensor,
    b_scale: Tensor,
    out: Tensor,
    *,
    config: GemmConfig | None = None,
) -> None:
    """``gemm_int8`` of checked arguments; ``config`` in the place of the table's."""
    blocked = a_scale.ndim == 2
    name = "gemm_int8_blocked" if blocked else "gemm_int8"
    config = config or gemm_config(name, out, a.shape[1])
    if out.numel() == 0:
        return
    gemm_int8_kernel[grid_of(out, config)](
        a,
        a_scale,
        b,
        b_scale,
        out,
        *out.shape,
        a.shape[1],
        a.stride(0),
        a_scale.stride(0),
        b.stride(0),
        out.stride(0),
        **config.constants(),
        EVEN_K=a.shape[1] % config.block_k == 0,
        BLOCKED=blocked,
        **config.options(),
        enable_fp_fusion=True,
    )
