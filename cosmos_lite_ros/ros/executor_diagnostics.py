# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What the executor tells people: ``/diagnostics`` once a second and ``~/describe``."""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np
from diagnostic_msgs.msg import DiagnosticStatus

from cosmos_lite_ros.contract.constants import RATE_HZ, ROW_PERIOD_S
from cosmos_lite_ros.execution.clock import NS
from cosmos_lite_ros.execution.core import ExecutorCore
from cosmos_lite_ros.execution.machine import State, StopReason
from cosmos_lite_ros.execution.settings import ExecutorSettings
from cosmos_lite_ros.ros.diagnostics import Level, status
from cosmos_lite_ros.ros.parameters import flatten

# Five minutes of ticks.
_WINDOW = 300 * RATE_HZ
# States in which standing still is what somebody wanted.
_WANTED = (StopReason.NONE, StopReason.NOT_ARMED, StopReason.OPERATOR, StopReason.SHUTDOWN)


class TickStatistics:
    """Lateness of the newest ticks; ``add`` is called by the tick thread and costs nothing."""

    def __init__(self) -> None:
        self._lateness_s: deque[float] = deque(maxlen=_WINDOW)

    def add(self, lateness_s: float) -> None:
        """One tick."""
        self._lateness_s.append(lateness_s)

    def summary(self) -> dict[str, object]:
        """p50, p99 and max in s, and the number of ticks."""
        values = list(self._lateness_s)
        if not values:
            return {"ticks": 0}
        p50, p99 = np.quantile(values, [0.5, 0.99])
        return {
            "lateness_p50_s": float(p50),
            "lateness_p99_s": float(p99),
            "lateness_max_s": max(values),
            "ticks": len(values),
        }


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
    if core.incidents.instruction:
        return status("policy", Level.WARN, core.incidents.instruction, values)
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


def describe(settings: ExecutorSettings, core: ExecutorCore | None, topics: list[str]) -> str:
    """JSON of what was asked for and what is in effect."""
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
            "preflight": "not available in this version",
            "topics": topics,
        }
    requested = {name: _finite(value) for name, value in flatten(settings).items()}
    return json.dumps({"requested": requested, "effective": effective})


def _finite(value: object) -> object:
    """JSON has no infinity."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
