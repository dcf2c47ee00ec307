# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The executor without ROS: inputs at any time, one call a tick, everything that follows from them.

Not thread-safe: the caller holds one lock around every call. ``now_ns`` is the steady clock,
``ros_ns`` ROS time (0 while /clock is awaited).

Invariants:
  - in STOPPED no row is followed: at most a motion in progress is slowed down to rest;
  - only ``resume`` leaves STOPPED, with an empty buffer, in a new epoch;
  - every command comes out of the one limiter, and each trajectory ends at rest;
  - the epoch only grows, and chunks of another one are never executed.
"""

from __future__ import annotations

import math

import numpy as np

from cosmos_lite_ros.contract.observation import clean_instruction, instruction_hash
from cosmos_lite_ros.contract.robots import robot_type
from cosmos_lite_ros.errors import BadInputError
from cosmos_lite_ros.execution.chunk_buffer import ChunkBuffer
from cosmos_lite_ros.execution.clock import NS, RateGuard, RosOffset
from cosmos_lite_ros.execution.gate import Failed, Gate, GateFlag, IncomingChunk
from cosmos_lite_ros.execution.gripper import GripperLogic
from cosmos_lite_ros.execution.intake import Intake
from cosmos_lite_ros.execution.interlocks import Interlocks
from cosmos_lite_ros.execution.joint_watch import JointWatch
from cosmos_lite_ros.execution.limiter import Limiter, MotionLimits
from cosmos_lite_ros.execution.machine import State, StateMachine, StopReason
from cosmos_lite_ros.execution.motion import Motion
from cosmos_lite_ros.execution.output import (
    Answer,
    Counters,
    Incidents,
    Status,
    TickNotes,
    TickOutput,
)
from cosmos_lite_ros.execution.requests import RequestReason, RequestTracker
from cosmos_lite_ros.execution.settings import ExecutorSettings
from cosmos_lite_ros.execution.ticker import Arrival, TickGrid
from cosmos_lite_ros.execution.trajectory import Reference

# A bag that loops jumps once per pass; more often than this ROS time cannot be followed.
_JUMPS, _JUMP_WINDOW_S = 3, 10.0
# A command that differs from its row by less was not changed, rad.
_CHANGED_RAD = 1e-5
_MOVING = (State.RUNNING, State.UNDERRUN)


class ExecutorCore:
    """See the module. ``epoch_ns`` is wall-clock time, so that a restart never repeats an epoch."""

    def __init__(
        self, settings: ExecutorSettings, grid: TickGrid, *, epoch_ns: int, now_ns: int
    ) -> None:
        robot = robot_type(settings.robot)
        self.settings = settings
        self.robot = robot
        self.grid = grid
        self.limits = MotionLimits.of(robot, settings.velocity_scale, settings.acceleration_scale)
        self.machine = StateMachine(now_ns)
        self.joints = JointWatch(robot)
        self.interlocks = Interlocks(settings, self.joints)
        self.requests = RequestTracker(settings.request_timeout_s)
        self.offset = RosOffset()
        self.counters = Counters()
        self.incidents = Incidents()
        self.instruction = ""
        self._sha256 = ""
        self._start_speed = np.minimum(
            np.array(robot.velocity_max) * settings.start_velocity_scale, self.limits.velocity
        )
        self._gate = Gate(robot, settings)
        self._motion = Motion(Limiter(self.limits), settings.lookahead_rows)
        self._gripper = GripperLogic(settings.gripper)
        self._buffer = ChunkBuffer(self.limits, settings.blend_rows, epoch_ns)
        self._intake = Intake(settings, self._gate, self._buffer, grid, self.offset)
        self._jump_guard = RateGuard(_JUMPS, _JUMP_WINDOW_S)
        self._chunks: list[IncomingChunk] = []
        self._observed_ns: dict[int, int] = {}
        self._ask = RequestReason.FIRST
        self._errors = 0
        self._drained = ""
        # The next command is the first after rest, to which the start guard applies.
        self._starting = False
        self._ramp = False
        self._listening = False

    # Inputs.

    @property
    def epoch(self) -> int:
        """The current epoch."""
        return self._buffer.epoch

    def offer_chunk(self, chunk: IncomingChunk) -> None:
        """A chunk has arrived; it is judged at the next tick. Only the newest few are kept."""
        self._chunks.append(chunk)
        del self._chunks[:-4]

    def offer_instruction(self, text: str, now_ns: int) -> None:
        """An instruction has arrived, maybe once more; an unusable one changes nothing."""
        try:
            text = clean_instruction(text)
        except BadInputError as error:
            self.incidents.instruction = f"instruction refused: {error}"
            return
        if text == self.instruction:
            self._drained = ""
            return
        if self.settings.instruction_policy == "drain" and self.machine.state is State.RUNNING:
            self._drained = text
            return
        self._take_instruction(text, now_ns)

    def offer_emergency_stop(self, value: bool, now_ns: int) -> None:
        """True stops and is latched; false alone resumes nothing."""
        self.interlocks.emergency_stop = value
        if value:
            self._stop(StopReason.EMERGENCY_STOP, "emergency_stop is true", now_ns)

    def resume(self, now_ns: int, ros_ns: int) -> Answer:
        """Leave STOPPED, if everything that motion needs is there."""
        problem = self._why_not_resume(now_ns, ros_ns)
        if problem:
            return Answer(False, f"not resumed: {problem}")
        self.machine.resume(now_ns)
        self._new_epoch()
        self._ask, self._errors = RequestReason.FIRST, 0
        self._gripper.forget()
        self._jump_guard.clear()
        waiting = "" if self.instruction else ": waiting for an instruction"
        return Answer(True, f"resumed in epoch {self.epoch}{waiting}")

    def stop(self, now_ns: int, reason: StopReason = StopReason.OPERATOR, text: str = "") -> Answer:
        """Slow down to rest and stay STOPPED."""
        self._stop(reason, text or "stopped by the operator", now_ns)
        return Answer(True, "stopped")

    def disarm(self, now_ns: int) -> None:
        """STOPPED(NOT_ARMED), whatever was before: the node becomes active."""
        self.machine = StateMachine(now_ns)
        self._new_epoch()

    def reset(self, now_ns: int) -> Answer:
        """Stop, and forget what belongs to the running episode but the instruction."""
        self._stop(StopReason.OPERATOR, "reset by the operator", now_ns)
        self._new_epoch()
        self._gripper.forget()
        return Answer(True, f"reset, epoch {self.epoch}: call ~/resume")

    def _why_not_resume(self, now_ns: int, ros_ns: int) -> str:
        if not self.machine.stopped:
            return f"the state is {self.machine.state.name}, expected STOPPED"
        missing = self.interlocks.missing(now_ns, ros_ns)
        if not missing and not self._motion.at_rest:
            return "the arm is still slowing down: try again"
        return missing

    # One tick.

    def tick(self, arrival: Arrival, now_ns: int, ros_ns: int, *, listening: bool) -> TickOutput:
        """Everything of one tick.

        Args:
            listening: whether somebody is subscribed to chunk_request.
        """
        tick = arrival.tick
        self._listening = listening
        self.counters.ticks_late += arrival.skipped
        notes = TickNotes()
        self._motion.commit(tick)
        self._follow_clock(now_ns, ros_ns)
        self._watch(notes, now_ns, ros_ns)
        self._keep_requests(now_ns)
        self._take_chunks(tick, notes, now_ns)
        self._move(tick, notes, now_ns)
        self._request(notes, now_ns)
        if notes.trajectory is not None:
            self.counters.commands_sent += 1
        return TickOutput(
            self._status(arrival, notes, ros_ns), notes.trajectory, notes.gripper, notes.request
        )

    def _follow_clock(self, now_ns: int, ros_ns: int) -> None:
        jump_ns = self.offset.sample(now_ns, ros_ns)
        if not jump_ns:
            return
        self.incidents.clock = text = f"ROS time jumped by {jump_ns / NS:+.3f} s"
        self.joints.time_jumped()
        if self.machine.stopped:
            self._new_epoch()
        elif self._jump_guard.happened(now_ns):
            text += f", for the {_JUMPS + 1}th time within {_JUMP_WINDOW_S:g} s"
            self._stop(StopReason.CLOCK_JUMP, text, now_ns)
        else:
            self._flush(RequestReason.RESUME, text, now_ns)

    def _watch(self, notes: TickNotes, now_ns: int, ros_ns: int) -> None:
        """Stop when what motion needs is gone."""
        measured, commanded = self.joints.positions, self._motion.position
        error, joint = math.nan, ""
        if measured is not None and commanded is not None:
            error, joint = self._gate.farthest(measured, commanded)
            notes.tracking_error_rad = error
        if self.machine.stopped:
            return
        lost = self.interlocks.lost(now_ns, ros_ns)
        if lost is not None:
            self._stop(*lost, now_ns)
        elif self.machine.state in _MOVING and error > self.settings.tracking_limit_rad:
            text = (
                f"{joint} is {error:.3f} rad from its command, expected at most "
                f"max_tracking_error_rad = {self.settings.max_tracking_error_rad:g}"
            )
            self._stop(StopReason.TRACKING_ERROR, text, now_ns)

    def _keep_requests(self, now_ns: int) -> None:
        if not self._listening:
            # Nobody is there who could answer: ask again as soon as somebody is.
            self.requests.forget()
        elif self.requests.expire(now_ns):
            text = f"no chunk within {self.settings.request_timeout_s:g} s"
            if self.machine.state in _MOVING:
                self._error(text, now_ns)
            else:
                # Nothing moves yet: a policy that is still warming up may be waited for.
                self.incidents.chunk = text

    # Chunks.

    def _take_chunks(self, tick: int, notes: TickNotes, now_ns: int) -> None:
        chunks, self._chunks = self._chunks, []
        for chunk in chunks:
            if self.machine.stopped or not self.requests.answers(chunk.request_id, chunk.epoch):
                self.counters.chunks_foreign += 1
                self.incidents.chunk = (
                    f"chunk {chunk.chunk_id} answers request {chunk.request_id} of epoch "
                    f"{chunk.epoch}, which is not outstanding"
                )
                continue
            self.requests.answered(now_ns)
            hold = self._motion.hold(self.joints.positions, self.settings.start_tolerance_rad)
            rested = self.machine.state is State.UNDERRUN and self._motion.at_rest
            failed = self._intake.take(chunk, tick, now_ns, hold, rested)
            if isinstance(failed, Failed):
                notes.flags |= int(failed.flag)
                self.counters.chunks_rejected += 1
                self._error(failed.reason, now_ns, stop=failed.stop)
            elif failed is not None:
                self.counters.chunks_expired += 1
                self._error(failed, now_ns)
            else:
                self._taken(chunk, now_ns)

    def _taken(self, chunk: IncomingChunk, now_ns: int) -> None:
        """A chunk is in the buffer."""
        self.counters.chunks_accepted += 1
        self._errors = 0
        recent = [*self._observed_ns.items()][-3:]
        self._observed_ns = dict([*recent, (chunk.chunk_id, chunk.joint_state_stamp_ns)])
        if self.machine.state is State.EMPTY:
            self.machine.go(State.PRIMED, "", now_ns)
        elif self.machine.state is State.UNDERRUN:
            self.machine.go(State.RUNNING, "", now_ns)
            self._starting = self._motion.at_rest

    def _error(self, text: str, now_ns: int, *, stop: bool = False) -> None:
        """A request has brought no rows."""
        self.incidents.chunk = text
        self._errors += 1
        limit = self.settings.max_consecutive_errors
        if stop:
            self._stop(StopReason.GATE, text, now_ns)
        elif self._errors >= limit:
            self._stop(
                StopReason.POLICY_ERRORS, f"{self._errors} errors in a row, last: {text}", now_ns
            )

    # Motion.

    def _move(self, tick: int, notes: TickNotes, now_ns: int) -> None:
        """The command of this tick, and the moves between states that it brings."""
        machine = self.machine
        if machine.state is State.PRIMED and machine.since_ns != now_ns:
            machine.go(State.RUNNING, "", now_ns)
            self._starting = True
        if machine.state is State.RUNNING:
            self._run(tick, notes, now_ns)
        if machine.state is State.UNDERRUN:
            self._hold(tick, notes, now_ns)
        if machine.stopped:
            notes.trajectory = self._motion.brake(tick)

    def _run(self, tick: int, notes: TickNotes, now_ns: int) -> None:
        """Follow the rows; no command if that ends the state RUNNING."""
        if self._ramp and self._buffer.position is not None:
            if not self._motion.arrived(self._buffer.position):
                self._lead(tick, notes)
                return
            self._ramp = False
            self._buffer.pin(tick - 1)
        point = self._buffer.advance(tick)
        if point is None:
            self._run_out(now_ns)
            return
        if self._starting and not self._may_start(tick, notes, now_ns):
            return
        reference = self._buffer.reference(self._motion.points)
        sent = self._motion.follow(tick, reference)
        notes.trajectory, notes.requested = sent, point.requested
        notes.chunk_id, notes.row = point.chunk_id, point.row
        notes.flags |= point.flags
        if np.abs(sent.positions[0] - reference.positions[0]).max() > _CHANGED_RAD:
            notes.flags |= int(GateFlag.LIMITER)
        if np.abs(sent.positions[0] - point.requested).max() > _CHANGED_RAD:
            self.counters.gate_clamped += 1
        self._grip(point.gripper, notes, now_ns)

    def _may_start(self, tick: int, notes: TickNotes, now_ns: int) -> bool:
        """The start guard: whether the first row may be commanded now."""
        self._starting = False
        first, measured = self._buffer.position, self.joints.positions
        assert first is not None
        assert measured is not None
        self._motion.begin(measured, self.settings.start_tolerance_rad)
        distance, joint = self._gate.farthest(first, measured)
        if distance <= self.settings.start_tolerance_rad:
            return True
        notes.flags |= int(GateFlag.START)
        text = (
            f"the first command of {joint} is {distance:.3f} rad from the measured joint, expected "
            f"at most start_tolerance_rad = {self.settings.start_tolerance_rad:g}"
        )
        if self.settings.start_policy == "refuse":
            self._stop(StopReason.GATE, text, now_ns)
            return False
        self._ramp = True
        self.machine.text = f"moving slowly to the first row: {text}"
        self._lead(tick, notes)
        return False

    def _lead(self, tick: int, notes: TickNotes) -> None:
        """Lead the arm slowly to the row that waits."""
        target, point = self._buffer.position, self._buffer.point
        assert target is not None
        assert point is not None
        reference = Reference.hold(target, self._motion.points)
        notes.trajectory = self._motion.follow(tick, reference, self._start_speed)
        notes.requested, notes.chunk_id, notes.row = point.requested, point.chunk_id, point.row
        notes.flags |= int(GateFlag.START) | point.flags

    def _run_out(self, now_ns: int) -> None:
        """No row is left."""
        if self._drained:
            self._take_instruction(self._drained, now_ns)
            return
        planned = self.settings.mode == "sync"
        if planned:
            self._ask = RequestReason.REFILL
        else:
            self._ask = RequestReason.RESUME
            self.counters.underruns += 1
        self.machine.go(State.UNDERRUN, "" if planned else "no row left", now_ns)

    def _hold(self, tick: int, notes: TickNotes, now_ns: int) -> None:
        """Come to rest and stay; stop when that lasts too long."""
        waited_s = (now_ns - self.machine.since_ns) / NS
        if waited_s > self.settings.underrun_timeout_s:
            text = f"no row for {waited_s:.1f} s: {self._waiting_for()}"
            self._stop(StopReason.UNDERRUN_TIMEOUT, text, now_ns)
            return
        last = self._buffer.position
        if last is None:
            notes.trajectory = self._motion.brake(tick)
        elif not self._motion.arrived(last):
            reference = Reference.hold(last, self._motion.points)
            notes.trajectory = self._motion.follow(tick, reference)
            notes.requested = last

    def _grip(self, row: float, notes: TickNotes, now_ns: int) -> None:
        changed = self._gripper.update(row, now_ns)
        # A dry run moves nothing, the gripper included.
        notes.gripper = None if self.settings.dry_run else changed

    # Epochs.

    def _stop(self, reason: StopReason, text: str, now_ns: int) -> None:
        if self.machine.stop(reason, text, now_ns):
            self._new_epoch()

    def _set_instruction(self, text: str) -> None:
        self.instruction, self._sha256 = text, instruction_hash(text)

    def _take_instruction(self, text: str, now_ns: int) -> None:
        self._set_instruction(text)
        self._drained = ""
        if self.machine.stopped:
            self._new_epoch()
        else:
            self._flush(RequestReason.INSTRUCTION, "the instruction has changed", now_ns)

    def _flush(self, ask: RequestReason, text: str, now_ns: int) -> None:
        """Drop all rows, come to rest, and ask anew."""
        self._new_epoch()
        self._ask = ask
        machine = self.machine
        if machine.state is State.RUNNING:
            machine.go(State.UNDERRUN, text, now_ns)
        elif machine.state is State.PRIMED:
            machine.go(State.EMPTY, "", now_ns)
        elif machine.state is State.UNDERRUN:
            machine.text, machine.since_ns = text, now_ns
        if machine.state is State.EMPTY:
            self._ask = RequestReason.FIRST

    def _new_epoch(self) -> None:
        self._buffer.clear(self.epoch + 1)
        self.requests.forget()
        self._chunks.clear()
        self._starting = self._ramp = False
        if self._drained:
            self._set_instruction(self._drained)
            self._drained = ""

    # Requests.

    def _request(self, notes: TickNotes, now_ns: int) -> None:
        if self._wants_chunk():
            notes.request = self.requests.send(
                self.epoch, self._reason(), self.instruction, self._sha256, now_ns
            )
            self.counters.requests_sent += 1

    def _reason(self) -> RequestReason:
        return RequestReason.REFILL if self.machine.state is State.RUNNING else self._ask

    def _wants_chunk(self) -> bool:
        if not self.instruction or not self._listening or self.requests.outstanding is not None:
            return False
        state, mode = self.machine.state, self.settings.mode
        if state is State.UNDERRUN:
            # Rows indexed by time may join a motion; other rows begin where the arm rests.
            return self._motion.at_rest or (mode == "async" and not self._buffer.empty)
        if state is State.RUNNING:
            needed = self.requests.rows_needed(self.settings.refill_margin_rows)
            early = mode == "async" and not self._ramp and not self._drained
            return early and self._buffer.rows_left <= needed
        return state is State.EMPTY

    def _waiting_for(self) -> str:
        if not self.instruction:
            text = "waiting for an instruction"
        elif not self._listening:
            text = "no policy is subscribed to chunk_request"
        else:
            text = "waiting for the policy's chunk"
        return f"{text}; last error: {self.incidents.chunk}" if self._errors else text

    # Status.

    def _status(self, arrival: Arrival, notes: TickNotes, ros_ns: int) -> Status:
        machine, observed_ns = self.machine, self._observed_ns.get(notes.chunk_id)
        reason = machine.text
        if machine.state in (State.EMPTY, State.UNDERRUN):
            reason = f"{reason}: {self._waiting_for()}" if reason else self._waiting_for()
        sent, command = notes.trajectory, self._gripper.command
        return Status(
            state=machine.state,
            stop_reason=machine.stop_reason,
            reason=reason,
            tick=arrival.tick,
            epoch=self.epoch,
            rows_left=self._buffer.rows_left,
            instruction_sha256=self._sha256,
            lateness_s=arrival.lateness_ns / NS,
            dry_run=self.settings.dry_run,
            counters=self.counters,
            chunk_id=notes.chunk_id,
            row=notes.row,
            commanded=None if sent is None else sent.positions[0],
            requested=notes.requested,
            gripper=math.nan if command is None else command,
            gate_flags=notes.flags,
            observation_age_s=math.nan if observed_ns is None else (ros_ns - observed_ns) / NS,
            tracking_error_rad=notes.tracking_error_rad,
        )
