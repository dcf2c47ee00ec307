# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Settings of the executor node: those of motion, and what only a node has.

``execution.settings`` knows no ROS; here are the gripper's actions, the clock of the tick, the
outputs, real-time scheduling and the preflight of an operator.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Literal

from cosmos_lite_ros.errors import BadInputError
from cosmos_lite_ros.execution.settings import ExecutorSettings, GripperSettings
from cosmos_lite_ros.execution.settings_groups import about


@dataclass(frozen=True)
class NodeGripperSettings(GripperSettings):
    """The gripper, and how it is reached."""

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

    def __post_init__(self) -> None:
        """Refuse an action without a joint."""
        super().__post_init__()
        if self.action_type == "parallel_gripper_command" and not self.joint:
            raise BadInputError(
                "gripper.joint is empty, expected the joint that a ParallelGripperCommand moves"
            )


@dataclass(frozen=True)
class NodeSettings(ExecutorSettings):
    """Everything that the executor node can be told; see each field's description.

    Raises:
        BadInputError: a combination that cannot work.
    """

    require_preflight: bool = field(
        default=True,
        metadata=about("~/resume and ~/home need a passed ~/preflight since the activation"),
    )
    output: Literal["trajectory", "array", "joint_state"] = field(
        default="trajectory",
        metadata=about(
            "trajectory: trajectory_msgs/JointTrajectory on joint_trajectory; array: "
            "std_msgs/Float64MultiArray on position_commands; joint_state: sensor_msgs/JointState "
            "on joint_commands; the latter two only with allow_unwatched_output"
        ),
    )
    tick_clock: Literal["steady", "ros"] = field(
        default="steady",
        metadata=about(
            "what ticks and timeouts follow: the steady clock, or ROS time (with use_sim_time, for "
            "simulators and lock-step replays)"
        ),
    )
    dry_run: bool = field(
        default=False,
        metadata=about("publish to command_preview instead of the output's topic"),
    )
    realtime_priority: int = field(
        default=20,
        metadata=about(
            "SCHED_FIFO priority of this process where the system permits it; 0: do not ask for it",
            "",
            (0, 98),
        ),
    )
    gripper: NodeGripperSettings = field(default_factory=NodeGripperSettings)

    def check_available(self) -> None:
        """Refuse what this version does not have.

        Raises:
            UnavailableError: names the parameter, its value and the values that work.
        """
        # What the node adds is there; the rest is judged where it is made.
        plain = replace(
            self,
            output="trajectory",
            tick_clock="steady",
            require_preflight=False,
            gripper=NodeGripperSettings(),
        )
        ExecutorSettings.check_available(plain)
