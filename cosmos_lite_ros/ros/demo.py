# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The demo: a recording through real topics into a policy, chunks executed at 15 Hz, a summary.

Policy, executor and player are processes of their own, on this machine only, in a domain and a
namespace of their own: a live cell on the same network sees nothing of it. This process plays the
operator and the controller: it holds ``enable``, calls ``~/preflight`` and ``~/resume``, and
subscribes to commands.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import rclpy
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from std_msgs.msg import Bool
from std_srvs.srv import Trigger
from trajectory_msgs.msg import JointTrajectory

from cosmos_lite_ros.errors import CosmosLiteError, EnvironmentLacksError
from cosmos_lite_ros.msg import ActionChunk, ExecutorStatus, PolicyStatus
from cosmos_lite_ros.ros import qos
from cosmos_lite_ros.ros.dds import use_shipped_dds_profile

NAMESPACE = "demo"
_POLICY_START_S = 90.0
_FIRST_CHUNK_S = 40.0
_ENABLE_PERIOD_S = 0.1
_EXIT_S = 4.0
Say = Callable[[str], None]

# The recorded arm moves by itself and does not follow our commands, so this is a dry run. Random
# weights ask for jumps all the time, which the summary says; the limiter shapes the motion.
EXECUTOR = {
    "autostart": "true",
    "dry_run": "true",
    "max_spike_rad": ".inf",
    "start_tolerance_rad": ".inf",
    "max_tracking_error_rad": "0.0",
    "underrun_timeout_s": "30.0",
    # On two cores that think, play and execute at once, everything may be late for a moment.
    "enable_timeout_s": "3.0",
    "max_joint_state_age_s": "1.0",
    "request_timeout_s": "30.0",
}


@dataclass(frozen=True)
class DemoSettings:
    """What the demo runs; ``seconds`` is the time of executing."""

    bag: Path
    checkpoint: Path
    out: Path
    domain: int
    seconds: float = 25.0
    mode: str = "sync"


@dataclass
class DemoRecord:
    """Everything that was heard, with steady arrival times in s."""

    chunks: list[tuple[float, Any]] = field(default_factory=list)
    ticks: list[tuple[float, Any]] = field(default_factory=list)
    commands: list[tuple[float, Any]] = field(default_factory=list)
    policy: list[Any] = field(default_factory=list)
    started_s: float = 0.0
    ended_s: float = 0.0


class _Operator(Node):  # type: ignore[misc]
    """Subscribes to everything, holds enable."""

    def __init__(self, context: rclpy.Context) -> None:
        super().__init__("operator", namespace=NAMESPACE, context=context)
        self.record = DemoRecord()
        r = self.record
        now = time.monotonic
        self.create_subscription(
            ActionChunk, "action_chunk", lambda m: r.chunks.append((now(), m)), qos.exchange()
        )
        self.create_subscription(
            ExecutorStatus, "executor_status", lambda m: r.ticks.append((now(), m)), 200
        )
        self.create_subscription(
            JointTrajectory, "command_preview", lambda m: r.commands.append((now(), m)), 50
        )
        self.create_subscription(PolicyStatus, "policy_status", r.policy.append, qos.latched())
        self._enable = self.create_publisher(Bool, "enable", qos.heartbeat())
        self.create_timer(_ENABLE_PERIOD_S, lambda: self._enable.publish(Bool(data=True)))


class _Processes:
    """The three children, each in a session of its own with its output in a file."""

    def __init__(self, logs: Path, environment: dict[str, str]) -> None:
        self._logs = logs
        self._environment = environment
        self._children: dict[str, tuple[subprocess.Popen[bytes], IO[bytes]]] = {}

    def start(self, name: str, *arguments: str) -> None:
        """Run ``python -m cosmos_lite_ros.ros.NAME_node``."""
        file = (self._logs / f"{name}.log").open("wb")
        command = [sys.executable, "-m", f"cosmos_lite_ros.ros.{name}_node", *arguments]
        child = subprocess.Popen(
            command,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._children[name] = (child, file)

    def check(self) -> None:
        """Raise where a child has ended by itself, with its last line."""
        for name, (child, _) in self._children.items():
            if child.poll() is not None:
                log = self._logs / f"{name}.log"
                lines = log.read_text(errors="replace").strip().splitlines() or ["no output"]
                raise CosmosLiteError(
                    f"the {name} process ended with code {child.returncode}: {lines[-1]} "
                    f"(see {log})"
                )

    def stop(self) -> dict[str, int]:
        """SIGINT to each group, SIGKILL to what is left; exit codes by name."""
        for child, _ in self._children.values():
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGINT)
        codes = {}
        deadline = time.monotonic() + _EXIT_S
        for name, (child, file) in self._children.items():
            try:
                codes[name] = child.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)
                codes[name] = child.wait()
            file.close()
        self._children.clear()
        return codes


def _environment(domain: int) -> dict[str, str]:
    environment = {
        **os.environ,
        "ROS_DOMAIN_ID": str(domain),
        "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST",
        "PYTHONUNBUFFERED": "1",
        "RCUTILS_COLORIZED_OUTPUT": "0",
    }
    # Peers named for a live system would be reached in spite of the range.
    environment.pop("ROS_STATIC_PEERS", None)
    return environment


