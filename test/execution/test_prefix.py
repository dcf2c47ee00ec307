# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Mode prefix: which rows are sent with a request, when not, and what a late answer does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cosmos_lite_ros.execution.gate import IncomingChunk
from cosmos_lite_ros.execution.machine import State
from cosmos_lite_ros.execution.requests import Request, RequestReason

from . import checks
from .makers import HOME, Bench, excess


def motion(tick: float) -> np.ndarray:
    """Rows from a tick on, [32, 7] rad; there and back, no limit is near."""
    t = (tick + np.arange(32))[:, None] / 15
    return HOME + 0.1 * (np.sin(0.5 * t + np.arange(7)) - np.sin(np.arange(7)))


def timed(b: Bench, request: Request) -> IncomingChunk:
    """A policy whose chunks belong to ticks and join to each other."""
    return b.chunk(motion(b.core.grid.nearest(request.sent_ns)), request)


def bench(source: Any = timed, latency: int = 5, **settings: Any) -> Bench:
    """Started, with the rows near the arm."""
    chosen = {"mode": "prefix", "horizon": 16, "start_tolerance_rad": 9.0, **settings}
    b = Bench(source, latency=latency, **chosen)
    b.arm_up()
    return b


def test_rows_that_run_meanwhile_are_sent() -> None:
    checks.rows_to_continue()


def test_the_request_goes_out_after_horizon_rows() -> None:
    b = bench()
    b.tick(150)
    asked = [o.status for o in b.outputs if o.request is not None]
    # The first from rest, the next at once: the first answer counts as warm-up.
    assert [r.reason for r in b.requests[:2]] == [RequestReason.FIRST, RequestReason.REFILL]
    assert [r.prefix for r in b.requests[:2]] == [None, None]
    assert len(b.requests) > 8
    for request, status in zip(b.requests[2:], asked[2:], strict=True):
        # 16 of 32 rows lie behind, row 15 was the last.
        assert (status.row, status.rows_left) == (15, 16)
        assert request.prefix is not None
        assert request.prefix.firm_rows == 5
        assert request.prefix.positions.shape == (5 + 4, 7)
    assert b.core.counters.underruns == 0


def test_blend_rows_fade_and_none_is_beyond_the_chunk() -> None:
    for blend, rows in ((0, 14), (2, 16), (16, 18)):
        b = bench(latency=14, horizon=15, blend_rows=min(blend, 15), refill_margin_rows=0)
        b.tick(120)
        prefix = b.requests[-1].prefix
        assert prefix is not None
        # Row 14 was given out, so 18 rows from it on is all there is.
        assert (prefix.firm_rows, len(prefix.positions)) == (14, rows)


def test_what_is_infeasible_is_refused_with_the_figures() -> None:
    b = bench(latency=18)
    b.tick(120)
    # On the way it goes on as async, without rows.
    assert len(b.requests) >= 4
    assert all(r.prefix is None for r in b.requests)
    b.core.stop(b.now_ns)
    b.run_until(lambda: not b.velocity.any())
    b.tick(10)
    words = "the policy takes 1.20 s (p95), which is 18 rows, and a chunk has 32, expected twice"
    for answer in (b.core.preflight(b.now_ns, b.ros_ns), b.core.resume(b.now_ns, b.ros_ns)):
        assert not answer.success
        assert words in answer.message
    assert b.core.reset(b.now_ns).success
    assert b.core.resume(b.now_ns, b.ros_ns).success


@pytest.mark.parametrize(("latency", "horizon"), [(9, 8), (9, 24)])
def test_a_horizon_that_does_not_fit_is_refused_with_the_figures(
    latency: int, horizon: int
) -> None:
    b = bench(latency=latency, horizon=horizon)
    b.tick(100)
    assert all(r.prefix is None for r in b.requests)
    b.core.stop(b.now_ns)
    b.tick(10)
    message = b.core.resume(b.now_ns, b.ros_ns).message
    assert f"which is 9 rows, and horizon is {horizon}, expected 9 to 23" in message


def test_a_late_answer_is_dropped_by_measured_ticks() -> None:
    late: list[int] = []

    def source(b: Bench, request: Request) -> IncomingChunk:
        b.latency = 5
        rows = motion(b.core.grid.nearest(request.sent_ns))
        if request.prefix is not None:
            # As a policy that keeps to the rows and is 40 mrad off from there on.
            rows += 0.04
            n = request.prefix.firm_rows
            rows[:n] = request.prefix.positions[:n]
            late.append(request.request_id)
        return b.chunk(rows, request)

    b = bench(source)
    b.run_until(lambda: bool(b.requests and b.requests[-1].prefix is not None))
    # This one takes 9 ticks, not 5.
    (due,) = b._due
    b._due[:] = [(due[0] + 4, due[1])]
    b.run_until(lambda: bool(late))
    b.tick()
    chunk_id = b._chunk_id
    taken = [o.status for o in b.outputs if o.status.chunk_id == chunk_id]
    assert taken[0].row == 9
    assert b.state is State.RUNNING
    b.tick(20)
    # The rest is as in async: a cross-fade over blend_rows = 4 rows, within the limits.
    rows = [o.status for o in b.outputs if o.status.chunk_id == chunk_id]
    first, tick = rows[0], rows[0].tick
    assert first.requested is not None
    np.testing.assert_allclose(first.requested, motion(tick)[0] + 0.04 * 0.2, atol=0.003)
    np.testing.assert_allclose(rows[4].requested, motion(tick + 4)[0] + 0.04, atol=1e-9)
    worst = np.array([excess(s, b.core.limits) for s in b.segments]).max(axis=0)
    assert (worst <= [1e-7, 1e-6, 1e-5]).all()


def test_other_modes_send_no_rows() -> None:
    for mode in ("sync", "async", "average"):
        b = bench(mode=mode, horizon=32)
        b.tick(120)
        assert len(b.requests) >= 3
        assert all(r.prefix is None for r in b.requests)
