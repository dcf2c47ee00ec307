# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""``cosmos-lite-ros instruct``: published until it is echoed."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("rclpy")

from std_msgs.msg import String

from cosmos_lite_ros.contract.observation import instruction_hash
from cosmos_lite_ros.msg import ExecutorStatus, PolicyStatus
from cosmos_lite_ros.ros import qos

from .harness import NodeProcess, probe

pytestmark = pytest.mark.ros


def command(tmp_path: Path, domain: int, *arguments: str) -> NodeProcess:
    program = (sys.executable, "-m", "cosmos_lite_ros.cli.main", "instruct", *arguments)
    return NodeProcess("", tmp_path / "instruct.log", domain, program=program)


def test_a_policy_node_echoes_it_in_any_lifecycle_state(tmp_path: Path) -> None:
    with (
        NodeProcess(
            "cosmos_lite_ros.ros.policy_node", tmp_path / "log", 92, namespace="/lab"
        ) as policy,
        command(tmp_path, 92, " stack the blocks ", "--namespace", "lab") as instruct,
        probe(92) as user,
    ):
        assert instruct.wait(20.0) == 0, instruct.output() + policy.output()
        assert instruct.output().strip() == "heard by policy_status"
        status = user.collect("/lab/policy_status", PolicyStatus, qos.latched())
        user.wait(lambda: status, 10.0)
        assert status[-1].instruction == "stack the blocks"


def test_it_stays_for_a_node_that_comes_later_and_the_executor_counts(tmp_path: Path) -> None:
    with command(tmp_path, 92, "open the drawer") as instruct:
        time.sleep(1.5)
        with probe(92) as late:
            heard = late.collect("instruction", String, qos.latched())
            echo = late.publisher("executor_status", ExecutorStatus, qos.status())
            late.wait(lambda: heard, 10.0)
            assert instruct.running
            # Another instruction's echo is not this one's.
            other = ExecutorStatus(instruction_sha256=instruction_hash("close the drawer"))
            echo.publish(other)
            late.spin(0.5)
            assert instruct.running
            mine = ExecutorStatus(instruction_sha256=instruction_hash(heard[0].data))
            late.wait(lambda: not instruct.running, 10.0, meanwhile=lambda: echo.publish(mine))
        assert instruct.wait(5.0) == 0
        assert instruct.output().strip() == "heard by executor_status"


def test_nobody_there_is_exit_code_1_and_one_line(tmp_path: Path) -> None:
    with command(tmp_path, 93, "open the drawer", "--timeout", "0.5") as instruct:
        assert instruct.wait(20.0) == 1
        lines = instruct.output().splitlines()
    assert len(lines) == 1, lines
    assert "no echo of the instruction within 0.5 s (0 subscriptions on /instruction)" in lines[0]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("   ",), "the instruction is empty"),
        (("x" * 1001,), "the instruction has 1001 characters, at most 1000"),
        (("go", "--namespace", "a b"), "namespace 'a b' cannot be used"),
    ],
)
def test_bad_input_is_exit_code_2_and_one_line(
    tmp_path: Path, arguments: tuple[str, ...], expected: str
) -> None:
    with command(tmp_path, 93, *arguments) as instruct:
        assert instruct.wait(20.0) == 2
        lines = instruct.output().splitlines()
    assert len(lines) == 1, lines
    assert expected in lines[0]
