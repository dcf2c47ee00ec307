# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Three camera pictures into the one that the policy sees.

Wrist on top, the exteriors at half size below: 540x640. Two ways exist for cameras that are not
360x640, and a policy's answers differ between them by up to 0.03 rad: ``client`` fits each camera
first (what the published client does), ``server`` composes at native size and stretches the result
(what the published server does with what it is sent).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, get_args

import cv2
import numpy as np
import numpy.typing as npt
from PIL import Image

from cosmos_lite_ros.contract.constants import (
    CAMERA_HEIGHT,
    CAMERA_WIDTH,
    CANVAS_HEIGHT,
    CANVAS_WIDTH,
    COMPOSED_HEIGHT,
    COMPOSED_WIDTH,
)
from cosmos_lite_ros.contract.observation import Image as ObservedImage
from cosmos_lite_ros.contract.observation import Pixels
from cosmos_lite_ros.errors import BadInputError, ImageError

Compose = Literal["client", "server"]
Aspect = Literal["pad", "crop", "refuse"]
Floats = npt.NDArray[np.floating[Any]]
# resize(image uint8 [h, w, 3], height, width) -> uint8 [height, width, 3]: bilinear, antialiased.
Resize = Callable[[Pixels, int, int], Pixels]
_NAMES = ("wrist", "exterior 1", "exterior 2")


def pillow_resize(image: Pixels, height: int, width: int) -> Pixels:
    """Pillow's bilinear filter, which antialiases: uint8 [h, w, 3] to [height, width, 3]."""
    source = Image.fromarray(np.ascontiguousarray(image))
    return np.asarray(source.resize((width, height), Image.Resampling.BILINEAR))


