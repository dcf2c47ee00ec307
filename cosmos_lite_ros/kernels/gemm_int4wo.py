# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Matrix product with int4 weights in groups of 128 and bfloat16 activations: saves memory."""

from __future__ import annotations

import torch
from torch import Tensor

from cosmos_lite_ros.errors import BadInputError
from cosmos_lite_ros.kernels.dispatch import check, on_gpu
from cosmos_lite_ros.kernels.gemm_checks import (
    SCALE_BLOCK,
    blocks_of,
    check_out,
    check_sizes,
    inner_of,
)

# What is added to -7..7 before it is stored in four bits.
OFFSET = 8


def gemm_int4wo(x: Tensor, packed: Tensor, scale: Tensor, out: Tensor) -> None:
    """``out = x @ w.T`` with w of four bits times one scale for each 128 input channels.

    Args:
        x: [M, K] bfloat16, K even, rows may be strided (a twin takes any floating dtype).
        packed: [N, K / 2] uint8, two weights a byte, each stored + 8; the low half is the even
            column.
        scale: [N, ceil(K / 128)] float32.
        out: [M, N] bfloat16 or float32.

    Raises:
        BadInputError: shapes, dtypes or devices that do not belong together.
        EnvironmentLacksError: CUDA tensors and no Triton.
    """
    check("x", x, (x.shape[0], 2 * packed.shape[-1]))
    check("packed", packed, (packed.shape[0], x.shape[1] // 2), torch.uint8)
    check("scale", scale, (packed.shape[0], blocks_of(x.shape[1])), torch.float32)
    check_out(out, x.shape[0], packed.shape[0])
    check_sizes(x, packed, out)
    if on_gpu(out, x, packed, scale):
        check("x", x, x.shape, torch.bfloat16)
        from cosmos_lite_ros.kernels.gemm_int4wo_triton import launch

        launch(x, packed, scale, out)
    else:
        gemm_int4wo_twin(x, packed, scale, out)


def gemm_int4wo_twin(x: Tensor, packed: Tensor, scale: Tensor, out: Tensor) -> None:
    """``gemm_int4wo`` in torch, on any device; float64 ``out`` is computed in float64."""
    inner = inner_of(out)
    weight = unpack_int4(packed).to(inner)
    per_column = scale.to(inner).repeat_interleave(SCALE_BLOCK, dim=1)[:, : weight.shape[1]]
    out.copy_(x.to(inner) @ (weight * per_column).T)


def pack_int4(values: Tensor) -> Tensor:
    """[N, K] int8 of -8..7, K even, as [N, K / 2] uint8."""
    if values.dtype is not torch.int8 or values.shape[-1] % 2:
        raise BadInputError(
            f"found {values.dtype} with {values.shape[-1]} columns, expected torch.int8 with an "
            "even number"
        )
    stored = (values + OFFSET).to(torch.uint8)
    return stored[..., 0::2] | (stored[..., 1::2] << 4)


def unpack_int4(packed: Tensor) -> Tensor:
    """[N, K / 2] uint8 as [N, K] int8."""
    halves = torch.stack((packed & 15, packed >> 4), dim=-1)
    return halves.flatten(-2).to(torch.int8) - OFFSET
