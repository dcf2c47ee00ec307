# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The executor without ROS: inputs at any time, one call a tick, everything that follows from them.

Not thread-safe: the caller holds one lock around every call. ``now_ns`` is the steady clock,
``ros_ns`` ROS time (0 while /clock is awaited).

Invariants:
  - in STOPPED no row is followed: at most a motion in progress is slowed down to rest;
  - only ``resume`` and ``home`` leave STOPPED, after a preflight of this session where that is
    required, with an empty buffer, in a new epoch; ``home`` follows no row and ends in STOPPED;
  - every command comes out of the one limiter, and each trajectory ends at rest;
  - the epoch only grows, and chunks of another one are never executed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from cosmos_lite_ros.contract.observation import clean_instruction, instruction_hash
from cosmos_lite_ros.errors import BadInputError
from cosmos_lite_ros.execution.chunk_buffer import NEW_SHARE, ChunkBuffer
from cosmos_lite_ros.execution.clock import NS, RateGuard, RosOffset
from cosmos_lite_ros.execution.gate import Failed, Gate, IncomingChunk
from cosmos_lite_ros.execution.intake import Intake
from cosmos_lite_ros.execution.interlocks import Interlocks
from cosmos_lite_ros.execution.joint_watch import JointWatch
from cosmos_lite_ros.execution.limiter import Floats, Limiter, MotionLimits
from cosmos_lite_ros.execution.machine import State, StateMachine, StopReason
from cosmos_lite_ros.execution.modes import why_impossible
from cosmos_lite_ros.execution.motion import Motion
from cosmos_lite_ros.execution.mover import Mover
from cosmos_lite_ros.execution.output import (
    Answer,
    Counters,
    Incidents,
    Status,
    TickNotes,
    TickOutput,
)
from cosmos_lite_ros.execution.refill import refill_at, rows_to_continue
from cosmos_lite_ros.execution.requests import RequestReason, RequestTracker
from cosmos_lite_ros.execution.settings import ExecutorSettings
from cosmos_lite_ros.execution.space import SpaceLimits
from cosmos_lite_ros.execution.ticker import Arrival, TickGrid

# A bag that loops jumps once per pass; more often than this ROS time cannot be followed.
_JUMPS, _JUMP_WINDOW_S = 3, 10.0
_MOVING = (State.RUNNING, State.UNDERRUN)


