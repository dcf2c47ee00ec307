# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Whatever happens, in any order: what is sent stays within every limit and inside its epoch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cosmos_lite_ros.contract.robots import PANDA
from cosmos_lite_ros.execution.gate import IncomingChunk
from cosmos_lite_ros.execution.machine import State
from cosmos_lite_ros.execution.requests import Request
from cosmos_lite_ros.execution.settings import CheckPolicies

from .makers import HOME, NS, Bench, excess, ramp, sample_segment


class Chaos:
    """A bench to which things happen; every choice comes from one seed."""

    def __init__(self, seed: int, **fields: Any) -> None:
        self.rng = np.random.default_rng(seed)
        self.epochs: dict[int, int] = {}
        self.bench = Bench(self.source, **fields)
        self.latency = int(self.rng.integers(0, 12))
        self.stopped_ticks = 0

    def source(self, b: Bench, request: Request) -> IncomingChunk | None:
        rng = self.rng
        b.latency = max(0, self.latency + int(rng.integers(-2, 3)))
        kind = rng.choice(
            ["smooth", "noisy", "spike", "nan", "white", "far", "lost", "old", "twice"]
        )
        table = ramp(b.measured, float(rng.normal(0, 0.01)))
        if kind == "noisy":
            table += rng.normal(0, 0.009, table.shape)
        elif kind == "spike":
            table[int(rng.integers(32))] += rng.normal(0, 1.0, 7)
        elif kind == "nan":
            table[int(rng.integers(32)), 2] = rng.choice([np.nan, np.inf])
        elif kind == "white":
            table = rng.normal(0, 1.5, table.shape)
        elif kind == "far":
            table += rng.normal(0, 0.2, 7)
        elif kind == "lost":
            return None
        chunk = b.chunk(table, request, gripper=rng.normal(0.5, 0.5, 32))
        self.epochs[chunk.chunk_id] = request.epoch
        if kind == "old":
            b.core.offer_chunk(b.chunk(table, Request(1, 5, request.reason, "", "", b.now_ns)))
        if kind == "twice":
            b.core.offer_chunk(chunk)
        return chunk

    def happen(self) -> None:
        """Maybe something happens between two ticks."""
        b, rng = self.bench, self.rng
        what = rng.random()
        if not b.listening:
            b.listening = bool(rng.random() < 0.3)
        if b.core.machine.stopped and what < 0.3:
            b.core.offer_emergency_stop(False, b.now_ns)
            b.joints_alive = True
            b.core.resume(b.now_ns, b.ros_ns)
        elif what < 0.01:
            b.core.stop(b.now_ns)
        elif what < 0.015:
            b.core.reset(b.now_ns)
        elif what < 0.025:
            b.core.offer_emergency_stop(True, b.now_ns)
        elif what < 0.035:
            b.core.offer_instruction(f"task {rng.integers(100)}", b.now_ns)
        elif what < 0.04:
            b.ros_offset_ns += int(rng.normal(0, 5) * NS)
        elif what < 0.05:
            b.joints_alive = False
        elif what < 0.08:
            b.skip = int(rng.integers(1, 4))
        elif what < 0.09:
            b.listening = False
        elif what < 0.095 and b.core.machine.stopped and b.core._motion.at_rest:
            b.measured = b.measured + rng.normal(0, 0.1, 7)

    def step(self) -> None:
        b = self.bench
        self.happen()
        epoch_before = b.core.epoch
        output = b.tick()
        status = output.status
        assert status.epoch >= epoch_before
        if status.chunk_id:
            assert self.epochs[status.chunk_id] == status.epoch, "a row of a dead epoch"
        if status.state in (State.EMPTY, State.PRIMED):
            assert output.trajectory is None
        self.stopped_ticks = self.stopped_ticks + 1 if status.state is State.STOPPED else 0
        if self.stopped_ticks:
            assert status.row == -1
            assert output.gripper is None
            assert output.request is None
        # The fastest speed that the lookahead allows takes all its segments but one to stop.
        if self.stopped_ticks > b.core.settings.lookahead_rows - 1 + 2:
            assert output.trajectory is None
            assert not b.velocity.any()
        if output.trajectory is not None:
            self.check_trajectory(output.trajectory.positions, output.trajectory.velocities)

    def check_trajectory(self, positions: np.ndarray, velocities: np.ndarray) -> None:
        """All of it, as a receiver that hears nothing more would run it."""
        assert np.isfinite(positions).all()
        assert np.isfinite(velocities).all()
        assert not velocities[-1].any()
        for i in range(len(positions) - 1):
            samples = sample_segment(
                positions[i], velocities[i], positions[i + 1], velocities[i + 1], 23
            )
            assert self.inside(samples)

    def inside(self, samples: tuple[np.ndarray, np.ndarray, np.ndarray]) -> bool:
        return bool((np.array(excess(samples, self.bench.core.limits)) <= [1e-6, 1e-6, 1e-5]).all())


@settings(max_examples=16, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    mode=st.sampled_from(["sync", "async"]),
    spike=st.sampled_from(["clamp", "reject_chunk", "stop"]),
    blend=st.integers(0, 6),
)
def test_limits_epochs_and_stops_hold_whatever_happens(
    seed: int, mode: str, spike: str, blend: int
) -> None:
    chaos = Chaos(
        seed,
        mode=mode,
        blend_rows=blend,
        limits=CheckPolicies(spike=spike),  # type: ignore[arg-type]
        horizon=int(seed % 25) + 8,
        max_tracking_error_rad=0.0,
        request_timeout_s=1.0,
        underrun_timeout_s=2.0,
    )
    chaos.bench.core.offer_instruction("task", 0)
    for _ in range(110):
        chaos.step()
    # The arm ran the sent cubics, begun where the ones before had led.
    assert all(chaos.inside(s) for s in chaos.bench.segments)


def test_chaos_does_move_the_arm() -> None:
    # The property above would hold for an executor that never moves.
    chaos = Chaos(
        3,
        mode="async",
        limits=CheckPolicies(spike="clamp"),
        max_tracking_error_rad=0.0,
        request_timeout_s=1.0,
    )
    chaos.bench.core.offer_instruction("task", 0)
    for _ in range(300):
        chaos.step()
    counters = chaos.bench.core.counters
    assert counters.commands_sent > 50
    assert counters.chunks_accepted > 5
    assert counters.chunks_rejected > 0
    assert counters.chunks_foreign > 0


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
