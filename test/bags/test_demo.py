# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The demo bag: rates, stamps, limits, labels, and the same bytes for the same seed."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest

from cosmos_lite_ros.bags.clips import CLIP_FILES, default_clip_folder
from cosmos_lite_ros.bags.demo import make_demo_bag
from cosmos_lite_ros.bags.info import inspect
from cosmos_lite_ros.bags.reader import Bag
from cosmos_lite_ros.bags.stamps import header_stamp_ns
from cosmos_lite_ros.bags.writer import BagLabels, Storage
from cosmos_lite_ros.contract.constants import VIEWS
from cosmos_lite_ros.contract.images import decode_compressed, decode_image
from cosmos_lite_ros.contract.robots import PANDA
from cosmos_lite_ros.errors import BadInputError

from .makers import STORAGES, demo

PROMPT = (
    "Move the pan forward and use the brush in the middle of the plates to brush the inside of "
    "the pan"
)


def contents(path: Path) -> list[tuple[str, int, bytes]]:
    with Bag(path) as bag:
        return [(m.topic, m.log_ns, m.data) for m in bag.messages()]


@pytest.mark.parametrize("storage", STORAGES)
def test_rates_labels_and_missing_nothing(tmp_path: Path, storage: Storage) -> None:
    made = make_demo_bag(tmp_path / "bag", seconds=2.0, generated=True, storage=storage)
    with Bag(made.path) as bag:
        info = inspect(bag)
    topics = {t.name: t for t in info.topics}
    for view in VIEWS:
        topic = topics[f"/{view}/image/compressed"]
        assert topic.count == 30
        assert topic.rate_hz == pytest.approx(15.0, abs=0.3)
        assert topic.content == "rgb8; jpeg compressed bgr8"
        assert 0.006 <= topic.age_s < 0.02
        assert topic.role == view
    assert topics["/joint_states"].rate_hz == pytest.approx(100.0, abs=0.5)
    assert topics["/gripper/joint_states"].rate_hz == pytest.approx(50.0, abs=0.5)
    assert topics["/instruction"].count == 1
    assert info.missing == ()
    # Nothing of a generated bag passes for a recording, in metadata, summary and picture.
    synthetic = set(topics) - {"/instruction"}
    assert set(info.labels.synthetic) == synthetic == set(made.labels.synthetic)
    assert len(made.notes) == len(synthetic)
    assert "generated" in info.labels.source


def test_generated_pictures_say_so(tmp_path: Path) -> None:
    """The line of text is in every view: its pixels are far brighter than the ramp below it."""
    with Bag(demo(tmp_path / "bag", image_format="png")) as bag:
        for view in VIEWS:
            message = next(bag.messages([f"/{view}/image/compressed"]))
            strip = decode_compressed(bag.decode(message))[4:20, 4:230]
            assert (strip > 200).all(axis=2).sum() > 100


def test_joint_states_are_smooth_and_inside_the_limits(tmp_path: Path) -> None:
    with Bag(demo(tmp_path / "bag", seconds=20.0)) as bag:
        states = [bag.decode(m) for m in bag.messages(["/joint_states"])]
        fingers = [bag.decode(m).position[0] for m in bag.messages(["/gripper/joint_states"])]
    positions = np.array([s.position for s in states])
    velocities = np.array([s.velocity for s in states])
    assert states[0].name == list(PANDA.joint_names)
    np.testing.assert_allclose(positions[0], PANDA.home)
    assert (velocities[0] == 0).all()
    lower, upper = PANDA.limits()
    assert (positions > lower + 0.1).all()
    assert (positions < upper - 0.1).all()
    # The velocities are those of the positions (central differences at 100 Hz).
    measured = (positions[2:] - positions[:-2]) / 0.02
    np.testing.assert_allclose(velocities[1:-1], measured, atol=5e-5)
    assert np.abs(velocities).max() < 0.5
    assert min(fingers) == 0.0
    assert max(fingers) == pytest.approx(0.8)


def test_same_seed_same_messages(tmp_path: Path) -> None:
    first = contents(demo(tmp_path / "a", seed=3))
    assert contents(demo(tmp_path / "b", seed=3)) == first
    other = contents(demo(tmp_path / "c", seed=4))
    assert [m[1] for m in other] != [m[1] for m in first]


