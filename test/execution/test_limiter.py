# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The limiter: no input makes what is sent leave a limit, and clean rows are followed exactly."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cosmos_lite_ros.contract.constants import ROW_PERIOD_S
from cosmos_lite_ros.contract.robots import FR3, PANDA, RobotType
from cosmos_lite_ros.execution import trajectory
from cosmos_lite_ros.execution.limiter import (
    Limiter,
    MotionLimits,
    MotionState,
    brake_segments,
    stopping_speed,
)
from cosmos_lite_ros.execution.trajectory import Reference

from .makers import HOME, excess, ramp, sample_segment

POINTS = 8
# Above rounding, far below what a robot can tell: rad, rad/s, rad/s^2.
TOLERANCE = np.array([1e-7, 1e-6, 1e-5])


def limiter(robot: RobotType = PANDA, velocity: float = 0.6, acceleration: float = 0.25) -> Limiter:
    return Limiter(MotionLimits.of(robot, velocity, acceleration))


def check_segment(limiter: Limiter, a: MotionState, b: MotionState) -> None:
    samples = sample_segment(a.position, a.velocity, b.position, b.velocity)
    assert (np.array(excess(samples, limiter.limits)) <= TOLERANCE).all()


def garbage(rng: np.random.Generator, kind: str, n: int) -> np.ndarray:
    """Finite rows of a kind that no policy should send."""
    if kind == "white":
        return rng.normal(0, 1.5, (n, 7))
    if kind == "bang":
        return np.where(rng.random((n, 7)) < 0.5, -1e6, 1e6)
    if kind == "spikes":
        rows = ramp(HOME, 0.01, n)
        rows[rng.random(n) < 0.1] += rng.normal(0, 2.0, 7)
        return rows
    if kind == "edge":
        return PANDA.limits()[1] + rng.normal(0, 0.004, (n, 7))
    if kind == "limits":
        low, high = PANDA.limits()
        return np.where((np.arange(n) // 20 % 2)[:, None] == 0, low, high)
    return HOME + np.cumsum(rng.normal(0, 0.03, (n, 7)), axis=0)


@settings(max_examples=50, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    kind=st.sampled_from(["white", "bang", "spikes", "limits", "edge", "walk"]),
    scales=st.sampled_from([(0.6, 0.25), (1.0, 1.0), (0.1, 1.0), (0.2, 0.05)]),
    robot=st.sampled_from([PANDA, FR3]),
)
def test_limits_hold_for_any_rows(
    seed: int, kind: str, scales: tuple[float, float], robot: RobotType
) -> None:
    rng = np.random.default_rng(seed)
    lim = limiter(robot, *scales)
    low, high = robot.limits()
    state = MotionState.rest(rng.uniform(low, high))
    rows = garbage(rng, kind, 60)
    speeds = rng.normal(0, 3.0, rows.shape)
    for row, speed in zip(rows, speeds, strict=True):
        reached = lim.step(state, MotionState(row, speed), POINTS - 1)
        check_segment(lim, state, reached)
        # It can still be brought to rest inside the limits, within the points of a trajectory.
        stop, braking = reached, 0
        while not stop.at_rest:
            braked = lim.brake(stop)
            check_segment(lim, stop, braked)
            stop, braking = braked, braking + 1
        assert braking <= POINTS - 1
        state = reached


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), kind=st.sampled_from(["white", "spikes", "walk"]))
def test_every_trajectory_ends_at_rest_within_the_limits(seed: int, kind: str) -> None:
    rng = np.random.default_rng(seed)
    lim = limiter()
    rows = garbage(rng, kind, 12 + POINTS)
    speeds = np.gradient(rows, axis=0) / ROW_PERIOD_S
    state = MotionState.rest(HOME)
    for i in range(12):
        reference = Reference(rows[i : i + POINTS], speeds[i : i + POINTS])
        sent = trajectory.follow(lim, state, reference)
        before = state
        for n in range(1, POINTS + 1):
            check_segment(lim, before, sent.state_after(n))
            before = sent.state_after(n)
        assert not sent.velocities[-1].any()
        state = sent.state_after(1)


def test_smooth_rows_are_followed_exactly_with_central_differences() -> None:
    t = np.arange(60)[:, None] * ROW_PERIOD_S
    rows = HOME + 0.1 * (1 - np.cos(1.5 * t)) * np.ones(7)
    speeds = np.gradient(rows, axis=0) / ROW_PERIOD_S
    lim, state = limiter(), MotionState.rest(rows[0])
    for i in range(1, 59):
        state = lim.step(state, MotionState(rows[i], speeds[i]), POINTS - 1)
        assert state.position == pytest.approx(rows[i], abs=1e-12)
        assert state.velocity == pytest.approx((rows[i + 1] - rows[i - 1]) / (2 * ROW_PERIOD_S))


