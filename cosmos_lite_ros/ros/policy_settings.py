# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The policy node's parameters: the single source of their names, defaults, units and ranges."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal

from cosmos_lite_ros.contract.constants import View
from cosmos_lite_ros.errors import BadInputError
from cosmos_lite_ros.policy.profiles import PROFILE_NAMES


def _p(
    default: Any,
    description: str,
    unit: str = "",
    bounds: tuple[float, float] | None = None,
    **more: Any,
) -> Any:
    metadata: dict[str, Any] = {"description": description, "unit": unit, **more}
    if bounds is not None:
        metadata["range"] = bounds
    return field(default=default, metadata=metadata)


@dataclass(frozen=True)
class CameraSettings:
    """One camera."""

    latency_s: float = _p(
        0.0, "time from exposure to the header stamp; corrects the age only", "s", (0.0, 5.0)
    )


@dataclass(frozen=True)
class CamerasSettings:
    """The three cameras."""

    wrist: CameraSettings = field(default_factory=CameraSettings)
    exterior_1: CameraSettings = field(default_factory=CameraSettings)
    exterior_2: CameraSettings = field(default_factory=CameraSettings)

    def of(self, view: View) -> CameraSettings:
        """The settings of one view."""
        return {"wrist": self.wrist, "exterior_1": self.exterior_1, "exterior_2": self.exterior_2}[
            view
        ]


@dataclass(frozen=True)
class GripperStateSettings:
    """What the gripper's joint state means."""

    joint: str = _p("finger_joint", "name of the gripper's joint in the joint states")
    open: float = _p(0.0, "what it reports when open, in its own unit")
    closed: float = _p(0.8, "what it reports when closed, in its own unit (2F-85: 0.8 rad)")

    def __post_init__(self) -> None:
        """Refuse a mapping without an extent."""
        if not (math.isfinite(self.open) and math.isfinite(self.closed)):
            raise BadInputError("gripper.open and gripper.closed must be finite")
        if self.open == self.closed:
            raise BadInputError(
                f"gripper.open and gripper.closed are both {self.open:g}: give what the gripper "
                "reports at either end"
            )
        if not self.joint:
            raise BadInputError("gripper.joint is empty: name the gripper's joint")


@dataclass(frozen=True)
class PolicySettings:
    """Every parameter of the policy node."""

    profile: str = _p(
        "edge_rtx4090", "checkpoint, device and arithmetic by one name", choices=PROFILE_NAMES
    )
    checkpoint: str = _p("", "folder or Hugging Face id; empty: the profile's")
    revision: str = _p("", "commit of a Hugging Face id; empty: the profile's")
    device: str = _p("auto", "auto (the profile's), cpu, cuda or cuda:N")
    scheme: Literal["auto", "bf16", "fp8", "fp8_fast", "int8", "int8wo", "int4wo", "float32"] = _p(
        "auto",
        "precision of the generation tower's matrices; auto: what a quantised checkpoint is in, "
        "else the profile's",
    )
    accumulate: Literal["auto", "fast", "accurate"] = _p(
        "auto",
        "with scheme fp8, how the GPU's matrix units add up: fast keeps fewer bits; auto: the "
        "profile's",
    )
    fallback: Literal["refuse", "bf16"] = _p(
        "refuse", "a kernel does not pass its self-test: load nothing, or run in bf16 and say so"
    )
    action_arithmetic: Literal["float32", "server"] = _p(
        "float32", "arithmetic of the action block with scheme bf16; server: as the reference"
    )
    steps: int = _p(2, "denoising steps", "", (1, 8))
    guidance: float = _p(3.0, "guidance scale; 1: one network evaluation a step", "", (0.0, 100.0))
    guidance_interval: tuple[float, ...] = _p(
        (),
        "guide only where LO < timestep < HI (0..1000); empty: the profile's, which is always but "
        "for edge_interval",
        length=(0, 2),
    )
    shift: float = _p(5.0, "flow shift of the schedule", "", (0.01, 100.0))
    seed: int = _p(0, "seed of the noise", "", (0, 2**32 - 1))
    seed_mode: Literal["fixed", "advance"] = _p("fixed", "the same seed each time, or one more")
    prompt_format: Literal["auto", "json", "plain"] = _p("auto", "auto: by model family")
    text_cache_entries: int = _p(16, "instructions kept in the text cache", "", (1, 1024))
    text_residency: Literal["auto", "gpu", "pinned", "mmap", "none"] = _p(
        "auto",
        "where the text half lies: on the GPU, in host memory, in the files, cards only; auto: the "
        "profile's",
    )
    cards: str = _p("auto", "folder of prompt cards; auto: the cache folder; empty: none")
    attention: Literal["auto", "cudnn", "flash", "efficient", "math", "default", "int8qk"] = _p(
        "auto",
        "torch's attention by its backend, or int8qk: our own with 8-bit scores; auto: by the GPU",
    )
    vae_offload: Literal["auto", "none", "cpu"] = _p(
        "auto",
        "cpu: the image encoder's weights in host memory, copied at every request; auto: the "
        "profile's",
    )
    threads: int = _p(0, "threads of torch on the CPU; 0: torch's own choice", "", (0, 1024))

    robot: Literal["panda", "fr3"] = _p("panda", "robot type: joint names and limits")
    gripper: GripperStateSettings = field(default_factory=GripperStateSettings)
    cameras: CamerasSettings = field(default_factory=CamerasSettings)
    compose: Literal["client", "server"] = _p("client", "how three cameras become one image")
    aspect: Literal["pad", "crop", "refuse"] = _p("pad", "what to do with a camera not 16:9")
    image_backend: Literal["opencv", "cv_bridge"] = _p("opencv", "what decodes raw images")
    image_transport: Literal["raw", "compressed"] = _p(
        "raw", "raw: VIEW/image; compressed: VIEW/image/compressed"
    )
    observation_anchor: Literal["joint_state", "oldest_image"] = _p(
        "joint_state", "whose stamp is the instant of row 0"
    )
    max_image_age_s: float = _p(0.3, "oldest usable image", "s", (0.01, 60.0))
    frozen_image_s: float = _p(
        2.0, "identical frames for this long are a fault; 0: not checked", "s", (0.0, 600.0)
    )
    max_camera_skew_s: float = _p(0.1, "largest difference between cameras", "s", (0.001, 60.0))
    max_joint_state_age_s: float = _p(0.2, "oldest usable joint state", "s", (0.01, 60.0))
    max_gripper_age_s: float = _p(0.5, "oldest usable gripper state", "s", (0.01, 60.0))

    free_run: bool = _p(False, "work on the instruction topic without an executor")
    request_timeout_s: float = _p(
        10.0,
        "how long a request waits for an observation; and a computation that takes longer counts "
        "as hung, which ends the process",
        "s",
        (0.1, 3600.0),
    )
    max_consecutive_errors: int = _p(3, "failed chunks in a row before state ERROR", "", (1, 1000))

    def __post_init__(self) -> None:
        """Refuse combinations that cannot work."""
        if self.guidance_interval:
            low, high = self.guidance_interval
            if not low < high:
                raise BadInputError(
                    f"guidance_interval is [{low:g}, {high:g}], expected [LO, HI] with LO < HI"
                )
