# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""``bench tick``: how late the executor is while a policy keeps every core busy.

For each rate the executor runs in a domain of its own beside a load, a cell and a bare loop with
the same deadlines and the same scheduling class; all are processes of their own. At 15 Hz ticks are
counted (output trajectory), at other rates the resampled commands (output array).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import rclpy
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from std_msgs.msg import String
from std_srvs.srv import Trigger

from cosmos_lite_ros.contract.bench_observe import machine
from cosmos_lite_ros.contract.constants import RATE_HZ
from cosmos_lite_ros.errors import CosmosLiteError
from cosmos_lite_ros.msg import ExecutorStatus
from cosmos_lite_ros.ros import qos
from cosmos_lite_ros.ros.dds import use_shipped_dds_profile

NAMESPACE = "bench"
# What the executor may be later than the bare loop, s.
MARGIN_S = 0.001
_START_S, _EXIT_S, _SETTLE_S = 60.0, 4.0, 2.0
# The arm stands still, and late joint states are not the question.
_PARAMETERS = {
    "autostart": "true",
    "mode": "async",
    "max_tracking_error_rad": "0.0",
    "max_joint_state_age_s": "1.0",
    "enable_timeout_s": "3.0",
    "allow_unwatched_output": "true",
}
Say = Callable[[str], None]


@dataclass(frozen=True)
class TickOptions:
    """How long each rate is measured, which rates, and with which SCHED_FIFO priority (0: none)."""

    minutes: float = 5.0
    rates_hz: tuple[int, ...] = (RATE_HZ, 250)
    priority: int = 20
    domain: int = 88


