# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The executor node over real DDS: processes of their own, a scripted policy and arm beside it."""

from __future__ import annotations

import json
import math
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

rclpy = pytest.importorskip("rclpy")

from diagnostic_msgs.msg import DiagnosticArray  # noqa: E402
from rclpy.qos import QoSProfile  # noqa: E402
from std_msgs.msg import Bool, String  # noqa: E402

from cosmos_lite_ros.contract.observation import instruction_hash  # noqa: E402
from cosmos_lite_ros.contract.robots import PANDA  # noqa: E402
from cosmos_lite_ros.execution.ticker import Arrival, TickGrid  # noqa: E402
from cosmos_lite_ros.msg import ActionChunk  # noqa: E402
from cosmos_lite_ros.ros import qos  # noqa: E402
from cosmos_lite_ros.ros.executor_ticks import TickThread  # noqa: E402

from .executor_watch import CELL, NODE, PATIENT, S, Watch, stamp_s, transient  # noqa: E402
from .harness import ROOT, NodeProcess, probe  # noqa: E402

pytestmark = pytest.mark.ros


def test_resume_run_kill_the_policy_and_relaunch(tmp_path: Path) -> None:
    parameters: dict[str, object] = {**PATIENT, "autostart": True, "underrun_timeout_s": 1.0}
    arm = ("--arm", "cell")
    with (
        probe(60) as p,
        NodeProcess(CELL, tmp_path / "arm", 60, arguments=arm),
        NodeProcess(CELL, tmp_path / "source", 60, arguments=("--source", "cell:smooth")) as source,
    ):
        w = Watch(p, "/cell")
        # Retained, published before the executor exists.
        retained = transient(p, "/cell/instruction", String, String(data="wipe the table"))
        with NodeProcess(
            NODE, tmp_path / "executor", 60, parameters=parameters, namespace="/cell"
        ) as node:
            w.until_state(S.STOPPED, S.NOT_ARMED)
            hashed = instruction_hash("wipe the table")
            w.until(lambda: w.status.instruction_sha256 == hashed, what="the retained instruction")
            p.spin(1.0)
            assert w.state == (S.STOPPED, S.NOT_ARMED)
            assert not w.commands
            w.resume()
            w.until(lambda: len(w.commands) >= 40, what="commands")
            states = [s.state for s in w.statuses if s.state != S.STOPPED]
            begun = [s for i, s in enumerate(states) if i == 0 or s != states[i - 1]]
            assert begun[:3] == [S.EMPTY, S.PRIMED, S.RUNNING]
            check_commands(w)
            check_statuses(w)
            # The policy dies.
            source.kill()
            w.until_state(S.UNDERRUN)
            assert "waiting for the policy's chunk" in w.status.reason
            held = w.commands[-1]
            assert not np.any(held.points[-1].velocities)
            w.until_state(S.STOPPED, S.UNDERRUN_TIMEOUT)
            assert "no row for" in w.status.reason
            assert node.running
            settled = len(w.commands)
            p.spin(0.5)
            assert len(w.commands) == settled
            epoch = w.status.epoch
            node.kill()
        # Relaunched beside a warm policy and the retained instruction.
        more = NodeProcess(CELL, tmp_path / "source2", 60, arguments=("--source", "cell:smooth"))
        with (
            more,
            NodeProcess(
                NODE, tmp_path / "again", 60, parameters=parameters, namespace="/cell"
            ) as node,
        ):
            w.statuses.clear()
            w.commands.clear()
            w.until(lambda: w.statuses and w.status.instruction_sha256 == hashed)
            p.spin(1.5)
            assert w.state == (S.STOPPED, S.NOT_ARMED)
            assert w.status.requests_sent == 0
            assert w.status.epoch > epoch, "an epoch was used twice"
            assert not w.commands
            node.signal(signal.SIGINT)
            assert node.wait(2.0) == 0
        assert retained is not None


def check_commands(w: Watch) -> None:
    limit = 0.6 * np.array(PANDA.velocity_max)
    for message in w.commands:
        assert (message.header.stamp.sec, message.header.stamp.nanosec) == (0, 0)
        assert tuple(message.joint_names) == PANDA.joint_names
        assert len(message.points) == 8
        at = [stamp_s(point.time_from_start) for point in message.points]
        assert at == pytest.approx([(i + 1) / 15 for i in range(8)], abs=1e-8)
        assert not np.any(message.points[-1].velocities)
        assert (np.abs([point.velocities for point in message.points]) <= limit).all()
    # The arm got to where the rows led: 32 rows of 4 mrad are 0.128 rad.
    first, last = (np.array(w.commands[i].points[0].positions) for i in (0, 31))
    assert 0.1 < (last - first).max() < 0.14


