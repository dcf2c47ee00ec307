# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The player as a process over real DDS: what arrives, and what it refuses."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

rclpy = pytest.importorskip("rclpy")

from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy  # noqa: E402
from sensor_msgs.msg import CompressedImage, Image, JointState  # noqa: E402
from std_msgs.msg import Bool, String  # noqa: E402

from cosmos_lite_ros.bags.reader import Bag, BagTopic  # noqa: E402
from cosmos_lite_ros.bags.stamps import header_stamp_ns  # noqa: E402
from cosmos_lite_ros.bags.types import default_typestore  # noqa: E402
from cosmos_lite_ros.bags.writer import BagWriter, qos  # noqa: E402
from cosmos_lite_ros.ros.player_node import message_class, offered_qos  # noqa: E402

from ..bags.makers import NS, START_NS, demo, moving_things_bag, string  # noqa: E402
from .harness import NodeProcess, probe  # noqa: E402

pytestmark = pytest.mark.ros
PLAYER = "cosmos_lite_ros.ros.player_node"
# Until every topic is heard; discovery takes up to 3 s on this machine alone.
HEARD = ("--wait-for-subscribers", "20")
BEST_EFFORT = QoSProfile(depth=10, reliability=ReliabilityPolicy.BEST_EFFORT)
# For exact counts: on a loaded machine a best-effort subscription may lose a message.
RELIABLE = QoSProfile(depth=1000, reliability=ReliabilityPolicy.RELIABLE)
LATCHED = QoSProfile(
    depth=1,
    reliability=ReliabilityPolicy.RELIABLE,
    durability=DurabilityPolicy.TRANSIENT_LOCAL,
)
_domains = itertools.cycle(range(40, 56))


@pytest.fixture
def domain() -> Iterator[int]:
    return next(_domains)


def player(tmp_path: Path, domain: int, *arguments: object, careful: bool = False) -> NodeProcess:
    """A player; without ``careful`` it does not wait to see whether others publish."""
    texts = (*(str(a) for a in arguments), *(() if careful else ("--force",)))
    if "--ros-args" in texts:
        texts = tuple(str(a) for a in arguments)
    return NodeProcess(PLAYER, tmp_path / f"{time.monotonic_ns()}.log", domain, arguments=texts)


def stamp_ns(message: object) -> int:
    stamp = message.header.stamp  # type: ignore[attr-defined]
    return int(stamp.sec) * NS + int(stamp.nanosec)


def test_what_arrives(tmp_path: Path, domain: int) -> None:
    """Rates, moved stamps, a late subscriber's instruction, below a namespace."""
    bag = demo(tmp_path / "bag", seconds=3.0)
    with probe(domain, namespace="left") as ears:
        images = ears.collect("wrist/image/compressed", CompressedImage, RELIABLE)
        for view in ("exterior_1", "exterior_2"):
            ears.collect(f"{view}/image/compressed", CompressedImage, RELIABLE)
        ears.collect("gripper/joint_states", JointState, RELIABLE)
        ears.node.create_subscription(String, "instruction", lambda message: None, 1)
        states = ears.collect("joint_states", JointState, RELIABLE)
        with player(tmp_path, domain, bag, "--namespace", "left", *HEARD) as node:
            ears.wait(lambda: len(images) >= 5, 10.0, what="images")
            late = ears.collect("instruction", String, LATCHED)
            ears.wait(lambda: not node.running, 10.0, what="the end of the bag")
            assert node.wait(1.0) == 0
            output = node.output()
        now_ns = time.time_ns()
        assert len(images) == 45
        assert len(states) == 300
        arrivals = ears.arrival_s["wrist/image/compressed"]
        assert 44 / (arrivals[-1] - arrivals[0]) == pytest.approx(15.0, rel=0.05)
        arrivals = ears.arrival_s["joint_states"]
        assert 299 / (arrivals[-1] - arrivals[0]) == pytest.approx(100.0, rel=0.05)
        assert [m.data for m in late] == ["pick up the banana and place it in the bowl"]
    # The last image is as fresh as a camera's, and distances between stamps are as recorded.
    assert 0 < now_ns - stamp_ns(images[-1]) < 1.5 * NS
    with Bag(bag) as recorded:
        old = [header_stamp_ns(m.data) for m in recorded.messages(["/wrist/image/compressed"])]
        data = [recorded.decode(m).data for m in recorded.messages(["/wrist/image/compressed"])]
    np.testing.assert_array_equal(np.diff([stamp_ns(m) for m in images]), np.diff(old))
    assert all(bytes(m.data) == d.tobytes() for m, d in zip(images, data, strict=True))
    assert "/joint_states -> /left/joint_states; synthetic" in output
    assert "published 586 messages" in output