def test_stamps_differ_and_come_before_arrival(tmp_path: Path) -> None:
    with Bag(demo(tmp_path / "bag")) as bag:
        first: list[int] = []
        for view in VIEWS:
            messages = list(bag.messages([f"/{view}/image/compressed"]))
            stamps = [header_stamp_ns(m.data) or 0 for m in messages]
            assert all(0 < m.log_ns - s < 50e6 for m, s in zip(messages, stamps, strict=True))
            first.append(stamps[0])
        assert len(set(first)) == len(VIEWS)  # cameras have phases of their own


@pytest.mark.parametrize("image_format", ["rgb8", "bgr8", "bgra8"])
def test_raw_formats_hold_the_same_pixels(tmp_path: Path, image_format: str) -> None:
    kept = demo(tmp_path / "png", seconds=0.2, image_format="png", size=(64, 48))
    raw = demo(tmp_path / "raw", seconds=0.2, image_format=image_format, size=(64, 48))
    with Bag(kept) as bag:
        expected = [
            decode_compressed(bag.decode(m)) for m in bag.messages(["/wrist/image/compressed"])
        ]
    with Bag(raw) as bag:
        messages = [bag.decode(m) for m in bag.messages(["/wrist/image"])]
    assert {m.encoding for m in messages} == {image_format}
    for message, pixels in zip(messages, expected, strict=True):
        np.testing.assert_array_equal(decode_image(message), pixels)
    assert len(messages) == 3


def test_the_recorded_clip(tmp_path: Path) -> None:
    folder = default_clip_folder()
    if folder is None:
        pytest.skip("the recorded clip is not beside the source tree")
    made = make_demo_bag(tmp_path / "bag", seconds=1.0)
    assert made.instruction == PROMPT
    capture = cv2.VideoCapture(str(folder / CLIP_FILES["exterior_2"]))
    frame = cv2.cvtColor(capture.read()[1], cv2.COLOR_BGR2RGB)
    capture.release()
    with Bag(made.path) as bag:
        message = bag.decode(next(bag.messages(["/exterior_2/image/compressed"])))
        pixels = decode_compressed(message)
        assert pixels.shape == (180, 320, 3)
        assert np.abs(pixels.astype(int) - frame).mean() < 3.0  # JPEG, and not another view
        assert bag.decode(next(bag.messages(["/instruction"]))).data == PROMPT
        labels = BagLabels.of(bag.custom)
    assert set(labels.synthetic) == {"/joint_states", "/gripper/joint_states"}
    assert labels.licence == "Apache-2.0"


def test_a_recorded_clip_is_not_prolonged(tmp_path: Path) -> None:
    made = make_demo_bag(tmp_path / "bag", clip=_clip(tmp_path / "clip", (6, 6, 6)), seconds=30.0)
    assert made.counts["/wrist/image/compressed"] == 6
    assert made.duration_s == pytest.approx(0.4)
    assert made.notes[-1] == "30 s were asked for, the clip has 0.4 s"


def _empty(folder: Path) -> Path:
    return folder


def _no_videos(folder: Path) -> Path:
    for name in CLIP_FILES.values():
        (folder / name).write_text("no video")
    return folder


def _clip(folder: Path, frames: tuple[int, int, int]) -> Path:
    folder.mkdir(exist_ok=True)
    for count, name in zip(frames, CLIP_FILES.values(), strict=True):
        code = cv2.VideoWriter.fourcc(*"mp4v")
        writer = cv2.VideoWriter(str(folder / name), code, 15.0, (64, 48))
        for _ in range(count):
            writer.write(np.zeros((48, 64, 3), np.uint8))
        writer.release()
    return folder


def _unequal(folder: Path) -> Path:
    return _clip(folder, (5, 6, 7))


@pytest.mark.parametrize(
    ("make", "reason"),
    [(_empty, "lacks"), (_no_videos, "not an mp4"), (_unequal, "expected the same")],
)
def test_wrong_clips(make: object, reason: str, tmp_path: Path) -> None:
    clip = tmp_path / "clip"
    clip.mkdir()
    make(clip)  # type: ignore[operator]
    with pytest.raises(BadInputError, match=reason):
        make_demo_bag(tmp_path / "bag", clip=clip)
    assert not (tmp_path / "bag").exists()


@pytest.mark.parametrize("seconds", [0.0, -1.0, 0.01, float("nan"), float("inf"), 1e9])
def test_wrong_lengths(seconds: float, tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="were asked for"):
        make_demo_bag(tmp_path / "bag", seconds=seconds, generated=True)
