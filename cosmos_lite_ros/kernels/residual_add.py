# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""A convolution's bias and the shortcut around it, added in one pass."""

from __future__ import annotations

from torch import Tensor

from cosmos_lite_ros.kernels.dispatch import check, inner_dtype, on_gpu


def residual_add(x: Tensor, bias: Tensor, shortcut: Tensor, out: Tensor) -> None:
    """``out = round(x + bias) + shortcut``: both sums rounded, as two additions round.

    (The tower's residual additions are part of ``rms_norm`` and ``rms_norm_quantise``.)

    Args:
        x: [P, C] float32 or bfloat16, the pixels of a channels-last image.
        bias: [C] of x's dtype.
        shortcut: [P, C] of x's dtype; rows of all three may be strided.
        out: [P, C] of x's dtype; may be x or shortcut.

    Raises:
        BadInputError: shapes, dtypes or devices that do not belong together.
        EnvironmentLacksError: CUDA tensors and no Triton.
    """
    check("x", x, (x.shape[0], bias.shape[0]))
    check("bias", bias, bias.shape, x.dtype)
    check("shortcut", shortcut, x.shape, x.dtype)
    check("out", out, x.shape, x.dtype)
    if on_gpu(x, bias, shortcut, out):
        from cosmos_lite_ros.kernels.residual_add_triton import launch

        launch(x, bias, shortcut, out)
    else:
        residual_add_twin(x, bias, shortcut, out)


def residual_add_twin(x: Tensor, bias: Tensor, shortcut: Tensor, out: Tensor) -> None:
    """``residual_add`` in torch, on any device; float64 tensors are computed in float64."""
    inner = inner_dtype(x)
    first = (x.to(inner) + bias.to(inner)).to(x.dtype)
    out.copy_(first.to(inner) + shortcut.to(inner))
