# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Settings of the executor: the single source of its ROS parameters.

``range`` is inclusive; metadata keys as cosmos_lite_ros.ros.parameters reads them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from cosmos_lite_ros.contract.constants import CHUNK_ROWS, JOINTS, RATE_HZ
from cosmos_lite_ros.contract.robots import RobotType, robot_type
from cosmos_lite_ros.errors import BadInputError
from cosmos_lite_ros.execution.settings_groups import (
    CheckPolicies,
    CheckPolicy,
    GripperSettings,
    JointLimits,
    StrictPolicy,
    about,
    check_fields,
)

__all__ = [
    "CheckPolicies",
    "CheckPolicy",
    "ExecutorSettings",
    "GripperSettings",
    "JointLimits",
    "StrictPolicy",
]

_SMALL = 1e-6


@dataclass(frozen=True)
class ExecutorSettings:
    """Everything that the executor can be told; see each field's description.

    Raises:
        BadInputError: a combination that cannot work.
    """

    robot: Literal["panda", "fr3"] = field(
        default="panda", metadata=about("robot type: joint names and limits")
    )
    mode: Literal["sync", "async", "average", "prefix"] = field(
        default="sync",
        metadata=about(
            "sync: execute horizon rows, hold while the policy thinks; async: refill early, newest "
            "chunk wins; average: as async, 0.3 old + 0.7 new where chunks overlap; prefix "
            "(experimental): as async after horizon rows, and the policy is guided to continue the "
            "rows that run while it thinks",
        ),
    )
    horizon: int = field(
        default=CHUNK_ROWS,
        metadata=about(
            "rows of each chunk that may be executed; prefix: that are executed before the next "
            "chunk is asked for, d <= horizon <= 32 - d at a latency of d rows",
            "rows",
            (1, CHUNK_ROWS),
        ),
    )
    blend_rows: int = field(
        default=4,
        metadata=about(
            "rows over which joints cross-fade to a new chunk (async, average, prefix), and over "
            "which the guidance of prefix fades",
            "rows",
            (0, 16),
        ),
    )
    refill_margin_rows: int = field(
        default=3,
        metadata=about(
            "rows beyond the measured latency that remain when a refill is asked for",
            "rows",
            (0, 31),
        ),
    )
    request_timeout_s: float = field(
        default=4.0,
        metadata=about(
            "a request without an answer is given up and repeated after this", "s", (0.1, 600.0)
        ),
    )
    max_consecutive_errors: int = field(
        default=5,
        metadata=about(
            "chunks rejected or requests unanswered in a row before the executor stops",
            "",
            (1, 1000),
        ),
    )
    underrun_timeout_s: float = field(
        default=5.0,
        metadata=about("time without a row, holding, before the executor stops", "s", (0.1, 600.0)),
    )
    start_tolerance_rad: float = field(
        default=0.05,
        metadata=about(
            "largest distance of the first command from the measured joints",
            "rad",
            (0.0, math.inf),
        ),
    )
    start_policy: Literal["ramp", "refuse"] = field(
        default="ramp", metadata=about("beyond start_tolerance_rad: move there slowly, or stop")
    )
    start_velocity_scale: float = field(
        default=0.1,
        metadata=about(
            "speed of that ramp and of ~/home, as a share of the data sheet's", "", (0.001, 1.0)
        ),
    )
    instruction_policy: Literal["flush", "drain"] = field(
        default="flush",
        metadata=about(
            "a new instruction: slow down and ask anew, or finish the running chunk first"
        ),
    )
    max_tracking_error_rad: float = field(
        default=0.15,
        metadata=about(
            "largest distance between commanded and measured joints while commands go out; 0 or "
            "inf switches the check off; it never stops a dry run, which no robot follows",
            "rad",
            (0.0, math.inf),
        ),
    )
    max_joint_state_age_s: float = field(
        default=0.2, metadata=about("oldest usable joint state", "s", (0.01, 60.0))
    )
    require_enable: bool = field(default=True, metadata=about("motion needs the enable heartbeat"))
    enable_timeout_s: float = field(
        default=0.5, metadata=about("silence of enable that counts as released", "s", (0.05, 10.0))
    )
    robot_ready_timeout_s: float = field(
        default=0.5,
        metadata=about(
            "silence of robot_ready that counts as lost, once it has been heard", "s", (0.05, 10.0)
        ),
    )
    require_preflight: bool = field(
        default=True,
        metadata=about("~/resume and ~/home need a passed ~/preflight since the activation"),
    )
    allow_random_weights: bool = field(
        default=False,
        metadata=about(
            "execute chunks of a checkpoint with random weights on a real output (simulators)"
        ),
    )
    output: Literal["trajectory", "array", "joint_state"] = field(
        default="trajectory",
        metadata=about(
            "trajectory: trajectory_msgs/JointTrajectory on joint_trajectory; array: "
            "std_msgs/Float64MultiArray on position_commands; joint_state: sensor_msgs/JointState "
            "on joint_commands; the latter two only with allow_unwatched_output"
        ),
    )
    allow_unwatched_output: bool = field(
        default=False,
        metadata=about(
            "allow output array or joint_state, whose receiver does not come to rest by itself "
            "when this process dies"
        ),
    )
    command_rate_hz: int = field(
        default=250,
        metadata=about(
            "rate of output array and joint_state, resampled by cubics; a trajectory is sent at 15 "
            "Hz",
            "Hz",
            (RATE_HZ, 500),
        ),
    )
    lookahead_rows: int = field(
        default=8,
        metadata=about(
            "points of each trajectory; the arm can always come to rest within them",
            "rows",
            (4, 32),
        ),
    )
    velocity_scale: float = field(
        default=0.6, metadata=about("share of the data sheet's velocities", "", (0.001, 1.0))
    )
    acceleration_scale: float = field(
        default=0.25, metadata=about("share of the data sheet's accelerations", "", (0.001, 1.0))
    )
    max_smoothing_rad: float = field(
        default=0.03,
        metadata=about(
            "how far rows may be moved to smooth noise away that no arm can follow; 0: not at all",
            "rad",
            (0.0, 0.2),
        ),
    )
    max_tool_speed_m_s: float = field(
        default=0.5,
        metadata=about(
            "largest speed of the fingertip; inf switches the check off", "m/s", (0.01, math.inf)
        ),
    )
    tool_offset_m: tuple[float, ...] = field(
        default=(0.0, 0.0, 0.163),
        metadata=about(
            "fingertip in the flange's frame: x, y, z; the default is about that of a closed "
            "Robotiq 2F-85",
            "m",
            (-1.0, 1.0),
            (3,),
        ),
    )
    workspace: tuple[float, ...] = field(
        default=(),
        metadata=about(
            "box in the base's frame that fingertip, wrist and elbow stay in: x_min, y_min, z_min, "
            "x_max, y_max, z_max; empty: no box",
            "m",
            (-math.inf, math.inf),
            (0, 6),
        ),
    )
    table_height_m: float = field(
        default=-math.inf,
        metadata=about(
            "height in the base's frame that fingertip, wrist and elbow stay above; -inf: no table",
            "m",
            (-math.inf, 2.0),
        ),
    )
    home_rad: tuple[float, ...] = field(
        default=(),
        metadata=about(
            "where ~/home leads the arm; empty: the robot type's home",
            "rad",
            None,
            (0, JOINTS),
        ),
    )
    max_spike_rad: float = field(
        default=0.3,
        metadata=about(
            "a difference between two rows, or to the last command, that is no motion but an error",
            "rad",
            (_SMALL, math.inf),
        ),
    )
    tick_clock: Literal["steady", "ros"] = field(
        default="steady",
        metadata=about(
            "what ticks and timeouts follow: the steady clock, or ROS time (with use_sim_time, for "
            "simulators and lock-step replays)"
        ),
    )
    realtime_priority: int = field(
        default=20,
        metadata=about(
            "SCHED_FIFO priority of this process where the system permits it; 0: do not ask for it",
            "",
            (0, 98),
        ),
    )
    dry_run: bool = field(
        default=False,
        metadata=about("publish to command_preview instead of the output's topic"),
    )
    limits: CheckPolicies = field(default_factory=CheckPolicies)
    joint_limits: JointLimits = field(default_factory=JointLimits)
    gripper: GripperSettings = field(default_factory=GripperSettings)

    def __post_init__(self) -> None:
        """Refuse combinations that cannot work."""
        check_fields(self)
        robot = self.robot_type
        low, high = robot.position_min, robot.position_max
        for name, a, b, value in zip(robot.joint_names, low, high, self.home, strict=True):
            if not a <= value <= b:
                raise BadInputError(
                    f"home_rad of {name} is {value:g}, expected within its limits {a:g} to {b:g}"
                )
        axes = "xyz" if self.workspace else ""
        for axis, a, b in zip(axes, self.workspace[:3], self.workspace[3:], strict=True):
            if not a < b:
                raise BadInputError(
                    f"workspace has {axis}_min {a:g} and {axis}_max {b:g}, expected min < max"
                )
        if self.workspace and not self.table_height_m < self.workspace[5]:
            raise BadInputError(
                f"table_height_m is {self.table_height_m:g} and workspace has z_max "
                f"{self.workspace[5]:g}, expected table_height_m < z_max"
            )
        if self.output != "trajectory" and not self.allow_unwatched_output:
            raise BadInputError(
                f"output is {self.output}, whose receiver does not come to rest by itself when "
                "this process dies: set allow_unwatched_output to true, or output to trajectory"
            )
        if self.blend_rows > self.horizon:
            raise BadInputError(
                f"blend_rows is {self.blend_rows} and horizon is {self.horizon}, expected "
                "blend_rows <= horizon"
            )
        if self.mode == "prefix" and self.horizon == CHUNK_ROWS:
            raise BadInputError(
                f"horizon is {self.horizon} and mode is prefix, expected at most {CHUNK_ROWS} less "
                f"the latency in rows, so that rows are left to continue: {CHUNK_ROWS // 2} suits "
                "every latency that has a prefix"
            )

    @property
    def early(self) -> bool:
        """Whether rows belong to ticks, and the next chunk is asked for while one runs."""
        return self.mode in ("async", "average", "prefix")

    @property
    def rows_taken(self) -> int:
        """Rows of a chunk that are kept; in ``prefix`` all, which the next chunk continues."""
        return CHUNK_ROWS if self.mode == "prefix" else self.horizon

    @property
    def robot_type(self) -> RobotType:
        """The robot type with the limits of ``joint_limits``."""
        return self.joint_limits.apply(robot_type(self.robot))

    @property
    def home(self) -> tuple[float, ...]:
        """Where ~/home leads, rad [joints]."""
        return self.home_rad or self.robot_type.home

    @property
    def tracking_limit_rad(self) -> float:
        """max_tracking_error_rad, infinity where the check is off."""
        off = self.max_tracking_error_rad == 0.0 or self.dry_run
        return math.inf if off else self.max_tracking_error_rad
