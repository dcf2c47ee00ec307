# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Attention whose scores are int8 products: queries and smoothed keys by rows, values in float16.

Two changes that leave the scores as they are make rows easier to quantise. The mean of all keys of
a head is subtracted: it adds the same to every score of a row, which the softmax takes away again.
And each channel of the keys is divided, of the queries multiplied, by a power of two that makes the
two equally large: a channel that is large in one of them only would leave little for the others.
Grouped queries are rows of their key head.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from cosmos_lite_ros.errors import BadInputError
from cosmos_lite_ros.kernels.dispatch import check, inner_dtype, on_gpu
from cosmos_lite_ros.kernels.quantise import quantise_rows

LIMIT = 127.0
# Keys of one program that quantises them; rows of a workspace are a multiple of it.
CHUNK = 128
# log2 of what the values of a channel are scaled below, by a power of two (exact from bfloat16):
# sums of 128 products with probabilities stay in float16, and so does any one value.
VALUE_EXPONENT = 8
# Queries that are looked at for each chunk of keys, evenly spread: for a statistic.
SAMPLES = 32
# log2 of what a channel is divided or multiplied by, at most.
BALANCE_EXPONENT = 12


@dataclass(frozen=True)
class Workspace:
    """What the kernels keep of one call's keys and values; any call with as many keys may reuse it.

    Attributes:
        k: [K, T, D] int8, smoothed and quantised.
        k_scale: [K, T] float32, one factor a key.
        v: [K, T, D] float16, scaled; rows behind the keys are zero up to a multiple of ``CHUNK``.
        v_scale: [K, D] float32, a power of two for each channel.
        balance: [K, D] float32, the power of two that a channel of the queries is multiplied by.
        partial: [K, T / CHUNK, 4, D] float32, of each chunk: sum of its keys, their squared
            distances from its mean, squares of some queries, largest value.
    """

    k: Tensor
    k_scale: Tensor
    v: Tensor
    v_scale: Tensor
    balance: Tensor
    partial: Tensor

    @classmethod
    def empty(
        cls, kv_heads: int, keys: int, width: int, device: torch.device | str = "cpu"
    ) -> Workspace:
        """For up to ``keys`` keys of ``kv_heads`` heads of ``width`` channels."""
        chunks = max(-(-keys // CHUNK), 1)
        rows = chunks * CHUNK
        return cls(
            torch.empty((kv_heads, rows, width), dtype=torch.int8, device=device),
            torch.empty((kv_heads, rows), dtype=torch.float32, device=device),
            torch.empty((kv_heads, rows, width), dtype=torch.float16, device=device),
            torch.empty((kv_heads, width), dtype=torch.float32, device=device),
            torch.empty((kv_heads, width), dtype=torch.float32, device=device),
            torch.empty((kv_heads, chunks, 4, width), dtype=torch.float32, device=device),
        )

    @property
    def nbytes(self) -> int:
        """Bytes of all its tensors."""
        scales = self.k_scale.nbytes + self.v_scale.nbytes + self.balance.nbytes
        return self.k.nbytes + self.v.nbytes + self.partial.nbytes + scales


def attention_int8qk(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    workspace: Workspace,
    *,
    float16_sum: bool = False,
) -> None:
    """``out = softmax(q @ k.T / sqrt(D)) @ v`` of each head, without a mask.

    NaN in q makes its row NaN; NaN or inf in k makes its head NaN, and in v its channel.

    Args:
        q: [K, R, D] bfloat16 or float32, the rows of all queries of a key head; any strides but 1
            in the last axis. D is 16, 32, 64 or 128 on a GPU.
        k, v: [K, T, D] of q's dtype, likewise.
        out: [K, R, D] of q's dtype, likewise; may be q.
        workspace: for T keys or more; the call fills it.
        float16_sum: let the matrix unit add 64 probabilities times values in float16, which GeForce
            GPUs do twice as fast; sums of those are float32 either way.

    Raises:
        BadInputError: shapes, dtypes or devices that do not belong together, or no keys.
        EnvironmentLacksError: CUDA tensors and no Triton.
    """
    kv_heads, keys, width = k.shape
    check("q", q, (kv_heads, q.shape[1], width))
    check("k", k, k.shape, q.dtype)
    check("v", v, k.shape, q.dtype)
    check("out", out, q.shape, q.dtype)
    capacity = workspace.k.shape[1]
    if not 0 < keys <= capacity:
        raise BadInputError(f"k: found {keys} keys, expected 1 to {capacity}, the workspace's room")
    check("workspace.k", workspace.k, (kv_heads, capacity, width), torch.int8)
    check("workspace.v", workspace.v, (kv_heads, capacity, width), torch.float16)
    if on_gpu(q, k, v, out, workspace.k):
        if width not in (16, 32, 64, 128):
            raise BadInputError(f"q: found {width} channels, expected 16, 32, 64 or 128 on a GPU")
        from cosmos_lite_ros.kernels.attention_int8qk_triton import launch

        launch(q, k, v, out, workspace, float16_sum=float16_sum)
    else:
        attention_int8qk_twin(q, k, v, out, workspace, float16_sum=float16_sum)


def attention_int8qk_twin(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    workspace: Workspace,
    *,
    float16_sum: bool = False,
) -> None:
    """``attention_int8qk`` in torch, on any device.

    float64 tensors are computed in float64: quantised alike, and values and probabilities are not
    rounded to float16. ``float16_sum`` changes nothing here.
    """
    keys, width = k.shape[1:]
    inner = inner_dtype(q)
    exact = inner is torch.float64
    prepare_twin(q, k, v, workspace)
    q8 = torch.empty(q.shape[1:], dtype=torch.int8, device=q.device)
    q_scale = torch.empty(q.shape[1:2], dtype=torch.float32, device=q.device)
    for head in range(k.shape[0]):
        quantise_rows(q[head].to(inner) * workspace.balance[head], q8, q_scale, LIMIT)
        # Sums of 128 products of int8 are exact in float32.
        scores = q8.to(inner) @ workspace.k[head, :keys].to(inner).T
        scores *= workspace.k_scale[head, :keys].to(inner)
        scores *= q_scale.to(inner)[:, None] / math.sqrt(width)
        weights = (scores - scores.amax(1, keepdim=True)).exp_()
        total = weights.sum(1, keepdim=True)
        if exact:
            product = weights @ v[head]
        else:
            values = workspace.v[head, :keys].to(inner) * workspace.v_scale[head]
            product = weights.half().to(inner) @ values
        out[head].copy_(product / total)


def prepare_twin(q: Tensor, k: Tensor, v: Tensor, workspace: Workspace) -> None:
    """Fill a workspace from queries, keys and values, in torch, on any device."""
    keys = k.shape[1]
    padded = -(-keys // CHUNK) * CHUNK
    wide = k.to(inner_dtype(k))
    workspace.balance.copy_(_balance(q, wide))
    smooth = (wide - wide.mean(1, keepdim=True)) / workspace.balance[:, None]
    k8 = torch.empty(k.shape, dtype=torch.int8, device=k.device)
    scale = torch.empty(k.shape[:2], dtype=torch.float32, device=k.device)
    quantise_rows(smooth.flatten(0, 1), k8.flatten(0, 1), scale.flatten(), LIMIT)
    for filled, found in ((workspace.k, k8), (workspace.k_scale, scale)):
        filled[:, :keys] = found
        filled[:, keys:padded] = 0
    largest = v.float().abs().amax(1)
    workspace.v_scale.copy_(value_scale(largest))
    workspace.v[:, :keys] = v.float() / workspace.v_scale[:, None]
    workspace.v[:, keys:padded] = 0


def samples(rows: int, keys: int) -> tuple[int, int]:
    """How many of a head's queries are looked at, and how far apart they are."""
    most = -(-keys // CHUNK) * SAMPLES
    step = max(rows // most, 1)
    return min(-(-rows // step), most), step


def _balance(q: Tensor, k: Tensor) -> Tensor:
    """[K, D]: 2^e, about the square root of how much larger a channel is in the keys."""
    keys = k.shape[1]
    count, step = samples(q.shape[1], keys)
    squares = torch.zeros_like(k[:, 0])
    for chunk in torch.tensor_split(k, tuple(range(CHUNK, keys, CHUNK)), dim=1):
        squares += (chunk - chunk.mean(1, keepdim=True)).square().sum(1)
    of_queries = q[:, : count * step : step].to(k.dtype).square().sum(1)
    ratio = (squares / of_queries).float() * (count / keys)
    # A quarter of the exponent of the squares' ratio, rounded to nearest.
    exponent = ((ratio.view(torch.int32) >> 23) - 127 + 2) >> 2
    found = torch.exp2(exponent.clamp(-BALANCE_EXPONENT, BALANCE_EXPONENT).float())
    return torch.where((ratio > 0) & (ratio < torch.inf), found, 1.0)


def value_scale(largest: Tensor) -> Tensor:
    """The power of two that brings float32 magnitudes into [128, 256); NaN for inf and NaN."""
    exponent = (largest.view(torch.int32) >> 23) - (VALUE_EXPONENT - 1)
    found = (exponent.clamp_min(1) << 23).view(torch.float32)
    return torch.where(largest.isfinite(), found, torch.nan)
