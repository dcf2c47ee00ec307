# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What an operator asks for (preflight, home), and a robot that is no longer there."""

from __future__ import annotations

import numpy as np
import pytest

from cosmos_lite_ros.contract.robots import PANDA
from cosmos_lite_ros.execution.gate import IncomingChunk
from cosmos_lite_ros.execution.joint_watch import JointWatch
from cosmos_lite_ros.execution.lead import Lead
from cosmos_lite_ros.execution.machine import State, StopReason
from cosmos_lite_ros.execution.requests import Request

from .makers import (
    EPOCH_NS,
    HOME,
    NS,
    Bench,
    assert_comes_to_rest,
    excess,
    joint_message,
    ramp,
    running,
    steady,
)

AWAY = HOME + np.array([0.3, 0.1, -0.2, 0.15, 0.0, -0.1, 0.4])


def within_limits(b: Bench) -> bool:
    worst = np.array([excess(s, b.core.limits) for s in b.segments]).max(axis=0)
    return bool((worst <= [1e-7, 1e-6, 1e-5]).all())


# Preflight


def test_resume_needs_a_passed_preflight_of_this_session() -> None:
    b = Bench(steady, require_preflight=True)
    b.tick(2)
    refused = b.core.resume(b.now_ns, b.ros_ns)
    assert not refused.success
    assert refused.message == "not resumed: no passed ~/preflight: not yet in this session"
    assert b.core.preflight(b.now_ns, b.ros_ns).success
    assert b.core.resume(b.now_ns, b.ros_ns).success
    # Once is enough for the session, whatever stops the arm meanwhile.
    b.core.stop(b.now_ns)
    b.tick(2)
    assert b.core.resume(b.now_ns, b.ros_ns).success
    # Another activation is another session.
    b.core.disarm(b.now_ns)
    assert not b.core.resume(b.now_ns, b.ros_ns).success
    assert not b.core.home(b.now_ns, b.ros_ns).success


def test_a_failed_preflight_says_everything_and_takes_the_passed_one_back() -> None:
    b = Bench(steady, require_preflight=True, position=[*HOME[:6], 2.95])
    b.tick()
    b.core.offer_emergency_stop(True, b.now_ns)
    b.core.interlocks.robot_ready(False, b.now_ns)
    b.listening = False
    b.tick()
    answer = b.core.preflight(b.now_ns, b.ros_ns, ["two policies"])
    assert not answer.success
    assert "\n" not in answer.message
    for words in (
        "two policies; emergency_stop is true",
        "robot_ready is false",
        "panda_joint7 is at 2.95 rad, outside its limits -2.8973 to 2.8973",
        "no policy is subscribed to chunk_request",
    ):
        assert words in answer.message
    b.core.offer_emergency_stop(False, b.now_ns)
    b.core.interlocks.robot_ready(True, b.now_ns)
    b.measured, b.listening = HOME.copy(), True
    b.tick()
    assert not b.core.resume(b.now_ns, b.ros_ns).success
    assert b.core.preflight(b.now_ns, b.ros_ns).success
    assert not b.core.preflight(b.now_ns, b.ros_ns, ["the camera is gone"]).success
    assert "the camera is gone" in b.core.resume(b.now_ns, b.ros_ns).message


def test_enable_is_not_held_at_preflight_but_at_resume() -> None:
    b = Bench(steady, require_preflight=True, require_enable=True)
    b.tick(2)
    assert b.core.preflight(b.now_ns, b.ros_ns).success
    assert "enable has never been heard" in b.core.resume(b.now_ns, b.ros_ns).message
    b.core.interlocks.enable(True, b.now_ns)
    assert b.core.resume(b.now_ns, b.ros_ns).success


def test_an_arm_that_moves_is_not_taken_over() -> None:
    b = running()
    # Another executor starts while the arm still runs what it was sent.
    b.restart()
    b.tick()
    assert "not known yet whether the arm stands still" in b.core.resume(b.now_ns, b.ros_ns).message
    b.tick(2)
    answer = b.core.resume(b.now_ns, b.ros_ns)
    assert not answer.success
    assert "the arm is moving (panda_joint" in answer.message
    assert "the arm is moving" in b.core.home(b.now_ns, b.ros_ns).message
    b.tick(12)
    assert not b.velocity.any()
    assert b.core.resume(b.now_ns, b.ros_ns).success
    # A recording that is watched moves by itself.
    b = Bench(steady, dry_run=True)
    b.tick()
    assert b.core.resume(b.now_ns, b.ros_ns).success


