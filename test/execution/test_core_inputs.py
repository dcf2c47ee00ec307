# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The executor core: instructions, clocks, gripper, dry run, and its parts."""

from __future__ import annotations

import numpy as np
import pytest

from cosmos_lite_ros.execution.gate import IncomingChunk
from cosmos_lite_ros.execution.machine import State, StateMachine, StopReason
from cosmos_lite_ros.execution.requests import Request, RequestReason, RequestTracker

from .makers import NS, Bench, assert_comes_to_rest, excess, ramp, running, steady

INF = float("inf")


# Instructions and clocks


def test_a_new_instruction_flushes() -> None:
    b = running(mode="async", latency=3)
    epoch, asked = b.core.epoch, len(b.requests)
    b.core.offer_instruction("  wipe the table ", b.now_ns)
    b.tick()
    assert b.core.epoch == epoch, "the same instruction once more is no new one"
    old = b.requests[-1]
    asked = len(b.requests)
    b.core.offer_instruction("open the drawer", b.now_ns)
    assert b.core.epoch > epoch
    assert b.state is State.UNDERRUN
    b.core.offer_chunk(b.chunk(ramp(b.measured), old))
    foreign = b.core.counters.chunks_foreign
    b.tick()
    assert b.core.counters.chunks_foreign == foreign + 1
    b.tick(2)
    assert not b.velocity.any(), "the sent rows were run to their end"
    b.run_until(lambda: len(b.requests) > asked)
    assert not b.velocity.any(), "asked before the arm had come to rest"
    assert b.requests[-1].reason is RequestReason.INSTRUCTION
    assert b.requests[-1].instruction == "open the drawer"
    b.run_until(lambda: b.state is State.RUNNING)
    assert b.core.counters.underruns == 0


def test_drain_finishes_the_chunk_first() -> None:
    b = running(instruction_policy="drain")
    epoch = b.core.epoch
    b.core.offer_instruction("open the drawer", b.now_ns)
    b.tick(3)
    assert (b.state, b.core.epoch) == (State.RUNNING, epoch)
    b.run_until(lambda: b.state is State.UNDERRUN)
    assert b.measured == pytest.approx(ramp()[-1], abs=1e-5)
    assert b.core.epoch > epoch
    b.run_until(lambda: b.state is State.RUNNING)
    assert b.requests[-1].instruction == "open the drawer"


def test_the_running_instruction_once_more_takes_a_drained_one_back() -> None:
    b = running(instruction_policy="drain")
    epoch = b.core.epoch
    b.core.offer_instruction("open the drawer", b.now_ns)
    b.core.offer_instruction("wipe the table", b.now_ns)
    b.run_until(lambda: b.state is State.UNDERRUN)
    assert (b.core.instruction, b.core.epoch) == ("wipe the table", epoch)


@pytest.mark.parametrize("text", ["", "   ", "x" * 1001])
def test_an_unusable_instruction_changes_nothing(text: str) -> None:
    b = running()
    epoch = b.core.epoch
    b.core.offer_instruction(text, b.now_ns)
    b.tick()
    assert (b.state, b.core.epoch, b.core.instruction) == (State.RUNNING, epoch, "wipe the table")
    assert "instruction refused" in b.core.incidents.instruction


def test_an_instruction_after_resume_starts_the_first_request() -> None:
    b = Bench(steady)
    b.tick(2)
    assert b.core.resume(b.now_ns, b.ros_ns).success
    b.tick(5)
    assert b.requests == []
    assert "waiting for an instruction" in b.status.reason
    b.core.offer_instruction("wipe", b.now_ns)
    b.tick()
    assert [r.reason for r in b.requests] == [RequestReason.FIRST]


@pytest.mark.parametrize("jump_s", [-20.0, 3.0])
def test_a_clock_jump_clears_and_goes_on(jump_s: float) -> None:
    b = running(mode="async", latency=3)
    epoch, asked = b.core.epoch, len(b.requests)
    b.ros_offset_ns += int(jump_s * NS)
    # No joint state since the jump: the stamp of the last one means nothing now.
    b.joints_alive = False
    b.tick()
    b.joints_alive = True
    assert b.core.epoch > epoch
    assert b.state is State.UNDERRUN
    assert f"ROS time jumped by {jump_s:+.3f} s" in b.status.reason
    b.run_until(lambda: b.state is State.RUNNING, 30)
    assert b.requests[asked].reason is RequestReason.RESUME
    assert b.core.counters.chunks_expired == 0


