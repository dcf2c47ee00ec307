# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Matrix product with int8 weights and bfloat16 activations: saves memory, not time."""

from __future__ import annotations

import torch
from torch import Tensor

from cosmos_lite_ros.kernels.dispatch import check, on_gpu
from cosmos_lite_ros.kernels.gemm_checks import check_out, check_sizes, inner_of


def gemm_int8wo(x: Tensor, w: Tensor, scale: Tensor, out: Tensor) -> None:
    """``out = (x @ w.T) * scale``, accumulated in float32.

    Args:
        x: [M, K] bfloat16, rows may be strided (a twin takes any floating dtype).
        w: [N, K] int8; every value is exact in bfloat16.
        scale: [N] float32, one factor an output channel.
        out: [M, N] bfloat16 or float32.

    Raises:
        BadInputError: shapes, dtypes or devices that do not belong together.
        EnvironmentLacksError: CUDA tensors and no Triton.
    """
    check("x", x, (x.shape[0], w.shape[-1]))
    check("w", w, (w.shape[0], x.shape[-1]), torch.int8)
    check("scale", scale, (w.shape[0],), torch.float32)
    check_out(out, x.shape[0], w.shape[0])
    check_sizes(x, w, out)
    if on_gpu(out, x, w, scale):
        check("x", x, x.shape, torch.bfloat16)
        from cosmos_lite_ros.kernels.gemm_int8wo_triton import launch

        launch(x, w, scale, out)
    else:
        gemm_int8wo_twin(x, w, scale, out)


def gemm_int8wo_twin(x: Tensor, w: Tensor, scale: Tensor, out: Tensor) -> None:
    """``gemm_int8wo`` in torch, on any device; float64 ``out`` is computed in float64."""
    inner = inner_of(out)
    out.copy_((x.to(inner) @ w.to(inner).T) * scale.to(inner))
