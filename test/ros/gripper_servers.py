# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Action servers of a gripper, in a process of their own; each goal becomes one line of JSON.

A stand-in for a driver. ``slow`` ones take seconds to accept a goal, which nobody may wait for.

    python -m test.ros.gripper_servers plain:gripper_command two:parallel_gripper_command:slow
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from typing import Any

import rclpy
from rclpy.action import ActionServer, GoalResponse
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node

CLASSES = {
    "gripper_command": "GripperCommand",
    "parallel_gripper_command": "ParallelGripperCommand",
}
SLOW_S = 2.0


class Gripper(Node):  # type: ignore[misc]
    """Accepts every goal and reaches it at once."""

    def __init__(self, namespace: str, kind: str, speed: str = "quick") -> None:
        super().__init__("gripper", namespace=namespace)
        self._kind = getattr(importlib.import_module("control_msgs.action"), CLASSES[kind])
        self._slow = speed == "slow"
        self._server = ActionServer(
            self, self._kind, "gripper_cmd", self._execute, goal_callback=self._accept
        )

    def _accept(self, goal: Any) -> GoalResponse:
        command = goal.command
        if hasattr(command, "max_effort"):
            found = {"position": command.position, "effort": command.max_effort}
        else:
            found = {
                "position": list(command.position),
                "effort": list(command.effort),
                "name": list(command.name),
            }
        print(json.dumps({"namespace": self.get_namespace(), **found}), flush=True)
        if self._slow:
            time.sleep(SLOW_S)
        return GoalResponse.ACCEPT

    def _execute(self, handle: Any) -> Any:
        handle.succeed()
        result = self._kind.Result()
        result.reached_goal = True
        return result


def main() -> int:
    """Run what the arguments ask for until the process is killed."""
    rclpy.init(args=[])
    executor = SingleThreadedExecutor()
    nodes = [Gripper(*argument.split(":")) for argument in sys.argv[1:]]
    for node in nodes:
        executor.add_node(node)
    executor.spin()
    return 0


if __name__ == "__main__":
    sys.exit(main())
