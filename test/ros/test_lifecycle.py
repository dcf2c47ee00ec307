# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Lifecycle with long transitions, and how a node process starts and ends."""

from __future__ import annotations

import signal
import sys
import textwrap
import time
from pathlib import Path

import pytest

rclpy = pytest.importorskip("rclpy")

from .harness import NodeProcess, probe  # noqa: E402

pytestmark = pytest.mark.ros

# A node whose configure takes 1 s on another thread, and that can be told to fail.
PROGRAM = textwrap.dedent(
    """
    import sys, threading, time
    from concurrent.futures import Future
    from dataclasses import dataclass
    from cosmos_lite_ros.errors import CheckpointError
    from cosmos_lite_ros.ros.lifecycle import ManagedNode, run_node
    from cosmos_lite_ros.ros.parameters import Parameters

    @dataclass(frozen=True)
    class Settings:
        fail: bool = False
        busy: bool = False

    class Slow(ManagedNode):
        def __init__(self):
            super().__init__("slow")
            self.settings = Parameters(self, Settings).settings

        def configure(self):
            future = Future()
            def work():
                time.sleep(1.0)
                if self.settings.fail:
                    future.set_exception(CheckpointError("no such folder"))
                else:
                    future.set_result(None)
            threading.Thread(target=work).start()
            return future

        def activate(self):
            print("working", flush=True)
            if self.settings.busy:
                # Not a daemon: the interpreter itself would wait for it.
                threading.Thread(target=time.sleep, args=(60.0,)).start()

        def close(self):
            print("closed in", self.state_label, flush=True)

    sys.exit(run_node(Slow))
    """
)


def slow_node(tmp_path: Path, domain: int, **parameters: object) -> NodeProcess:
    path = tmp_path / "slow.py"
    path.write_text(PROGRAM)
    return NodeProcess(
        "", tmp_path / "log", domain, program=(sys.executable, str(path)), parameters=parameters
    )


def wait_for_output(process: NodeProcess, text: str, timeout_s: float = 15.0) -> None:
    end = time.monotonic() + timeout_s
    while text not in process.output():
        assert time.monotonic() < end, f"{text!r} not in:\n{process.output()}"
        time.sleep(0.02)


def test_configure_answers_when_the_work_is_done(tmp_path: Path) -> None:
    with slow_node(tmp_path, 80) as process, probe(80) as user:
        assert user.lifecycle_state("/slow") == "unconfigured"
        started = time.monotonic()
        assert user.transition("/slow", "configure")
        assert 0.9 < time.monotonic() - started < 5.0
        assert user.lifecycle_state("/slow") == "inactive"
        assert not user.transition("/slow", "configure"), "impossible while inactive"
        assert user.transition("/slow", "activate")
        assert user.lifecycle_state("/slow") == "active"
        assert user.transition("/slow", "deactivate")
        assert user.transition("/slow", "cleanup")
        assert user.lifecycle_state("/slow") == "unconfigured"
        process.signal(signal.SIGINT)
        assert process.wait(2.0) == 0
        assert "closed in unconfigured" in process.output()


def test_the_node_answers_during_a_transition(tmp_path: Path) -> None:
    with slow_node(tmp_path, 80) as process, probe(80) as user, probe(80, "other") as other:
        user.lifecycle_state("/slow")
        from lifecycle_msgs.srv import ChangeState

        client = user.node.create_client(ChangeState, "/slow/change_state")
        user.wait(client.service_is_ready, 10.0)
        request = ChangeState.Request()
        request.transition.id = 1
        future = client.call_async(request)
        user.spin(0.3)
        assert other.lifecycle_state("/slow") == "configuring"
        assert not other.transition("/slow", "configure"), "one transition at a time"
        user.wait(future.done, 5.0)
        assert future.result().success
        assert process.running


def test_failure_is_one_line_and_leaves_the_node_unconfigured(tmp_path: Path) -> None:
    with slow_node(tmp_path, 80, fail=True) as process, probe(80) as user:
        assert not user.transition("/slow", "configure")
        assert user.lifecycle_state("/slow") == "unconfigured"
        lines = [line for line in process.output().splitlines() if "no such folder" in line]
        assert len(lines) == 1
        assert "configuring failed: no such folder" in lines[0]


def test_autostart_becomes_active_and_sigterm_ends_it_within_two_seconds(tmp_path: Path) -> None:
    with slow_node(tmp_path, 80, autostart=True, busy=True) as process:
        wait_for_output(process, "working")
        time.sleep(0.2)
        started = time.monotonic()
        process.signal(signal.SIGTERM)
        assert process.wait(3.0) == 0
        assert time.monotonic() - started < 2.0
        assert "closed in active" in process.output()


def test_failed_autostart_ends_with_the_exit_code_of_the_error(tmp_path: Path) -> None:
    with slow_node(tmp_path, 80, autostart=True, fail=True) as process:
        assert process.wait(10.0) == 2
        assert process.output().count("no such folder") == 1


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--ros-args", "-p", "fial:=true"), "unknown parameter 'fial' (did you mean 'fail'?)"),
        (("--ros-args", "-p", "fail:=7"), "parameter fail is 7, expected true or false"),
        (("--ros-args", "-p", "autostart:=7"), "parameter autostart is 7, expected true or false"),
        (("--verbose",), "unknown argument '--verbose'"),
        (("--ros-args", "-p", "fail"), "the ROS arguments cannot be read"),
    ],
)
def test_bad_arguments_end_with_2_and_one_line(
    tmp_path: Path, arguments: tuple[str, ...], expected: str
) -> None:
    path = tmp_path / "slow.py"
    path.write_text(PROGRAM)
    command = (sys.executable, str(path))
    with NodeProcess("", tmp_path / "log", 80, program=command, arguments=arguments) as process:
        assert process.wait(10.0) == 2
        lines = process.output().splitlines()
    assert len(lines) == 1, lines
    assert lines[0].startswith("error: ")
    assert expected in lines[0]