def check_statuses(w: Watch) -> None:
    moving = [s for s in w.statuses if s.commanded]
    assert [s.row for s in moving[:20]] == list(range(20))
    assert {s.chunk_id for s in moving[:20]} == {1}
    assert all(s.tracking_error_rad < 0.05 for s in moving[1:])
    assert all(0.0 < s.observation_age_s < 5.0 for s in moving[:20])
    assert all(math.isnan(s.observation_age_s) for s in w.statuses if s.row < 0)
    ticks = [s.tick for s in w.statuses]
    assert ticks == sorted(set(ticks))
    lateness_ms = 1e3 * np.array([s.lateness_s for s in w.statuses])
    p50, p99 = np.quantile(lateness_ms, [0.5, 0.99])
    print(
        f"tick lateness of {len(ticks)}: p50 {p50:.2f} p99 {p99:.2f} max {lateness_ms.max():.2f} ms"
    )
    assert p50 < 20.0
    assert [g.data for g in w.grips[:2]] == [0.0, 1.0]


def test_namespaces_side_by_side_and_chunks_that_must_not_move(tmp_path: Path) -> None:
    names = ("smooth", "nan", "random", "preview")
    arguments = [a for n in names for a in ("--arm", n)]
    for name, kind in zip(names, ("smooth", "nan", "random", "random"), strict=True):
        arguments += ["--source", f"{name}:{kind}"]
    parameters: dict[str, dict[str, object]] = {n: {**PATIENT, "autostart": True} for n in names}
    parameters["smooth"]["mode"] = "async"
    parameters["nan"]["max_consecutive_errors"] = 3
    parameters["preview"]["dry_run"] = True
    nodes = {
        n: NodeProcess(NODE, tmp_path / n, 61, parameters=parameters[n], namespace=f"/{n}")
        for n in names
    }
    try:
        with probe(61) as p, NodeProcess(CELL, tmp_path / "cell", 61, arguments=tuple(arguments)):
            watches = {n: Watch(p, f"/{n}") for n in names}
            for name, w in watches.items():
                w.until_state(S.STOPPED, S.NOT_ARMED)
                transient(p, f"/{name}/instruction", String, String(data=f"task of {name}"))
                w.resume()
            smooth, preview = watches["smooth"], watches["preview"]
            smooth.until(lambda: len(smooth.commands) > 60, 20.0, what="commands")
            assert smooth.status.chunks_accepted >= 2
            assert smooth.status.underruns == 0
            assert not smooth.previews
            assert smooth.status.instruction_sha256 == instruction_hash("task of smooth")
            preview.until(lambda: len(preview.previews) > 20, what="previews")
            assert not preview.commands
            assert not preview.grips
            assert preview.status.dry_run
            for name, flag in (("nan", S.GATE_NON_FINITE), ("random", S.GATE_RANDOM_WEIGHTS)):
                w = watches[name]
                w.until_state(S.STOPPED, S.POLICY_ERRORS)
                assert w.status.chunks_rejected == (3 if name == "nan" else 5)
                assert any(s.gate_flags & flag for s in w.statuses)
                assert not w.commands
                assert not w.previews
                assert not w.grips
            assert "random weights" in watches["random"].status.reason
            # Ended in mid-motion: one more trajectory, which comes to rest.
            smooth.until_state(S.RUNNING)
            nodes["smooth"].signal(signal.SIGTERM)
            begun = time.monotonic()
            smooth.until(lambda: not nodes["smooth"].running, 2.0, what="exit")
            assert time.monotonic() - begun < 2.0
            assert nodes["smooth"].wait(0.1) == 0
            smooth.until_state(S.STOPPED, S.SHUTDOWN, 5.0)
            speeds = np.abs([point.velocities for point in smooth.commands[-1].points])
            assert (np.diff(speeds.max(axis=1)) <= 1e-9).all()
            assert not speeds[-1].any()
    finally:
        for node in nodes.values():
            node.kill()


