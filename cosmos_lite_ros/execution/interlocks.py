# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What motion needs besides rows: enable, no emergency stop, a robot that follows, a clock."""

from __future__ import annotations

from cosmos_lite_ros.execution.clock import NS
from cosmos_lite_ros.execution.joint_watch import JointWatch
from cosmos_lite_ros.execution.machine import StopReason
from cosmos_lite_ros.execution.settings import ExecutorSettings


class Interlocks:
    """The enable and robot_ready heartbeats, the emergency stop, the receiver of the commands and
    the age of the joint states.

    Invariants: silence of ``enable`` for its timeout is a release; ``robot_ready`` counts from its
    first message on, and then its silence is a loss; a release, or the end of anything that was
    lost, starts nothing.
    """

    def __init__(self, settings: ExecutorSettings, joints: JointWatch) -> None:
        self._settings = settings
        self._joints = joints
        self._timeout_ns = int(settings.enable_timeout_s * NS)
        self._enable = False
        self._enable_ns: int | None = None
        self._ready_timeout_ns = int(settings.robot_ready_timeout_s * NS)
        self._ready = False
        self._ready_ns: int | None = None
        self.emergency_stop = False
        # Whether somebody receives the commands; a preview needs nobody.
        self.followed = True

    def enable(self, value: bool, now_ns: int) -> None:
        """One heartbeat; false releases at once."""
        self._enable, self._enable_ns = value, now_ns

    def enabled(self, now_ns: int) -> bool:
        """Whether motion is enabled."""
        if not self._settings.require_enable:
            return True
        heard = self._enable_ns
        return self._enable and heard is not None and now_ns - heard <= self._timeout_ns

    def robot_ready(self, value: bool, now_ns: int) -> None:
        """One heartbeat of a driver; false is a loss at once."""
        self._ready, self._ready_ns = value, now_ns

    def lost(self, now_ns: int, ros_ns: int) -> tuple[StopReason, str] | None:
        """Why motion must end now, if it must."""
        if not self.enabled(now_ns):
            return StopReason.ENABLE_LOST, self._why_not_enabled(now_ns)
        unready = self._why_not_ready(now_ns)
        if unready:
            return StopReason.CONTROLLER_LOST, unready
        stale = self._stale(now_ns, ros_ns)
        return (StopReason.JOINT_STATE_STALE, stale) if stale else None

    def missing(self, now_ns: int, ros_ns: int) -> str:
        """Why motion may not begin, one line; empty when it may."""
        if not self.emergency_stop and not self.enabled(now_ns):
            return self._why_not_enabled(now_ns)
        return next(iter(self.problems(now_ns, ros_ns)), "")

    def problems(self, now_ns: int, ros_ns: int) -> list[str]:
        """Everything that is not ready, one line each; the operator's enable does not belong to it.

        The age of a joint state needs a clock, so without one it is not judged.
        """
        stop = "emergency_stop is true: publish false on it first" if self.emergency_stop else ""
        clock = "waiting for /clock: use_sim_time is set and nobody publishes it"
        last = clock if ros_ns <= 0 else self._stale(now_ns, ros_ns)
        return [line for line in (stop, self._why_not_ready(now_ns), last) if line]

    def _why_not_ready(self, now_ns: int) -> str:
        if not self.followed and not self._settings.dry_run:
            return "nobody is subscribed to the commands: start the controller"
        if self._ready_ns is None:
            return ""
        if not self._ready:
            return "robot_ready is false: clear the robot's error with its own tools"
        silence_ns = now_ns - self._ready_ns
        if silence_ns <= self._ready_timeout_ns:
            return ""
        limit_s = self._settings.robot_ready_timeout_s
        return f"robot_ready has been silent for {silence_ns / NS:.2f} s, expected {limit_s:g}"

    def _stale(self, now_ns: int, ros_ns: int) -> str:
        limit_s = self._settings.max_joint_state_age_s
        # Not "age > limit": the age may be infinite or not a number.
        if self._joints.age_s(now_ns, ros_ns) <= limit_s:
            return ""
        return self._joints.why_stale(now_ns, ros_ns, limit_s)

    def _why_not_enabled(self, now_ns: int) -> str:
        if self._enable_ns is None:
            return "enable has never been heard: publish true on enable at 5 Hz or more"
        if not self._enable:
            return "enable is false: hold the enabling device"
        silence_s = (now_ns - self._enable_ns) / NS
        return f"enable has been silent for {silence_s:.2f} s: publish true at 5 Hz or more"
