# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The policy node in a process of its own, over real DDS, with a tiny checkpoint."""

from __future__ import annotations

import json
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("rclpy")

from diagnostic_msgs.msg import DiagnosticArray
from rosgraph_msgs.msg import Clock
from std_msgs.msg import String
from std_srvs.srv import Trigger

from cosmos_lite_ros.contract.observation import instruction_hash
from cosmos_lite_ros.contract.robots import PANDA
from cosmos_lite_ros.msg import ActionChunk, PolicyStatus
from cosmos_lite_ros.ros import qos

from .cell import JOINTS_RAD, Cell
from .harness import NodeProcess, Probe, probe

pytestmark = pytest.mark.ros

MODULE = "cosmos_lite_ros.ros.policy_node"
Make = Callable[[str], Path]
# Generous: other tests may have the two cores.
START_S = 40.0


def policy(tmp: Path, checkpoint: Path | str, domain: int, **more: Any) -> NodeProcess:
    parameters = {
        "profile": "tiny",
        "checkpoint": str(checkpoint),
        "steps": 1,
        "guidance": 1.0,
        "threads": 1,
        **more.pop("parameters", {}),
    }
    return NodeProcess(MODULE, tmp / "policy.log", domain, parameters=parameters, **more)


class Running:
    """One active policy and what it says."""

    def __init__(self, process: NodeProcess, user: Probe) -> None:
        self.process = process
        self.user = user
        self.cell = Cell(user)
        self.chunks: list[ActionChunk] = user.collect("action_chunk", ActionChunk, qos.exchange())
        self.status: list[PolicyStatus] = user.collect("policy_status", PolicyStatus, qos.latched())
        self.diagnostics: list[DiagnosticArray] = user.collect("/diagnostics", DiagnosticArray)

    def wait(self, condition: Callable[[], object], timeout_s: float = 15.0) -> None:
        self.user.wait(condition, timeout_s, meanwhile=self.cell.publish, what=self.said())

    def said(self) -> str:
        return self.process.output()[-2000:]

    def newest(self) -> PolicyStatus:
        return self.status[-1]