def compose_views(
    wrist: Pixels,
    exterior_1: Pixels,
    exterior_2: Pixels,
    *,
    compose: Compose = "client",
    aspect: Aspect = "pad",
    resize: Resize = pillow_resize,
    out: Pixels | None = None,
) -> Pixels:
    """The composed picture.

    Args:
        wrist, exterior_1, exterior_2: uint8 [h, w, 3] RGB, any size each.
        compose: ``client`` or ``server``, see the module.
        aspect: what is done with a camera that is not 16:9. ``pad`` leaves it whole: with
            ``client`` between black bars, with ``server`` stretched, as each original does;
            ``crop`` cuts its middle out first; ``refuse`` raises.
        resize: the antialiasing filter of ``client``.
        out: uint8 [540, 640, 3] C-contiguous to write into, else a new array.

    Returns:
        uint8 [540, 640, 3] RGB.

    Raises:
        ImageError: not uint8 [h, w, 3], or refused for its aspect.
        BadInputError: an unknown ``compose`` or ``aspect``, or a wrong ``out``.
    """
    _check_choices(compose, aspect)
    shape = (COMPOSED_HEIGHT, COMPOSED_WIDTH, 3)
    if out is None:
        out = np.empty(shape, np.uint8)
    elif out.shape != shape or out.dtype != np.uint8 or not out.flags.c_contiguous:
        raise BadInputError(f"out is {out.dtype} {out.shape}, expected contiguous uint8 {shape}")
    views = [
        _prepared(image, name, aspect)
        for image, name in zip((wrist, exterior_1, exterior_2), _NAMES, strict=True)
    ]
    if compose == "client":
        fit_camera(views[0], resize=resize, out=out[:CAMERA_HEIGHT])
        left, right = (fit_camera(view, resize=resize) for view in views[1:])
        out[CAMERA_HEIGHT:, : CAMERA_WIDTH // 2] = _halved(left)
        out[CAMERA_HEIGHT:, CAMERA_WIDTH // 2 :] = _halved(right)
        return out
    _compose_server(views, out)
    return out


def arrange_views(
    wrist: Pixels,
    exterior_1: Pixels,
    exterior_2: Pixels,
    *,
    compose: Compose = "client",
    aspect: Aspect = "pad",
    resize: Resize = pillow_resize,
) -> ObservedImage:
    """An observation's image: the views fitted, for composition on the engine's device.

    Arguments and errors as ``compose_views``.

    Returns:
        Three uint8 [360, 640, 3] RGB, of pictures with that size themselves and no copies; where
        ``server`` has to compose at another size, uint8 [540, 640, 3], composed.
    """
    views = (wrist, exterior_1, exterior_2)
    fits = all(view.shape[:2] == (CAMERA_HEIGHT, CAMERA_WIDTH) for view in views)
    if compose != "client" and not fits:
        return compose_views(*views, compose=compose, aspect=aspect, resize=resize)
    _check_choices(compose, aspect)
    first, second, third = (
        fit_camera(_prepared(image, name, aspect), resize=resize)
        for image, name in zip(views, _NAMES, strict=True)
    )
    return first, second, third


def fit_camera(
    image: Pixels, *, resize: Resize = pillow_resize, out: Pixels | None = None
) -> Pixels:
    """One camera at 360x640 with its aspect kept, centred on black.

    Sizes are the published client's: the factor is that of the tighter side, sizes and offsets are
    cut to integers. An image of 360x640 is not touched.

    Args:
        image: uint8 [h, w, 3].
        resize: the antialiasing filter.
        out: uint8 [360, 640, 3] to write into, else a new array or ``image`` itself.
    """
    height, width = image.shape[:2]
    if (height, width) == (CAMERA_HEIGHT, CAMERA_WIDTH):
        if out is None:
            return image
        out[...] = image
        return out
    fitted_height, fitted_width, top, left = fitted_rectangle(height, width)
    fitted = resize(image, fitted_height, fitted_width)
    if out is None:
        if (fitted_height, fitted_width) == (CAMERA_HEIGHT, CAMERA_WIDTH):
            return fitted
        out = np.empty((CAMERA_HEIGHT, CAMERA_WIDTH, 3), np.uint8)
    bottom, right = top + fitted_height, left + fitted_width
    out[:top] = 0
    out[bottom:] = 0
    out[top:bottom, :left] = 0
    out[top:bottom, right:] = 0
    out[top:bottom, left:right] = fitted
    return out


def fitted_rectangle(height: int, width: int) -> tuple[int, int, int, int]:
    """Height, width, top and left of a height x width image fitted into 360x640.

    Raises:
        ImageError: so narrow that nothing of it would be left.
    """
    # The order of these float operations decides single pixels: it is the published client's.
    factor = max(width / CAMERA_WIDTH, height / CAMERA_HEIGHT)
    fitted_height, fitted_width = int(height / factor), int(width / factor)
    if not (fitted_height and fitted_width):
        raise ImageError(f"an image of {width}x{height} is too narrow for a camera view")
    top = max(0, int((CAMERA_HEIGHT - fitted_height) / 2))
    left = max(0, int((CAMERA_WIDTH - fitted_width) / 2))
    return fitted_height, fitted_width, top, left


def is_wide(height: int, width: int) -> bool:
    """Whether the aspect is exactly 16:9, the one the policies were trained on."""
    return width * CAMERA_HEIGHT == height * CAMERA_WIDTH


def pad_canvas(image: Pixels) -> Pixels:
    """The network's canvas: the composed image at the top left, the rest by reflection.

    The edge pixel is not repeated: column 640 is column 638, row 540 is row 538.

    Args:
        image: uint8 [540, 640, 3].

    Returns:
        uint8 [544, 736, 3].
    """
    height, width = COMPOSED_HEIGHT, COMPOSED_WIDTH
    if image.shape != (height, width, 3) or image.dtype != np.uint8:
        raise BadInputError(
            f"the composed image is {image.dtype} {image.shape}, expected uint8 "
            f"({height}, {width}, 3)"
        )
    canvas = np.empty((CANVAS_HEIGHT, CANVAS_WIDTH, 3), np.uint8)
    canvas[:height, :width] = image
    columns, rows = CANVAS_WIDTH - width, CANVAS_HEIGHT - height
    canvas[:height, width:] = image[:, width - 2 : width - 2 - columns : -1]
    canvas[height:] = canvas[height - 2 : height - 2 - rows : -1]
    return canvas


def resize_bilinear(image: Pixels, height: int, width: int) -> Pixels:
    """Bilinear without antialias, floats cut to integers: uint8 [h, w, 3] to [height, width, 3].

    Equals ``torch.nn.functional.interpolate(image.float(), mode="bilinear", align_corners=False)``
    and a cut to uint8, bit for bit, as torch computes it on a CPU with more than one thread. (With
    one thread, and for results below about 64x64, it rounds in another order, and single pixels
    differ by one level.) Products are added without being rounded first, as the fused instruction
    does it there.
    """
    source_height, source_width = image.shape[:2]
    if (source_height, source_width) == (height, width):
        return image
    if (source_height, source_width) == (2 * height, 2 * width):
        return _halved(image)
    top, bottom, above, below = _taps(source_height, height)
    left, right, before, after = _taps(source_width, width)
    needed, index = np.unique(np.concatenate([top, bottom]), return_inverse=True)
    strip = image[needed].astype(np.float32)
    across = _blend(strip[:, left], strip[:, right], before[None, :, None], after[None, :, None])
    result = _blend(
        across[index[:height]], across[index[height:]], above[:, None, None], below[:, None, None]
    )
    return result.astype(np.uint8)


def _taps(
    source: int, target: int
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp], Floats, Floats]:
    """For each target pixel its two source pixels and their weights (float32)."""
    scale = np.float64(np.float32(source) / np.float32(target))
    centre = (scale * (np.arange(target) + 0.5) - 0.5).astype(np.float32)
    centre = np.maximum(centre, np.float32(0))
    first = np.minimum(centre.astype(np.intp), source - 1)
    second = np.minimum(first + 1, source - 1)
    weight = np.clip(centre - first.astype(np.float32), 0, 1).astype(np.float32)
    return first, second, np.float32(1) - weight, weight


def _blend(a: Floats, b: Floats, weight_a: Floats, weight_b: Floats) -> Floats:
    """weight_a * a + weight_b * b in float32, the first product exact (a fused multiply-add)."""
    exact = a.astype(np.float64) * weight_a
    exact += b * weight_b
    return exact.astype(np.float32)


def _halved(image: Pixels) -> Pixels:
    """The mean of each 2x2 block, cut to an integer: what ``resize_bilinear`` is at factor 2."""
    height, width = image.shape[:2]
    # The mean of four multiples of 4 is an integer, so OpenCV has nothing to round.
    wide = image.astype(np.uint16)
    wide <<= 2
    mean: npt.NDArray[np.uint16] = cv2.resize(
        wide, (width // 2, height // 2), interpolation=cv2.INTER_AREA
    )
    mean >>= 2
    return mean.astype(np.uint8)


def _check_choices(compose: str, aspect: str) -> None:
    if compose not in get_args(Compose) or aspect not in get_args(Aspect):
        raise BadInputError(
            f"compose {compose!r} and aspect {aspect!r}: expected one of {get_args(Compose)} and "
            f"one of {get_args(Aspect)}"
        )


def _prepared(image: Pixels, name: str, aspect: Aspect) -> Pixels:
    """Check one camera's picture and apply ``crop`` or ``refuse``."""
    if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3 or not image.size:
        raise ImageError(
            f"{name} is {image.dtype} {image.shape}, expected uint8 [height, width, 3] RGB"
        )
    height, width = image.shape[:2]
    if aspect == "pad" or is_wide(height, width):
        return image
    if aspect == "refuse":
        raise ImageError(
            f"{name} is {width}x{height}, expected 16:9: set the camera to a 16:9 mode, or the "
            "parameter aspect to pad or crop"
        )
    if width * CAMERA_HEIGHT > height * CAMERA_WIDTH:
        kept = max(1, height * CAMERA_WIDTH // CAMERA_HEIGHT)
        start = (width - kept) // 2
        return image[:, start : start + kept]
    kept = max(1, width * CAMERA_HEIGHT // CAMERA_WIDTH)
    start = (height - kept) // 2
    return image[start : start + kept]


def _compose_server(views: list[Pixels], out: Pixels) -> None:
    """Compose at the wrist's size and stretch into ``out``."""
    height, width = views[0].shape[:2]
    if width % 2 or height < 2:
        raise ImageError(
            f"wrist is {width}x{height}: compose 'server' needs an even width (the two exteriors "
            "are half as wide), use compose 'client'"
        )
    half_height, half_width = height // 2, width // 2
    if (height, width) == (CAMERA_HEIGHT, CAMERA_WIDTH):
        native = out
    else:
        native = np.empty((height + half_height, width, 3), np.uint8)
    native[:height] = views[0]
    native[height:, :half_width] = resize_bilinear(views[1], half_height, half_width)
    native[height:, half_width:] = resize_bilinear(views[2], half_height, half_width)
    if native is not out:
        out[...] = resize_bilinear(native, COMPOSED_HEIGHT, COMPOSED_WIDTH)
