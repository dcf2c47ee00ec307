# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What the matrix products share: argument checks and the number format of the twins."""

from __future__ import annotations

import torch
from torch import Tensor

from cosmos_lite_ros.errors import BadInputError
from cosmos_lite_ros.kernels.dispatch import check

# Columns of the input that share one activation scale (int8, blocked) or weight scale (int4).
SCALE_BLOCK = 128
# The kernels count elements in 32 bits.
_MAX_ELEMENTS = 2**31 - 1
OUT_DTYPES = (torch.bfloat16, torch.float32, torch.float64)


def blocks_of(columns: int) -> int:
    """How many scales a row of ``columns`` has, the last one perhaps of a shorter block."""
    return -(-columns // SCALE_BLOCK)


def check_out(out: Tensor, rows: int, columns: int) -> None:
    """Raise BadInputError unless ``out`` is [rows, columns] of a dtype that is written."""
    check("out", out, (rows, columns))
    if out.dtype not in OUT_DTYPES:
        raise BadInputError(f"out: found {out.dtype}, expected torch.bfloat16 or torch.float32")


def check_sizes(*tensors: Tensor) -> None:
    """Raise BadInputError where a tensor has more elements than a kernel can count."""
    for tensor in tensors:
        if tensor.numel() > _MAX_ELEMENTS:
            raise BadInputError(
                f"found a matrix of {tensor.numel()} elements, expected at most {_MAX_ELEMENTS}: "
                "split its rows"
            )


def inner_of(out: Tensor) -> torch.dtype:
    """What a twin computes in: float64 where ``out`` is, else float32."""
    return torch.float64 if out.dtype is torch.float64 else torch.float32
