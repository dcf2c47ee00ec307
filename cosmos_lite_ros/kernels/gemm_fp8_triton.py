# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
# Triton carries no type information.
# mypy: disable-error-code="import-untyped, no-untyped-def, untyped-decorator"
"""Triton kernels of ``gemm_fp8`` and ``gemm_fp8_fast``: one tile of the output a program."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from cosmos_lite_ros.kernels.gemm_tiles import grid_of, load_step, tile_of
from cosmos_lite_ros.kernels.tables import GemmConfig, gemm_config


@triton.jit
def gemm_fp8_kernel(
    a_ptr,
    a_scale_ptr,
    b_ptr,
    b_scale_ptr,
    out_ptr,
    rows,
    columns,
    depth,
    a_stride,
    b_stride,
    out_stride,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    SPLIT: tl.constexpr,
    EVEN_K: tl.constexpr,
    PROMOTE: tl.constexpr,
):
    """PROMOTE adds each BLOCK_K terms in float32, outside the matrix unit's short accumulator."""
    tile_m, tile_n = tile_of(rows, columns, BLOCK_M, BLOCK_N, GROUP_M)
    m = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    STEP: tl.constexpr = BLOCK_K // SPLIT
    k = tl.arange(0, STEP)
    a_ptrs = a_ptr + (m % rows)[:, None] * a_stride + k[None, :]
    b_ptrs = b_ptr + (n % columns)[None, :] * b_stride + k[:, None]
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, depth, BLOCK_K):
        if PROMOTE:
            # A limit of imprecise terms keeps the compiler from folding the sum into the product.
            a, b = load_step(a_ptrs, b_ptrs, k, depth - start, EVEN_K)
            part = tl.dot(a, b, max_num_imprecise_acc=STEP)
            for i in tl.static_range(1, SPLIT):
                a, b = load_step(
                    a_ptrs + i * STEP, b_ptrs + i * STEP, k, depth - start - i * STEP, EVEN_K
                )
                part = tl.dot(a, b, part, max_num_imprecise_acc=STEP)
            total += part
        else:
            for i in tl.static_range(0, SPLIT):
                a, b = load_step(
                    a_ptrs + i * STEP, b_ptrs + i * STEP, k, depth - start - i * STEP, EVEN_K
                )
                total = tl.dot(a, b, total)
        a_ptrs += BLOCK_K
        b_ptrs += BLOCK_K
    _store(total, a_scale_ptr, b_scale_ptr, out_ptr, rows, columns, m, n, out_stride)


@triton.jit
def gemm_fp8_fast_kernel(
    a_ptr,
    a_scale_ptr,
    b_ptr,
    b_scale_ptr,
    out_ptr,
    rows,
    columns,
    depth,
    a_stride,
    b_stride,
    out_stride,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    SPLIT: tl.constexpr,
    EVEN_K: tl.constexpr,
):
    """BLOCK_K / SPLIT terms in a float16 accumulator, their sums in float32."""
    tile_m, tile_n = tile_of(rows, columns, BLOCK_M, BLOCK_N, GROUP_M)
    m = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    STEP: tl.constexpr = BLOCK_K // SPLIT
    k = tl.arange(0, STEP)
    a_ptrs = a_ptr + (m % rows)[:, None] * a_stride + k[None, :]
    b_ptrs = b_ptr + (n % columns)[None, :] * b_stride + k[:, None]
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, depth, BLOCK_K):
        for i in tl.static_range(0, SPLIT):
            a, b = load_step(
                a_ptrs + i * STEP, b_ptrs + i * STEP, k, depth - start - i * STEP, EVEN_K
            )
            total += tl.dot(a, b, out_dtype=tl.float16).to(tl.float32)
        a_ptrs += BLOCK_K
        b_ptrs += BLOCK_K
    _store(total, a_scale_ptr, b_scale_ptr, out_ptr, rows, columns, m, n, out_stride)


@triton.jit
def _store(total, a_scale_ptr, b_scale_ptr, out_ptr, rows, columns, m, n, out_stride):
    """Both scales, then the output; a NaN among the scales is a factor like any other."""
    a_scale = tl.load(a_scale_ptr + m, mask=m < rows, other=0.0)
    b_scale = tl.load(b_scale_ptr + n, mask=n < columns, other=0.0)
    scaled = total * a_scale[:, None] * b_scale[None, :]
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
    fast_accumulation: bool = False,
    config: GemmConfig | None = None,
) -> None:
    """``gemm_fp8`` of checked arguments; ``config`` in the place of the table's."""
    name = "gemm_fp8_unpromoted" if fast_accumulation else "gemm_fp8"
    config = config or gemm_config(name, out, a.shape[1])
    if out.numel() == 0:
        return
    gemm_fp8_kernel[grid_of(out, config)](
        a,
        a_scale,
        b,
        b_scale,
        out,
        *out.shape,
        a.shape[1],
        a.stride(0),
        b.stride(0),
        out.stride(0),
        **config.constants(),
        EVEN_K=a.shape[1] % config.block_k == 0,
        PROMOTE=not fast_accumulation,
        **config.options(),
        enable_fp_fusion=True,
    )


def launch_fast(
    a: Tensor,
    a_scale: Tensor,
    b: Tensor,
    b_scale: Tensor,
    out: Tensor,
    *,
    config: GemmConfig | None = None,
) -> None:
    """``gemm_fp8_fast`` of checked arguments."""
    config = config or gemm_config("gemm_fp8_fast", out, a.shape[1])
    if out.numel() == 0:
        return
    gemm_fp8_fast_kernel[grid_of(out, config)](
        a,
        a_scale,
        b,
        b_scale,
        out,
        *out.shape,
        a.shape[1],
        a.stride(0),
        b.stride(0),
        out.stride(0),
        **config.constants(),
        EVEN_K=a.shape[1] % config.block_k == 0,
        **config.options(),
        enable_fp_fusion=True,
    )
