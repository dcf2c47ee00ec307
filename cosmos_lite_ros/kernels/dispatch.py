# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Which implementation runs, and what all of them refuse."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from functools import cache

import torch
from torch import Tensor

from cosmos_lite_ros.errors import BadInputError, EnvironmentLacksError

# What the Triton kernels are compiled and tested for.
GPU_DTYPES = (torch.float32, torch.bfloat16)


@cache
def _check_triton() -> None:
    """Raise where a kernel is needed and Triton is missing."""
    try:
        importlib.import_module("triton")
    except ImportError as error:
        raise EnvironmentLacksError(
            f"found tensors on a CUDA device and no usable triton ({error}), expected triton 3.6 "
            "or newer: pip install 'cosmos_lite_ros[triton]', or use device cpu"
        ) from error


def on_gpu(first: Tensor, *others: Tensor) -> bool:
    """Whether the Triton kernel must run; False means the torch twin.

    Raises:
        BadInputError: tensors on several devices or on another GPU than the current one, or a
            dtype that has no kernel.
        EnvironmentLacksError: CUDA tensors and no Triton.
    """
    for tensor in others:
        if tensor.device != first.device:
            raise BadInputError(
                f"found tensors on {first.device} and {tensor.device}, expected one device: "
                "move them first"
            )
    if first.device.type != "cuda":
        return False
    if first.dtype not in GPU_DTYPES:
        raise BadInputError(
            f"found {first.dtype} on {first.device}, expected float32 or bfloat16: convert it, or "
            "call the torch twin"
        )
    if first.device.index != torch.cuda.current_device():
        # Triton launches on the current device, whatever its arguments say.
        raise BadInputError(
            f"found tensors on {first.device} while cuda:{torch.cuda.current_device()} is current, "
            "expected one device: use torch.cuda.set_device"
        )
    _check_triton()
    return True


def check(
    name: str, tensor: Tensor, shape: Sequence[int], dtype: torch.dtype | None = None
) -> None:
    """Raise BadInputError unless ``tensor`` has this shape, this dtype and contiguous elements."""
    found, expected = tuple(tensor.shape), tuple(shape)
    if found != expected:
        raise BadInputError(f"{name}: found shape {found}, expected {expected}")
    if dtype is not None and tensor.dtype != dtype:
        raise BadInputError(f"{name}: found {tensor.dtype}, expected {dtype}")
    if tensor.ndim and expected[-1] > 1 and tensor.stride(-1) != 1:
        raise BadInputError(
            f"{name}: found stride {tensor.stride(-1)} in its last axis, expected 1: make it "
            "contiguous"
        )


def inner_dtype(tensor: Tensor) -> torch.dtype:
    """What a twin computes in: float32, or float64 for float64 tensors."""
    return torch.promote_types(tensor.dtype, torch.float32)
