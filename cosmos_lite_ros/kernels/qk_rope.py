# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Head norms and rotary embedding of one projection, written where attention reads."""

from __future__ import annotations

import torch
from torch import Tensor

from cosmos_lite_ros.errors import BadInputError
from cosmos_lite_ros.kernels.dispatch import check, inner_dtype, on_gpu
from cosmos_lite_ros.kernels.rms_norm import normalise


def qk_rope(
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
    """Norm and rotate the heads of q and k, copy those of v, put the text's keys and values behind.

    H = K * G query heads of D channels; query head ``k * G + g`` belongs to key head ``k``. Both
    norms round as ``rms_norm`` does; the rotation ``[a c - b s, b c + a s]`` of the two halves a, b
    of a head is computed in float32 from the rounded values and rounded once.

    Args:
        qkv: [N, (H + 2 K) * D] float32 or bfloat16: heads of q, then of k, then of v; rows may be
            strided.
        q_weight, k_weight: [D] of qkv's dtype.
        cos, sin: float32 [N, D / 2], the first half of a rotary table whose halves are equal.
        eps: of both norms.
        q_out: [K, N, G, D] of qkv's dtype, any strides but 1 in the last axis.
        k_out, v_out: [K, M, D] of qkv's dtype with M >= N + L, likewise; rows from N + L on are
            left alone.
        twice: as in ``rms_norm``.
        text_keys, text_values: [K, L, D] of qkv's dtype, copied to rows N to N + L of k_out and
            v_out; both or none (L = 0).

    Raises:
        BadInputError: shapes, dtypes or devices that do not belong together.
        EnvironmentLacksError: CUDA tensors and no Triton.
    """
    kv_heads, n, group, width = q_out.shape
    if width % 2:
        raise BadInputError(f"q_out: found {width} channels in a head, expected an even number")
    if text_keys is None or text_values is None:
        if text_keys is not None or text_values is not None:
            raise BadInputError("found text_keys or text_values alone, expected both or none")
        text_keys, text_values = k_out[:, :0], v_out[:, :0]
    text = text_keys.shape[1]
    if min(k_out.shape[1], v_out.shape[1]) < n + text:
        rows = min(k_out.shape[1], v_out.shape[1])
        raise BadInputError(
            f"k_out, v_out: found room for {rows} rows, expected at least {n + text}"
        )
    check("qkv", qkv, (n, kv_heads * (group + 2) * width))
    check("q_out", q_out, q_out.shape, qkv.dtype)
    for name, tensor in (("k_out", k_out), ("v_out", v_out)):
        check(name, tensor, (kv_heads, tensor.shape[1], width), qkv.dtype)
    for name, tensor in (("text_keys", text_keys), ("text_values", text_values)):
        check(name, tensor, (kv_heads, text, width), qkv.dtype)
    check("q_weight", q_weight, (width,), qkv.dtype)
    check("k_weight", k_weight, (width,), qkv.dtype)
    table_dtype = inner_dtype(qkv)
    check("cos", cos, (n, width // 2), table_dtype)
    check("sin", sin, (n, width // 2), table_dtype)
    if on_gpu(qkv, q_weight, k_weight, cos, sin, q_out, k_out, v_out, text_keys, text_values):
        from cosmos_lite_ros.kernels.qk_rope_triton import launch

        run = launch
    else:
        run = qk_rope_twin
    run(
        qkv,
        q_weight,
        k_weight,
        cos,
        sin,
        eps,
        q_out,
        k_out,
        v_out,
        twice=twice,
        text_keys=text_keys,
        text_values=text_values,
    )


def qk_rope_twin(
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
    """``qk_rope`` in torch, on any device; float64 tensors are computed in float64."""
    kv_heads, n, group, width = q_out.shape
    heads = qkv.view(n, kv_heads * (group + 2), width)
    q, k, v = torch.split(heads, [kv_heads * group, kv_heads, kv_heads], dim=1)
    q = _rotate(normalise(q, q_weight, eps, twice=twice), cos, sin)
    k = _rotate(normalise(k, k_weight, eps, twice=twice), cos, sin)
    q_out.copy_(q.view(n, kv_heads, group, width).transpose(0, 1))
    k_out[:, :n].copy_(k.transpose(0, 1))
    v_out[:, :n].copy_(v.transpose(0, 1))
    if text_keys is not None and text_values is not None:
        end = n + text_keys.shape[1]
        k_out[:, n:end].copy_(text_keys)
        v_out[:, n:end].copy_(text_values)


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """[N, heads, D] by [N, D / 2]; in the wider dtype, so that ``copy_`` rounds once."""
    a, b = x.to(inner_dtype(x)).chunk(2, dim=-1)
    c, s = cos[:, None], sin[:, None]
    return torch.cat((a * c - b * s, b * c + a * s), dim=-1)
