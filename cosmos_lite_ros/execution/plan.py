# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Plans within the limits in space: each state can be braked to rest without leaving them.

Those limits couple the joints, so a plan is made joint by joint first and then looked at as a
whole: at instants within every segment, and within the braking that could follow every state.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cosmos_lite_ros.execution.limiter import (
    Bools,
    Floats,
    Limiter,
    MotionState,
    brake_segments,
)
from cosmos_lite_ros.execution.space import SpaceLimits

Ints = npt.NDArray[np.int64]

# Instants looked at in a segment of a plan, and in a segment of the braking after a state.
_FINE, _COARSE = 6, 3


class PlanCheck:
    """Looks at plans that begin in one state.

    Invariant: what is accepted can be followed and, from any of its states, braked by
    ``Limiter.brake`` within the limits in space; braking from ``start`` needs no look, since the
    plan that led there was accepted, or the arm rests.
    """

    def __init__(self, limiter: Limiter, space: SpaceLimits, start: MotionState) -> None:
        self._limiter = limiter
        self._space = space
        self._allowance = space.allowance(start.position, start.velocity)

    def first_broken(self, start: MotionState, states: list[MotionState]) -> int | None:
        """The first state of a plan that must not be gone to; None when all may."""
        p = np.array([start.position, *(s.position for s in states)])
        v = np.array([start.velocity, *(s.velocity for s in states)])
        over = self._over(p[:-1], v[:-1], p[1:], v[1:])
        return int(np.argmax(over)) if over.any() else None

    def accepts(self, state: MotionState, positions: Floats, velocities: Floats) -> Bools:
        """Which states [n, 7] may be gone to from one that is a period before them, [n]."""
        p = np.broadcast_to(state.position, positions.shape)
        v = np.broadcast_to(state.velocity, velocities.shape)
        return ~self._over(p, v, positions, velocities)

    def _over(self, p0: Floats, v0: Floats, p1: Floats, v1: Floats) -> Bools:
        """Whether segments, or braking after them, leave the limits: [n, 7] each, [n]."""
        n, joints = p0.shape
        T = self._limiter.period_s
        t = (np.arange(1, _FINE + 1) * (T / _FINE))[:, None]
        mean = (p1 - p0) / T
        a0 = ((6 * mean - 4 * v0 - 2 * v1) / T)[:, None]
        j = ((-12 * mean + 6 * v0 + 6 * v1) / (T * T))[:, None]
        p = p0[:, None] + t * (v0[:, None] + t * (a0 / 2 + t * j / 6))
        v = v0[:, None] + t * (a0 + t * j / 2)
        tail_p, tail_v, owner = self._tails(p1, v1)
        over = self._space.broken(
            self._allowance,
            np.concatenate((p.reshape(-1, joints), tail_p)),
            np.concatenate((v.reshape(-1, joints), tail_v)),
        )
        found = np.asarray(over[: n * _FINE].reshape(n, _FINE).any(axis=1))
        found[owner[over[n * _FINE :]]] = True
        return found

    def _tails(self, p: Floats, v: Floats) -> tuple[Floats, Floats, Ints]:
        """Samples of braking from states [n, 7]: [m, 7] each, and the state of each."""
        T, A = self._limiter.period_s, self._limiter.limits.acceleration
        n = np.maximum(brake_segments(np.abs(v), A, T), 1.0)
        count = np.where(v.any(axis=1), n.max(axis=1), 0).astype(int) * _COARSE
        owner = np.repeat(np.arange(len(p)), count)
        first = np.repeat(np.cumsum(count) - count, count)
        t = (np.arange(len(owner)) - first + 1.0)[:, None] * (T / _COARSE)
        speed, lasts = v[owner], n[owner] * T
        tau = np.minimum(t, lasts)
        slowing = speed / lasts
        return p[owner] + tau * (speed - slowing * tau / 2), speed - slowing * tau, owner


def confine(
    limiter: Limiter, start: MotionState, states: list[MotionState], velocity: Floats | None
) -> list[MotionState]:
    """A plan of the limiter, within its limits in space: as it is, or cut short.

    Where it would leave them it goes on only as far as it may and then brakes; the next plan, a
    period later, begins before that.
    """
    if limiter.space is None:
        return states
    check = PlanCheck(limiter, limiter.space, start)
    bad = check.first_broken(start, states)
    if bad is None:
        return states
    points = len(states)
    kept = states[:bad]
    state = kept[-1] if kept else start
    kept.append(limiter.nearer(state, states[bad], points - 1 - bad, velocity, check.accepts))
    while len(kept) < points:
        kept.append(limiter.brake(kept[-1]))
    return kept
