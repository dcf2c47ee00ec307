# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What motion needs besides rows: enable, no emergency stop, fresh joint states, a clock."""

from __future__ import annotations

from cosmos_lite_ros.execution.clock import NS
from cosmos_lite_ros.execution.joint_watch import JointWatch
from cosmos_lite_ros.execution.machine import StopReason
from cosmos_lite_ros.execution.settings import ExecutorSettings


class Interlocks:
    """The enable heartbeat, the emergency stop and the age of the joint states.

    Invariants: silence of ``enable`` for its timeout is a release; a release or an end of the
    emergency stop starts nothing.
    """

    def __init__(self, settings: ExecutorSettings, joints: JointWatch) -> None:
        self._settings = settings
        self._joints = joints
        self._timeout_ns = int(settings.enable_timeout_s * NS)
        self._enable = False
        self._enable_ns: int | None = None
        self.emergency_stop = False

    def enable(self, value: bool, now_ns: int) -> None:
        """One heartbeat; false releases at once."""
        self._enable, self._enable_ns = value, now_ns

    def enabled(self, now_ns: int) -> bool:
        """Whether motion is enabled."""
        if not self._settings.require_enable:
            return True
        heard = self._enable_ns
        return self._enable and heard is not None and now_ns - heard <= self._timeout_ns

    def lost(self, now_ns: int, ros_ns: int) -> tuple[StopReason, str] | None:
        """Why motion must end now, if it must."""
        if not self.enabled(now_ns):
            return StopReason.ENABLE_LOST, self._why_not_enabled(now_ns)
        stale = self._stale(now_ns, ros_ns)
        return (StopReason.JOINT_STATE_STALE, stale) if stale else None

    def missing(self, now_ns: int, ros_ns: int) -> str:
        """Why motion may not begin, one line; empty when it may."""
        if self.emergency_stop:
            return "emergency_stop is true: publish false on it first"
        if not self.enabled(now_ns):
            return self._why_not_enabled(now_ns)
        if ros_ns <= 0:
            return "waiting for /clock: use_sim_time is set and nobody publishes it"
        return self._stale(now_ns, ros_ns)

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
