# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The gripper through both actions of control_msgs, over real DDS and with real action servers."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

rclpy = pytest.importorskip("rclpy")

from diagnostic_msgs.msg import DiagnosticArray  # noqa: E402
from std_msgs.msg import String  # noqa: E402

from .control_msgs_build import control_msgs_environment  # noqa: E402
from .executor_watch import CELL, NODE, PATIENT, Watch, transient  # noqa: E402
from .harness import NodeProcess, probe  # noqa: E402

pytestmark = pytest.mark.ros

KINDS = {"one": "gripper_command", "two": "parallel_gripper_command"}


def goals(servers: NodeProcess, namespace: str) -> list[dict[str, Any]]:
    lines = [line for line in servers.output().splitlines() if line.startswith("{")]
    return [g for g in map(json.loads, lines) if g.pop("namespace") == f"/{namespace}"]


def values(arrays: list[Any], node: str) -> dict[str, str]:
    """Of the newest gripper status."""
    for array in reversed(arrays):
        for status in array.status:
            if status.name == f"{node}/executor: gripper":
                return {v.key: v.value for v in status.values} | {"message": status.message}
    return {}


def test_both_actions_get_the_changes_and_are_never_waited_for(tmp_path: Path) -> None:
    environment = control_msgs_environment()
    arguments = [a for n in KINDS for a in ("--arm", n, "--source", f"{n}:smooth")]
    parameters: dict[str, object] = {
        **PATIENT,
        "autostart": True,
        "gripper.output": "action",
        "gripper.open": 0.0,
        "gripper.closed": 0.7,
        "gripper.max_effort": 35.0,
        "gripper.joint": "robotiq_85_left_knuckle_joint",
    }
    nodes = {
        name: NodeProcess(
            NODE,
            tmp_path / name,
            127,
            parameters={**parameters, "gripper.action_type": kind},
            namespace=f"/{name}",
            environment=environment,
        )
        for name, kind in KINDS.items()
    }
    try:
        with probe(127) as p, NodeProcess(CELL, tmp_path / "cell", 127, arguments=(*arguments,)):
            watches = {n: Watch(p, f"/{n}") for n in KINDS}
            diagnostics: list[Any] = p.collect("/diagnostics", DiagnosticArray)
            kept = [transient(p, f"/{n}/instruction", String, String(data="grip")) for n in KINDS]
            assert len(kept) == 2
            # Without a server there is no pass.
            words = "no server of the gripper action gripper_cmd (GripperCommand)"
            one, two = watches.values()
            one.until(lambda: words in one.call("preflight").message, what=words)
            servers = NodeProcess(
                "test.ros.gripper_servers",
                tmp_path / "servers",
                127,
                arguments=("one:gripper_command", "two:parallel_gripper_command:slow"),
                environment=environment,
            )
            with servers:
                for w in watches.values():
                    w.resume()
                # Rows 0 to 15 open, the rest close.
                one.until(lambda: len(goals(servers, "one")) >= 2, 20.0, what="two goals")
                two.until(lambda: len(goals(servers, "two")) >= 2, 20.0, what="two goals")
                assert goals(servers, "one")[:2] == [
                    {"position": 0.0, "effort": 35.0},
                    {"position": 0.7, "effort": 35.0},
                ]
                named = {"effort": [35.0], "name": ["robotiq_85_left_knuckle_joint"]}
                assert goals(servers, "two")[:2] == [
                    {"position": [0.0], **named},
                    {"position": [0.7], **named},
                ]
                reached = "gripper goals reached"
                one.until(
                    lambda: int(values(diagnostics, "one").get(reached, "0")) >= 2, what=reached
                )
                assert values(diagnostics, "one")["gripper goals refused"] == "0"
                # The slow server kept nobody waiting.
                lateness = np.array([s.lateness_s for s in two.statuses])
                assert np.quantile(lateness, 0.9) < 0.1
                assert two.status.ticks_late <= 3
    finally:
        for node in nodes.values():
            node.kill()


@pytest.mark.skipif(
    importlib.util.find_spec("control_msgs") is not None, reason="control_msgs is installed"
)
def test_without_control_msgs_it_is_one_line(tmp_path: Path) -> None:
    parameters: dict[str, object] = {"autostart": True, "gripper.output": "action"}
    with NodeProcess(NODE, tmp_path / "log", 128, parameters=parameters) as node:
        assert node.wait(20.0) == 3
        assert "control_msgs.action.GripperCommand is not installed: apt install" in node.output()