def test_raw_images_arrive_too(tmp_path: Path, domain: int) -> None:
    """Three 640x360 rgb8 cameras at 15 Hz through the shipped DDS profile, best effort."""
    bag = demo(tmp_path / "bag", seconds=2.0, image_format="rgb8", size=(640, 360))
    with probe(domain) as ears:
        views = ("wrist", "exterior_1", "exterior_2")
        images = {v: ears.collect(f"{v}/image", Image, BEST_EFFORT) for v in views}
        topics = ("--topics", *(f"{v}/image" for v in views))
        with player(tmp_path, domain, bag, *topics, *HEARD, "--quiet") as node:
            ears.wait(lambda: not node.running, 15.0, what="the end of the bag")
            assert node.output() == ""
        # All, but for what a loaded machine may lose; with Fast DDS's own segment it is a third.
        assert all(27 <= len(found) <= 30 for found in images.values())


def test_loop_stamps_increase_and_the_instruction_comes_once(tmp_path: Path, domain: int) -> None:
    bag = demo(tmp_path / "bag", seconds=0.4)
    with probe(domain) as ears:
        images = ears.collect("exterior_1/image/compressed", CompressedImage, RELIABLE)
        said = ears.collect("instruction", String, LATCHED)
        topics = ("--topics", "exterior_1/image/compressed", "instruction")
        with player(tmp_path, domain, bag, "--loop", "--rate", "2", *topics, *HEARD) as node:
            ears.wait(lambda: len(images) >= 20, 10.0, what="three passes")
            began = time.monotonic()
            node.signal(signal.SIGINT)
            assert node.wait(3.0) == 0
            assert time.monotonic() - began < 2.0
        stamps = [stamp_ns(m) for m in images]
        assert all(b > a for a, b in itertools.pairwise(stamps))
        assert len(said) == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ends_within_two_seconds_while_it_waits(
    tmp_path: Path, domain: int, number: signal.Signals
) -> None:
    bag = demo(tmp_path / "bag")
    with player(tmp_path, domain, bag, "--wait-for-subscribers", "60") as node:
        end = time.monotonic() + 10.0
        while "joint_states ->" not in node.output() and time.monotonic() < end:
            time.sleep(0.05)
        node.signal(number)
        assert node.wait(2.0) == 0


def test_commands_stops_and_clocks_stay_in_the_bag(tmp_path: Path, domain: int) -> None:
    bag = moving_things_bag(tmp_path / "bag")
    with probe(domain) as ears:
        enable = ears.collect("enable", Bool, RELIABLE)
        states = ears.collect("joint_states", JointState, RELIABLE)
        ears.collect("instruction", String)
        with player(tmp_path, domain, bag, *HEARD) as node:
            ears.wait(lambda: len(states) == 50, 10.0, what="joint states")
            names = {name for name, _ in ears.node.get_topic_names_and_types()}
            publishers = {
                name for name in names if ears.node.get_publishers_info_by_topic(name)
            } - {"/rosout", "/parameter_events"}
            assert publishers == {"/joint_states", "/instruction"}
            ears.wait(lambda: not node.running, 10.0, what="the end of the bag")
        assert enable == []
        assert "not played: /emergency_stop: 'emergency_stop' names a" in node.output()
        # Named, it is played.
        with player(
            tmp_path, domain, bag, "--publish", "enable", "--topics", "enable",
            *HEARD, "--rate", "2",
        ) as node:  # fmt: skip
            ears.wait(lambda: len(enable) == 50, 10.0, what="enable")
            ears.wait(lambda: not node.running, 10.0)
    assert len(states) == 50


