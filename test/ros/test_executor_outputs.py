# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What the executor sends, over real DDS: streamed positions, and a dry run beside a real one."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

rclpy = pytest.importorskip("rclpy")

from std_msgs.msg import String  # noqa: E402

from cosmos_lite_ros.contract.robots import PANDA  # noqa: E402

from .executor_cell import DELAY_S, WAVE_RAD  # noqa: E402
from .executor_watch import CELL, NODE, PATIENT, S, Watch, transient  # noqa: E402
from .harness import NodeProcess, probe  # noqa: E402

pytestmark = pytest.mark.ros

LIMIT_RAD_S = 0.6 * np.array(PANDA.velocity_max)


def test_a_dry_run_and_a_real_run_are_the_same_stream(tmp_path: Path) -> None:
    """The same code with the last topic swapped: every number of every trajectory is the same."""
    names = ("real", "dry")
    arguments = [a for n in names for a in ("--arm", n, "--source", f"{n}:wave")]
    parameters = {n: {**PATIENT, "autostart": True, "dry_run": n == "dry"} for n in names}
    nodes = {
        n: NodeProcess(NODE, tmp_path / n, 122, parameters=parameters[n], namespace=f"/{n}")
        for n in names
    }
    try:
        with probe(122) as p, NodeProcess(CELL, tmp_path / "cell", 122, arguments=(*arguments,)):
            watches = {n: Watch(p, f"/{n}") for n in names}
            kept = [transient(p, f"/{n}/instruction", String, String(data="wave")) for n in names]
            for w in watches.values():
                w.resume()
            for w in watches.values():
                w.until(lambda w=w: w.status.chunks_accepted >= 2, 20.0, what="two chunks")
            assert len(kept) == 2
            real, dry = watches["real"], watches["dry"]
            assert not real.previews
            assert not dry.commands
            assert not dry.grips, "a dry run moves the gripper"
            sent = {n: by_row(w, w.commands or w.previews) for n, w in watches.items()}
            common = sorted(set(sent["real"]) & set(sent["dry"]))
            # A tick that was skipped on a busy machine is missing on one side.
            assert len(common) >= 28, common
            assert [sent["real"][row] for row in common] == [sent["dry"][row] for row in common]
            assert all(s.dry_run for s in dry.statuses)
            assert not any(s.dry_run for s in real.statuses)
    finally:
        for node in nodes.values():
            node.kill()


def by_row(w: Watch, commands: list[Any]) -> dict[int, tuple[object, ...]]:
    """All that the first chunk's trajectories hold, by the row that their status names."""
    first = [s.row for s in w.statuses if s.commanded and s.chunk_id == 1 and s.row >= 0]
    return {
        row: (
            command.header.stamp,
            command.header.frame_id,
            tuple(command.joint_names),
            tuple(
                (tuple(q.positions), tuple(q.velocities), q.time_from_start.nanosec)
                for q in command.points
            ),
        )
        for row, command in reversed(list(zip(first, commands, strict=False)))
    }


def test_streams_of_positions(tmp_path: Path) -> None:
    outputs = {"array": 250, "joint_state": 120}
    arguments = [a for n in outputs for a in ("--arm", n, "--source", f"{n}:wave")]
    nodes = {
        name: NodeProcess(
            NODE,
            tmp_path / name,
            123,
            parameters={
                **PATIENT,
                "autostart": True,
                "mode": "async",
                "output": name,
                "command_rate_hz": rate,
                "allow_unwatched_output": True,
            },
            namespace=f"/{name}",
        )
        for name, rate in outputs.items()
    }
    try:
        with probe(123) as p, NodeProcess(CELL, tmp_path / "cell", 123, arguments=(*arguments,)):
            watches = {n: Watch(p, f"/{n}", n) for n in outputs}
            kept = [transient(p, f"/{n}/instruction", String, String(data="wave")) for n in outputs]
            assert len(kept) == 2
            for w in watches.values():
                w.resume()
            for name, w in watches.items():
                rate = outputs[name]
                w.until(lambda w=w, rate=rate: len(w.commands) > 2 * rate, 20.0, what="commands")
                check_stream(name, w, rate)
                check_refills(w)
            check_stall(watches["joint_state"], nodes["joint_state"])
            # Ended in mid-motion, a stream comes to rest before its process ends.
            w = watches["array"]
            nodes["array"].signal(signal.SIGTERM)
            begun = time.monotonic()
            w.until(lambda: not nodes["array"].running, 3.0, what="exit")
            assert time.monotonic() - begun < 2.0
            assert nodes["array"].wait(0.1) == 0
            p.spin(0.3)
            last = np.array([c.data for c in w.commands[-2:]])
            assert np.abs(np.diff(last, axis=0)).max() < 1e-3, "it ended in mid-motion"
            assert (w.status.state, w.status.stop_reason) == (S.STOPPED, S.SHUTDOWN)
    finally:
        for node in nodes.values():
            node.kill()


