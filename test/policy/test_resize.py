# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""torch's resize against Pillow's."""

from __future__ import annotations

import numpy as np
import pytest

from cosmos_lite_ros.contract.views import compose_views, pillow_resize

pytest.importorskip("torch")
from cosmos_lite_ros.policy.resize import torch_resize

CAMERAS = [(720, 1280), (1080, 1920), (540, 960), (1440, 2560), (180, 320), (90, 160)]


def noise(height: int, width: int) -> np.ndarray:
    return np.random.default_rng(height).integers(0, 256, (height, width, 3), np.uint8)


@pytest.mark.parametrize("size", CAMERAS, ids=str)
def test_wide_cameras_are_identical(size: tuple[int, int]) -> None:
    image = noise(*size)
    resized = torch_resize(image, 360, 640)
    assert resized.flags.c_contiguous
    np.testing.assert_array_equal(resized, pillow_resize(image, 360, 640))


def test_a_four_to_three_camera_is_identical() -> None:
    image = noise(480, 640)
    np.testing.assert_array_equal(torch_resize(image, 360, 480), pillow_resize(image, 360, 480))


def test_any_size_differs_by_one_level_at_most() -> None:
    rng = np.random.default_rng(0)
    for _ in range(40):
        height, width, new_height, new_width = (int(n) for n in rng.integers(2, 700, 4))
        image = noise(height, width)
        difference = torch_resize(image, new_height, new_width).astype(int)
        difference -= pillow_resize(image, new_height, new_width)
        assert np.abs(difference).max() <= 1, (height, width, new_height, new_width)


def test_read_only_and_padded_memory() -> None:
    image = noise(480, 700)[:, :640]
    expected = pillow_resize(image, 360, 480)
    np.testing.assert_array_equal(torch_resize(image, 360, 480), expected)
    frozen = np.frombuffer(np.ascontiguousarray(image).tobytes(), np.uint8).reshape(480, 640, 3)
    assert not frozen.flags.writeable
    np.testing.assert_array_equal(torch_resize(frozen, 360, 480), expected)


def test_composes_as_pillow_does() -> None:
    cameras = [noise(720, 1280), noise(480, 640), noise(1080, 1920)]
    np.testing.assert_array_equal(
        compose_views(*cameras, resize=torch_resize), compose_views(*cameras)
    )
