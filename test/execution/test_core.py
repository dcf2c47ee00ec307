# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The executor core: every state, every way out of it, and what is sent meanwhile."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cosmos_lite_ros.contract.robots import PANDA
from cosmos_lite_ros.execution.gate import GateFlag, IncomingChunk
from cosmos_lite_ros.execution.machine import State, StopReason
from cosmos_lite_ros.execution.requests import Request, RequestReason
from cosmos_lite_ros.execution.settings import CheckPolicies

from .makers import HOME, NS, Bench, assert_comes_to_rest, joint_message, ramp, running, steady

INF = float("inf")


# STOPPED


def test_nothing_moves_until_resume() -> None:
    b = Bench(steady, mode="async")
    b.core.offer_instruction("wipe the table", b.now_ns)
    b.tick(60)
    assert b.state is State.STOPPED
    assert b.core.machine.stop_reason is StopReason.NOT_ARMED
    assert b.requests == []
    assert all(o.trajectory is None and o.gripper is None for o in b.outputs)


def test_a_chunk_while_stopped_is_foreign() -> None:
    b = Bench()
    b.tick()
    request = Request(1, b.core.epoch, RequestReason.FIRST, "x", "", b.now_ns)
    b.core.offer_chunk(b.chunk(ramp(), request))
    b.tick(5)
    assert b.core.counters.chunks_foreign == 1
    assert b.core.counters.commands_sent == 0


def test_resume_says_what_is_missing() -> None:
    b = Bench(require_enable=True)
    b.joints_alive = False
    b.tick()

    def refusal(ros_ns: int | None = None) -> str:
        answer = b.core.resume(b.now_ns, b.ros_ns if ros_ns is None else ros_ns)
        assert not answer.success
        assert b.state is State.STOPPED
        return answer.message

    assert "enable has never been heard" in refusal()
    b.core.interlocks.enable(False, b.now_ns)
    assert "enable is false" in refusal()
    b.core.interlocks.enable(True, b.now_ns)
    assert "no joint state yet of panda_joint1" in refusal()
    b.joints_alive = True
    b.tick()
    b.core.offer_emergency_stop(True, b.now_ns)
    assert "emergency_stop is true" in refusal()
    b.core.offer_emergency_stop(False, b.now_ns)
    assert "waiting for /clock" in refusal(0)
    b.joints_alive = False
    b.tick(4)
    b.core.interlocks.enable(True, b.now_ns)
    assert "no joint state for" in refusal()
    b.joints_alive = True
    b.tick(10)
    assert "enable has been silent for 0.67 s" in refusal()
    b.core.interlocks.enable(True, b.now_ns)
    epoch = b.core.epoch
    answer = b.core.resume(b.now_ns, b.ros_ns)
    assert answer.success
    assert "waiting for an instruction" in answer.message
    assert b.core.epoch > epoch
    assert "the state is EMPTY" in b.core.resume(b.now_ns, b.ros_ns).message


def test_joint_states_that_are_old_by_their_stamp_do_not_count() -> None:
    b = Bench()
    b.joints_alive = False
    b.tick()
    for _ in range(2):
        b.core.joints.push(joint_message(HOME, b.ros_ns - 3 * NS), b.now_ns, b.ros_ns)
    answer = b.core.resume(b.now_ns, b.ros_ns)
    assert not answer.success
    assert "3.000 s old by its stamp" in answer.message


# The way up


