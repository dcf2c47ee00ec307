# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The cell that plot_execution.py draws: core, arm and policy on an injected clock.

The core is the one that moves arms. The arm is a stand-in that is where the sent cubic is; the
policy is a stand-in that answers after a latency.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from cosmos_lite_ros.contract.constants import ROW_PERIOD_S
from cosmos_lite_ros.contract.robots import robot_type
from cosmos_lite_ros.execution.core import ExecutorCore
from cosmos_lite_ros.execution.gate import IncomingChunk
from cosmos_lite_ros.execution.kinematics import posture, tool_speed
from cosmos_lite_ros.execution.output import TickOutput
from cosmos_lite_ros.execution.requests import Prefix, Request
from cosmos_lite_ros.execution.resample import evaluate
from cosmos_lite_ros.execution.settings import ExecutorSettings
from cosmos_lite_ros.execution.ticker import Ticker, TickGrid

HOME = np.array(robot_type("panda").home)
NS = 1_000_000_000
START_NS = 1_700_000_000 * NS
# Samples of each tick's segment.
FINE = 20
Rows = Callable[[int], np.ndarray | None]


class Cell:
    """Core, arm and policy; times in s since the first tick."""

    def __init__(self, rows: Rows, latency: int, start: np.ndarray = HOME, **settings: Any) -> None:
        """``rows`` gives the chunk that is asked for at a tick, [n, 7] rad, or None."""
        self.settings = ExecutorSettings(require_enable=False, require_preflight=False, **settings)
        self.core = ExecutorCore(self.settings, TickGrid(NS), epoch_ns=START_NS, now_ns=NS)
        self.ticker = Ticker(self.core.grid)
        self.rows, self.latency = rows, latency
        self.q = np.array(start)
        self.outputs: list[TickOutput] = []
        self.chunks: dict[int, tuple[int, np.ndarray]] = {}
        self.t: list[float] = []
        self.motion: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        self._due: list[tuple[int, int, Request]] = []
        self._sent: TickOutput | None = None
        self._since = 0

    def tick(self) -> TickOutput:
        """One tick, and the segment before it."""
        k = len(self.outputs)
        now = self.core.grid.deadline_ns(k)
        arrival = self.ticker.arrive(now)
        assert arrival is not None
        if k:
            self._move(k)
        names = self.core.robot.joint_names
        stamp = SimpleNamespace(sec=(now + START_NS) // NS, nanosec=(now + START_NS) % NS)
        message = SimpleNamespace(
            header=SimpleNamespace(stamp=stamp), name=list(names), position=list(map(float, self.q))
        )
        self.core.joints.push(message, now, now + START_NS)
        for due in [d for d in self._due if d[0] <= k]:
            self._due.remove(due)
            self._answer(due[1], due[2])
        output = self.core.tick(arrival, now, now + START_NS, listening=True)
        if output.trajectory is not None:
            self._sent, self._since = output, k
        if output.request is not None:
            self._due.append((k + self.latency, k, output.request))
        self.outputs.append(output)
        return output

    def _move(self, k: int) -> None:
        within = (np.arange(FINE) + 1) / FINE
        for u in within:
            self.t.append((k - 1 + u) * ROW_PERIOD_S)
            trajectory = None if self._sent is None else self._sent.trajectory
            if trajectory is None:
                rest = np.zeros(7)
                self.motion.append((self.q.copy(), rest, rest))
                continue
            seconds = (k - 1 - self._since + u) * ROW_PERIOD_S
            s = evaluate(trajectory, seconds * (1 - 1e-12))
            self.motion.append((s.position, s.velocity, s.acceleration))
        self.q = self.motion[-1][0]

    def _answer(self, asked: int, request: Request) -> None:
        rows = self.rows(asked)
        if rows is None:
            return
        if request.prefix is not None:
            rows = continued(rows, request.prefix)
        chunk_id = len(self.chunks) + 1
        self.chunks[chunk_id] = (asked, rows)
        stamp = self.core.grid.deadline_ns(asked) + START_NS
        self.core.offer_chunk(
            IncomingChunk(
                chunk_id=chunk_id,
                request_id=request.request_id,
                epoch=request.epoch,
                joint_names=self.core.robot.joint_names,
                rows=len(rows),
                row_period_s=ROW_PERIOD_S,
                positions=np.asarray(rows, float).reshape(-1),
                gripper=np.zeros(len(rows)),
                stamp_ns=stamp,
                joint_state_stamp_ns=stamp,
                random_weights=False,
            )
        )

    def run(self, ticks: int) -> Cell:
        """Resume at tick 3 and run."""
        for k in range(ticks):
            if k == 3:
                now = self.core.grid.deadline_ns(k)
                self.core.offer_instruction("wipe the table", now)
                answer = self.core.resume(now, now + START_NS)
                assert answer.success, answer.message
            self.tick()
        return self

    @property
    def curves(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Time [n] s and position, velocity, acceleration [n, 7]."""
        p, v, a = (np.array(x) for x in zip(*self.motion, strict=True))
        return np.array(self.t), p, v, a

    def rows_in_time(self, chunk_id: int = 1) -> tuple[np.ndarray, np.ndarray]:
        """When each row of a chunk is to be reached, s [n], and the rows [n, 7]."""
        asked, rows = self.chunks[chunk_id]
        if self.settings.mode == "sync":
            for k, output in enumerate(self.outputs):
                if output.status.chunk_id == chunk_id and output.status.row >= 0:
                    asked = k - output.status.row
                    break
        # The command of a tick is where the arm is one period later.
        return (asked + 1 + np.arange(len(rows))) * ROW_PERIOD_S, rows

    def tool(self) -> tuple[np.ndarray, np.ndarray]:
        """Fingertip position [n, 3] m and speed [n] m/s."""
        _, p, v, _ = self.curves
        offset = np.array(self.settings.tool_offset_m)
        found = posture(p)
        return found.tool(offset), tool_speed(found, v, offset)


def continued(rows: np.ndarray, prefix: Prefix) -> np.ndarray:
    """Rows as the last step of a guided policy makes them of these: see policy/prefix.py."""
    from cosmos_lite_ros.policy.prefix import prefix_table

    n = len(prefix.positions)
    weight = prefix_table(prefix.positions, n - prefix.firm_rows)[1 : n + 1, 7:]
    rows = rows.copy()
    rows[:n] += weight * (prefix.positions - rows[:n])
    return rows


def once(rows: np.ndarray) -> Rows:
    """A policy that answers the first request only."""
    asked: list[int] = []

    def answer(tick: int) -> np.ndarray | None:
        asked.append(tick)
        return rows if len(asked) == 1 else None

    return answer