def check_stream(name: str, w: Watch, rate: int) -> None:
    commands = list(w.commands)
    table = np.array([c.data if name == "array" else c.position for c in commands])
    assert table.shape[1] == 7
    home = np.array(PANDA.home)
    assert np.abs(table - home).max() < 2 * WAVE_RAD + 0.01
    assert np.abs(table - home).max() > WAVE_RAD, "the arm hardly moved"
    steps = np.abs(np.diff(table, axis=0))
    # The rest are commands that a busy machine has skipped; none is a jump.
    assert np.mean((steps <= LIMIT_RAD_S / rate + 1e-9).all(axis=1)) > 0.9
    assert steps.max() < 0.03
    moving = [s for s in w.statuses if s.state == S.RUNNING]
    lateness = [value for s in moving for value in s.command_lateness_s]
    assert len(lateness) > rate
    assert min(lateness) >= 0.0
    assert max(lateness) <= 1.0 / rate + 1e-6
    if name == "joint_state":
        assert tuple(commands[0].name) == PANDA.joint_names
        assert (np.abs([c.velocity for c in commands]) <= LIMIT_RAD_S + 1e-9).all()
        # Velocities are those of the positions, where nothing was skipped in between.
        speed = np.array([c.velocity for c in commands])
        error = np.abs(np.diff(table, axis=0) - (speed[1:] + speed[:-1]) / 2 / rate).max(axis=1)
        assert np.median(error) < 1e-5


def check_refills(w: Watch) -> None:
    """Asked for when the measured latency and the margin of three rows are left, not earlier."""
    pairs = zip(w.statuses, w.statuses[1:], strict=False)
    asked = [b for a, b in pairs if b.requests_sent > a.requests_sent and b.state == S.RUNNING]
    # The first answer is warm-up, so the second request goes out at once.
    assert len(asked) >= 2
    latency_rows = DELAY_S * 15
    assert all(latency_rows <= s.rows_left <= latency_rows + 3 + 6 for s in asked[1:]), [
        s.rows_left for s in asked
    ]


def check_stall(w: Watch, node: NodeProcess) -> None:
    """A process that is held up for a while goes on from where the receiver stands."""
    w.until(lambda: w.status.state == S.RUNNING, what="motion")
    os.killpg(node.popen.pid, signal.SIGSTOP)
    w.probe.spin(0.4)
    heard = len(w.commands)
    os.killpg(node.popen.pid, signal.SIGCONT)
    w.until(lambda: len(w.commands) > heard + 60, what="commands after a pause")
    table = np.array([c.position for c in w.commands[heard - 5 :]])
    # Half a second of motion at once would be 40 times as much.
    assert np.abs(np.diff(table, axis=0)).max() < 4e-3
    assert w.status.state != S.STOPPED


@pytest.mark.parametrize(
    ("parameters", "code", "words"),
    [
        ({"output": "array"}, 2, "output is array, whose receiver does not come to rest by itself"),
        (
            {"output": "joint_state", "allow_unwatched_output": True, "command_rate_hz": 501},
            2,
            "parameter command_rate_hz is 501, expected 15 to 500",
        ),
    ],
)
def test_bad_parameters_are_one_line(
    tmp_path: Path, parameters: dict[str, object], code: int, words: str
) -> None:
    with NodeProcess(NODE, tmp_path / "log", 124, parameters=parameters) as node:
        assert node.wait(20.0) == code
        errors = [line for line in node.output().splitlines() if words in line]
        assert errors, node.output()
