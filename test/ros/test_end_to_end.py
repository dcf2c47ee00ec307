# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The main job over real DDS: player, policy and executor as processes, a recording, commands.

The recording is the real three-camera clip where it lies beside the repository, else generated
pictures; joint states are synthetic in both.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed")

from std_msgs.msg import Bool, String
from std_srvs.srv import Trigger
from trajectory_msgs.msg import JointTrajectory

from cosmos_lite_ros.bags.demo import make_demo_bag
from cosmos_lite_ros.contract.observation import instruction_hash
from cosmos_lite_ros.contract.robots import PANDA
from cosmos_lite_ros.msg import ActionChunk, ExecutorStatus, PolicyStatus
from cosmos_lite_ros.ros import qos

from .harness import NodeProcess, Probe, probe

pytestmark = [pytest.mark.ros, pytest.mark.slow]

DOMAIN = 30
PATIENCE_S = 60.0
# The recorded arm moves by itself and does not follow, and random weights jump.
EXECUTOR: dict[str, object] = {
    "autostart": True,
    "mode": "sync",
    "horizon": 8,
    "dry_run": True,
    "max_spike_rad": float("inf"),
    "start_tolerance_rad": float("inf"),
    "max_tracking_error_rad": 0.0,
    "request_timeout_s": 30.0,
    "underrun_timeout_s": 10.0,
    # Two cores play, think and execute; the operator's beat and the joints may be late for a moment
    # and are not what is tested here.
    "enable_timeout_s": 3.0,
    "max_joint_state_age_s": 1.0,
}


@dataclass
class CellUnderTest:
    """The running processes and what the probe has heard."""

    probe: Probe
    folder: Path
    policy: NodeProcess
    executor: NodeProcess
    ticks: list[ExecutorStatus]
    chunks: list[ActionChunk]
    commands: list[JointTrajectory]

    def enable(self) -> None:
        """One beat of the heartbeat."""
        self._publisher.publish(Bool(data=True))

    def __post_init__(self) -> None:
        """The operator's publisher."""
        self._publisher = self.probe.publisher("enable", Bool, qos.heartbeat())

    def resume(self) -> None:
        """Call ~/preflight until it is passed, then ~/resume until it is granted."""
        for service in ("preflight", "resume"):

            def granted(service: str = service) -> bool:
                self.enable()
                answer = self.probe.call(f"executor/{service}", Trigger, Trigger.Request())
                return bool(answer.success)

            self.probe.wait(granted, 20.0, meanwhile=self.enable, what=f"~/{service}")

    def state(self) -> tuple[int, int]:
        """State and stop reason of the newest tick."""
        return (self.ticks[-1].state, self.ticks[-1].stop_reason) if self.ticks else (-1, -1)


def _executor(folder: Path, name: str) -> NodeProcess:
    module = "cosmos_lite_ros.ros.executor_node"
    return NodeProcess(module, folder / f"{name}.log", DOMAIN, parameters=EXECUTOR)


@pytest.fixture(scope="module")
def cell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CellUnderTest]:
    from cosmos_lite_ros.policy.profiles import tiny_checkpoint

    folder = tmp_path_factory.mktemp("cell")
    make_demo_bag(folder / "bag", seconds=6.0)
    policy_parameters: dict[str, object] = {
        "autostart": True,
        "profile": "tiny",
        "checkpoint": str(tiny_checkpoint()),
        "image_transport": "compressed",
        "max_image_age_s": 2.0,
        "max_camera_skew_s": 1.0,
        "steps": 1,
        "guidance": 1.0,
        "request_timeout_s": 30.0,
    }
    module = "cosmos_lite_ros.ros.policy_node"
    player = ("--loop", "--topics", *_INPUTS)
    with (
        probe(DOMAIN) as ear,
        NodeProcess(module, folder / "policy.log", DOMAIN, parameters=policy_parameters) as policy,
        _executor(folder, "executor") as executor,
    ):
        statuses = ear.collect("policy_status", PolicyStatus, qos.latched())
        running = CellUnderTest(
            ear,
            folder,
            policy,
            executor,
            ear.collect("executor_status", ExecutorStatus, 200),
            ear.collect("action_chunk", ActionChunk, qos.exchange()),
            ear.collect("command_preview", JointTrajectory, 50),
        )
        ear.wait(
            lambda: any(m.state == PolicyStatus.READY for m in statuses), PATIENCE_S, what="policy"
        )
        with NodeProcess(
            "cosmos_lite_ros.ros.player_node",
            folder / "player.log",
            DOMAIN,
            arguments=(str(folder / "bag"), *player),
        ):
            yield running


