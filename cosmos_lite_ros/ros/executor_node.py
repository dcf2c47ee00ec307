# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The executor node: chunks and joint states in, motion out.

A lifecycle node and a thin shell around ``execution.core.ExecutorCore``. Activation enters
STOPPED(NOT_ARMED); only ``~/resume`` and ``~/home`` leave it. The tick has a thread of its own,
which takes every input itself; the main thread has services and diagnostics. No torch here.
"""

from __future__ import annotations

import gc
import sys
import threading
import time
from typing import Any

from rclpy.duration import Duration
from rclpy.publisher import Publisher
from rclpy.qos import QoSProfile
from sensor_msgs.msg import JointState
from std_msgs.msg import Bool, String
from std_srvs.srv import Trigger

from cosmos_lite_ros.execution.core import ExecutorCore
from cosmos_lite_ros.execution.machine import StopReason
from cosmos_lite_ros.execution.output import Answer
from cosmos_lite_ros.execution.settings import ExecutorSettings
from cosmos_lite_ros.execution.ticker import Arrival, TickGrid
from cosmos_lite_ros.msg import ActionChunk, ChunkRequest, ExecutorStatus, PolicyStatus
from cosmos_lite_ros.ros import executor_diagnostics as tell
from cosmos_lite_ros.ros import qos
from cosmos_lite_ros.ros.convert import floats, time_message
from cosmos_lite_ros.ros.diagnostics import PERIOD_S, Diagnostics, status
from cosmos_lite_ros.ros.diagnostics import Level as DiagnosticLevel
from cosmos_lite_ros.ros.executor_gripper import Gripper, make_gripper
from cosmos_lite_ros.ros.executor_inputs import STATES_DEPTH, PolledSubscription
from cosmos_lite_ros.ros.executor_messages import incoming_chunk, request_message, status_message
from cosmos_lite_ros.ros.executor_outputs import Output, make_output
from cosmos_lite_ros.ros.executor_preflight import Findings, PolicyWatch, found_problems
from cosmos_lite_ros.ros.executor_scheduling import Scheduling, schedule
from cosmos_lite_ros.ros.executor_ticks import MotionClock, RosClock, SteadyClock, TickThread
from cosmos_lite_ros.ros.lifecycle import ManagedNode, one_line, run_node, steady_timer
from cosmos_lite_ros.ros.parameters import Parameters

# How long another thread may keep the interpreter when a tick is due, s; Python's default is 5 ms.
_SWITCH_INTERVAL_S = 0.0001
_WATCH_S = 0.25
# How long the last messages may take to be acknowledged before the node goes on to end.
_ACKNOWLEDGE = Duration(seconds=0.2)
# Messages of each kind that may arrive within a tick; of the newest instruction or stop none is
# lost, and a foreign chunk does not push ours out.
_DEPTH = 8


class ExecutorNode(ManagedNode):
    """See the module."""

    def __init__(self) -> None:
        super().__init__("executor")
        self.settings = Parameters(self, ExecutorSettings).settings
        self._lock = threading.Lock()
        self._core: ExecutorCore | None = None
        self._ticks: TickThread | None = None
        self._motion_clock: MotionClock = SteadyClock(self._ros_now_ns)
        if self.settings.tick_clock == "ros":
            self._motion_clock = RosClock(self._ros_now_ns)
        self._statistics = tell.Lateness()
        self._command_statistics = tell.Lateness()
        self._scheduling = Scheduling.unasked()
        self._qos_problems: dict[str, str] = {}
        self._inputs: list[PolledSubscription] = []
        self._outputs: list[Publisher] = []
        self._said = ""
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
        steady_timer(self, _WATCH_S, self._watch_threads)

    def _ros_now_ns(self) -> int:
        return int(self.get_clock().now().nanoseconds)

    # Lifecycle.

    def configure(self) -> None:
        """Create the core, subscribe and advertise."""
        settings = self.settings
        now_ns, _ = self._motion_clock.read()
        core = ExecutorCore(settings, TickGrid(now_ns), epoch_ns=time.time_ns(), now_ns=now_ns)
        warn = self.get_logger().warning
        self._gripper: Gripper = make_gripper(self, settings.gripper, self._command_topic, warn)
        self._output: Output = make_output(
            settings, core.robot.joint_names, self._motion_clock, self._command_topic
        )
        self._requests = self._publish(ChunkRequest, "chunk_request", qos.exchange())
        self._status = self._publish(ExecutorStatus, "executor_status", qos.status())
        states = qos.joint_states()
        states.depth = STATES_DEPTH
        self._joint_states = self._listen(JointState, "joint_states", states)
        self._chunks = self._listen(ActionChunk, "action_chunk", qos.exchange())
        self._enable = self._listen(Bool, "enable", qos.heartbeat())
        self._ready = self._listen(Bool, "robot_ready", qos.heartbeat())
        halves = (qos.plain, qos.latched)
        self._instructions = [self._listen(String, "instruction", half()) for half in halves]
        self._stops = [self._listen(Bool, "emergency_stop", half()) for half in halves]
        self._policy = PolicyWatch(self._listen(PolicyStatus, "policy_status", qos.latched()))
        self._core = core

    def activate(self) -> None:
        """Tick, in STOPPED(NOT_ARMED)."""
        assert self._core is not None
        with self._lock:
            self._core.disarm(self._motion_clock.read()[0])
        # What is alive now lives as long as the node: a full collection need not look at it.
        gc.collect()
        gc.freeze()
        self._ticks = TickThread(self._core.grid, self._tick, clock=self._motion_clock)
        self._output.start()
        self._ticks.start()
        self._scheduling = schedule(self.settings.realtime_priority)
        self.get_logger().info(self._scheduling.text)

    def deactivate(self) -> None:
        """Come to rest, and tick no more."""
        ticks, self._ticks = self._ticks, None
        if ticks is None or self._core is None:
            return
        with self._lock:
            self._core.stop(
                self._motion_clock.read()[0], StopReason.SHUTDOWN, "the node is deactivated"
            )
        # One more tick sends the trajectory that ends at rest; the controller runs it to its end.
        ticks.end()
        self._output.end()
        for publisher in (self._output.publisher, self._status):
            publisher.wait_for_all_acked(_ACKNOWLEDGE)

    def cleanup(self) -> None:
        """Undo ``configure``, also one that failed half way."""
        gripper = self.__dict__.pop("_gripper", None)
        if gripper is not None:
            gripper.close()
        for polled in self._inputs:
            self.destroy_subscription(polled.subscription)
        for publisher in self._outputs:
            self.destroy_publisher(publisher)
        self._inputs.clear()
        self._outputs.clear()
        self._qos_problems.clear()
        self._core = None

    def close(self) -> None:
        """Come to rest before the process ends."""
        self.deactivate()

    def _publish(self, kind: type, topic: str, profile: QoSProfile) -> Publisher:
        events = qos.publisher_events(topic, self._on_qos(topic))
        publisher = self.create_publisher(kind, topic, profile, event_callbacks=events)
        self._outputs.append(publisher)
        return publisher

    def _command_topic(self, kind: type, topic: str) -> Publisher:
        return self._publish(kind, topic, qos.command())

    def _listen(self, kind: type, topic: str, profile: QoSProfile) -> PolledSubscription:
        profile.depth = max(profile.depth, _DEPTH)
        polled = PolledSubscription(self, kind, topic, profile)
        self._inputs.append(polled)
        return polled

    def _on_qos(self, topic: str) -> Any:
        def report(line: str) -> None:
            if self._qos_problems.get(topic) != line:
                self.get_logger().error(line)
            self._qos_problems[topic] = line

        return report

    def _check_inputs(self) -> None:
        """Publishers that our subscriptions cannot hear."""
        for polled in self._inputs:
            if polled.half:
                continue
            line = polled.incompatible()
            if line:
                self._on_qos(polled.topic)(line)
            else:
                self._qos_problems.pop(polled.topic, None)

    # The tick, on its own thread.

    def _tick(self, arrival: Arrival, late_ns: int) -> None:
        core, output = self._core, self._output
        assert core is not None
        now_ns, ros_ns = self._motion_clock.read()
        listening = self._requests.get_subscription_count() > 0
        followed = output.publisher.get_subscription_count() > 0
        states = list(self._joint_states.take())
        with self._lock:
            self._take_inputs(core, states, now_ns, ros_ns)
            held = output.take_held()
            if held is not None:
                core.stalled(held)
            done = core.tick(arrival, now_ns, ros_ns, listening=listening, followed=followed)
        names = core.robot.joint_names
        if done.trajectory is not None:
            output.send(done.trajectory, core.grid.deadline_ns(arrival.tick))
        if done.gripper is not None:
            self._gripper.command(done.gripper)
        stamp = time_message(max(ros_ns, 0))
        if done.request is not None:
            self._requests.publish(request_message(done.request, stamp))
        message = status_message(done.status, names, stamp)
        lateness_s, message.commands_late = output.take_lateness()
        message.command_lateness_s = floats(lateness_s)
        self._status.publish(message)
        self._statistics.add(done.status.lateness_s)
        for value in lateness_s:
            self._command_statistics.add(value)

    def _take_inputs(
        self, core: ExecutorCore, states: list[tuple[Any, int]], now_ns: int, ros_ns: int
    ) -> None:
        """Everything that has arrived since the last tick; stops last, so that they hold."""
        steady = self.settings.tick_clock == "steady"
        for message, age_ns in states:
            # The age since arrival is of the system's clock, which ROS time need not follow.
            age_ns = age_ns if steady else 0
            core.joints.push(message, now_ns - age_ns, ros_ns - age_ns)
        for message, age_ns in self._enable.take():
            core.interlocks.enable(message.data, now_ns - (age_ns if steady else 0))
        for message, age_ns in self._ready.take():
            core.interlocks.robot_ready(message.data, now_ns - (age_ns if steady else 0))
        for half in self._instructions:
            for message, _ in half.take():
                core.offer_instruction(message.data, now_ns)
        for message, _ in self._chunks.take():
            core.offer_chunk(incoming_chunk(message))
        for half in self._stops:
            for message, _ in half.take():
                core.offer_emergency_stop(message.data, now_ns)

    def _watch_threads(self) -> None:
        """Log changes of the state; end the process if a thread has failed."""
        core, ticks = self._core, self._ticks
        if core is None or ticks is None:
            return
        error = ticks.error or self._output.error
        if error is not None:
            self.exit(1, f"the tick failed: {one_line(error)}")
        machine = core.machine
        label = machine.state.name
        if machine.stopped:
            label = f"STOPPED({machine.stop_reason.name}): {machine.text}"
            self._gripper.forget()
        else:
            self._gripper.retry()
        # In mode sync RUNNING and UNDERRUN take turns: only stops and their end are news.
        news = label if machine.stopped else "armed"
        if self._said != news:
            self._said = news
            self.get_logger().info(label)

    # Services.

    def _on_resume(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        return self._begin(response, "resumed", ExecutorCore.resume)

    def _on_home(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        return self._begin(response, "moved", ExecutorCore.home)

    def _begin(self, response: Trigger.Response, done: str, motion: Any) -> Trigger.Response:
        """Begin a motion of the core, unless it is clear already why not."""
        core = self._core
        fault = self._publisher_fault()
        if core is None or self._ticks is None:
            answer = Answer(False, f"not {done}: the node is {self.state_label}, expected active")
        elif fault:
            answer = Answer(False, f"not {done}: {fault}")
        else:
            with self._lock:
                answer = motion(core, *self._motion_clock.read())
        return self._answer(response, answer)

    def _on_stop(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        answer = Answer(True, f"nothing moves: the node is {self.state_label}")
        if self._core is not None and self._ticks is not None:
            with self._lock:
                answer = self._core.stop(self._motion_clock.read()[0])
        return self._answer(response, answer)

    def _on_reset(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        answer = Answer(False, f"not reset: the node is {self.state_label}, expected active")
        if self._core is not None and self._ticks is not None:
            with self._lock:
                answer = self._core.reset(self._motion_clock.read()[0])
        return self._answer(response, answer)

    def _on_preflight(
        self, request: Trigger.Request, response: Trigger.Response
    ) -> Trigger.Response:
        core = self._core
        if core is None or self._ticks is None:
            text = f"preflight failed: the node is {self.state_label}, expected active"
            return self._answer(response, Answer(False, text))
        self._check_inputs()
        findings = Findings(
            settings=self.settings,
            policy=self._policy.newest(),
            publisher_fault=self._publisher_fault(),
            gripper="" if self.settings.dry_run else self._gripper.problem(),
            topics=tuple(self._qos_problems.values()),
        )
        with self._lock:
            now_ns, ros_ns = self._motion_clock.read()
            problems = found_problems(findings, core, now_ns, ros_ns)
            answer = core.preflight(now_ns, ros_ns, problems)
        if answer.success:
            answer = Answer(True, f"{answer.message}: {self._in_effect(findings)}")
        return self._answer(response, answer)

    def _in_effect(self, findings: Findings) -> str:
        return f"{findings.in_effect(self._output.publisher.topic_name)}; {self._scheduling.text}"

    def _on_describe(
        self, request: Trigger.Request, response: Trigger.Response
    ) -> Trigger.Response:
        more: dict[str, object] = {
            "topics": [output.topic_name for output in self._outputs],
            "scheduling": self._scheduling.text,
            "tick": self._statistics.summary(),
            "commands": self._command_statistics.summary(),
        }
        if self._core is not None:
            more |= self._gripper.report()
        with self._lock:
            text = tell.describe(self.settings, self._core, more)
        response.success, response.message = True, text
        return response

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
        self._check_inputs()
        listening = self._requests.get_subscription_count() > 0
        with self._lock:
            now_ns, ros_ns = self._motion_clock.read()
            statuses = [
                tell.motion_status(core, self._output.publisher.topic_name),
                tell.policy_status(core, fault, listening),
                tell.joints_status(core, now_ns, ros_ns),
                tell.clock_status(core, ros_ns),
            ]
        ticks = {"scheduling": self._scheduling.text, **self._statistics.summary()}
        statuses.append(status("tick", DiagnosticLevel.OK, "", ticks))
        if self.settings.output != "trajectory":
            commands = self._command_statistics.summary()
            statuses.append(status("commands", DiagnosticLevel.OK, "", commands))
        statuses.append(tell.gripper_status(self._gripper, dry_run=self.settings.dry_run))
        statuses.append(tell.qos_status(self._qos_problems))
        self._diagnostics.publish(statuses)


def main() -> int:
    """Run the executor node."""
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    return run_node(ExecutorNode)


if __name__ == "__main__":
    sys.exit(main())
