# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What one tick of the executor gives out."""

from __future__ import annotations

import math
from dataclasses import dataclass

from cosmos_lite_ros.execution.limiter import Floats
from cosmos_lite_ros.execution.machine import State, StopReason
from cosmos_lite_ros.execution.requests import Request
from cosmos_lite_ros.execution.trajectory import Trajectory


@dataclass
class Counters:
    """Counters since the node was configured; names as in ExecutorStatus.msg."""

    ticks_late: int = 0
    requests_sent: int = 0
    chunks_accepted: int = 0
    chunks_rejected: int = 0
    chunks_expired: int = 0
    chunks_foreign: int = 0
    underruns: int = 0
    gate_clamped: int = 0
    commands_sent: int = 0


@dataclass(frozen=True, eq=False)
class Status:
    """The content of ExecutorStatus.msg but its header; see there for every field."""

    state: State
    stop_reason: StopReason
    reason: str
    tick: int
    epoch: int
    rows_left: int
    instruction_sha256: str
    lateness_s: float
    dry_run: bool
    counters: Counters
    chunk_id: int = 0
    row: int = -1
    commanded: Floats | None = None
    requested: Floats | None = None
    gripper: float = math.nan
    gate_flags: int = 0
    observation_age_s: float = math.nan
    tracking_error_rad: float = math.nan


@dataclass(frozen=True, eq=False)
class TickOutput:
    """What to publish after a tick; None where there is nothing to publish."""

    status: Status
    trajectory: Trajectory | None = None
    gripper: float | None = None
    request: Request | None = None


@dataclass(frozen=True)
class Answer:
    """Answer to an operator: success and one line."""

    success: bool
    message: str


@dataclass
class TickNotes:
    """What is collected while a tick runs."""

    flags: int = 0
    chunk_id: int = 0
    row: int = -1
    requested: Floats | None = None
    trajectory: Trajectory | None = None
    gripper: float | None = None
    request: Request | None = None
    tracking_error_rad: float = math.nan


@dataclass
class Incidents:
    """The newest line on each kind of incident, for the diagnostics."""

    chunk: str = ""
    instruction: str = ""
    clock: str = ""
