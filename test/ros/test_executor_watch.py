# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What the executor watches while it moves; each loss ends in STOPPED with its own reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

rclpy = pytest.importorskip("rclpy")

from diagnostic_msgs.msg import DiagnosticArray  # noqa: E402
from rclpy.qos import QoSProfile, ReliabilityPolicy  # noqa: E402
from std_msgs.msg import Bool, String  # noqa: E402
from trajectory_msgs.msg import JointTrajectory  # noqa: E402

from cosmos_lite_ros.ros import qos  # noqa: E402

from .executor_watch import CELL, NODE, PATIENT, S, Watch, transient  # noqa: E402
from .harness import NodeProcess, probe  # noqa: E402

pytestmark = pytest.mark.ros

# Namespace: kind of the arm in it. The operator holds enable where the arm does not.
ARMS = {"follows": "follow", "stands": "stand", "alone": "states"}
PARAMETERS: dict[str, dict[str, object]] = {
    "follows": {"robot_ready_timeout_s": 1.0},
    "stands": {"max_tracking_error_rad": 0.02},
    "alone": {"enable_timeout_s": 1.0, "max_tracking_error_rad": 0.0},
}


def test_every_loss_stops_with_its_reason(tmp_path: Path) -> None:
    arguments = [a for n, kind in ARMS.items() for a in ("--arm", f"{n}:{kind}")]
    # The arm that can die has a process of its own.
    dying = ("--arm", "alone:states")
    arguments = arguments[:-2]
    sources = [a for n in ARMS for a in ("--source", f"{n}:smooth")]
    nodes = {
        name: NodeProcess(
            NODE,
            tmp_path / name,
            125,
            parameters={**PATIENT, "autostart": True, **PARAMETERS[name]},
            namespace=f"/{name}",
        )
        for name in ARMS
    }
    try:
        with (
            probe(125) as p,
            NodeProcess(CELL, tmp_path / "cell", 125, arguments=(*arguments, *sources)),
            NodeProcess(CELL, tmp_path / "arm", 125, arguments=dying) as arm,
        ):
            watches = {n: Watch(p, f"/{n}", "") for n in ARMS}
            kept = [transient(p, f"/{n}/instruction", String, String(data="go")) for n in ARMS]
            enable = p.publisher("/alone/enable", Bool, qos.heartbeat())
            held = [True]
            p.node.create_timer(0.1, lambda: held[0] and enable.publish(Bool(data=True)))
            topic = "/alone/joint_trajectory"
            controller = p.node.create_subscription(JointTrajectory, topic, print, 1)
            ready = p.publisher("/follows/robot_ready", Bool, qos.heartbeat())
            beating = [True]
            p.node.create_timer(0.1, lambda: beating[0] and ready.publish(Bool(data=True)))
            assert len(kept) == 3

            def run(w: Watch) -> None:
                w.resume()
                w.until(lambda: w.status.state == S.RUNNING, what="motion")
                p.spin(0.3)

            def stopped(w: Watch, reason: int, words: str) -> None:
                epoch = w.status.epoch
                w.until_state(S.STOPPED, reason)
                assert words in w.status.reason
                assert w.status.epoch > epoch
                w.until(lambda: not w.status.commanded, what="rest")

            # An arm that does not follow its commands.
            w = watches["stands"]
            w.resume()
            stopped(w, S.TRACKING_ERROR, "from its command, expected at most max_tracking_error")

            # A driver that is not ready any more: said, then silent.
            w = watches["follows"]
            run(w)
            beating[0] = False
            ready.publish(Bool(data=False))
            stopped(w, S.CONTROLLER_LOST, "robot_ready is false")
            beating[0] = True
            p.spin(0.5)
            assert w.state == (S.STOPPED, S.CONTROLLER_LOST), "it resumed by itself"
            run(w)
            beating[0] = False
            stopped(w, S.CONTROLLER_LOST, "robot_ready has been silent")
            assert "robot_ready has been silent" in w.call("resume").message

            # Nobody receives the commands any more.
            w = watches["alone"]
            run(w)
            p.node.destroy_subscription(controller)
            stopped(w, S.CONTROLLER_LOST, "nobody is subscribed to the commands")
            assert "nobody is subscribed" in w.call("preflight").message
            controller = p.node.create_subscription(JointTrajectory, topic, print, 1)
            # The operator lets go.
            run(w)
            held[0] = False
            stopped(w, S.ENABLE_LOST, "enable has been silent")
            held[0] = True
            # Joint states end.
            run(w)
            arm.kill()
            stopped(w, S.JOINT_STATE_STALE, "no joint state for")
            assert all(node.running for node in nodes.values())
    finally:
        for node in nodes.values():
            node.kill()


def said(arrays: list[Any], words: str) -> bool:
    return any(words in status.message for array in arrays for status in array.status)


def test_preflight_says_what_is_missing_and_is_required(tmp_path: Path) -> None:
    parameters: dict[str, object] = {**PATIENT, "autostart": True, "mode": "async"}
    with probe(126) as p, NodeProcess(NODE, tmp_path / "log", 126, parameters=parameters):
        w = Watch(p, output="")
        w.until_state(S.STOPPED, S.NOT_ARMED)
        answer = w.call("preflight")
        assert not answer.success
        assert "\n" not in answer.message
        for words in (
            "enable has never been heard",
            "no policy_status has been heard",
            "nobody is subscribed to the commands",
            "no policy is subscribed to chunk_request",
        ):
            assert words in answer.message, answer.message
        # A publisher that our side cannot hear is named.
        diagnostics: list[Any] = p.collect("/diagnostics", DiagnosticArray)
        deaf = QoSProfile(depth=1, reliability=ReliabilityPolicy.BEST_EFFORT)
        wrong = p.publisher("enable", Bool, deaf)
        line = "enable: nothing arrives from /probe: ERROR: Best effort publisher"
        w.until(lambda: said(diagnostics, line), what="a diagnostic")
        assert line in w.call("preflight").message
        p.node.destroy_publisher(wrong)
        with NodeProcess(
            CELL, tmp_path / "slow", 126, arguments=("--arm", "/", "--source", "/:late")
        ) as slow:
            # Too slow for this mode, with the figures.
            words = "mode async is impossible: the policy takes 3.00 s (p95), which is 45 rows"
            w.until(lambda: words in w.call("preflight").message, 20.0, what=words)
            # Asked to end, it says goodbye; killed, it would count as a second policy for a while.
            slow.signal()
            slow.wait(5.0)
        with NodeProcess(
            CELL, tmp_path / "cell", 126, arguments=("--arm", "/", "--source", "/:smooth")
        ):
            w.until(lambda: w.call("preflight").success, 20.0, what="a pass")
            passed = w.call("preflight").message
            assert passed.startswith("preflight passed: panda, mode async, commands on ")
            assert "policy READY" in passed
            assert "SCHED_" in passed
            described = json.loads(w.call("describe").message)["effective"]
            assert described["scheduling"] in passed
            assert described["tick"]["ticks"] > 0
            # A pass counts for one session: until the node is deactivated.
            assert p.transition("executor", "deactivate")
            assert p.transition("executor", "activate")
            w.until(lambda: "no passed ~/preflight" in w.call("resume").message, what="a refusal")
            w.resume()
            w.until(lambda: w.status.state != S.STOPPED, what="resumed")
