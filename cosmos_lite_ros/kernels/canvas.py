# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""From camera bytes to what the image encoder's first convolution reads, in one pass."""

from __future__ import annotations

import torch
from torch import Tensor

from cosmos_lite_ros.errors import BadInputError
from cosmos_lite_ros.kernels.dispatch import check, inner_dtype, on_gpu

# Pixels of a patch along each side.
PATCH = 2


def canvas_patches(image: Tensor, out: Tensor, *, height: int, width: int) -> None:
    """Compose, pad by reflection, scale to -1..1 and gather 2x2 pixels into channels.

    The canvas has the composed picture at its top left; behind it column W is column W - 2 (the
    edge is not repeated). A pixel is ``byte / 127.5 - 1`` in float32, rounded once.

    Args:
        image: uint8, the composed picture [H, W, 3], or the three views [3, h, w, 3]: the first on
            top, the means of 2x2 pixels of the other two (cut to integers) side by side below.
        out: [(height / 2) * (width / 2), C] float32 or bfloat16, a row a patch, C >= 12: channel
            ``4 c + 2 q + p`` is colour c in column q and row p of the patch; zeros from 12 on.
        height, width: of the canvas, even, at most twice the picture's.

    Raises:
        BadInputError: shapes, dtypes or devices that do not belong together.
        EnvironmentLacksError: CUDA tensors and no Triton.
    """
    shape = image.shape
    stacked = image.dim() == 4
    fits = len(shape) in (3, 4) and shape[-1] == 3 and shape[:-3] in ((), (3,))
    if image.dtype != torch.uint8 or not fits:
        raise BadInputError(
            f"image: found {image.dtype} {tuple(shape)}, expected uint8 [H, W, 3] or [3, h, w, 3]"
        )
    if stacked and (shape[1] % 2 or shape[2] % 2):
        raise BadInputError(f"image: found views of {shape[1]}x{shape[2]}, expected even sides")
    if not image.is_contiguous():
        raise BadInputError("image: found strides, expected it to be contiguous")
    rows, columns = (shape[1] * 3 // 2, shape[2]) if stacked else (shape[0], shape[1])
    for name, whole, part in (("height", height, rows), ("width", width, columns)):
        if whole % PATCH or not part <= whole < 2 * part:
            raise BadInputError(
                f"{name}: found {whole} for a picture of {part}, expected an even number from "
                f"{part} to {2 * part - 1}"
            )
    patches = (height // PATCH) * (width // PATCH)
    if out.shape[-1] < 3 * PATCH**2:
        raise BadInputError(f"out: found {out.shape[-1]} channels, expected {3 * PATCH**2} or more")
    check("out", out, (patches, out.shape[-1]))
    if on_gpu(out, image):
        from cosmos_lite_ros.kernels.canvas_triton import launch

        launch(image, out, height=height, width=width)
    else:
        canvas_patches_twin(image, out, height=height, width=width)


def canvas_patches_twin(image: Tensor, out: Tensor, *, height: int, width: int) -> None:
    """``canvas_patches`` in torch, on any device; float64 ``out`` is computed in float64."""
    if image.dim() == 4:
        image = compose(image)
    canvas = image[_reflected(height, image.shape[0], image.device)]
    canvas = canvas[:, _reflected(width, image.shape[1], image.device)]
    pixels = canvas.permute(2, 0, 1).to(inner_dtype(out)) / 127.5 - 1.0
    x = pixels.view(3, height // PATCH, PATCH, width // PATCH, PATCH)
    # channel order (c, q, p): columns of a patch before its rows
    rows = x.permute(1, 3, 0, 4, 2).reshape(out.shape[0], 3 * PATCH**2)
    out[:, : 3 * PATCH**2].copy_(rows)
    out[:, 3 * PATCH**2 :] = 0.0


def compose(views: Tensor) -> Tensor:
    """As ``contract.views.compose_views``: uint8 [3, h, w, 3] to [3 h / 2, w, 3]."""
    _, height, width, _ = views.shape
    blocks = views[1:].view(2, height // 2, 2, width // 2, 2, 3)
    halved = blocks.sum((2, 4), dtype=torch.int32) >> 2
    below = halved.to(torch.uint8).permute(1, 0, 2, 3).reshape(height // 2, width, 3)
    return torch.cat([views[0], below])


def _reflected(length: int, part: int, device: torch.device) -> Tensor:
    """Index in a picture of ``part`` for each of ``length``."""
    index = torch.arange(length, device=device)
    return torch.where(index < part, index, 2 * (part - 1) - index)