def test_a_topic_with_another_publisher_is_refused(tmp_path: Path, domain: int) -> None:
    """At the start, also by a remapping; and a cell that comes up while a bag plays ends it."""
    bag = demo(tmp_path / "bag", seconds=20.0)
    remap = ("--topics", "gripper/joint_states", "--remap", "/gripper/joint_states:=arm/gripper")
    with probe(domain, "robot") as cell:
        cell.publisher("joint_states", JointState)
        cell.publisher("arm/gripper", JointState)
        with (
            player(tmp_path, domain, bag, careful=True) as whole,
            player(tmp_path, domain, bag, *remap, careful=True) as remapped,
        ):
            assert whole.wait(15.0) == 2
            line = whole.output().splitlines()[-1]
            # Discovery may know of a publisher before it knows the node's name.
            by = r"\(by (/robot|a node not named yet)\)"
            # And where discovery is slower than the player waits, it ends as soon as it knows.
            later = "has got another publisher"
            assert re.match(rf"error: already published: /joint_states {by}", line) or later in line
            assert remapped.wait(15.0) == 2
            said = remapped.output()
            assert re.search(rf"already published: /arm/gripper {by}", said) or later in said
        # Elsewhere it plays, until the cell appears there too.
        states = cell.collect("/free/joint_states", JointState)
        with player(tmp_path, domain, bag, "--namespace", "free", careful=True) as node:
            cell.wait(lambda: len(states) >= 10, 15.0, what="joint states")
            cell.publisher("/free/joint_states", JointState)
            assert node.wait(10.0) == 2
            assert "/free/joint_states has got another publisher" in node.output()
        with player(tmp_path, domain, bag, "--duration", "0.2") as node:  # --force
            assert node.wait(10.0) == 0


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["absent"], "error: absent does not exist"),
        (["BAG", "--rate", "fast"], "error: argument --rate: invalid float value: 'fast'"),
        (["BAG", "--rate", "0"], "error: rate 0.0 is not within"),
        (["BAG", "--start", "99"], "error: the bag is 0.99 s long"),
        (["BAG", "--remap", "a"], "error: cannot read the remapping 'a'"),
        (["BAG", "--topics", "/enable"], "error: /enable is not in the bag"),
        (["BAG", "--namespace", "7 8"], "error: namespace '7 8': Invalid namespace"),
        (["BAG", "--remap", "/joint_states:=7 8"], "error: '7 8' cannot be a topic name"),
        (["BAG", "--ros-args", "-p", "x"], "error: the ROS arguments cannot be read"),
    ],
)
def test_bad_input_is_one_line_and_code_2(
    tmp_path: Path, domain: int, arguments: list[str], line: str
) -> None:
    bag = demo(tmp_path / "bag")
    with player(tmp_path, domain, *[bag if a == "BAG" else a for a in arguments]) as node:
        assert node.wait(10.0) == 2
        # rcl itself logs a line of its own.
        (found,) = (text for text in node.output().splitlines() if "[rcl]" not in text)
        assert found.startswith(line)


def test_a_bag_of_another_definition_is_refused(tmp_path: Path, domain: int) -> None:
    """Bytes of another layout under a known name would be read as something else."""
    source = demo(tmp_path / "bag")
    text = (source / "metadata.yaml").read_text()
    digest = default_typestore().hash_rihs01("sensor_msgs/msg/JointState")
    (source / "metadata.yaml").write_text(text.replace(digest, "RIHS01_" + "0" * 64))
    with player(tmp_path, domain, source) as node:
        assert node.wait(10.0) == 2
        assert "differs from the one installed here" in node.output()