def test_from_stopped_to_running_and_the_first_commands() -> None:
    b = Bench(steady, latency=3)
    b.arm_up()
    b.tick()
    assert (b.state, b.outputs[-1].trajectory) == (State.EMPTY, None)
    assert [r.reason for r in b.requests] == [RequestReason.FIRST]
    assert b.requests[0].instruction == "wipe the table"
    assert b.requests[0].epoch == b.core.epoch
    assert len(b.requests[0].instruction_sha256) == 64
    b.run_until(lambda: b.state is State.PRIMED)
    assert b.outputs[-1].trajectory is None
    assert b.core.counters.commands_sent == 0
    b.tick()
    assert b.state is State.RUNNING
    sent = b.outputs[-1].trajectory
    assert sent is not None
    assert sent.positions.shape == sent.velocities.shape == (8, 7)
    assert (b.status.chunk_id, b.status.row, b.status.rows_left) == (1, 0, 31)
    for row in range(1, 25):
        status = b.tick().status
        assert (status.row, status.rows_left) == (row, 31 - row)
        assert status.commanded == pytest.approx(HOME + 0.005 * (row + 1), abs=1e-9)
        assert status.requested == pytest.approx(status.commanded)
        sent = b.outputs[-1].trajectory
        assert sent is not None
        # The next rows with their central differences; the end of what is sent is at rest.
        for i in range(6):
            assert sent.positions[i] == pytest.approx(HOME + 0.005 * (row + 1 + i), abs=1e-9)
            assert sent.velocities[i] == pytest.approx(np.full(7, 0.005 * 15), abs=1e-7)
        assert not sent.velocities[-1].any()
    assert b.status.observation_age_s == pytest.approx((3 + 1 + 24 + 1) / 15, abs=0.07)


def test_sync_executes_the_horizon_holds_and_asks_again_at_rest() -> None:
    b = Bench(steady, latency=6, horizon=8)
    b.arm_up()
    b.run_until(lambda: b.state is State.UNDERRUN)
    assert b.measured == pytest.approx(HOME + 0.04, abs=1e-6)
    assert not b.velocity.any()
    assert [r.reason for r in b.requests] == [RequestReason.FIRST, RequestReason.REFILL]
    sent = b.core.counters.commands_sent
    b.tick(5)
    assert b.core.counters.commands_sent == sent
    b.run_until(lambda: b.state is State.RUNNING)
    # Row 0 is for the tick of arrival: nothing was dropped.
    assert (b.status.chunk_id, b.status.row) == (2, 0)
    b.run_until(lambda: b.state is State.UNDERRUN)
    assert b.measured == pytest.approx(HOME + 0.08, abs=1e-6)
    assert b.core.counters.underruns == 0


def test_async_asks_early_and_drops_by_ticks() -> None:
    b = Bench(steady, latency=5, mode="async")
    b.arm_up()
    b.tick(150)
    assert b.core.counters.underruns == 0
    assert b.core.counters.chunks_accepted >= 5
    by_chunk: dict[int, list[int]] = {}
    for o in b.outputs:
        if o.status.row >= 0:
            by_chunk.setdefault(o.status.chunk_id, []).append(o.status.row)
    # Asked at tick k0, taken 5 ticks later: rows 0..4 lie in the past, then one row a tick.
    for chunk_id, taken in by_chunk.items():
        first = 6 if chunk_id == 1 else 5
        assert taken == list(range(first, first + len(taken)))
    # Refills come when the measured latency and the margin are left.
    left = [o.status.rows_left for o in b.outputs if o.request is not None]
    assert left[3:] == [5 + 3] * len(left[3:])
    commanded = np.array([o.status.commanded for o in b.outputs if o.trajectory is not None])
    assert (np.diff(commanded, axis=0) > 0).all(), "the arm steps back at a boundary"


def test_only_one_request_is_outstanding_and_unanswered_ones_are_repeated() -> None:
    b = Bench(None, request_timeout_s=1.0)
    b.arm_up()
    b.tick(15)
    assert len(b.requests) == 1
    b.tick(40)
    assert [r.request_id for r in b.requests] == [1, 2, 3, 4]
    # Nothing moves yet, so waiting goes on.
    assert b.state is State.EMPTY
    b.core.offer_chunk(b.chunk(ramp(), b.requests[0]))
    b.tick()
    assert b.core.counters.chunks_foreign == 1
    assert b.state is State.EMPTY
    b.core.offer_chunk(b.chunk(ramp(), b.requests[-1]))
    b.tick()
    assert b.state is State.PRIMED