class _Child:
    """A process in a session of its own; its output in a file."""

    def __init__(self, name: str, folder: Path, environment: dict[str, str], *command: str) -> None:
        self.name = name
        self._log = folder / f"{name}.log"
        with self._log.open("wb") as file:
            self._popen = subprocess.Popen(
                [sys.executable, "-m", *command],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def output(self) -> str:
        """Everything that it has printed."""
        return self._log.read_text(errors="replace")

    def check(self) -> None:
        """Raise if it has ended."""
        if self._popen.poll() is not None:
            last = (self.output().strip().splitlines() or ["no output"])[-1]
            raise CosmosLiteError(
                f"the {self.name} process ended with code {self._popen.returncode}: {last}"
            )

    def end(self, number: int = signal.SIGTERM) -> None:
        """Signal the group; kill what does not end in time."""
        if self._popen.poll() is None:
            os.killpg(self._popen.pid, number)
        try:
            self._popen.wait(_EXIT_S)
        except subprocess.TimeoutExpired:
            os.killpg(self._popen.pid, signal.SIGKILL)
            self._popen.wait()

    def wait(self) -> None:
        """Until it ends by itself."""
        self._popen.wait(_START_S)

    def result(self) -> dict[str, Any]:
        """The JSON of its last line."""
        lines = self.output().strip().splitlines()
        try:
            return dict(json.loads(lines[-1]))
        except (IndexError, ValueError) as error:
            said = lines[-1] if lines else "nothing"
            raise CosmosLiteError(f"the {self.name} process said {said}") from error


class _Operator:
    """Hears executor_status, calls services; keeps figures instead of messages."""

    def __init__(self, node: Node, executor: SingleThreadedExecutor) -> None:
        self._node, self._executor = node, executor
        self.ticks: list[float] = []
        self.commands: list[float] = []
        self.newest: Any = None
        self.first: Any = None
        self._say = node.create_publisher(String, "instruction", qos.latched())
        self._say.publish(String(data="bench"))
        node.create_subscription(ExecutorStatus, "executor_status", self._hear, 100)

    def _hear(self, message: Any) -> None:
        self.newest = message
        if self.first is None:
            return
        self.ticks.append(message.lateness_s)
        self.commands.extend(message.command_lateness_s)

    def begin(self) -> None:
        """Count from now on."""
        self.first = self.newest

    def spin(
        self, seconds: float, children: Sequence[_Child], until: Callable[[], bool] | None = None
    ) -> bool:
        """Spin for a time or until a condition; whether the condition came."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if until is not None and until():
                return True
            self._executor.spin_once(timeout_sec=0.2)
            for child in children:
                child.check()
        return False

    def call(self, service: str, children: Sequence[_Child]) -> Any:
        """A Trigger service of the executor, again until it succeeds."""
        client = self._node.create_client(Trigger, f"executor/{service}")
        deadline = time.monotonic() + _START_S
        said = "no answer"
        try:
            while time.monotonic() < deadline:
                if not client.service_is_ready():
                    self.spin(0.2, children)
                    continue
                future = client.call_async(Trigger.Request())
                if self.spin(5.0, children, future.done):
                    if future.result().success:
                        return future.result()
                    said = future.result().message
                self.spin(0.3, children)
        finally:
            self._node.destroy_client(client)
        raise CosmosLiteError(f"~/{service} did not succeed within {_START_S:.0f} s: {said}")


@contextmanager
def _operator(domain: int) -> Iterator[_Operator]:
    context = rclpy.Context()
    rclpy.init(context=context, domain_id=domain, args=[])
    node = Node("operator", namespace=NAMESPACE, context=context)
    executor = SingleThreadedExecutor(context=context)
    executor.add_node(node)
    try:
        yield _Operator(node, executor)
    finally:
        executor.shutdown(timeout_sec=1.0)
        node.destroy_node()
        rclpy.try_shutdown(context=context)


def _busy_s() -> float:
    """Processor time that this machine has spent working, s; 0 where it does not say."""
    try:
        line = Path("/proc/stat").read_text().splitlines()[0].split()
    except OSError:
        return 0.0
    user, nice, system, _idle, _wait, irq, softirq = (int(value) for value in line[1:8])
    return float(user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def _environment(domain: int) -> dict[str, str]:
    environment = {
        **os.environ,
        "ROS_DOMAIN_ID": str(domain),
        "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST",
        "PYTHONUNBUFFERED": "1",
        # One thread of the load a core, whatever the library would take.
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
    }
    environment.pop("ROS_STATIC_PEERS", None)
    return environment


def bench_tick(options: TickOptions, say: Say) -> dict[str, Any]:
    """Measure every rate; the report has a verdict.

    Raises:
        CosmosLiteError: a process ended, or the executor refused to move.
    """
    os.environ["ROS_AUTOMATIC_DISCOVERY_RANGE"] = "LOCALHOST"
    os.environ.pop("ROS_STATIC_PEERS", None)
    use_shipped_dds_profile()
    runs = []
    for rate_hz in options.rates_hz:
        say(f"{rate_hz} Hz: {options.minutes:g} min beside a load on every core")
        with tempfile.TemporaryDirectory() as folder, _operator(options.domain) as operator:
            runs.append(_measure(options, rate_hz, operator, Path(folder)))
    return {
        "bench": "tick",
        "machine": machine(),
        "cores": len(os.sched_getaffinity(0)),
        "minutes": options.minutes,
        "runs": runs,
        "passed": all(not run["failures"] for run in runs),
    }


def _measure(
    options: TickOptions, rate_hz: int, operator: _Operator, folder: Path
) -> dict[str, Any]:
    seconds = options.minutes * 60
    output = "trajectory" if rate_hz == RATE_HZ else "array"
    parameters = {
        **_PARAMETERS,
        "output": output,
        "command_rate_hz": str(rate_hz),
        "realtime_priority": str(options.priority),
    }
    ros = ["--ros-args", "-r", f"__ns:=/{NAMESPACE}"]
    given = [word for name, value in parameters.items() for word in ("-p", f"{name}:={value}")]
    environment = _environment(options.domain)
    helper = "cosmos_lite_ros.ros.bench_tick_load"

    with ExitStack() as stack:

        def start(name: str, *command: str) -> _Child:
            child = _Child(name, folder, environment, *command)
            stack.callback(child.end)
            return child

        load = start("load", helper, "load")
        cell = start("cell", "cosmos_lite_ros.ros.bench_tick_cell", output, *ros)
        executor = start("executor", "cosmos_lite_ros.ros.executor_node", *ros, *given)
        children = (load, cell, executor)
        if not operator.spin(_START_S, children, lambda: "ready" in load.output()):
            raise CosmosLiteError(f"the load was not ready within {_START_S:.0f} s")
        operator.call("preflight", children)
        operator.call("resume", children)

        def running() -> bool:
            newest = operator.newest
            return newest is not None and newest.state == ExecutorStatus.RUNNING

        if not operator.spin(_START_S, children, running):
            raise CosmosLiteError(f"the executor did not move: {operator.newest.reason}")
        operator.spin(_SETTLE_S, children)
        operator.begin()
        busy_s = _busy_s()
        command = ("--rate", str(rate_hz), "--seconds", str(seconds))
        bare = start("bare", helper, "bare", *command, "--priority", str(options.priority))
        operator.spin(seconds, children)
        first, last = operator.first, operator.newest
        busy = (_busy_s() - busy_s) / seconds
        described = json.loads(operator.call("describe", children).message)["effective"]
        bare.wait()
        executor.end(signal.SIGINT)
        load.end()
        streamed = output != "trajectory"
        return _report(
            rate_hz,
            np.array(operator.commands if streamed else operator.ticks),
            int(
                last.commands_late - first.commands_late
                if streamed
                else last.ticks_late - first.ticks_late
            ),
            bare.result(),
            load.result(),
            {"scheduling": described["scheduling"], "busy_cores": busy},
        )


def _summary(lateness_s: Any, missed: int) -> dict[str, Any]:
    """Lateness in ms."""
    if not len(lateness_s):
        raise CosmosLiteError("nothing was measured: the executor sent no command")
    p50, p95, p99 = 1e3 * np.quantile(lateness_s, [0.5, 0.95, 0.99])
    return {
        "count": len(lateness_s),
        "p50_ms": float(p50),
        "p95_ms": float(p95),
        "p99_ms": float(p99),
        "max_ms": 1e3 * float(np.max(lateness_s)),
        "missed": missed,
    }


def _report(
    rate_hz: int,
    lateness_s: Any,
    missed: int,
    bare: dict[str, Any],
    load: dict[str, Any],
    more: dict[str, Any],
) -> dict[str, Any]:
    ours, theirs = _summary(lateness_s, missed), _summary(bare["lateness_s"], bare["missed"])
    failures = []
    if ours["p99_ms"] > theirs["p99_ms"] + 1e3 * MARGIN_S:
        failures.append(
            f"{rate_hz} Hz: p99 {ours['p99_ms']:.2f} ms, expected at most {1e3 * MARGIN_S:g} ms "
            f"more than the bare loop's {theirs['p99_ms']:.2f} ms"
        )
    if rate_hz == RATE_HZ and missed:
        failures.append(f"{rate_hz} Hz: {missed} ticks were missed, expected none")
    return {
        "rate_hz": rate_hz,
        "executor": ours,
        "bare": theirs,
        "realtime": bool(bare["realtime"]),
        "load": load,
        "failures": failures,
        **more,
    }
