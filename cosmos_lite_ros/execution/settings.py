# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Settings of the executor: the single source of its ROS parameters.

``range`` is inclusive; metadata keys as cosmos_lite_ros.ros.parameters reads them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal

from cosmos_lite_ros.contract.constants import CHUNK_ROWS
from cosmos_lite_ros.errors import BadInputError

CheckPolicy = Literal["clamp", "reject_chunk", "stop"]
# What cannot be made right cannot be clamped.
StrictPolicy = Literal["reject_chunk", "stop"]

_SMALL = 1e-6


class UnavailableError(BadInputError):
    """A setting that exists but that this version cannot serve."""


def _about(
    description: str, unit: str = "", range: tuple[float, float] | None = None
) -> dict[str, Any]:
    metadata: dict[str, Any] = {"description": description}
    if unit:
        metadata["unit"] = unit
    if range is not None:
        metadata["range"] = range
    return metadata


@dataclass(frozen=True)
class CheckPolicies:
    """What the gate does when a check fails."""

    finite: StrictPolicy = field(
        default="reject_chunk", metadata=_about("a chunk holds NaN or an infinity")
    )
    shape: StrictPolicy = field(
        default="reject_chunk", metadata=_about("a chunk has a wrong number of rows or columns")
    )
    joint_names: StrictPolicy = field(
        default="reject_chunk", metadata=_about("a chunk names other joints than the robot type")
    )
    position: CheckPolicy = field(
        default="clamp", metadata=_about("a row lies outside the robot's position limits")
    )
    step: CheckPolicy = field(
        default="clamp",
        metadata=_about(
            "two rows are further apart than velocity_scale times the data sheet allows"
        ),
    )
    spike: CheckPolicy = field(
        default="reject_chunk",
        metadata=_about("two rows, or the first row and the last command, differ by max_spike_rad"),
    )


@dataclass(frozen=True)
class GripperSettings:
    """How raw gripper rows (0 open .. 1 closed) become commands."""

    output: Literal["topic", "action"] = field(
        default="topic",
        metadata=_about(
            "topic: std_msgs/Float64 on gripper_command; action: not available in this version"
        ),
    )
    close_above: float = field(
        default=0.6, metadata=_about("closes when the row is above this", "0..1", (0.0, 1.0))
    )
    open_below: float = field(
        default=0.4, metadata=_about("opens when the row is below this", "0..1", (0.0, 1.0))
    )
    min_dwell_s: float = field(
        default=0.5, metadata=_about("shortest time between two changes", "s", (0.0, 60.0))
    )

    def __post_init__(self) -> None:
        """Refuse thresholds without hysteresis."""
        if not self.open_below < self.close_above:
            raise BadInputError(
                f"gripper.open_below is {self.open_below:g} and gripper.close_above is "
                f"{self.close_above:g}, expected open_below < close_above"
            )