def _ros_arguments(parameters: dict[str, str], *remaps: str) -> list[str]:
    arguments = ["--ros-args", "-r", f"__ns:=/{NAMESPACE}"]
    for name, value in parameters.items():
        arguments += ["-p", f"{name}:={value}"]
    for remap in remaps:
        arguments += ["-r", remap]
    return arguments


@contextmanager
def _operator(domain: int) -> Iterator[tuple[_Operator, SingleThreadedExecutor]]:
    context = rclpy.Context()
    rclpy.init(context=context, domain_id=domain, args=[])
    node = _Operator(context)
    executor = SingleThreadedExecutor(context=context)
    executor.add_node(node)
    try:
        yield node, executor
    finally:
        executor.shutdown(timeout_sec=1.0)
        node.destroy_node()
        rclpy.try_shutdown(context=context)


class _Run:
    """One demo: waits while spinning, and fails with the child's own words."""

    def __init__(
        self, node: _Operator, executor: SingleThreadedExecutor, processes: _Processes
    ) -> None:
        self.node = node
        self.executor = executor
        self.processes = processes

    def spin(self, seconds: float, until: Callable[[], bool] = lambda: False) -> bool:
        """Spin until the time is over or the condition holds; True for the latter."""
        deadline = time.monotonic() + seconds
        next_check = 0.0
        while time.monotonic() < deadline:
            if until():
                return True
            self.executor.spin_once(timeout_sec=0.05)
            if time.monotonic() > next_check:
                self.processes.check()
                next_check = time.monotonic() + 0.5
        return until()

    def call(self, service: str) -> tuple[bool, str]:
        """A Trigger service of the executor: success and message."""
        client = self.node.create_client(Trigger, f"executor/{service}")
        try:
            if not self.spin(10.0, client.service_is_ready):
                return False, f"no service executor/{service}"
            future = client.call_async(Trigger.Request())
            if not self.spin(5.0, future.done):
                return False, f"executor/{service} did not answer"
            answer = future.result()
            return bool(answer.success), str(answer.message)
        finally:
            self.node.destroy_client(client)


def run_demo(settings: DemoSettings, say: Say) -> tuple[DemoRecord, dict[str, int]]:
    """Run everything; returns what was heard and the exit codes of the processes.

    Raises:
        CosmosLiteError: a process ended, or nothing came out in time.
    """
    os.environ["ROS_AUTOMATIC_DISCOVERY_RANGE"] = "LOCALHOST"
    os.environ.pop("ROS_STATIC_PEERS", None)
    use_shipped_dds_profile()
    processes = _Processes(settings.out, _environment(settings.domain))
    with _operator(settings.domain) as (node, executor):
        run = _Run(node, executor, processes)
        try:
            _run(settings, run, say)
        finally:
            codes = processes.stop()
    return node.record, codes


def _run(settings: DemoSettings, run: _Run, say: Say) -> None:
    record = run.node.record
    policy = {
        "autostart": "true",
        "profile": "tiny",
        "checkpoint": f"'{settings.checkpoint}'",
        "image_transport": "compressed",
        # Two cores decode, play, think and execute at once: older pictures are accepted here.
        "max_image_age_s": "1.0",
        "max_camera_skew_s": "0.5",
        "request_timeout_s": "30.0",
    }
    say("starting policy and executor")
    run.processes.start("policy", *_ros_arguments(policy))
    run.processes.start("executor", *_ros_arguments({**EXECUTOR, "mode": settings.mode}))

    def ready() -> bool:
        return any(m.state in (PolicyStatus.READY, PolicyStatus.BUSY) for m in record.policy)

    if not run.spin(_POLICY_START_S, ready):
        raise EnvironmentLacksError(
            f"the policy was not ready within {_POLICY_START_S:.0f} s: see "
            f"{settings.out / 'policy.log'}"
        )
    say("playing the recording")
    run.processes.start("player", str(settings.bag), "--loop", "--namespace", NAMESPACE)
    run.spin(2.0)
    deadline = time.monotonic() + 20.0
    while True:
        ready_to_move, message = run.call("preflight")
        if ready_to_move:
            resumed, message = run.call("resume")
            if resumed:
                break
        if time.monotonic() > deadline:
            raise CosmosLiteError(f"the executor refuses to resume: {message}")
        run.spin(0.5)
    say("resumed: waiting for the first chunk")
    if not run.spin(_FIRST_CHUNK_S, lambda: bool(record.commands)):
        last = record.policy[-1].last_skip_reason if record.policy else "no policy status"
        raise CosmosLiteError(f"no command within {_FIRST_CHUNK_S:.0f} s (last skip: {last})")
    say(f"executing at 15 Hz for {settings.seconds:.0f} s")
    # From the first chunk on, so that it counts.
    record.started_s = min((t for t, _ in record.chunks), default=time.monotonic()) - 1e-3
    run.spin(settings.seconds)
    record.ended_s = time.monotonic()
    run.call("stop")
    run.spin(0.5)
