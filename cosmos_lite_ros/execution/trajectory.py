# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The points that are sent: the next rows as far as the limits allow, ending at rest."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cosmos_lite_ros.execution.limiter import Floats, Limiter, MotionState
from cosmos_lite_ros.execution.plan import confine

# Points that are planned as near to the rows as the limits allow. Those after them are only run
# when ticks fail to come, so they follow the rows where that is possible, and brake from where it
# is not.
_PLANNED = 3


@dataclass(frozen=True, eq=False)
class Reference:
    """What the rows ask for in the next periods: float64 [n, joints] rad and rad/s.

    The velocities are central differences of the rows.
    """

    positions: Floats
    velocities: Floats

    @classmethod
    def hold(cls, position: Floats, points: int) -> Reference:
        """Stay at one position."""
        positions = np.repeat(np.asarray(position, np.float64)[None], points, axis=0)
        return cls(positions, np.zeros_like(positions))


@dataclass(frozen=True, eq=False)
class Trajectory:
    """Points to send, float64 [n, joints] rad and rad/s; point i is for (i + 1) periods from now.

    Invariants: the last velocity is zero; the cubic through the points and velocities, begun in the
    state it was planned from, keeps every limit, those in space included, and so does braking from
    any of the points. Where the rows are followed, the velocities are their central differences;
    where the limiter holds the motion back, they are those of the limited motion (differences of
    limited positions would break the acceleration limit).
    """

    positions: Floats
    velocities: Floats
    # The state it was planned from, where its first segment begins.
    start: MotionState | None = None

    def state_after(self, periods: int) -> MotionState:
        """Where the receiver is that many (>= 1) periods after it got the trajectory."""
        i = min(periods, len(self.positions)) - 1
        return MotionState(self.positions[i].copy(), self.velocities[i].copy())

    def resting_after(self, periods: int) -> bool:
        """Whether nothing moves from that many (>= 1) periods after its arrival on."""
        i = min(periods, len(self.positions)) - 1
        still = np.abs(self.positions[i:] - self.positions[-1]).max() < 1e-9
        return bool(still) and not self.velocities[i:].any()


def follow(
    limiter: Limiter, state: MotionState, reference: Reference, velocity: Floats | None = None
) -> Trajectory:
    """Follow the reference from a state; at rest at its end whatever the reference does there.

    ``velocity`` replaces the general velocity limits, rad/s [joints].
    """
    points, start = len(reference.positions), state
    states: list[MotionState] = []
    braking = False
    for i in range(points):
        target, left = MotionState(reference.positions[i], reference.velocities[i]), points - 1 - i
        if i < _PLANNED:
            state = limiter.step(state, target, left, velocity)
        else:
            reached = None if braking else limiter.reach(state, target, left, velocity)
            braking = reached is None
            state = limiter.brake(state) if reached is None else reached
        states.append(state)
    return _trajectory(start, confine(limiter, start, states, velocity))


def brake(limiter: Limiter, state: MotionState, points: int) -> Trajectory:
    """Slow down to rest, then stay. ``state`` must be able to stop within ``points`` periods."""
    start, states = state, []
    for _ in range(points):
        state = limiter.brake(state)
        states.append(state)
    return _trajectory(start, states)


def _trajectory(start: MotionState, states: list[MotionState]) -> Trajectory:
    return Trajectory(
        np.array([s.position for s in states]), np.array([s.velocity for s in states]), start
    )
