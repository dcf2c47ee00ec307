# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""``rms_norm`` whose output is quantised row by row instead of stored."""

from __future__ import annotations

from torch import Tensor

from cosmos_lite_ros.kernels.dispatch import check, on_gpu
from cosmos_lite_ros.kernels.quantise import check_quantised, quantise_rows
from cosmos_lite_ros.kernels.rms_norm import normalise


def rms_norm_quantise(
    x: Tensor,
    weight: Tensor,
    eps: float,
    q: Tensor,
    scale: Tensor,
    limit: float,
    *,
    delta: Tensor | None = None,
    twice: bool = False,
) -> None:
    """``x += delta`` in place, then ``q * scale ~ x / sqrt(mean(x^2) + eps) * weight``.

    The norm is rounded to x's dtype, as ``rms_norm`` stores it, before it is quantised.

    Args:
        x, weight, eps, delta, twice: as ``rms_norm``.
        q: [N, H] int8 or float8_e4m3fn, rows may be strided.
        scale: [N] float32.
        limit: largest magnitude in q: 127 for int8, 448 or 28 for float8_e4m3fn.

    Raises:
        BadInputError: shapes, dtypes or devices that do not belong together, or such a limit.
        EnvironmentLacksError: CUDA tensors and no Triton, or float8 on a GPU without it.
    """
    check("x", x, (x.shape[0], weight.shape[0]))
    check("weight", weight, weight.shape, x.dtype)
    check("scale", scale, x.shape[:1])
    check_quantised(x.shape[0], x.shape[1], q, scale, limit)
    if delta is not None:
        check("delta", delta, x.shape, x.dtype)
    if on_gpu(x, weight, q, scale, *(() if delta is None else (delta,))):
        from cosmos_lite_ros.kernels.rms_norm_quantise_triton import launch

        launch(x, weight, eps, q, scale, limit, delta=delta, twice=twice)
    else:
        rms_norm_quantise_twin(x, weight, eps, q, scale, limit, delta=delta, twice=twice)


def rms_norm_quantise_twin(
    x: Tensor,
    weight: Tensor,
    eps: float,
    q: Tensor,
    scale: Tensor,
    limit: float,
    *,
    delta: Tensor | None = None,
    twice: bool = False,
) -> None:
    """``rms_norm_quantise`` in torch, on any device; float64 tensors are computed in float64."""
    if delta is not None:
        x += delta
    quantise_rows(normalise(x, weight, eps, twice=twice), q, scale, limit)
