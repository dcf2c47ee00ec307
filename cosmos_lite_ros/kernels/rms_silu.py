# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Norm and activation of the image encoder, over channels-last rows."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

from cosmos_lite_ros.kernels.dispatch import check, inner_dtype, on_gpu

# The floor of the length, as in torch.nn.functional.normalize.
NORM_FLOOR = 1e-12


def rms_silu(
    x: Tensor, gamma: Tensor, out: Tensor, *, bias: Tensor | None = None, silu: bool = True
) -> None:
    """``out = silu(x / max(|x|, 1e-12) * sqrt(C) * gamma)``, in float32, rounded once.

    With a bias (of the convolution before), ``x + bias`` rounded takes the place of x.

    Args:
        x: [P, C] float32 or bfloat16, the pixels of a channels-last image; rows may be strided.
        gamma: [C] of x's dtype.
        out: [P, C] of x's dtype; may be x.
        bias: [C] of x's dtype.
        silu: False leaves the activation out.

    Raises:
        BadInputError: shapes, dtypes or devices that do not belong together.
        EnvironmentLacksError: CUDA tensors and no Triton.
    """
    check("x", x, (x.shape[0], gamma.shape[0]))
    check("gamma", gamma, gamma.shape, x.dtype)
    check("out", out, x.shape, x.dtype)
    if bias is not None:
        check("bias", bias, gamma.shape, x.dtype)
    if on_gpu(x, gamma, out, *(() if bias is None else (bias,))):
        from cosmos_lite_ros.kernels.rms_silu_triton import launch

        launch(x, gamma, out, bias=bias, silu=silu)
    else:
        rms_silu_twin(x, gamma, out, bias=bias, silu=silu)


def rms_silu_twin(
    x: Tensor, gamma: Tensor, out: Tensor, *, bias: Tensor | None = None, silu: bool = True
) -> None:
    """``rms_silu`` in torch, on any device; float64 tensors are computed in float64."""
    if bias is not None:
        x = x + bias
    wide = x.to(inner_dtype(x))
    length = torch.linalg.vector_norm(wide, dim=-1, keepdim=True).clamp_min_(NORM_FLOOR)
    scaled = (wide / length).mul_(gamma.to(wide.dtype) * math.sqrt(x.shape[1]))
    out.copy_(functional.silu(scaled, inplace=True) if silu else scaled)