def test_lifecycle_instructions_and_stops(tmp_path: Path) -> None:
    with (
        probe(62) as p,
        NodeProcess(NODE, tmp_path / "executor", 62, parameters=PATIENT) as node,
        NodeProcess(CELL, tmp_path / "cell", 62, arguments=("--arm", "/", "--source", "/:smooth")),
    ):
        w = Watch(p)
        diagnostics: list[Any] = p.collect("/diagnostics", DiagnosticArray)
        assert "unconfigured" in w.call("resume").message
        assert p.transition("executor", "configure")
        assert "the node is inactive, expected active" in w.call("resume").message
        assert not w.statuses, "an inactive executor ticks"
        assert p.transition("executor", "activate")
        w.until_state(S.STOPPED, S.NOT_ARMED)
        described = json.loads(w.call("describe").message)
        assert described["requested"]["velocity_scale"] == 0.6
        assert described["effective"]["velocity_max_rad_s"][0] == pytest.approx(1.305)
        # Nothing moves without a preflight of this session.
        w.until(lambda: "no passed ~/preflight: not yet" in w.call("resume").message)
        assert "no passed ~/preflight: not yet" in w.call("home").message

        # Both kinds of publishers are heard, white space is stripped, nonsense changes nothing.
        volatile = p.publisher("instruction", String, QoSProfile(depth=1))
        w.until(lambda: volatile.get_subscription_count() >= 1)
        volatile.publish(String(data="open the drawer\n"))
        w.until(lambda: w.status.instruction_sha256 == instruction_hash("open the drawer"))
        epoch = w.status.epoch
        lasting = transient(p, "instruction", String, String(data="close the drawer"))
        w.until(lambda: w.status.instruction_sha256 == instruction_hash("close the drawer"))
        # Heard by both subscriptions, taken once.
        p.spin(0.3)
        assert w.status.epoch == epoch + 1
        volatile.publish(String(data="  "))
        w.until(lambda: said(diagnostics, "the instruction is empty"), what="a diagnostic")
        assert w.status.epoch == epoch + 1
        assert lasting is not None

        # A second policy is an error that says so.
        other = p.publisher("action_chunk", ActionChunk, qos.exchange())
        w.until(lambda: said(diagnostics, "2 nodes publish action_chunk (/policy, /probe)"))
        assert "2 nodes publish action_chunk" in w.call("resume").message
        p.node.destroy_publisher(other)

        # Emergency stops from both kinds of publishers; releasing resumes nothing.
        stops = [
            p.publisher("emergency_stop", Bool, QoSProfile(depth=1)),
            p.publisher("emergency_stop", Bool, qos.latched()),
        ]
        for stop in stops:
            w.resume()
            w.until(lambda: len(w.commands) > 0, what="commands")
            w.until_state(S.RUNNING)
            stop.publish(Bool(data=True))
            w.until_state(S.STOPPED, S.EMERGENCY_STOP)
            assert "emergency_stop is true" in w.call("resume").message
            stop.publish(Bool(data=False))
            p.spin(1.0)
            assert w.state == (S.STOPPED, S.EMERGENCY_STOP)
            assert not w.status.commanded
            w.commands.clear()

        # Deactivated in mid-motion and activated again: not armed.
        w.resume()
        w.until_state(S.RUNNING)
        assert p.transition("executor", "deactivate")
        assert not np.any(w.commands[-1].points[-1].velocities)
        p.spin(0.3)
        w.statuses.clear()
        p.spin(0.3)
        assert not w.statuses
        assert p.transition("executor", "activate")
        w.until_state(S.STOPPED, S.NOT_ARMED)
        assert p.transition("executor", "deactivate")
        assert p.transition("executor", "cleanup")
        assert node.running
        node.signal(signal.SIGINT)
        assert node.wait(2.0) == 0


def said(arrays: list[Any], words: str) -> bool:
    return any(words in status.message for array in arrays for status in array.status)


@pytest.mark.parametrize(
    ("parameters", "code", "words"),
    [
        ({"blend_row": 3}, 2, "unknown parameter 'blend_row' (did you mean 'blend_rows'?)"),
        ({"velocity_scale": -1.0}, 2, "parameter velocity_scale is -1.0, expected 0.001 to 1"),
        ({"mode": "prefix", "autostart": True}, 2, "horizon is 32 and mode is prefix, expected at"),
    ],
)
def test_bad_parameters_are_one_line(
    tmp_path: Path, parameters: dict[str, object], code: int, words: str
) -> None:
    with NodeProcess(NODE, tmp_path / "log", 63, parameters=parameters) as node:
        assert node.wait(15.0) == code
        errors = [line for line in node.output().splitlines() if words in line]
        assert errors, node.output()


def test_the_executor_imports_no_torch() -> None:
    program = f"import sys, {NODE}; sys.exit('torch' in sys.modules or 'diffusers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False).returncode == 0


def test_a_tick_that_fails_ends_the_thread_and_is_kept() -> None:
    ticks: list[int] = []

    def work(arrival: Arrival, now_ns: int) -> None:
        ticks.append(arrival.tick)
        if len(ticks) == 2:
            raise RuntimeError("broken")

    thread = TickThread(TickGrid(time.monotonic_ns()), work)
    thread.start()
    end = time.monotonic() + 5.0
    while thread.error is None and time.monotonic() < end:
        time.sleep(0.02)
    assert str(thread.error) == "broken"
    assert len(ticks) == 2
    thread.end()


def test_without_clock_it_says_so(tmp_path: Path) -> None:
    parameters: dict[str, object] = {
        "autostart": True,
        "use_sim_time": True,
        "require_enable": False,
    }
    with probe(64) as p, NodeProcess(NODE, tmp_path / "log", 64, parameters=parameters):
        w = Watch(p)
        # The tick does not need ROS time.
        w.until(lambda: len(w.statuses) > 5, what="ticks")
        assert "waiting for /clock" in w.call("resume").message
        diagnostics: list[Any] = p.collect("/diagnostics", DiagnosticArray)
        w.until(lambda: said(diagnostics, "waiting for /clock"), what="a diagnostic")
