# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
# Triton carries no type information.
# mypy: disable-error-code="import-untyped, no-untyped-def, untyped-decorator"
"""Triton kernels of ``attention_int8qk``: sums of keys, their quantisation, flash attention.

The matrix unit's integer sums start at the bits of 1.5 * 2^23, so that they are float32 numbers the
moment they are done: a subtraction takes the place of a conversion, which is four to eight times
slower. |sum| <= 128 * 127 * 127 < 2^22.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from cosmos_lite_ros.kernels.attention_int8qk import (
    BALANCE_EXPONENT,
    CHUNK,
    LIMIT,
    SAMPLES,
    VALUE_EXPONENT,
    Workspace,
    samples,
)
from cosmos_lite_ros.kernels.quantise_triton import ROUND, magnitude, quantised, scale_of

ROUND_BITS = tl.constexpr(0x4B400000)
INT8_LIMIT = tl.constexpr(LIMIT)
INFINITE_BITS = tl.constexpr(0x7F800000)
# Biased exponent of a value's scale, from the one of the largest value.
EXPONENT_LESS = tl.constexpr(VALUE_EXPONENT - 1)
BALANCE_LIMIT = tl.constexpr(BALANCE_EXPONENT)
# Chunks whose sums are added up at a time.
SUMS = 32
PREPARE_WARPS = 8


@dataclass(frozen=True)
class Tile:
    """Rows and keys of one step, and how it is compiled."""

    rows: int
    keys: int
    warps: int
    stages: int


# By compute capability; what is not listed takes the first: 88 KB of shared memory, under 99 KB.
TILES = {
    (8, 0): Tile(rows=128, keys=64, warps=8, stages=3),
    (9, 0): Tile(rows=128, keys=128, warps=8, stages=2),
}


@triton.jit
def _tile(ptr, row_stride, rows, count, D: tl.constexpr):
    """float32 [rows, D], zeros from row ``count`` on."""
    lanes = tl.arange(0, D)
    source = ptr + rows[:, None].to(tl.int64) * row_stride + lanes[None, :]
    return tl.load(source, mask=rows[:, None] < count, other=0.0).to(tl.float32)


@triton.jit
def sums_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    partial_ptr,
    q_head,
    sample_stride,
    k_head,
    k_row,
    v_head,
    v_row,
    sampled,
    keys,
    chunks,
    CHUNK: tl.constexpr,
    SAMPLES: tl.constexpr,
    D: tl.constexpr,
):
    """The statistics of one chunk of one head. sample_stride: between sampled queries."""
    chunk = tl.program_id(0)
    head = tl.program_id(1).to(tl.int64)
    rows = chunk * CHUNK + tl.arange(0, CHUNK)
    k = _tile(k_ptr + head * k_head, k_row, rows, keys, D)
    v = _tile(v_ptr + head * v_head, v_row, rows, keys, D)
    sample = chunk * SAMPLES + tl.arange(0, SAMPLES)
    q = _tile(q_ptr + head * q_head, sample_stride, sample, sampled, D)
    total = tl.sum(k, axis=0)
    mean = total / tl.minimum(keys - chunk * CHUNK, CHUNK)
    apart = tl.where(rows[:, None] < keys, k - mean[None, :], 0.0)
    target = partial_ptr + (head * chunks + chunk) * 4 * D + tl.arange(0, D)
    tl.store(target, total)
    tl.store(target + D, tl.sum(apart * apart, axis=0))
    tl.store(target + 2 * D, tl.sum(q * q, axis=0))
    largest = tl.max(magnitude(v), axis=0)
    tl.store(target + 3 * D, largest.to(tl.float32, bitcast=True))


@triton.jit
def _power(exponent):
    """2^exponent of a normal float32."""
    return ((exponent + 127) << 23).to(tl.float32, bitcast=True)


@triton.jit
def prepare_kernel(
    k_ptr,
    v_ptr,
    partial_ptr,
    k8_ptr,
    k_scale_ptr,
    v16_ptr,
    v_scale_ptr,
    balance_ptr,
    k_head,
    k_row,
    v_head,
    v_row,
    capacity,
    keys,
    chunks,
    share,
    CHUNK: tl.constexpr,
    D: tl.constexpr,
    SUMS: tl.constexpr,
):
    """Quantise one chunk of keys, and scale one of values to float16. share: queries a key."""
    chunk = tl.program_id(0)
    head = tl.program_id(1).to(tl.int64)
    lanes = tl.arange(0, D)
    total = tl.zeros((D,), tl.float32)
    of_keys = tl.zeros((D,), tl.float32)
    of_queries = tl.zeros((D,), tl.float32)
    largest = tl.zeros((D,), tl.int32)
    for first in range(0, chunks, SUMS):
        parts = first + tl.arange(0, SUMS)
        source = partial_ptr + head * chunks * 4 * D
        total += tl.sum(_tile(source, 4 * D, parts, chunks, D), axis=0)
        of_keys += tl.sum(_tile(source + D, 4 * D, parts, chunks, D), axis=0)
        of_queries += tl.sum(_tile(source + 2 * D, 4 * D, parts, chunks, D), axis=0)
        found = magnitude(_tile(source + 3 * D, 4 * D, parts, chunks, D))
        largest = tl.maximum(largest, tl.max(found, axis=0))
    mean = total / keys
    ratio = (tl.div_rn(of_keys, of_queries) * share).to(tl.int32, bitcast=True)
    exponent = ((ratio >> 23) - 125) >> 2
    exponent = tl.minimum(tl.maximum(exponent, -BALANCE_LIMIT), BALANCE_LIMIT)
    exponent = tl.where((ratio > 0) & (ratio < INFINITE_BITS), exponent, 0)

    rows = chunk * CHUNK + tl.arange(0, CHUNK)
    k = _tile(k_ptr + head * k_head, k_row, rows, keys, D)
    smooth = (k - mean[None, :]) * _power(-exponent)[None, :]
    smooth = tl.where(rows[:, None] < keys, smooth, 0.0)
    scale, inverse = scale_of(tl.max(magnitude(smooth), axis=1), INT8_LIMIT)
    k8 = quantised(smooth, inverse[:, None], INT8_LIMIT, tl.int8)
    target = (head * capacity + rows[:, None]) * D + lanes[None, :]
    tl.store(k8_ptr + target, k8)
    tl.store(k_scale_ptr + head * capacity + rows, tl.where(rows < keys, scale, 0.0))

    v = _tile(v_ptr + head * v_head, v_row, rows, keys, D)
    shift = tl.maximum((largest >> 23) - EXPONENT_LESS, 1)
    v16 = (v * _power(127 - shift)[None, :]).to(tl.float16)
    tl.store(v16_ptr + target, v16)
    if chunk == 0:
        tl.store(balance_ptr + head * D + lanes, _power(exponent))
        # Not a number where a value is none: what is finite in its channel must not pass.
        bits = tl.where(largest >= INFINITE_BITS, INFINITE_BITS | 1 << 22, shift << 23)
        tl.store(v_scale_ptr + head * D + lanes, bits.to(tl.float32, bitcast=True))


@triton.jit
def _attend(
    acc,
    total,
    highest,
    q,
    q_scale,
    k8_ptr,
    k_scale_ptr,
    v16_ptr,
    first,
    keys,
    KEYS: tl.constexpr,
    D: tl.constexpr,
    FLOAT16_SUM: tl.constexpr,
    RAGGED: tl.constexpr,
):
    """One step of flash attention over KEYS keys from ``first``, in units of powers of two."""
    columns = first + tl.arange(0, KEYS)
    lanes = tl.arange(0, D)
    k = tl.load(k8_ptr + columns[:, None] * D + lanes[None, :])
    start = tl.full((q.shape[0], KEYS), ROUND_BITS, tl.int32)
    scores = tl.dot(q, tl.trans(k), acc=start, out_dtype=tl.int32)
    scores = scores.to(tl.float32, bitcast=True) - ROUND
    scores *= tl.load(k_scale_ptr + columns)[None, :]
    if RAGGED:
        scores = tl.where(columns[None, :] < keys, scores, float("-inf"))
    # Maxima may drop NaN: the sum keeps it.
    new = tl.maximum(highest, tl.max(scores, axis=1) * q_scale)
    weights = tl.exp2(scores * q_scale[:, None] - new[:, None])
    shrink = tl.exp2(highest - new)
    total = total * shrink + tl.sum(weights, axis=1)
    acc *= shrink[:, None]
    v = tl.load(v16_ptr + columns[:, None] * D + lanes[None, :])
    if FLOAT16_SUM:
        acc += tl.dot(weights.to(tl.float16), v, out_dtype=tl.float16).to(tl.float32)
    else:
        acc = tl.dot(weights.to(tl.float16), v, acc=acc)
    return acc, total, new


@triton.jit
def attention_kernel(
    q_ptr,
    out_ptr,
    k8_ptr,
    k_scale_ptr,
    v16_ptr,
    v_scale_ptr,
    balance_ptr,
    q_head,
    q_row,
    out_head,
    out_row,
    capacity,
    rows,
    keys,
    factor,
    ROWS: tl.constexpr,
    KEYS: tl.constexpr,
    D: tl.constexpr,
    FLOAT16_SUM: tl.constexpr,
):
    """ROWS queries of one head. factor: log2(e) / sqrt(D)."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    head = tl.program_id(1).to(tl.int64)
    lanes = tl.arange(0, D)
    wide = _tile(q_ptr + head * q_head, q_row, row, rows, D)
    wide *= tl.load(balance_ptr + head * D + lanes)[None, :]
    q_scale, inverse = scale_of(tl.max(magnitude(wide), axis=1), INT8_LIMIT)
    q = quantised(wide, inverse[:, None], INT8_LIMIT, tl.int8)
    q_scale *= factor
    k8_ptr += head * capacity * D
    v16_ptr += head * capacity * D
    k_scale_ptr += head * capacity
    acc = tl.zeros((ROWS, D), tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    highest = tl.full((ROWS,), float("-inf"), tl.float32)
    whole = keys // KEYS * KEYS
    for first in range(0, whole, KEYS):
        acc, total, highest = _attend(
            *(acc, total, highest, q, q_scale, k8_ptr, k_scale_ptr, v16_ptr, first, keys),
            *(KEYS, D, FLOAT16_SUM, False),
        )
    if whole < keys:
        acc, total, highest = _attend(
            *(acc, total, highest, q, q_scale, k8_ptr, k_scale_ptr, v16_ptr, whole, keys),
            *(KEYS, D, FLOAT16_SUM, True),
        )
    v_scale = tl.load(v_scale_ptr + head * D + lanes)
    out = acc / total[:, None] * v_scale[None, :]
    target = out_ptr + head * out_head + row[:, None].to(tl.int64) * out_row + lanes[None, :]
    tl.store(target, out.to(out_ptr.dtype.element_ty), mask=row[:, None] < rows)


def tile_of(device: torch.device) -> Tile:
    """The tile for a device; also off a GPU, where kernels are only compiled or interpreted."""
    if device.type != "cuda":
        return TILES[8, 0]
    return TILES.get(torch.cuda.get_device_capability(device), TILES[8, 0])


def launch(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    workspace: Workspace,
    *,
    float16_sum: bool,
    tile: Tile | None = None,
) -> None:
    """``attention_int8qk`` of checked arguments; ``tile``: instead of the table's."""
    kv_heads, rows, width = q.shape
    keys = k.shape[1]
    if rows * kv_heads == 0:
        return
    tile = tile or tile_of(q.device)
    capacity = workspace.k.shape[1]
    chunks = triton.cdiv(keys, CHUNK)
    sampled, step = samples(rows, keys)
    strides = (*k.stride()[:2], *v.stride()[:2])
    sums_kernel[(chunks, kv_heads)](
        q,
        k,
        v,
        workspace.partial,
        q.stride(0),
        q.stride(1) * step,
        *strides,
        sampled,
        keys,
        chunks,
        CHUNK=CHUNK,
        SAMPLES=SAMPLES,
        D=width,
        num_warps=PREPARE_WARPS,
        enable_fp_fusion=True,
    )
    prepare_kernel[(chunks, kv_heads)](
        k,
        v,
        workspace.partial,
        workspace.k,
        workspace.k_scale,
        workspace.v,
        workspace.v_scale,
        workspace.balance,
        *strides,
        capacity,
        keys,
        chunks,
        sampled / keys,
        CHUNK=CHUNK,
        D=width,
        SUMS=SUMS,
        num_warps=PREPARE_WARPS,
        enable_fp_fusion=True,
    )
    attention_kernel[(triton.cdiv(rows, tile.rows), kv_heads)](
        q,
        out,
        workspace.k,
        workspace.k_scale,
        workspace.v,
        workspace.v_scale,
        workspace.balance,
        *q.stride()[:2],
        *out.stride()[:2],
        capacity,
        rows,
        keys,
        math.log2(math.e) / math.sqrt(width),
        ROWS=tile.rows,
        KEYS=tile.keys,
        D=width,
        FLOAT16_SUM=float16_sum,
        num_warps=tile.warps,
        num_stages=tile.stages,
        enable_fp_fusion=True,
    )
