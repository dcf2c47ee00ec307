# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Resampling: the same curve at any rate."""

from __future__ import annotations

import numpy as np
import pytest

from cosmos_lite_ros.contract.constants import ROW_PERIOD_S
from cosmos_lite_ros.contract.robots import PANDA
from cosmos_lite_ros.errors import BadInputError
from cosmos_lite_ros.execution import trajectory
from cosmos_lite_ros.execution.limiter import Limiter, MotionLimits, MotionState
from cosmos_lite_ros.execution.resample import Resampler, evaluate, segment
from cosmos_lite_ros.execution.trajectory import Reference, Trajectory

from .makers import HOME, NS, sample_segment

LIMITER = Limiter(MotionLimits.of(PANDA, 0.6, 0.25))
TICK_NS = NS // 15


def plan(state: MotionState, seed: int = 0) -> Trajectory:
    rng = np.random.default_rng(seed)
    rows = HOME + np.cumsum(rng.normal(0.01, 0.01, (8, 7)), axis=0)
    return trajectory.follow(LIMITER, state, Reference(rows, np.gradient(rows, axis=0) * 15))


def test_a_sample_lies_on_the_controllers_cubic() -> None:
    sent = plan(MotionState.rest(HOME))
    a, b = sent.state_after(2), sent.state_after(3)
    expected = sample_segment(a.position, a.velocity, b.position, b.velocity, 11)
    t = np.linspace(0.0, ROW_PERIOD_S, 11)
    found = segment(a, b, t)
    for got, want in zip(
        (found.position, found.velocity, found.acceleration), expected, strict=True
    ):
        assert got == pytest.approx(want, abs=1e-9)
    for i in range(11):
        one = evaluate(sent, 2 * ROW_PERIOD_S + t[i] * (1 - 1e-9))
        assert one.position == pytest.approx(expected[0][i], abs=1e-7)


def test_ends_of_a_trajectory() -> None:
    sent = plan(MotionState.rest(HOME))
    before, after = evaluate(sent, -0.01), evaluate(sent, 99.0)
    assert (before.position == HOME).all()
    assert (after.position == sent.positions[-1]).all()
    assert not after.velocity.any()
    assert not after.acceleration.any()
    with pytest.raises(ValueError, match="start"):
        evaluate(Trajectory(sent.positions, sent.velocities), 0.0)


@pytest.mark.parametrize("rate_hz", [15, 100, 250, 500])
@pytest.mark.parametrize("late_ms", [0, 9])
def test_replaced_trajectories_make_one_smooth_stream(rate_hz: int, late_ms: int) -> None:
    resampler, state = Resampler(rate_hz), MotionState.rest(HOME)
    assert resampler.sample(0) is None
    grid = resampler.grid(0)
    points, times = [], []
    k = 0
    for tick in range(20):
        begins = tick * NS // 15
        sent = plan(state, tick)
        resampler.load(sent, begins)
        while grid.deadline_ns(k) < (tick + 1) * NS // 15:
            now = grid.deadline_ns(k) + late_ms * 1_000_000
            if now >= (tick + 1) * NS // 15:
                break
            sample = resampler.sample(now)
            assert sample is not None
            points.append(sample)
            times.append(now / NS)
            k += 1
        state = sent.state_after(1)
    positions, t = np.array([p.position for p in points]), np.array(times)
    speed = np.diff(positions, axis=0) / np.diff(t)[:, None]
    # The mean speed between samples, and with it every step, is within the limit.
    assert (np.abs(speed) <= LIMITER.limits.velocity + 1e-9).all()
    assert all((np.abs(p.acceleration) <= LIMITER.limits.acceleration + 1e-6).all() for p in points)
    assert len(points) >= 20 * rate_hz // 15 - 10


def test_resting() -> None:
    resampler = Resampler(500)
    assert resampler.resting(0)
    sent = plan(MotionState.rest(HOME))
    resampler.load(sent, NS)
    assert not resampler.resting(NS)
    assert not resampler.resting(NS + TICK_NS)
    assert resampler.resting(NS + 9 * TICK_NS)
    assert resampler.sample(NS + 9 * TICK_NS) is resampler.last
    resampler.clear()
    assert resampler.last is None


@pytest.mark.parametrize("rate_hz", [0, -1, 14, 501])
def test_rates_that_cannot_be_are_refused(rate_hz: int) -> None:
    with pytest.raises(BadInputError, match=f"command_rate_hz is {rate_hz}, expected 15 to 500"):
        Resampler(rate_hz)
