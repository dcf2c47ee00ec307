# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Groups of the executor's settings (``limits.*``, ``joint_limits.*``, ``gripper.*``).

Also the checks that every group and ``ExecutorSettings`` share: each dataclass refuses values out
of range by itself, however it was made, with one line.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Any, Literal

from cosmos_lite_ros.contract.robots import RobotType
from cosmos_lite_ros.errors import BadInputError

CheckPolicy = Literal["clamp", "reject_chunk", "stop"]
# What cannot be made right cannot be clamped.
StrictPolicy = Literal["reject_chunk", "stop"]


def about(
    description: str,
    unit: str = "",
    range: tuple[float, float] | None = None,
    length: tuple[int, ...] = (),
) -> dict[str, Any]:
    """Metadata of a field, as ros/parameters.py reads it."""
    metadata: dict[str, Any] = {"description": description}
    if unit:
        metadata["unit"] = unit
    if range is not None:
        metadata["range"] = range
    if length:
        metadata["length"] = length
    return metadata


def check_fields(settings: Any, prefix: str = "") -> None:
    """Refuse what the metadata of the fields does not allow, however the object was made.

    Raises:
        BadInputError: names the parameter, its value and what is expected.
    """
    for spec in dataclasses.fields(settings):
        value, name = getattr(settings, spec.name), prefix + spec.name
        lengths = spec.metadata.get("length", ())
        if lengths and len(value) not in lengths:
            wanted = " or ".join(map(str, lengths))
            raise BadInputError(f"{name} has {len(value)} values, expected {wanted}")
        low, high = spec.metadata.get("range", (-math.inf, math.inf))
        for item in value if isinstance(value, tuple) else (value,):
            # Not "item < low": that would let NaN through.
            if isinstance(item, int | float) and not low <= item <= high:
                raise BadInputError(f"{name} is {item:g}, expected {_words(low, high)}")


def _words(low: float, high: float) -> str:
    if math.isinf(high):
        return "a number" if math.isinf(low) else f"at least {low:g}"
    return f"{low:g} to {high:g}"


@dataclass(frozen=True)
class CheckPolicies:
    """What the gate does when a check fails."""

    finite: StrictPolicy = field(
        default="reject_chunk", metadata=about("a chunk holds NaN or an infinity")
    )
    shape: StrictPolicy = field(
        default="reject_chunk", metadata=about("a chunk has a wrong number of rows or columns")
    )
    joint_names: StrictPolicy = field(
        default="reject_chunk", metadata=about("a chunk names other joints than the robot type")
    )
    position: CheckPolicy = field(
        default="clamp", metadata=about("a row lies outside the robot's position limits")
    )
    step: CheckPolicy = field(
        default="clamp",
        metadata=about(
            "two rows are further apart than velocity_scale times the data sheet allows"
        ),
    )
    spike: CheckPolicy = field(
        default="reject_chunk",
        metadata=about("two rows, or the first row and the last command, differ by max_spike_rad"),
    )
    workspace: CheckPolicy = field(
        default="clamp",
        metadata=about(
            "a row takes fingertip, wrist or elbow out of workspace or below table_height_m; "
            "clamp: the arm stops there until the rows lead back"
        ),
    )
    tool_speed: CheckPolicy = field(
        default="clamp",
        metadata=about("two rows move the fingertip faster than max_tool_speed_m_s"),
    )


