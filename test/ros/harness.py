# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Real nodes in processes of their own, over real DDS, and a probe that talks to them.

Every test has a domain of its own. ``NodeProcess`` starts a session, signals the whole group and
kills it in the end; ``Probe`` is an rclpy node in the test's process with a context of its own.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import rclpy
from lifecycle_msgs.srv import ChangeState, GetState
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.qos import QoSProfile

from cosmos_lite_ros.ros.dds import remove_stale_segments

ROOT = Path(__file__).resolve().parents[2]
TRANSITIONS = {"configure": 1, "cleanup": 2, "activate": 3, "deactivate": 4}


def ros_environment(domain: int, **extra: str) -> dict[str, str]:
    """The environment of a process of this test: own domain, this machine only, one thread."""
    return {
        **os.environ,
        "ROS_DOMAIN_ID": str(domain),
        "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST",
        "OMP_NUM_THREADS": "1",
        "PYTHONUNBUFFERED": "1",
        # The source tree before an installed copy, as for the tests themselves.
        "PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
        "RCUTILS_COLORIZED_OUTPUT": "0",
        **extra,
    }


def _yaml(value: object) -> str:
    """As a YAML scalar or list; strings quoted, since a path or revision may look like a number."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return "[" + ",".join(_yaml(item) for item in value) + "]"
    return f"'{value}'" if isinstance(value, str) else str(value)


class NodeProcess:
    """``python -m MODULE --ros-args ...`` in a session of its own; output goes to a file."""

    def __init__(
        self,
        module: str,
        log: Path,
        domain: int,
        *,
        parameters: dict[str, object] | None = None,
        namespace: str = "",
        arguments: tuple[str, ...] = (),
        program: tuple[str, ...] | None = None,
        environment: dict[str, str] | None = None,
    ) -> None:
        command = list(program or (sys.executable, "-m", module))
        ros_arguments: list[str] = []
        if namespace:
            ros_arguments += ["-r", f"__ns:={namespace}"]
        for name, value in (parameters or {}).items():
            ros_arguments += ["-p", f"{name}:={_yaml(value)}"]
        command += arguments
        if ros_arguments:
            command += ["--ros-args", *ros_arguments]
        self.log = log
        self._file = log.open("wb")
        self.popen = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**ros_environment(domain), **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=self._file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def signal(self, number: int = signal.SIGINT) -> None:
        """Signal the process group."""
        if self.popen.poll() is None:
            os.killpg(self.popen.pid, number)

    def wait(self, timeout_s: float) -> int:
        """The exit code."""
        return self.popen.wait(timeout_s)

    @property
    def running(self) -> bool:
        """Whether the process is alive."""
        return self.popen.poll() is None

    def output(self) -> str:
        """Everything that it has printed so far."""
        return self.log.read_text(errors="replace")

    def kill(self) -> None:
        """End the group without asking."""
        self.signal(signal.SIGKILL)
        self.popen.wait(5.0)
        self._file.close()
        # A killed process leaves its shared-memory segment, 64 MB each.
        remove_stale_segments()

    def __enter__(self) -> NodeProcess:
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()


class Probe:
    """A node of the test: collects topics, publishes, calls services."""

    def __init__(self, domain: int, name: str = "probe", namespace: str = "") -> None:
        os.environ["ROS_AUTOMATIC_DISCOVERY_RANGE"] = "LOCALHOST"
        self.context = rclpy.Context()
        rclpy.init(context=self.context, domain_id=domain, args=[])
        self.node = Node(name, context=self.context, namespace=namespace or None)
        self.executor = SingleThreadedExecutor(context=self.context)
        self.executor.add_node(self.node)
        self.received: dict[str, list[Any]] = {}
        self.arrival_s: dict[str, list[float]] = {}

    def close(self) -> None:
        """Destroy the node and its context."""
        self.executor.shutdown(timeout_sec=1.0)
        self.node.destroy_node()
        rclpy.try_shutdown(context=self.context)

    def collect(self, topic: str, kind: type, qos: QoSProfile | int = 10) -> list[Any]:
        """Subscribe; the list fills while the probe spins."""
        messages = self.received.setdefault(topic, [])
        arrivals = self.arrival_s.setdefault(topic, [])

        def store(message: Any) -> None:
            messages.append(message)
            arrivals.append(time.monotonic())

        self.node.create_subscription(kind, topic, store, qos)
        return messages

    def publisher(self, topic: str, kind: type, qos: QoSProfile | int = 10) -> Any:
        """A publisher."""
        return self.node.create_publisher(kind, topic, qos)

    def spin(self, duration_s: float) -> None:
        """Spin for a time."""
        end = time.monotonic() + duration_s
        while (left := end - time.monotonic()) > 0:
            self.executor.spin_once(timeout_sec=min(left, 0.05))

    def wait(
        self,
        condition: Callable[[], object],
        timeout_s: float,
        *,
        meanwhile: Callable[[], None] = lambda: None,
        what: str = "",
    ) -> None:
        """Spin until the condition holds; ``meanwhile`` runs about 20 times a second."""
        end = time.monotonic() + timeout_s
        next_call = 0.0
        while not condition():
            now = time.monotonic()
            if now > end:
                raise AssertionError(f"not within {timeout_s} s: {what or condition}")
            if now >= next_call:
                meanwhile()
                next_call = now + 0.05
            self.executor.spin_once(timeout_sec=0.02)

    def call(self, service: str, kind: Any, request: Any, timeout_s: float = 10.0) -> Any:
        """Call a service and wait for its answer."""
        client = self.node.create_client(kind, service)
        try:
            self.wait(client.service_is_ready, timeout_s, what=f"service {service}")
            future = client.call_async(request)
            self.wait(future.done, timeout_s, what=f"answer of {service}")
            return future.result()
        finally:
            self.node.destroy_client(client)

    def transition(self, node: str, label: str, timeout_s: float = 30.0) -> bool:
        """Ask a lifecycle node for a transition; whether it succeeded."""
        request = ChangeState.Request()
        request.transition.id = TRANSITIONS[label]
        return bool(self.call(f"{node}/change_state", ChangeState, request, timeout_s).success)

    def lifecycle_state(self, node: str, timeout_s: float = 10.0) -> str:
        """The label of a lifecycle node's state."""
        answer = self.call(f"{node}/get_state", GetState, GetState.Request(), timeout_s)
        return str(answer.current_state.label)

    def wait_state(self, node: str, label: str, timeout_s: float = 30.0) -> None:
        """Wait until a lifecycle node is in that state."""
        end = time.monotonic() + timeout_s
        while (found := self.lifecycle_state(node, timeout_s)) != label:
            if time.monotonic() > end:
                raise AssertionError(f"{node} is {found} after {timeout_s} s, expected {label}")
            self.spin(0.1)


@contextmanager
def probe(domain: int, name: str = "probe", namespace: str = "") -> Iterator[Probe]:
    """A probe that is closed in the end."""
    found = Probe(domain, name, namespace)
    try:
        yield found
    finally:
        found.close()
