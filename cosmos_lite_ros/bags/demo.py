# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The demo bag: real pictures of a DROID cell where the clip is there, *synthetic* joint states.

No public clip of three cameras comes with its joint states, so the arm's and the gripper's are made
here: smooth, inside the Panda's limits, starting at DROID's home. They do not belong to the
pictures. The bag's metadata says so for each topic, and every summary shows it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, NamedTuple

import cv2
import numpy as np
import numpy.typing as npt

from cosmos_lite_ros.bags.clips import Clip, Frame, GeneratedClip, RecordedClip, default_clip_folder
from cosmos_lite_ros.bags.topics import (
    COMPRESSED,
    COMPRESSED_IMAGE,
    GRIPPER_JOINT_STATES,
    IMAGE,
    IMAGE_TOPICS,
    INSTRUCTION,
    JOINT_STATE,
    JOINT_STATES,
    STRING,
)
from cosmos_lite_ros.bags.writer import BagLabels, BagWriter, Storage, qos
from cosmos_lite_ros.contract.constants import JOINTS, VIEWS, View
from cosmos_lite_ros.contract.robots import PANDA
from cosmos_lite_ros.errors import BadInputError

ImageFormat = Literal["jpeg", "png", "rgb8", "bgr8", "bgra8"]

# The first stamp: a fixed instant, so that the same seed gives the same bytes.
START_NS: Final = 1_767_225_600_000_000_000  # 2026-01-01T00:00:00Z
JOINT_RATE_HZ: Final = 100
GRIPPER_RATE_HZ: Final = 50
GRIPPER_JOINT: Final = "finger_joint"
GRIPPER_CLOSED_RAD: Final = 0.8  # Robotiq 2F-85 as its driver reports it; 0 is open
_JPEG_QUALITY: Final = 90
_MAX_SECONDS: Final = 3600
_NS: Final = 1_000_000_000
# From the stamp to the recorder, ms: (least, mean of what comes on top).
_CAMERA_LATENCY_MS: Final = (6.0, 3.0)
_STATE_LATENCY_MS: Final = (0.3, 0.3)
# DROID's cameras are not triggered together: each has its own phase within this, ms.
_CAMERA_PHASE_MS: Final = 8.0
_MOTION_RAD: Final = (0.35, 0.25, 0.2, 0.3, 0.25, 0.3, 0.4)
_EASE_S: Final = 2.0
_SYNTHETIC_ARM: Final = "synthetic: smooth sines around home, unrelated to the pictures"
_SYNTHETIC_GRIPPER: Final = "synthetic: opens and closes slowly, unrelated to the pictures"
_SYNTHETIC_IMAGE: Final = "generated pictures: no camera has taken them"


@dataclass(frozen=True)
class DemoBag:
    """What make_demo_bag has written.

    Attributes:
        counts: topic -> messages.
        labels: as stored in the bag.
        notes: one line for each thing that is not a recording.
    """

    path: Path
    duration_s: float
    size_bytes: int
    counts: dict[str, int]
    labels: BagLabels
    instruction: str
    notes: tuple[str, ...]


class _Out(NamedTuple):
    """One message to be written; sorting by time, then by topic, fixes the order in the bag."""

    log_ns: int
    topic: str
    stamp_ns: int
    number: int


