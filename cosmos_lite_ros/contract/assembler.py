# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The one way from messages to an ``Observation``, live and from a recording.

Messages are stored as they come and decoded only when an observation is asked for. Nothing here
reads a clock: every time is given, in ns of the same clock as the header stamps (ROS time).
"""

from __future__ import annotations

import threading
import zlib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, cast, get_args

import numpy as np

from cosmos_lite_ros.contract import images
from cosmos_lite_ros.contract.cameras import Camera, CameraStatus, Frame
from cosmos_lite_ros.contract.constants import JOINTS, VIEWS, View
from cosmos_lite_ros.contract.gripper import GripperMapping
from cosmos_lite_ros.contract.images import CompressedImageMessage, ImageMessage, Pixels
from cosmos_lite_ros.contract.joints import JointSample, JointStateBuffer, JointStateMessage
from cosmos_lite_ros.contract.observation import Observation, clean_instruction
from cosmos_lite_ros.contract.stamps import FUTURE_TOLERANCE_NS, NS_PER_S
from cosmos_lite_ros.contract.views import (
    Aspect,
    Compose,
    Resize,
    arrange_views,
    is_wide,
    pillow_resize,
)
from cosmos_lite_ros.errors import BadInputError, ImageError

Anchor = Literal["joint_state", "oldest_image"]
SkipKind = Literal[
    "instruction", "no_image", "image_age", "camera_skew", "frozen_image", "decode", "joint_state"
]

# A line is said once; this bounds what a message's own text (joint names) can make us remember.
_MAX_NOTICES: Final = 256
# A check sum over this many bytes costs 0.2 ms; of larger images evenly spaced rows are taken. The
# noise of a real sensor changes every row.
_FINGERPRINT_BYTES: Final = 1 << 20


@dataclass(frozen=True)
class AssemblerSettings:
    """How observations are made; the node's parameters of the same names. Times in s.

    Attributes:
        joint_names: the seven joints of the arm, in the policy's order.
        gripper_joint: the gripper's joint in the joint states, of whichever topic.
        gripper: what its values mean.
        compose, aspect: see ``contract.views``.
        observation_anchor: the instant of row 0: the stamp of the joint state, or of the oldest
            image.
        max_image_age_s: no observation from an image older than this, by stamp or by arrival.
        frozen_image_s: no observation from a camera whose pixels have not changed for this long;
            0 switches the check off (a simulator without noise may rest).
        max_camera_skew_s: most that the three images may lie apart in time.
        max_joint_state_age_s: no observation when a joint was heard longer ago, by stamp or by
            arrival.
        max_gripper_age_s: the same for the gripper, whose drivers report less often.
        camera_latency_s: how much older the pixels are than the stamp says; corrects ages only.
        resize: the antialiasing filter of ``compose: client``.
        decode_image, decode_compressed: from a message to uint8 [h, w, 3] RGB, raising ImageError.

    Raises:
        BadInputError: a wrong number of joints, a name twice, or a limit out of range.
    """

    joint_names: tuple[str, ...]
    gripper_joint: str
    gripper: GripperMapping
    compose: Compose = "client"
    aspect: Aspect = "pad"
    observation_anchor: Anchor = "joint_state"
    max_image_age_s: float = 0.3
    frozen_image_s: float = 2.0
    max_camera_skew_s: float = 0.1
    max_joint_state_age_s: float = 0.2
    max_gripper_age_s: float = 0.5
    camera_latency_s: Mapping[View, float] = field(default_factory=dict)
    resize: Resize = pillow_resize
    decode_image: Callable[[ImageMessage], Pixels] = images.decode_image
    decode_compressed: Callable[[CompressedImageMessage], Pixels] = images.decode_compressed

    def __post_init__(self) -> None:
        """Check what can be checked."""
        if len(self.joint_names) != JOINTS:
            raise BadInputError(f"found {len(self.joint_names)} joint names, expected {JOINTS}")
        JointStateBuffer(self.joint_names, self.gripper_joint)
        for name, value, known in (
            ("compose", self.compose, get_args(Compose)),
            ("aspect", self.aspect, get_args(Aspect)),
            ("observation_anchor", self.observation_anchor, get_args(Anchor)),
        ):
            if value not in known:
                raise BadInputError(f"{name} is {value!r}, expected one of {', '.join(known)}")
        for view in self.camera_latency_s:
            if view not in VIEWS:
                raise BadInputError(f"camera {view!r} is unknown, expected one of {VIEWS}")
        limits = (
            self.max_image_age_s,
            self.max_camera_skew_s,
            self.max_joint_state_age_s,
            self.max_gripper_age_s,
        )
        if not (all(np.isfinite(x) and x > 0 for x in limits) and self.frozen_image_s >= 0):
            raise BadInputError("ages and skew must be positive, frozen_image_s 0 or positive")
        if not all(np.isfinite(x) and x >= 0 for x in self.camera_latency_s.values()):
            raise BadInputError(f"camera latencies {dict(self.camera_latency_s)} must be >= 0 s")


@dataclass(frozen=True)
class Skip:
    """No observation, and why.

    Attributes:
        kind: for counters.
        reason: one line, naming the cameras or joints.
    """

    kind: SkipKind
    reason: str


class ObservationAssembler:
    """Keeps the newest messages and makes observations of them.

    ``push_*`` return at once and may be called from one thread while another calls ``assemble``
    (one at a time). ``push_*`` never raise for what a message holds.
    """

    def __init__(self, settings: AssemblerSettings) -> None:
        self.settings = settings
        self._lock = threading.Lock()
        latency = settings.camera_latency_s
        self._cameras = {v: Camera(v, round(latency.get(v, 0.0) * NS_PER_S)) for v in VIEWS}
        self._joints = JointStateBuffer(settings.joint_names, settings.gripper_joint)
        self._skips: Counter[str] = Counter()
        self._observations = 0
        self._gripper_suspicious = 0
        self._notices: list[str] = []
        self._said: set[str] = set()

    def push_image(self, view: View, message: ImageMessage, arrival_ns: int) -> None:
        """Store the newest raw image (sensor_msgs/Image) of a view."""
        self._push(view, message, False, arrival_ns)

    def push_compressed(self, view: View, message: CompressedImageMessage, arrival_ns: int) -> None:
        """Store the newest compressed image (sensor_msgs/CompressedImage) of a view."""
        self._push(view, message, True, arrival_ns)

    def push_joint_state(self, message: JointStateMessage, arrival_ns: int) -> None:
        """Merge a sensor_msgs/JointState, of the arm, the gripper or both."""
        with self._lock:
            problems = self._joints.counts["rejected"] + self._joints.counts["not_finite"]
            taken = self._joints.push(message, arrival_ns)
            counts = self._joints.counts
            if counts["rejected"] + counts["not_finite"] != problems:
                self._say(self._joints.last_problem)
            if taken and self._joints.stamp_problem:
                self._say(
                    f"joint states have stamps that are {self._joints.stamp_problem}: the time of "
                    "arrival is used instead"
                )

    def reset(self) -> None:
        """Forget all messages, as after a jump of time; counters stay."""
        with self._lock:
            for camera in self._cameras.values():
                camera.reset()
            self._joints.reset()

    def assemble(self, instruction: str | None, now_ns: int) -> Observation | Skip:
        """An observation from the newest messages, or the reason why there is none.

        Row 0's instant (``stamp_ns``) is the stamp of the joint state that arrived nearest to the
        newest image's arrival, unless ``observation_anchor`` says ``oldest_image``.

        Args:
            instruction: what the robot shall do; None or empty where there is none yet.
            now_ns: the present, ns.
        """
        result = self._assemble(instruction, now_ns)
        with self._lock:
            if isinstance(result, Skip):
                self._skips[result.kind] += 1
            else:
                self._observations += 1
        return result

    def camera_status(self, now_ns: int) -> dict[View, CameraStatus]:
        """Ages, received rate and troubles of each camera, for status and diagnostics."""
        with self._lock:
            return {view: camera.status(now_ns) for view, camera in self._cameras.items()}

    def counters(self) -> dict[str, int]:
        """``observations``, ``skipped``, ``skip.<kind>``, ``joints.<count>`` and the gripper's."""
        with self._lock:
            counts = {"observations": self._observations, "skipped": self._skips.total()}
            counts |= {f"skip.{kind}": n for kind, n in self._skips.items()}
            counts |= {f"joints.{name}": n for name, n in self._joints.counts.items()}
            counts["gripper.out_of_range"] = self._gripper_suspicious
            return counts

    def take_notices(self) -> list[str]:
        """What deserves to be said, each line once: call now and then, and log the result."""
        with self._lock:
            taken, self._notices = self._notices, []
            return taken

    def _push(self, view: View, message: Any, compressed: bool, arrival_ns: int) -> None:
        with self._lock:
            problem = self._cameras[view].push(message, compressed, arrival_ns)
            if problem:
                self._say(
                    f"{view}: header stamps are {problem}: the time of arrival is used instead"
                )

    def _say(self, line: str) -> None:
        if line not in self._said and len(self._said) < _MAX_NOTICES:
            self._said.add(line)
            self._notices.append(line)

    def _assemble(self, instruction: str | None, now_ns: int) -> Observation | Skip:
        if instruction is None or not instruction.strip():
            return Skip("instruction", "no instruction yet")
        try:
            text = clean_instruction(instruction)
        except BadInputError as error:
            return Skip("instruction", str(error))
        with self._lock:
            chosen = self._choose(now_ns)
        if isinstance(chosen, Skip):
            return chosen
        frames, sample = chosen
        pixels: dict[View, Pixels] = {}
        for view, frame in frames.items():
            decoded = self._decode(view, frame)
            if isinstance(decoded, Skip):
                return decoded
            pixels[view] = decoded
        frozen = self._frozen(frames)
        if frozen is not None:
            return frozen
        try:
            image = arrange_views(
                *(pixels[view] for view in VIEWS),
                compose=self.settings.compose,
                aspect=self.settings.aspect,
                resize=self.settings.resize,
            )
        except ImageError as error:
            return Skip("decode", str(error))
        stamps = tuple(frames[view].header_stamp_ns for view in VIEWS)
        oldest_image = min(frame.stamp_ns for frame in frames.values())
        by_joints = self.settings.observation_anchor == "joint_state"
        return Observation(
            image=image,
            joint_positions=np.array(sample.positions, np.float64),
            gripper=self._gripper(sample.gripper),
            instruction=text,
            stamp_ns=sample.stamp_ns if by_joints else oldest_image,
            joint_state_stamp_ns=sample.stamp_ns,
            image_stamps_ns=cast("tuple[int, int, int]", stamps),
        )

    def _choose(self, now_ns: int) -> tuple[dict[View, Frame], JointSample] | Skip:
        """The messages to use, or why they cannot be used. Called with the lock held."""
        frames: dict[View, Frame] = {}
        missing, old = [], []
        for view, camera in self._cameras.items():
            if camera.frame is None:
                missing.append(f"{view}: no image yet")
            else:
                frames[view] = camera.frame
                reason = self._image_age_reason(view, camera, now_ns)
                old += [reason] if reason else []
        if missing:
            return Skip("no_image", "; ".join(missing + old))
        if old:
            return Skip("image_age", "; ".join(old))
        taken_at = {v: f.stamp_ns - self._cameras[v].latency_ns for v, f in frames.items()}
        first, last = (
            min(taken_at, key=taken_at.__getitem__),
            max(taken_at, key=taken_at.__getitem__),
        )
        skew_s = (taken_at[last] - taken_at[first]) / NS_PER_S
        if skew_s > self.settings.max_camera_skew_s:
            return Skip(
                "camera_skew",
                f"{first} was taken {skew_s:.3f} s before {last} (max_camera_skew_s "
                f"{self.settings.max_camera_skew_s:g})",
            )
        newest_image = max(frame.arrival_ns for frame in frames.values())
        sample = self._joints.nearest(newest_image)
        if sample is None:
            return Skip("joint_state", self._joints.not_ready())
        reason = self._joint_age_reason(sample, newest_image, now_ns)
        return Skip("joint_state", reason) if reason else (frames, sample)

    def _image_age_reason(self, view: View, camera: Camera, now_ns: int) -> str:
        limit = self.settings.max_image_age_s
        status = camera.status(now_ns)
        if status.arrival_age_s < -FUTURE_TOLERANCE_NS / NS_PER_S:
            return f"{view}: time went back by {-status.arrival_age_s:.3f} s, no image since"
        if status.arrival_age_s > limit:
            return (
                f"{view}: no image since {status.arrival_age_s:.3f} s (max_image_age_s {limit:g})"
            )
        if status.header_age_s > limit:
            return (
                f"{view}: image is {status.header_age_s:.3f} s old by its stamp, though it arrived "
                f"{status.arrival_age_s:.3f} s ago (max_image_age_s {limit:g}): check the camera's "
                "clock and delay"
            )
        return ""

    def _joint_age_reason(self, sample: JointSample, image_ns: int, now_ns: int) -> str:
        settings = self.settings
        for gripper, limit, name in (
            (False, settings.max_joint_state_age_s, "max_joint_state_age_s"),
            (True, settings.max_gripper_age_s, "max_gripper_age_s"),
        ):
            joint, stamp_ns, arrival_ns = self._joints.oldest_joint(gripper=gripper)
            arrival_age_s = (now_ns - arrival_ns) / NS_PER_S
            stamp_age_s = (now_ns - stamp_ns) / NS_PER_S
            if arrival_age_s < -FUTURE_TOLERANCE_NS / NS_PER_S:
                return f"{joint}: time went back by {-arrival_age_s:.3f} s, no joint state since"
            if arrival_age_s > limit:
                return f"{joint}: no joint state since {arrival_age_s:.3f} s ({name} {limit:g})"
            if stamp_age_s > limit:
                return (
                    f"{joint}: joint state is {stamp_age_s:.3f} s old by its stamp, though it "
                    f"arrived {arrival_age_s:.3f} s ago ({name} {limit:g}): check its clock"
                )
        apart_s = abs(sample.arrival_ns - image_ns) / NS_PER_S
        if apart_s > settings.max_joint_state_age_s:
            return (
                f"the nearest joint state arrived {apart_s:.3f} s apart from the newest image "
                f"(max_joint_state_age_s {settings.max_joint_state_age_s:g})"
            )
        return ""

    def _decode(self, view: View, frame: Frame) -> Pixels | Skip:
        """The frame's pixels. A frame that failed fails again, counted once."""
        decode = self.settings.decode_compressed if frame.compressed else self.settings.decode_image
        try:
            decoded = decode(frame.message)
        except ImageError as error:
            with self._lock:
                self._cameras[view].note_failure(frame, str(error))
            return Skip("decode", f"{view}: {error}")
        height, width = decoded.shape[:2]
        with self._lock:
            self._cameras[view].note_size(height, width)
            if not is_wide(height, width) and self.settings.aspect != "refuse":
                done = "stretched" if self.settings.compose == "server" else "padded with black"
                done = "cropped" if self.settings.aspect == "crop" else done
                self._say(f"{view}: {width}x{height} is not 16:9 and is {done} (parameter aspect)")
        return decoded

    def _frozen(self, frames: dict[View, Frame]) -> Skip | None:
        limit = self.settings.frozen_image_s
        if not limit:
            return None
        reasons = []
        for view, frame in frames.items():
            seconds = self._cameras[view].unchanged_s(frame, fingerprint(frame.message))
            if seconds >= limit:
                reasons.append(
                    f"{view}: identical images for {seconds:.1f} s (frozen_image_s {limit:g})"
                )
        return Skip("frozen_image", "; ".join(reasons)) if reasons else None

    def _gripper(self, value: float) -> float:
        mapping = self.settings.gripper
        if mapping.is_suspicious(value):
            with self._lock:
                self._gripper_suspicious += 1
                self._say(
                    f"gripper reports {value:g}, far outside open {mapping.open:g} .. closed "
                    f"{mapping.closed:g}: check the parameters gripper.open and gripper.closed"
                )
        return mapping.to_unit(value)


def fingerprint(message: Any) -> int:
    """CRC-32 of an image message's data, of evenly spaced rows where it is large."""
    data = np.frombuffer(message.data, np.uint8)
    step = int(getattr(message, "step", 0))
    if data.size > _FINGERPRINT_BYTES and step and data.size % step == 0:
        data = data.reshape(-1, step)[:: -(-data.size // _FINGERPRINT_BYTES)]
    return zlib.crc32(np.ascontiguousarray(data).data)
