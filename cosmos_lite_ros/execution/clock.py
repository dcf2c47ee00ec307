# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Time of the executor: a steady clock for motion, and the way from ROS time to it.

Everything takes the time as an argument, so that tests and replays own the clock.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

NS = 1_000_000_000
# A change of (ROS time - steady time) between two samples that is a jump, not drift: the clocks of
# one machine drift by less than 0.05 ms a tick.
JUMP_NS = 20_000_000


@dataclass
class RosOffset:
    """The offset of ROS time to the steady clock, sampled once a tick.

    ``offset_ns`` is ROS time minus steady time of the newest sample; None before the first valid
    one. ROS time 0 means that /clock is awaited and is no sample.
    """

    offset_ns: int | None = None
    jumps: int = 0
    last_jump_ns: int = 0

    def sample(self, steady_ns: int, ros_ns: int) -> int:
        """Take a sample; the jump in ns (signed) if there was one above JUMP_NS, else 0."""
        if ros_ns <= 0:
            return 0
        offset = ros_ns - steady_ns
        previous, self.offset_ns = self.offset_ns, offset
        if previous is None or abs(offset - previous) <= JUMP_NS:
            return 0
        self.jumps += 1
        self.last_jump_ns = offset - previous
        return self.last_jump_ns

    def to_steady(self, ros_ns: int) -> int | None:
        """The steady instant of a ROS time, ns; None while the offset is unknown."""
        return None if self.offset_ns is None else ros_ns - self.offset_ns


class RateGuard:
    """Tells whether something happens more often than ``count`` times in ``window_s``."""

    def __init__(self, count: int, window_s: float) -> None:
        self._times: deque[int] = deque(maxlen=count + 1)
        self._window_ns = int(window_s * NS)

    def happened(self, now_ns: int) -> bool:
        """Note one event; True if it was one too many."""
        self._times.append(now_ns)
        full = len(self._times) == self._times.maxlen
        return full and now_ns - self._times[0] <= self._window_ns

    def clear(self) -> None:
        """Forget all events."""
        self._times.clear()