def test_a_clock_that_keeps_jumping_stops() -> None:
    b = running()
    for _ in range(4):
        b.ros_offset_ns += NS
        b.tick(2)
    assert_comes_to_rest(b, StopReason.CLOCK_JUMP)
    assert "4th time within 10 s" in b.core.machine.text


def test_skipped_ticks_keep_command_and_receiver_together() -> None:
    b = Bench(steady, mode="async", latency=3)
    b.arm_up()
    rng = np.random.default_rng(0)
    for _ in range(100):
        b.skip = int(rng.integers(0, 3))
        b.tick()
        if b.core._motion.position is not None and b.state is State.RUNNING:
            assert b.measured == pytest.approx(b.core._motion.position, abs=1e-12)
    assert b.core.counters.ticks_late > 30
    worst = np.array([excess(s, b.core.limits) for s in b.segments]).max(axis=0)
    assert (worst <= [1e-7, 1e-6, 1e-5]).all()


# Gripper


def test_the_gripper_is_sent_on_change_only_and_not_in_a_dry_run() -> None:
    def source(b: Bench, request: Request) -> IncomingChunk:
        gripper = np.where(np.arange(32) < 12, 0.1, 0.9)
        return b.chunk(ramp(b.measured), gripper=gripper)

    b = Bench(source)
    b.arm_up()
    b.tick(35)
    sent = [(o.status.row, o.gripper) for o in b.outputs if o.gripper is not None]
    assert sent == [(0, 0.0), (12, 1.0)]
    assert b.status.gripper == 1.0
    dry = Bench(source, dry_run=True)
    dry.arm_up()
    dry.tick(35)
    assert all(o.gripper is None for o in dry.outputs)
    assert dry.status.gripper == 1.0


def test_dry_run_and_real_streams_are_identical() -> None:
    real, dry = running(mode="async"), running(mode="async", dry_run=True)
    real.tick(60)
    dry.tick(60)
    for a, b in zip(real.outputs, dry.outputs, strict=True):
        assert (a.trajectory is None) == (b.trajectory is None)
        if a.trajectory is not None and b.trajectory is not None:
            assert (a.trajectory.positions == b.trajectory.positions).all()
            assert (a.trajectory.velocities == b.trajectory.velocities).all()


# Parts


def test_the_machine_moves_only_where_there_is_a_way() -> None:
    machine = StateMachine(0)
    assert machine.stopped
    with pytest.raises(ValueError, match="no way from STOPPED to RUNNING"):
        machine.go(State.RUNNING, "", 1)
    machine.resume(1)
    with pytest.raises(ValueError, match="resume while EMPTY"):
        machine.resume(2)
    with pytest.raises(ValueError, match="no way from EMPTY to RUNNING"):
        machine.go(State.RUNNING, "", 2)
    assert machine.stop(StopReason.ENABLE_LOST, "gone", 3)
    # Latched: an automatic reason does not replace another, a person's does.
    assert not machine.stop(StopReason.JOINT_STATE_STALE, "stale", 4)
    assert machine.stop_reason is StopReason.ENABLE_LOST
    assert machine.stop(StopReason.EMERGENCY_STOP, "pressed", 5)
    assert machine.stop_reason is StopReason.EMERGENCY_STOP


def test_latencies_leave_the_warm_up_out() -> None:
    tracker = RequestTracker(4.0)
    for n, seconds in enumerate((12.0, 0.3, 0.4, 0.5)):
        tracker.send(1, RequestReason.REFILL, "x", "", n * 100 * NS)
        tracker.answered(n * 100 * NS + int(seconds * NS))
        if n == 0:
            assert tracker.rows_needed(3) == INF
    latency = tracker.latency()
    assert (latency.count, latency.p50_s, latency.max_s) == (3, pytest.approx(0.4), 0.5)
    assert tracker.rows_needed(3) == 8 + 3
