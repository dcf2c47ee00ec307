# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Bugs that executors have had, planted on purpose; each names the check that must catch it.

A bug is planted by replacing one function. ``test_planted.py`` runs every check with and without.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from cosmos_lite_ros.contract.constants import ROW_PERIOD_S
from cosmos_lite_ros.execution import limiter as limiter_module
from cosmos_lite_ros.execution import mover, resample, trajectory
from cosmos_lite_ros.execution.chunk_buffer import ChunkBuffer
from cosmos_lite_ros.execution.clock import RosOffset
from cosmos_lite_ros.execution.core import ExecutorCore
from cosmos_lite_ros.execution.gate import Failed, Gate, GateFlag
from cosmos_lite_ros.execution.gripper import GripperLogic
from cosmos_lite_ros.execution.interlocks import Interlocks
from cosmos_lite_ros.execution.joint_watch import JointWatch
from cosmos_lite_ros.execution.kinematics import Posture
from cosmos_lite_ros.execution.limiter import Limiter, MotionState
from cosmos_lite_ros.execution.motion import Motion
from cosmos_lite_ros.execution.plan import PlanCheck
from cosmos_lite_ros.execution.requests import RequestTracker
from cosmos_lite_ros.execution.settings import ExecutorSettings
from cosmos_lite_ros.execution.smooth import needed_acceleration
from cosmos_lite_ros.execution.space import SpaceLimits
from cosmos_lite_ros.execution.ticker import Arrival, Ticker
from cosmos_lite_ros.execution.trajectory import Reference, Trajectory

from . import checks

Patch = pytest.MonkeyPatch


@dataclass(frozen=True)
class Planted:
    """One bug: what it is, how it is planted, and the check that must fail then."""

    name: str
    plant: Callable[[Patch], None]
    caught_by: Callable[[], None]


PLANTED: list[Planted] = []


def planted(check: Callable[[], None]) -> Callable[[Callable[[Patch], None]], None]:
    """Register a bug; its docstring says what it is."""

    def register(plant: Callable[[Patch], None]) -> None:
        PLANTED.append(Planted(plant.__name__, plant, check))

    return register


# Time


@planted(checks.rows_to_continue)
def rows_of_the_next_tick(patch: Patch) -> None:
    """The rows to continue begin with the one after the running one."""
    ahead = ChunkBuffer.ahead
    patch.setattr(ChunkBuffer, "ahead", lambda self, rows: ahead(self, rows + 1)[1:])


@planted(checks.row_of_its_tick)
def drop_by_estimate(patch: Patch) -> None:
    """Rows are dropped by the usual latency, not by ticks."""
    offer = ChunkBuffer.offer

    def wrong(self: ChunkBuffer, rows: Any, **about: Any) -> Any:
        if about["row0_tick"] is not None:
            about["row0_tick"] = about["tick"] - 6
        return offer(self, rows, **about)

    patch.setattr(ChunkBuffer, "offer", wrong)


@planted(checks.row_of_its_tick)
def async_without_dropping(patch: Patch) -> None:
    """In async row 0 is taken for the tick of arrival: the arm steps back."""
    offer = ChunkBuffer.offer

    def wrong(self: ChunkBuffer, rows: Any, **about: Any) -> Any:
        if about["row0_tick"] is not None:
            about["row0_tick"] = about["tick"]
        return offer(self, rows, **about)

    patch.setattr(ChunkBuffer, "offer", wrong)


@planted(checks.row_0_at_arrival)
def sync_with_dropping(patch: Patch) -> None:
    """In sync rows are dropped as in async."""
    patch.setattr(ExecutorSettings, "early", True)


@planted(checks.late_chunks_expire)
def expired_chunks_run(patch: Patch) -> None:
    """The last row of a chunk that came too late is executed."""
    nearest = checks.TickGrid.nearest

    def wrong(self: Any, steady_ns: int) -> int:
        return max(nearest(self, steady_ns), self.running(steady_ns) + 9)

    patch.setattr(checks.TickGrid, "nearest", wrong)


@planted(checks.late_ticks_skip)
def late_ticks_burst(patch: Patch) -> None:
    """Ticks that were missed are made up for."""

    def wrong(self: Ticker, now_ns: int) -> Arrival | None:
        if now_ns < self.deadline_ns:
            return None
        tick, self._next = self._next, self._next + 1
        return Arrival(tick, now_ns - self.grid.deadline_ns(tick), 0)

    patch.setattr(Ticker, "arrive", wrong)