def test_without_a_listening_policy_nothing_is_asked() -> None:
    b = Bench(steady)
    b.listening = False
    b.arm_up()
    b.tick(5)
    assert b.requests == []
    assert "no policy is subscribed" in b.status.reason
    b.listening = True
    b.tick()
    assert len(b.requests) == 1
    # A policy that goes away takes its request with it; the next one is asked at once.
    b.source, b.listening = None, False
    b.tick(2)
    b.listening = True
    b.tick()
    assert [r.request_id for r in b.requests] == [1, 2]


# Refused chunks


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_nan_moves_nothing(mode: str) -> None:
    def source(b: Bench, request: Request) -> IncomingChunk:
        table = ramp(b.measured)
        table[20, 3] = np.nan
        return b.chunk(table)

    b = Bench(source, mode=mode)
    b.arm_up()
    b.run_until(lambda: b.state is State.STOPPED)
    assert b.core.machine.stop_reason is StopReason.POLICY_ERRORS
    assert "not finite" in b.core.machine.text
    assert b.core.counters.chunks_rejected == 5
    assert b.core.counters.commands_sent == 0
    assert any(o.status.gate_flags & GateFlag.NON_FINITE for o in b.outputs)
    assert (b.measured == HOME).all()


def test_a_bad_chunk_while_running_is_skipped_and_the_old_rows_go_on() -> None:
    def source(b: Bench, request: Request) -> IncomingChunk:
        table = ramp(b.measured)
        if request.request_id == 3:
            table[30] += 1.0
        return b.chunk(table)

    b = Bench(source, mode="async", latency=3)
    b.arm_up()
    b.tick(120)
    assert b.core.counters.chunks_rejected == 1
    assert b.state is State.RUNNING
    assert b.core.counters.underruns == 0


def test_a_policy_of_stop_stops() -> None:
    b = Bench(lambda b, r: b.chunk(ramp(b.measured) * np.nan), limits=CheckPolicies(finite="stop"))
    b.arm_up()
    b.run_until(lambda: b.state is State.STOPPED)
    assert b.core.machine.stop_reason is StopReason.GATE


def test_random_weights_only_in_a_dry_run() -> None:
    def source(b: Bench, request: Request) -> IncomingChunk:
        return b.chunk(ramp(b.measured), random_weights=True)

    real = Bench(source)
    real.arm_up()
    real.run_until(lambda: real.state is State.STOPPED)
    assert "random weights" in real.core.machine.text
    assert real.core.counters.commands_sent == 0
    preview = Bench(source, dry_run=True)
    preview.arm_up()
    preview.run_until(lambda: preview.state is State.RUNNING)
    assert preview.core.counters.commands_sent == 1


def test_expired_chunks_are_counted_and_end_in_policy_errors() -> None:
    b = Bench(steady, latency=40, mode="async")
    b.arm_up()
    b.run_until(lambda: b.state is State.STOPPED)
    assert b.core.counters.chunks_expired == 5
    assert b.core.counters.commands_sent == 0
    assert "every row lies in the past: 40 ticks since row 0, 32 rows" in b.core.machine.text


def test_an_old_observation_is_fine_in_sync() -> None:
    b = Bench(steady, latency=40)
    b.arm_up()
    b.run_until(lambda: b.state is State.RUNNING)
    assert b.status.row == 0


def test_stamps_in_the_future_are_refused_in_async() -> None:
    def source(b: Bench, request: Request) -> IncomingChunk:
        return b.chunk(ramp(b.measured), stamp_ns=b.ros_ns + NS)

    b = Bench(source, mode="async")
    b.arm_up()
    b.run_until(lambda: b.state is State.STOPPED)
    assert "synchronise the clocks" in b.core.machine.text


def test_chunks_of_another_epoch_or_request_are_counted_and_change_nothing() -> None:
    b = running()
    epoch = b.core.epoch
    for request_id, of in ((99, epoch), (b.requests[-1].request_id, epoch - 1), (0, 0)):
        fake = Request(request_id, of, RequestReason.FIRST, "", "", b.now_ns)
        b.core.offer_chunk(b.chunk(ramp(b.measured + 0.02), fake))
    b.tick()
    assert b.core.counters.chunks_foreign == 3
    assert b.status.chunk_id == 1


