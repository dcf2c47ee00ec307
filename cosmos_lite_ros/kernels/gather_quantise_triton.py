# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
# Triton carries no type information.
# mypy: disable-error-code="import-untyped, no-untyped-def, untyped-decorator"
"""Triton kernel of ``heads_to_rows_quantise``: one program a token, one pass."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from cosmos_lite_ros.kernels.quantise_triton import magnitude, quantised, scale_of

# As heads_to_rows: 16 elements a thread.
ELEMENTS_PER_WARP = 16 * 32


@triton.jit
def heads_to_rows_quantise_kernel(
    attn_ptr,
    q_ptr,
    scale_ptr,
    head_stride,
    row_stride,
    group_stride,
    q_stride,
    limit,
    HEADS: tl.constexpr,
    G: tl.constexpr,
    D: tl.constexpr,
    HEAD_BLOCK: tl.constexpr,
    D_BLOCK: tl.constexpr,
):
    """Runs of D channels are contiguous on both sides."""
    row = tl.program_id(0).to(tl.int64)
    heads = tl.arange(0, HEAD_BLOCK)
    lanes = tl.arange(0, D_BLOCK)
    inside = (heads < HEADS)[:, None] & (lanes < D)[None, :]
    source = attn_ptr + row * row_stride + (heads // G)[:, None] * head_stride
    source += (heads % G)[:, None] * group_stride + lanes[None, :]
    x = tl.load(source, mask=inside, other=0.0).to(tl.float32)
    scale, inverse = scale_of(tl.max(tl.max(magnitude(x), axis=1), axis=0), limit)
    tl.store(scale_ptr + row, scale)
    target = q_ptr + row * q_stride + heads[:, None] * D + lanes[None, :]
    tl.store(target, quantised(x, inverse, limit, q_ptr.dtype.element_ty), mask=inside)


def launch(attn: Tensor, q: Tensor, scale: Tensor, limit: float) -> None:
    """``heads_to_rows_quantise`` of checked arguments."""
    kv_heads, n, group, width = attn.shape
    if n == 0:
        return
    head_block = triton.next_power_of_2(kv_heads * group)
    d_block = triton.next_power_of_2(width)
    heads_to_rows_quantise_kernel[(n,)](
        attn,
        q,
        scale,
        *attn.stride()[:3],
        q.stride(0),
        float(limit),
        HEADS=kv_heads * group,
        G=group,
        D=width,
        HEAD_BLOCK=head_block,
        D_BLOCK=d_block,
        num_warps=min(max(head_block * d_block // ELEMENTS_PER_WARP, 1), 8),
        enable_fp_fusion=True,
    )
