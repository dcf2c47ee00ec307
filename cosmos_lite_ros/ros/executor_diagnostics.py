# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What the executor tells people: ``/diagnostics`` once a second and ``~/describe``."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
from diagnostic_msgs.msg import DiagnosticStatus

from cosmos_lite_ros.contract.constants import RATE_HZ, ROW_PERIOD_S
from cosmos_lite_ros.execution.clock import NS
from cosmos_lite_ros.execution.core import ExecutorCore
from cosmos_lite_ros.execution.machine import State, StopReason
from cosmos_lite_ros.execution.modes import why_impossible
from cosmos_lite_ros.execution.settings import ExecutorSettings
from cosmos_lite_ros.ros.diagnostics import Level, status
from cosmos_lite_ros.ros.executor_gripper import Gripper
from cosmos_lite_ros.ros.parameters import flatten

# Lateness is counted in buckets of this width, s, up to the number of them.
_BUCKET_S, _BUCKETS = 2e-5, 5000
# How long one histogram is filled before the next one begins.
_WINDOW_S = 300.0
# States in which standing still is what somebody wanted.
_WANTED = (StopReason.NONE, StopReason.NOT_ARMED, StopReason.OPERATOR, StopReason.SHUTDOWN)


class Lateness:
    """Lateness over the last five to ten minutes; ``add`` is called at each tick and costs nothing.

    Buckets instead of values: a summary takes as long after an hour as after a second, and the tick
    need not wait for it.
    """

    def __init__(self) -> None:
        self._old, self._new = [0] * _BUCKETS, [0] * _BUCKETS
        self._max_s = [0.0, 0.0]
        self._begun_s = time.monotonic()

    def add(self, lateness_s: float) -> None:
        """One tick."""
        self._new[min(int(lateness_s / _BUCKET_S), _BUCKETS - 1)] += 1
        if lateness_s > self._max_s[1]:
            self._max_s[1] = lateness_s

    def summary(self) -> dict[str, object]:
        """p50, p95 and p99 (upper ends of buckets) and max in s, and the number of ticks."""
        counts = np.array(self._old) + np.array(self._new)
        longest = max(self._max_s)
        if time.monotonic() - self._begun_s > _WINDOW_S:
            self._old, self._new = self._new, [0] * _BUCKETS
            self._max_s = [self._max_s[1], 0.0]
            self._begun_s = time.monotonic()
        reached = np.cumsum(counts)
        if not reached[-1]:
            return {"ticks": 0}
        found: dict[str, object] = {"ticks": int(reached[-1])}
        for percent in (50, 95, 99):
            bucket = int(np.searchsorted(reached, reached[-1] * percent / 100))
            found[f"lateness_p{percent}_s"] = min((bucket + 1) * _BUCKET_S, longest)
        return {**found, "lateness_max_s": longest}


def motion_status(core: ExecutorCore, commands_to: str) -> DiagnosticStatus:
    """State and reason."""
    machine = core.machine
    level = Level.OK
    if machine.stopped and machine.stop_reason not in _WANTED:
        level = Level.ERROR
    elif machine.state is State.UNDERRUN and core.settings.mode != "sync":
        level = Level.WARN
    label = machine.state.name
    if machine.stopped:
        label += f"({machine.stop_reason.name})"
    values = {**vars(core.counters), "epoch": core.epoch, "commands to": commands_to}
    return status("motion", level, f"{label}: {machine.text}".rstrip(": "), values)


def policy_status(core: ExecutorCore, publishers: str, listening: bool) -> DiagnosticStatus:
    """The other end of chunk_request and action_chunk; ``publishers``: a fault, or empty."""
    latency = core.requests.latency()
    values: dict[str, object] = {
        "latency_p50_s": latency.p50_s,
        "latency_p95_s": latency.p95_s,
        "latency_max_s": latency.max_s,
        "requests unanswered": core.requests.timeouts,
        "last error": core.incidents.chunk,
        "instruction": core.instruction,
    }
    if publishers:
        return status("policy", Level.ERROR, publishers, values)
    if not listening:
        text = "no policy is subscribed to chunk_request"
        return status("policy", Level.WARN, text, values)
    # Motion goes on, but not as the mode says: with underruns, or without rows to continue.
    for line in (core.incidents.instruction, why_impossible(core.settings, latency.p95_s)):
        if line:
            return status("policy", Level.WARN, line, values)
    return status("policy", Level.OK, "", values)


def joints_status(core: ExecutorCore, now_ns: int, ros_ns: int) -> DiagnosticStatus:
    """Age of the joint states and what was wrong with messages."""
    watch, limit_s = core.joints, core.settings.max_joint_state_age_s
    age_s = watch.age_s(now_ns, ros_ns)
    values: dict[str, object] = {"age_s": age_s, **watch.buffer.counts}
    if watch.buffer.last_problem:
        values["last problem"] = watch.buffer.last_problem
    if not age_s <= limit_s:
        return status("joints", Level.ERROR, watch.why_stale(now_ns, ros_ns, limit_s), values)
    if watch.buffer.stamp_problem:
        text = f"stamp is {watch.buffer.stamp_problem}: the time of arrival is used instead"
        return status("joints", Level.WARN, text, values)
    return status("joints", Level.OK, "", values)


def clock_status(core: ExecutorCore, ros_ns: int) -> DiagnosticStatus:
    """ROS time against the steady clock."""
    offset = core.offset.offset_ns
    values: dict[str, object] = {
        "offset_s": math.nan if offset is None else offset / NS,
        "jumps": core.offset.jumps,
    }
    if ros_ns <= 0:
        text = "waiting for /clock: use_sim_time is set and nobody publishes it"
        return status("clock", Level.WARN, text, values)
    level = Level.WARN if core.offset.jumps else Level.OK
    return status("clock", level, core.incidents.clock, values)


def qos_status(problems: Mapping[str, str]) -> DiagnosticStatus:
    """Topics with incompatible quality of service."""
    level = Level.ERROR if problems else Level.OK
    return status("topics", level, "; ".join(problems.values()))


def gripper_status(gripper: Gripper, *, dry_run: bool) -> DiagnosticStatus:
    """How the gripper is reached, and what became of its commands."""
    if dry_run:
        return status("gripper", Level.OK, "dry_run: it is not commanded", gripper.report())
    problem = gripper.problem()
    return status("gripper", Level.WARN if problem else Level.OK, problem, gripper.report())


def describe(
    settings: ExecutorSettings, core: ExecutorCore | None, more: Mapping[str, object]
) -> str:
    """JSON of what was asked for and what is in effect; ``more`` of the latter."""
    effective: dict[str, Any] = {}
    if core is not None:
        limits = core.limits
        effective = {
            "state": core.machine.state.name,
            "stop_reason": core.machine.stop_reason.name,
            "epoch": core.epoch,
            "instruction": core.instruction,
            "rate_hz": RATE_HZ,
            "joint_names": core.robot.joint_names,
            "position_min_rad": limits.position_min.tolist(),
            "position_max_rad": limits.position_max.tolist(),
            "velocity_max_rad_s": limits.velocity.tolist(),
            "acceleration_max_rad_s2": limits.acceleration.tolist(),
            "tracking_limit_rad": _finite(settings.tracking_limit_rad),
            "speed_that_lookahead_can_stop_rad_s": (
                limits.acceleration * ROW_PERIOD_S * (settings.lookahead_rows - 1)
            ).tolist(),
            **more,
        }
    requested = {name: _finite(value) for name, value in flatten(settings).items()}
    return json.dumps({"requested": requested, "effective": effective})


def _finite(value: object) -> object:
    """JSON has no infinity."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