def test_the_clock_of_a_standing_arm_may_be_set_back() -> None:
    watch = JointWatch(PANDA)
    for now in (10 * NS, 10 * NS + NS // 10, 2 * NS):
        watch.push(joint_message(HOME, now + EPOCH_NS), now, now + EPOCH_NS)
    assert "not known yet" in watch.why_not_still()
    watch.push(joint_message(HOME, 3 * NS + EPOCH_NS), 3 * NS, 3 * NS + EPOCH_NS)
    assert watch.why_not_still() == ""
    later = 3 * NS + NS // 10
    watch.push(joint_message(HOME + 0.01, later + EPOCH_NS), later, later + EPOCH_NS)
    assert " at 0.10 rad/s" in watch.why_not_still()


# A mode that the policy is too slow for


@pytest.mark.parametrize("mode", ["async", "average"])
def test_a_policy_slower_than_its_chunks_is_refused_with_figures(mode: str) -> None:
    b = Bench(steady, latency=40, mode=mode)
    b.arm_up()
    b.run_until(lambda: b.state is State.STOPPED)
    b.tick(3)
    answer = b.core.resume(b.now_ns, b.ros_ns)
    assert not answer.success
    assert (
        f"mode {mode} is impossible: the policy takes 2.67 s (p95), which is 40" in answer.message
    )
    assert "only 32 rows" in answer.message
    assert answer.message in f"not resumed: {b.core.preflight(b.now_ns, b.ros_ns).message[18:]}"
    assert b.core.reset(b.now_ns).success
    assert b.core.resume(b.now_ns, b.ros_ns).success


# Home


def test_home_is_reached_slowly_and_nothing_else_moves() -> None:
    b = Bench(steady, position=AWAY)
    b.tick(2)
    b.core.offer_instruction("wipe the table", b.now_ns)
    epoch = b.core.epoch
    answer = b.core.home(b.now_ns, b.ros_ns)
    assert answer.success
    assert b.core.epoch > epoch
    b.tick()
    assert b.state is State.RUNNING
    assert "moving home" in b.status.reason
    assert (b.status.chunk_id, b.status.row) == (0, -1)
    b.run_until(lambda: b.state is State.STOPPED)
    assert b.core.machine.stop_reason is StopReason.NOT_ARMED
    assert "at home" in b.core.machine.text
    assert np.abs(b.measured - HOME).max() < 1e-5
    assert b.requests == []
    assert all(o.gripper is None for o in b.outputs)
    slow = 0.1 * np.array(PANDA.velocity_max)
    assert all((np.abs(s[1]) <= slow + 1e-9).all() for s in b.segments)
    assert within_limits(b)
    # Nearly a straight line in joint space: all joints arrive at about the same time.
    path = np.array([s[0][-1] for s in b.segments])
    share = (path - AWAY) @ (HOME - AWAY) / np.sum((HOME - AWAY) ** 2)
    assert np.abs(path - AWAY - share[:, None] * (HOME - AWAY)).max() < 0.02
    b.tick(3)
    assert b.core.resume(b.now_ns, b.ros_ns).success


def test_home_elsewhere() -> None:
    b = Bench(steady, position=AWAY, home_rad=tuple(AWAY + 0.02))
    b.tick(2)
    assert b.core.home(b.now_ns, b.ros_ns).success
    b.run_until(lambda: b.state is State.STOPPED)
    assert np.abs(b.measured - AWAY - 0.02).max() < 1e-5


def test_home_needs_what_resume_needs_and_starts_from_stopped_only() -> None:
    b = Bench(steady, require_enable=True, position=AWAY)
    b.tick(2)
    assert "not moved: enable has never been heard" in b.core.home(b.now_ns, b.ros_ns).message
    b = running()
    assert "the state is RUNNING" in b.core.home(b.now_ns, b.ros_ns).message
    b.core.stop(b.now_ns)
    b.tick()
    assert b.core.home(b.now_ns, b.ros_ns).success is b.core._motion.at_rest


@pytest.mark.parametrize(
    "how", ["stop", "emergency_stop", "joints", "chunk", "instruction", "jump"]
)
def test_what_comes_while_the_arm_goes_home(how: str) -> None:
    b = Bench(steady, position=AWAY)
    b.tick(2)
    assert b.core.home(b.now_ns, b.ros_ns).success
    b.tick(10)
    assert b.velocity.any()
    if how == "chunk":
        fake = Request(1, b.core.epoch, 0, "", "", b.now_ns)  # type: ignore[arg-type]
        b.core.offer_chunk(b.chunk(ramp(b.measured), fake))
    elif how == "instruction":
        b.core.offer_instruction("something else", b.now_ns)
    elif how == "jump":
        b.ros_offset_ns += 3 * NS
    elif how == "joints":
        b.joints_alive = False
    elif how == "stop":
        b.core.stop(b.now_ns)
    else:
        b.core.offer_emergency_stop(True, b.now_ns)
    if how in ("chunk", "instruction", "jump"):
        b.run_until(lambda: b.state is State.STOPPED)
        assert "at home" in b.core.machine.text
        assert b.requests == []
    else:
        b.tick(6)
        assert b.state is State.STOPPED
        b.tick(6)
        assert not b.velocity.any()
        assert np.abs(b.measured - HOME).max() > 0.1
    assert within_limits(b)


def test_a_way_that_leads_nowhere_is_blocked() -> None:
    way = Lead(np.zeros(7), np.ones(7), np.full(7, 0.2))
    assert not any(way.blocked(np.full(7, 0.01 * i)) for i in range(50))
    assert [way.blocked(np.full(7, 0.5)) for _ in range(10)] == [False] * 9 + [True]


# A robot that is no longer there


def test_nobody_receives_the_commands() -> None:
    b = running()
    b.followed = False
    b.tick()
    assert "nobody is subscribed to the commands" in b.core.machine.text
    assert_comes_to_rest(b, StopReason.CONTROLLER_LOST)
    assert "start the controller" in b.core.resume(b.now_ns, b.ros_ns).message
    b.followed = True
    b.tick()
    assert b.core.resume(b.now_ns, b.ros_ns).success


def test_a_preview_needs_no_receiver() -> None:
    b = running(dry_run=True)
    b.followed = False
    b.tick(5)
    assert b.state is State.RUNNING


def test_robot_ready_counts_once_it_has_been_heard() -> None:
    b = running()
    b.core.interlocks.robot_ready(True, b.now_ns)
    b.tick(7)
    assert b.state is State.RUNNING
    b.tick()
    assert "robot_ready has been silent for 0.53 s, expected 0.5" in b.core.machine.text
    assert_comes_to_rest(b, StopReason.CONTROLLER_LOST)
    b = running()
    b.core.interlocks.robot_ready(False, b.now_ns)
    b.tick()
    assert "robot_ready is false" in b.core.machine.text
    assert_comes_to_rest(b, StopReason.CONTROLLER_LOST)
    assert "robot_ready is false" in b.core.resume(b.now_ns, b.ros_ns).message


def test_a_receiver_that_was_left_alone_is_taken_where_it_stands() -> None:
    b = running(output="array", allow_unwatched_output=True)
    place = b.measured - 0.02
    b.core.stalled(place)
    b.measured, b.velocity = place.copy(), np.zeros(7)
    b._sent = None
    b.segments.clear()
    b.tick(8)
    assert b.state is State.RUNNING
    assert b.measured == pytest.approx(b.status.requested, abs=0.02)
    assert within_limits(b)


# average


def test_average_mixes_three_to_seven_where_chunks_overlap() -> None:
    shift = {1: 0.0, 2: 0.01}

    def source(b: Bench, request: Request) -> IncomingChunk | None:
        tick = b.core.grid.nearest(request.sent_ns)
        if request.request_id not in shift:
            return None
        offset = shift[request.request_id] * (1 if request.request_id > 1 else 0)
        return b.chunk(
            HOME + 0.002 * (tick + np.arange(1, 33))[:, None] + offset - first[0], request
        )

    first = [0.0]
    b = Bench(source, mode="average", blend_rows=3, latency=2, start_tolerance_rad=1.0)
    b.tick(2)
    b.core.offer_instruction("wipe the table", b.now_ns)
    assert b.core.resume(b.now_ns, b.ros_ns).success
    first[0] = 0.002 * 2
    b.tick(40)
    by_row = {o.status.row: o.status for o in b.outputs if o.status.chunk_id == 2}
    extra = {
        row: float(s.requested[0] - HOME[0] - 0.002 * (s.tick + 1) + first[0])
        for row, s in by_row.items()
    }
    rows = sorted(extra)
    # Asked at half the horizon: the fade to 0.7 over three rows, 0.7, then the fade to 1.
    assert rows[0] == 2
    assert [extra[r] for r in rows[:5]] == pytest.approx(
        [0.0025, 0.005, 0.007, 0.007, 0.007], abs=1e-6
    )
    assert max(extra.values()) == pytest.approx(0.01, abs=1e-6)
    assert sum(abs(v - 0.007) < 1e-6 for v in extra.values()) >= 8
    assert within_limits(b)
