# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Right RGB, or a refusal that names the encoding and the remedy."""

from __future__ import annotations

import io
import struct
import zlib
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from cosmos_lite_ros.contract.images import ACCEPTED_ENCODINGS, decode_compressed, decode_image
from cosmos_lite_ros.errors import ImageError
from test.contract.makers import (
    PATCHES,
    Pixels,
    channels,
    compressed,
    file_bytes,
    image,
    noise,
    packed,
    patches,
    raw,
    scene,
)

COLOURED = ("rgb8", "bgr8", "rgba8", "bgra8")


@pytest.mark.parametrize("encoding", COLOURED)
def test_each_colour_patch_keeps_its_colour(encoding: str) -> None:
    rgb = decode_image(image(patches(patch_width=4), encoding, padding=5))
    assert [tuple(rgb[3, 4 * i + 1].tolist()) for i in range(len(PATCHES))] == list(PATCHES)


@settings(max_examples=150, deadline=None)
@given(
    encoding=st.sampled_from((*COLOURED, "mono8")),
    height=st.integers(1, 20),
    width=st.integers(1, 20),
    padding=st.integers(0, 40),
    seed=st.integers(0, 1000),
    container=st.sampled_from(("array", "bytes", "ndarray", "memoryview")),
)
def test_any_size_and_step_and_container(
    encoding: str, height: int, width: int, padding: int, seed: int, container: str
) -> None:
    rgb = noise(height, width, seed)
    message = image(rgb, encoding, padding)
    data = bytes(message.data)
    message.data = {
        "array": message.data,
        "bytes": data,
        "ndarray": np.frombuffer(data, np.uint8),
        "memoryview": memoryview(data),
    }[container]
    expected = np.repeat(rgb[..., :1], 3, axis=2) if encoding == "mono8" else rgb
    np.testing.assert_array_equal(decode_image(message), expected)


def uyvy_of(rgb: Pixels) -> Pixels:
    """Even-width RGB as UYVY by ITU-R BT.601 with video range, computed here independently."""
    r, g, b = (rgb[..., i].astype(float) for i in range(3))
    luma = 16 + (65.481 * r + 128.553 * g + 24.966 * b) / 255
    u = 128 + (-37.797 * r - 74.203 * g + 112.0 * b) / 255
    v = 128 + (112.0 * r - 93.786 * g - 18.214 * b) / 255
    out = np.empty((*rgb.shape[:2], 2))
    out[..., 1] = luma
    out[:, 0::2, 0] = (u[:, 0::2] + u[:, 1::2]) / 2
    out[:, 1::2, 0] = (v[:, 0::2] + v[:, 1::2]) / 2
    return np.rint(out).astype(np.uint8)


@pytest.mark.parametrize("name", ["yuv422", "uyvy", "UYVY", "yuv422_yuy2", "yuyv", "YUYV"])
def test_yuv422_in_both_orders(name: str) -> None:
    rgb = patches(patch_width=4)
    uyvy = uyvy_of(rgb)
    pixels = uyvy if name.lower() in ("yuv422", "uyvy") else uyvy[..., ::-1]
    step, data = packed(np.ascontiguousarray(pixels), padding=6)
    decoded = decode_image(raw(*rgb.shape[:2], name, step, data))
    assert np.abs(decoded.astype(int) - rgb).max() <= 3  # rounding of the three 8-bit components


def test_rgb8_is_a_view_of_the_message() -> None:
    message = image(noise(8, 6), "rgb8", padding=4)
    assert np.shares_memory(decode_image(message), np.frombuffer(message.data, np.uint8))


def test_a_big_endian_flag_means_nothing_for_single_bytes() -> None:
    message = image(patches(), "bgr8")
    message.is_bigendian = 1
    np.testing.assert_array_equal(decode_image(message), patches())


