# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""From attention's layout, folded by key head, to rows of tokens."""

from __future__ import annotations

from torch import Tensor

from cosmos_lite_ros.kernels.dispatch import check, on_gpu


def heads_to_rows(attn: Tensor, out: Tensor) -> None:
    """``out[n, (k * G + g) * D + d] = attn[k, n, g, d]``, a copy.

    Args:
        attn: [K, N, G, D] float32 or bfloat16, any strides but 1 in the last axis.
        out: [N, K * G * D] of attn's dtype; rows may be strided; no part of attn.

    Raises:
        BadInputError: shapes, dtypes or devices that do not belong together.
        EnvironmentLacksError: CUDA tensors and no Triton.
    """
    kv_heads, n, group, width = attn.shape
    check("attn", attn, attn.shape)
    check("out", out, (n, kv_heads * group * width), attn.dtype)
    if on_gpu(attn, out):
        from cosmos_lite_ros.kernels.gather_triton import launch

        launch(attn, out)
    else:
        heads_to_rows_twin(attn, out)


def heads_to_rows_twin(attn: Tensor, out: Tensor) -> None:
    """``heads_to_rows`` in torch, on any device."""
    kv_heads, n, group, width = attn.shape
    out.view(n, kv_heads, group, width).copy_(attn.transpose(0, 1))