# Start guard


def test_a_first_row_far_away_is_approached_slowly_and_then_followed() -> None:
    far = HOME + 0.2

    def source(b: Bench, request: Request) -> IncomingChunk:
        return b.chunk(ramp(far - 0.005))

    b = Bench(source)
    b.arm_up()
    b.run_until(lambda: b.state is State.RUNNING)
    slow = 0.1 * np.array(PANDA.velocity_max)
    leading = 0
    while b.status.gate_flags & GateFlag.START:
        assert (np.abs(b.velocity) <= slow + 1e-9).all()
        assert b.status.row == 0
        assert "moving slowly to the first row" in b.status.reason
        b.tick()
        leading += 1
    assert leading > 0.2 / slow.max() * 15
    assert b.measured == pytest.approx(far, abs=1e-5)
    b.tick(3)
    # No row was lost to the way there.
    assert b.status.row == 4
    b.run_until(lambda: b.state is State.UNDERRUN)
    assert b.measured == pytest.approx(ramp(far - 0.005)[-1], abs=1e-5)


def test_a_first_row_far_away_may_be_refused() -> None:
    b = Bench(lambda b, r: b.chunk(ramp(HOME + 0.1)), start_policy="refuse")
    b.arm_up()
    b.run_until(lambda: b.state is State.STOPPED)
    assert b.core.machine.stop_reason is StopReason.GATE
    assert "start_tolerance_rad = 0.05" in b.core.machine.text
    assert b.core.counters.commands_sent == 0


def test_a_first_row_beyond_a_spike_is_not_approached_at_all() -> None:
    b = Bench(lambda b, r: b.chunk(ramp(HOME + 0.5)))
    b.arm_up()
    b.run_until(lambda: b.state is State.STOPPED)
    assert b.core.counters.commands_sent == 0


def test_motion_begins_at_the_last_command_while_the_arm_is_near_it() -> None:
    b = running(arm=False, max_tracking_error_rad=0.0, max_spike_rad=INF)
    b.core.stop(b.now_ns)
    b.tick(20)
    command = b.core._motion.position
    assert command is not None
    # The arm sags 10 mrad: the receiver still holds the command, so motion begins there.
    b.measured = command - 0.01
    b.tick(3)
    assert b.core.resume(b.now_ns, b.ros_ns).success
    b.run_until(lambda: b.state is State.RUNNING)
    assert b.status.commanded == pytest.approx(command, abs=0.01)
    assert np.abs(b.status.commanded - command).max() < 0.005
    # It was pushed away: motion begins at the arm.
    b.core.stop(b.now_ns)
    b.tick(20)
    b.measured = HOME - 0.3
    b.tick(3)
    assert b.core.resume(b.now_ns, b.ros_ns).success
    b.run_until(lambda: b.state is State.RUNNING)
    assert np.abs(b.status.commanded - b.measured).max() < 0.01


# Stops


def test_operator_stop_and_reset() -> None:
    b = running()
    epoch = b.core.epoch
    assert b.core.stop(b.now_ns).success
    assert b.core.epoch > epoch
    assert_comes_to_rest(b, StopReason.OPERATOR)
    b = running()
    epoch = b.core.epoch
    assert b.core.reset(b.now_ns).success
    assert b.core.epoch > epoch
    assert_comes_to_rest(b, StopReason.OPERATOR)
    assert b.core.instruction == "wipe the table"


def test_emergency_stop_is_latched_and_its_end_resumes_nothing() -> None:
    b = running(mode="async")
    b.core.offer_emergency_stop(True, b.now_ns)
    b.core.offer_emergency_stop(False, b.now_ns)
    assert_comes_to_rest(b, StopReason.EMERGENCY_STOP)
    assert b.core.resume(b.now_ns, b.ros_ns).success


