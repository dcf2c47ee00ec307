# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Ticks, ROS time and the gripper."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cosmos_lite_ros.execution.clock import JUMP_NS, RateGuard, RosOffset
from cosmos_lite_ros.execution.gripper import GripperLogic
from cosmos_lite_ros.execution.settings import GripperSettings
from cosmos_lite_ros.execution.ticker import Ticker, TickGrid

NS = 1_000_000_000


@settings(max_examples=200, deadline=None)
@given(origin=st.integers(0, 10**18), tick=st.integers(0, 10**9), shift=st.integers(0, 66_666_665))
def test_a_tick_runs_from_its_deadline_to_the_next(origin: int, tick: int, shift: int) -> None:
    grid = TickGrid(origin)
    assert grid.running(grid.deadline_ns(tick)) == tick
    assert grid.running(grid.deadline_ns(tick) + shift) == tick
    assert grid.running(grid.deadline_ns(tick) - 1) == tick - 1
    near = grid.nearest(grid.deadline_ns(tick) + shift)
    assert near == tick + (shift > 33_333_333) or abs(shift - 33_333_333) <= 2


def test_deadlines_do_not_drift() -> None:
    grid = TickGrid(7)
    # Ten days of ticks are ten days, to the nanosecond.
    assert grid.deadline_ns(15 * 864_000) - 7 == 864_000 * NS


def test_a_late_tick_skips_and_never_bursts() -> None:
    grid = TickGrid(0)
    ticker = Ticker(grid)
    assert ticker.arrive(-1) is None
    first = ticker.arrive(5_000_000)
    assert first is not None
    assert (first.tick, first.lateness_ns, first.skipped) == (0, 5_000_000, 0)
    assert ticker.arrive(66_000_000) is None
    # 3.5 periods: ticks 1 and 2 are gone, tick 3 runs half a period late.
    late = ticker.arrive(int(3.5 * NS / 15))
    assert late is not None
    assert (late.tick, late.skipped) == (3, 2)
    assert late.lateness_ns == pytest.approx(NS / 30, abs=2)
    assert ticker.arrive(int(3.9 * NS / 15)) is None
    assert ticker.deadline_ns == grid.deadline_ns(4)


@settings(max_examples=50, deadline=None)
@given(times=st.lists(st.integers(0, 10 * NS), min_size=1, max_size=200))
def test_ticks_only_grow_and_add_up(times: list[int]) -> None:
    ticker = Ticker(TickGrid(0))
    given_out = []
    skipped = 0
    for now in sorted(times):
        arrival = ticker.arrive(now)
        if arrival is not None:
            assert 0 <= arrival.lateness_ns <= NS / 15 + 1
            given_out.append(arrival.tick)
            skipped += arrival.skipped
    assert given_out == sorted(set(given_out))
    if given_out:
        assert given_out[-1] + 1 == len(given_out) + skipped


def test_ros_time_is_followed_and_jumps_are_seen() -> None:
    offset = RosOffset()
    assert offset.to_steady(5) is None
    # 0 means that /clock is awaited.
    assert offset.sample(100, 0) == 0
    assert offset.to_steady(5) is None
    assert offset.sample(1000, 1000 + 7 * NS) == 0
    assert offset.to_steady(7 * NS) == 0
    # Drift below the threshold is followed.
    assert offset.sample(2000, 2000 + 7 * NS + JUMP_NS) == 0
    assert offset.to_steady(7 * NS + JUMP_NS) == 0
    assert offset.sample(3000, 3000 + 2 * NS) == -5 * NS - JUMP_NS
    assert offset.to_steady(2 * NS) == 0
    assert offset.jumps == 1


def test_rate_guard_counts_within_its_window() -> None:
    guard = RateGuard(2, 1.0)
    assert [guard.happened(t * NS // 10) for t in (0, 4, 9, 19, 28, 29)] == [
        False,
        False,
        True,
        False,
        False,
        True,
    ]
    guard.clear()
    assert not guard.happened(3 * NS)


def test_gripper_has_hysteresis_and_dwell() -> None:
    gripper = GripperLogic(GripperSettings(min_dwell_s=0.5))
    tick = NS // 15
    assert gripper.update(0.5, 0) is None
    assert gripper.command is None
    assert gripper.update(0.61, tick) == 1.0
    # Between the thresholds nothing changes; the same again is no change.
    assert [gripper.update(g, 2 * tick) for g in (0.55, 0.45, 0.41, 0.9)] == [None] * 4
    # Too soon.
    assert gripper.update(0.0, 3 * tick) is None
    assert gripper.command == 1.0
    assert gripper.update(math.nan, 30 * tick) is None
    assert gripper.update(0.39, 30 * tick) == 0.0
    gripper.forget()
    # Forgetting does not shorten the dwell.
    assert gripper.update(0.0, 31 * tick) is None
    assert gripper.update(0.0, 40 * tick) == 0.0


@settings(max_examples=50, deadline=None)
@given(rows=st.lists(st.floats(-0.5, 1.5), max_size=150))
def test_gripper_changes_are_apart(rows: list[float]) -> None:
    gripper = GripperLogic(GripperSettings(min_dwell_s=0.5))
    changes = [i for i, row in enumerate(rows) if gripper.update(row, i * NS // 15) is not None]
    assert all(b - a >= 7.5 for a, b in itertools.pairwise(changes))
