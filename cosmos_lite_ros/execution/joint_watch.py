# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The measured joints at the executor, and how old they are."""

from __future__ import annotations

import math
from collections import deque

import numpy as np

from cosmos_lite_ros.contract.joints import JointStateBuffer, JointStateMessage
from cosmos_lite_ros.contract.robots import RobotType
from cosmos_lite_ros.execution.clock import NS
from cosmos_lite_ros.execution.limiter import Floats

# Time over which the arm is watched to see whether it stands still, and what counts as that: far
# above the noise of encoders and the drift of an arm that is held.
_SPAN_NS = 100_000_000
_STILL_RAD_S = 0.05


class JointWatch:
    """Joint states by name, their age by arrival on the steady clock and by their stamps.

    The age is the larger of the two, so neither a silent driver nor one that repeats old states
    passes. A jump of ROS time makes old stamps meaningless: until the next message the age by
    arrival counts alone.
    """

    def __init__(self, robot: RobotType) -> None:
        self.buffer = JointStateBuffer(robot.joint_names)
        self._order = robot.joint_names
        self._names = frozenset(robot.joint_names)
        self._arrival_ns: int | None = None
        self._positions: Floats | None = None
        # Why the newest message was refused; empty once a good one has come.
        self._refused = ""
        # The newest positions and when they arrived, over a little more than _SPAN_NS.
        self._recent: deque[tuple[int, Floats]] = deque()

    def push(self, message: JointStateMessage, now_ns: int, ros_ns: int) -> None:
        """Take a sensor_msgs/JointState; ``now_ns`` steady, ``ros_ns`` ROS time of arrival."""
        if not self.buffer.push(message, ros_ns):
            self._refused = self.buffer.last_problem
            return
        sample = self.buffer.newest()
        if sample is not None:
            self._positions = np.array(sample.positions)
            self._arrival_ns = now_ns
            self._refused = ""
            recent = self._recent
            if recent and now_ns < recent[-1][0]:
                # The clock was set back.
                recent.clear()
            recent.append((now_ns, self._positions))
            while len(recent) > 2 and now_ns - recent[1][0] >= _SPAN_NS:
                recent.popleft()
        elif any(
            name in self._names and not math.isfinite(position)
            for name, position in zip(message.name, message.position, strict=True)
        ):
            # Unlike a joint that is only awaited, one that is not finite ends what was known.
            self._positions = self._arrival_ns = None
            self._recent.clear()

    def why_not_still(self) -> str:
        """Why the arm may be moving, one line; empty when it was seen standing still."""
        if len(self._recent) < 2 or self._recent[-1][0] == self._recent[0][0]:
            return "it is not known yet whether the arm stands still: try again"
        (t0, before), (t1, after) = self._recent[0], self._recent[-1]
        speed = np.abs(after - before) * NS / (t1 - t0)
        joint = int(np.argmax(speed))
        if speed[joint] <= _STILL_RAD_S:
            return ""
        name = self._order[joint]
        return f"the arm is moving ({name} at {speed[joint]:.2f} rad/s): wait until it stands still"

    def time_jumped(self) -> None:
        """ROS time has jumped."""
        self.buffer.reset()

    @property
    def positions(self) -> Floats | None:
        """Newest measured joints, rad [joints] in the robot type's order; None before the first."""
        return self._positions

    def age_s(self, now_ns: int, ros_ns: int) -> float:
        """Age of the oldest joint, s; infinity while a joint is unknown."""
        if self._arrival_ns is None:
            return math.inf
        by_arrival = (now_ns - self._arrival_ns) / NS
        if self.buffer.not_ready():
            return by_arrival
        _, stamp_ns, _ = self.buffer.oldest_joint(gripper=False)
        return max(by_arrival, (ros_ns - stamp_ns) / NS)

    def why_stale(self, now_ns: int, ros_ns: int, limit_s: float) -> str:
        """One line that explains an age above the limit."""
        if self._arrival_ns is None:
            return self.buffer.not_ready() or self.buffer.last_problem
        silence = (now_ns - self._arrival_ns) / NS
        name, stamp_ns, _ = self.buffer.oldest_joint(gripper=False)
        age = (ros_ns - stamp_ns) / NS
        # Silence, unless the stamps lag behind the arrivals by more than the limit themselves.
        if silence > limit_s or age - silence <= limit_s:
            said = f"no joint state for {silence:.2f} s, expected at most {limit_s:g} s"
            return said + (f"; {self._refused}" if self._refused else "")
        return (
            f"the state of {name} is {age:.3f} s old by its stamp, expected at most {limit_s:g} s: "
            "synchronise the clocks, or use_sim_time with a recording's /clock"
        )
