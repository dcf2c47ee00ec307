# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The chunk buffer: rows by tick, cross-fades, epochs and the end of the rows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cosmos_lite_ros.contract.constants import ROW_PERIOD_S
from cosmos_lite_ros.contract.robots import PANDA
from cosmos_lite_ros.execution.chunk_buffer import ChunkBuffer, Refusal, Rows, Taken
from cosmos_lite_ros.execution.limiter import MotionLimits

from .makers import HOME, ramp

LIMITS = MotionLimits.of(PANDA, 0.6, 0.25)
EPOCH = 1000


def rows(positions: np.ndarray, chunk_id: int = 1, gripper: float = 0.0) -> Rows:
    n = len(positions)
    return Rows(
        positions,
        positions,
        np.full(n, gripper),
        np.full(n, chunk_id),
        np.arange(n),
        np.zeros(n, np.int64),
    )


def buffer(blend_rows: int = 4) -> ChunkBuffer:
    return ChunkBuffer(LIMITS, blend_rows, EPOCH)


def offer(
    b: ChunkBuffer,
    r: Rows,
    tick: int,
    row0_tick: int | None,
    *,
    epoch: int = EPOCH,
    row0_ns: int | None = None,
) -> Taken | Refusal:
    ns = row0_ns if row0_ns is not None else 1000 * (row0_tick or tick)
    return b.offer(r, epoch=epoch, tick=tick, row0_tick=row0_tick, row0_ns=ns, hold=HOME)


@settings(max_examples=60, deadline=None)
@given(
    delay=st.integers(0, 60),
    n=st.integers(1, 32),
    tick=st.integers(0, 10**9),
    gap=st.integers(0, 3),
)
def test_async_drops_exactly_the_rows_whose_tick_has_passed(
    delay: int, n: int, tick: int, gap: int
) -> None:
    b = buffer()
    taken = offer(b, rows(ramp(step=0.002, rows=n)), tick, tick - delay)
    b.check()
    if delay >= n:
        assert taken is Refusal.EXPIRED
        assert b.empty
        return
    assert taken == Taken(delay)
    point = b.advance(tick + gap)
    assert point is not None
    assert point.row == min(delay + gap, n - 1)
    # Away from the end the row is given out as it came.
    if delay + gap < n - 2:
        assert point.requested == pytest.approx(ramp(step=0.002, rows=n)[delay + gap], abs=1e-12)


def test_sync_drops_nothing_and_begins_with_the_next_look_up() -> None:
    b = buffer()
    assert offer(b, rows(ramp()), 100, None) == Taken(0)
    for i, tick in enumerate(range(107, 107 + 30)):
        point = b.advance(tick)
        assert point is not None
        assert (point.row, b.rows_left) == (i, 31 - i)
        assert point.requested == pytest.approx(ramp()[i])


def test_skipped_ticks_skip_rows() -> None:
    b = buffer()
    offer(b, rows(ramp()), 0, None)
    assert [b.advance(t).row for t in (0, 1, 5, 6)] == [0, 1, 5, 6]  # type: ignore[union-attr]


def test_the_last_row_is_reached_at_rest_and_then_there_is_none() -> None:
    for step in (0.0, 0.005, 0.05):
        b = buffer()
        wanted = ramp(step=step)
        offer(b, rows(wanted), 0, None)
        tick, last = 0, None
        while (point := b.advance(tick)) is not None:
            last = point
            tick += 1
            b.check()
        assert last is not None
        assert last.requested == pytest.approx(wanted[-1])
        assert b.finished
        assert b.rows_left == 0
        # A tick or two for slow motion, at most as many as slowing down takes for fast motion.
        assert 32 <= tick <= 32 + 11
        reference = b.reference(3)
        assert reference.velocities == pytest.approx(np.zeros((3, 7)))


def test_reference_holds_rows_and_central_differences() -> None:
    t = np.arange(32)[:, None]
    wanted = HOME + 0.001 * t * t * np.ones(7) * 0.1
    b = buffer()
    offer(b, rows(wanted), 0, None)
    for tick in range(6):
        b.advance(tick)
    reference = b.reference(8)
    assert reference.positions == pytest.approx(wanted[5:13])
    assert reference.velocities == pytest.approx((wanted[6:14] - wanted[4:12]) / (2 * ROW_PERIOD_S))


def test_joints_cross_fade_and_the_gripper_does_not() -> None:
    b = buffer(blend_rows=4)
    offer(b, rows(np.repeat(HOME[None], 32, 0)), 0, 0)
    for tick in range(10):
        b.advance(tick)
    new = np.repeat(HOME[None] + 0.1, 32, 0)
    assert offer(b, rows(new, chunk_id=2, gripper=1.0), 10, 7) == Taken(3)
    seen = [b.advance(tick) for tick in range(10, 17)]
    moved = [float(p.requested[0] - HOME[0]) for p in seen if p is not None]
    assert moved == pytest.approx([0.02, 0.04, 0.06, 0.08, 0.1, 0.1, 0.1])
    assert [p.gripper for p in seen if p is not None] == [1.0] * 7
    assert [p.row for p in seen if p is not None] == list(range(3, 10))
    assert {p.chunk_id for p in seen if p is not None} == {2}


def test_without_blend_rows_the_newest_chunk_wins_at_once() -> None:
    b = buffer(blend_rows=0)
    offer(b, rows(ramp()), 0, 0)
    b.advance(0)
    offer(b, rows(ramp(step=-0.005), chunk_id=2), 1, 1)
    assert b.advance(1).requested == pytest.approx(HOME - 0.005)  # type: ignore[union-attr]


def test_a_chunk_after_the_end_fades_from_the_last_row() -> None:
    b = buffer(blend_rows=1)
    offer(b, rows(ramp(step=0.0, rows=4)), 0, 0)
    for tick in range(10):
        b.advance(tick)
    assert b.finished
    offer(b, rows(ramp(step=0.0) + 0.1, chunk_id=2), 10, 10)
    assert b.advance(10).requested == pytest.approx(HOME + 0.05)  # type: ignore[union-attr]


def test_other_epochs_are_refused_and_clearing_leaves_no_row() -> None:
    b = buffer()
    offer(b, rows(ramp()), 0, 0)
    assert offer(b, rows(ramp()), 1, 1, epoch=EPOCH - 1) is Refusal.FOREIGN
    assert offer(b, rows(ramp()), 1, 1, epoch=EPOCH + 1) is Refusal.FOREIGN
    b.clear(EPOCH + 1)
    assert b.empty
    assert b.advance(1) is None
    assert (b.rows_left, b.position, b.point) == (0, None, None)
    assert offer(b, rows(ramp()), 1, 1) is Refusal.FOREIGN
    with pytest.raises(ValueError, match="epochs only grow"):
        b.clear(EPOCH)


def test_chunks_out_of_order_and_from_the_future_are_refused() -> None:
    b = buffer()
    assert offer(b, rows(ramp()), 10, 8) == Taken(2)
    b.advance(10)
    assert offer(b, rows(ramp()), 11, 7) is Refusal.OLDER
    assert offer(b, rows(ramp()), 11, 12) is Refusal.FUTURE
    assert b.advance(11).row == 3  # type: ignore[union-attr]


def test_pinning_a_row_gives_the_arm_time_to_get_there() -> None:
    b = buffer()
    offer(b, rows(ramp()), 0, 0)
    assert b.advance(0).row == 0  # type: ignore[union-attr]
    b.pin(99)
    assert b.advance(100).row == 1  # type: ignore[union-attr]
