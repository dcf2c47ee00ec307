# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Quantisation of rows to int8 or e4m3, in torch: what every quantising kernel must equal.

Symmetric, one float32 scale a row or a block of a row, round to nearest even; ``q * scale`` gives
the values back. Scales carry NaN and inf on: a row with one of them has scales that make all of its
products NaN or inf, because an int8 can say neither.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from cosmos_lite_ros.errors import BadInputError, EnvironmentLacksError
from cosmos_lite_ros.kernels.dispatch import check, inner_dtype
from cosmos_lite_ros.kernels.gemm_checks import SCALE_BLOCK, blocks_of

# Smallest scale: a row of zeros stays zero instead of NaN.
SCALE_FLOOR = 1e-12
# Largest magnitude of each type that values are quantised to.
TYPE_LIMITS = {torch.int8: 127.0, torch.float8_e4m3fn: 448.0}


def check_quantised(rows: int, width: int, q: Tensor, scale: Tensor, limit: float) -> None:
    """Raise unless ``q`` and ``scale`` can hold ``rows`` of ``width`` quantised to ``limit``.

    Raises:
        BadInputError: wrong shape, dtype or limit.
        EnvironmentLacksError: e4m3 on a GPU that has no such arithmetic.
    """
    largest = TYPE_LIMITS.get(q.dtype)
    if largest is None:
        raise BadInputError(f"q: found {q.dtype}, expected torch.int8 or torch.float8_e4m3fn")
    if not 0 < limit <= largest:
        raise BadInputError(f"limit is {limit:g}, expected above 0 and at most {largest:g}")
    check("q", q, (rows, width), q.dtype)
    blocked = () if scale.ndim == 1 else (blocks_of(width),)
    check("scale", scale, (rows, *blocked), torch.float32)
    if q.device.type == "cuda" and q.dtype == torch.float8_e4m3fn:
        _check_e4m3(q.device)


@cache
def _check_e4m3(device: torch.device) -> None:
    major, minor = torch.cuda.get_device_capability(device)
    if (major, minor) < (8, 9):
        raise EnvironmentLacksError(
            f"{torch.cuda.get_device_name(device)} is sm_{major}{minor}, fp8 needs sm_89 or newer: "
            "use scheme int8"
        )


def block_of(scale: Tensor) -> int | None:
    """Columns that share a scale: None for the whole row."""
    return None if scale.ndim == 1 else SCALE_BLOCK


def quantise_rows(
    x: Tensor, q: Tensor, scale: Tensor, limit: float, block: int | None = None
) -> None:
    """``scale = max|x| / limit``, at least 1e-12, and ``q = round(x / scale)``, on any device.

    The division is a product with the float32 reciprocal. Where a scale is NaN or inf, what ``q``
    holds there means nothing.

    Args:
        x: [N, I] of any float dtype; computed in float32, or in float64 for float64.
        q: [N, I] int8 or float8_e4m3fn.
        scale: float32 [N]; with ``block``, [N, ceil(I / block)].
        limit: what the largest magnitude becomes.
        block: columns that share a scale; the last block of a row may be shorter.
    """
    rows, width = x.shape
    wide = x.to(inner_dtype(x))
    if block is not None:
        spare = -width % block
        wide = torch.nn.functional.pad(wide, (0, spare)).view(rows, -1, block)
    largest = wide.abs().amax(-1)
    # A tensor on both sides: torch divides by a number on a GPU with its reciprocal.
    scale.copy_((largest / torch.full_like(largest, limit)).float().clamp_min(SCALE_FLOOR))
    inverse = scale.to(wide.dtype).reciprocal()[..., None]
    scaled = (wide * inverse).clamp_(-limit, limit).reshape(rows, -1)[:, :width]
    q.copy_(scaled.round_().nan_to_num_(nan=0.0) if q.dtype == torch.int8 else scaled)


def dequantise(
    q: Tensor, scale: Tensor, dtype: torch.dtype = torch.float32, block: int | None = None
) -> Tensor:
    """``q * scale`` in ``dtype``, computed in float32 or wider; arguments as ``quantise_rows``."""
    inner = torch.promote_types(dtype, torch.float32)
    factors = scale.to(inner)
    if block is None:
        factors = factors[:, None]
    else:
        factors = factors.repeat_interleave(block, dim=1)[:, : q.shape[1]]
    return (q.to(inner) * factors).to(dtype)
