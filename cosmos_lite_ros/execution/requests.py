# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Chunk requests: one outstanding, each with a number of its own, and how long answers take."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from cosmos_lite_ros.execution.clock import NS
from cosmos_lite_ros.execution.limiter import Floats
from cosmos_lite_ros.execution.modes import delay_rows


class RequestReason(IntEnum):
    """The values of ChunkRequest.reason."""

    FIRST = 0
    REFILL = 1
    INSTRUCTION = 2
    RESUME = 3


@dataclass(frozen=True, eq=False)
class Prefix:
    """Rows of the running chunk that the answer shall continue.

    Attributes:
        positions: float64 [n, joints] rad, the first one for the tick of the request.
        firm_rows: how many of them will have been executed when the answer comes.
    """

    positions: Floats
    firm_rows: int


@dataclass(frozen=True)
class Request:
    """One request for a chunk."""

    request_id: int
    epoch: int
    reason: RequestReason
    instruction: str
    instruction_sha256: str
    sent_ns: int
    prefix: Prefix | None = None


@dataclass(frozen=True)
class LatencySummary:
    """Time from a request to its chunk over the last answers, s; NaN before the second answer."""

    p50_s: float = math.nan
    p95_s: float = math.nan
    max_s: float = math.nan
    count: int = 0


class RequestTracker:
    """Invariants: at most one request is outstanding; request_id grows by one for each request."""

    def __init__(self, timeout_s: float, window: int = 64) -> None:
        self._timeout_ns = int(timeout_s * NS)
        self._latencies_s: deque[float] = deque(maxlen=window)
        self._summary = LatencySummary()
        self._warm = False
        self._next_id = 1
        self.outstanding: Request | None = None
        self.timeouts = 0

    def send(
        self,
        epoch: int,
        reason: RequestReason,
        instruction: str,
        sha256: str,
        now_ns: int,
        prefix: Prefix | None = None,
    ) -> Request:
        """A new request, which replaces an outstanding one."""
        request = Request(self._next_id, epoch, reason, instruction, sha256, now_ns, prefix)
        self._next_id += 1
        self.outstanding = request
        return request

    def answers(self, request_id: int, epoch: int) -> bool:
        """Whether a chunk with these numbers answers the outstanding request."""
        request = self.outstanding
        return request is not None and (request.request_id, request.epoch) == (request_id, epoch)

    def answered(self, now_ns: int) -> None:
        """The outstanding request has its answer. The first one (warm-up) enters no statistic."""
        if self.outstanding is not None and self._warm:
            self._latencies_s.append((now_ns - self.outstanding.sent_ns) / NS)
            self._summary = self._summarise()
        self._warm = True
        self.outstanding = None

    def expire(self, now_ns: int) -> bool:
        """Give up an outstanding request that is too old; True if there was one."""
        request = self.outstanding
        if request is None or now_ns - request.sent_ns < self._timeout_ns:
            return False
        self.outstanding = None
        self.timeouts += 1
        return True

    def forget(self) -> None:
        """Nothing is outstanding any more: its answer will be foreign."""
        self.outstanding = None

    def forget_latency(self) -> None:
        """Another policy may answer from now on: what was measured means nothing any more."""
        self._latencies_s.clear()
        self._summary = LatencySummary()
        self._warm = False

    def latency(self) -> LatencySummary:
        """Statistic of the last answers."""
        return self._summary

    def _summarise(self) -> LatencySummary:
        p50, p95 = np.quantile(self._latencies_s, [0.5, 0.95])
        return LatencySummary(
            float(p50), float(p95), max(self._latencies_s), len(self._latencies_s)
        )

    def rows_needed(self, margin_rows: int) -> float:
        """Rows that must remain when a refill is asked for; infinity while nothing is measured."""
        if not self._latencies_s:
            return math.inf
        return delay_rows(self.latency().p95_s) + margin_rows