def test_silence_of_enable_stops() -> None:
    b = Bench(steady, require_enable=True)
    b.core.interlocks.enable(True, b.now_ns)
    b.arm_up()
    while b.state is not State.RUNNING:
        b.core.interlocks.enable(True, b.now_ns)
        b.tick()
    b.run_until(lambda: b.state is State.STOPPED, 9)
    assert_comes_to_rest(b, StopReason.ENABLE_LOST)
    b.core.interlocks.enable(True, b.now_ns)
    b.tick(5)
    assert b.state is State.STOPPED


def test_false_on_enable_stops_at_the_next_tick() -> None:
    b = Bench(steady, require_enable=True)
    b.core.interlocks.enable(True, b.now_ns)
    b.arm_up()
    b.tick(6)
    b.core.interlocks.enable(False, b.now_ns)
    b.tick()
    assert_comes_to_rest(b, StopReason.ENABLE_LOST)


def test_stale_joint_states_stop() -> None:
    b = running()
    b.joints_alive = False
    b.run_until(lambda: b.state is State.STOPPED, 6)
    assert "no joint state for" in b.core.machine.text
    assert_comes_to_rest(b, StopReason.JOINT_STATE_STALE)


def test_nan_in_a_joint_state_stops_at_once_and_in_a_foreign_joint_does_not() -> None:
    b = running()
    message = joint_message([*b.measured, np.nan], b.ros_ns, (*PANDA.joint_names, "finger"))
    b.core.joints.push(message, b.now_ns, b.ros_ns)
    b.tick()
    assert b.state is State.RUNNING
    b.joints_alive = False
    b.core.joints.push(joint_message(b.measured * np.nan, b.ros_ns), b.now_ns, b.ros_ns)
    b.tick()
    assert b.core.machine.stop_reason is StopReason.JOINT_STATE_STALE
    assert "is not finite" in b.core.machine.text


def test_an_arm_that_does_not_follow_stops() -> None:
    b = running(arm=False)
    b.run_until(lambda: b.state is State.STOPPED)
    assert b.core.machine.stop_reason is StopReason.TRACKING_ERROR
    assert "max_tracking_error_rad = 0.15" in b.core.machine.text
    # It was noticed within a tick of motion.
    assert 0.15 < b.status.tracking_error_rad < 0.16


@pytest.mark.parametrize("off", [{"max_tracking_error_rad": 0.0}, {"dry_run": True}])
def test_the_tracking_check_can_be_off(off: dict[str, Any]) -> None:
    b = running(arm=False, **off)
    b.tick(25)
    assert b.state is State.RUNNING
    assert b.status.tracking_error_rad > 0.14


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_dead_policy_ends_in_underrun_then_stopped(mode: str) -> None:
    b = running(mode=mode, latency=2)
    b.source = None
    b.run_until(lambda: b.state is State.UNDERRUN)
    b.run_until(lambda: not b.velocity.any(), 12)
    command = b.core._motion.position
    assert command is not None
    assert b.measured == pytest.approx(command)
    assert b.core.counters.underruns == (1 if mode == "async" else 0)
    sent = b.core.counters.commands_sent
    b.tick(30)
    assert b.core.counters.commands_sent <= sent + 1
    assert "waiting for the policy's chunk" in b.status.reason
    ticks = b.run_until(lambda: b.state is State.STOPPED)
    assert ticks < 5 * 15
    assert "no row for 5." in b.core.machine.text
    assert_comes_to_rest(b, StopReason.UNDERRUN_TIMEOUT)


def test_the_last_row_is_where_it_comes_to_rest() -> None:
    b = Bench(lambda b, r: b.chunk(ramp(HOME, 0.04)) if r.request_id == 1 else None)
    b.arm_up()
    b.run_until(lambda: b.state is State.UNDERRUN)
    b.run_until(lambda: not b.velocity.any(), 60)
    # Fast rows, beyond what the limits allow: it ends at the last one and never beyond it.
    assert b.measured == pytest.approx(
        np.minimum(ramp(HOME, 0.04)[-1], PANDA.limits()[1]), abs=1e-5
    )
    farthest = max(float((s[0] - ramp(HOME, 0.04)[-1]).max()) for s in b.segments)
    assert farthest < 1e-5
