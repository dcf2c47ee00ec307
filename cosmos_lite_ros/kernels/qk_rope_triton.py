# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
# Triton carries no type information.
# mypy: disable-error-code="import-untyped, no-untyped-def, untyped-decorator"
"""Triton kernel of ``qk_rope``: one program a token and eight heads, one pass."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

# Eight heads of 128 channels in two warps: a thread holds eight channels of each half, one 16-byte
# load each in bfloat16, and a head's norm stays inside a quarter warp. Four programs a token (Edge)
# fill the GPU better than one with a loop, for the price of reading 512 bytes of table four times.
HEADS = 8
WARPS = 2


@triton.jit
def _norm_rotate(a, b, weight_a, weight_b, cos, sin, eps, D: tl.constexpr, TWICE: tl.constexpr):
    """Halves a, b [heads, D / 2] -> the same, normalised over both and rotated, float32."""
    wide_a, wide_b = a.to(tl.float32), b.to(tl.float32)
    squares = tl.sum(wide_a * wide_a, axis=1) + tl.sum(wide_b * wide_b, axis=1)
    scale = tl.rsqrt(squares / D + eps)[:, None]
    wide_a, wide_b = wide_a * scale, wide_b * scale
    if TWICE:
        wide_a, wide_b = wide_a.to(a.dtype).to(tl.float32), wide_b.to(a.dtype).to(tl.float32)
    wide_a = (wide_a * weight_a[None, :]).to(a.dtype).to(tl.float32)
    wide_b = (wide_b * weight_b[None, :]).to(a.dtype).to(tl.float32)
    c, s = cos[None, :], sin[None, :]
    return wide_a * c - wide_b * s, wide_b * c + wide_a * s


@triton.jit
def qk_rope_kernel(
    qkv_ptr,
    q_weight_ptr,
    k_weight_ptr,
    cos_ptr,
    sin_ptr,
    q_ptr,
    k_ptr,
    v_ptr,
    qkv_stride,
    cos_stride,
    sin_stride,
    q_head,
    q_row,
    q_group,
    k_head,
    k_row,
    v_head,
    v_row,
    eps,
    K: tl.constexpr,
    G: tl.constexpr,
    D: tl.constexpr,
    HALF: tl.constexpr,
    HALF_BLOCK: tl.constexpr,
    HEADS: tl.constexpr,
    Q_BLOCKS: tl.constexpr,
    KV_BLOCKS: tl.constexpr,
    TWICE: tl.constexpr,
):
    """Blocks of query heads first, then of key heads, then of value heads."""
    row = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1)
    lanes = tl.arange(0, HALF_BLOCK)
    in_half = lanes < HALF
    source = qkv_ptr + row * qkv_stride
    if block < Q_BLOCKS + KV_BLOCKS:
        cos = tl.load(cos_ptr + row * cos_stride + lanes, mask=in_half, other=0.0)
        sin = tl.load(sin_ptr + row * sin_stride + lanes, mask=in_half, other=0.0)
        if block < Q_BLOCKS:
            heads = block * HEADS + tl.arange(0, HEADS)
            inside = (heads < K * G)[:, None] & in_half[None, :]
            weight_ptr = q_weight_ptr
            source += heads[:, None] * D + lanes[None, :]
            target = q_ptr + row * q_row + (heads // G)[:, None] * q_head
            target += (heads % G)[:, None] * q_group + lanes[None, :]
        else:
            heads = (block - Q_BLOCKS) * HEADS + tl.arange(0, HEADS)
            inside = (heads < K)[:, None] & in_half[None, :]
            weight_ptr = k_weight_ptr
            source += (K * G + heads)[:, None] * D + lanes[None, :]
            target = k_ptr + row * k_row + heads[:, None] * k_head + lanes[None, :]
        a = tl.load(source, mask=inside, other=0.0)
        b = tl.load(source + HALF, mask=inside, other=0.0)
        weight_a = tl.load(weight_ptr + lanes, mask=in_half, other=0.0).to(tl.float32)
        weight_b = tl.load(weight_ptr + HALF + lanes, mask=in_half, other=0.0).to(tl.float32)
        a, b = _norm_rotate(a, b, weight_a, weight_b, cos, sin, eps, D, TWICE)
        tl.store(target, a.to(q_ptr.dtype.element_ty), mask=inside)
        tl.store(target + HALF, b.to(q_ptr.dtype.element_ty), mask=inside)
    else:
        heads = (block - Q_BLOCKS - KV_BLOCKS) * HEADS + tl.arange(0, HEADS)
        inside = (heads < K)[:, None] & in_half[None, :]
        source += (K * G + K + heads)[:, None] * D + lanes[None, :]
        target = v_ptr + row * v_row + heads[:, None] * v_head + lanes[None, :]
        a = tl.load(source, mask=inside, other=0.0)
        b = tl.load(source + HALF, mask=inside, other=0.0)
        tl.store(target, a, mask=inside)
        tl.store(target + HALF, b, mask=inside)


def launch(
    qkv: Tensor,
    q_weight: Tensor,
    k_weight: Tensor,
    cos: Tensor,
    sin: Tensor,
    eps: float,
    q_out: Tensor,
    k_out: Tensor,
    v_out: Tensor,
    *,
    twice: bool,
) -> None:
    """``qk_rope`` of checked arguments."""
    kv_heads, n, group, width = q_out.shape
    if n == 0:
        return
    q_blocks = triton.cdiv(kv_heads * group, HEADS)
    kv_blocks = triton.cdiv(kv_heads, HEADS)
    qk_rope_kernel[(n, q_blocks + 2 * kv_blocks)](
        qkv,
        q_weight,
        k_weight,
        cos,
        sin,
        q_out,
        k_out,
        v_out,
        qkv.stride(0),
        cos.stride(0),
        sin.stride(0),
        *q_out.stride()[:3],
        *k_out.stride()[:2],
        *v_out.stride()[:2],
        eps,
        K=kv_heads,
        G=group,
        D=width,
        HALF=width // 2,
        HALF_BLOCK=triton.next_power_of_2(width // 2),
        HEADS=HEADS,
        Q_BLOCKS=q_blocks,
        KV_BLOCKS=kv_blocks,
        TWICE=twice,
        num_warps=WARPS,
    )
