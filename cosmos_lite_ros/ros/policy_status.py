# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What the policy node says about itself: PolicyStatus and diagnostics."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from diagnostic_msgs.msg import DiagnosticStatus

from cosmos_lite_ros.contract.cameras import CameraStatus
from cosmos_lite_ros.contract.constants import RATE_HZ, VIEWS, View
from cosmos_lite_ros.contract.observation import instruction_hash
from cosmos_lite_ros.msg import PolicyStatus
from cosmos_lite_ros.policy.process import host_anonymous_bytes
from cosmos_lite_ros.ros.diagnostics import Level, status
from cosmos_lite_ros.ros.policy_loader import Step

# A camera below this share of the policy's rate gets the hint about Fast DDS.
_LOW_RATE_SHARE = 0.9
STATE_NAMES = {
    PolicyStatus.LOADING: "LOADING",
    PolicyStatus.WARMING: "WARMING",
    PolicyStatus.READY: "READY",
    PolicyStatus.BUSY: "BUSY",
    PolicyStatus.ERROR: "ERROR",
}


@dataclass(frozen=True)
class Snapshot:
    """Everything that a status says, at one instant."""

    state: int
    step: Step
    requested: str = "{}"
    effective: str = "{}"
    instruction: str = ""
    latencies_s: tuple[float, float, float] = (math.nan, math.nan, math.nan)
    answered: int = 0
    skipped: int = 0
    skip_reason: str = ""
    cameras: Mapping[View, CameraStatus] = field(default_factory=dict)
    gpu_reserved_bytes: int = 0
    text_cache: tuple[int, int] = (0, 0)
    recompiles: int = 0
    random_weights: bool = False
    error: str = ""


def _or_nan(value: float) -> float:
    return value if math.isfinite(value) else math.nan


def status_message(snapshot: Snapshot) -> PolicyStatus:
    """The PolicyStatus of a snapshot, without its stamp."""
    message = PolicyStatus()
    message.state = snapshot.state
    message.progress = float(snapshot.step.progress)
    message.step = snapshot.step.name
    message.requested = snapshot.requested
    message.effective = snapshot.effective
    message.instruction = snapshot.instruction
    if snapshot.instruction:
        message.instruction_sha256 = instruction_hash(snapshot.instruction)
    (
        message.latency_p50_s,
        message.latency_p95_s,
        message.latency_max_s,
    ) = snapshot.latencies_s
    message.requests = snapshot.answered
    message.skipped = snapshot.skipped
    message.last_skip_reason = snapshot.skip_reason
    cameras = [snapshot.cameras.get(view) for view in VIEWS]
    message.image_age_header_s = np.array(
        [_or_nan(c.header_age_s) if c else math.nan for c in cameras]
    )
    message.image_age_arrival_s = np.array(
        [_or_nan(c.arrival_age_s) if c else math.nan for c in cameras]
    )
    message.image_rate_hz = np.array([c.rate_hz if c else 0.0 for c in cameras])
    message.gpu_reserved_bytes = snapshot.gpu_reserved_bytes
    message.recompiles = snapshot.recompiles
    message.host_anonymous_bytes = host_anonymous_bytes()
    message.text_cache_hits, message.text_cache_misses = snapshot.text_cache
    message.random_weights = snapshot.random_weights
    message.error = snapshot.error
    return message


def camera_diagnostic(
    view: View, camera: CameraStatus | None, *, problem: str, max_age_s: float, raw: bool
) -> DiagnosticStatus:
    """One camera: what arrives, how old it is, and what to do when that is not enough.

    ``problem`` is a quality-of-service mismatch, empty where there is none.
    """
    name = f"camera {view}"
    if camera is None or not camera.received:
        return status(name, Level.ERROR, problem or "no image since the node was configured")
    values = {
        "received": camera.received,
        "rate_hz": camera.rate_hz,
        "age_header_s": camera.header_age_s,
        "age_arrival_s": camera.arrival_age_s,
        "decode_failures": camera.decode_failures,
        "size": f"{camera.width}x{camera.height}",
    }
    if camera.arrival_age_s > max_age_s:
        line = f"no image for {camera.arrival_age_s:.2f} s"
        return status(name, Level.ERROR, f"{line}: {problem}" if problem else line, values)
    if camera.error:
        return status(name, Level.ERROR, camera.error, values)
    if problem:
        return status(name, Level.WARN, problem, values)
    if camera.stamp_problem:
        line = f"header stamps are {camera.stamp_problem}: the time of arrival is used instead"
        return status(name, Level.WARN, line, values)
    if camera.rate_hz < _LOW_RATE_SHARE * RATE_HZ:
        hint = (
            "; start the camera driver with FASTRTPS_DEFAULT_PROFILES_FILE set to our fastdds.xml, "
            "or use image_transport:=compressed"
            if raw
            else ""
        )
        line = f"{camera.rate_hz:.1f} Hz arrive, expected at least {RATE_HZ}{hint}"
        return status(name, Level.WARN, line, values)
    return status(name, Level.OK, f"{camera.rate_hz:.1f} Hz", values)


def engine_diagnostic(snapshot: Snapshot) -> DiagnosticStatus:
    """The policy itself."""
    p50, p95, worst = snapshot.latencies_s
    values = {
        "latency_p50_s": p50,
        "latency_p95_s": p95,
        "latency_max_s": worst,
        "requests": snapshot.answered,
        "skipped": snapshot.skipped,
        "last_skip_reason": snapshot.skip_reason,
        "text_cache_hits": snapshot.text_cache[0],
        "text_cache_misses": snapshot.text_cache[1],
        "random_weights": snapshot.random_weights,
    }
    state = STATE_NAMES[snapshot.state]
    if snapshot.error:
        return status("engine", Level.ERROR, f"{state}: {snapshot.error}", values)
    if snapshot.state in (PolicyStatus.LOADING, PolicyStatus.WARMING):
        line = f"{state}: {snapshot.step.name}, {snapshot.step.progress:.0%}"
        return status("engine", Level.WARN, line, values)
    if snapshot.skip_reason:
        return status("engine", Level.WARN, f"{state}: {snapshot.skip_reason}", values)
    return status("engine", Level.OK, state, values)