@dataclass(frozen=True)
class JointLimits:
    """Limits of single joints, tighter than the data sheet's; the lists go together."""

    joints: tuple[str, ...] = field(
        default=(),
        metadata=about("joints with limits of their own, tighter than the data sheet's"),
    )
    position_min_rad: tuple[float, ...] = field(
        default=(), metadata=about("lower limit of each of them", "rad")
    )
    position_max_rad: tuple[float, ...] = field(
        default=(), metadata=about("upper limit of each of them", "rad")
    )

    def __post_init__(self) -> None:
        """Refuse lists that do not go together, and limits the wrong way round."""
        check_fields(self, "joint_limits.")
        count = len(self.joints)
        for name in ("position_min_rad", "position_max_rad"):
            values = getattr(self, name)
            if len(values) != count:
                raise BadInputError(
                    f"joint_limits.{name} has {len(values)} values, expected {count}, one for each "
                    "of joint_limits.joints"
                )
        if len(set(self.joints)) != count:
            raise BadInputError("joint_limits.joints names a joint twice, expected each once")
        for joint, low, high in zip(
            self.joints, self.position_min_rad, self.position_max_rad, strict=True
        ):
            if not low < high:
                raise BadInputError(
                    f"joint_limits of {joint} are {low:g} to {high:g} rad, expected "
                    "position_min_rad < position_max_rad"
                )

    def apply(self, robot: RobotType) -> RobotType:
        """The robot type with these limits.

        Raises:
            BadInputError: an unknown joint, or a limit wider than the data sheet's.
        """
        low, high = list(robot.position_min), list(robot.position_max)
        for joint, a, b in zip(
            self.joints, self.position_min_rad, self.position_max_rad, strict=True
        ):
            if joint not in robot.joint_names:
                raise BadInputError(
                    f"joint_limits.joints names {joint!r}, expected joints of {robot.name}: "
                    f"{', '.join(robot.joint_names)}"
                )
            i = robot.joint_names.index(joint)
            if a < low[i] or b > high[i]:
                raise BadInputError(
                    f"joint_limits of {joint} are {a:g} to {b:g} rad, expected limits within the "
                    f"data sheet's {low[i]:g} to {high[i]:g}"
                )
            low[i], high[i] = a, b
        return dataclasses.replace(robot, position_min=tuple(low), position_max=tuple(high))


@dataclass(frozen=True)
class GripperSettings:
    """How raw gripper rows (0 open .. 1 closed) become commands, and how the gripper is reached."""

    output: Literal["topic", "action"] = field(
        default="topic",
        metadata=about(
            "topic: std_msgs/Float64 on gripper_command, 0 open .. 1 closed; action: gripper_cmd, "
            "which needs control_msgs"
        ),
    )
    action_type: Literal["gripper_command", "parallel_gripper_command"] = field(
        default="gripper_command",
        metadata=about(
            "control_msgs action of output action: GripperCommand, or ParallelGripperCommand"
        ),
    )
    joint: str = field(
        default="finger_joint",
        metadata=about("joint that a ParallelGripperCommand names"),
    )
    max_effort: float = field(
        default=0.0,
        metadata=about(
            "max_effort of an action's goal; 0: what the driver takes by itself",
            "",
            (0.0, math.inf),
        ),
    )
    open: float = field(
        default=0.0,
        metadata=about("position that a gripper action is sent to open it, in the gripper's units"),
    )
    closed: float = field(
        default=0.8, metadata=about("position that it is sent to close it, in the same units")
    )
    close_above: float = field(
        default=0.6, metadata=about("closes when the row is above this", "0..1", (0.0, 1.0))
    )
    open_below: float = field(
        default=0.4, metadata=about("opens when the row is below this", "0..1", (0.0, 1.0))
    )
    min_dwell_s: float = field(
        default=0.5, metadata=about("shortest time between two changes", "s", (0.0, 60.0))
    )

    def __post_init__(self) -> None:
        """Refuse thresholds without hysteresis, one position for two, an action without a joint."""
        check_fields(self, "gripper.")
        if self.open == self.closed or not math.isfinite(self.open - self.closed):
            raise BadInputError(
                f"gripper.open is {self.open:g} and gripper.closed is {self.closed:g}, expected "
                "two different positions"
            )
        if not self.open_below < self.close_above:
            raise BadInputError(
                f"gripper.open_below is {self.open_below:g} and gripper.close_above is "
                f"{self.close_above:g}, expected open_below < close_above"
            )
        if self.action_type == "parallel_gripper_command" and not self.joint:
            raise BadInputError(
                "gripper.joint is empty, expected the joint that a ParallelGripperCommand moves"
            )
