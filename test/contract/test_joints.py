# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Joint states by name: any order, in parts, from several publishers, damaged."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cosmos_lite_ros.contract.joints import JointSample, JointStateBuffer
from cosmos_lite_ros.contract.robots import PANDA
from cosmos_lite_ros.contract.stamps import StampCheck
from cosmos_lite_ros.errors import BadInputError
from test.contract.makers import MS, S, joint_state

ARM = PANDA.joint_names
Q = tuple(0.1 * (i + 1) for i in range(7))
VALUES = {**dict(zip(ARM, Q, strict=True)), "gripper": 0.4}


def sample(buffer: JointStateBuffer) -> JointSample:
    found = buffer.newest()
    assert found is not None, buffer.not_ready()
    return found


def full(stamp_ns: int = S, **changes: float) -> Any:
    values = {**VALUES, **changes}
    return joint_state(list(values), list(values.values()), stamp_ns)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000), parts=st.integers(1, 8))
def test_any_order_in_any_number_of_messages_with_foreign_names(seed: int, parts: int) -> None:
    rng = random.Random(seed)
    buffer = JointStateBuffer(ARM, "gripper")
    names = [*VALUES, "wheel", "finger_mimic"]
    rng.shuffle(names)
    for part in range(parts):
        chosen = names[part::parts]
        buffer.push(joint_state(chosen, [VALUES.get(n, 9.0) for n in chosen]), S + part)
    assert sample(buffer).positions == Q
    assert sample(buffer).gripper == 0.4


def test_the_order_may_change_between_messages() -> None:
    buffer = JointStateBuffer(ARM)
    buffer.push(joint_state(ARM, Q), S)
    buffer.push(joint_state(sorted(ARM, reverse=True), Q[::-1], S + MS), S + MS)
    assert sample(buffer).positions == Q


def test_the_stamp_is_that_of_the_oldest_joint_of_the_arm() -> None:
    buffer = JointStateBuffer(ARM, "gripper")
    buffer.push(joint_state(["gripper"], [0.4], S - 300 * MS), S - 299 * MS)
    buffer.push(joint_state(ARM[:3], Q[:3], S), S + MS)
    assert buffer.not_ready() == f"no joint state yet of {', '.join(ARM[3:])}"
    buffer.push(joint_state(ARM[3:], Q[3:], S + 8 * MS), S + 9 * MS)
    assert sample(buffer) == JointSample(Q, S, S + 9 * MS, 0.4, S - 300 * MS, S - 299 * MS)
    assert buffer.oldest_joint(gripper=False) == (ARM[0], S, S + MS)
    assert buffer.oldest_joint(gripper=True) == ("gripper", S - 300 * MS, S - 299 * MS)


def test_nearest_looks_at_arrivals_on_both_sides() -> None:
    buffer = JointStateBuffer(ARM, "gripper")
    for i in range(20):
        at = S + 10 * i * MS
        buffer.push(full(at, panda_joint1=float(i), gripper=0.01 * i), at + 2 * MS)
    for asked, expected in [(0, 0), (50, 5), (54, 5), (57, 6), (120, 12), (500, 19)]:
        found = buffer.nearest(S + asked * MS + 2 * MS)
        assert found is not None
        assert found.positions[0] == expected
        assert found.stamp_ns == S + 10 * expected * MS
        assert found.gripper == pytest.approx(0.01 * expected)


def test_a_slow_gripper_does_not_make_the_arm_older() -> None:
    buffer = JointStateBuffer(ARM, "gripper")
    buffer.push(joint_state(["gripper"], [0.4], S), S)
    for i in range(10):
        buffer.push(joint_state(ARM, [i * 1.0] * 7, S + i * MS), S + i * MS)
        buffer.push(joint_state(["gripper"], [0.5], S + i * MS), S + i * MS + 1)
    found = buffer.nearest(S + 4 * MS + 1)
    assert found is not None
    assert found.positions[0] == 4.0
    assert found.stamp_ns == S + 4 * MS


def test_history_is_bounded_in_time() -> None:
    buffer = JointStateBuffer(ARM, history_s=0.1)
    for i in range(100):
        buffer.push(joint_state(ARM, [float(i)] * 7, S + 10 * i * MS), S + 10 * i * MS)
    found = buffer.nearest(S)
    assert found is not None
    assert found.positions[0] == 89.0


def test_nan_in_a_needed_joint_is_not_ready_until_it_is_finite() -> None:
    buffer = JointStateBuffer(ARM, "gripper")
    buffer.push(full(S), S)
    buffer.push(full(S + MS, panda_joint4=math.nan), S + MS)
    assert buffer.not_ready() == "joint state of panda_joint4 is not finite"
    assert buffer.nearest(S) is None
    assert buffer.counts["not_finite"] == 1
    buffer.push(full(S + 2 * MS, panda_joint4=0.25), S + 2 * MS)
    assert sample(buffer).positions[3] == 0.25
    found = buffer.nearest(S)
    assert found is not None
    assert found.arrival_ns == S + 2 * MS  # nothing from before the gap


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_gripper_that_is_not_finite_is_not_ready(value: float) -> None:
    buffer = JointStateBuffer(ARM, "gripper")
    buffer.push(full(S), S)
    buffer.push(joint_state(["gripper"], [value], S + MS), S + MS)
    assert buffer.not_ready() == "joint state of gripper is not finite"
    buffer.push(joint_state(["gripper"], [0.1], S + 2 * MS), S + 2 * MS)
    assert sample(buffer).gripper == 0.1


