# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The command of each tick: along the rows, slowly to a first row or home, or to rest."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cosmos_lite_ros.execution.chunk_buffer import ChunkBuffer
from cosmos_lite_ros.execution.gate import Gate, GateFlag
from cosmos_lite_ros.execution.gripper import GripperLogic
from cosmos_lite_ros.execution.joint_watch import JointWatch
from cosmos_lite_ros.execution.lead import Lead
from cosmos_lite_ros.execution.limiter import Floats
from cosmos_lite_ros.execution.machine import StopReason
from cosmos_lite_ros.execution.motion import Motion
from cosmos_lite_ros.execution.output import Counters, TickNotes
from cosmos_lite_ros.execution.settings import ExecutorSettings
from cosmos_lite_ros.execution.trajectory import Reference

# A command that differs from its row by less was not changed, rad.
_CHANGED_RAD = 1e-5


@dataclass(frozen=True)
class Ended:
    """Motion cannot go on as it was; ``stop`` is None when the rows have merely run out."""

    stop: StopReason | None = None
    text: str = ""


class Mover:
    """Command sources in their order: a way home, a way to the first row, the rows themselves.

    Invariants: every command comes out of ``motion`` and with it out of the one limiter; the first
    command after rest has passed the start guard; a way home follows no row.
    """

    def __init__(
        self,
        settings: ExecutorSettings,
        gate: Gate,
        motion: Motion,
        buffer: ChunkBuffer,
        joints: JointWatch,
        counters: Counters,
    ) -> None:
        robot = settings.robot_type
        self._settings = settings
        self._gate = gate
        self._motion = motion
        self._buffer = buffer
        self._joints = joints
        self._counters = counters
        self._slow = np.minimum(
            np.array(robot.velocity_max) * settings.start_velocity_scale,
            motion.limiter.limits.velocity,
        )
        self._home = np.array(settings.home)
        self.gripper = GripperLogic(settings.gripper)
        # The next command is the first after rest, to which the start guard applies.
        self.starting = False
        self.homing = False
        self._far = ""
        self._way: Lead | None = None

    @property
    def ramping(self) -> bool:
        """Whether the arm is being led to the first row."""
        return self._way is not None and not self.homing

    @property
    def doing(self) -> str:
        """What is being done instead of following rows, one line; empty when rows are followed."""
        if self.homing:
            return "moving home slowly"
        return f"moving slowly to the first row: {self._far}" if self.ramping else ""

    def forget_rows(self) -> None:
        """The rows are gone, and with them the way to the first of them."""
        self.starting = False
        if not self.homing:
            self._way = None

    def stop(self) -> None:
        """Nothing is under way any more."""
        self.starting = self.homing = False
        self._way = None

    def go_home(self) -> None:
        """Lead the arm home from the next tick on."""
        self.stop()
        self.homing = True

    def run(self, tick: int, notes: TickNotes, now_ns: int) -> Ended | None:
        """The command of a tick in RUNNING; what ended it when there is none."""
        if self.homing:
            return self._run_home(tick, notes)
        if self._way is not None:
            first = self._buffer.position
            assert first is not None
            if not self._motion.arrived(first):
                return self._lead(tick, notes)
            self._way = None
            self._buffer.pin(tick - 1)
        point = self._buffer.advance(tick)
        if point is None:
            return Ended()
        if self.starting:
            ended = self._start(notes)
            if ended is not None:
                return ended
            if self.ramping:
                return self._lead(tick, notes)
        reference = self._buffer.reference(self._motion.points)
        sent = self._motion.follow(tick, reference)
        notes.trajectory, notes.requested = sent, point.requested
        notes.chunk_id, notes.row = point.chunk_id, point.row
        notes.flags |= point.flags
        if np.abs(sent.positions[0] - reference.positions[0]).max() > _CHANGED_RAD:
            notes.flags |= int(GateFlag.LIMITER)
        if np.abs(sent.positions[0] - point.requested).max() > _CHANGED_RAD:
            self._counters.gate_clamped += 1
        changed = self.gripper.update(point.gripper, now_ns)
        # A dry run moves nothing, the gripper included.
        notes.gripper = None if self._settings.dry_run else changed
        return None

    def rest(self, tick: int, notes: TickNotes) -> None:
        """The command of a tick without a row: to rest at the last row, or where that leads."""
        last = self._buffer.position
        if last is None:
            notes.trajectory = self._motion.brake(tick)
        elif not self._motion.arrived(last):
            notes.trajectory = self._motion.settle(tick, last)
            notes.requested = last if notes.trajectory is not None else None

    def _start(self, notes: TickNotes) -> Ended | None:
        """The start guard: begin from rest; the way to the first row if that is far."""
        self.starting = False
        first, measured = self._buffer.position, self._joints.positions
        assert first is not None
        assert measured is not None
        self._motion.begin(measured, self._settings.start_tolerance_rad)
        distance, joint = self._gate.farthest(first, measured)
        if distance <= self._settings.start_tolerance_rad:
            return None
        notes.flags |= int(GateFlag.START)
        text = (
            f"the first command of {joint} is {distance:.3f} rad from the measured joint, expected "
            f"at most start_tolerance_rad = {self._settings.start_tolerance_rad:g}"
        )
        if self._settings.start_policy == "refuse":
            return Ended(StopReason.GATE, text)
        self._far = text
        self._way = Lead(measured, first, self._slow)
        return None

    def _lead(self, tick: int, notes: TickNotes) -> Ended | None:
        """Lead the arm slowly to the row that waits."""
        point = self._buffer.point
        assert point is not None
        ended = self._along(tick, notes, "the first row")
        if ended is None:
            notes.requested, notes.chunk_id, notes.row = point.requested, point.chunk_id, point.row
            notes.flags |= int(GateFlag.START) | point.flags
        return ended

    def _run_home(self, tick: int, notes: TickNotes) -> Ended | None:
        if self._way is None:
            measured = self._joints.positions
            assert measured is not None
            self._motion.begin(measured, self._settings.start_tolerance_rad)
            self._way = Lead(measured, self._home, self._slow)
        elif self._motion.arrived(self._home):
            return Ended(StopReason.NOT_ARMED, "at home: call ~/resume")
        ended = self._along(tick, notes, "home")
        if ended is None:
            notes.requested = self._home
        return ended

    def _along(self, tick: int, notes: TickNotes, where: str) -> Ended | None:
        """One command of the way, unless it leads nowhere."""
        way, position = self._way, self._motion.position
        assert way is not None
        assert position is not None
        if way.blocked(position):
            distance, joint = self._gate.farthest(way.target, position)
            text = (
                f"the way to {where} is blocked {distance:.3f} rad before it ({joint}): it leads "
                "beyond a limit of the workspace"
            )
            return Ended(StopReason.GATE, text)
        reference = Reference.hold(way.target, self._motion.points)
        notes.trajectory = self._motion.follow(tick, reference, way.speed)
        return None

    def hold(self) -> Floats | None:
        """Where the next command would be without a row, rad [joints]."""
        return self._motion.hold(self._joints.positions, self._settings.start_tolerance_rad)
