# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The gripper: a topic, or one of the two actions of control_msgs.

A command is handed over in the tick and never waited for. The action's messages are sent and heard
in the node's main thread.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, Protocol

from rclpy.action import ActionClient
from rclpy.node import Node
from rclpy.publisher import Publisher
from sensor_msgs.msg import JointState
from std_msgs.msg import Float64

from cosmos_lite_ros.contract.gripper import GripperMapping
from cosmos_lite_ros.errors import EnvironmentLacksError
from cosmos_lite_ros.execution.settings import GripperSettings

TOPIC = "gripper_command"
ACTION = "gripper_cmd"
_CLASSES = {
    "gripper_command": "GripperCommand",
    "parallel_gripper_command": "ParallelGripperCommand",
}
Say = Callable[[str], None]


class Gripper(Protocol):
    """One way to a gripper."""

    def command(self, value: float) -> None:
        """0 open .. 1 closed; called by the tick."""

    def retry(self) -> None:
        """Called now and then by the main thread while motion is going on."""

    def forget(self) -> None:
        """Motion has stopped: what could not be sent is not wanted any more."""

    def problem(self) -> str:
        """Why it cannot be commanded now, one line; empty when it can."""

    def report(self) -> dict[str, object]:
        """For the diagnostics."""

    def close(self) -> None:
        """Destroy what was made."""


class TopicGripper:
    """std_msgs/Float64, 0 open .. 1 closed."""

    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher

    def command(self, value: float) -> None:
        """Publish."""
        self._publisher.publish(Float64(data=value))

    def retry(self) -> None:
        """A topic is not repeated."""

    def forget(self) -> None:
        """Nothing is kept."""

    def problem(self) -> str:
        """Nobody on the topic: a cell without a gripper, which is no fault."""
        return ""

    def report(self) -> dict[str, object]:
        """Who listens."""
        listeners = self._publisher.get_subscription_count()
        return {"gripper": self._publisher.topic_name, "gripper subscribers": listeners}

    def close(self) -> None:
        """The publisher is the node's."""


class ActionGripper:
    """Goals of an action; the newest replaces the one before.

    Invariants: a command is sent once; one that the server was not there for is sent when it comes,
    unless motion has stopped meanwhile; nothing here waits.
    """

    def __init__(self, node: Node, settings: GripperSettings, say: Say) -> None:
        self._node = node
        self._settings = settings
        self._say = say
        self._mapping = GripperMapping(settings.open, settings.closed)
        self._kind = action_type(settings.action_type)
        self._client = ActionClient(node, self._kind, ACTION)
        self._wanted: float | None = None
        self._incident = ""
        self._sent = self._reached = self._stalled = self._failed = 0
        self._handed_over = node.create_guard_condition(self.retry)

    def command(self, value: float) -> None:
        """Hand it over to the main thread."""
        self._wanted = value
        self._handed_over.trigger()

    def retry(self) -> None:
        """Send what is wanted, if the server is there."""
        value = self._wanted
        if value is None:
            return
        if not self._client.server_is_ready():
            self._note(f"no server of {ACTION} ({_CLASSES[self._settings.action_type]})")
            return
        self._wanted = None
        self._sent += 1
        future = self._client.send_goal_async(self._goal(self._mapping.from_unit(value)))
        future.add_done_callback(self._answered)

    def _goal(self, position: float) -> Any:
        goal, effort = self._kind.Goal(), self._settings.max_effort
        if self._settings.action_type == "gripper_command":
            goal.command.position, goal.command.max_effort = position, effort
        else:
            goal.command = JointState(name=[self._settings.joint], position=[position])
            if effort > 0:
                goal.command.effort = [effort]
        return goal

    def _answered(self, future: Any) -> None:
        handle = None if future.cancelled() or future.exception() else future.result()
        if handle is None or not handle.accepted:
            self._failed += 1
            self._note(f"{ACTION} refused a goal")
            return
        self._incident = ""
        handle.get_result_async().add_done_callback(self._finished)

    def _finished(self, future: Any) -> None:
        if future.cancelled() or future.exception():
            return
        result = future.result().result
        # Stalled is what holding something looks like.
        self._reached += bool(result.reached_goal)
        self._stalled += bool(result.stalled)

    def _note(self, line: str) -> None:
        if line != self._incident:
            self._say(f"gripper: {line}")
        self._incident = line

    def forget(self) -> None:
        """See Gripper."""
        self._wanted = None

    def problem(self) -> str:
        """See Gripper."""
        if self._client.server_is_ready():
            return ""
        name = _CLASSES[self._settings.action_type]
        return f"no server of the gripper action {ACTION} ({name}): start the gripper's driver"

    def report(self) -> dict[str, object]:
        """Counts of goals."""
        return {
            "gripper": f"{ACTION} ({_CLASSES[self._settings.action_type]})",
            "gripper goals sent": self._sent,
            "gripper goals reached": self._reached,
            "gripper goals stalled": self._stalled,
            "gripper goals refused": self._failed,
            "gripper incident": self._incident,
        }

    def close(self) -> None:
        """See Gripper."""
        self._node.destroy_guard_condition(self._handed_over)
        self._client.destroy()


def action_type(name: str) -> Any:
    """The class of a control_msgs action.

    Raises:
        EnvironmentLacksError: control_msgs is not installed, or too old to have it.
    """
    wanted = _CLASSES[name]
    try:
        return getattr(importlib.import_module("control_msgs.action"), wanted)
    except (ImportError, AttributeError) as error:
        raise EnvironmentLacksError(
            f"gripper.output is action and control_msgs.action.{wanted} is not installed: apt "
            "install ros-$ROS_DISTRO-control-msgs, or set gripper.output to topic"
        ) from error


def make_gripper(
    node: Node,
    settings: GripperSettings,
    publish: Callable[[type, str], Publisher],
    say: Say,
) -> Gripper:
    """The gripper that the settings ask for."""
    if settings.output == "topic":
        return TopicGripper(publish(Float64, TOPIC))
    return ActionGripper(node, settings, say)
