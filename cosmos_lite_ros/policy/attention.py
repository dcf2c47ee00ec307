# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Which attention kernel runs, chosen by name and never left to torch's default on a GPU."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch

# torch's scaled dot product attention by backend, and our own with int8 scores.
INT8QK = "int8qk"
ATTENTION = ("auto", "cudnn", "flash", "efficient", "math", "default", INT8QK)
# GPUs whose matrix units add in float16 twice as fast as in float32: GeForce of these generations.
_FLOAT16_SUMS = ((8, 6), (8, 9), (12, 0))


def attention_backend(device: torch.device, name: str = "auto") -> str:
    """The backend in effect: torch's default is not the fastest everywhere.

    ``auto`` is cuDNN on compute capability 9 and newer, flash on older GPUs.
    """
    if name == INT8QK:
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


def float16_sums(device: torch.device) -> bool:
    """Whether int8qk adds probabilities times values in float16, 64 at a time."""
    if device.type != "cuda":
        return False
    return torch.cuda.get_device_capability(device) in _FLOAT16_SUMS
