# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Makers of messages, shaped as rclpy and the bag reader shape them."""

from __future__ import annotations

import array
import io
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

Pixels = npt.NDArray[np.uint8]

S = 1_000_000_000
MS = 1_000_000

# Red, green, blue, yellow, white, black and two that no channel swap leaves alone.
PATCHES = (
    (255, 0, 0),
    (0, 255, 0),
    (0, 0, 255),
    (255, 255, 0),
    (255, 255, 255),
    (0, 0, 0),
    (200, 90, 20),
    (12, 130, 240),
)


def patches(height: int = 32, patch_width: int = 16) -> Pixels:
    """Vertical stripes of the patch colours, uint8 [height, 8 * patch_width, 3] RGB."""
    return np.repeat(np.array([PATCHES], np.uint8), patch_width, axis=1).repeat(height, axis=0)


def noise(height: int, width: int, seed: int = 0) -> Pixels:
    """Random RGB."""
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)


def scene(height: int = 360, width: int = 640, seed: int = 0) -> Pixels:
    """A smooth random RGB picture, which compresses as a photograph does."""
    small = Image.fromarray(noise(height // 20 + 1, width // 20 + 1, seed))
    return np.asarray(small.resize((width, height), Image.Resampling.BICUBIC))


def header(stamp_ns: int = S) -> Any:
    """A std_msgs/Header."""
    return SimpleNamespace(
        stamp=SimpleNamespace(sec=stamp_ns // S, nanosec=stamp_ns % S), frame_id="camera"
    )


def channels(rgb: Pixels, encoding: str) -> Pixels:
    """RGB in the memory order of an encoding, uint8 [h, w, c]."""
    full = np.full((*rgb.shape[:2], 1), 77, np.uint8)
    orders = {
        "rgb8": rgb,
        "bgr8": rgb[..., ::-1],
        "rgba8": np.concatenate([rgb, full], axis=2),
        "bgra8": np.concatenate([rgb[..., ::-1], full], axis=2),
        "mono8": rgb[..., :1],
    }
    return np.ascontiguousarray(orders[encoding])


def packed(pixels: Pixels, padding: int = 0) -> tuple[int, bytes]:
    """Step and bytes of rows with that much junk behind each."""
    height = pixels.shape[0]
    rows = pixels.reshape(height, -1)
    junk = np.full((height, padding), 0xA5, np.uint8)
    return rows.shape[1] + padding, np.concatenate([rows, junk], axis=1).tobytes()


def image(rgb: Pixels, encoding: str = "rgb8", padding: int = 0, stamp_ns: int = S) -> Any:
    """A sensor_msgs/Image with its data as rclpy gives it."""
    step, data = packed(channels(rgb, encoding), padding)
    return raw(rgb.shape[0], rgb.shape[1], encoding, step, data, stamp_ns=stamp_ns)


def raw(
    height: int,
    width: int,
    encoding: str,
    step: int,
    data: bytes,
    *,
    is_bigendian: int = 0,
    stamp_ns: int = S,
) -> Any:
    """A sensor_msgs/Image of exactly these fields."""
    return SimpleNamespace(
        header=header(stamp_ns),
        height=height,
        width=width,
        encoding=encoding,
        is_bigendian=is_bigendian,
        step=step,
        data=array.array("B", data),
    )


def file_bytes(picture: Pixels | Image.Image, kind: str, **options: Any) -> bytes:
    """A picture as the bytes of a JPEG or PNG file, written by Pillow."""
    stream = io.BytesIO()
    made = picture if isinstance(picture, Image.Image) else Image.fromarray(picture)
    made.save(stream, kind, **options)
    return stream.getvalue()


def compressed(data: bytes, text: str = "jpeg", stamp_ns: int = S) -> Any:
    """A sensor_msgs/CompressedImage."""
    return SimpleNamespace(header=header(stamp_ns), format=text, data=array.array("B", data))


def joint_state(names: Sequence[str], positions: Sequence[float], stamp_ns: int = S) -> Any:
    """A sensor_msgs/JointState without velocity and effort."""
    return SimpleNamespace(
        header=header(stamp_ns),
        name=list(names),
        position=array.array("d", positions),
        velocity=array.array("d"),
        effort=array.array("d"),
    )
