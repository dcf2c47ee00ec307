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
# fill the GPU better than one with a loop, for the price of reading its 512 bytes of table often.
HEADS = 8
WARPS = 2


@triton.jit
def _norm_rotate(
    source,
    target,
    inside,
    weight_ptr,
    cos_ptr,
    sin_ptr,
    eps,
    HEADS: tl.constexpr,
    HALF: tl.constexpr,
    HALF_BLOCK: tl.constexpr,
    TWICE: tl.constexpr,
):
    """source, target, inside: [heads, HALF_BLOCK], the first halves of the heads."""
    # Read once a head, from L1, in the layout of the heads: one row spread over the program would
    # cross shared memory and a barrier.
    lanes = tl.broadcast_to(tl.arange(0, HALF_BLOCK)[None, :], (HEADS, HALF_BLOCK))
    a = tl.load(source, mask=inside, other=0.0)
    b = tl.load(source + HALF, mask=inside, other=0.0)
    weight_a = tl.load(weight_ptr + lanes, mask=inside, other=0.0).to(tl.float32)
    weight_b = tl.load(weight_ptr + HALF + lanes, mask=inside, other=0.0).to(tl.float32)
    cos = tl.load(cos_ptr + lanes, mask=inside, other=0.0)
    sin = tl.load(sin_ptr + lanes, mask=inside, other=0.0)
    wide_a, wide_b = a.to(tl.float32), b.to(tl.float32)
    squares = tl.sum(wide_a * wide_a, axis=1) + tl.sum(wide_b * wide_b, axis=1)
    scale = tl.rsqrt(squares / (2 * HALF) + eps)[:, None]
    wide_a, wide_b = wide_a * scale, wide_b * scale
    if TWICE:
        wide_a, wide_b = wide_a.to(a.dtype).to(tl.float32), wide_b.to(a.dtype).to(tl.float32)
    wide_a = (wide_a * weight_a).to(a.dtype).to(tl.float32)
    wide_b = (wide_b * weight_b).to(a.dtype).to(tl.float32)
    tl.store(target, (wide_a * cos - wide_b * sin).to(a.dtype), mask=inside)
    tl.store(target + HALF, (wide_b * cos + wide_a * sin).to(a.dtype), mask=inside)


@triton.jit
def _copy(source, target, inside, HALF: tl.constexpr):
    """Both halves of heads, as they are."""
    a = tl.load(source, mask=inside)
    b = tl.load(source + HALF, mask=inside)
    tl.store(target, a, mask=inside)
    tl.store(target + HALF, b, mask=inside)


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
    text_k_ptr,
    text_v_ptr,
    rows,
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
    text_k_head,
    text_k_row,
    text_v_head,
    text_v_row,
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
    """Blocks of query heads first, then of key heads, then of value heads.

    Programs from ``rows`` on copy the text; they have no queries.
    """
    row = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1)
    lanes = tl.arange(0, HALF_BLOCK)
    in_half = lanes < HALF
    qkv_row = qkv_ptr + row * qkv_stride + lanes[None, :]
    cos_row, sin_row = cos_ptr + row * cos_stride, sin_ptr + row * sin_stride
    if row >= rows:
        text = row - rows
        if (block >= Q_BLOCKS) & (block < Q_BLOCKS + KV_BLOCKS):
            heads = ((block - Q_BLOCKS) * HEADS + tl.arange(0, HEADS))[:, None]
            inside = (heads < K) & in_half[None, :]
            source = text_k_ptr + text * text_k_row + heads * text_k_head + lanes[None, :]
            target = k_ptr + row * k_row + heads * k_head + lanes[None, :]
            _copy(source, target, inside, HALF)
        elif block >= Q_BLOCKS + KV_BLOCKS:
            heads = ((block - Q_BLOCKS - KV_BLOCKS) * HEADS + tl.arange(0, HEADS))[:, None]
            inside = (heads < K) & in_half[None, :]
            source = text_v_ptr + text * text_v_row + heads * text_v_head + lanes[None, :]
            target = v_ptr + row * v_row + heads * v_head + lanes[None, :]
            _copy(source, target, inside, HALF)
    elif block < Q_BLOCKS:
        heads = (block * HEADS + tl.arange(0, HEADS))[:, None]
        inside = (heads < K * G) & in_half[None, :]
        source = qkv_row + heads * D
        target = q_ptr + row * q_row + heads // G * q_head + heads % G * q_group + lanes[None, :]
        _norm_rotate(
            *(source, target, inside, q_weight_ptr, cos_row, sin_row, eps),
            *(HEADS, HALF, HALF_BLOCK, TWICE),
        )
    elif block < Q_BLOCKS + KV_BLOCKS:
        heads = ((block - Q_BLOCKS) * HEADS + tl.arange(0, HEADS))[:, None]
        inside = (heads < K) & in_half[None, :]
        source = qkv_row + (K * G + heads) * D
        target = k_ptr + row * k_row + heads * k_head + lanes[None, :]
        _norm_rotate(
            *(source, target, inside, k_weight_ptr, cos_row, sin_row, eps),
            *(HEADS, HALF, HALF_BLOCK, TWICE),
        )
    else:
        heads = ((block - Q_BLOCKS - KV_BLOCKS) * HEADS + tl.arange(0, HEADS))[:, None]
        inside = (heads < K) & in_half[None, :]
        source = qkv_row + (K * G + K + heads) * D
        target = v_ptr + row * v_row + heads * v_head + lanes[None, :]
        _copy(source, target, inside, HALF)


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
    text_keys: Tensor | None = None,
    text_values: Tensor | None = None,
) -> None:
    """``qk_rope`` of checked arguments."""
    kv_heads, n, group, width = q_out.shape
    if n == 0:
        return
    text_k = k_out[:, :0] if text_keys is None else text_keys
    text_v = v_out[:, :0] if text_values is None else text_values
    q_blocks = triton.cdiv(kv_heads * group, HEADS)
    kv_blocks = triton.cdiv(kv_heads, HEADS)
    qk_rope_kernel[(n + text_k.shape[1], q_blocks + 2 * kv_blocks)](
        qkv,
        q_weight,
        k_weight,
        cos,
        sin,
        q_out,
        k_out,
        v_out,
        text_k,
        text_v,
        n,
        qkv.stride(0),
        cos.stride(0),
        sin.stride(0),
        *q_out.stride()[:3],
        *k_out.stride()[:2],
        *v_out.stride()[:2],
        *text_k.stride()[:2],
        *text_v.stride()[:2],
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
        enable_fp_fusion=True,
    )
