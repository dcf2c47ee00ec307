# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
# Triton carries no type information.
# mypy: disable-error-code="import-untyped, no-untyped-def, untyped-decorator"
"""Scale, rounding and cast that the quantising Triton kernels share, to the bit as the twin's."""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.target_info import cuda_capability_geq

from cosmos_lite_ros.kernels.quantise import SCALE_FLOOR

FLOOR = tl.constexpr(SCALE_FLOOR)
# 1.5 * 2^23: added to a float32 of at most 2^22, it leaves the nearest integer in the low bits.
ROUND = tl.constexpr(12582912.0)


@triton.jit
def magnitude(x):
    """|x| of float32 as integers in the same order, NaN above all: their maximum keeps NaN."""
    return x.to(tl.int32, bitcast=True) & 0x7FFFFFFF


@triton.jit
def scale_of(largest, limit):
    """Scale and its reciprocal from the largest ``magnitude``; NaN and inf pass."""
    scale = tl.div_rn(largest.to(tl.float32, bitcast=True), limit)
    scale = tl.where(scale < FLOOR, FLOOR, scale)
    return scale, tl.div_rn(1.0, scale)


@triton.jit
def _odd(x):
    """A float32 whose first eleven bits tell all that a rounding to four of them must know.

    Triton 3.6 cuts float32 to float16 on its way to e4m3 on sm_89; what it cuts off is left in the
    last bit that stays, so that no value becomes a tie.
    """
    bits = x.to(tl.int32, bitcast=True)
    return ((bits | ((bits & 0x1FFF) + 0x1FFF)) & -0x2000).to(tl.float32, bitcast=True)


@triton.jit
def quantised(x, inverse, limit, dtype: tl.constexpr):
    """``x * inverse`` to the nearest value of int8 or e4m3. The clamp also parts the product from
    the addition, so that no compiler fuses them."""
    scaled = x * inverse
    scaled = tl.minimum(scaled, limit, propagate_nan=tl.PropagateNan.ALL)
    scaled = tl.maximum(scaled, -limit, propagate_nan=tl.PropagateNan.ALL)
    if dtype == tl.int8:
        # The low byte of the bits is the integer.
        scaled = (scaled + ROUND).to(tl.int32, bitcast=True)
    elif cuda_capability_geq(9, 0):
        pass
    else:
        scaled = _odd(scaled)
    return scaled.to(dtype)
