# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Small bags, and a policy without a network, for tests."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from cosmos_lite_ros.bags.demo import make_demo_bag
from cosmos_lite_ros.bags.writer import BagWriter, Compression, Storage, qos
from cosmos_lite_ros.contract.assembler import AssemblerSettings
from cosmos_lite_ros.contract.chunk import ActionChunk
from cosmos_lite_ros.contract.gripper import GripperMapping
from cosmos_lite_ros.contract.observation import Observation
from cosmos_lite_ros.contract.robots import PANDA

NS = 1_000_000_000
START_NS = 1_700_000_000 * NS
STORAGES: tuple[Storage, ...] = ("mcap", "sqlite3")

ASSEMBLER = AssemblerSettings(
    joint_names=PANDA.joint_names, gripper_joint="finger_joint", gripper=GripperMapping(0.0, 0.8)
)


def demo(path: Path, **options: Any) -> Path:
    """A short demo bag of generated pictures."""
    values = {"seconds": 1.0, "generated": True, **options}
    return make_demo_bag(path, **values).path


def joint_state(
    writer: BagWriter, stamp_ns: int, position: float, names: Iterable[str] = PANDA.joint_names
) -> Any:
    """A JointState with the same position for every joint."""
    names = list(names)
    return writer.make(
        "sensor_msgs/msg/JointState",
        header=writer.header(stamp_ns),
        name=names,
        position=np.full(len(names), position),
        velocity=np.zeros(0),
        effort=np.zeros(0),
    )


def string(writer: BagWriter, text: str) -> Any:
    """A String."""
    return writer.make("std_msgs/msg/String", data=text)


def joints_bag(
    path: Path,
    *,
    storage: Storage = "mcap",
    compression: Compression = "none",
    count: int = 200,
    padding: int = 0,
) -> Path:
    """joint_states at 100 Hz, 1 ms after their stamps; position = index / 1000.

    Args:
        padding: bytes of text beside each state on ``/padding``, to make the file grow.
    """
    with BagWriter(path, storage=storage, compression=compression) as writer:
        writer.add_topic("/joint_states", "sensor_msgs/msg/JointState", qos(depth=7))
        if padding:
            writer.add_topic("/padding", "std_msgs/msg/String")
        for k in range(count):
            stamp_ns = START_NS + k * NS // 100
            log_ns = stamp_ns + 1_000_000
            writer.write("/joint_states", log_ns, joint_state(writer, stamp_ns, k / 1000))
            if padding:
                writer.write("/padding", log_ns + 1, string(writer, f"{k:06d}" * (padding // 6)))
    return path


def moving_things_bag(path: Path) -> Path:
    """One message on each of several topics, most of which may move something."""
    with BagWriter(path) as writer:
        writer.add_topic("/joint_states", "sensor_msgs/msg/JointState")
        writer.add_topic("/joint_commands", "sensor_msgs/msg/JointState")
        writer.add_topic("/enable", "std_msgs/msg/Bool")
        writer.add_topic("/emergency_stop", "std_msgs/msg/Bool")
        writer.add_topic("/joint_trajectory", "trajectory_msgs/msg/JointTrajectory")
        writer.add_topic("/clock", "rosgraph_msgs/msg/Clock")
        writer.add_topic("/instruction", "std_msgs/msg/String", qos(depth=1, transient_local=True))
        writer.add_topic("/driver/script", "std_msgs/msg/String")
        writer.add_topic("/joy", "sensor_msgs/msg/Joy")
        for k in range(50):
            log_ns = START_NS + k * NS // 50
            for topic in ("/joint_states", "/joint_commands"):
                writer.write(topic, log_ns, joint_state(writer, log_ns, 0.1))
            for topic in ("/enable", "/emergency_stop"):
                writer.write(topic, log_ns, writer.make("std_msgs/msg/Bool", data=True))
            trajectory = writer.make(
                "trajectory_msgs/msg/JointTrajectory",
                header=writer.header(log_ns),
                joint_names=[],
                points=[],
            )
            writer.write("/joint_trajectory", log_ns, trajectory)
            time = writer.make("builtin_interfaces/msg/Time", sec=k, nanosec=0)
            writer.write("/clock", log_ns, writer.make("rosgraph_msgs/msg/Clock", clock=time))
            writer.write("/driver/script", log_ns, string(writer, "movej([0])"))
            joy = writer.make(
                "sensor_msgs/msg/Joy",
                header=writer.header(log_ns),
                axes=np.ones(2, np.float32),
                buttons=np.ones(2, np.int32),
            )
            writer.write("/joy", log_ns, joy)
        writer.write("/instruction", START_NS, string(writer, "wave"))
    return path


class EchoPolicy:
    """Answers with the measured joints in every row: what it saw shows in what it says."""

    random_weights = True

    def __init__(self) -> None:
        self.effective: dict[str, object] = {"profile": "echo", "threads": float("nan")}
        self.seen: list[Observation] = []

    def act(self, observation: Observation, *, seed: int | None = None) -> ActionChunk:
        self.seen.append(observation)
        return ActionChunk(
            positions=np.tile(observation.joint_positions, (32, 1)),
            gripper=np.full(32, observation.gripper, np.float32),
            instruction=observation.instruction,
            stamp_ns=observation.stamp_ns,
            joint_state_stamp_ns=observation.joint_state_stamp_ns,
            image_stamps_ns=observation.image_stamps_ns,
            measured_positions=observation.joint_positions,
            measured_gripper=observation.gripper,
            seed=seed or 0,
            steps=2,
            guidance=3.0,
            profile="echo",
            scheme="",
            checkpoint="",
            revision="",
            random_weights=True,
            latency_s=0.25,
            encode_s=0.05,
            generate_s=0.2,
        )
