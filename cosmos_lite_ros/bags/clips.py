# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Frames for the demo bag: the recorded three-camera clip, or generated pictures that say so."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import cv2
import numpy as np
import numpy.typing as npt

from cosmos_lite_ros.contract.constants import RATE_HZ, VIEWS, View
from cosmos_lite_ros.errors import BadInputError, EnvironmentLacksError

Frame = npt.NDArray[np.uint8]

# File names as the DROID data set spells its cameras.
CLIP_FILES: Final[dict[View, str]] = {
    "wrist": "wrist_image_left.mp4",
    "exterior_1": "exterior_image_1_left.mp4",
    "exterior_2": "exterior_image_2_left.mp4",
}
GENERATED_TEXT: Final = "GENERATED - NOT A CAMERA"
_CLIP_FOLDER: Final = Path("shared") / "recordings" / "dreamzero_droid_3cam"
_CLIP_HEIGHT: Final = 180
_CLIP_WIDTH: Final = 320
_GENERATED_FRAMES: Final = 300  # 20 s


def default_clip_folder() -> Path | None:
    """The recorded clip in ``shared`` beside the source tree, where it is there."""
    folder = Path(__file__).resolve().parents[2].parent / _CLIP_FOLDER
    return folder if all((folder / name).is_file() for name in CLIP_FILES.values()) else None


@dataclass(frozen=True)
class RecordedClip:
    """Three mp4 files with as many frames each, in one folder.

    Attributes:
        source, licence: where they come from, in words.
        instruction: what was asked of the robot in this clip; empty where unknown.
    """

    folder: Path
    frames: int
    rate_hz: float
    source: str
    licence: str
    instruction: str
    generated: bool = False

    @classmethod
    def open(cls, folder: Path) -> RecordedClip:
        """Check the three files.

        Raises:
            BadInputError: a file is missing or no video, or they differ in length or rate.
            EnvironmentLacksError: this OpenCV cannot decode the videos.
        """
        missing = [name for name in CLIP_FILES.values() if not (folder / name).is_file()]
        if missing:
            raise BadInputError(
                f"the clip folder {folder} lacks {', '.join(missing)}: give a folder with "
                f"{', '.join(CLIP_FILES.values())}"
            )
        counts, rates = set(), set()
        with ExitStack() as stack:
            for name in CLIP_FILES.values():
                capture = _capture(folder / name, stack)
                counts.add(int(capture.get(cv2.CAP_PROP_FRAME_COUNT)))
                rates.add(round(float(capture.get(cv2.CAP_PROP_FPS)), 3))
        if len(counts) > 1 or len(rates) > 1 or min(counts) < 1 or min(rates) <= 0:
            raise BadInputError(
                f"the videos in {folder} have {sorted(counts)} frames at {sorted(rates)} Hz, "
                "expected the same for all three"
            )
        known = folder.name == _CLIP_FOLDER.name
        return cls(
            folder,
            counts.pop(),
            rates.pop(),
            "one DROID episode, three cameras (dreamzero0/dreamzero, debug_image)"
            if known
            else f"videos in the folder {folder.name}",
            "Apache-2.0" if known else "unknown",
            "Move the pan forward and use the brush in the middle of the plates to brush the "
            "inside of the pan"  # as the repository's client asks for this clip
            if known
            else "",
        )

    def read(self, count: int) -> Iterator[dict[View, Frame]]:
        """The first ``count`` frames of each view, uint8 [h, w, 3] BGR (OpenCV's order).

        Raises:
            BadInputError: a video ends before its own frame count.
        """
        with ExitStack() as stack:
            captures = {
                view: _capture(self.folder / name, stack) for view, name in CLIP_FILES.items()
            }
            for number in range(count):
                frames: dict[View, Frame] = {}
                for view, capture in captures.items():
                    good, frame = capture.read()
                    if not good:
                        raise BadInputError(
                            f"{self.folder / CLIP_FILES[view]} ends after {number} frames, "
                            f"expected {self.frames}: it is damaged"
                        )
                    frames[view] = np.asarray(frame, np.uint8)
                yield frames


@dataclass(frozen=True)
class GeneratedClip:
    """Moving shapes with a line of text that says that no camera has seen them."""

    seed: int = 0
    frames: int = _GENERATED_FRAMES
    rate_hz: float = float(RATE_HZ)
    source: str = "generated pictures: moving shapes"
    licence: str = ""
    instruction: str = "pick up the banana and place it in the bowl"
    generated: bool = True

    def read(self, count: int) -> Iterator[dict[View, Frame]]:
        """The first ``count`` frames of each view, uint8 [180, 320, 3] BGR (OpenCV's order)."""
        random = np.random.default_rng(self.seed)
        phases = random.uniform(0, 2 * math.pi, (len(VIEWS), 3))
        colours = random.integers(60, 256, (len(VIEWS), 3, 3))
        rows, columns = np.mgrid[0:_CLIP_HEIGHT, 0:_CLIP_WIDTH]
        for number in range(count):
            time_s = number / self.rate_hz
            frames: dict[View, Frame] = {}
            for v, view in enumerate(VIEWS):
                ramp = (rows + columns + 20 * time_s + 60 * v) % 256
                frame = np.repeat((ramp / 4 + 40).astype(np.uint8)[..., None], 3, axis=2)
                frame = np.ascontiguousarray(frame)
                for k in range(3):
                    angle = 0.7 * (k + 1) * time_s + phases[v, k]
                    x = int(_CLIP_WIDTH * (0.5 + 0.35 * math.cos(angle)))
                    y = int(_CLIP_HEIGHT * (0.5 + 0.3 * math.sin(1.3 * angle)))
                    cv2.circle(frame, (x, y), 12 + 6 * k, colours[v, k].tolist(), -1, cv2.LINE_AA)
                for line, text in ((16, GENERATED_TEXT), (_CLIP_HEIGHT - 8, f"{view} {number}")):
                    cv2.putText(
                        frame, text, (6, line), cv2.FONT_HERSHEY_SIMPLEX, 0.45, (255, 255, 255), 1
                    )
                frames[view] = frame
            yield frames


Clip = RecordedClip | GeneratedClip


def _capture(path: Path, stack: ExitStack) -> cv2.VideoCapture:
    capture = cv2.VideoCapture(str(path))
    stack.callback(capture.release)
    if not capture.isOpened():
        head = path.open("rb").read(12)
        if head[4:8] == b"ftyp":
            raise EnvironmentLacksError(
                f"OpenCV {cv2.__version__} cannot decode {path}: install an opencv-python with "
                "FFmpeg (the PyPI wheel has it), or leave --clip out for generated pictures"
            )
        raise BadInputError(f"{path} is not an mp4 video: give a folder with three mp4 files")
    return capture
