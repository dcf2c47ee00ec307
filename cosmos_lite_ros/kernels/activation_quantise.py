# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""``relu2`` and ``swiglu`` whose output is quantised by rows or by blocks of 128 columns."""

from __future__ import annotations

from torch import Tensor

from cosmos_lite_ros.kernels.activation import relu2_twin, swiglu_twin
from cosmos_lite_ros.kernels.dispatch import check, on_gpu
from cosmos_lite_ros.kernels.quantise import block_of, check_quantised, quantise_rows


def relu2_quantise(x: Tensor, q: Tensor, scale: Tensor, limit: float) -> None:
    """``q * scale ~ max(x, 0)^2``, which is rounded to x's dtype before it is quantised.

    Args:
        x: [N, I] float32 or bfloat16, rows may be strided.
        q: [N, I] int8 or float8_e4m3fn, rows may be strided.
        scale: float32 [N], one factor a row; or [N, ceil(I / 128)], one for 128 columns of a row.
        limit: largest magnitude in q: 127 for int8, 448 or 28 for float8_e4m3fn.

    Raises:
        BadInputError: shapes, dtypes or devices that do not belong together, or such a limit.
        EnvironmentLacksError: CUDA tensors and no Triton, or float8 on a GPU without it.
    """
    check("x", x, x.shape)
    check_quantised(x.shape[0], x.shape[1], q, scale, limit)
    if on_gpu(x, q, scale):
        from cosmos_lite_ros.kernels.activation_quantise_triton import launch_relu2_quantise

        launch_relu2_quantise(x, q, scale, limit)
    else:
        relu2_quantise_twin(x, q, scale, limit)


def relu2_quantise_twin(x: Tensor, q: Tensor, scale: Tensor, limit: float) -> None:
    """``relu2_quantise`` in torch, on any device; float64 tensors are computed in float64."""
    activated = x.new_empty(x.shape)
    relu2_twin(x, activated)
    quantise_rows(activated, q, scale, limit, block_of(scale))


def swiglu_quantise(gate_up: Tensor, q: Tensor, scale: Tensor, limit: float) -> None:
    """``q * scale ~ gate * sigmoid(gate) * up``, rounded to gate_up's dtype before that.

    Args:
        gate_up: [N, 2 I] float32 or bfloat16, gate in the first I columns; rows may be strided.
        q, scale, limit: as ``relu2_quantise``.

    Raises:
        BadInputError, EnvironmentLacksError: as ``relu2_quantise``.
    """
    check("gate_up", gate_up, (q.shape[0], 2 * q.shape[1]))
    check_quantised(q.shape[0], q.shape[1], q, scale, limit)
    if on_gpu(gate_up, q, scale):
        from cosmos_lite_ros.kernels.activation_quantise_triton import launch_swiglu_quantise

        launch_swiglu_quantise(gate_up, q, scale, limit)
    else:
        swiglu_quantise_twin(gate_up, q, scale, limit)


def swiglu_quantise_twin(gate_up: Tensor, q: Tensor, scale: Tensor, limit: float) -> None:
    """``swiglu_quantise`` in torch, on any device; float64 tensors are computed in float64."""
    activated = gate_up.new_empty(q.shape)
    swiglu_twin(gate_up, activated)
    quantise_rows(activated, q, scale, limit, block_of(scale))
