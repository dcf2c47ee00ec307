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

from cosmos_lite_ros.kernels.attention_int8qk import CHUNK, LIMIT, VALUE_EXPONENT, Workspace
from cosmos_lite_ros.kernels.quantise_triton import ROUND, magnitude, quantised, scale_of

ROUND_BITS = tl.constexpr(0x4B400000)
INT8_LIMIT = tl.constexpr(LIMIT)
INFINITE_BITS = tl.constexpr(0x7F800000)
# Biased exponent of a value's scale, from the one of the largest value.
EXPONENT_LESS = tl.constexpr(VALUE_EXPONENT - 1)
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
def sums_kernel(
    k_ptr,
    v_ptr,
    partial_ptr,
    k_head,
    k_row,
    v_head,
    v_row,
    keys,
    chunks,
    CHUNK: tl.constexpr,
    D: tl.constexpr,
):
    """Sum of keys and largest magnitude of values over one chunk of one head."""
    chunk = tl.program_id(0)
    head = tl.program_id(1).to(tl.int64)
    rows = chunk * CHUNK + tl.arange(0, CHUNK)
    lanes = tl.arange(0, D)
    inside = rows[:, None] < keys
    k = tl.load(
        k_ptr + head * k_head + rows[:, None] * k_row + lanes[None, :], mask=inside, other=0.0
    )
    v = tl.load(
        v_ptr + head * v_head + rows[:, None] * v_row + lanes[None, :], mask=inside, other=0.0
    )
    target = partial_ptr + (head * chunks + chunk) * 2 * D + lanes
    tl.store(target, tl.sum(k.to(tl.float32), axis=0))
    largest = tl.max(magnitude(v.to(tl.float32)), axis=0)
    tl.store(target + D, largest.to(tl.float32, bitcast=True))


@triton.jit
def prepare_kernel(
    k_ptr,
    v_ptr,
    partial_ptr,
    k8_ptr,
    k_scale_ptr,
    v16_ptr,
    v_scale_ptr,
    k_head,
    k_row,
    v_head,
    v_row,
    capacity,
    keys,
    chunks,
    CHUNK: tl.constexpr,
    D: tl.constexpr,
    SUMS: tl.constexpr,
):
    """Quantise one chunk of keys less their mean, and scale one of values to float16."""
    chunk = tl.program_id(0)
    head = tl.program_id(1).to(tl.int64)
    lanes = tl.arange(0, D)
    total = tl.zeros((D,), tl.float32)
    largest = tl.zeros((D,), tl.int32)
    for first in range(0, chunks, SUMS):
        parts = first + tl.arange(0, SUMS)[:, None]
        source = partial_ptr + (head * chunks + parts) * 2 * D + lanes[None, :]
        total += tl.sum(tl.load(source, mask=parts < chunks, other=0.0), axis=0)
        found = tl.load(source + D, mask=parts < chunks, other=0.0)
        largest = tl.maximum(largest, tl.max(magnitude(found), axis=0))
    mean = total / keys

    rows = chunk * CHUNK + tl.arange(0, CHUNK)
    inside = rows[:, None] < keys
    k = tl.load(
        k_ptr + head * k_head + rows[:, None] * k_row + lanes[None, :], mask=inside, other=0.0
    )
    smooth = tl.where(inside, k.to(tl.float32) - mean[None, :], 0.0)
    scale, inverse = scale_of(tl.max(magnitude(smooth), axis=1), INT8_LIMIT)
    k8 = quantised(smooth, inverse[:, None], INT8_LIMIT, tl.int8)
    tl.store(k8_ptr + (head * capacity + rows[:, None]) * D + lanes[None, :], k8)
    tl.store(k_scale_ptr + head * capacity + rows, tl.where(rows < keys, scale, 0.0))

    v = tl.load(
        v_ptr + head * v_head + rows[:, None] * v_row + lanes[None, :], mask=inside, other=0.0
    )
    exponent = tl.maximum((largest >> 23) - EXPONENT_LESS, 1)
    inverse = ((254 - exponent) << 23).to(tl.float32, bitcast=True)
    v16 = (v.to(tl.float32) * inverse[None, :]).to(tl.float16)
    tl.store(v16_ptr + (head * capacity + rows[:, None]) * D + lanes[None, :], v16)
    if chunk == 0:
        # Not a number where a value is none: what is finite in its channel must not pass.
        broken = largest >= INFINITE_BITS
        bits = tl.where(broken, INFINITE_BITS | 1 << 22, exponent << 23)
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
    inside = row[:, None] < rows
    source = q_ptr + head * q_head + row[:, None].to(tl.int64) * q_row + lanes[None, :]
    wide = tl.load(source, mask=inside, other=0.0).to(tl.float32)
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
    tl.store(target, out.to(out_ptr.dtype.element_ty), mask=inside)


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
    strides = (*k.stride()[:2], *v.stride()[:2])
    sums_kernel[(chunks, kv_heads)](
        k,
        v,
        workspace.partial,
        *strides,
        keys,
        chunks,
        CHUNK=CHUNK,
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
        *strides,
        capacity,
        keys,
        chunks,
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
