# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Whatever happens, in any order: what is sent stays within every limit and inside its epoch."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cosmos_lite_ros.contract.robots import PANDA
from cosmos_lite_ros.execution.gate import IncomingChunk
from cosmos_lite_ros.execution.requests import Request
from cosmos_lite_ros.execution.settings import CheckPolicies

from .chaos import Chaos, noisy
from .judge import Judge
from .makers import HOME, Bench, ramp

# Little room around the home pose, so that every wall is met.
_BOX = (-0.35, -0.3, 0.2, 0.6, 0.3, 0.9)


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    mode=st.sampled_from(["sync", "async", "average", "prefix"]),
    spike=st.sampled_from(["clamp", "reject_chunk", "stop"]),
    blend=st.integers(0, 6),
    robot=st.sampled_from(["panda", "fr3"]),
    box=st.sampled_from([(), _BOX]),
    tool_speed=st.sampled_from([0.1, 0.5, math.inf]),
    scales=st.sampled_from([(0.6, 0.25), (1.0, 1.0), (0.3, 0.1)]),
)
def test_limits_epochs_and_stops_hold_whatever_happens(
    seed: int,
    mode: str,
    spike: str,
    blend: int,
    robot: str,
    box: tuple[float, ...],
    tool_speed: float,
    scales: tuple[float, float],
) -> None:
    chaos = Chaos(
        seed,
        mode=mode,
        robot=robot,
        blend_rows=blend,
        limits=CheckPolicies(spike=spike),  # type: ignore[arg-type]
        horizon=min(int(seed % 25) + 8, 31 if mode == "prefix" else 32),
        max_tracking_error_rad=0.0,
        request_timeout_s=1.0,
        underrun_timeout_s=2.0,
        workspace=box,
        max_tool_speed_m_s=tool_speed,
        velocity_scale=scales[0],
        acceleration_scale=scales[1],
        start_velocity_scale=0.3,
    )
    chaos.run(100)


def test_chaos_does_move_the_arm() -> None:
    # The property above would hold for an executor that never moves.
    chaos = Chaos(
        3,
        mode="async",
        limits=CheckPolicies(spike="clamp"),
        max_tracking_error_rad=0.0,
        request_timeout_s=1.0,
    )
    chaos.run(300)
    assert chaos.moved > 100
    assert len(chaos.executed) > 5
    assert len({epoch for epoch, _ in chaos.executed}) > 3


@settings(max_examples=6, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    mode=st.sampled_from(["sync", "async", "average", "prefix"]),
    latency=st.integers(0, 14),
)
def test_smooth_rows_with_the_noise_of_bfloat16_are_executed(
    seed: int, mode: str, latency: int
) -> None:
    rng = np.random.default_rng(seed)
    phase = rng.uniform(0, 6, 7)
    # Nearly half a metre of motion at usual speeds.
    wave = lambda t: 0.15 * (np.sin(0.7 * t + phase) - np.sin(phase))  # noqa: E731
    start = [0]

    def source(b: Bench, request: Request) -> IncomingChunk:
        tick = b.core.grid.nearest(request.sent_ns)
        if mode == "sync":
            # Row 0 is for the tick of arrival: the motion stands still meanwhile.
            tick, start[0] = start[0], start[0] + 32
        t = (tick + np.arange(32))[:, None] / 15
        return b.chunk(noisy(HOME + wave(t), rng), request)

    horizon = 16 if mode == "prefix" else 32
    b = Bench(source, mode=mode, horizon=horizon, latency=latency, start_tolerance_rad=1.0)
    judge = Judge(b.settings)
    b.arm_up()
    b.tick(110)
    assert b.core.counters.chunks_rejected == 0
    assert b.core.counters.chunks_accepted >= 2
    assert not b.core.machine.stopped
    for ends in b.ends:
        judge.segment(*ends)
    judge.verdict()
    if mode != "sync":
        errors = [
            o.status.commanded - HOME - wave((o.status.tick) / 15)
            for o in b.outputs[40:]
            if o.status.commanded is not None
        ]
        # Less noise than the rows have: 9 mrad.
        assert np.sqrt(np.mean(np.square(errors))) < 0.008


def test_a_recorded_motion_is_executed_as_it_is() -> None:
    """Chunks cut out of one smooth motion of all joints join to that motion."""
    t = np.arange(600)[:, None] / 15
    motion = HOME + 0.2 * np.sin(0.7 * t + np.arange(7)) - 0.2 * np.sin(np.arange(7))

    def source(b: Bench, request: Request) -> IncomingChunk:
        tick = b.core.grid.nearest(request.sent_ns)
        return b.chunk(motion[tick : tick + 32], request)

    b = Bench(source, mode="async", latency=6, start_tolerance_rad=10.0, max_spike_rad=1.0)
    b.arm_up()
    b.tick(400)
    assert b.core.counters.underruns == 0
    worst = 0.0
    for o in b.outputs[80:]:
        assert o.status.commanded is not None
        worst = max(worst, float(np.abs(o.status.commanded - motion[o.status.tick]).max()))
    assert worst < 1e-9


def test_rows_beyond_a_position_limit_end_at_the_limit() -> None:
    high = PANDA.limits()[1]
    start = high - 0.1
    b = Bench(lambda b, r: b.chunk(ramp(b.measured, 0.01)), position=start, mode="async", latency=2)
    b.arm_up()
    b.tick(120)
    assert max(float((s[0] - high).max()) for s in b.segments) <= 1e-7
    assert b.measured == pytest.approx(high, abs=1e-3)
