# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Ticks at absolute deadlines on the steady clock."""

from __future__ import annotations

from dataclasses import dataclass

from cosmos_lite_ros.contract.constants import RATE_HZ
from cosmos_lite_ros.execution.clock import NS


@dataclass(frozen=True)
class TickGrid:
    """Tick k begins origin_ns + k / rate_hz after the steady clock's zero. Exact: no drift."""

    origin_ns: int
    rate_hz: int = RATE_HZ

    def deadline_ns(self, tick: int) -> int:
        """The instant at which a tick begins, ns of the steady clock."""
        return self.origin_ns + tick * NS // self.rate_hz

    def running(self, steady_ns: int) -> int:
        """The newest tick that has begun."""
        # deadline_ns rounds down, so the quotient may be one too small just at a deadline.
        tick = (steady_ns - self.origin_ns) * self.rate_hz // NS
        return tick + 1 if self.deadline_ns(tick + 1) <= steady_ns else tick

    def nearest(self, steady_ns: int) -> int:
        """The tick that begins nearest to an instant."""
        return ((steady_ns - self.origin_ns) * self.rate_hz * 2 + NS) // (2 * NS)


@dataclass(frozen=True)
class Arrival:
    """One tick that runs now: its number, how late it is, and how many were skipped before it."""

    tick: int
    lateness_ns: int
    skipped: int


class Ticker:
    """Hands out ticks in order: each at most once, none before its deadline, never a burst.

    A tick later than a whole period is skipped: the newest one that has begun runs in its place.
    """

    def __init__(self, grid: TickGrid, first: int = 0) -> None:
        self.grid = grid
        self._next = first

    @property
    def deadline_ns(self) -> int:
        """When the next tick begins, ns of the steady clock."""
        return self.grid.deadline_ns(self._next)

    def arrive(self, now_ns: int) -> Arrival | None:
        """The tick to run now, or None when it is too early."""
        if now_ns < self.deadline_ns:
            return None
        tick = max(self._next, self.grid.running(now_ns))
        skipped = tick - self._next
        self._next = tick + 1
        return Arrival(tick, now_ns - self.grid.deadline_ns(tick), skipped)
