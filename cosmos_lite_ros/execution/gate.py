# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The gate before the buffer: what a chunk must be like before any of its rows may move an arm.

Finite comes first: NaN passes through every clip and comparison.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntFlag
from typing import Literal

import numpy as np
import numpy.typing as npt

from cosmos_lite_ros.contract.constants import CHUNK_ROWS, ROW_PERIOD_S
from cosmos_lite_ros.contract.robots import RobotType
from cosmos_lite_ros.execution.limiter import Floats
from cosmos_lite_ros.execution.settings import ExecutorSettings
from cosmos_lite_ros.execution.smooth import Smoother
from cosmos_lite_ros.execution.space import REACH_M, SpaceLimits

Outcome = Literal["clamp", "reject_chunk", "stop"]
# An arm may rest at a limit and sag over it by so much.
_OUTSIDE_RAD = 0.02
_OUTSIDE_M = 0.02
_SEVERITY: dict[Outcome, int] = {"clamp": 0, "reject_chunk": 1, "stop": 2}


class GateFlag(IntFlag):
    """What the gate and the limiter saw; the values of ExecutorStatus.gate_flags."""

    NON_FINITE = 1
    SHAPE = 2
    JOINT_NAMES = 4
    POSITION_LIMIT = 8
    STEP = 16
    SPIKE = 32
    START = 64
    RANDOM_WEIGHTS = 128
    LIMITER = 256
    WORKSPACE = 512
    TOOL_SPEED = 1024
    SMOOTHED = 2048


@dataclass(frozen=True, eq=False)
class IncomingChunk:
    """An action chunk as it came, nothing of it believed yet; fields as in ActionChunk.msg."""

    chunk_id: int
    request_id: int
    epoch: int
    joint_names: tuple[str, ...]
    rows: int
    row_period_s: float
    positions: npt.NDArray[np.float64]
    gripper: npt.NDArray[np.float64]
    stamp_ns: int
    joint_state_stamp_ns: int
    random_weights: bool


@dataclass(frozen=True)
class Failed:
    """A chunk that must not be executed; ``stop`` when the executor must stop, too."""

    flag: GateFlag
    reason: str
    stop: bool


@dataclass(frozen=True, eq=False)
class Passed:
    """Rows that may be executed: positions [n, joints] rad, smoothed and clamped; flags [n]."""

    positions: Floats
    flags: npt.NDArray[np.int64]


