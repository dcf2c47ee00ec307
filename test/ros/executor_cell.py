# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Stand-ins around the executor, in a process of their own: an arm, an enabling hand, a policy.

None of them exists on a test machine. The arm is where the commands that it hears have led; the
policy answers each request with rows made by a rule instead of a network.

    python -m test.ros.executor_cell --arm left --arm right:stand --source left:smooth
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from typing import Any

import numpy as np
import rclpy
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from sensor_msgs.msg import JointState
from std_msgs.msg import Bool, Float64MultiArray
from trajectory_msgs.msg import JointTrajectory

from cosmos_lite_ros.contract.constants import CHUNK_ROWS, ROW_PERIOD_S
from cosmos_lite_ros.contract.robots import PANDA
from cosmos_lite_ros.msg import ActionChunk, ChunkRequest, PolicyStatus
from cosmos_lite_ros.ros import qos

STEP_RAD = 0.004
DELAY_S = 0.15
WAVE_RAD = 0.02


class Arm(Node):  # type: ignore[misc]
    """Follows commands (or command_preview), publishes joint_states, holds enable.

    ``kind``: follow; stand: it hears commands and does not move; states: it hears none and holds no
    enable either.
    """

    def __init__(self, namespace: str, kind: str = "follow") -> None:
        super().__init__("arm", namespace=namespace)
        self._stands = kind != "follow"
        self.position = np.array(PANDA.home)
        self.velocity = np.zeros(7)
        self._segments: list[tuple[float, np.ndarray, np.ndarray]] = []
        self._begun_s = 0.0
        self._states = self.create_publisher(JointState, "joint_states", qos.status())
        self.create_timer(0.02, self._tick)
        if kind == "states":
            return
        self._enable = self.create_publisher(Bool, "enable", qos.heartbeat())
        for topic in ("joint_trajectory", "command_preview"):
            self.create_subscription(JointTrajectory, topic, self._follow, qos.command())
        self.create_subscription(
            Float64MultiArray, "position_commands", lambda m: self._put(m.data), qos.command()
        )
        self.create_subscription(
            JointState, "joint_commands", lambda m: self._put(m.position), qos.command()
        )
        self.create_timer(0.1, lambda: self._enable.publish(Bool(data=True)))

    def _put(self, position: Any) -> None:
        if not self._stands:
            self.position = np.array(position)

    def _follow(self, message: JointTrajectory) -> None:
        if self._stands:
            return
        self._advance()
        self._begun_s = time.monotonic()
        self._segments = [(0.0, self.position, self.velocity)]
        for point in message.points:
            at = point.time_from_start.sec + point.time_from_start.nanosec * 1e-9
            self._segments.append((at, np.array(point.positions), np.array(point.velocities)))

    def _advance(self) -> None:
        """To the cubic's place at this instant."""
        if not self._segments:
            return
        t = time.monotonic() - self._begun_s
        for (t0, p0, v0), (t1, p1, v1) in zip(self._segments, self._segments[1:], strict=False):
            if t < t1:
                h, u = t1 - t0, (t - t0) / (t1 - t0)
                m0, m1, d = v0 * h, v1 * h, p1 - p0
                c2, c3 = 3 * d - 2 * m0 - m1, m0 + m1 - 2 * d
                self.position = p0 + u * (m0 + u * (c2 + u * c3))
                self.velocity = (m0 + u * (2 * c2 + 3 * u * c3)) / h
                return
        self.position, self.velocity = self._segments[-1][1], self._segments[-1][2]

    def _tick(self) -> None:
        self._advance()
        message = JointState(name=list(PANDA.joint_names), position=self.position.tolist())
        message.header.stamp = self.get_clock().now().to_msg()
        self._states.publish(message)


class Source(Node):  # type: ignore[misc]
    """Answers chunk_request after DELAY_S.

    ``kind``: smooth; wave: the same rows in every chunk; nan; random; late: its status says that it
    takes 3 s.
    """

    def __init__(self, namespace: str, kind: str) -> None:
        super().__init__("policy", namespace=namespace)
        self._kind = kind
        self._state: Any = None
        self._chunks = 0
        self._due: list[tuple[float, ChunkRequest, Any]] = []
        self._chunk = self.create_publisher(ActionChunk, "action_chunk", qos.exchange())
        self.create_subscription(ChunkRequest, "chunk_request", self._ask, qos.exchange())
        self.create_subscription(JointState, "joint_states", self._keep, qos.joint_states())
        self.create_timer(0.02, self._answer)
        status = self.create_publisher(PolicyStatus, "policy_status", qos.latched())
        ready = PolicyStatus(state=PolicyStatus.READY)
        ready.latency_p95_s = 3.0 if kind == "late" else math.nan
        self.create_timer(0.5, lambda: status.publish(ready))

    def _keep(self, message: JointState) -> None:
        if len(message.position) == 7:
            self._state = message

    def _ask(self, request: ChunkRequest) -> None:
        self._due = [(time.monotonic() + DELAY_S, request, self._state)]

    def _answer(self) -> None:
        if not self._due or time.monotonic() < self._due[0][0]:
            return
        _, request, state = self._due.pop()
        if state is None:
            return
        measured = np.array(state.position)
        # There and back again, so that no limit is ever near.
        rows = np.arange(1, CHUNK_ROWS + 1)[:, None] * STEP_RAD
        table = measured + (rows if measured[0] < PANDA.home[0] + 0.2 else -rows)
        self._chunks += 1
        message = ActionChunk()
        message.header.stamp = state.header.stamp
        message.joint_state_stamp = state.header.stamp
        message.chunk_id = self._chunks
        message.request_id, message.epoch = request.request_id, request.epoch
        message.joint_names = list(PANDA.joint_names)
        message.rows = CHUNK_ROWS
        message.row_period_s = ROW_PERIOD_S
        if self._kind == "nan":
            table[3, 2] = np.nan
        if self._kind == "wave":
            phase = 2 * np.pi * np.arange(CHUNK_ROWS)[:, None] / (CHUNK_ROWS - 1)
            table = np.array(PANDA.home) + WAVE_RAD * (1 - np.cos(phase))
        message.positions = table.reshape(-1).tolist()
        message.gripper = np.where(np.arange(CHUNK_ROWS) < 16, 0.0, 1.0).tolist()
        message.random_weights = self._kind == "random"
        self._chunk.publish(message)


def main() -> int:
    """Run what the arguments ask for until the process is killed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--arm", action="append", default=[])
    parser.add_argument("--source", action="append", default=[])
    arguments = parser.parse_args()
    rclpy.init(args=[])
    executor = SingleThreadedExecutor()
    nodes = [Arm(*arm.split(":")) for arm in arguments.arm]
    nodes += [Source(*source.split(":")) for source in arguments.source]
    for node in nodes:
        executor.add_node(node)
    print("ready", flush=True)
    executor.spin()
    return 0


if __name__ == "__main__":
    sys.exit(main())
