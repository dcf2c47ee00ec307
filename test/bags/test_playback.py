# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What may be played, when it is due, and which stamp it gets."""

from __future__ import annotations

from itertools import islice, pairwise
from pathlib import Path

import pytest

from cosmos_lite_ros.bags.playback import (
    LOOP_GAP_NS,
    Playback,
    parse_remaps,
    refusal,
    restamped,
    select,
)
from cosmos_lite_ros.bags.reader import Bag, BagTopic
from cosmos_lite_ros.bags.stamps import header_stamp_ns
from cosmos_lite_ros.bags.writer import BagWriter, qos
from cosmos_lite_ros.errors import BadInputError

from .makers import NS, START_NS, joint_state, joints_bag, moving_things_bag, string

JOINTS = "sensor_msgs/msg/JointState"


@pytest.mark.parametrize(
    ("name", "msgtype"),
    [
        ("/wrist/image/compressed", "sensor_msgs/msg/CompressedImage"),
        ("/left/exterior_1/image", "sensor_msgs/msg/Image"),
        ("/joint_states", JOINTS),
        ("/gripper/joint_states", JOINTS),
        ("/target_cell/left/joint_states", JOINTS),  # a namespace may be any word
        ("/instruction", "std_msgs/msg/String"),
        ("/zed/camera_info", "sensor_msgs/msg/CameraInfo"),
    ],
)
def test_sensors_and_the_instruction_are_played(name: str, msgtype: str) -> None:
    assert refusal(name, msgtype) == ""


@pytest.mark.parametrize(
    ("name", "msgtype"),
    [
        ("/joint_trajectory", "trajectory_msgs/msg/JointTrajectory"),
        ("/command_preview", "trajectory_msgs/msg/JointTrajectory"),
        ("/left/gripper_command", "std_msgs/msg/Float64"),
        ("/gripper_cmd/_action/status", "action_msgs/msg/GoalStatusArray"),
        ("/enable", "std_msgs/msg/Bool"),
        ("/emergency_stop", "std_msgs/msg/Bool"),
        ("/robot_ready", "std_msgs/msg/Bool"),
        ("/chunk_request", "cosmos_lite_ros/msg/ChunkRequest"),
        ("/action_chunk", "cosmos_lite_ros/msg/ActionChunk"),
        ("/policy_status", "cosmos_lite_ros/msg/PolicyStatus"),
        ("/clock", "rosgraph_msgs/msg/Clock"),
        # The same things under names or types that hide them.
        ("/joint_commands", JOINTS),
        ("/panda/joint_states_desired", JOINTS),
        ("/some_topic", "trajectory_msgs/msg/JointTrajectory"),
        ("/deadman", "std_msgs/msg/Bool"),
        ("/driver/script", "std_msgs/msg/String"),
        ("/joy", "sensor_msgs/msg/Joy"),
        ("/forward_controller/commands", "std_msgs/msg/Float64MultiArray"),
        ("/cmd_vel", "geometry_msgs/msg/Twist"),
        ("/tf", "tf2_msgs/msg/TFMessage"),
    ],
)
def test_what_may_move_something_is_not_played(name: str, msgtype: str) -> None:
    assert refusal(name, msgtype)


def test_selection(tmp_path: Path) -> None:
    with Bag(moving_things_bag(tmp_path / "bag")) as bag:
        chosen = select(bag.topics)
        assert dict(chosen.names) == {
            "/joint_states": "/joint_states",
            "/instruction": "/instruction",
        }
        assert set(chosen.left_out) == set(bag.topics) - set(chosen.names)
        assert "--publish /enable" in chosen.left_out["/enable"]
        named = select(bag.topics, publish=["enable"])
        assert set(named.names) == {"/joint_states", "/instruction", "/enable"}
        only = select(bag.topics, only=["joint_states"], publish=["/clock"])
        assert set(only.names) == {"/joint_states", "/clock"}


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"only": ["/enable"]}, "--publish /enable"),
        ({"only": ["/absent"]}, "/absent is not in the bag"),
        ({"publish": ["/absent"]}, "/absent is not in the bag"),
        ({"remap": {"/absent": "a"}}, "/absent is not in the bag"),
        ({"only": ["/joint_states"], "remap": {"joint_states": "arm/joint_trajectory"}}, "names a"),
        ({"publish": ["joint_commands"], "remap": {"joint_commands": "joint_states"}}, "two"),
    ],
)
def test_wrong_selections(tmp_path: Path, options: dict[str, object], reason: str) -> None:
    with (
        Bag(moving_things_bag(tmp_path / "bag")) as bag,
        pytest.raises(BadInputError, match=reason),
    ):
        select(bag.topics, **options)  # type: ignore[arg-type]


def test_the_final_name_counts_and_may_be_named() -> None:
    topics = {"/a": BagTopic("/a", JOINTS, 1, "", True, "", ())}
    with pytest.raises(BadInputError, match="nothing to play"):
        select(topics, resolve=lambda name: "/left/enable")
    found = select(topics, resolve=lambda name: "/left/enable", publish=["/left/enable"])
    assert found.names == {"/a": "/left/enable"}


def test_a_topic_that_ros_cannot_send_is_never_played() -> None:
    topics = {"/a": BagTopic("/a", JOINTS, 1, "encoded as 'json'", False, "", (), "json")}
    with pytest.raises(BadInputError, match="json"):
        select(topics, publish=["/a"])