def test_a_broken_bag_plays_what_is_there(tmp_path: Path, domain: int) -> None:
    source = demo(tmp_path / "bag", seconds=2.0, storage="sqlite3")
    alone = tmp_path / "alone.db3"
    shutil.copy(source / "bag.db3", alone)
    os.truncate(alone, int(alone.stat().st_size * 0.6))
    with probe(domain) as ears:
        states = ears.collect("joint_states", JointState, RELIABLE)
        with player(tmp_path, domain, alone, "--topics", "joint_states", *HEARD) as node:
            ears.wait(lambda: not node.running, 15.0)
            assert node.wait(1.0) == 0
            assert "is cut off" in node.output()
        assert 50 < len(states) < 200


def test_offered_qos() -> None:
    camera = BagTopic("/wrist/image", "sensor_msgs/msg/Image", 1, "", True, "", ())
    words = BagTopic("/left/instruction", "std_msgs/msg/String", 1, "", False, "", ())
    plain = offered_qos((), camera)
    assert plain.reliability == ReliabilityPolicy.RELIABLE
    assert plain.durability == DurabilityPolicy.VOLATILE
    assert offered_qos((), words).durability == DurabilityPolicy.TRANSIENT_LOCAL
    weak = offered_qos((qos(reliable=False, depth=3),), camera)
    assert weak.reliability == ReliabilityPolicy.BEST_EFFORT
    assert weak.depth == 3
    # Of two recorded publishers the stronger offer suits the subscribers of both.
    both = offered_qos((qos(reliable=False), qos(transient_local=True, depth=1)), camera)
    assert both.reliability == ReliabilityPolicy.RELIABLE
    assert both.durability == DurabilityPolicy.TRANSIENT_LOCAL


def test_type_hashes_equal_rclpys(tmp_path: Path, domain: int) -> None:
    """A bag that we write names the types as the ROS here does, ours too."""
    kinds = (
        "sensor_msgs/msg/Image",
        "sensor_msgs/msg/CompressedImage",
        "sensor_msgs/msg/JointState",
        "std_msgs/msg/String",
        *(
            f"cosmos_lite_ros/msg/{name}"
            for name in ("ActionChunk", "ChunkRequest", "ExecutorStatus", "PolicyStatus")
        ),
    )
    with BagWriter(tmp_path / "bag") as writer:
        for k, kind in enumerate(kinds):
            writer.add_topic(f"/t{k}", kind)
        writer.add_topic("/text", "std_msgs/msg/String")
        writer.write("/text", START_NS, string(writer, "x"))
    with probe(domain) as node, Bag(tmp_path / "bag") as bag:
        for k, kind in enumerate(kinds):
            node.publisher(f"/t{k}", message_class(kind))
            (info,) = node.node.get_publishers_info_by_topic(f"/t{k}")
            assert str(info.topic_type_hash) == bag.topics[f"/t{k}"].digest


def test_the_command_plays_too(tmp_path: Path, domain: int) -> None:
    """``cosmos-lite-ros play`` with every kind of option, and ROS arguments behind them."""
    bag = demo(tmp_path / "bag")
    arguments = (
        "play", str(bag), "--topics", "joint_states", "--topics", "instruction", "--rate", "2",
        "--remap", "/joint_states:=arm/joint_states", "--stamps", "keep", "--force",
        "--wait-for-subscribers", "20", "--ros-args", "-r", "__ns:=/left",
    )  # fmt: skip
    with probe(domain) as ears:
        states = ears.collect("/left/arm/joint_states", JointState, RELIABLE)
        said = ears.collect("/left/instruction", String)
        log = tmp_path / "play.log"
        module = "cosmos_lite_ros.cli.main"
        with NodeProcess(module, log, domain, arguments=arguments) as node:
            ears.wait(lambda: not node.running, 15.0, what="the end of the bag")
            assert node.wait(1.0) == 0
            assert "/joint_states -> /left/arm/joint_states" in node.output()
    with Bag(bag) as recorded:
        old = [header_stamp_ns(m.data) for m in recorded.messages(["/joint_states"])]
    assert [stamp_ns(m) for m in states] == old
    assert len(said) == 1