class Gate:
    """Checks of chunks against a robot type, as the settings say; nothing here moves by itself."""

    def __init__(
        self, robot: RobotType, settings: ExecutorSettings, space: SpaceLimits | None = None
    ) -> None:
        self._robot = robot
        self._settings = settings
        self._space = space
        self._smoother = Smoother(
            np.array(robot.acceleration_max) * settings.acceleration_scale,
            settings.max_smoothing_rad,
        )
        self._low, self._high = robot.limits()
        self._step = np.array(robot.velocity_max) * settings.velocity_scale * ROW_PERIOD_S

    def table(self, chunk: IncomingChunk) -> Floats | Failed:
        """The positions [rows, joints], columns in the order of the robot type.

        Checks what makes a chunk readable: finite, shape, joint names, and random weights.
        """
        limits, joints = self._settings.limits, len(self._robot.joint_names)
        if not (np.isfinite(chunk.positions).all() and np.isfinite(chunk.gripper).all()):
            reason = "the chunk holds values that are not finite"
            return _failed(GateFlag.NON_FINITE, reason, limits.finite)
        shape = (chunk.positions.size, chunk.gripper.size)
        if not 1 <= chunk.rows <= CHUNK_ROWS or shape != (chunk.rows * joints, chunk.rows):
            reason = (
                f"the chunk has {chunk.rows} rows, {shape[0]} positions and {shape[1]} gripper "
                f"values, expected 1 to {CHUNK_ROWS} rows of {joints} positions"
            )
            return _failed(GateFlag.SHAPE, reason, limits.shape)
        if not abs(chunk.row_period_s - ROW_PERIOD_S) < 1e-6:
            reason = f"rows {chunk.row_period_s:.6g} s apart, expected {ROW_PERIOD_S:.6g} s"
            return _failed(GateFlag.SHAPE, reason, limits.shape)
        names = list(chunk.joint_names)
        if sorted(names) != sorted(self._robot.joint_names):
            reason = (
                f"the chunk is for joints {', '.join(names)}, expected "
                f"{', '.join(self._robot.joint_names)}"
            )
            return _failed(GateFlag.JOINT_NAMES, reason, limits.joint_names)
        real = not self._settings.dry_run
        if chunk.random_weights and real and not self._settings.allow_random_weights:
            reason = (
                "the chunk comes from a checkpoint with random weights: use dry_run, or "
                "allow_random_weights in a simulator"
            )
            return Failed(GateFlag.RANDOM_WEIGHTS, reason, False)
        columns = [names.index(name) for name in self._robot.joint_names]
        return np.ascontiguousarray(chunk.positions.reshape(chunk.rows, joints)[:, columns])

    def rows(
        self, table: Floats, first: int, previous: Floats, *, random_weights: bool = False
    ) -> Passed | Failed:
        """Check the rows that would be executed.

        Args:
            table: finite positions [n, joints], rad.
            first: the first row that would be; those before it are not judged.
            previous: what is commanded just before that row, rad [joints].
            random_weights: of the chunk. In a dry run its jumps are not judged: they are all that
                such a checkpoint has, nothing moves by them, and the limiter shapes them anyway.
        """
        unjudged = random_weights and self._settings.dry_run
        max_spike = np.inf if unjudged else self._settings.max_spike_rad
        limits = self._settings.limits
        flags = np.zeros(len(table), np.int64)
        failures: list[tuple[Outcome, GateFlag, str]] = []
        live = np.arange(len(table))[:, None] >= first
        jumps = np.abs(np.diff(table, axis=0, prepend=table[:1]))
        jumps[first] = np.abs(table[first] - previous)
        smooth = self._smoother(table)
        flags[np.abs(smooth - table).max(axis=1) > 0] |= int(GateFlag.SMOOTHED)
        table = smooth
        steps = np.abs(np.diff(table, axis=0, prepend=table[:1]))
        steps[first] = 0.0
        checks: tuple[tuple[Outcome, GateFlag, npt.NDArray[np.bool_], Floats, str], ...] = (
            (
                limits.spike,
                GateFlag.SPIKE,
                jumps > max_spike,
                jumps,
                "rad away from the row before (the first row: from the last command), expected at "
                f"most max_spike_rad = {self._settings.max_spike_rad:g}",
            ),
            (
                limits.position,
                GateFlag.POSITION_LIMIT,
                (table < self._low) | (table > self._high),
                table,
                "rad, outside the position limits",
            ),
            (
                limits.step,
                GateFlag.STEP,
                steps > self._step,
                steps,
                "rad from the row before, more than velocity_scale allows",
            ),
        )
        for policy, flag, broken, values, words in checks:
            broken &= live
            hit = broken.any(axis=1)
            flags[hit] |= int(flag)
            if hit.any():
                row, joint = (int(i) for i in np.argwhere(broken)[0])
                name = self._robot.joint_names[joint]
                text = f"row {row}: {name} is {values[row, joint]:.4g} {words}"
                failures.append((policy, flag, text))
        rows = np.clip(table, self._low, self._high)
        if self._space is not None:
            rows = self._in_space(self._space, rows, first, flags, failures)
        worst = max(failures, key=lambda f: _SEVERITY[f[0]], default=None)
        if worst is not None and worst[0] != "clamp":
            return _failed(worst[1], worst[2], worst[0])
        return Passed(rows, flags)

    def _in_space(
        self,
        space: SpaceLimits,
        rows: Floats,
        first: int,
        flags: npt.NDArray[np.int64],
        failures: list[tuple[Outcome, GateFlag, str]],
    ) -> Floats:
        """Check rows from ``first`` on against the limits in space; the rows moved into the box."""
        limits, live = self._settings.limits, rows[first:]
        fast = space.tool_speeds(live)
        hit = np.flatnonzero(fast > space.max_tool_speed) + first + 1
        if len(hit):
            flags[hit] |= int(GateFlag.TOOL_SPEED)
            speed = fast[hit[0] - first - 1]
            text = (
                f"row {hit[0]}: the fingertip moves at {speed:.3g} m/s, expected at most "
                f"max_tool_speed_m_s = {space.max_tool_speed:g}"
            )
            failures.append((limits.tool_speed, GateFlag.TOOL_SPEED, text))
        if not space.boxed:
            return rows
        beyond = space.beyond(live)
        hit = np.flatnonzero(beyond.max(axis=1) > 0) + first
        if len(hit):
            flags[hit] |= int(GateFlag.WORKSPACE)
            text = f"row {hit[0]}: {space.describe(beyond[hit[0] - first])}"
            failures.append((limits.workspace, GateFlag.WORKSPACE, text))
        rows = rows.copy()
        rows[first:] = space.moved_inside(live, self._low, self._high)
        left = space.beyond(rows[first:])
        far = np.flatnonzero((left.max(axis=1) > 0) | (beyond.max(axis=1) > REACH_M))
        if len(far) and limits.workspace == "clamp":
            text = f"row {far[0] + first}: {space.describe(beyond[far[0]])}, too far to clamp it"
            failures.append(("reject_chunk", GateFlag.WORKSPACE, text))
        return rows

    def outside(self, measured: Floats | None) -> str:
        """Where a measured arm is that it must not be, one line; empty when it is inside."""
        if measured is None:
            return ""
        if self._space is not None and self._space.boxed:
            out = self._space.beyond(measured[None])[0]
            if out.max() > _OUTSIDE_M:
                return f"{self._space.describe(out)}: move the arm back with its own tools"
        beyond = np.maximum(self._low - measured, measured - self._high)
        joint = int(np.argmax(beyond))
        if beyond[joint] <= _OUTSIDE_RAD:
            return ""
        return (
            f"{self._robot.joint_names[joint]} is at {measured[joint]:.4g} rad, outside its limits "
            f"{self._low[joint]:g} to {self._high[joint]:g}: move it back with its own tools"
        )

    def farthest(self, a: Floats, b: Floats) -> tuple[float, str]:
        """The largest distance between two positions, rad, and the joint that has it."""
        distance = np.abs(a - b)
        joint = int(np.argmax(distance))
        return float(distance[joint]), self._robot.joint_names[joint]


def _failed(flag: GateFlag, reason: str, policy: Outcome) -> Failed:
    return Failed(flag, reason, policy == "stop")
