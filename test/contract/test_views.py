# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Composed views against the recorded requests, torch, Pillow and the published client."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from cosmos_lite_ros.contract.views import (
    compose_views,
    fit_camera,
    fitted_rectangle,
    pad_canvas,
    pillow_resize,
    resize_bilinear,
)
from cosmos_lite_ros.errors import BadInputError, ImageError
from test.conftest import GOLDEN, SHARED
from test.contract.makers import Pixels, noise, scene

CASES = sorted([*GOLDEN.glob("*/cases/*.npz"), *(SHARED / "golden").glob("*/cases/*.npz")])
# Heights and widths of cameras that people have, and a few that nobody has.
SIZES = [(720, 1280), (1080, 1920), (480, 640), (480, 848), (376, 672), (180, 320), (1200, 1920)]
ODD_SIZES = [(361, 640), (359, 641), (97, 1000), (1001, 53), (1, 1), (2, 3), (768, 1366)]


def sha256(array: Pixels) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


@pytest.mark.parametrize("case", CASES, ids=lambda p: f"{p.parts[-3]}-{p.stem}-{p.parts[-4]}")
@pytest.mark.parametrize("compose", ["client", "server"])
def test_recorded_requests_are_composed_exactly(case: Path, compose: Any) -> None:
    stored = np.load(case, allow_pickle=False)
    views = [
        np.asarray(Image.open(io.BytesIO(stored[f"{view}_png"].tobytes())))
        for view in ("wrist", "exterior_1", "exterior_2")
    ]
    composed = compose_views(*views, compose=compose)
    assert composed.dtype == np.uint8
    assert composed.flags.c_contiguous
    np.testing.assert_array_equal(composed[352:376, 308:332], stored["composed_crop"])
    assert sha256(composed) == str(stored["composed_sha256"])
    canvas = pad_canvas(composed)
    np.testing.assert_array_equal(canvas[200:204, 636:736], stored["canvas_right_cols"])
    np.testing.assert_array_equal(canvas[534:544, 300:304], stored["canvas_bottom_rows"])
    assert sha256(canvas) == str(stored["canvas_sha256"])


def test_the_canvas_reflects_without_repeating_the_edge() -> None:
    image = noise(540, 640)
    canvas = pad_canvas(image)
    np.testing.assert_array_equal(canvas, np.pad(image, ((0, 4), (0, 96), (0, 0)), "reflect"))
    np.testing.assert_array_equal(canvas[:540, 640], image[:, 638])


def test_each_view_has_its_place() -> None:
    wrist, left, right = (np.full((360, 640, 3), value, np.uint8) for value in (10, 20, 30))
    composed = compose_views(wrist, left, right)
    assert composed.shape == (540, 640, 3)
    assert set(composed[:360].ravel()) == {10}
    assert set(composed[360:, :320].ravel()) == {20}
    assert set(composed[360:, 320:].ravel()) == {30}


def published_client_fit(image: Pixels) -> Pixels:
    """The published arithmetic of resize_with_pad, written again with Pillow alone."""
    height, width = image.shape[:2]
    if (height, width) == (360, 640):
        return image
    ratio = max(width / 640, height / 360)
    small_height, small_width = int(height / ratio), int(width / ratio)
    small = Image.fromarray(image).resize((small_width, small_height), Image.Resampling.BILINEAR)
    black = Image.new("RGB", (640, 360))
    left, top = (max(0, int((640 - small_width) / 2)), max(0, int((360 - small_height) / 2)))
    black.paste(small, (left, top))
    return np.asarray(black)


