# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
# Triton carries no type information.
# mypy: disable-error-code="import-untyped, no-untyped-def, untyped-decorator"
"""Triton kernel of ``canvas_patches``: a program some patches, bytes gathered from L2."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from cosmos_lite_ros.kernels.canvas import PATCH

# With 16 channels: 8 bytes of output a thread and step; the loads are single bytes anyway.
PATCHES = 128
WARPS = 4


@triton.jit
def canvas_patches_kernel(
    image_ptr,
    out_ptr,
    out_stride,
    patches,
    patches_across,
    rows,
    columns,
    view_rows,
    C: tl.constexpr,
    BLOCK_C: tl.constexpr,
    PATCHES: tl.constexpr,
    STACKED: tl.constexpr,
):
    """rows, columns: of the picture; view_rows: of one view."""
    patch = tl.program_id(0) * PATCHES + tl.arange(0, PATCHES)
    channel = tl.arange(0, BLOCK_C)
    colour = channel // 4
    y = (patch // patches_across)[:, None] * 2 + (channel % 2)[None, :]
    x = (patch % patches_across)[:, None] * 2 + (channel // 2 % 2)[None, :]
    y = tl.where(y < rows, y, 2 * (rows - 1) - y)
    x = tl.where(x < columns, x, 2 * (columns - 1) - x)
    kept = (patch < patches)[:, None] & (channel < C)[None, :]
    inside = kept & (colour < 3)[None, :]
    if STACKED:
        above = y < view_rows
        place = (y * columns + x) * 3 + colour[None, :]
        value = tl.load(image_ptr + place, mask=inside & above, other=0).to(tl.int32)
        # Two views side by side, each at half its size.
        half = columns // 2
        view = 1 + (x >= half).to(tl.int32)
        source_y = view * view_rows + (y - view_rows) * 2
        source_x = (x - (view - 1) * half) * 2
        corner = image_ptr + (source_y * columns + source_x) * 3 + colour[None, :]
        low = inside & (y >= view_rows)
        total = tl.load(corner, mask=low, other=0).to(tl.int32)
        total += tl.load(corner + 3, mask=low, other=0).to(tl.int32)
        total += tl.load(corner + columns * 3, mask=low, other=0).to(tl.int32)
        total += tl.load(corner + columns * 3 + 3, mask=low, other=0).to(tl.int32)
        value = tl.where(above, value, total >> 2)
    else:
        place = (y * columns + x) * 3 + colour[None, :]
        value = tl.load(image_ptr + place, mask=inside, other=0).to(tl.int32)
    pixel = tl.div_rn(value.to(tl.float32), 127.5) - 1.0
    pixel = tl.where(inside, pixel, 0.0)
    target = out_ptr + patch[:, None] * out_stride + channel[None, :]
    tl.store(target, pixel.to(out_ptr.dtype.element_ty), mask=kept)


def launch(image: Tensor, out: Tensor, *, height: int, width: int) -> None:
    """``canvas_patches`` of checked arguments."""
    patches, channels = out.shape
    stacked = image.dim() == 4
    view_rows = image.shape[1] if stacked else 0
    rows, columns = (view_rows * 3 // 2, image.shape[2]) if stacked else image.shape[:2]
    canvas_patches_kernel[(triton.cdiv(patches, PATCHES),)](
        image,
        out,
        out.stride(0),
        patches,
        width // PATCH,
        rows,
        columns,
        view_rows,
        C=channels,
        BLOCK_C=triton.next_power_of_2(channels),
        PATCHES=PATCHES,
        STACKED=stacked,
        num_warps=WARPS,
        enable_fp_fusion=True,
    )
