# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The cell of ``bench tick``: joint states, enable, and an answer to every chunk request.

A stand-in: the arm stands still, and the rows are a slow wave around where it stands.

    python -m cosmos_lite_ros.ros.bench_tick_cell --output trajectory --ros-args -r __ns:=/bench
"""

from __future__ import annotations

import sys
import time
from contextlib import suppress

import numpy as np
import rclpy
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.utilities import remove_ros_args
from sensor_msgs.msg import JointState
from std_msgs.msg import Bool

from cosmos_lite_ros.contract.constants import CHUNK_ROWS, ROW_PERIOD_S
from cosmos_lite_ros.contract.robots import PANDA
from cosmos_lite_ros.msg import ActionChunk, ChunkRequest, PolicyStatus
from cosmos_lite_ros.ros import qos
from cosmos_lite_ros.ros.convert import doubles
from cosmos_lite_ros.ros.executor_inputs import NeverGroup
from cosmos_lite_ros.ros.executor_outputs import OUTPUTS

_STATES_S = 0.01
_ENABLE_S = 0.1
_STATUS_S = 0.5
# Of the stand-in policy, which answers as Edge does.
_LATENCY_S = 0.3
_AMPLITUDE_RAD, _PERIOD_ROWS = 0.03, 60


class Cell(Node):  # type: ignore[misc]
    """Arm, enabling hand and policy."""

    def __init__(self, output: str) -> None:
        super().__init__("cell")
        self._rows = 0
        self._chunks = 0
        self._due: tuple[float, ChunkRequest] | None = None
        self._state = JointState(name=list(PANDA.joint_names), position=list(PANDA.home))
        self._states = self.create_publisher(JointState, "joint_states", qos.status())
        self._enable = self.create_publisher(Bool, "enable", qos.heartbeat())
        self._chunk = self.create_publisher(ActionChunk, "action_chunk", qos.exchange())
        self.create_subscription(ChunkRequest, "chunk_request", self._ask, qos.exchange())
        kind, topic = OUTPUTS[output]
        # Somebody must listen; what arrives is not looked at.
        self.create_subscription(
            kind, topic, lambda message: None, qos.command(), callback_group=NeverGroup()
        )
        self.create_timer(_STATES_S, self._tick)
        self.create_timer(_ENABLE_S, lambda: self._enable.publish(Bool(data=True)))
        self._status = self.create_publisher(PolicyStatus, "policy_status", qos.latched())
        ready = PolicyStatus(state=PolicyStatus.READY)
        self.create_timer(_STATUS_S, lambda: self._status.publish(ready))

    def _ask(self, request: ChunkRequest) -> None:
        self._due = (time.monotonic() + _LATENCY_S, request)

    def _tick(self) -> None:
        self._state.header.stamp = self.get_clock().now().to_msg()
        self._states.publish(self._state)
        if self._due is not None and time.monotonic() >= self._due[0]:
            self._answer(self._due[1])
            self._due = None

    def _answer(self, request: ChunkRequest) -> None:
        # One wave through all chunks, at the rate of the rows whatever the time of asking.
        now_s = time.monotonic() - _LATENCY_S
        phase = (now_s / ROW_PERIOD_S + np.arange(CHUNK_ROWS)) * (2 * np.pi / _PERIOD_ROWS)
        table = np.array(PANDA.home) + _AMPLITUDE_RAD * np.sin(phase)[:, None]
        self._chunks += 1
        message = ActionChunk()
        stamp_ns = self.get_clock().now().nanoseconds - int(_LATENCY_S * 1e9)
        message.header.stamp.sec, message.header.stamp.nanosec = divmod(stamp_ns, 10**9)
        message.joint_state_stamp = message.header.stamp
        message.chunk_id = self._chunks
        message.request_id, message.epoch = request.request_id, request.epoch
        message.joint_names = list(PANDA.joint_names)
        message.rows, message.row_period_s = CHUNK_ROWS, ROW_PERIOD_S
        message.positions = doubles(table.reshape(-1))
        message.gripper = np.zeros(CHUNK_ROWS, np.float32).tolist()
        self._chunk.publish(message)


def main() -> int:
    """Run until the process is ended."""
    output = remove_ros_args(sys.argv)[1]
    rclpy.init(args=sys.argv)
    node = Cell(output)
    executor = SingleThreadedExecutor()
    executor.add_node(node)
    print("ready", flush=True)
    with suppress(KeyboardInterrupt):
        executor.spin()
    return 0


if __name__ == "__main__":
    sys.exit(main())
