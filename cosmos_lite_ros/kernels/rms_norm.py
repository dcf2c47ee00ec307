# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Root mean square norm of rows, with the residual addition before it."""

from __future__ import annotations

import torch
from torch import Tensor

from cosmos_lite_ros.kernels.dispatch import check, inner_dtype, on_gpu


def rms_norm(
    x: Tensor,
    weight: Tensor,
    eps: float,
    out: Tensor,
    *,
    delta: Tensor | None = None,
    twice: bool = False,
) -> None:
    """``x += delta`` in place, then ``out = x / sqrt(mean(x^2) + eps) * weight``.

    Args:
        x: [N, H] float32 or bfloat16, rows may be strided. Changed only where ``delta`` is given.
        weight: [H] of x's dtype.
        eps: added to the mean square.
        out: [N, H] of x's dtype. May be x where there is no ``delta``.
        delta: [N, H] of x's dtype, added to x and rounded to x's dtype before the norm.
        twice: False rounds once, at the end (Edge). True rounds the normalised value to x's dtype
            and multiplies by the weight in that dtype (Nano).

    Raises:
        BadInputError: shapes, dtypes or devices that do not belong together.
        EnvironmentLacksError: CUDA tensors and no Triton.
    """
    check("x", x, (x.shape[0], weight.shape[0]))
    check("weight", weight, weight.shape, x.dtype)
    check("out", out, x.shape, x.dtype)
    if delta is not None:
        check("delta", delta, x.shape, x.dtype)
    if on_gpu(x, weight, out, *(() if delta is None else (delta,))):
        from cosmos_lite_ros.kernels.rms_norm_triton import launch

        launch(x, weight, eps, out, delta=delta, twice=twice)
    else:
        rms_norm_twin(x, weight, eps, out, delta=delta, twice=twice)


def rms_norm_twin(
    x: Tensor,
    weight: Tensor,
    eps: float,
    out: Tensor,
    *,
    delta: Tensor | None = None,
    twice: bool = False,
) -> None:
    """``rms_norm`` in torch, on any device; float64 tensors are computed in float64."""
    if delta is not None:
        x += delta
    out.copy_(normalise(x, weight, eps, twice=twice))


def normalise(x: Tensor, weight: Tensor, eps: float, *, twice: bool) -> Tensor:
    """The norm of the last axis with the roundings of ``rms_norm``, as a new tensor."""
    inner = inner_dtype(x)
    wide = x.to(inner)
    normalised = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    if twice:
        return normalised.to(x.dtype) * weight
    return (normalised * weight.to(inner)).to(x.dtype)