@planted(checks.skipped_ticks_are_counted_in)
def skipped_ticks_are_forgotten(patch: Patch) -> None:
    """The next command begins where the last tick's would have ended."""
    commit = Motion.commit

    def wrong(self: Motion, tick: int) -> None:
        self._sent_tick = max(self._sent_tick, tick - 1)
        commit(self, tick)

    patch.setattr(Motion, "commit", wrong)


# Epochs


@planted(checks.chaos)
def no_epoch(patch: Patch) -> None:
    """Any answer to any request is taken."""
    offer = ChunkBuffer.offer

    def wrong(self: ChunkBuffer, rows: Any, **about: Any) -> Any:
        return offer(self, rows, **{**about, "epoch": self.epoch})

    patch.setattr(ChunkBuffer, "offer", wrong)
    patch.setattr(RequestTracker, "answers", lambda self, *_: self.outstanding is not None)


@planted(checks.old_rows_are_gone)
def resume_with_old_rows(patch: Patch) -> None:
    """A new epoch does not clear the buffer: after a stop the rest of it runs."""
    clear = ChunkBuffer.clear

    def wrong(self: ChunkBuffer, epoch: int) -> None:
        if getattr(self, "_rows", None) is None:
            clear(self, epoch)
        self.epoch = epoch

    patch.setattr(ChunkBuffer, "clear", wrong)


@planted(checks.instructions_begin_epochs)
def instruction_without_epoch(patch: Patch) -> None:
    """A new instruction waits in line behind the rows of the old one."""
    patch.setattr(
        ExecutorCore, "_take_instruction", lambda self, text, _: self._set_instruction(text)
    )


@planted(checks.clock_jumps_begin_epochs)
def clock_jump_unnoticed(patch: Patch) -> None:
    """ROS time is taken for steady."""
    patch.setattr(RosOffset, "sample", lambda self, *_: 0)


# States


@planted(checks.preflight_first)
def resume_without_preflight(patch: Patch) -> None:
    """require_preflight is a setting that nobody reads."""
    why = ExecutorCore._why_not_resume

    def wrong(self: ExecutorCore, now_ns: int, ros_ns: int) -> str:
        self._preflight = ""
        return why(self, now_ns, ros_ns)

    patch.setattr(ExecutorCore, "_why_not_resume", wrong)


@planted(checks.preflight_first)
def preflight_of_another_session(patch: Patch) -> None:
    """A preflight that was passed before the node was activated again still counts."""
    disarm = ExecutorCore.disarm

    def wrong(self: ExecutorCore, now_ns: int) -> None:
        passed = self._preflight
        disarm(self, now_ns)
        self._preflight = passed

    patch.setattr(ExecutorCore, "disarm", wrong)


@planted(checks.stops_stay)
def enable_resumes(patch: Patch) -> None:
    """The enabling device, held again, starts the motion again."""
    tick = ExecutorCore.tick

    def wrong(self: ExecutorCore, arrival: Arrival, now_ns: int, ros_ns: int, **how: Any) -> Any:
        if self.machine.stopped and self.interlocks.enabled(now_ns):
            self.resume(now_ns, ros_ns)
        return tick(self, arrival, now_ns, ros_ns, **how)

    patch.setattr(ExecutorCore, "tick", wrong)


@planted(checks.underrun_keeps_the_command)
def zeros_on_underrun(patch: Patch) -> None:
    """Out of rows, zeros are sent."""

    def wrong(self: mover.Mover, tick: int, notes: Any) -> None:
        goal = Reference.hold(np.zeros(7), self._motion.points)
        notes.trajectory = self._motion.follow(tick, goal)

    patch.setattr(mover.Mover, "rest", wrong)


@planted(checks.underrun_keeps_the_command)
def measured_on_underrun(patch: Patch) -> None:
    """Out of rows, the measured joints are held: the arm sags, command by command."""

    def wrong(self: mover.Mover, tick: int, notes: Any) -> None:
        goal = Reference.hold(self._joints.positions, self._motion.points)
        notes.trajectory = self._motion.follow(tick, goal)

    patch.setattr(mover.Mover, "rest", wrong)