def make_demo_bag(
    out: Path,
    *,
    clip: Path | None = None,
    seconds: float | None = None,
    storage: Storage = "mcap",
    seed: int = 0,
    size: tuple[int, int] | None = None,
    image_format: ImageFormat = "jpeg",
    generated: bool = False,
    progress: Callable[[float], None] | None = None,
) -> DemoBag:
    """Write the demo bag.

    Args:
        out: folder to create.
        clip: folder with the three videos; None: the recorded clip where it lies beside the source
            tree, else generated pictures, which say so in the picture and in the metadata.
        seconds: length; None: all of the clip. A recorded clip is not prolonged: where it is
            shorter, the bag is as long as the clip, and the notes say so.
        seed: of motion, camera phases and latencies; the same seed gives the same messages.
        size: (width, height) of the pictures; None: as they are.
        image_format: ``jpeg`` and ``png`` as CompressedImage, the others as raw Image.
        generated: generated pictures even where the recorded clip is there.
        progress: called with 0..1.

    Raises:
        BadInputError: a bad clip, length or size, or ``out`` exists.
        EnvironmentLacksError: the videos cannot be decoded here.
    """
    pictures = _pictures(clip, generated, seed)
    frames = _frame_count(pictures, seconds)
    if size is not None and not all(16 <= n <= 4096 for n in size):
        raise BadInputError(f"the size {size[0]}x{size[1]} is not within 16..4096")
    duration_s = frames / pictures.rate_hz
    random = np.random.default_rng(seed)
    images = {view: _image_topic(view, image_format) for view in VIEWS}
    plan = _plan(pictures, frames, duration_s, images, random)
    phases = random.uniform(0, 2 * math.pi, JOINTS)
    synthetic = {f"/{JOINT_STATES}": _SYNTHETIC_ARM, f"/{GRIPPER_JOINT_STATES}": _SYNTHETIC_GRIPPER}
    if pictures.generated:
        synthetic |= dict.fromkeys(images.values(), _SYNTHETIC_IMAGE)
    labels = BagLabels(synthetic, pictures.source, pictures.licence, seed)
    views = {topic: view for view, topic in images.items()}
    counts = dict.fromkeys([*images.values(), *synthetic, f"/{INSTRUCTION}"], 0)
    instruction = pictures.instruction or "pick up the object and place it in the bowl"
    with BagWriter(out, storage=storage, labels=labels) as writer:
        _add_topics(writer, images, image_format)
        sets = _frame_sets(pictures, frames)
        for done, item in enumerate(plan):
            if item.topic in views:
                frame = sets(item.number, views[item.topic])
                if size is not None:
                    frame = np.asarray(cv2.resize(frame, size, interpolation=cv2.INTER_LINEAR))
                message = _image_message(writer, frame, image_format, item.stamp_ns)
            elif item.topic == f"/{INSTRUCTION}":
                message = writer.make(STRING, data=instruction)
            elif item.topic == f"/{JOINT_STATES}":
                message = _arm_message(writer, item.stamp_ns, phases)
            else:
                message = _gripper_message(writer, item.stamp_ns)
            writer.write(item.topic, item.log_ns, message)
            counts[item.topic] += 1
            if progress is not None and done % 200 == 0:
                progress(done / len(plan))
    if progress is not None:
        progress(1.0)
    notes = [f"{topic} is {how}" for topic, how in labels.synthetic.items()]
    if seconds is not None and seconds >= duration_s + 1 / pictures.rate_hz:
        notes.append(f"{seconds:g} s were asked for, the clip has {duration_s:.1f} s")
    size_bytes = sum(p.stat().st_size for p in out.iterdir())
    return DemoBag(out, duration_s, size_bytes, counts, labels, instruction, tuple(notes))


def _pictures(clip: Path | None, generated: bool, seed: int) -> Clip:
    if generated and clip is not None:
        raise BadInputError("a clip and generated pictures were both asked for: choose one")
    folder = clip if clip is not None else default_clip_folder()
    if generated or folder is None:
        return GeneratedClip(seed)
    return RecordedClip.open(folder)


def _frame_count(pictures: Clip, seconds: float | None) -> int:
    if seconds is None:
        return pictures.frames
    frames = math.floor(seconds * pictures.rate_hz + 1e-9) if math.isfinite(seconds) else 0
    if not 1 <= frames <= _MAX_SECONDS * pictures.rate_hz:
        raise BadInputError(
            f"{seconds} s were asked for, expected {1 / pictures.rate_hz:.2f} to {_MAX_SECONDS} s"
        )
    return frames if pictures.generated else min(frames, pictures.frames)


def _image_topic(view: View, image_format: ImageFormat) -> str:
    compressed = image_format in ("jpeg", "png")
    return f"/{IMAGE_TOPICS[view]}{COMPRESSED if compressed else ''}"