@pytest.mark.parametrize(
    ("encoding", "words"),
    [
        ("mono16", ["mono16", "8 bits", "rgb8"]),
        ("rgb16", ["rgb16", "8 bits"]),
        ("bgra16", ["bgra16", "8 bits"]),
        ("16UC1", ["16UC1", "depth", "colour topic"]),
        ("32FC1", ["32FC1", "float", "colour topic"]),
        ("64FC3", ["64FC3", "float"]),
        ("32SC1", ["32SC1", "depth"]),
        ("8UC3", ["8UC3", "order of its colours", "bgr8"]),
        ("8UC4", ["8UC4", "order of its colours"]),
        ("8UC1", ["8UC1", "mono8"]),
        ("bayer_rggb8", ["bayer_rggb8", "debayering node"]),
        ("bayer_grbg16", ["bayer_grbg16", "debayering node"]),
        ("nv21", ["nv21", "not supported", "yuv422"]),
        ("", ["no encoding", "rgb8"]),
    ],
)
def test_refused_encodings_are_named_with_a_remedy(encoding: str, words: list[str]) -> None:
    with pytest.raises(ImageError) as error:
        decode_image(raw(2, 2, encoding, 32, bytes(64)))
    assert all(word in str(error.value) for word in words), error.value
    assert "\n" not in str(error.value)


def test_big_endian_is_said_of_an_encoding_with_more_bytes() -> None:
    with pytest.raises(ImageError, match="'mono16', big-endian"):
        decode_image(raw(2, 2, "mono16", 4, bytes(8), is_bigendian=1))


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (raw(0, 4, "rgb8", 12, b""), ["rgb8", "4x0", "empty"]),
        (raw(4, 0, "rgb8", 0, b""), ["0x4", "empty"]),
        (raw(2, 4, "rgb8", 11, bytes(22)), ["step 11", "at least 12"]),
        (raw(2, 4, "rgb8", 12, bytes(23)), ["23 bytes", "2 x 12", "24"]),
        (raw(2, 4, "rgb8", 12, bytes(25)), ["25 bytes", "24"]),
        (raw(2, 4, "bgra8", 16, b""), ["0 bytes", "32"]),
        (raw(2, 3, "yuv422", 6, bytes(12)), ["yuv422", "even width"]),
    ],
)
def test_contradicting_sizes_are_refused_with_numbers(message: Any, words: list[str]) -> None:
    with pytest.raises(ImageError) as error:
        decode_image(message)
    assert all(word in str(error.value) for word in words), error.value


def test_a_list_is_not_pixel_data() -> None:
    message = raw(1, 1, "rgb8", 3, bytes(3))
    message.data = [1, 2, 3]
    with pytest.raises(ImageError, match="type list"):
        decode_image(message)


def test_accepted_encodings_are_the_documented_ones() -> None:
    assert set(ACCEPTED_ENCODINGS) == {
        *("rgb8", "bgr8", "rgba8", "bgra8", "mono8"),
        *("yuv422", "uyvy", "yuv422_yuy2", "yuyv"),
    }


# Compressed images


@pytest.mark.parametrize(
    "text", ["jpeg", "JPEG", "jpg", "", "rgb8; jpeg compressed bgr8", "bgr8; jpeg compressed bgr8"]
)
def test_jpeg_of_any_format_text(text: str) -> None:
    rgb = patches()
    decoded = decode_compressed(
        compressed(file_bytes(rgb, "JPEG", quality=95, subsampling=0), text)
    )
    assert decoded.shape == rgb.shape
    assert decoded.dtype == np.uint8
    middles = decoded[16, 8::16].astype(int) - np.array(PATCHES)
    assert np.abs(middles).max() <= 4


@pytest.mark.parametrize("text", ["png", "rgb8; png compressed bgr8", "bgr8; png compressed bgr8"])
def test_png_is_exact(text: str) -> None:
    rgb = noise(37, 53)
    np.testing.assert_array_equal(decode_compressed(compressed(file_bytes(rgb, "PNG"), text)), rgb)