@planted(checks.lost_robots_stop)
def tracking_error_unwatched(patch: Patch) -> None:
    """Commands march on while the arm stands in a reflex."""
    patch.setattr(ExecutorSettings, "tracking_limit_rad", math.inf)


@planted(checks.lost_robots_stop)
def robot_unwatched(patch: Patch) -> None:
    """Nobody need receive the commands, and no driver need be ready."""
    patch.setattr(Interlocks, "_why_not_ready", lambda self, _: "")


@planted(checks.moving_arms_are_left_alone)
def moving_arm_taken_over(patch: Patch) -> None:
    """Motion begins from rest at the measured joints although the arm still moves."""
    patch.setattr(JointWatch, "why_not_still", lambda self: "")


@planted(checks.one_request_at_a_time)
def requests_pile_up(patch: Patch) -> None:
    """A request goes out at every tick without a row."""
    wants = ExecutorCore._wants_chunk

    def wrong(self: ExecutorCore) -> bool:
        self.requests.outstanding = None
        return wants(self)

    patch.setattr(ExecutorCore, "_wants_chunk", wrong)


@planted(checks.warm_up_is_not_measured)
def warm_up_measured(patch: Patch) -> None:
    """The first answer, which may take a minute, counts as latency."""
    answered = RequestTracker.answered

    def wrong(self: RequestTracker, now_ns: int) -> None:
        self._warm = True
        answered(self, now_ns)

    patch.setattr(RequestTracker, "answered", wrong)


# Gate


@planted(checks.not_finite_moves_nothing)
def clip_before_finite(patch: Patch) -> None:
    """Rows are clipped to the limits first, and what is not finite becomes a limit."""
    table = Gate.table

    def wrong(self: Gate, chunk: Any) -> Any:
        return table(self, replace(chunk, positions=np.fmax(np.fmin(chunk.positions, 2.8), -2.8)))

    patch.setattr(Gate, "table", wrong)


@planted(checks.noise_is_executed)
def noise_rejected(patch: Patch) -> None:
    """Raw rows are held against the acceleration limits."""
    rows = Gate.rows

    def wrong(self: Gate, table: Any, *about: Any, **how: Any) -> Any:
        if (needed_acceleration(table) > np.array(self._robot.acceleration_max) / 4).any():
            return Failed(GateFlag.LIMITER, "too fast", False)
        return rows(self, table, *about, **how)

    patch.setattr(Gate, "rows", wrong)


@planted(checks.chunks_are_not_changed)
def gate_writes_into_the_chunk(patch: Patch) -> None:
    """Clamping in place changes what the monitor and the log show."""
    table = Gate.table

    def wrong(self: Gate, chunk: Any) -> Any:
        np.clip(chunk.positions, -2.0, 2.0, out=chunk.positions)
        return table(self, chunk)

    patch.setattr(Gate, "table", wrong)


@planted(checks.far_rows_are_approached_slowly)
def no_start_guard(patch: Patch) -> None:
    """A first row far from the arm is followed like any other."""

    def wrong(self: mover.Mover, notes: Any) -> None:
        self.starting = False
        self._motion.begin(self._joints.positions, self._settings.start_tolerance_rad)

    patch.setattr(mover.Mover, "_start", wrong)


@planted(checks.gripper_is_decided)
def no_hysteresis(patch: Patch) -> None:
    """The gripper chatters about one threshold."""
    update = GripperLogic.update

    def wrong(self: GripperLogic, row: float, now_ns: int) -> float | None:
        return update(self, 1.0 if row > 0.5 else 0.0, now_ns)

    patch.setattr(GripperLogic, "update", wrong)


@planted(checks.gripper_is_decided)
def no_dwell(patch: Patch) -> None:
    """The gripper changes at every row if the rows do."""
    update = GripperLogic.update

    def wrong(self: GripperLogic, row: float, now_ns: int) -> float | None:
        self._changed_ns = None
        return update(self, row, now_ns)

    patch.setattr(GripperLogic, "update", wrong)


# Limiter