_INPUTS = (
    "/wrist/image/compressed",
    "/exterior_1/image/compressed",
    "/exterior_2/image/compressed",
    "/joint_states",
    "/gripper/joint_states",
)


def test_1_nothing_moves_before_resume(cell: CellUnderTest) -> None:
    say = cell.probe.publisher("instruction", String, qos.latched())
    say.publish(String(data="retained instruction"))
    cell.probe.wait(lambda: len(cell.ticks) > 30, 20.0, meanwhile=cell.enable)
    assert cell.state() == (ExecutorStatus.STOPPED, ExecutorStatus.NOT_ARMED)
    assert cell.commands == []
    assert cell.chunks == []


def test_2_chunks_of_the_recording_are_executed(cell: CellUnderTest) -> None:
    cell.resume()
    cell.probe.wait(
        lambda: len(cell.chunks) >= 3 and len(cell.commands) >= 20,
        PATIENCE_S,
        meanwhile=cell.enable,
        what="three chunks and twenty commands",
    )
    chunk = cell.chunks[0]
    assert chunk.instruction == "retained instruction"
    assert chunk.instruction_sha256 == instruction_hash("retained instruction")
    assert list(chunk.joint_names) == list(PANDA.joint_names)
    assert chunk.rows == 32
    assert chunk.random_weights
    assert chunk.epoch in {t.epoch for t in cell.ticks}
    executed = {t.chunk_id for t in cell.ticks if t.row >= 0}
    assert {c.chunk_id for c in cell.chunks[:2]} <= executed
    low, high = PANDA.limits()
    for command in cell.commands:
        points = np.array([p.positions for p in command.points])
        assert ((points >= low - 1e-9) & (points <= high + 1e-9)).all()
        np.testing.assert_allclose(command.points[-1].velocities, np.zeros(7), atol=1e-12)
        assert list(command.joint_names) == list(PANDA.joint_names)
    # 15 Hz while running: a tick every 1/15 s, on average.
    running = [
        (m, t)
        for m, t in zip(cell.ticks, cell.probe.arrival_s["executor_status"], strict=True)
        if m.state == ExecutorStatus.RUNNING
    ]
    span = running[-1][0].tick - running[0][0].tick
    assert span / (running[-1][1] - running[0][1]) == pytest.approx(15.0, rel=0.1)


def test_3_a_dead_policy_leaves_the_executor_holding(cell: CellUnderTest) -> None:
    cell.policy.signal(signal.SIGKILL)
    cell.policy.wait(5.0)
    stopped = (ExecutorStatus.STOPPED, ExecutorStatus.UNDERRUN_TIMEOUT)
    cell.probe.wait(
        lambda: cell.state() == stopped, 40.0, meanwhile=cell.enable, what="UNDERRUN_TIMEOUT"
    )
    assert cell.executor.running
    assert any(t.state == ExecutorStatus.UNDERRUN for t in cell.ticks)
    assert cell.ticks[-1].reason
    # What it holds is the last command, and it has come to rest there.
    last = np.array(cell.commands[-1].points[-1].positions)
    np.testing.assert_allclose(cell.commands[-1].points[0].positions, last, atol=0.2)
    before = len(cell.ticks)
    cell.probe.wait(lambda: len(cell.ticks) > before + 15, 10.0)


def test_4_a_relaunch_with_a_retained_instruction_commands_nothing(cell: CellUnderTest) -> None:
    cell.executor.signal(signal.SIGINT)
    assert cell.executor.wait(5.0) == 0
    cell.ticks.clear()
    cell.commands.clear()
    with _executor(cell.folder, "relaunched"):
        cell.probe.wait(lambda: len(cell.ticks) > 45, 30.0, meanwhile=cell.enable)
        assert cell.state() == (ExecutorStatus.STOPPED, ExecutorStatus.NOT_ARMED)
        assert {t.state for t in cell.ticks} == {ExecutorStatus.STOPPED}
        assert cell.commands == []
