# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""From a chunk that answers our request to rows in the buffer, or to what is wrong with it."""

from __future__ import annotations

import numpy as np

from cosmos_lite_ros.execution.chunk_buffer import ChunkBuffer, Refusal, Rows
from cosmos_lite_ros.execution.clock import RosOffset
from cosmos_lite_ros.execution.gate import Failed, Gate, IncomingChunk
from cosmos_lite_ros.execution.limiter import Floats
from cosmos_lite_ros.execution.settings import ExecutorSettings
from cosmos_lite_ros.execution.ticker import TickGrid

# The clocks of two machines may differ by a little; further ahead is no instant of an observation.
_FUTURE_NS = 50_000_000


class Intake:
    """Gate and buffer in their order; the time of row 0 becomes a tick here and nowhere else."""

    def __init__(
        self,
        settings: ExecutorSettings,
        gate: Gate,
        buffer: ChunkBuffer,
        grid: TickGrid,
        offset: RosOffset,
    ) -> None:
        self._settings = settings
        self._gate = gate
        self._buffer = buffer
        self._grid = grid
        self._offset = offset

    def take(
        self, chunk: IncomingChunk, tick: int, now_ns: int, hold: Floats | None, rested: bool
    ) -> Failed | str | None:
        """Put a chunk into the buffer at a tick.

        Args:
            chunk: one that answers the outstanding request.
            tick: the running tick.
            now_ns: steady clock.
            hold: the command without this chunk, rad [joints]; None while it is unknown.
            rested: the arm has come to rest after the last row, so motion begins anew.

        Returns:
            None when it was taken; what the gate refused; or a line why it is too late or early.
        """
        table = self._gate.table(chunk)
        if isinstance(table, Failed):
            return table
        if hold is None:
            return "there is no measured position to start from"
        horizon = min(self._settings.rows_taken, len(table))
        row0_tick: int | None = None
        drop = 0
        if self._settings.early:
            row0_ns = self._offset.to_steady(chunk.stamp_ns)
            if row0_ns is None or row0_ns > now_ns + _FUTURE_NS:
                return "the stamp of row 0 lies in the future: synchronise the clocks"
            row0_tick = min(self._grid.nearest(row0_ns), tick)
            drop = tick - row0_tick
            if drop >= horizon:
                return f"every row lies in the past: {drop} ticks since row 0, {horizon} rows"
        if rested:
            self._buffer.drop_finished()
        passed = self._gate.rows(
            table[:horizon],
            drop,
            self._buffer.upcoming(hold),
            random_weights=chunk.random_weights,
        )
        if isinstance(passed, Failed):
            return passed
        rows = Rows(
            passed.positions,
            table[:horizon],
            chunk.gripper[:horizon].astype(np.float64),
            np.full(horizon, chunk.chunk_id, np.int64),
            np.arange(horizon),
            passed.flags,
        )
        taken = self._buffer.offer(
            rows,
            epoch=chunk.epoch,
            tick=tick,
            row0_tick=row0_tick,
            row0_ns=chunk.stamp_ns,
            hold=hold,
        )
        return taken.value if isinstance(taken, Refusal) else None
