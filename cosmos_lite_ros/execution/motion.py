# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The command itself: where it is, and the trajectory that is sent next.

Every command source goes through the one limiter that this owns.
"""

from __future__ import annotations

import numpy as np

from cosmos_lite_ros.execution import trajectory
from cosmos_lite_ros.execution.limiter import Floats, Limiter, MotionState
from cosmos_lite_ros.execution.trajectory import Reference, Trajectory


class Motion:
    """The commanded motion from tick to tick.

    The receiver follows the last trajectory that it got, so after a skipped tick it is further
    along it; ``commit`` takes that into account. Invariant: each trajectory begins where the one
    before has led, with the same velocity.
    """

    def __init__(self, limiter: Limiter, points: int) -> None:
        self.limiter = limiter
        self.points = points
        self._state: MotionState | None = None
        self._sent: Trajectory | None = None
        self._sent_tick = 0

    @property
    def position(self) -> Floats | None:
        """The command at the beginning of this tick, rad [joints]; None when there is none yet."""
        return None if self._state is None else self._state.position

    @property
    def at_rest(self) -> bool:
        """Whether the command stands still and what was sent moves nothing any more."""
        return self._sent is None

    def hold(self, measured: Floats | None, tolerance_rad: float) -> Floats | None:
        """Where the next command would be without a row, rad [joints]; None while unknown.

        At rest it is the last command as long as the arm is within the tolerance of it, since the
        receiver still holds that and the arm sags from it by a little; else it is the arm.
        """
        command = self.position
        if not self.at_rest or measured is None:
            return command
        if command is not None and np.abs(command - measured).max() <= tolerance_rad:
            return command
        return measured

    def begin(self, measured: Floats, tolerance_rad: float) -> None:
        """Start from rest, where ``hold`` says."""
        position = self.hold(measured, tolerance_rad)
        assert position is not None
        self._state, self._sent = MotionState.rest(position), None

    def commit(self, tick: int) -> None:
        """Begin a tick: the receiver is where the last trajectory has led by now."""
        if self._sent is not None and tick > self._sent_tick:
            periods = tick - self._sent_tick
            self._state = self._sent.state_after(periods)
            if self._sent.resting_after(periods):
                self._sent = None

    def stalled(self, position: Floats) -> None:
        """The receiver was left without commands and holds a position: motion begins anew there."""
        self._state, self._sent = MotionState.rest(position), None

    def follow(self, tick: int, reference: Reference, velocity: Floats | None = None) -> Trajectory:
        """The trajectory of this tick along a reference."""
        return self._send(tick, self._plan(reference, velocity))

    def settle(self, tick: int, position: Floats) -> Trajectory | None:
        """The trajectory that ends at a position; None when the command rests and goes no nearer.

        It rests elsewhere when a limit is in the way.
        """
        planned = self._plan(Reference.hold(position, self.points), None)
        if self.at_rest and planned.resting_after(1) and self.arrived(planned.positions[0]):
            return None
        return self._send(tick, planned)

    def _plan(self, reference: Reference, velocity: Floats | None) -> Trajectory:
        assert self._state is not None
        return trajectory.follow(self.limiter, self._state, reference, velocity)

    def brake(self, tick: int) -> Trajectory | None:
        """The trajectory that slows down to rest; None when the command is at rest."""
        if self._state is None or self.at_rest:
            return None
        return self._send(tick, trajectory.brake(self.limiter, self._state, self.points))

    def arrived(self, position: Floats) -> bool:
        """Whether the command rests at a position."""
        return (
            self._state is not None
            and self.at_rest
            and bool(np.abs(self._state.position - position).max() < 1e-5)
        )

    def _send(self, tick: int, sent: Trajectory) -> Trajectory:
        self._sent, self._sent_tick = sent, tick
        return sent
