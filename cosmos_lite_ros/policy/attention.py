# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Which attention kernel runs, chosen by name and never left to torch's default on a GPU."""

from __future__ import annotations

import importlib
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor
from torch.nn import functional

# torch's scaled dot product attention by backend, flash-attn's, and our own with int8 scores.
INT8QK = "int8qk"
FLASH_ATTN = "flash_attn"
ATTENTION = ("auto", "cudnn", "flash", "efficient", "math", "default", FLASH_ATTN, INT8QK)
# GPUs whose matrix units add in float16 twice as fast as in float32: GeForce of these generations.
_FLOAT16_SUMS = ((8, 6), (8, 9), (12, 0))


def attention_backend(device: torch.device, name: str = "auto") -> str:
    """The backend in effect: torch's default is not the fastest everywhere.

    ``auto`` is cuDNN on compute capability 9 and newer, flash on older GPUs.
    """
    if name in (FLASH_ATTN, INT8QK):
        return name
    if device.type != "cuda":
        return "default"
    if name == "auto":
        return "cudnn" if torch.cuda.get_device_capability(device)[0] >= 9 else "flash"
    return name


def sdpa_backend(device: torch.device, name: str) -> AbstractContextManager[None]:
    """Make torch's scaled dot product attention use exactly this backend."""
    effective = attention_backend(device, name)
    if effective == "default":
        return nullcontext()
    from torch.nn.attention import SDPBackend, sdpa_kernel

    chosen = {
        "cudnn": SDPBackend.CUDNN_ATTENTION,
        "flash": SDPBackend.FLASH_ATTENTION,
        "efficient": SDPBackend.EFFICIENT_ATTENTION,
        "math": SDPBackend.MATH,
    }[effective]
    return sdpa_kernel(chosen)


def attend(q: Tensor, k: Tensor, v: Tensor, backend: str) -> Tensor:
    """softmax(q k^T / sqrt(D)) v of [K, R, D], [K, T, D]: [K, R, D], by torch or flash-attn."""
    if backend == FLASH_ATTN:
        function = importlib.import_module("flash_attn").flash_attn_func
        # [batch, tokens, heads, channels], as views.
        out: Tensor = function(*(t.transpose(0, 1)[None] for t in (q, k, v)))
        return out[0].transpose(0, 1)
    with sdpa_backend(q.device, backend):
        return functional.scaled_dot_product_attention(q[None], k[None], v[None])[0]


def float16_sums(device: torch.device) -> bool:
    """Whether int8qk adds probabilities times values in float16, 64 at a time."""
    if device.type != "cuda":
        return False
    return torch.cuda.get_device_capability(device) in _FLOAT16_SUMS
