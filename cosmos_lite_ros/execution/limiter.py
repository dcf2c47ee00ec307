# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""One limiter for every command: every limit of every joint, always able to stop.

Motion is a chain of segments, one per tick. A segment leads from (p, v) to (p', v') as the cubic
that a joint trajectory controller puts between two points with velocities. Its acceleration is
linear, from a0 to a1, so limits hold *within* the segment and not at its ends only: what is sent is
judged, not the rows. With d = (p' - p) / T:

    a0 = (6 d - 4 v - 2 v') / T        a1 = (-6 d + 2 v + 4 v') / T
    v' = v + (a0 + a1) T / 2           p' = p + v T + (2 a0 + a1) T^2 / 6

Invariant (checked by the tests): a state that the limiter gives out can be braked to rest with
constant deceleration of at most the acceleration limit within the segments that are left, without
passing a position limit. Braking one segment keeps the invariant, so a braking step always exists,
and every other step is taken only as far towards its target as the invariant allows. This is the
bound v <= sqrt(2 a distance) in its form for whole segments. A velocity envelope is part of it:
neither a segment nor the braking after it leaves it. Limits in space couple the joints, so
``plan.py`` extends the invariant to them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cosmos_lite_ros.contract.constants import ROW_PERIOD_S
from cosmos_lite_ros.contract.robots import RobotType
from cosmos_lite_ros.execution.envelope import Envelope, fr3_envelope
from cosmos_lite_ros.execution.space import SpaceLimits

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
# Position low and high, largest speed, largest final speed of each joint.
Bounds = tuple[Floats, Floats, Floats, Floats]

# Share of the acceleration that catching up with the rows may plan with; the rest is for what the
# rows do meanwhile. Without a reserve the arm overshoots them.
_CATCH_UP = 0.6
# Relative slack of comparisons, far above rounding and far below what a robot can tell.
_SLACK = 1e-9
# That of the number of braking segments is larger than all others together, so that a speed which
# just fitted into n segments is not found to need n + 1.
_BRAKE_SLACK = 1e-7
# Searches look at so many values at once, and then so many times between two of them.
_LEVELS, _ROUNDS = 24, 3
_GRID = np.arange(1.0, _LEVELS + 1)[:, None]
# The same where each look costs more.
_CONSENTS, _CONSENT_ROUNDS = 8, 2
# Parts of a segment in which a velocity envelope is looked at.
_SLICES = 8


@dataclass(frozen=True, eq=False)
class MotionLimits:
    """Limits of each joint, float64 [joints]: rad, rad/s, rad/s^2."""

    position_min: Floats
    position_max: Floats
    velocity: Floats
    acceleration: Floats
    # Velocity limits that depend on the position, on top of ``velocity``.
    envelope: Envelope | None = None

    @classmethod
    def of(cls, robot: RobotType, velocity_scale: float, acceleration_scale: float) -> MotionLimits:
        """The data sheet of a robot type, velocities and accelerations scaled."""
        low, high = robot.limits()
        return cls(
            low,
            high,
            np.array(robot.velocity_max) * velocity_scale,
            np.array(robot.acceleration_max) * acceleration_scale,
            fr3_envelope(velocity_scale) if robot.name == "fr3" else None,
        )


@dataclass(frozen=True, eq=False)
class MotionState:
    """Position (rad) and velocity (rad/s) of each joint at one instant, float64 [joints]."""

    position: Floats
    velocity: Floats

    @classmethod
    def rest(cls, position: Floats) -> MotionState:
        """At rest at a position."""
        return cls(np.array(position, dtype=np.float64), np.zeros(len(position)))

    @property
    def at_rest(self) -> bool:
        """Whether no joint moves."""
        return not np.any(self.velocity)


def brake_segments(speed: Floats, acceleration: Floats, period_s: float) -> Floats:
    """Whole segments that constant braking from a speed takes, as floats."""
    return np.ceil(speed / (acceleration * period_s) - _BRAKE_SLACK)


def stopping_speed(distance: Floats, acceleration: Floats, period_s: float) -> Floats:
    """The largest speed from which braking in whole segments stops within a distance >= 0."""
    unit = acceleration * period_s
    x = distance / (unit * period_s)
    n = np.floor(np.sqrt(2 * x))
    return np.asarray(unit * np.maximum(n, 2 * x / (n + 1)), dtype=np.float64)


@dataclass(frozen=True, eq=False)
class Limiter:
    """Steps of one period within the limits. Stateless: the caller keeps the motion state."""

    limits: MotionLimits
    period_s: float = ROW_PERIOD_S
    space: SpaceLimits | None = None

    def step(
        self,
        state: MotionState,
        target: MotionState,
        segments_left: int,
        velocity: Floats | None = None,
    ) -> MotionState:
        """The state one period later, as near to the target as the limits allow.

        Args:
            state: where the command is now; a state that this limiter gave out, or one at rest.
            target: where the row wants it to be one period later, with the velocity of the rows.
            segments_left: segments after this one in which the arm must be able to come to rest.
            velocity: limits for this step instead of the general ones, rad/s [joints].
        """
        a0, a1 = self._towards(state, target)
        bounds = self._bounds(state, segments_left, velocity)
        exact = self._feasible(state, a0, a1, bounds)
        if not exact.all():
            # Not NaN-safe by itself: the gate lets nothing but finite rows through.
            brake, towards = self._braking(state.velocity), self._catch_up(state, target)
            a0, a1 = np.where(exact, a0, towards), np.where(exact, a1, towards)
            share = self._share(state, brake, a0, a1, bounds)
            a0 = brake + share * (a0 - brake)
            a1 = brake + share * (a1 - brake)
        return self._after(state, a0, a1)

    def reach(
        self,
        state: MotionState,
        target: MotionState,
        segments_left: int,
        velocity: Floats | None = None,
    ) -> MotionState | None:
        """The target if ``step`` with the same arguments would lead exactly there, else None."""
        a0, a1 = self._towards(state, target)
        bounds = self._bounds(state, segments_left, velocity)
        if not self._feasible(state, a0, a1, bounds).all():
            return None
        return self._after(state, a0, a1)

    def _towards(self, state: MotionState, target: MotionState) -> tuple[Floats, Floats]:
        """Accelerations at both ends of the segment to a target."""
        T, v, w = self.period_s, state.velocity, target.velocity
        mean = (target.position - state.position) / T
        return (6 * mean - 4 * v - 2 * w) / T, (-6 * mean + 2 * v + 4 * w) / T

    def nearer(
        self,
        state: MotionState,
        wanted: MotionState,
        segments_left: int,
        velocity: Floats | None,
        accepts: Callable[[MotionState, Floats, Floats], Bools],
    ) -> MotionState:
        """The state one period later that is as near to ``wanted`` as ``accepts`` lets it be.

        All joints together go between braking, which needs no consent, and ``wanted``, which
        ``step`` gave out with the same arguments. ``accepts`` looks at many next states at once:
        positions and velocities [n, joints].
        """
        brake = self._braking(state.velocity)
        a0, a1 = (a - brake for a in self._towards(state, wanted))
        bounds = self._bounds(state, segments_left, velocity)
        found, low, width = self.brake(state), 0.0, 1.0
        for _ in range(_CONSENT_ROUNDS):
            width /= _CONSENTS
            share = (low + width * np.arange(1, _CONSENTS + 1))[:, None]
            b0, b1 = brake + share * a0, brake + share * a1
            tried = self._after(state, b0, b1)
            ok = self._feasible(state, b0, b1, bounds).all(axis=1)
            ok &= accepts(state, tried.position, tried.velocity)
            count = int(np.logical_and.accumulate(ok).sum())
            if count:
                found = MotionState(tried.position[count - 1], tried.velocity[count - 1])
                low += width * count
        return found

    def _after(self, state: MotionState, a0: Floats, a1: Floats) -> MotionState:
        T = self.period_s
        position = state.position + state.velocity * T + (2 * a0 + a1) * T * T / 6
        speed = state.velocity + (a0 + a1) * T / 2
        # Rest is exact, so that "at rest" is not a question of tolerance.
        speed[np.abs(speed) <= _SLACK * self.limits.acceleration * T] = 0.0
        return MotionState(position, speed)

    def brake(self, state: MotionState) -> MotionState:
        """The state one period later when slowing down to rest."""
        T = self.period_s
        a = self._braking(state.velocity)
        speed = state.velocity + a * T
        speed[np.abs(speed) <= _SLACK * self.limits.acceleration * T] = 0.0
        return MotionState(state.position + (state.velocity + speed) * T / 2, speed)

    def stop_distance(self, speed: Floats) -> Floats:
        """Distance that braking from a speed >= 0 takes, rad."""
        return (
            speed
            * brake_segments(speed, self.limits.acceleration, self.period_s)
            * (self.period_s / 2)
        )

    def _braking(self, v: Floats) -> Floats:
        n = brake_segments(np.abs(v), self.limits.acceleration, self.period_s)
        return np.asarray(-v / (np.maximum(n, 1) * self.period_s))

    def _bounds(self, state: MotionState, segments_left: int, velocity: Floats | None) -> Bounds:
        """Position low and high, largest speed, largest final speed.

        A state that is outside (an arm pushed past a limit, a limit lowered meanwhile) may stay as
        it is or come back, and braking stays possible.
        """
        T, limits = self.period_s, self.limits
        speed = np.abs(state.velocity)
        cap = limits.velocity if velocity is None else velocity
        needed = brake_segments(speed, limits.acceleration, T) - 1
        left = np.maximum(segments_left, needed)
        return (
            np.minimum(limits.position_min, state.position),
            np.maximum(limits.position_max, state.position),
            np.maximum(cap, speed),
            limits.acceleration * T * left,
        )

    def _feasible(
        self,
        state: MotionState,
        a0: Floats,
        a1: Floats,
        bounds: Bounds,
    ) -> Bools:
        """Which joints may take the segment with these accelerations, [joints] or [n, joints]."""
        T, A = self.period_s, self.limits.acceleration
        p, v = state.position, state.velocity
        low, high, cap, final = bounds
        v1 = v + (a0 + a1) * T / 2
        p1 = p + v * T + (2 * a0 + a1) * T * T / 6
        ok = np.maximum(np.abs(a0), np.abs(a1)) <= A * (1 + _SLACK)
        # The speed is largest at an end or where the acceleration changes its sign.
        turning = a0 * a1 < 0
        peak = v + np.where(turning, a0 * a0 * T / (2 * np.where(turning, a0 - a1, 1.0)), 0.0)
        fastest = np.maximum(np.abs(v1), np.abs(peak))
        ok &= fastest <= cap * (1 + _SLACK)
        ok &= np.abs(v1) <= final * (1 + _SLACK) + 1e-12
        stop = p1 + np.sign(v1) * self.stop_distance(np.abs(v1))
        ok &= (np.maximum(p1, stop) <= high + _SLACK) & (np.minimum(p1, stop) >= low - _SLACK)
        # The position is extreme at an end or where the velocity changes its sign.
        j = (a1 - a0) / T
        root = np.sqrt(np.maximum(a0 * a0 - 2 * j * v, 0.0))
        # Both roots without cancellation: q / (j / 2) and v / q.
        q = -(a0 + np.where(a0 >= 0, root, -root)) / 2
        for top, bottom in ((q, j / 2), (v, q)):
            # Not np.clip, which takes ten times as long on arrays of this size.
            t = np.minimum(np.maximum(top / np.where(bottom == 0, np.inf, bottom), 0.0), T)
            extreme = p + t * (v + t * (a0 / 2 + t * j / 6))
            ok &= (extreme <= high + _SLACK) & (extreme >= low - _SLACK)
        envelope = self.limits.envelope
        if envelope is not None:
            ok &= self._enveloped(envelope, state, a0, a1, v1, stop)
        return np.asarray(ok)

    def _enveloped(
        self,
        envelope: Envelope,
        state: MotionState,
        a0: Floats,
        a1: Floats,
        v1: Floats,
        stop: Floats,
    ) -> Bools:
        """Which joints stay inside a velocity envelope in a segment and while braking after it.

        Between two instants the velocity is at most that of the faster one, unless it turns there,
        and the envelope is at least that of the instant nearer to the end.
        """
        T, p, v = self.period_s, state.position, state.velocity
        j = (a1 - a0) / T
        t = (np.arange(_SLICES + 1) * (T / _SLICES)).reshape(-1, *[1] * a0.ndim)
        speeds = v + t * (a0 + t * j / 2)
        places = p + t * (v + t * (a0 / 2 + t * j / 6))
        turn = np.minimum(np.maximum(-a0 / np.where(j == 0, np.inf, j), 0.0), T)
        turned = v + turn * (a0 + turn * j / 2)
        here = (turn >= t[:-1]) & (turn <= t[1:])
        ends = (speeds[:-1], speeds[1:], np.where(here, turned, speeds[:-1]))
        slowest, fastest = np.minimum.reduce(ends), np.maximum.reduce(ends)
        near, far = np.minimum(places[:-1], places[1:]), np.maximum(places[:-1], places[1:])
        ok = (envelope.allows(near, slowest, slowest) & envelope.allows(far, fastest, fastest)).all(
            0
        )
        n = np.maximum(brake_segments(np.abs(v1), self.limits.acceleration, T), 1)
        braking = np.maximum(np.abs(v1) / (n * T), 1e-12)
        return np.asarray(ok & envelope.can_brake(stop, v1, braking))

    def _catch_up(self, state: MotionState, target: MotionState) -> Floats:
        """Constant accelerations that approach a target which moves on with its velocity.

        The velocity relative to the target is to be the one from which it can be stopped within the
        distance to it. What a larger acceleration does to both sides is monotone: it is searched.
        """
        T, A = self.period_s, self.limits.acceleration
        p, v = state.position, state.velocity

        def fine(a: Floats) -> Bools:
            v1 = v + a * T
            e = target.position - (p + (v + v1) * T / 2)
            wanted = np.sign(e) * stopping_speed(np.abs(e), _CATCH_UP * A, T)
            return np.asarray(v1 - target.velocity <= wanted)

        return _largest(fine, -A, A)

    def _share(
        self,
        state: MotionState,
        brake: Floats,
        a0: Floats,
        a1: Floats,
        bounds: Bounds,
    ) -> Floats:
        """How far from braking (0) towards the wanted accelerations (1) each joint may go."""
        d0, d1 = a0 - brake, a1 - brake

        def fine(share: Floats) -> Bools:
            return self._feasible(state, brake + share * d0, brake + share * d1, bounds)

        return _largest(fine, np.zeros(len(brake)), np.ones(len(brake)))


def _largest(fine: Callable[[Floats], Bools], low: Floats, high: Floats) -> Floats:
    """The largest values [joints] from ``low`` on, which is fine, up to ``high``.

    ``fine`` looks at many values at once, [n, joints].
    """
    ceiling = high
    for _ in range(_ROUNDS):
        step = (high - low) / _LEVELS
        ok = fine(low + step * _GRID)
        count = np.logical_and.accumulate(ok, axis=0).sum(axis=0)
        count = np.where(ok[-1], _LEVELS, count)
        low, high = low + step * count, np.minimum(low + step * (count + 1), ceiling)
    return low