def _plan(
    pictures: Clip,
    frames: int,
    duration_s: float,
    images: dict[View, str],
    random: np.random.Generator,
) -> list[_Out]:
    """Every message's stamp and time of arrival, in the order of arrival."""
    plan: list[_Out] = []

    def add(topic: str, offsets_ns: npt.NDArray[np.int64], latency_ms: tuple[float, float]) -> None:
        extra_ms = random.exponential(latency_ms[1], offsets_ns.size)
        late_ns = ((latency_ms[0] + np.minimum(extra_ms, 8 * latency_ms[1])) * 1e6).astype(np.int64)
        # One topic never overtakes itself.
        log_ns = np.maximum.accumulate(START_NS + offsets_ns + late_ns)
        for k in range(offsets_ns.size):
            plan.append(_Out(int(log_ns[k]), topic, START_NS + int(offsets_ns[k]), k))

    for topic in images.values():
        phase_ns = int(random.uniform(0, _CAMERA_PHASE_MS) * 1e6)
        offsets = (np.arange(frames) * (_NS / pictures.rate_hz)).astype(np.int64) + phase_ns
        add(topic, offsets, _CAMERA_LATENCY_MS)
    for topic, rate_hz in ((JOINT_STATES, JOINT_RATE_HZ), (GRIPPER_JOINT_STATES, GRIPPER_RATE_HZ)):
        samples = np.arange(math.ceil(duration_s * rate_hz), dtype=np.int64) * (_NS // rate_hz)
        add(f"/{topic}", samples, _STATE_LATENCY_MS)
    plan.append(_Out(START_NS + 1_000_000, f"/{INSTRUCTION}", START_NS, 0))
    return sorted(plan)


def _frame_sets(pictures: Clip, frames: int) -> Callable[[int, View], Frame]:
    """Frames by number and view, decoding forward; the last few sets stay in memory."""
    source: Iterator[dict[View, Frame]] = pictures.read(frames)
    sets: dict[int, dict[View, Frame]] = {}
    newest = -1

    def get(index: int, view: View) -> Frame:
        nonlocal newest
        while newest < index:
            newest += 1
            sets[newest] = next(source)
            # Arrivals of one set are spread over less than two frame periods.
            sets.pop(newest - 4, None)
        return sets[index][view]

    return get


def _add_topics(writer: BagWriter, images: dict[View, str], image_format: ImageFormat) -> None:
    kind = COMPRESSED_IMAGE if image_format in ("jpeg", "png") else IMAGE
    for topic in images.values():
        writer.add_topic(topic, kind, qos(depth=5))
    for name in (JOINT_STATES, GRIPPER_JOINT_STATES):
        writer.add_topic(f"/{name}", JOINT_STATE, qos())
    writer.add_topic(f"/{INSTRUCTION}", STRING, qos(depth=1, transient_local=True))


def _image_message(
    writer: BagWriter, frame: Frame, image_format: ImageFormat, stamp_ns: int
) -> object:
    """A message of one BGR frame."""
    header = writer.header(stamp_ns, "camera")
    if image_format in ("jpeg", "png"):
        options = [cv2.IMWRITE_JPEG_QUALITY, _JPEG_QUALITY] if image_format == "jpeg" else []
        good, data = cv2.imencode(f".{image_format}", frame, options)
        if not good:
            raise BadInputError(f"a frame of shape {frame.shape} cannot become {image_format}")
        # image_transport's spelling: the camera's encoding, then what lies in the file.
        text = f"rgb8; {image_format} compressed bgr8"
        return writer.make(COMPRESSED_IMAGE, header=header, format=text, data=data.reshape(-1))
    if image_format == "rgb8":
        frame = np.asarray(cv2.cvtColor(frame, cv2.COLOR_BGR2RGB))
    elif image_format == "bgra8":
        frame = np.asarray(cv2.cvtColor(frame, cv2.COLOR_BGR2BGRA))
    height, width, channels = frame.shape
    return writer.make(
        IMAGE,
        header=header,
        height=height,
        width=width,
        encoding=image_format,
        is_bigendian=0,
        step=width * channels,
        data=np.ascontiguousarray(frame).reshape(-1),
    )


def _smooth(u: float) -> float:
    """0..1 to 0..1 with zero first and second derivative at both ends."""
    return u**3 * (10 + u * (6 * u - 15))


def arm_motion(
    time_s: float, phases: npt.NDArray[np.float64]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Synthetic positions (rad) and velocities (rad/s), float64 [7] each; home and at rest at 0."""
    # Slow sines times an ease-in without a jump in velocity or acceleration at either end.
    u = min(time_s / _EASE_S, 1.0)
    ease, ease_rate = _smooth(u), 30 * (u * (1 - u)) ** 2 / _EASE_S
    rates = 2 * math.pi * (0.05 + 0.01 * np.arange(JOINTS))
    wave = np.sin(rates * time_s + phases)
    amplitude = np.array(_MOTION_RAD)
    positions = np.array(PANDA.home) + amplitude * ease * wave
    velocities = amplitude * (ease_rate * wave + ease * rates * np.cos(rates * time_s + phases))
    return positions, velocities


def gripper_motion(time_s: float) -> float:
    """Synthetic finger joint, rad: open for 4 s, closes in 1 s, closed for 4 s, opens in 1 s."""
    phase = time_s % 10.0
    u = max(0.0, phase - 4.0) if phase < 5.0 else 1.0 - max(0.0, phase - 9.0)
    return GRIPPER_CLOSED_RAD * _smooth(u)


def _arm_message(writer: BagWriter, stamp_ns: int, phases: npt.NDArray[np.float64]) -> object:
    positions, velocities = arm_motion((stamp_ns - START_NS) / _NS, phases)
    return writer.make(
        JOINT_STATE,
        header=writer.header(stamp_ns),
        name=list(PANDA.joint_names),
        position=positions,
        velocity=velocities,
        effort=np.zeros(0),
    )


def _gripper_message(writer: BagWriter, stamp_ns: int) -> object:
    return writer.make(
        JOINT_STATE,
        header=writer.header(stamp_ns),
        name=[GRIPPER_JOINT],
        position=np.array([gripper_motion((stamp_ns - START_NS) / _NS)]),
        velocity=np.zeros(0),
        effort=np.zeros(0),
    )