@pytest.fixture(scope="module")
def running(tiny_checkpoint: Make, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One process for all tests that leave it as they found it."""
    tmp = tmp_path_factory.mktemp("policy")
    parameters = {"autostart": True, "request_timeout_s": 5.0}
    with (
        policy(tmp, tiny_checkpoint("edge"), 84, parameters=parameters) as process,
        probe(84) as user,
    ):
        found = Running(process, user)
        found.user.wait(
            lambda: found.status and found.newest().state == PolicyStatus.READY,
            START_S,
            what="READY",
        )
        found.user.wait(found.cell.heard_by, 10.0)
        yield found


def test_a_request_is_answered_for_its_own_instruction_and_epoch(running: Running) -> None:
    assert running.user.lifecycle_state("/policy") == "active"
    running.chunks.clear()
    running.wait(lambda: running.newest().image_rate_hz[2] > 5)
    running.cell.request(41, "stack the blocks", epoch=2**63 + 9)
    running.wait(lambda: running.chunks)
    chunk = running.chunks[0]
    assert (chunk.request_id, chunk.epoch) == (41, 2**63 + 9)
    assert chunk.instruction == "stack the blocks"
    assert chunk.instruction_sha256 == instruction_hash("stack the blocks")
    assert (chunk.rows, len(chunk.positions), len(chunk.gripper)) == (32, 224, 32)
    assert tuple(chunk.joint_names) == PANDA.joint_names
    assert chunk.row_period_s == pytest.approx(1 / 15)
    assert np.isfinite(np.array(chunk.positions)).all()
    np.testing.assert_array_equal(chunk.measured_positions, JOINTS_RAD)
    assert chunk.measured_gripper == pytest.approx(0.25)
    assert chunk.header.stamp == chunk.joint_state_stamp
    assert chunk.random_weights
    assert (chunk.profile, chunk.scheme, chunk.steps, chunk.guidance) == ("tiny", "float32", 1, 1)
    assert 0 < chunk.encode_s < chunk.latency_s < 6
    assert chunk.latency_s >= chunk.encode_s + chunk.generate_s - 0.05


def test_instructions_of_both_kinds_of_publisher_are_heard(running: Running) -> None:
    volatile = running.user.publisher("instruction", String, qos.plain())
    running.user.wait(lambda: volatile.get_subscription_count() >= 1, 10.0)
    running.status.clear()
    running.wait(lambda: len(running.status) >= 2)
    misses = running.newest().text_cache_misses
    volatile.publish(String(data="  wipe the table "))
    running.wait(lambda: running.newest().instruction == "wipe the table")
    # Its text cache is computed ahead of any request.
    running.wait(lambda: running.newest().text_cache_misses == misses + 1)
    latched = running.user.publisher("instruction", String, qos.latched())
    latched.publish(String(data="open the drawer"))
    running.wait(lambda: running.newest().instruction == "open the drawer")
    assert running.newest().instruction_sha256 == instruction_hash("open the drawer")
    running.wait(lambda: running.newest().text_cache_misses > misses + 1)
    # Heard by both subscriptions, computed once.
    running.status.clear()
    running.wait(lambda: len(running.status) >= 2)
    assert running.newest().text_cache_misses == misses + 2
    volatile.publish(String(data="   "))
    running.wait(lambda: "instruction refused: the instruction is empty" in running.said())
    assert running.newest().instruction == "open the drawer"
    for publisher in (volatile, latched):
        running.user.node.destroy_publisher(publisher)


def test_bad_requests_are_refused_with_the_reason(running: Running) -> None:
    running.chunks.clear()
    for request_id, instruction, fields, reason in (
        (50, "   ", {}, "request 50 refused: the instruction is empty"),
        (51, "go", {"instruction_sha256": "0" * 64}, "instruction_sha256 does not belong"),
        (52, "go", {"prefix_rows": 3}, "prefix_rows is 3 and prefix_positions has 0 values"),
    ):
        before = running.newest().skipped
        running.cell.request(request_id, instruction, **fields)
        running.wait(lambda seen=before: running.newest().skipped == seen + 1)
        assert reason in running.newest().last_skip_reason
    assert running.chunks == []


def test_a_newer_request_replaces_one_that_waits(running: Running) -> None:
    running.chunks.clear()
    before = running.newest().skipped
    running.cell.request(60, "stack the blocks")
    running.wait(lambda: running.newest().state == PolicyStatus.BUSY)
    for request_id in (61, 62):
        running.cell.request(request_id, "stack the blocks")
        running.user.spin(0.05)
        running.cell.publish()
    running.wait(lambda: running.chunks and running.chunks[-1].request_id == 62)
    running.wait(lambda: running.newest().state == PolicyStatus.READY)
    # 60 was in hand, 61 waited; on a busy machine DDS itself keeps the newest only.
    assert [chunk.request_id for chunk in running.chunks] == [60, 62]
    assert running.newest().skipped in (before, before + 1)
    if running.newest().skipped == before + 1:
        assert running.newest().last_skip_reason == "request 61 was replaced by request 62"


def test_describe_flush_and_diagnostics(running: Running) -> None:
    answer = running.user.call("/policy/describe", Trigger, Trigger.Request())
    assert answer.success
    described = json.loads(answer.message)
    assert described["state"] == "active"
    assert described["requested"]["device"] == "auto"
    assert described["effective"]["device"] == "cpu"
    assert described["effective"]["family"] == "edge"
    assert json.loads(running.newest().requested) == described["requested"]
    assert running.user.call("/policy/flush_text_cache", Trigger, Trigger.Request()).success
    running.diagnostics.clear()
    running.wait(lambda: len(running.diagnostics) >= 3)
    statuses = {s.name: s for s in running.diagnostics[-1].status}
    assert statuses["policy: camera wrist"].level in (b"\x00", b"\x01")
    assert "policy: engine" in statuses
    assert running.newest().host_anonymous_bytes > 50e6


def test_a_camera_that_stops_is_named(running: Running) -> None:
    running.wait(lambda: running.newest().image_rate_hz[0] > 5)
    running.diagnostics.clear()
    running.user.spin(0.5)  # nothing is published
    running.cell.request(70, "stack the blocks")
    running.user.wait(lambda: "no image since" in running.newest().last_skip_reason, 10.0)
    assert "wrist: no image since" in running.newest().last_skip_reason
    assert "max_image_age_s 0.3" in running.newest().last_skip_reason
    before = running.newest().skipped
    # It waits for its observation until the time limit, then it is dropped and counted.
    running.user.wait(lambda: running.newest().skipped == before + 1, 10.0)
    found = {s.name: s for message in running.diagnostics for s in message.status}
    assert found["policy: camera wrist"].level == b"\x02"
    assert "no image for" in found["policy: camera wrist"].message


def test_a_request_before_the_first_image_is_answered_when_it_comes(running: Running) -> None:
    running.user.spin(0.5)
    running.chunks.clear()
    running.cell.request(80, "stack the blocks")
    running.user.spin(0.3)
    assert running.chunks == []
    running.wait(lambda: running.chunks)
    assert running.chunks[0].request_id == 80


def test_an_incompatible_publisher_becomes_a_diagnostic(running: Running) -> None:
    from rclpy.qos import QoSProfile, ReliabilityPolicy

    from cosmos_lite_ros.msg import ChunkRequest

    offered = QoSProfile(depth=1, reliability=ReliabilityPolicy.BEST_EFFORT)
    publisher = running.user.publisher("chunk_request", ChunkRequest, offered)
    running.diagnostics.clear()
    running.wait(
        lambda: any(
            s.name == "policy: topic chunk_request" and "reliability" in s.message
            for message in running.diagnostics
            for s in message.status
        )
    )
    running.user.node.destroy_publisher(publisher)


def test_a_second_policy_on_the_topic_is_an_error_that_says_so(running: Running) -> None:
    other = running.user.publisher("action_chunk", ActionChunk, qos.exchange())
    running.diagnostics.clear()
    line = "action_chunk has 2 publishers, expected 1: stop the other policy"
    running.wait(
        lambda: any(
            s.message == line and s.level == b"\x02"
            for message in running.diagnostics
            for s in message.status
        )
    )
    running.user.node.destroy_publisher(other)


def test_without_a_clock_it_says_so_and_a_hang_ends_the_process(
    tiny_checkpoint: Make, tmp_path: Path
) -> None:
    # Eight steps take seconds, so that a limit of half a second is a hang.
    parameters = {
        "autostart": True,
        "use_sim_time": True,
        "steps": 8,
        "guidance": 3.0,
        "request_timeout_s": 0.5,
        # Stamps and arrivals are of different clocks here.
        "max_image_age_s": 60.0,
        "max_joint_state_age_s": 60.0,
        "max_gripper_age_s": 60.0,
    }
    with (
        policy(tmp_path, tiny_checkpoint("edge"), 85, parameters=parameters) as process,
        probe(85) as user,
    ):
        cell = Cell(user)
        status = user.collect("policy_status", PolicyStatus, qos.latched())
        user.wait(lambda: status and status[-1].state == PolicyStatus.READY, START_S)
        user.wait(cell.heard_by, 10.0)
        cell.request(1, "go")
        user.wait(lambda: "waiting for /clock" in status[-1].last_skip_reason, 10.0)
        # Now somebody publishes the clock.
        clock = user.publisher("/clock", Clock, 1)

        def publish() -> None:
            clock.publish(Clock(clock=user.node.get_clock().now().to_msg()))
            cell.publish()
            cell.request(2, "go")

        user.wait(lambda: not process.running, 20.0, meanwhile=publish)
        assert process.wait(1.0) == 1
        assert "a computation has taken more than 0.5 s" in process.output()
        assert "Traceback" not in process.output()


def test_lifecycle_without_autostart_a_missing_camera_and_sigint_in_a_computation(
    tiny_checkpoint: Make, tmp_path: Path
) -> None:
    parameters = {"steps": 8, "guidance": 3.0}
    with (
        policy(tmp_path, tiny_checkpoint("edge"), 85, parameters=parameters) as process,
        probe(85) as user,
    ):
        cell = Cell(user, views=("wrist", "exterior_1"))
        status = user.collect("policy_status", PolicyStatus, qos.latched())
        assert user.lifecycle_state("/policy", START_S) == "unconfigured"
        assert user.transition("/policy", "configure", START_S)
        assert user.lifecycle_state("/policy") == "inactive"
        assert {s.step for s in status} > {"not configured", "importing torch"}
        cell.request(1, "go")
        user.wait(lambda: "the policy is inactive" in status[-1].last_skip_reason, 10.0)
        assert user.transition("/policy", "activate", START_S)
        assert PolicyStatus.WARMING in [s.state for s in status]
        # The topic that never comes.
        cell.request(2, "go")
        user.wait(
            lambda: status[-1].last_skip_reason == "exterior_2: no image yet",
            10.0,
            meanwhile=cell.publish,
        )
        assert np.isnan(status[-1].image_age_arrival_s[2])
        # Deactivate drops the request, activate works again.
        assert user.transition("/policy", "deactivate")
        user.wait(lambda: "was deactivated" in status[-1].last_skip_reason, 10.0)
        assert user.transition("/policy", "activate", START_S)
        whole = Cell(user)
        user.wait(lambda: whole.heard_by(1), 10.0)
        whole.request(3, "go")
        user.wait(
            lambda: status[-1].state == PolicyStatus.BUSY,
            20.0,
            meanwhile=whole.publish,
            what="BUSY",
        )
        started = time.monotonic()
        process.signal(signal.SIGINT)
        assert process.wait(3.0) == 0
        assert time.monotonic() - started < 2.0
        assert "Traceback" not in process.output()


def broken_checkpoint(kind: str, good: Path, tmp: Path) -> Path:
    """A copy of a good checkpoint with one thing wrong."""
    path = tmp / kind
    shutil.copytree(good, path)
    if kind == "missing_shard":
        shard = next(p for p in sorted((path / "transformer").glob("*.safetensors")))
        shard.unlink()
    elif kind == "unknown_family":
        config = path / "transformer" / "config.json"
        config.write_text(json.dumps({**json.loads(config.read_text()), "hidden_act": "gelu"}))
    return path


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("missing_shard", ".safetensors"),
        ("unknown_family", "hidden_act"),
    ],
)
def test_a_bad_checkpoint_is_a_lifecycle_failure_with_one_line(
    tiny_checkpoint: Make, tmp_path: Path, kind: str, expected: str
) -> None:
    bad = broken_checkpoint(kind, tiny_checkpoint("edge"), tmp_path)
    with policy(tmp_path, bad, 86) as process, probe(86) as user:
        status = user.collect("policy_status", PolicyStatus, qos.latched())
        assert not user.transition("/policy", "configure", START_S)
        assert user.lifecycle_state("/policy") == "unconfigured"
        user.wait(lambda: status and status[-1].state == PolicyStatus.ERROR, 10.0)
        assert expected in status[-1].error
        assert "\n" not in status[-1].error
        lines = [line for line in process.output().splitlines() if "failed" in line]
        assert len(lines) == 1
        assert expected in lines[0]
        assert process.running


def test_a_wrong_folder_ends_an_autostarted_policy_with_2(tmp_path: Path) -> None:
    parameters = {"autostart": True}
    with policy(tmp_path, tmp_path / "nowhere", 86, parameters=parameters) as process:
        assert process.wait(START_S) == 2
        lines = process.output().splitlines()
    assert len(lines) == 1, lines
    assert "nowhere' is neither a folder nor a Hugging Face id" in lines[0]


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        (
            {"max_image_age": 0.5},
            "'max_image_age' (did you mean 'max_image_age_s'?)",
        ),
        ({"scheme": "fp4"}, "parameter scheme is 'fp4', expected one of auto, bf16, fp8, fp8_fast"),
        ({"steps": 9}, "parameter steps is 9, expected 1 to 8"),
        ({"profile": "edge"}, "profile is 'edge', expected one of edge_rtx4090, edge_interval, "),
    ],
)
def test_bad_parameters_end_the_process_with_2(
    tmp_path: Path, parameters: dict[str, object], expected: str
) -> None:
    with NodeProcess(MODULE, tmp_path / "log", 86, parameters=parameters) as process:
        assert process.wait(20.0) == 2
        lines = process.output().splitlines()
    assert len(lines) == 1, lines
    assert lines[0].startswith("error: ")
    assert expected in lines[0]


def test_no_gpu_names_the_tiny_profile(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("this machine has a CUDA GPU")
    parameters = {"autostart": True}
    with NodeProcess(MODULE, tmp_path / "log", 86, parameters=parameters) as process:
        assert process.wait(START_S) == 3
        lines = process.output().splitlines()
    assert len(lines) == 1, lines
    assert "0 CUDA GPUs found" in lines[0]
    assert "profile:=tiny" in lines[0]


def test_cv_bridge_that_is_absent_is_one_line(tiny_checkpoint: Make, tmp_path: Path) -> None:
    try:
        import cv_bridge  # noqa: F401
    except Exception:
        pass
    else:
        pytest.skip("cv_bridge is installed")
    parameters = {"autostart": True, "image_backend": "cv_bridge"}
    with policy(tmp_path, tiny_checkpoint("edge"), 86, parameters=parameters) as process:
        assert process.wait(START_S) == 3
        lines = process.output().splitlines()
    assert len(lines) == 1, lines
    assert "image_backend is cv_bridge, which cannot be imported" in lines[0]


def test_cv_bridge_gives_the_identical_picture() -> None:
    pytest.importorskip("cv_bridge", reason="cv_bridge is not installed (no wheel on PyPI)")
    from sensor_msgs.msg import Image

    from cosmos_lite_ros.contract.images import decode_image
    from cosmos_lite_ros.ros.bridge import cv_bridge_decoder
    from cosmos_lite_ros.ros.convert import octets

    decode = cv_bridge_decoder()
    for encoding, channels in (("rgb8", 3), ("bgr8", 3), ("rgba8", 4), ("bgra8", 4), ("mono8", 1)):
        rng = np.random.default_rng(3)
        padded = rng.integers(0, 256, (90, 160 * channels + 16), dtype=np.uint8)
        message = Image(height=90, width=160, encoding=encoding, step=padded.shape[1])
        message.data = octets(padded)
        np.testing.assert_array_equal(decode(message), decode_image(message), err_msg=encoding)


def test_two_robots_in_two_namespaces_and_free_run(tiny_checkpoint: Make, tmp_path: Path) -> None:
    (tmp_path / "l").mkdir()
    (tmp_path / "r").mkdir()
    checkpoint = tiny_checkpoint("edge")
    free = {"autostart": True, "free_run": True}
    with (
        policy(
            tmp_path / "l", checkpoint, 87, namespace="/left", parameters={"autostart": True}
        ) as left,
        policy(tmp_path / "r", checkpoint, 87, namespace="/right", parameters=free) as right,
        probe(87) as user,
    ):
        cells = {name: Cell(user, f"/{name}/") for name in ("left", "right")}
        chunks = {
            name: user.collect(f"/{name}/action_chunk", ActionChunk, qos.exchange())
            for name in cells
        }
        status = {
            name: user.collect(f"/{name}/policy_status", PolicyStatus, qos.latched())
            for name in cells
        }

        def publish() -> None:
            for cell in cells.values():
                cell.publish()

        user.wait(
            lambda: all(s and s[-1].state == PolicyStatus.READY for s in status.values()), START_S
        )
        assert status["right"][-1].last_skip_reason == "free_run waits for an instruction"
        user.wait(cells["left"].heard_by, 10.0)
        cells["left"].request(5, "left work")
        user.wait(lambda: chunks["left"], 20.0, meanwhile=publish, what=left.output())
        assert chunks["right"] == []
        # Without an executor: the instruction alone, again and again.
        say = user.publisher("/right/instruction", String, qos.latched())
        say.publish(String(data="right work"))
        user.wait(lambda: len(chunks["right"]) >= 2, 30.0, meanwhile=publish, what=right.output())
        assert [c.request_id for c in chunks["left"]] == [5]
        assert {c.instruction for c in chunks["right"]} == {"right work"}
        assert [c.request_id for c in chunks["right"][:2]] == [0, 0]
        assert [c.chunk_id for c in chunks["right"][:2]] == [1, 2]
        assert status["left"][-1].instruction == ""