def test_remaps() -> None:
    assert parse_remaps(["/a:=b", "c:=/d"]) == {"/a": "b", "c": "/d"}
    for text in ("a", "a:=", ":=b", "a=b"):
        with pytest.raises(BadInputError, match="OLD:=NEW"):
            parse_remaps([text])


def test_schedule_rate_start_and_duration(tmp_path: Path) -> None:
    with Bag(joints_bag(tmp_path / "bag")) as bag:  # 100 Hz, 200 messages
        plain = list(Playback().schedule(bag, ["/joint_states"]))
        assert [d.due_ns for d in plain] == [k * NS // 100 for k in range(200)]
        fast = list(Playback(rate=4.0).schedule(bag, ["/joint_states"]))
        assert [d.due_ns for d in fast] == [k * NS // 400 for k in range(200)]
        part = list(Playback(start_s=0.5, duration_s=0.25).schedule(bag, ["/joint_states"]))
        assert [d.message.log_ns for d in part] == [
            bag.start_ns + k * NS // 100 for k in range(50, 75)
        ]
        assert [d.due_ns for d in part] == [k * NS // 100 for k in range(25)]
        with pytest.raises(BadInputError, match="cannot start at"):
            Playback(start_s=2.5).span_ns(bag)


@pytest.mark.parametrize(
    "options", [{"rate": 0.0}, {"rate": float("nan")}, {"start_s": -1.0}, {"duration_s": 0.0}]
)
def test_wrong_numbers(options: dict[str, float]) -> None:
    with pytest.raises(BadInputError):
        Playback(**options)  # type: ignore[arg-type]


def test_stamps_increase_across_the_loop_and_keep_their_latency(tmp_path: Path) -> None:
    wall_ns = 1_900_000_000 * NS
    with Bag(joints_bag(tmp_path / "bag", count=20)) as bag:
        schedule = Playback(rate=2.0, loop=True).schedule(bag, ["/joint_states"])
        found = list(islice(schedule, 60))
    stamps = [header_stamp_ns(restamped(d.message, wall_ns + d.due_ns)) for d in found]
    assert [d.number for d in found] == [0] * 20 + [1] * 20 + [2] * 20
    assert all(b > a for a, b in pairwise(stamps))
    # Each was recorded 1 ms after its stamp, and is published 1 ms after its new one.
    assert {wall_ns + d.due_ns - s for d, s in zip(found, stamps, strict=True)} == {1_000_000}
    assert found[20].due_ns == found[19].due_ns + LOOP_GAP_NS


def test_invalid_stamps_stay_invalid_and_frozen_ones_frozen(tmp_path: Path) -> None:
    with BagWriter(tmp_path / "bag") as writer:
        writer.add_topic("/zero", JOINTS)
        writer.add_topic("/frozen", JOINTS)
        writer.add_topic("/absurd", JOINTS)
        for k in range(3):
            absurd_ns = (2**31 - 1) * NS
            writer.write("/absurd", START_NS + k * NS, joint_state(writer, absurd_ns, 0.0))
            writer.write("/zero", START_NS + k * NS, joint_state(writer, 0, 0.0))
            writer.write("/frozen", START_NS + k * NS, joint_state(writer, START_NS, 0.0))
    with Bag(tmp_path / "bag") as bag:
        stamps: dict[str, set[int | None]] = {name: set() for name in bag.topics}
        for due in Playback().schedule(bag, list(stamps)):
            moved = restamped(due.message, START_NS + 9 * NS + due.due_ns)
            stamps[due.message.topic].add(header_stamp_ns(moved))
    assert stamps["/zero"] == {0}
    assert stamps["/absurd"] == {(2**31 - 1) * NS}
    assert len(stamps["/frozen"]) == 1


def test_latched_topics_are_played_once_and_before_the_start(tmp_path: Path) -> None:
    with BagWriter(tmp_path / "bag") as writer:
        writer.add_topic("/instruction", "std_msgs/msg/String", qos(transient_local=True))
        writer.add_topic("/joint_states", JOINTS)
        for k, text in enumerate(("old", "new")):
            writer.write("/instruction", START_NS + k, string(writer, text))
        for k in range(10):
            log_ns = START_NS + k * NS
            writer.write("/joint_states", log_ns, joint_state(writer, log_ns, 0.0))
    latched = frozenset({"/instruction"})
    with Bag(tmp_path / "bag") as bag:
        names = list(bag.topics)
        playback = Playback(start_s=5.0, loop=True, latched=latched)
        found = list(islice(playback.schedule(bag, names), 12))
        assert [bag.decode(d.message).data for d in found if d.message.topic == names[0]] == ["new"]
        assert found[0].due_ns == 0


def test_a_loop_over_nothing_but_a_latched_message_ends(tmp_path: Path) -> None:
    with BagWriter(tmp_path / "bag") as writer:
        writer.add_topic("/instruction", "std_msgs/msg/String", qos(transient_local=True))
        writer.write("/instruction", START_NS, string(writer, "wave"))
    with Bag(tmp_path / "bag") as bag:
        playback = Playback(loop=True, latched=frozenset({"/instruction"}))
        assert len(list(islice(playback.schedule(bag, ["/instruction"]), 5))) == 1
