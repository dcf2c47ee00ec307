# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Which attention kernel runs, chosen by name and never left to torch's default on a GPU."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch

ATTENTION = ("auto", "cudnn", "flash", "efficient", "math", "default")


def attention_backend(device: torch.device, name: str = "auto") -> str:
    """The backend in effect: torch's default is not the fastest everywhere.

    ``auto`` is cuDNN on compute capability 9 and newer, flash on older GPUs.
    """
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