def compose_by_hand(wrist: Pixels, left: Pixels, right: Pixels) -> Pixels:
    """Wrist above the means of 2x2 blocks, cut to integers, in plain NumPy."""

    def half(image: Pixels) -> Pixels:
        wide = image.astype(int)
        total = wide[0::2, 0::2] + wide[1::2, 0::2] + wide[0::2, 1::2] + wide[1::2, 1::2]
        return (total // 4).astype(np.uint8)

    return np.vstack([wrist, np.hstack([half(left), half(right)])])


@pytest.mark.parametrize("size", SIZES + ODD_SIZES[:3], ids=str)
def test_client_composition_of_any_camera(size: tuple[int, int]) -> None:
    cameras = [scene(*size, seed=1), noise(720, 1280, seed=2), noise(*size, seed=3)]
    expected = compose_by_hand(*(published_client_fit(camera) for camera in cameras))
    np.testing.assert_array_equal(compose_views(*cameras, compose="client"), expected)


@pytest.mark.parametrize("size", SIZES + ODD_SIZES, ids=str)
def test_fit_equals_the_installed_client(size: tuple[int, int]) -> None:
    tools = pytest.importorskip(
        "openpi_client.image_tools", reason="openpi-client needs an environment of its own"
    )
    image = noise(*size)
    difference = fit_camera(image).astype(int) - tools.resize_with_pad(image, 360, 640)
    assert np.abs(difference).max() <= 1


def test_resizes_nothing_that_has_the_right_size() -> None:
    def never(*_: Any) -> Pixels:
        raise AssertionError

    image = noise(360, 640)
    compose_views(image, image, image, resize=never)
    assert fit_camera(image) is image


@settings(max_examples=300, deadline=None)
@given(height=st.integers(1, 4000), width=st.integers(1, 4000))
def test_a_fitted_picture_lies_inside_and_touches_two_sides(height: int, width: int) -> None:
    try:
        inner_height, inner_width, top, left = fitted_rectangle(height, width)
    except ImageError:
        assert max(height / 360, width / 640) > min(height, width)  # less than a pixel would remain
        return
    assert 0 <= top <= 360 - inner_height
    assert 0 <= left <= 640 - inner_width
    assert inner_height >= 359 or inner_width >= 639
    assert abs(top - (360 - inner_height - top)) <= 1
    assert abs(left - (640 - inner_width - left)) <= 1


def torch_bilinear(image: Pixels, height: int, width: int) -> Pixels:
    """What the published server computes, with torch."""
    torch = pytest.importorskip("torch")
    threads = torch.get_num_threads()
    torch.set_num_threads(2)  # with one, torch takes another kernel, which rounds otherwise
    try:
        floats = torch.from_numpy(image.copy()).permute(2, 0, 1)[None].float()
        resized = torch.nn.functional.interpolate(
            floats, size=(height, width), mode="bilinear", align_corners=False
        )
        return resized[0].permute(1, 2, 0).numpy().astype(np.uint8)
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("target", [(180, 320), (540, 640), (97, 211), (240, 320)], ids=str)
@pytest.mark.parametrize("size", SIZES + ODD_SIZES, ids=str)
def test_bilinear_is_torch_bit_for_bit(size: tuple[int, int], target: tuple[int, int]) -> None:
    # Plain areas show rounding best: 200 may become 199.99998 and be cut to 199.
    for image in (noise(*size), np.full((*size, 3), 200, np.uint8)):
        np.testing.assert_array_equal(
            resize_bilinear(image, *target), torch_bilinear(image, *target)
        )


@pytest.mark.parametrize("size", [(180, 320), (90, 160), (240, 320), (271, 331)], ids=str)
def test_halving_is_torch_bit_for_bit(size: tuple[int, int]) -> None:
    image = noise(2 * size[0], 2 * size[1])
    np.testing.assert_array_equal(resize_bilinear(image, *size), torch_bilinear(image, *size))


@pytest.mark.parametrize(
    "sizes",
    [
        ((720, 1280), (720, 1280), (720, 1280)),
        ((480, 640), (480, 640), (480, 640)),
        ((360, 640), (720, 1280), (480, 848)),
        ((375, 672), (1080, 1920), (376, 672)),
    ],
    ids=str,
)
def test_server_composition(sizes: tuple[tuple[int, int], ...]) -> None:
    wrist, left, right = (noise(*size, seed=i) for i, size in enumerate(sizes))
    half = (wrist.shape[0] // 2, wrist.shape[1] // 2)
    native = np.vstack(
        [wrist, np.hstack([torch_bilinear(left, *half), torch_bilinear(right, *half)])]
    )
    expected = torch_bilinear(native, 540, 640)
    np.testing.assert_array_equal(compose_views(wrist, left, right, compose="server"), expected)


def test_the_two_ways_differ_where_cameras_are_resized() -> None:
    cameras = [noise(720, 1280, seed=i) for i in range(3)]
    client, server = (compose_views(*cameras, compose=way) for way in ("client", "server"))
    assert np.abs(client.astype(int) - server).max() > 50


def test_padding_is_black_and_symmetric_and_keeps_the_whole_picture() -> None:
    camera = np.full((480, 640, 3), 255, np.uint8)
    fitted = fit_camera(camera)
    columns = fitted.any(axis=(0, 2))
    assert (np.flatnonzero(columns)[[0, -1]] == [80, 559]).all()
    composed = compose_views(camera, camera, camera, aspect="pad")
    assert not composed[:360, :80].any()
    assert not composed[:360, 560:].any()
    assert not composed[360:, :40].any()
    assert (composed[360:, 40:280] == 255).all()


def test_cropping_keeps_the_middle_and_does_not_stretch() -> None:
    camera = np.zeros((480, 640, 3), np.uint8)
    camera[60:420] = noise(360, 640)
    composed = compose_views(camera, camera, camera, aspect="crop")
    np.testing.assert_array_equal(composed[:360], camera[60:420])
    wide = np.zeros((360, 1000, 3), np.uint8)
    wide[:, 180:820] = noise(360, 640)
    composed = compose_views(wide, wide, wide, aspect="crop")
    np.testing.assert_array_equal(composed[:360], wide[:, 180:820])


def test_refusing_names_the_camera_and_the_size() -> None:
    good, bad = noise(720, 1280), noise(480, 640)
    compose_views(good, good, good, aspect="refuse")
    for way in ("client", "server"):
        with pytest.raises(ImageError, match=r"exterior 1 is 640x480, expected 16:9.*pad or crop"):
            compose_views(good, bad, good, aspect="refuse", compose=way)


def test_writes_into_the_given_array() -> None:
    cameras = [noise(720, 1280, seed=i) for i in range(3)]
    for way in ("client", "server"):
        out = np.full((540, 640, 3), 99, np.uint8)
        assert compose_views(*cameras, compose=way, out=out) is out
        np.testing.assert_array_equal(out, compose_views(*cameras, compose=way))


def test_padded_rows_give_the_same_picture() -> None:
    wide = noise(360, 700)
    view, copy = wide[:, :640], np.ascontiguousarray(wide[:, :640])
    np.testing.assert_array_equal(compose_views(view, view, view), compose_views(copy, copy, copy))
    np.testing.assert_array_equal(pillow_resize(view, 90, 160), pillow_resize(copy, 90, 160))


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"wrist": np.zeros((360, 640), np.uint8)}, ImageError),
        ({"wrist": np.zeros((360, 640, 4), np.uint8)}, ImageError),
        ({"exterior_2": np.zeros((360, 640, 3), np.float32)}, ImageError),
        ({"exterior_2": np.zeros((0, 640, 3), np.uint8)}, ImageError),
        ({"wrist": np.zeros((2, 4000, 3), np.uint8)}, ImageError),
        ({"wrist": np.zeros((360, 641, 3), np.uint8), "compose": "server"}, ImageError),
        ({"compose": "stretch"}, BadInputError),
        ({"aspect": "squeeze"}, BadInputError),
        ({"out": np.zeros((540, 640, 4), np.uint8)}, BadInputError),
        ({"out": np.zeros((540, 640, 3), np.float32)}, BadInputError),
    ],
)
def test_wrong_input_is_refused(change: dict[str, Any], error: type[Exception]) -> None:
    image = np.zeros((360, 640, 3), np.uint8)
    arguments = {"wrist": image, "exterior_1": image, "exterior_2": image, **change}
    with pytest.raises(error):
        compose_views(**arguments)
    with pytest.raises(BadInputError):
        pad_canvas(np.zeros((540, 641, 3), np.uint8))
