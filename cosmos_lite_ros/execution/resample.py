# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The sent trajectory at a higher rate, for outputs whose receiver does not interpolate.

The cubic between two points with velocities is the one that a joint trajectory controller runs, so
every output follows the same curve, and the limits that hold for one hold for all.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cosmos_lite_ros.contract.constants import RATE_HZ, ROW_PERIOD_S
from cosmos_lite_ros.errors import BadInputError
from cosmos_lite_ros.execution.clock import NS
from cosmos_lite_ros.execution.limiter import Floats, MotionState
from cosmos_lite_ros.execution.ticker import TickGrid
from cosmos_lite_ros.execution.trajectory import Trajectory

MAX_RATE_HZ = 500


@dataclass(frozen=True, eq=False)
class Sample:
    """The commanded motion at one instant: float64 [joints] rad, rad/s, rad/s^2."""

    position: Floats
    velocity: Floats
    acceleration: Floats


def segment(start: MotionState, end: MotionState, seconds: float | Floats) -> Sample:
    """The cubic from one state to another one row period later.

    Args:
        seconds: since the start, within 0 .. ROW_PERIOD_S; an array [n] gives fields [n, joints].
    """
    T = ROW_PERIOD_S
    t = np.asarray(seconds, np.float64)[..., None]
    p, v = start.position, start.velocity
    mean = (end.position - p) / T
    a0 = (6 * mean - 4 * v - 2 * end.velocity) / T
    j = (-12 * mean + 6 * v + 6 * end.velocity) / (T * T)
    return Sample(
        p + t * (v + t * (a0 / 2 + t * j / 6)),
        v + t * (a0 + t * j / 2),
        a0 + np.zeros_like(t) + t * j,
    )


def evaluate(trajectory: Trajectory, seconds: float) -> Sample:
    """The motion that a trajectory describes, ``seconds`` after it was sent.

    Before its beginning it is where it starts, after its end it rests at the last point.

    Raises:
        ValueError: the trajectory does not say where it starts.
    """
    if trajectory.start is None:
        raise ValueError("a trajectory without its start cannot be resampled")
    points = len(trajectory.positions)
    i = min(max(int(seconds * RATE_HZ), 0), points)
    if i >= points:
        rest = np.zeros_like(trajectory.velocities[-1])
        return Sample(trajectory.positions[-1].copy(), rest, rest.copy())
    start = trajectory.start if i == 0 else trajectory.state_after(i)
    within = min(max(seconds - i * ROW_PERIOD_S, 0.0), ROW_PERIOD_S)
    return segment(start, trajectory.state_after(i + 1), within)


class Resampler:
    """Samples of the newest trajectory on a grid of ``rate_hz``.

    Call ``load`` with the trajectory of a tick before ``sample`` for an instant at or after that
    tick: then samples lie on one curve without steps, however late they are taken. ``last`` is
    what the receiver holds when nothing more comes; after skipped ticks motion has to begin there.

    Invariant: a sample lies on a trajectory that the limiter gave out, or is where it came to rest.
    """

    def __init__(self, rate_hz: int) -> None:
        """``rate_hz`` is 15 to 500.

        Raises:
            BadInputError: another rate.
        """
        check_rate(rate_hz)
        self.rate_hz = rate_hz
        self._trajectory: Trajectory | None = None
        self._begins_ns = 0
        self.last: Sample | None = None

    def grid(self, origin_ns: int) -> TickGrid:
        """The instants to sample at: exact, so that they do not drift against the 15 Hz ticks."""
        return TickGrid(origin_ns, self.rate_hz)

    def load(self, trajectory: Trajectory, begins_ns: int) -> None:
        """Follow a trajectory from the instant at which its tick begins (its deadline)."""
        self._trajectory, self._begins_ns = trajectory, begins_ns

    def clear(self) -> None:
        """Give out nothing until the next ``load``."""
        self._trajectory = self.last = None

    def sample(self, now_ns: int) -> Sample | None:
        """The command at an instant of the steady clock; None while there has been none."""
        if self._trajectory is None:
            return None
        self.last = evaluate(self._trajectory, (now_ns - self._begins_ns) / NS)
        return self.last

    def resting(self, now_ns: int) -> bool:
        """Whether samples at and after an instant are all the same."""
        if self._trajectory is None:
            return True
        points = len(self._trajectory.positions)
        passed = (now_ns - self._begins_ns) * RATE_HZ // NS
        return passed >= 1 and self._trajectory.resting_after(min(passed, points))


def check_rate(rate_hz: int) -> None:
    """Refuse a rate that no output can have.

    Raises:
        BadInputError: names the rate and what is possible.
    """
    if not RATE_HZ <= rate_hz <= MAX_RATE_HZ:
        raise BadInputError(f"command_rate_hz is {rate_hz}, expected {RATE_HZ} to {MAX_RATE_HZ}")
