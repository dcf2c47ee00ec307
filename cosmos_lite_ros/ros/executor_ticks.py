# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Threads that run at absolute deadlines, and the clock that the deadlines are on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol

from cosmos_lite_ros.execution.clock import NS
from cosmos_lite_ros.execution.ticker import Arrival, Ticker, TickGrid

# How often ROS time is looked at while a tick waits for it, s.
_ROS_POLL_S = 0.002
# One message of /clock that goes further ahead is a jump, not a quick simulator.
_LEAP_NS = NS


class MotionClock(Protocol):
    """The clock of motion: never goes back, whatever ROS time does."""

    def read(self) -> tuple[int, int]:
        """This clock and ROS time at one instant, ns; ROS time is 0 while /clock is awaited."""

    def wait_until(self, deadline_ns: int, ended: threading.Event) -> int:
        """Wait for an instant of this clock, ns, or until ``ended``; returns this clock."""


class SteadyClock:
    """The steady clock of the system; ROS time only dates messages."""

    def __init__(self, ros_now_ns: Callable[[], int] = time.time_ns) -> None:
        self._ros_now_ns = ros_now_ns

    def read(self) -> tuple[int, int]:
        """See MotionClock."""
        return time.monotonic_ns(), self._ros_now_ns()

    def wait_until(self, deadline_ns: int, ended: threading.Event) -> int:
        """See MotionClock. ``ended`` is not looked at: a period is short."""
        now_ns = time.monotonic_ns()
        while (left_ns := deadline_ns - now_ns) > 0:
            time.sleep(left_ns / NS)
            now_ns = time.monotonic_ns()
        return now_ns


class RosClock:
    """A clock that goes with ROS time, for simulators and lock-step replays.

    It stands still with ROS time. When ROS time jumps, back or by more than a second ahead, this
    clock goes on from where it was, so that the offset between the two tells of the jump.
    """

    def __init__(self, ros_now_ns: Callable[[], int]) -> None:
        self._ros_now_ns = ros_now_ns
        self._lock = threading.Lock()
        self._now_ns = time.monotonic_ns()
        self._ros_ns = 0

    def read(self) -> tuple[int, int]:
        """See MotionClock."""
        with self._lock:
            ros_ns = self._ros_now_ns()
            if ros_ns > 0:
                passed_ns = ros_ns - self._ros_ns if self._ros_ns else 0
                if 0 <= passed_ns <= _LEAP_NS:
                    self._now_ns += passed_ns
                self._ros_ns = ros_ns
            return self._now_ns, ros_ns

    def wait_until(self, deadline_ns: int, ended: threading.Event) -> int:
        """See MotionClock."""
        while (now_ns := self.read()[0]) < deadline_ns and not ended.wait(_ROS_POLL_S):
            pass
        return now_ns


class TickThread:
    """Calls ``work(arrival, now_ns)`` at each tick until it is told to end.

    An exception in ``work`` ends the thread and is kept in ``error``: the arm comes to rest by
    itself, since every trajectory ends at rest.
    """

    def __init__(
        self,
        grid: TickGrid,
        work: Callable[[Arrival, int], None],
        *,
        clock: MotionClock | None = None,
        name: str = "tick",
    ) -> None:
        self._work = work
        self._clock = clock or SteadyClock()
        self._ticker = Ticker(grid, grid.running(self._clock.read()[0]) + 1)
        self._last = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.error: BaseException | None = None

    def start(self) -> None:
        """Begin with the next tick."""
        self._thread.start()

    def end(self) -> None:
        """Run one more tick and end; returns within about three periods.

        No more tick on a clock that stands still.
        """
        self._last.set()
        if self._thread.is_alive():
            self._thread.join(0.3)

    def _run(self) -> None:
        try:
            last = False
            while not last:
                now_ns = self._clock.wait_until(self._ticker.deadline_ns, self._last)
                # Read before the work: the last tick must see what was said before end().
                last = self._last.is_set()
                arrival = self._ticker.arrive(now_ns)
                if arrival is not None:
                    self._work(arrival, now_ns)
        except BaseException as error:
            self.error = error
