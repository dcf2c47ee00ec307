# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""From a camera message to right RGB, or a refusal that names the encoding and the remedy.

Messages are taken by shape (``sensor_msgs/Image``, ``CompressedImage``), so that those of rclpy and
of the bag reader give the same pixels. Conversions are OpenCV's, on views of the message.
"""

from __future__ import annotations

import io
import re
import zlib
from typing import Any, Final, Protocol

import cv2
import numpy as np
import numpy.typing as npt
from PIL import Image

from cosmos_lite_ros.errors import ImageError

Pixels = npt.NDArray[np.uint8]

# A header that claims more is damaged or hostile: no robot camera has 64 million pixels.
MAX_PIXELS: Final = 64_000_000

# encoding -> bytes per pixel and OpenCV's conversion to RGB (None: it is RGB). ``yuv422`` is UYVY
# by the definition in sensor_msgs/image_encodings.hpp; YUY2 has names of its own.
_CONVERSIONS: Final[dict[str, tuple[int, int | None]]] = {
    "rgb8": (3, None),
    "bgr8": (3, cv2.COLOR_BGR2RGB),
    "rgba8": (4, cv2.COLOR_RGBA2RGB),
    "bgra8": (4, cv2.COLOR_BGRA2RGB),
    "mono8": (1, cv2.COLOR_GRAY2RGB),
    "yuv422": (2, cv2.COLOR_YUV2RGB_UYVY),
    "uyvy": (2, cv2.COLOR_YUV2RGB_UYVY),
    "yuv422_yuy2": (2, cv2.COLOR_YUV2RGB_YUY2),
    "yuyv": (2, cv2.COLOR_YUV2RGB_YUY2),
}
ACCEPTED_ENCODINGS: Final = tuple(_CONVERSIONS)

_OPENCV_TYPE = re.compile(r"(8|16|32|64)([usf])c\d*")
_PNG_MAGIC = b"\x89PNG\r\n\x1a\n"
_JPEG_MAGIC = b"\xff\xd8"
_JPEG_END = b"\xff\xd9"
# Decoders read a few bytes ahead of the last code: see _jpeg_bytes.
_READ_AHEAD = b"\0" * 16


class ImageMessage(Protocol):
    """What is used of a sensor_msgs/Image; ``data`` is any buffer of bytes."""

    height: int
    width: int
    encoding: str
    is_bigendian: int
    step: int
    data: Any


class CompressedImageMessage(Protocol):
    """What is used of a sensor_msgs/CompressedImage; ``data`` is any buffer of bytes."""

    format: str
    data: Any


def decode_image(message: ImageMessage) -> Pixels:
    """Right RGB of a raw image.

    Returns:
        uint8 [height, width, 3] RGB; for ``rgb8`` a view of the message's own memory (perhaps
        read-only, and with gaps between rows where ``step`` is padded).

    Raises:
        ImageError: an encoding that is not 8 bits per channel in a known colour order, an empty
            image, or sizes that contradict each other.
    """
    encoding = message.encoding.strip().lower()
    if encoding not in _CONVERSIONS:
        raise ImageError(_why_refused(message.encoding, encoding, bool(message.is_bigendian)))
    pixel_bytes, conversion = _CONVERSIONS[encoding]
    height, width, step = int(message.height), int(message.width), int(message.step)
    where = f"{message.encoding} image of {width}x{height}"
    if height <= 0 or width <= 0:
        raise ImageError(f"{where} is empty: check the camera driver")
    if step < width * pixel_bytes:
        raise ImageError(
            f"{where} has step {step}, expected at least {width * pixel_bytes} "
            f"({pixel_bytes} bytes a pixel): the driver fills the message wrongly"
        )
    if pixel_bytes == 2 and width % 2:
        raise ImageError(f"{where}: YUV 4:2:2 needs an even width: set another resolution")
    data = _buffer(message.data, where)
    if data.size != height * step:
        raise ImageError(
            f"{where} has {data.size} bytes of data, expected height x step = {height} x {step} = "
            f"{height * step}: the frame is cut off or the driver fills the message wrongly"
        )
    rows = data.reshape(height, step)[:, : width * pixel_bytes]
    pixels = rows.reshape(height, width, pixel_bytes)
    if conversion is None:
        return pixels
    converted: Pixels = cv2.cvtColor(pixels, conversion)
    return converted


def decode_compressed(message: CompressedImageMessage) -> Pixels:
    """Right RGB of a JPEG or PNG, whole frames only.

    The stored pixels are decoded as their file format defines them; ``format`` in the style of
    image_transport (``rgb8; jpeg compressed bgr8``) says what the raw image was, and the file then
    holds ordinary colours. Grey files become RGB, alpha is dropped, an EXIF orientation is not
    applied (the raw topic would not be rotated either). Pillow decodes, because it reports a frame
    with missing data, which OpenCV 4.6 (Ubuntu 24.04's) completes with grey and returns.

    Returns:
        uint8 [height, width, 3] RGB, C-contiguous.

    Raises:
        ImageError: not a JPEG or PNG, depth, 16 bits, swapped colours, damaged or cut off.
    """
    declared = message.format.strip().lower()
    where = f"compressed image of format {message.format!r}"
    if "compresseddepth" in declared:
        raise ImageError(f"{where} is a depth image: connect the colour camera's topic")
    if "compressed rgb" in declared:
        raise ImageError(
            f"{where}: by image_transport's convention a file of 'compressed rgb' has red and blue "
            "swapped, many publishers mean otherwise: publish 'jpeg', or use image_transport"
        )
    data = _buffer(message.data, where).tobytes()
    if data.startswith(_PNG_MAGIC):
        kind, whole = "PNG", _png_bytes(data, where)
    elif data.startswith(_JPEG_MAGIC):
        kind, whole = "JPEG", _jpeg_bytes(data, where)
    else:
        raise ImageError(
            f"{where} has {len(data)} bytes that are neither JPEG nor PNG: use image_transport's "
            "compressed (not theora, ffmpeg or compressedDepth) topic"
        )
    try:
        with Image.open(io.BytesIO(whole), formats=(kind,)) as image:
            width, height = image.size
            if width * height > MAX_PIXELS:
                raise ImageError(f"{where} claims {width}x{height} pixels: the header is damaged")
            if image.mode not in ("RGB", "RGBA", "L", "LA", "P", "1"):
                raise ImageError(
                    f"{where} is a {kind} of {image.mode} pixels, expected 8-bit RGB or grey: "
                    "have the camera driver publish rgb8 or bgr8"
                )
            rgb = image if image.mode == "RGB" else image.convert("RGB")
            return np.asarray(rgb)
    except ImageError:
        raise
    # Pillow's format readers raise many kinds for damaged files, some not derived from OSError.
    except Exception as error:
        raise ImageError(f"{where} is a damaged {kind} ({error}): the frame is dropped") from error


def _buffer(data: Any, where: str) -> Pixels:
    """The bytes as a flat array, without a copy."""
    try:
        return np.frombuffer(data, np.uint8)
    except (TypeError, ValueError, BufferError) as error:
        if isinstance(data, (bytes, bytearray)) or not getattr(data, "nbytes", 1):
            return np.empty(0, np.uint8)  # NumPy refuses empty buffers
        raise ImageError(
            f"{where} has data of type {type(data).__name__}, expected contiguous bytes"
        ) from error


def _why_refused(name: str, encoding: str, big_endian: bool) -> str:
    """One line for an encoding that has no conversion: what it is and what to do."""
    accepted = ", ".join(ACCEPTED_ENCODINGS)
    order = ", big-endian" if big_endian else ""
    if not encoding:
        return f"the image names no encoding, expected one of {accepted}"
    if encoding.startswith("bayer"):
        return f"encoding {name!r} is a raw Bayer mosaic: run a debayering node (image_proc) first"
    typed = _OPENCV_TYPE.fullmatch(encoding)
    if typed and (typed[1], typed[2]) == ("8", "u"):
        return (
            f"encoding {name!r} does not say the order of its colours: have the driver publish "
            "rgb8, bgr8 or mono8"
        )
    if typed and typed[2] == "f":
        return f"encoding {name!r}{order} is a float (depth) image: connect a colour topic (rgb8)"
    if typed or encoding.endswith("16"):
        return (
            f"encoding {name!r}{order} has more than 8 bits a channel or is a depth image: connect "
            "a colour topic, or have the driver publish rgb8"
        )
    return f"encoding {name!r}{order} is not supported, expected one of {accepted}"


def _jpeg_bytes(data: bytes, where: str) -> bytes:
    """The file in a form in which a decoder cannot miss that data are missing.

    A JPEG of one scan is given without its end marker, with a little padding instead. Codes that
    are lost (a dropped packet) then run into the end of the file, which is an error; up to the
    marker they would be completed with grey, which is only a warning.
    """
    single_scan, scan = _jpeg_header(data, where)
    end = data.find(_JPEG_END, scan) if single_scan else data.rfind(_JPEG_END)
    if end < scan:
        raise ImageError(
            f"{where} has {len(data)} bytes and no JPEG end marker: it is cut off and dropped"
        )
    return data[:end] + (_READ_AHEAD if single_scan else _JPEG_END)


def _jpeg_header(data: bytes, where: str) -> tuple[bool, int]:
    """Whether it is one sequential scan, and where the first scan starts."""
    position, components, sequential = 2, 0, False
    while position + 4 <= len(data):
        if data[position] != 0xFF:
            raise ImageError(f"{where} is a damaged JPEG (no marker at byte {position})")
        marker = data[position + 1]
        if marker == 0xFF:  # a fill byte
            position += 1
            continue
        if marker == 0x01 or 0xD0 <= marker <= 0xD7:  # markers without a length
            position += 2
            continue
        length = int.from_bytes(data[position + 2 : position + 4], "big")
        body = data[position + 4 : position + 2 + length]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC) and len(body) >= 6:
            components, sequential = body[5], marker in (0xC0, 0xC1)
        if marker == 0xDA and body:
            return sequential and body[0] == components, position + 2 + length
        position += 2 + length
    raise ImageError(f"{where} has {len(data)} bytes and ends before its pixels: it is dropped")


def _png_bytes(data: bytes, where: str) -> bytes:
    """The file, after checking every chunk's length and check sum up to the end chunk."""
    position = len(_PNG_MAGIC)
    while position + 12 <= len(data):
        length = int.from_bytes(data[position : position + 4], "big")
        end = position + 8 + length
        name = data[position + 4 : position + 8]
        if end + 4 > len(data):
            break
        if zlib.crc32(memoryview(data)[position + 4 : end]) != int.from_bytes(
            data[end : end + 4], "big"
        ):
            raise ImageError(f"{where} is a damaged PNG (check sum of {name!r}): it is dropped")
        if name == b"IHDR" and length >= 9 and data[position + 16] > 8:
            raise ImageError(
                f"{where} is a PNG of {data[position + 16]} bits a channel (depth?), expected 8: "
                "connect a colour topic"
            )
        position = end + 4
        if name == b"IEND":
            return data[:position]
    raise ImageError(
        f"{where} has {len(data)} bytes and no PNG end chunk: the frame is cut off and dropped"
    )
