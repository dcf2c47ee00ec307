# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Pillow's antialiasing bilinear filter computed by torch, about four times faster."""

from __future__ import annotations

import cv2
import numpy as np
import numpy.typing as npt
import torch


def torch_resize(image: npt.NDArray[np.uint8], height: int, width: int) -> npt.NDArray[np.uint8]:
    """Resize uint8 [h, w, 3] to [height, width, 3] as ``contract.views.pillow_resize`` does.

    Identical to Pillow for the factors of common cameras (1280x720, 1920x1080, 640x480, 848x480,
    ... to 640x360); elsewhere single pixels differ by one level, since torch keeps the filter's
    weights in 16 bits.
    """
    pixels = np.ascontiguousarray(image)
    if not pixels.flags.writeable:  # torch has no read-only tensors
        pixels = pixels.copy()
    channels_last = torch.from_numpy(pixels).permute(2, 0, 1)[None]
    resized = torch.nn.functional.interpolate(
        channels_last, (height, width), mode="bilinear", antialias=True
    )
    # Torch answers in planes; OpenCV interleaves them ten times faster than NumPy's transpose.
    result: npt.NDArray[np.uint8] = cv2.merge(list(resized[0].contiguous().numpy()))
    return result
