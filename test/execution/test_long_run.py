# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""10,000 chunks on the injected clock: nothing grows, nothing drifts."""

from __future__ import annotations

import gc
import sys

import numpy as np

from cosmos_lite_ros.contract.robots import PANDA
from cosmos_lite_ros.execution.core import ExecutorCore
from cosmos_lite_ros.execution.gate import IncomingChunk
from cosmos_lite_ros.execution.machine import State
from cosmos_lite_ros.execution.settings import ExecutorSettings
from cosmos_lite_ros.execution.ticker import Ticker, TickGrid

from .makers import EPOCH_NS, HOME, NS, joint_message

CHUNKS = 10_000
ROWS = 6
# A period that is no divisor of anything here, in ticks.
SWING = 2 * np.pi / 97.3


def motion(tick: int, rows: int = 1) -> np.ndarray:
    """Where the joints are to be at a tick and those after it, [rows, 7]."""
    t = (tick + np.arange(rows))[:, None]
    return HOME + 0.1 * (np.sin(SWING * t + np.arange(7)) - np.sin(np.arange(7)))


def test_ten_thousand_chunks() -> None:
    origin = 5 * NS
    settings = ExecutorSettings(
        mode="async",
        require_enable=False,
        require_preflight=False,
        horizon=ROWS,
        blend_rows=2,
        lookahead_rows=4,
        # A chunk at every tick.
        refill_margin_rows=31,
        max_tool_speed_m_s=float("inf"),
        start_tolerance_rad=0.5,
    )
    core = ExecutorCore(settings, TickGrid(origin), epoch_ns=EPOCH_NS, now_ns=origin)
    ticker = Ticker(core.grid)
    measured, blocks, worst, request = HOME, 0, 0.0, None
    for tick in range(CHUNKS + 200):
        now = core.grid.deadline_ns(tick) + 1000
        arrival = ticker.arrive(now)
        assert arrival is not None
        assert arrival.tick == tick
        core.joints.push(joint_message(measured, now + EPOCH_NS), now, now + EPOCH_NS)
        if tick == 3:
            core.offer_instruction("wipe the table", now)
            assert core.resume(now, now + EPOCH_NS).success
        if request is not None:
            asked = tick - 1
            core.offer_chunk(
                IncomingChunk(
                    chunk_id=tick,
                    request_id=request.request_id,
                    epoch=request.epoch,
                    joint_names=PANDA.joint_names,
                    rows=ROWS,
                    row_period_s=1 / 15,
                    positions=motion(asked, ROWS).reshape(-1),
                    gripper=np.full(ROWS, float(tick // 50 % 2)),
                    stamp_ns=request.sent_ns + EPOCH_NS,
                    joint_state_stamp_ns=request.sent_ns + EPOCH_NS,
                    random_weights=False,
                )
            )
        output = core.tick(arrival, now, now + EPOCH_NS, listening=True)
        request = output.request
        if output.trajectory is not None:
            measured = output.trajectory.positions[0]
        if tick > 100:
            # Row 1 of the chunk of the tick before: the index never slips.
            assert output.status.state is State.RUNNING
            assert (output.status.chunk_id, output.status.row) == (tick, 1)
            worst = max(worst, float(np.abs(measured - motion(tick)).max()))
        if tick == 2000:
            gc.collect()
            blocks = sys.getallocatedblocks()
    gc.collect()
    grown = sys.getallocatedblocks() - blocks
    assert core.counters.chunks_accepted >= CHUNKS
    assert core.counters.underruns == 0
    assert worst < 1e-9
    # Each chunk leaves less than a hundredth of an object behind.
    assert grown < 0.01 * CHUNKS, grown
    # Tick 10,000 is where 10,000 fifteenths of a second say, to the nanosecond.
    assert core.grid.deadline_ns(15_000) == origin + 1000 * NS
    assert core.machine.state is State.RUNNING