@planted(checks.chaos)
def naive_clamp(patch: Patch) -> None:
    """Positions and steps are clipped row by row."""

    def wrong(
        limiter: Limiter, state: MotionState, reference: Reference, velocity: Any = None
    ) -> Any:
        limits, rows = limiter.limits, []
        last = state.position
        for row in reference.positions:
            step = limits.velocity * ROW_PERIOD_S
            last = np.clip(
                last + np.clip(row - last, -step, step), limits.position_min, limits.position_max
            )
            rows.append(last)
        speeds = np.gradient(np.array(rows), axis=0) / ROW_PERIOD_S
        speeds[-1] = 0.0
        return Trajectory(np.array(rows), speeds, state)

    patch.setattr(trajectory, "follow", wrong)


@planted(checks.stops_stay)
def stop_on_the_spot(patch: Patch) -> None:
    """A stop sends the present position with velocity zero."""
    patch.setattr(Limiter, "brake", lambda self, state: MotionState.rest(state.position))


@planted(checks.limits_are_not_passed)
def no_braking_distance(patch: Patch) -> None:
    """A position limit is noticed when it is reached."""
    patch.setattr(Limiter, "stop_distance", lambda self, speed: 0.0 * speed)


@planted(checks.between_the_points)
def ends_only(patch: Patch) -> None:
    """Limits are checked at the points that are sent, not between them."""

    def wrong(self: Limiter, state: MotionState, a0: Any, a1: Any, bounds: Any) -> Any:
        T = self.period_s
        low, high, cap, final = bounds
        speed = state.velocity + (a0 + a1) * T / 2
        place = state.position + state.velocity * T + (2 * a0 + a1) * T * T / 6
        ok = np.abs((a0 + a1) / 2) <= self.limits.acceleration
        ok &= np.abs(speed) <= np.minimum(cap, final)
        return ok & (place >= low) & (place <= high)

    patch.setattr(Limiter, "_feasible", wrong)


@planted(checks.chaos)
def no_rest_at_the_end(patch: Patch) -> None:
    """What is sent ends in motion: if the process dies, the arm goes on."""
    step = Limiter.step

    def wrong(self: Limiter, state: Any, target: Any, left: int, velocity: Any = None) -> Any:
        return step(self, state, target, left + 20, velocity)

    patch.setattr(Limiter, "step", wrong)


@planted(checks.tool_speed)
def no_tool_speed(patch: Patch) -> None:
    """Joint limits alone: a stretched arm's fingertip is fast."""
    of = SpaceLimits.of.__func__  # type: ignore[attr-defined]

    def wrong(cls: Any, settings: Any) -> Any:
        return of(cls, replace(settings, max_tool_speed_m_s=math.inf))

    patch.setattr(SpaceLimits, "of", classmethod(wrong))


@planted(checks.workspace_at_three_points)
def only_the_fingertip(patch: Patch) -> None:
    """The box is for the fingertip; the elbow may go anywhere."""

    def wrong(self: Posture, tool_offset: Any) -> Any:
        return np.stack((self.tool(tool_offset),) * 3, axis=1)

    patch.setattr(Posture, "places", wrong)


@planted(checks.workspace_at_three_points)
def tool_forgotten(patch: Patch) -> None:
    """The box is for the flange, a hand's length before the fingertip."""
    patch.setattr(Posture, "tool", lambda self, offset: self.flange + 0.0 * self.rotation @ offset)


@planted(checks.braking_in_space)
def braking_unchecked_in_space(patch: Patch) -> None:
    """Plans are inside the box, what a stop makes of them is not looked at."""

    def wrong(self: PlanCheck, p: Any, v: Any) -> Any:
        return p[:0], v[:0], np.zeros(0, np.int64)

    patch.setattr(PlanCheck, "_tails", wrong)


@planted(checks.envelope)
def no_envelope(patch: Patch) -> None:
    """FR3's velocities are constants."""
    patch.setattr(limiter_module, "fr3_envelope", lambda scale: None)


# Output


@planted(checks.samples_lie_on_the_cubic)
def linear_resampling(patch: Patch) -> None:
    """Straight lines between the points: the velocity steps at each."""
    real = resample.segment

    def wrong(start: MotionState, end: MotionState, seconds: Any) -> Any:
        line = start.position + (end.position - start.position) * seconds / ROW_PERIOD_S
        return replace(real(start, end, seconds), position=line)

    patch.setattr(resample, "segment", wrong)
