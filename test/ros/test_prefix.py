# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Mode prefix over real DDS: the executor sends rows, the policy node continues them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed")

from std_msgs.msg import Bool, String
from std_srvs.srv import Trigger

from cosmos_lite_ros.msg import ActionChunk, ChunkRequest, ExecutorStatus, PolicyStatus
from cosmos_lite_ros.ros import qos
from cosmos_lite_ros.ros.convert import time_ns

from .cell import Cell
from .harness import NodeProcess, probe

pytestmark = pytest.mark.ros

DOMAIN = 120
Make = Callable[[str], Path]
POLICY: dict[str, object] = {
    "autostart": True,
    "profile": "tiny",
    # One step: what is given is continued to the last bit but rounding.
    "steps": 1,
    "guidance": 1.0,
    "max_image_age_s": 2.0,
    "request_timeout_s": 10.0,
}
EXECUTOR: dict[str, object] = {
    "autostart": True,
    "mode": "prefix",
    "horizon": 16,
    "blend_rows": 3,
    "dry_run": True,
    # Random weights jump, and two busy cores are late for a moment.
    "start_tolerance_rad": float("inf"),
    "enable_timeout_s": 3.0,
    "max_joint_state_age_s": 1.0,
    "request_timeout_s": 10.0,
    "underrun_timeout_s": 20.0,
}


def test_a_chunk_continues_the_running_one(tiny_checkpoint: Make, tmp_path: Path) -> None:
    parameters = {**POLICY, "checkpoint": str(tiny_checkpoint("edge"))}
    policy_module = "cosmos_lite_ros.ros.policy_node"
    executor_module = "cosmos_lite_ros.ros.executor_node"
    with (
        probe(DOMAIN) as ear,
        NodeProcess(policy_module, tmp_path / "policy.log", DOMAIN, parameters=parameters) as one,
        NodeProcess(executor_module, tmp_path / "executor.log", DOMAIN, parameters=EXECUTOR) as two,
    ):
        states = ear.collect("policy_status", PolicyStatus, qos.latched())
        requests = ear.collect("chunk_request", ChunkRequest, qos.exchange())
        chunks = ear.collect("action_chunk", ActionChunk, qos.exchange())
        ticks = ear.collect("executor_status", ExecutorStatus, 100)
        cell = Cell(ear)
        enable = ear.publisher("enable", Bool, qos.heartbeat())
        say = ear.publisher("instruction", String, qos.latched())
        say.publish(String(data="stack the blocks"))

        def alive() -> None:
            cell.publish()
            enable.publish(Bool(data=True))

        def until(condition: Callable[[], object], timeout_s: float, what: str) -> None:
            said = f"{what}\n{one.output()[-1000:]}\n{two.output()[-1000:]}"
            ear.wait(condition, timeout_s, meanwhile=alive, what=said)

        until(lambda: any(m.state == PolicyStatus.READY for m in states), 60.0, "READY")
        for service in ("preflight", "resume"):

            def granted(service: str = service) -> bool:
                alive()
                name = f"executor/{service}"
                return bool(ear.call(name, Trigger, Trigger.Request()).success)

            until(granted, 20.0, service)

        def pairs() -> list[tuple[ChunkRequest, ActionChunk]]:
            """Requests with rows, and their answers that have been executed."""
            ran = {t.chunk_id for t in ticks if t.state == ExecutorStatus.RUNNING and t.row > 0}
            by_id = {c.request_id: c for c in chunks if c.chunk_id in ran}
            asked = [r for r in requests if r.prefix_rows and r.request_id in by_id]
            return [(r, by_id[r.request_id]) for r in asked]

        # Rows are sent as soon as the policy's latency is measured and fits.
        until(lambda: len(pairs()) >= 2, 90.0, "two chunks that continue another")
        for request, chunk in pairs():
            firm = request.prefix_rows
            rows = np.array(request.prefix_positions).reshape(-1, 7)
            assert 1 <= firm <= 16
            assert firm <= len(rows) <= firm + 3
            late = (time_ns(request.header.stamp) - time_ns(chunk.header.stamp)) * 15e-9
            first = max(round(late), 0)
            found = np.array(chunk.positions).reshape(32, 7)[first : first + firm]
            assert np.abs(found - rows[:firm]).max() < 1e-3
        assert not any(t.stop_reason == ExecutorStatus.POLICY_ERRORS for t in ticks)
        assert all(t.dry_run for t in ticks)