def test_noise_of_bfloat16_is_executed_and_smoothed() -> None:
    # 9 mrad rms is what bfloat16 arithmetic leaves in a perfect policy's rows.
    rng = np.random.default_rng(1)
    t = np.arange(200)[:, None] * ROW_PERIOD_S
    clean = HOME + 0.15 * np.sin(0.8 * t) * np.ones(7)
    noisy = clean + rng.normal(0, 0.009, clean.shape)
    speeds = np.gradient(noisy, axis=0) / ROW_PERIOD_S
    lim, state = limiter(), MotionState.rest(HOME)
    error = []
    for row, speed, wanted in zip(noisy, speeds, clean, strict=True):
        reached = lim.step(state, MotionState(row, speed), POINTS - 1)
        check_segment(lim, state, reached)
        state = reached
        error.append(state.position - wanted)
    rms = np.sqrt(np.mean(np.square(error[15:])))
    assert rms < 0.012


def test_a_step_is_reached_without_overshoot() -> None:
    lim, state = limiter(), MotionState.rest(HOME)
    goal = MotionState.rest(HOME + 0.3)
    farthest = -np.inf
    for _ in range(40):
        state = lim.step(state, goal, POINTS - 1)
        farthest = max(farthest, float((state.position - goal.position).max()))
    assert state.at_rest
    assert state.position == pytest.approx(goal.position, abs=1e-9)
    assert farthest <= 1e-9


def test_a_limit_is_approached_and_not_passed() -> None:
    lim = limiter()
    low, high = PANDA.limits()
    for goal, bound in ((1e3, high), (-1e3, low)):
        state = MotionState.rest(HOME)
        for _ in range(200):
            state = lim.step(state, MotionState(np.full(7, goal), np.zeros(7)), POINTS - 1)
        assert np.abs(state.position - bound).max() < 1e-4


def test_a_segment_does_not_leave_the_limits_between_its_ends() -> None:
    low, high = PANDA.limits()
    # From the limit to just below it: the cubic with these end velocities would bulge over it.
    state, goal = MotionState.rest(high), MotionState(high - 1e-3, np.full(7, -0.1))
    samples = sample_segment(state.position, state.velocity, goal.position, goal.velocity)
    lim = limiter(PANDA, 1.0, 1.0)
    assert (samples[0].max(axis=0) > high + 3e-4).all()
    check_segment(lim, state, lim.step(state, goal, POINTS - 1))
    # At the largest velocity on both ends, and faster between them.
    top = lim.limits.velocity
    state = MotionState((low + high) / 2, top)
    goal = MotionState(state.position + 1.05 * top * ROW_PERIOD_S, top)
    samples = sample_segment(state.position, state.velocity, goal.position, goal.velocity)
    assert (samples[1].max(axis=0) > 1.05 * top).all()
    check_segment(lim, state, lim.step(state, goal, 32))


def test_an_arm_outside_a_limit_may_come_back_but_not_go_on() -> None:
    lim = limiter()
    _, high = PANDA.limits()
    state = MotionState.rest(high + 0.02)
    out = lim.step(state, MotionState(high + 1.0, np.zeros(7)), POINTS - 1)
    assert (out.position <= high + 0.02 + 1e-9).all()
    back = state
    for _ in range(20):
        back = lim.step(back, MotionState(high - 0.1, np.zeros(7)), POINTS - 1)
    assert back.position == pytest.approx(high - 0.1, abs=1e-9)


def test_a_slower_velocity_may_be_asked_for() -> None:
    lim, state = limiter(), MotionState.rest(HOME)
    slow = np.full(7, 0.05)
    for _ in range(30):
        state = lim.step(state, MotionState.rest(HOME + 1.0), POINTS - 1, slow)
        assert (np.abs(state.velocity) <= slow + 1e-9).all()
    assert state.velocity == pytest.approx(slow, rel=1e-3)


@settings(max_examples=200, deadline=None)
@given(
    distance=st.floats(0, 10, allow_subnormal=False),
    acceleration=st.floats(0.01, 20),
)
def test_stopping_speed_is_the_inverse_of_the_stopping_distance(
    distance: float, acceleration: float
) -> None:
    a = np.array([acceleration])
    speed = stopping_speed(np.array([distance]), a, ROW_PERIOD_S)
    taken = speed * brake_segments(speed, a, ROW_PERIOD_S) * ROW_PERIOD_S / 2
    assert taken[0] <= distance + 1e-9
    # Continuous braking needs no less: v <= sqrt(2 a d).
    assert speed[0] <= np.sqrt(2 * acceleration * distance) + 1e-9
