# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What the tests of the executor node share: parameters, and ears for what one executor says."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from rclpy.qos import QoSProfile
from sensor_msgs.msg import JointState
from std_msgs.msg import Float64, Float64MultiArray
from std_srvs.srv import Trigger
from trajectory_msgs.msg import JointTrajectory

from cosmos_lite_ros.msg import ExecutorStatus
from cosmos_lite_ros.ros import qos

from .harness import Probe

NODE = "cosmos_lite_ros.ros.executor_node"
CELL = "test.ros.executor_cell"
# The stand-ins share two busy cores with everything else: late joint states are not the question.
S = ExecutorStatus
PATIENT: dict[str, object] = {"max_joint_state_age_s": 1.0, "enable_timeout_s": 3.0}


_TOPICS = {
    "trajectory": (JointTrajectory, "joint_trajectory"),
    "array": (Float64MultiArray, "position_commands"),
    "joint_state": (JointState, "joint_commands"),
}


class Watch:
    """What one executor publishes, in one namespace."""

    def __init__(self, p: Probe, namespace: str = "", output: str = "trajectory") -> None:
        """``output``: as the executor's parameter; empty: commands are not listened to."""
        self.probe, self.namespace = p, namespace
        many = QoSProfile(depth=500)
        self.statuses = p.collect(f"{namespace}/executor_status", ExecutorStatus, many)
        self.commands: list[Any] = []
        self.previews: list[Any] = []
        if output:
            kind, topic = _TOPICS[output]
            self.commands = p.collect(f"{namespace}/{topic}", kind, many)
            self.previews = p.collect(f"{namespace}/command_preview", kind, many)
        self.grips = p.collect(f"{namespace}/gripper_command", Float64, many)

    @property
    def status(self) -> Any:
        return self.statuses[-1]

    @property
    def state(self) -> tuple[int, int]:
        if not self.statuses:
            return -1, -1
        return self.status.state, self.status.stop_reason

    def until(
        self, condition: Callable[[], object], timeout_s: float = 15.0, what: str = ""
    ) -> None:
        try:
            self.probe.wait(condition, timeout_s, what=what)
        except AssertionError as error:
            seen = self.status.reason if self.statuses else "no status"
            raise AssertionError(f"{error}; state {self.state}: {seen}") from None

    def until_state(self, state: int, stop_reason: int = 0, timeout_s: float = 15.0) -> None:
        self.until(lambda: self.state == (state, stop_reason), timeout_s, f"state {state}")

    def call(self, service: str) -> Any:
        name = f"{self.namespace}/executor/{service}"
        if service == "preflight":
            # An answer is lost where the node has not discovered this client yet; asking again is
            # harmless.
            with suppress(AssertionError):
                return self.probe.call(name, Trigger, Trigger.Request(), 4.0)
        return self.probe.call(name, Trigger, Trigger.Request())

    def resume(self) -> None:
        """Preflight and resume, as soon as everything has been heard."""
        end = time.monotonic() + 10.0
        for service in ("preflight", "resume"):
            while not (answer := self.call(service)).success:
                assert time.monotonic() < end, answer.message
                self.probe.spin(0.1)


def transient(p: Probe, topic: str, kind: type, message: Any) -> Any:
    publisher = p.publisher(topic, kind, qos.latched())
    publisher.publish(message)
    return publisher


def stamp_s(duration: Any) -> float:
    return duration.sec + duration.nanosec * 1e-9