def test_opencv_writes_what_is_read_here() -> None:
    """image_transport encodes with OpenCV, from a BGR picture."""
    cv2 = pytest.importorskip("cv2")
    rgb = scene()
    jpeg = cv2.imencode(".jpg", rgb[..., ::-1])[1].tobytes()
    expected = cv2.imdecode(np.frombuffer(jpeg, np.uint8), cv2.IMREAD_COLOR)[..., ::-1]
    decoded = decode_compressed(compressed(jpeg, "rgb8; jpeg compressed bgr8"))
    np.testing.assert_array_equal(decoded, expected)


def test_grey_becomes_rgb_and_alpha_is_dropped() -> None:
    grey = noise(16, 24)[..., 0]
    for kind in ("PNG", "JPEG"):
        decoded = decode_compressed(compressed(file_bytes(grey, kind, quality=100)))
        assert decoded.shape == (16, 24, 3)
        assert (decoded == decoded[..., :1]).all()
    rgb = noise(16, 24)
    rgba = Image.fromarray(channels(rgb, "rgba8"), "RGBA")
    np.testing.assert_array_equal(decode_compressed(compressed(file_bytes(rgba, "PNG"))), rgb)


def test_an_exif_orientation_does_not_rotate() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # "rotate by 90 degrees to view"
    rgb = scene(32, 48)
    turned = decode_compressed(compressed(file_bytes(rgb, "JPEG", exif=exif)))
    np.testing.assert_array_equal(turned, decode_compressed(compressed(file_bytes(rgb, "JPEG"))))


def test_progressive_and_padded_jpegs_are_whole() -> None:
    rgb = scene(64, 96)
    plain = file_bytes(rgb, "JPEG")
    expected = np.asarray(Image.open(io.BytesIO(plain)))
    for data in (
        plain + bytes(64),
        plain + b"camera junk",
        file_bytes(rgb, "JPEG", progressive=True),
    ):
        np.testing.assert_array_equal(decode_compressed(compressed(data)), expected)


