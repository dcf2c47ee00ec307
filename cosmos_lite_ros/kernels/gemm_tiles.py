# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
# Triton carries no type information.
# mypy: disable-error-code="import-untyped, no-untyped-def, untyped-decorator"
"""What the kernels of matrix products share: order of tiles, loads, conversion to bfloat16."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from cosmos_lite_ros.kernels.tables import GemmConfig


def grid_of(out: Tensor, config: GemmConfig) -> tuple[int]:
    """One program a tile of the output."""
    rows, columns = out.shape
    return (triton.cdiv(rows, config.block_m) * triton.cdiv(columns, config.block_n),)


@triton.jit
def tile_of(rows, columns, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """Row and column of this program's tile: GROUP_M tiles down, then one to the right.

    Programs that run at the same time then share rows of one matrix and columns of the other in
    the L2 cache.
    """
    program = tl.program_id(0)
    tiles_m = tl.cdiv(rows, BLOCK_M)
    tiles_n = tl.cdiv(columns, BLOCK_N)
    group = program // (GROUP_M * tiles_n)
    first = group * GROUP_M
    height = min(tiles_m - first, GROUP_M)
    within = program % (GROUP_M * tiles_n)
    return first + within % height, within // height


@triton.jit
def load_step(a_ptrs, b_ptrs, k, left, EVEN_K: tl.constexpr):
    """Both operands of one product; ``left`` columns remain where they are no multiple."""
    if EVEN_K:
        a = tl.load(a_ptrs)
        b = tl.load(b_ptrs)
    else:
        a = tl.load(a_ptrs, mask=k[None, :] < left, other=0.0)
        b = tl.load(b_ptrs, mask=k[:, None] < left, other=0.0)
    return a, b


@triton.jit
def to_bfloat16(values, OFFSET: tl.constexpr):
    """Integers of -2^22..2^22 less OFFSET, exact where they have few bits, as bfloat16.

    The compiler's conversion is one slow instruction a value before sm_90 and several after. The
    last bit of 1.5 * 2^23 counts one, so an integer added to its bits is added to its value.
    """
    bits = values.to(tl.int32) + 0x4B400000
    return (bits.to(tl.float32, bitcast=True) - (12582912.0 + OFFSET)).to(tl.bfloat16)
