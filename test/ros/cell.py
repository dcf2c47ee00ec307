# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The topics of a DROID cell, published by a probe: three cameras, an arm and a gripper."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from sensor_msgs.msg import Image, JointState

from cosmos_lite_ros.contract.constants import VIEWS, View
from cosmos_lite_ros.contract.observation import instruction_hash
from cosmos_lite_ros.contract.robots import PANDA
from cosmos_lite_ros.msg import ChunkRequest
from cosmos_lite_ros.ros import qos
from cosmos_lite_ros.ros.convert import doubles, octets

from .harness import Probe

JOINTS_RAD = (0.1, -0.6, 0.05, -2.4, -0.1, 1.9, 0.2)
GRIPPER_RAD = 0.2  # a quarter closed, of 0.8


class Cell:
    """Publishers of one cell; ``publish`` sends one message on each topic, stamped now."""

    def __init__(self, probe: Probe, prefix: str = "", views: Iterable[View] = VIEWS) -> None:
        self._probe = probe
        make = probe.publisher
        self._cameras = {v: make(f"{prefix}{v}/image", Image, qos.image()) for v in views}
        self._arm = make(f"{prefix}joint_states", JointState, qos.joint_states())
        self._gripper = make(f"{prefix}gripper/joint_states", JointState, qos.joint_states())
        self._requests = make(f"{prefix}chunk_request", ChunkRequest, qos.exchange())
        self._frames = 0
        # 180x320 keeps the tests light; the noise makes every frame another one.
        self._noise = np.random.default_rng(0).integers(0, 256, (180, 320 * 3), dtype=np.uint8)

    def publish(self) -> None:
        """One message on each topic."""
        stamp = self._probe.node.get_clock().now().to_msg()
        self._frames += 1
        for camera in self._cameras.values():
            message = Image(height=180, width=320, encoding="rgb8", step=320 * 3)
            message.header.stamp = stamp
            message.data = octets(np.roll(self._noise, self._frames, axis=1))
            camera.publish(message)
        arm = JointState(name=list(PANDA.joint_names), position=doubles(JOINTS_RAD))
        gripper = JointState(name=["finger_joint"], position=doubles([GRIPPER_RAD]))
        arm.header.stamp = gripper.header.stamp = stamp
        self._arm.publish(arm)
        self._gripper.publish(gripper)

    def request(self, request_id: int, instruction: str, epoch: int = 77, **fields: object) -> None:
        """One chunk request, as an executor sends it."""
        message = ChunkRequest(request_id=request_id, epoch=epoch, instruction=instruction)
        message.header.stamp = self._probe.node.get_clock().now().to_msg()
        message.instruction_sha256 = instruction_hash(instruction)
        for name, value in fields.items():
            setattr(message, name, value)
        self._requests.publish(message)

    def heard_by(self, count: int = 1) -> bool:
        """Whether that many policies listen to the requests."""
        return bool(self._requests.get_subscription_count() >= count)
