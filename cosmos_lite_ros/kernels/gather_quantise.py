# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""``heads_to_rows`` whose output is quantised row by row instead of stored."""

from __future__ import annotations

from torch import Tensor

from cosmos_lite_ros.kernels.dispatch import check, on_gpu
from cosmos_lite_ros.kernels.quantise import check_quantised, quantise_rows


def heads_to_rows_quantise(attn: Tensor, q: Tensor, scale: Tensor, limit: float) -> None:
    """``q[n, (k * G + g) * D + d] * scale[n] ~ attn[k, n, g, d]``.

    Args:
        attn: [K, N, G, D] float32 or bfloat16, any strides but 1 in the last axis.
        q: [N, K * G * D] int8 or float8_e4m3fn, rows may be strided.
        scale: [N] float32.
        limit: largest magnitude in q: 127 for int8, 448 or 28 for float8_e4m3fn.

    Raises:
        BadInputError: shapes, dtypes or devices that do not belong together, or such a limit.
        EnvironmentLacksError: CUDA tensors and no Triton, or float8 on a GPU without it.
    """
    kv_heads, n, group, width = attn.shape
    check("attn", attn, attn.shape)
    check("scale", scale, (n,))
    check_quantised(n, kv_heads * group * width, q, scale, limit)
    if on_gpu(attn, q, scale):
        from cosmos_lite_ros.kernels.gather_quantise_triton import launch

        launch(attn, q, scale, limit)
    else:
        heads_to_rows_quantise_twin(attn, q, scale, limit)


def heads_to_rows_quantise_twin(attn: Tensor, q: Tensor, scale: Tensor, limit: float) -> None:
    """``heads_to_rows_quantise`` in torch, on any device; float64 is computed in float64."""
    quantise_rows(attn.transpose(0, 1).flatten(1), q, scale, limit)
