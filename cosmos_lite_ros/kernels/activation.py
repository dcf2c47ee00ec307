# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The two activations of the MLPs: squared ReLU (Edge) and SwiGLU (Nano)."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

from cosmos_lite_ros.kernels.dispatch import check, inner_dtype, on_gpu


def relu2(x: Tensor, out: Tensor) -> None:
    """``out = max(x, 0)^2``, computed in float32 and rounded once; NaN stays NaN.

    Args:
        x: [N, I] float32 or bfloat16, rows may be strided.
        out: [N, I] of x's dtype; may be x.

    Raises:
        BadInputError: shapes, dtypes or devices that do not belong together.
        EnvironmentLacksError: CUDA tensors and no Triton.
    """
    check("x", x, x.shape)
    check("out", out, x.shape, x.dtype)
    if on_gpu(x, out):
        from cosmos_lite_ros.kernels.activation_triton import launch_relu2

        launch_relu2(x, out)
    else:
        relu2_twin(x, out)


def relu2_twin(x: Tensor, out: Tensor) -> None:
    """``relu2`` in torch, on any device; float64 tensors are computed in float64."""
    out.copy_(x.to(inner_dtype(x)).relu().square_())


def swiglu(gate_up: Tensor, out: Tensor) -> None:
    """``out = gate * sigmoid(gate) * up``, computed in float32 and rounded once.

    Args:
        gate_up: [N, 2 I] float32 or bfloat16, gate in the first I columns; rows may be strided.
        out: [N, I] of gate_up's dtype; no part of gate_up.

    Raises:
        BadInputError: shapes, dtypes or devices that do not belong together.
        EnvironmentLacksError: CUDA tensors and no Triton.
    """
    check("gate_up", gate_up, (out.shape[0], 2 * out.shape[1]))
    check("out", out, out.shape, gate_up.dtype)
    if on_gpu(gate_up, out):
        from cosmos_lite_ros.kernels.activation_triton import launch_swiglu

        launch_swiglu(gate_up, out)
    else:
        swiglu_twin(gate_up, out)


def swiglu_twin(gate_up: Tensor, out: Tensor) -> None:
    """``swiglu`` in torch, on any device; float64 tensors are computed in float64."""
    gate, up = gate_up.to(inner_dtype(gate_up)).chunk(2, dim=1)
    out.copy_(functional.silu(gate) * up)