@dataclass(frozen=True)
class ExecutorSettings:
    """Everything that the executor can be told; see each field's description.

    Raises:
        BadInputError: a combination that cannot work.
    """

    robot: Literal["panda", "fr3"] = field(
        default="panda", metadata=_about("robot type: joint names and limits")
    )
    mode: Literal["sync", "async", "average", "prefix"] = field(
        default="sync",
        metadata=_about(
            "sync: execute horizon rows, hold while the policy thinks; async: refill early, newest "
            "chunk wins; average and prefix: not available in this version",
        ),
    )
    horizon: int = field(
        default=CHUNK_ROWS,
        metadata=_about("rows of each chunk that may be executed", "rows", (1, CHUNK_ROWS)),
    )
    blend_rows: int = field(
        default=4,
        metadata=_about(
            "rows over which joints cross-fade to a new chunk (async)", "rows", (0, 16)
        ),
    )
    refill_margin_rows: int = field(
        default=3,
        metadata=_about(
            "rows beyond the measured latency that remain when a refill is asked for",
            "rows",
            (0, 31),
        ),
    )
    request_timeout_s: float = field(
        default=4.0,
        metadata=_about(
            "a request without an answer is given up and repeated after this", "s", (0.1, 600.0)
        ),
    )
    max_consecutive_errors: int = field(
        default=5,
        metadata=_about(
            "chunks rejected or requests unanswered in a row before the executor stops",
            "",
            (1, 1000),
        ),
    )
    underrun_timeout_s: float = field(
        default=5.0,
        metadata=_about(
            "time without a row, holding, before the executor stops", "s", (0.1, 600.0)
        ),
    )
    start_tolerance_rad: float = field(
        default=0.05,
        metadata=_about(
            "largest distance of the first command from the measured joints",
            "rad",
            (0.0, math.inf),
        ),
    )
    start_policy: Literal["ramp", "refuse"] = field(
        default="ramp", metadata=_about("beyond start_tolerance_rad: move there slowly, or stop")
    )
    start_velocity_scale: float = field(
        default=0.1,
        metadata=_about("speed of that ramp, as a share of the data sheet's", "", (0.001, 1.0)),
    )
    instruction_policy: Literal["flush", "drain"] = field(
        default="flush",
        metadata=_about(
            "a new instruction: slow down and ask anew, or finish the running chunk first"
        ),
    )
    max_tracking_error_rad: float = field(
        default=0.15,
        metadata=_about(
            "largest distance between commanded and measured joints while commands go out; 0 or "
            "inf switches the check off; it never stops a dry run, which no robot follows",
            "rad",
            (0.0, math.inf),
        ),
    )
    max_joint_state_age_s: float = field(
        default=0.2, metadata=_about("oldest usable joint state", "s", (0.01, 60.0))
    )
    require_enable: bool = field(default=True, metadata=_about("motion needs the enable heartbeat"))
    enable_timeout_s: float = field(
        default=0.5, metadata=_about("silence of enable that counts as released", "s", (0.05, 10.0))
    )
    require_preflight: bool = field(
        default=False,
        metadata=_about(
            "motion needs a passed ~/preflight; not available in this version, so false"
        ),
    )
    allow_random_weights: bool = field(
        default=False,
        metadata=_about(
            "execute chunks of a checkpoint with random weights on a real output (simulators)"
        ),
    )
    output: Literal["trajectory", "array", "joint_state"] = field(
        default="trajectory",
        metadata=_about(
            "trajectory: trajectory_msgs/JointTrajectory on joint_trajectory; array and "
            "joint_state: not available in this version",
        ),
    )
    lookahead_rows: int = field(
        default=8,
        metadata=_about(
            "points of each trajectory; the arm can always come to rest within them",
            "rows",
            (4, 32),
        ),
    )
    velocity_scale: float = field(
        default=0.6, metadata=_about("share of the data sheet's velocities", "", (0.001, 1.0))
    )
    acceleration_scale: float = field(
        default=0.25, metadata=_about("share of the data sheet's accelerations", "", (0.001, 1.0))
    )
    max_spike_rad: float = field(
        default=0.3,
        metadata=_about(
            "a difference between two rows, or to the last command, that is no motion but an error",
            "rad",
            (_SMALL, math.inf),
        ),
    )
    tick_clock: Literal["steady", "ros"] = field(
        default="steady",
        metadata=_about("what the 15 Hz tick follows; ros: not available in this version"),
    )
    dry_run: bool = field(
        default=False, metadata=_about("publish to command_preview instead of joint_trajectory")
    )
    limits: CheckPolicies = field(default_factory=CheckPolicies)
    gripper: GripperSettings = field(default_factory=GripperSettings)

    def __post_init__(self) -> None:
        """Refuse combinations that cannot work."""
        if self.blend_rows > self.horizon:
            raise BadInputError(
                f"blend_rows is {self.blend_rows} and horizon is {self.horizon}, expected "
                "blend_rows <= horizon"
            )

    def check_available(self) -> None:
        """Refuse what this version does not have.

        Raises:
            UnavailableError: names the parameter, its value and the values that work.
        """
        available: dict[str, tuple[object, ...]] = {
            "mode": ("sync", "async"),
            "output": ("trajectory",),
            "tick_clock": ("steady",),
            "require_preflight": (False,),
        }
        for name, values in available.items():
            _require(name, getattr(self, name), values)
        _require("gripper.output", self.gripper.output, ("topic",))

    @property
    def tracking_limit_rad(self) -> float:
        """max_tracking_error_rad, infinity where the check is off."""
        off = self.max_tracking_error_rad == 0.0 or self.dry_run
        return math.inf if off else self.max_tracking_error_rad


def _require(name: str, value: object, values: tuple[object, ...]) -> None:
    if value not in values:
        wanted = " or ".join(str(v).lower() for v in values)
        shown = str(value).lower()
        raise UnavailableError(
            f"parameter {name} is {shown}: not available in this version, set it to {wanted}"
        )
