# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""A bench to which everything happens: every choice comes from one seed, everything is judged."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from cosmos_lite_ros.execution.gate import IncomingChunk
from cosmos_lite_ros.execution.machine import State
from cosmos_lite_ros.execution.requests import Request

from .judge import Judge
from .makers import NS, Bench, ramp

KINDS = (
    "smooth",
    "fast",
    "bfloat16",
    "spike",
    "nan",
    "white",
    "far",
    "lost",
    "old",
    "twice",
    "late",
)


def bfloat16(values: np.ndarray) -> np.ndarray:
    """Rounded to the 8 bits of a bfloat16's significand."""
    bits = values.astype(np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    return rounded.astype(np.uint32).view(np.float32).astype(np.float64)


def noisy(rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Rows as the reference's arithmetic leaves them: about 9 mrad of noise (rms)."""
    return bfloat16((rows + rng.normal(0, 0.0085, rows.shape)) / np.pi) * np.pi


class Chaos:
    """See the module. Every assertion that can be made at a tick is made at each."""

    def __init__(self, seed: int, **settings: Any) -> None:
        self.rng = np.random.default_rng(seed)
        self.epochs: dict[int, set[int]] = {}
        self.bench = Bench(self.source, **settings)
        self.judge = Judge(self.bench.settings)
        self.latency = int(self.rng.integers(0, 12))
        self.stopped_ticks = 0
        self.newest_epoch = self.bench.core.epoch
        self.moved = 0
        self.executed: set[tuple[int, int]] = set()
        self._kept: list[IncomingChunk] = []
        core = self.bench.core
        braking_s = float((core.limits.velocity / core.limits.acceleration).max())
        self.rest_ticks = math.ceil(braking_s * 15) + 2

    def source(self, b: Bench, request: Request) -> IncomingChunk | None:
        """Answers requests, well or badly, now or much later, once or twice or never."""
        rng = self.rng
        b.latency = max(0, self.latency + int(rng.integers(-2, 3)))
        kind = rng.choice(KINDS)
        direction = rng.normal(0, 1, 7)
        table = ramp(b.measured, 1.0) - b.measured
        table = b.measured + table * direction * (0.03 if kind == "fast" else 0.008)
        if kind == "bfloat16":
            table = noisy(table, rng)
        elif kind == "spike":
            table[int(rng.integers(32))] += rng.normal(0, 1.0, 7)
        elif kind == "nan":
            table[int(rng.integers(32)), 2] = rng.choice([np.nan, np.inf, -np.inf])
        elif kind == "white":
            table = rng.normal(0, 1.5, table.shape)
        elif kind == "far":
            table += rng.normal(0, 0.2, 7)
        chunk = b.chunk(table, request, gripper=rng.normal(0.5, 0.5, 32))
        self.epochs.setdefault(chunk.chunk_id, set()).add(request.epoch)
        if kind == "lost":
            # It comes after all, after others.
            self._kept.append(chunk)
            return None
        if kind == "late" and self._kept:
            b.core.offer_chunk(self._kept.pop(0))
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
        if not b.followed:
            b.followed = bool(rng.random() < 0.3)
        if b.core.machine.stopped and what < 0.3:
            b.core.offer_emergency_stop(False, b.now_ns)
            b.joints_alive = True
            if what < 0.03:
                b.core.home(b.now_ns, b.ros_ns)
            else:
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
        elif what < 0.095:
            b.followed = False
        elif what < 0.1:
            # The policy starts again: its chunks count from 1.
            b._chunk_id = 0
        elif what < 0.105:
            b.restart()
            b.core.offer_instruction("task", b.now_ns)
            self.stopped_ticks = 0
        elif what < 0.11 and b.core.machine.stopped and not b.velocity.any():
            b.measured = b.measured + rng.normal(0, 0.1, 7)
            b._sent = None

    def step(self) -> None:
        """One tick and everything that must hold after it."""
        b = self.bench
        self.happen()
        output = b.tick()
        status = output.status
        assert status.epoch >= self.newest_epoch, "an epoch came again"
        self.newest_epoch = status.epoch
        if status.chunk_id:
            assert status.epoch in self.epochs[status.chunk_id], "a row of a dead epoch"
            self.executed.add((status.epoch, status.chunk_id))
        if status.state in (State.EMPTY, State.PRIMED):
            assert output.trajectory is None, "a command before the rows run"
        stopped = status.state is State.STOPPED
        self.stopped_ticks = self.stopped_ticks + 1 if stopped else 0
        if stopped:
            assert status.row == -1, "a row while STOPPED"
            assert output.gripper is None, "the gripper while STOPPED"
            assert output.request is None, "a request while STOPPED"
        if self.stopped_ticks > self.rest_ticks:
            assert output.trajectory is None, "still commanding after the time to rest"
            assert not b.velocity.any(), "not at rest in time"
        if output.trajectory is not None:
            self.moved += 1
            self.judge.trajectory(output.trajectory.positions, output.trajectory.velocities)

    def run(self, ticks: int) -> None:
        """Ticks, then the verdict on what the arm was sent."""
        self.bench.core.offer_instruction("task", 0)
        for _ in range(ticks):
            self.step()
            for p0, v0, p1, v1 in self.bench.ends:
                self.judge.segment(p0, v0, p1, v1)
            self.bench.ends.clear()
            self.judge.verdict()
