# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The executor node: chunks and joint states in, 15 Hz motion out.

A lifecycle node and a thin shell around ``execution.core.ExecutorCore``. Activation enters
STOPPED(NOT_ARMED); only ``~/resume`` leaves it. Callbacks hand their message over under one lock
and return; the tick has a thread of its own, which also takes the joint states. No torch here.
"""

from __future__ import annotations

import gc
import sys
import threading
import time
from typing import Any

from rclpy.duration import Duration
from rclpy.publisher import Publisher
from sensor_msgs.msg import JointState
from std_msgs.msg import Bool, Float64, String
from std_srvs.srv import Trigger
from trajectory_msgs.msg import JointTrajectory

from cosmos_lite_ros.execution.core import ExecutorCore
from cosmos_lite_ros.execution.machine import StopReason
from cosmos_lite_ros.execution.output import Answer
from cosmos_lite_ros.execution.settings import ExecutorSettings
from cosmos_lite_ros.execution.ticker import Arrival, TickGrid
from cosmos_lite_ros.msg import ActionChunk, ChunkRequest, ExecutorStatus
from cosmos_lite_ros.ros import executor_diagnostics as tell
from cosmos_lite_ros.ros import qos
from cosmos_lite_ros.ros.diagnostics import PERIOD_S, Diagnostics, status
from cosmos_lite_ros.ros.diagnostics import Level as DiagnosticLevel
from cosmos_lite_ros.ros.executor_inputs import PolledSubscription
from cosmos_lite_ros.ros.executor_messages import (
    incoming_chunk,
    request_message,
    status_message,
    trajectory_message,
)
from cosmos_lite_ros.ros.executor_ticks import TickThread
from cosmos_lite_ros.ros.lifecycle import ManagedNode, one_line, run_node, steady_timer
from cosmos_lite_ros.ros.parameters import Parameters

# How long a callback may keep the interpreter when the tick is due, s; Python's default is 5 ms.
_SWITCH_INTERVAL_S = 0.0005
# How long the last messages may take to be acknowledged before the node goes on to end.
_ACKNOWLEDGE = Duration(seconds=0.2)
_NOT_HERE = "is not available in this version"


class ExecutorNode(ManagedNode):
    """See the module."""

    def __init__(self) -> None:
        super().__init__("executor")
        self.settings = Parameters(self, ExecutorSettings).settings
        self._lock = threading.Lock()
        self._core: ExecutorCore | None = None
        self._ticks: TickThread | None = None
        self._statistics = tell.TickStatistics()
        self._qos_problems: dict[str, str] = {}
        self._inputs: list[Any] = []
        self._outputs: list[Any] = []
        self._said: tuple[object, ...] = ()
        self._diagnostics = Diagnostics(self)
        for name, callback in (
            ("resume", self._on_resume),
            ("stop", self._on_stop),
            ("reset", self._on_reset),
            ("describe", self._on_describe),
            ("home", self._on_home),
            ("preflight", self._on_preflight),
        ):
            self.create_service(Trigger, f"~/{name}", callback)
        steady_timer(self, PERIOD_S, self._publish_diagnostics)
        steady_timer(self, 0.2, self._watch_ticks)

    # Lifecycle.

    def configure(self) -> None:
        """Refuse what is not available, create the core, subscribe and advertise."""
        self.settings.check_available()
        now_ns = time.monotonic_ns()
        self._core = ExecutorCore(
            self.settings, TickGrid(now_ns), epoch_ns=time.time_ns(), now_ns=now_ns
        )
        command = "command_preview" if self.settings.dry_run else "joint_trajectory"
        self._command = self._publish(JointTrajectory, command, qos.command())
        self._gripper = self._publish(Float64, "gripper_command", qos.command())
        self._requests = self._publish(ChunkRequest, "chunk_request", qos.exchange())
        self._status = self._publish(ExecutorStatus, "executor_status", qos.status())
        self._listen(ActionChunk, "action_chunk", self._on_chunk, qos.exchange())
        self._joint_states = PolledSubscription(
            self, JointState, "joint_states", qos.joint_states()
        )
        self._inputs.append(self._joint_states.subscription)
        self._listen(Bool, "enable", self._on_enable, qos.heartbeat())
        for profile in (qos.plain, qos.latched):
            self._listen(String, "instruction", self._on_instruction, profile())
            self._listen(Bool, "emergency_stop", self._on_emergency_stop, profile())

    def activate(self) -> None:
        """Tick, in STOPPED(NOT_ARMED)."""
        assert self._core is not None
        with self._lock:
            self._core.disarm(time.monotonic_ns())
        # What is alive now lives as long as the node: a full collection need not look at it.
        gc.collect()
        gc.freeze()
        self._ticks = TickThread(self._core.grid, self._tick)
        self._ticks.start()

    def deactivate(self) -> None:
        """Come to rest, and tick no more."""
        ticks, self._ticks = self._ticks, None
        if ticks is None or self._core is None:
            return
        with self._lock:
            self._core.stop(time.monotonic_ns(), StopReason.SHUTDOWN, "the node is deactivated")
        # One more tick sends the trajectory that ends at rest; the controller runs it to its end.
        ticks.end()
        for publisher in (self._command, self._status):
            publisher.wait_for_all_acked(_ACKNOWLEDGE)

    def cleanup(self) -> None:
        """Undo ``configure``."""
        for subscription in self._inputs:
            self.destroy_subscription(subscription)
        for publisher in self._outputs:
            self.destroy_publisher(publisher)
        self._inputs.clear()
        self._outputs.clear()
        self._qos_problems.clear()
        self._core = None

    def close(self) -> None:
        """Come to rest before the process ends."""
        self.deactivate()

    def _publish(self, kind: type, topic: str, profile: Any) -> Publisher:
        events = qos.publisher_events(topic, self._on_qos(topic))
        publisher = self.create_publisher(kind, topic, profile, event_callbacks=events)
        self._outputs.append(publisher)
        return publisher

    def _listen(self, kind: type, topic: str, callback: Any, profile: Any) -> None:
        # The transient-local half hears nothing from a volatile publisher by design.
        half = profile.durability == qos.latched().durability
        events = None if half else qos.subscription_events(topic, self._on_qos(topic))
        self._inputs.append(
            self.create_subscription(kind, topic, callback, profile, event_callbacks=events)
        )

    def _on_qos(self, topic: str) -> Any:
        def report(line: str) -> None:
            if self._qos_problems.get(topic) != line:
                self.get_logger().error(line)
            self._qos_problems[topic] = line

        return report

    # The tick, on its own thread.

    def _tick(self, arrival: Arrival, now_ns: int) -> None:
        core = self._core
        assert core is not None
        ros = self.get_clock().now()
        listening = self._requests.get_subscription_count() > 0
        states = list(self._joint_states.take())
        with self._lock:
            for message, age_ns in states:
                core.joints.push(message, now_ns - age_ns, ros.nanoseconds - age_ns)
            output = core.tick(arrival, now_ns, ros.nanoseconds, listening=listening)
        names = core.robot.joint_names
        stamp = ros.to_msg()
        if output.trajectory is not None:
            self._command.publish(trajectory_message(output.trajectory, names))
        if output.gripper is not None:
            self._gripper.publish(Float64(data=output.gripper))
        if output.request is not None:
            self._requests.publish(request_message(output.request, stamp))
        self._status.publish(status_message(output.status, names, stamp))
        self._statistics.add(output.status.lateness_s)

    def _watch_ticks(self) -> None:
        """Log changes of the state; end the process if the tick thread has failed."""
        core, ticks = self._core, self._ticks
        if ticks is not None and ticks.error is not None:
            self.exit(1, f"the tick failed: {one_line(ticks.error)}")
        if core is None or ticks is None:
            return
        machine = core.machine
        label = machine.state.name
        if machine.stopped:
            label = f"STOPPED({machine.stop_reason.name}): {machine.text}"
        # In mode sync RUNNING and UNDERRUN take turns: only stops and their end are news.
        news = label if machine.stopped else "armed"
        if self._said != (news,):
            self._said = (news,)
            self.get_logger().info(label)

    # Inputs.

    def _on_chunk(self, message: ActionChunk) -> None:
        chunk = incoming_chunk(message)
        with self._lock:
            if self._core is not None:
                self._core.offer_chunk(chunk)

    def _on_enable(self, message: Bool) -> None:
        with self._lock:
            if self._core is not None:
                self._core.interlocks.enable(message.data, time.monotonic_ns())

    def _on_instruction(self, message: String) -> None:
        with self._lock:
            if self._core is not None:
                self._core.offer_instruction(message.data, time.monotonic_ns())

    def _on_emergency_stop(self, message: Bool) -> None:
        with self._lock:
            if self._core is not None:
                self._core.offer_emergency_stop(message.data, time.monotonic_ns())

    # Services.

    def _on_resume(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        core = self._core
        fault = self._publisher_fault()
        if core is None or self._ticks is None:
            answer = Answer(False, f"not resumed: the node is {self.state_label}, expected active")
        elif fault:
            answer = Answer(False, f"not resumed: {fault}")
        else:
            ros_ns = self.get_clock().now().nanoseconds
            with self._lock:
                answer = core.resume(time.monotonic_ns(), ros_ns)
        return self._answer(response, answer)

    def _on_stop(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        answer = Answer(True, f"nothing moves: the node is {self.state_label}")
        if self._core is not None and self._ticks is not None:
            with self._lock:
                answer = self._core.stop(time.monotonic_ns())
        return self._answer(response, answer)

    def _on_reset(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        answer = Answer(False, f"not reset: the node is {self.state_label}, expected active")
        if self._core is not None and self._ticks is not None:
            with self._lock:
                answer = self._core.reset(time.monotonic_ns())
        return self._answer(response, answer)

    def _on_describe(
        self, request: Trigger.Request, response: Trigger.Response
    ) -> Trigger.Response:
        topics = [output.topic_name for output in self._outputs]
        with self._lock:
            text = tell.describe(self.settings, self._core, topics)
        response.success, response.message = True, text
        return response

    def _on_home(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        text = f"~/home {_NOT_HERE}: move the arm with its own tools while this node is STOPPED"
        return self._answer(response, Answer(False, text))

    def _on_preflight(
        self, request: Trigger.Request, response: Trigger.Response
    ) -> Trigger.Response:
        text = f"~/preflight {_NOT_HERE}: ~/resume checks enable, joint states and clock itself"
        return self._answer(response, Answer(False, text))

    def _answer(self, response: Trigger.Response, answer: Answer) -> Trigger.Response:
        self.get_logger().info(answer.message)
        response.success, response.message = answer.success, answer.message
        return response

    # Diagnostics.

    def _publisher_fault(self) -> str:
        """Two policies on one topic are an error."""
        found = self.get_publishers_info_by_topic("action_chunk") if self._core else []
        if len(found) < 2:
            return ""
        names = sorted(qos.node_label(i.node_namespace, i.node_name) for i in found)
        return (
            f"{len(found)} nodes publish action_chunk ({', '.join(names)}), expected one: stop the "
            "others or give them a namespace (one that was killed counts for a few seconds more)"
        )

    def _publish_diagnostics(self) -> None:
        core = self._core
        if core is None:
            text = f"the node is {self.state_label}"
            self._diagnostics.publish([status("motion", DiagnosticLevel.STALE, text)])
            return
        fault = self._publisher_fault()
        ros_ns = self.get_clock().now().nanoseconds
        listening = self._requests.get_subscription_count() > 0
        with self._lock:
            now_ns = time.monotonic_ns()
            statuses = [
                tell.motion_status(core, self._command.topic_name),
                tell.policy_status(core, fault, listening),
                tell.joints_status(core, now_ns, ros_ns),
                tell.clock_status(core, ros_ns),
            ]
        ticks = self._statistics.summary()
        statuses.append(status("tick", DiagnosticLevel.OK, "", ticks))
        statuses.append(tell.qos_status(self._qos_problems))
        self._diagnostics.publish(statuses)


def main() -> int:
    """Run the executor node."""
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    return run_node(ExecutorNode)


if __name__ == "__main__":
    sys.exit(main())
