# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""A bench for the executor core: an injected clock, an arm that follows, and chunks to order.

The arm and the chunk source are stand-ins: the arm is where the sent cubic is, exactly, and the
chunks are what a test says.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from cosmos_lite_ros.contract.constants import CHUNK_ROWS, ROW_PERIOD_S
from cosmos_lite_ros.contract.robots import PANDA
from cosmos_lite_ros.execution.core import ExecutorCore
from cosmos_lite_ros.execution.gate import IncomingChunk
from cosmos_lite_ros.execution.limiter import MotionLimits
from cosmos_lite_ros.execution.machine import State, StopReason
from cosmos_lite_ros.execution.output import TickOutput
from cosmos_lite_ros.execution.requests import Request
from cosmos_lite_ros.execution.settings import ExecutorSettings
from cosmos_lite_ros.execution.ticker import Ticker, TickGrid

NS = 1_000_000_000
HOME = np.array(PANDA.home)
EPOCH_NS = 1_700_000_000 * NS
# What an operator and a node bring, and a bench need not have.
UNGUARDED = {"require_enable": False, "require_preflight": False}
Source = Callable[["Bench", Request], "IncomingChunk | None"]


def joint_message(
    positions: Any, stamp_ns: int, names: tuple[str, ...] = PANDA.joint_names
) -> SimpleNamespace:
    """Shaped like sensor_msgs/JointState."""
    stamp = SimpleNamespace(sec=stamp_ns // NS, nanosec=stamp_ns % NS)
    return SimpleNamespace(
        header=SimpleNamespace(stamp=stamp),
        name=list(names),
        position=[float(p) for p in positions],
    )


def ramp(
    start: Any = HOME, step: float = 0.005, rows: int = CHUNK_ROWS, joint: int | None = None
) -> np.ndarray:
    """Rows that move by ``step`` rad a row, row 0 one step from ``start``."""
    direction = np.ones(7) if joint is None else np.eye(7)[joint]
    return np.asarray(start) + step * np.arange(1, rows + 1)[:, None] * direction


def sample_segment(
    p0: np.ndarray, v0: np.ndarray, p1: np.ndarray, v1: np.ndarray, n: int = 67
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Position, velocity and acceleration of the cubic between two points, about 1 kHz."""
    T = ROW_PERIOD_S
    t = np.linspace(0.0, T, n)[:, None]
    d = (p1 - p0) / T
    a0, a1 = (6 * d - 4 * v0 - 2 * v1) / T, (-6 * d + 2 * v0 + 4 * v1) / T
    j = (a1 - a0) / T
    return (
        p0 + v0 * t + a0 * t * t / 2 + j * t**3 / 6,
        v0 + a0 * t + j * t * t / 2,
        a0 + j * t,
    )


def excess(
    samples: tuple[np.ndarray, np.ndarray, np.ndarray], limits: MotionLimits
) -> tuple[float, float, float]:
    """How far samples lie outside position, velocity and acceleration limits (<= 0: inside)."""
    p, v, a = samples
    return (
        float(np.maximum(p - limits.position_max, limits.position_min - p).max()),
        float((np.abs(v) - limits.velocity).max()),
        float((np.abs(a) - limits.acceleration).max()),
    )


class Bench:
    """The core on a clock of its own.

    ``source`` answers each request ``latency`` ticks later. ``arm`` False: the arm stays put.
    """

    def __init__(
        self,
        source: Source | None = None,
        *,
        latency: int = 2,
        position: Any = HOME,
        arm: bool = True,
        **settings: Any,
    ) -> None:
        self.settings = ExecutorSettings(**{**UNGUARDED, **settings})
        self.core = self._new_core(5 * NS)
        self.ticker = Ticker(self.core.grid)
        self.source, self.latency, self.arm = source, latency, arm
        self.now_ns = 5 * NS
        self.ros_offset_ns = EPOCH_NS
        self.listening = self.followed = True
        self.joints_alive = True
        self.measured = np.array(position, dtype=float)
        self.velocity = np.zeros(7)
        self.outputs: list[TickOutput] = []
        self.requests: list[Request] = []
        self.positions: list[np.ndarray] = []
        self.segments: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        # The same as states: position and velocity at both ends.
        self.ends: list[tuple[np.ndarray, ...]] = []
        self._due: list[tuple[int, Request]] = []
        self._sent: TickOutput | None = None
        self._sent_tick = self._since = 0
        self._chunk_id = 0
        self.skip = 0

    def _new_core(self, now_ns: int) -> ExecutorCore:
        return ExecutorCore(
            self.settings, TickGrid(5 * NS), epoch_ns=EPOCH_NS + now_ns, now_ns=now_ns
        )

    def restart(self) -> None:
        """The executor's process dies and is started again; the arm runs what it has got."""
        self.core = self._new_core(self.now_ns)

    @property
    def ros_ns(self) -> int:
        """ROS time."""
        return self.now_ns + self.ros_offset_ns

    @property
    def status(self) -> Any:
        """The newest status."""
        return self.outputs[-1].status

    @property
    def state(self) -> State:
        """The newest state."""
        return self.core.machine.state

    def chunk(self, positions: Any, request: Request | None = None, **fields: Any) -> IncomingChunk:
        """A chunk that answers a request (the newest), observed when that was sent."""
        request = request or self.requests[-1]
        positions = np.asarray(positions, dtype=float)
        rows = len(positions)
        self._chunk_id += 1
        stamp = request.sent_ns + self.ros_offset_ns
        values = {
            "chunk_id": self._chunk_id,
            "request_id": request.request_id,
            "epoch": request.epoch,
            "joint_names": self.core.robot.joint_names,
            "rows": rows,
            "row_period_s": ROW_PERIOD_S,
            "positions": positions.reshape(-1),
            "gripper": np.zeros(rows),
            "stamp_ns": stamp,
            "joint_state_stamp_ns": stamp,
            "random_weights": False,
            **fields,
        }
        return IncomingChunk(**values)

    def tick(self, count: int = 1) -> TickOutput:
        """Run ticks; the arm moves on between them."""
        for _ in range(count):
            self.now_ns = self.ticker.grid.deadline_ns(self.ticker._next + self.skip) + 1000
            self.skip = 0
            arrival = self.ticker.arrive(self.now_ns)
            assert arrival is not None
            self._move_arm(arrival.tick)
            if self.joints_alive:
                stamp = self.ros_ns - 1_000_000
                message = joint_message(self.measured, stamp, self.core.robot.joint_names)
                self.core.joints.push(message, self.now_ns, self.ros_ns)
            for due, request in [*self._due]:
                if due <= arrival.tick:
                    self._due.remove((due, request))
                    answer = self.source(self, request) if self.source else None
                    if answer is not None:
                        self.core.offer_chunk(answer)
            output = self.core.tick(
                arrival,
                self.now_ns,
                self.ros_ns,
                listening=self.listening,
                followed=self.followed,
            )
            self.outputs.append(output)
            if output.trajectory is not None:
                assert not output.trajectory.velocities[-1].any()
                self._sent, self._sent_tick, self._since = output, arrival.tick, 0
            if output.request is not None:
                self.requests.append(output.request)
                self._due.append((arrival.tick + self.latency, output.request))
            self.core._buffer.check()
        return self.outputs[-1]

    def _move_arm(self, tick: int) -> None:
        """The arm is where the last sent trajectory has led; its segments are kept."""
        sent = None if self._sent is None else self._sent.trajectory
        if sent is not None and self.arm:
            for i in range(tick - self._sent_tick):
                j = min(self._since + i, len(sent.positions) - 1)
                self._segment(sent.positions[j], sent.velocities[j])
            self._since += tick - self._sent_tick
            self._sent_tick = tick
        self.positions.append(self.measured.copy())

    def _segment(self, p: np.ndarray, v: np.ndarray) -> None:
        self.segments.append(sample_segment(self.measured, self.velocity, p, v))
        self.ends.append((self.measured.copy(), self.velocity.copy(), p.copy(), v.copy()))
        self.measured, self.velocity = p.copy(), v.copy()

    def run_until(self, condition: Callable[[], bool], limit: int = 600) -> int:
        """Tick until a condition holds; the number of ticks."""
        for n in range(limit):
            if condition():
                return n
            self.tick()
        raise AssertionError(f"not within {limit} ticks; {self.status.reason}")

    def arm_up(self, instruction: str = "wipe the table") -> None:
        """Joint states, an instruction, resume."""
        self.tick(2)
        self.core.offer_instruction(instruction, self.now_ns)
        answer = self.core.resume(self.now_ns, self.ros_ns)
        assert answer.success, answer.message


def steady(b: Bench, request: Request) -> IncomingChunk:
    """Move on from where the arm is, 5 mrad a row."""
    return b.chunk(ramp(b.measured))


def running(**fields: Any) -> Bench:
    """A bench that runs."""
    b = Bench(steady, **fields)
    b.arm_up()
    b.run_until(lambda: b.state is State.RUNNING)
    b.tick(5)
    return b


def assert_comes_to_rest(b: Bench, reason: StopReason) -> None:
    """STOPPED with this reason, at rest at once, and nothing sent after that."""
    assert b.state is State.STOPPED
    assert b.core.machine.stop_reason is reason
    # 75 mrad/s take one segment; the rows that had been sent would take seven.
    b.tick(3)
    assert not b.velocity.any()
    sent = b.core.counters.commands_sent
    place = b.measured.copy()
    b.tick(30)
    assert b.core.counters.commands_sent == sent
    assert (b.measured == place).all()
    assert b.state is State.STOPPED
    worst = np.array([excess(s, b.core.limits) for s in b.segments]).max(axis=0)
    assert (worst <= [1e-7, 1e-6, 1e-5]).all()