@pytest.mark.parametrize("kind", ["JPEG", "progressive", "PNG", "thumbnail"])
def test_a_frame_cut_off_anywhere_is_refused(kind: str) -> None:
    """OpenCV returns a half-grey picture for some of these."""
    rgb = scene(120, 160)
    if kind == "thumbnail":  # an end marker early in the file must not pass for the end
        thumbnail = file_bytes(scene(16, 16), "JPEG")
        plain = file_bytes(rgb, "JPEG")
        segment = b"\xff\xe5" + struct.pack(">H", len(thumbnail) + 2) + thumbnail
        data = plain[:2] + segment + plain[2:]
    elif kind == "progressive":
        data = file_bytes(rgb, "JPEG", progressive=True)
    else:
        data = file_bytes(rgb, kind)
    decode_compressed(compressed(data))
    cuts = {*range(0, len(data), max(1, len(data) // 150)), *range(len(data) - 40, len(data))}
    for cut in sorted(cuts):
        with pytest.raises(ImageError) as error:
            decode_compressed(compressed(data[:cut]))
        assert "\n" not in str(error.value)


def test_a_jpeg_that_lost_a_packet_is_refused() -> None:
    """With data missing before an end marker, decoders only warn, and fill with grey.

    Rarely the rest decodes by chance as just as many pixels, which nothing can tell.
    """
    data = file_bytes(scene(), "JPEG", quality=90)
    start = data.index(b"\xff\xda") + 100
    assert len(data) > start + 4096
    refused = []
    for lost in (512, 1024, 2048):
        for at in range(start, len(data) - lost - 2, (len(data) - start) // 20):
            try:
                decode_compressed(compressed(data[:at] + data[at + lost :]))
                refused.append(False)
            except ImageError as error:
                refused.append("damaged JPEG" in str(error))
    assert np.mean(refused) > 0.95


def test_a_png_with_a_flipped_bit_is_refused() -> None:
    data = bytearray(file_bytes(scene(40, 60), "PNG"))
    for at in range(16, len(data) - 12, 97):
        damaged = data.copy()
        damaged[at] ^= 0x10
        with pytest.raises(ImageError):
            decode_compressed(compressed(bytes(damaged)))


@settings(max_examples=200, deadline=None)
@given(
    data=st.binary(max_size=200), magic=st.sampled_from((b"", b"\xff\xd8", b"\x89PNG\r\n\x1a\n"))
)
def test_rubbish_never_raises_anything_else(data: bytes, magic: bytes) -> None:
    with pytest.raises(ImageError):
        decode_compressed(compressed(magic + data))


@settings(max_examples=150, deadline=None)
@given(at=st.integers(2, 5000), value=st.integers(0, 255), kind=st.sampled_from(("JPEG", "PNG")))
def test_a_damaged_byte_gives_a_picture_or_a_refusal(at: int, value: int, kind: str) -> None:
    data = bytearray(file_bytes(scene(60, 80), kind))
    data[at % len(data)] = value
    try:
        decoded = decode_compressed(compressed(bytes(data)))
    except ImageError:
        return
    assert decoded.ndim == 3
    assert decoded.shape[2] == 3


def png_claiming(width: int, height: int) -> bytes:
    """A PNG whose header alone is large."""

    def chunk(name: bytes, body: bytes) -> bytes:
        return (
            struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
        )

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(b"\0")) + chunk(b"IEND", b"")


@pytest.mark.parametrize(
    ("data", "text", "words"),
    [
        (b"", "jpeg", ["0 bytes", "neither JPEG nor PNG"]),
        (b"RIFF1234WEBP", "webp", ["webp", "neither JPEG nor PNG"]),
        (b"\0" * 40, "16UC1; compressedDepth png", ["compressedDepth", "colour camera"]),
        (
            file_bytes(Image.new("I;16", (4, 4)), "PNG"),
            "16UC1; png compressed ",
            ["16 bits", "colour topic"],
        ),
        (file_bytes(Image.new("CMYK", (8, 8)), "JPEG"), "jpeg", ["CMYK", "rgb8"]),
        (
            file_bytes(patches(), "JPEG"),
            "rgb8; jpeg compressed rgb8",
            ["red and blue swapped", "publish 'jpeg'"],
        ),
        (png_claiming(9_000, 9_000), "png", ["9000x9000"]),
        (png_claiming(40_000, 40_000), "png", ["damaged PNG"]),
        (png_claiming(400, 400), "png", ["damaged PNG"]),
    ],
)
def test_refused_files_say_why(data: bytes, text: str, words: list[str]) -> None:
    with pytest.raises(ImageError) as error:
        decode_compressed(compressed(data, text))
    assert all(word in str(error.value) for word in words), error.value


@pytest.mark.ros
def test_rclpy_and_bag_messages_give_the_same_pixels() -> None:
    messages = pytest.importorskip("sensor_msgs.msg")
    serialization = pytest.importorskip("rclpy.serialization")
    rosbags = pytest.importorskip("rosbags.typesys")
    store = rosbags.get_typestore(rosbags.Stores.ROS2_JAZZY)
    made = image(noise(20, 30), "bgra8", padding=8)
    live = messages.Image(
        height=made.height,
        width=made.width,
        encoding=made.encoding,
        step=made.step,
        data=made.data,
    )
    read = store.deserialize_cdr(serialization.serialize_message(live), "sensor_msgs/msg/Image")
    np.testing.assert_array_equal(decode_image(live), noise(20, 30))
    np.testing.assert_array_equal(decode_image(read), noise(20, 30))
    jpeg = file_bytes(scene(40, 60), "JPEG")
    live_file = messages.CompressedImage(format="jpeg", data=compressed(jpeg).data)
    read_file = store.deserialize_cdr(
        serialization.serialize_message(live_file), "sensor_msgs/msg/CompressedImage"
    )
    expected = decode_compressed(SimpleNamespace(format="jpeg", data=jpeg))
    np.testing.assert_array_equal(decode_compressed(live_file), expected)
    np.testing.assert_array_equal(decode_compressed(read_file), expected)
