# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The same frames through topics and through the bag reader give identical observations.

The player publishes a bag; a subscriber in this process hands rclpy's messages to an
``ObservationAssembler``. The bag reader hands its own to another. What the two answer at the same
instants must be equal to the byte. Times of arrival are those of the bag on both sides, looked up
by topic and header stamp, since which joint state is nearest to an image depends on them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

rclpy = pytest.importorskip("rclpy")

from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy  # noqa: E402

from cosmos_lite_ros.bags.reader import Bag  # noqa: E402
from cosmos_lite_ros.bags.replay import ReplaySettings, replay  # noqa: E402
from cosmos_lite_ros.bags.stamps import header_stamp_ns  # noqa: E402
from cosmos_lite_ros.bags.topics import COMPRESSED_IMAGE, IMAGE, JOINT_STATE, TopicMap  # noqa: E402
from cosmos_lite_ros.bags.writer import BagWriter, qos  # noqa: E402
from cosmos_lite_ros.contract.assembler import ObservationAssembler  # noqa: E402
from cosmos_lite_ros.contract.observation import Observation  # noqa: E402
from cosmos_lite_ros.ros.player_node import message_class  # noqa: E402

from ..bags.makers import ASSEMBLER, NS, EchoPolicy, demo  # noqa: E402
from .harness import NodeProcess, probe  # noqa: E402

pytestmark = pytest.mark.ros
REQUESTS_S = (0.3, 0.6, 0.95)
RELIABLE = QoSProfile(
    depth=1000,
    reliability=ReliabilityPolicy.RELIABLE,
    durability=DurabilityPolicy.VOLATILE,
)


def from_bag(path: Path) -> list[Observation]:
    """Observations as replay makes them."""
    policy = EchoPolicy()
    with Bag(path) as bag:
        replay(bag, policy, ReplaySettings(ASSEMBLER, at_s=REQUESTS_S))
    return policy.seen


def from_topics(path: Path, folder: Path, domain: int) -> list[Observation]:
    """Observations from what a subscriber receives of the player."""
    with Bag(path) as bag:
        inputs = TopicMap().find({t.name: t.msgtype for t in bag.topics.values()})
        arrivals = {
            (m.topic, header_stamp_ns(m.data)): m.log_ns
            for m in bag.messages([*inputs.images.values(), *inputs.joint_states])
        }
        start_ns = bag.start_ns
        types = {t.name: t.msgtype for t in bag.topics.values()}
        instruction = bag.decode(next(bag.messages([inputs.instruction or ""]))).data
        expected = len(arrivals)
    received: list[tuple[int, str, Any]] = []

    def listen(topic: str) -> Callable[[Any], None]:
        def store(message: Any) -> None:
            stamp = message.header.stamp
            stamp_ns = int(stamp.sec) * NS + int(stamp.nanosec)
            received.append((arrivals[topic, stamp_ns], topic, message))

        return store

    with probe(domain) as ears:
        for topic in (*inputs.images.values(), *inputs.joint_states):
            kind = message_class(types[topic])
            ears.node.create_subscription(kind, topic, listen(topic), RELIABLE)
        names = [*inputs.images.values(), *inputs.joint_states]
        options = ("--stamps", "keep", "--force", "--rate", "0.5", "--topics", *names)
        arguments = (str(path), *options, "--wait-for-subscribers", "20")
        module = "cosmos_lite_ros.ros.player_node"
        with NodeProcess(module, folder / "player.log", domain, arguments=arguments) as node:
            ears.wait(lambda: len(received) == expected, 30.0, what="every message")
            ears.wait(lambda: not node.running, 10.0, what="the player's end")
    received.sort(key=lambda entry: entry[:2])
    assembler = ObservationAssembler(ASSEMBLER)
    views = {topic: view for view, topic in inputs.images.items()}
    waiting = list(received)
    found: list[Observation] = []
    for at_s in REQUESTS_S:
        now_ns = start_ns + round(at_s * NS)
        while waiting and waiting[0][0] <= now_ns:
            arrival_ns, topic, message = waiting.pop(0)
            if types[topic] == COMPRESSED_IMAGE:
                assembler.push_compressed(views[topic], message, arrival_ns)
            elif types[topic] == IMAGE:
                assembler.push_image(views[topic], message, arrival_ns)
            else:
                assert types[topic] == JOINT_STATE
                assembler.push_joint_state(message, arrival_ns)
        made = assembler.assemble(instruction, now_ns)
        assert isinstance(made, Observation), made
        found.append(made)
    return found


@pytest.mark.parametrize(
    ("image_format", "size", "domain"),
    [("jpeg", None, 56), ("png", None, 57), ("rgb8", (640, 360), 58), ("bgra8", (640, 360), 59)],
)
def test_identical(
    tmp_path: Path, image_format: str, size: tuple[int, int] | None, domain: int
) -> None:
    path = tmp_path / "deep"
    source = demo(tmp_path / "bag", image_format=image_format, size=size)
    with Bag(source) as bag, BagWriter(path) as writer:
        for topic in bag.topics.values():
            # So deep that reliable delivery loses nothing, however busy this machine is.
            writer.add_topic(topic.name, topic.msgtype, qos(depth=200))
        for message in bag.messages():
            writer.write_raw(message.topic, message.log_ns, message.data)
    recorded = from_bag(path)
    live = from_topics(path, tmp_path, domain)
    assert len(recorded) == len(live) == len(REQUESTS_S)
    for one, other in zip(recorded, live, strict=True):
        assert one.digest() == other.digest()
        np.testing.assert_array_equal(one.composed, other.composed)
        np.testing.assert_array_equal(one.joint_positions, other.joint_positions)
        assert one.gripper == other.gripper
        assert one.stamp_ns == other.stamp_ns
        assert one.joint_state_stamp_ns == other.joint_state_stamp_ns
        assert one.image_stamps_ns == other.image_stamps_ns
    assert len({observation.digest() for observation in live}) == len(REQUESTS_S)
