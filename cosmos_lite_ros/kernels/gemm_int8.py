# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""int8 matrix product: exact sums in int32, activations scaled per row or per 128 columns."""

from __future__ import annotations

import torch
from torch import Tensor

from cosmos_lite_ros.kernels.dispatch import check, on_gpu
from cosmos_lite_ros.kernels.gemm_checks import (
    SCALE_BLOCK,
    blocks_of,
    check_out,
    check_sizes,
    inner_of,
)


def gemm_int8(a: Tensor, a_scale: Tensor, b: Tensor, b_scale: Tensor, out: Tensor) -> None:
    """``out = (a @ b.T) * a_scale * b_scale``, every integer sum exact.

    Args:
        a: [M, K] int8, rows may be strided; K at most 130000, so that no sum leaves int32.
        a_scale: float32 [M], one factor a row; or [M, ceil(K / 128)], one for each 128 columns of
            a row, whose exact sums are scaled and added in float32. NaN makes the row NaN.
        b: [N, K] int8, a weight matrix.
        b_scale: [N] float32.
        out: [M, N] bfloat16 or float32.

    Raises:
        BadInputError: shapes, dtypes or devices that do not belong together.
        EnvironmentLacksError: CUDA tensors and no Triton.
    """
    check("a", a, (a.shape[0], b.shape[-1]), torch.int8)
    check("b", b, (b.shape[0], a.shape[-1]), torch.int8)
    blocked = () if a_scale.ndim == 1 else (blocks_of(a.shape[1]),)
    check("a_scale", a_scale, (a.shape[0], *blocked), torch.float32)
    check("b_scale", b_scale, (b.shape[0],), torch.float32)
    check_out(out, a.shape[0], b.shape[0])
    check_sizes(a, b, out)
    if on_gpu(out, a, a_scale, b, b_scale):
        from cosmos_lite_ros.kernels.gemm_int8_triton import launch

        launch(a, a_scale, b, b_scale, out)
    else:
        gemm_int8_twin(a, a_scale, b, b_scale, out)


def gemm_int8_twin(a: Tensor, a_scale: Tensor, b: Tensor, b_scale: Tensor, out: Tensor) -> None:
    """``gemm_int8`` in torch, on any device; float64 ``out`` is computed in float64."""
    inner = inner_of(out)
    if a_scale.ndim == 1:
        # A product of int8 and a sum of up to 2^39 of them are exact in float64.
        exact = a.double() @ b.double().T
        out.copy_(exact.to(inner) * a_scale[:, None].to(inner) * b_scale.to(inner))
        return
    total = torch.zeros(out.shape, dtype=inner, device=out.device)
    for i, start in enumerate(range(0, a.shape[1], SCALE_BLOCK)):
        columns = slice(start, start + SCALE_BLOCK)
        # 128 * 127 * 127 < 2^24: exact in float32.
        block = a[:, columns].to(inner) @ b[:, columns].to(inner).T
        total += block * a_scale[:, i, None].to(inner)
    out.copy_(total * b_scale.to(inner))