def test_nan_elsewhere_is_fine() -> None:
    buffer = JointStateBuffer(ARM)
    message = joint_state([*ARM, "wheel"], [*Q, math.nan])
    message.velocity = message.effort = [math.nan] * 8
    assert buffer.push(message, S)
    assert sample(buffer).positions == Q
    assert buffer.counts["not_finite"] == 0


def test_empty_messages_are_ignored_and_counted() -> None:
    buffer = JointStateBuffer(ARM)
    buffer.push(joint_state(ARM, Q), S)
    assert not buffer.push(joint_state([], []), S + MS)
    assert not buffer.push(joint_state(ARM, []), S + MS)  # efforts alone
    assert buffer.counts["ignored"] == 2
    assert sample(buffer).positions == Q


@pytest.mark.parametrize(
    ("names", "positions", "words"),
    [
        ([*ARM, ARM[2]], [*Q, 5.0], "panda_joint3 more than once"),
        ([*ARM, "wheel", "wheel"], [*Q, 5.0, 5.0], "wheel more than once"),
        (ARM, Q[:6], "7 names and 6 positions"),
        (ARM[:6], Q, "6 names and 7 positions"),
        ([], Q, "0 names and 7 positions"),
    ],
)
def test_contradictory_messages_are_rejected_and_change_nothing(
    names: Any, positions: Any, words: str
) -> None:
    buffer = JointStateBuffer(ARM)
    buffer.push(joint_state(ARM, [0.0] * 7), S)
    assert not buffer.push(joint_state(names, positions, S + MS), S + MS)
    assert buffer.counts["rejected"] == 1
    assert words in buffer.last_problem
    assert sample(buffer).positions == (0.0,) * 7


def test_foreign_messages_are_counted() -> None:
    buffer = JointStateBuffer(ARM)
    assert not buffer.push(joint_state(["wheel"], [1.0]), S)
    assert dict(buffer.counts) == {"received": 1, "foreign": 1}


def test_positions_as_the_bag_reader_gives_them() -> None:
    buffer = JointStateBuffer(ARM)
    message = joint_state(ARM, Q)
    message.position = np.array(Q)
    buffer.push(message, S)
    assert sample(buffer).positions == Q
    assert all(type(q) is float for q in sample(buffer).positions)


def test_time_set_back_forgets_what_was_later() -> None:
    buffer = JointStateBuffer(ARM)
    for i in range(10):
        buffer.push(joint_state(ARM, [9.0] * 7, 100 * S + i * MS), 100 * S + i * MS)
    buffer.push(joint_state(ARM[:3], Q[:3], S), S)
    assert buffer.counts["time_jump"] == 1
    assert buffer.nearest(100 * S) is None
    buffer.push(joint_state(ARM[3:], Q[3:], S), S)
    assert sample(buffer).positions == Q


@pytest.mark.parametrize("problem", ["zero", "negative", "future", "frozen"])
def test_a_bad_stamp_is_replaced_by_the_arrival(problem: str) -> None:
    buffer = JointStateBuffer(ARM)
    for i in range(10):
        at = 10 * S + 20 * i * MS
        stamp = {"zero": 0, "negative": -S, "future": at + 51 * MS, "frozen": 10 * S}[problem]
        buffer.push(joint_state(ARM, Q, stamp), at)
    assert sample(buffer).stamp_ns == at
    assert buffer.counts["bad_stamp"] == {"frozen": 7}.get(problem, 10)


def test_two_publishers_with_one_stamp_are_not_frozen() -> None:
    buffer = JointStateBuffer(ARM)
    for i in range(20):
        at = 10 * S + 20 * i * MS
        buffer.push(joint_state(ARM[:4], Q[:4], at), at + MS)
        buffer.push(joint_state(ARM[4:], Q[4:], at), at + 2 * MS)
    assert buffer.counts["bad_stamp"] == 0
    assert sample(buffer).stamp_ns == at


def test_stamps_a_little_ahead_are_believed() -> None:
    check = StampCheck()
    assert check.judge(S + 50 * MS, S) == ""
    assert check.judge(S + 51 * MS + 1, S + MS) == "future"


@pytest.mark.parametrize("names", [(), ("a", "a"), ("a", "")])
def test_joint_names_must_be_given_and_differ(names: tuple[str, ...]) -> None:
    with pytest.raises(BadInputError, match="joint names"):
        JointStateBuffer(names)
    with pytest.raises(BadInputError, match="joint names"):
        JointStateBuffer(("a", "b"), "b")