class ExecutorCore:
    """See the module. ``epoch_ns`` is wall-clock time, so that a restart never repeats an epoch."""

    def __init__(
        self, settings: ExecutorSettings, grid: TickGrid, *, epoch_ns: int, now_ns: int
    ) -> None:
        robot = settings.robot_type
        self.settings = settings
        self.robot = robot
        self.grid = grid
        self.limits = MotionLimits.of(robot, settings.velocity_scale, settings.acceleration_scale)
        self.space = SpaceLimits.of(settings)
        self.machine = StateMachine(now_ns)
        self.joints = JointWatch(robot)
        self.interlocks = Interlocks(settings, self.joints)
        self.requests = RequestTracker(settings.request_timeout_s)
        self.offset = RosOffset()
        self.counters = Counters()
        self.incidents = Incidents()
        self.instruction = ""
        self._sha256 = ""
        self._gate = Gate(robot, settings, self.space)
        self._motion = Motion(Limiter(self.limits, space=self.space), settings.lookahead_rows)
        self._buffer = ChunkBuffer(
            self.limits,
            settings.blend_rows,
            epoch_ns,
            new_share=NEW_SHARE if settings.mode == "average" else 1.0,
        )
        self._mover = Mover(
            settings, self._gate, self._motion, self._buffer, self.joints, self.counters
        )
        self._intake = Intake(settings, self._gate, self._buffer, grid, self.offset)
        self._jump_guard = RateGuard(_JUMPS, _JUMP_WINDOW_S)
        self._chunks: list[IncomingChunk] = []
        self._observed_ns: dict[int, int] = {}
        self._ask = RequestReason.FIRST
        self._errors = 0
        self._drained = ""
        self._listening = False
        self._preflight = "not yet in this session"

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
        running = self.machine.state is State.RUNNING and not self._mover.homing
        if self.settings.instruction_policy == "drain" and running:
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
        self._mover.gripper.forget()
        self._jump_guard.clear()
        waiting = "" if self.instruction else ": waiting for an instruction"
        return Answer(True, f"resumed in epoch {self.epoch}{waiting}")

    def home(self, now_ns: int, ros_ns: int) -> Answer:
        """Lead the arm home slowly, then stay STOPPED. The same conditions as for ``resume``."""
        problem = self._why_not_resume(now_ns, ros_ns)
        if problem:
            return Answer(False, f"not moved: {problem}")
        self.machine.lead(now_ns)
        self._new_epoch()
        self._mover.go_home()
        self._mover.gripper.forget()
        return Answer(True, "moving home slowly; ~/stop ends it")

    def preflight(self, now_ns: int, ros_ns: int, problems: Sequence[str] = ()) -> Answer:
        """Whether everything is ready but the operator; ``resume`` may require that it once was.

        Args:
            problems: what the caller has found, one line each.
        """
        found = [*problems, *self.interlocks.problems(now_ns, ros_ns), *self._unfit()]
        if not self._listening:
            found.append("no policy is subscribed to chunk_request")
        self._preflight = "; ".join(found)
        if found:
            return Answer(False, f"preflight failed: {self._preflight}")
        return Answer(True, "preflight passed")

    def _unfit(self) -> list[str]:
        """What is wrong with the place of the arm or with the mode."""
        impossible = why_impossible(self.settings, self.requests.latency().p95_s)
        hint = f"{impossible} (~/reset forgets the measured latency)" if impossible else ""
        return [line for line in (self._gate.outside(self.joints.positions), hint) if line]

    def stalled(self, position: Floats) -> None:
        """An output without dead-man got no commands for a while: its receiver holds a position.

        Call it before ``tick``, with the last sample that was published, rad [joints].
        """
        self._motion.stalled(position)

    def stop(self, now_ns: int, reason: StopReason = StopReason.OPERATOR, text: str = "") -> Answer:
        """Slow down to rest and stay STOPPED."""
        self._stop(reason, text or "stopped by the operator", now_ns)
        return Answer(True, "stopped")

    def disarm(self, now_ns: int) -> None:
        """STOPPED(NOT_ARMED), whatever was before: the node becomes active."""
        self.machine = StateMachine(now_ns)
        self._preflight = "not yet in this session"
        self._mover.stop()
        self._new_epoch()

    def reset(self, now_ns: int) -> Answer:
        """Stop, and forget what belongs to the running episode but the instruction."""
        self._stop(StopReason.OPERATOR, "reset by the operator", now_ns)
        self._new_epoch()
        self._mover.gripper.forget()
        self.requests.forget_latency()
        return Answer(True, f"reset, epoch {self.epoch}: call ~/resume")

    def _why_not_resume(self, now_ns: int, ros_ns: int) -> str:
        if not self.machine.stopped:
            return f"the state is {self.machine.state.name}, expected STOPPED"
        missing = self.interlocks.missing(now_ns, ros_ns)
        if missing:
            return missing
        if self.settings.require_preflight and self._preflight:
            return f"no passed ~/preflight: {self._preflight}"
        if not self._motion.at_rest:
            return "the arm is still slowing down: try again"
        # A dry run may watch a recording, whose arm does move.
        moving = "" if self.settings.dry_run else self.joints.why_not_still()
        if moving:
            return moving
        return next(iter(self._unfit()), "")

    # One tick.

    def tick(
        self,
        arrival: Arrival,
        now_ns: int,
        ros_ns: int,
        *,
        listening: bool,
        followed: bool = True,
    ) -> TickOutput:
        """Everything of one tick.

        Args:
            listening: whether somebody is subscribed to chunk_request.
            followed: whether somebody is subscribed to the commands.
        """
        tick = arrival.tick
        self._listening, self.interlocks.followed = listening, followed
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
            hold = self._mover.hold()
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
            self._mover.starting = self._motion.at_rest

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
            self._mover.starting = True
        if machine.state is State.RUNNING:
            self._run(tick, notes, now_ns)
        if machine.state is State.UNDERRUN:
            self._hold(tick, notes, now_ns)
        if machine.stopped:
            notes.trajectory = self._motion.brake(tick)

    def _run(self, tick: int, notes: TickNotes, now_ns: int) -> None:
        """Follow the rows; no command if that ends the state RUNNING."""
        ended = self._mover.run(tick, notes, now_ns)
        if ended is None:
            self.machine.text = self._mover.doing
        elif ended.stop is not None:
            self._stop(ended.stop, ended.text, now_ns)
        elif self._drained:
            self._take_instruction(self._drained, now_ns)
        else:
            self._run_out(now_ns)

    def _run_out(self, now_ns: int) -> None:
        """No row is left."""
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
        self._mover.rest(tick, notes)

    # Epochs.

    def _stop(self, reason: StopReason, text: str, now_ns: int) -> None:
        if self.machine.stop(reason, text, now_ns):
            self._mover.stop()
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
        if self._mover.homing:
            return
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
        self._mover.forget_rows()
        if self._drained:
            self._set_instruction(self._drained)
            self._drained = ""

    # Requests.

    def _request(self, notes: TickNotes, now_ns: int) -> None:
        if not self._wants_chunk():
            return
        reason, prefix = self._ask, None
        if self.machine.state is State.RUNNING:
            reason = RequestReason.REFILL
            prefix = rows_to_continue(self.settings, self.requests, self._buffer)
        notes.request = self.requests.send(
            self.epoch, reason, self.instruction, self._sha256, now_ns, prefix
        )
        self.counters.requests_sent += 1

    def _wants_chunk(self) -> bool:
        if not self.instruction or not self._listening or self.requests.outstanding is not None:
            return False
        state, early, mover = self.machine.state, self.settings.early, self._mover
        if state is State.UNDERRUN:
            # Rows indexed by time may join a motion; other rows begin where the arm rests.
            return self._motion.at_rest or (early and not self._buffer.empty)
        if state is State.RUNNING:
            follows = not mover.ramping and not mover.homing and not self._drained
            needed = refill_at(self.settings, self.requests)
            return early and follows and self._buffer.rows_left <= needed
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
        sent, command = notes.trajectory, self._mover.gripper.command
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
