# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What the policy node says about cameras and about itself; and the allocator's setting."""

from __future__ import annotations

import dataclasses
import json
import math
import sys

import pytest

pytest.importorskip("rclpy")

from cosmos_lite_ros.contract.cameras import CameraStatus
from cosmos_lite_ros.msg import PolicyStatus
from cosmos_lite_ros.policy.profiles import EDGE_REVISION, profile
from cosmos_lite_ros.ros.allocator import set_image_allocator
from cosmos_lite_ros.ros.policy_loader import Step, engine_settings, revision_of
from cosmos_lite_ros.ros.policy_settings import PolicySettings
from cosmos_lite_ros.ros.policy_status import (
    Snapshot,
    camera_diagnostic,
    engine_diagnostic,
    host_anonymous_bytes,
    status_message,
)

pytestmark = pytest.mark.ros

GOOD = CameraStatus(
    received=100,
    rate_hz=15.0,
    arrival_age_s=0.02,
    header_age_s=0.04,
    decode_failures=0,
    stamp_problem="",
    error="",
    height=360,
    width=640,
)


@pytest.mark.parametrize(
    ("changed", "problem", "level", "words"),
    [
        ({}, "", 0, "15.0 Hz"),
        ({"received": 0, "arrival_age_s": math.inf}, "", 2, "no image since the node was config"),
        ({"received": 0}, "wrist/image: a publisher offers", 2, "wrist/image: a publisher offers"),
        ({"arrival_age_s": 1.5}, "", 2, "no image for 1.50 s"),
        ({"error": "jpeg is truncated"}, "", 2, "jpeg is truncated"),
        ({"stamp_problem": "frozen"}, "", 1, "header stamps are frozen"),
        ({"rate_hz": 5.5}, "", 1, "5.5 Hz arrive, expected at least 15; start the camera driver"),
    ],
)
def test_a_camera_is_described(
    changed: dict[str, object], problem: str, level: int, words: str
) -> None:
    camera = dataclasses.replace(GOOD, **changed)  # type: ignore[arg-type]
    found = camera_diagnostic("wrist", camera, problem=problem, max_age_s=0.3, raw=True)
    assert found.name == "camera wrist"
    assert found.level == bytes([level])
    assert words in found.message


def test_the_hint_about_shared_memory_is_for_raw_images() -> None:
    slow = dataclasses.replace(GOOD, rate_hz=5.5)
    raw = camera_diagnostic("wrist", slow, problem="", max_age_s=0.3, raw=True)
    compressed = camera_diagnostic("wrist", slow, problem="", max_age_s=0.3, raw=False)
    assert "FASTRTPS_DEFAULT_PROFILES_FILE" in raw.message
    assert "FASTRTPS_DEFAULT_PROFILES_FILE" not in compressed.message


def test_a_snapshot_becomes_a_message() -> None:
    snapshot = Snapshot(
        PolicyStatus.BUSY,
        Step(1.0, ""),
        instruction="go",
        latencies_s=(0.1, 0.2, 0.3),
        answered=3,
        skipped=2,
        skip_reason="wrist: no image yet",
        cameras={"wrist": GOOD},
        text_cache=(5, 1),
        random_weights=True,
    )
    message = status_message(snapshot)
    assert (message.state, message.requests, message.skipped) == (PolicyStatus.BUSY, 3, 2)
    assert (message.latency_p50_s, message.latency_max_s) == (0.1, 0.3)
    assert (message.text_cache_hits, message.text_cache_misses) == (5, 1)
    assert list(message.image_rate_hz) == [15.0, 0.0, 0.0]
    assert message.image_age_header_s[0] == 0.04
    assert math.isnan(message.image_age_header_s[1])
    assert len(message.instruction_sha256) == 64
    assert engine_diagnostic(snapshot).message == "BUSY: wrist: no image yet"
    loading = Snapshot(PolicyStatus.LOADING, Step(0.4, "transformer"))
    assert engine_diagnostic(loading).message == "LOADING: transformer, 40%"
    assert status_message(loading).instruction_sha256 == ""
    broken = Snapshot(PolicyStatus.ERROR, Step(), error="no such folder")
    assert engine_diagnostic(broken).message == "ERROR: no such folder"
    assert engine_diagnostic(broken).level == b"\x02"
    assert json.loads(status_message(broken).effective) == {}


def test_memory_of_this_process() -> None:
    before = host_anonymous_bytes()
    block = bytearray(64 << 20)
    block[::4096] = b"x" * len(block[::4096])
    assert host_anonymous_bytes() - before > 50 << 20


def test_the_profile_fills_what_is_not_given() -> None:
    pytest.importorskip("torch")
    settings = PolicySettings()
    engine = engine_settings(settings, "somewhere")
    assert (engine.device, engine.dtype, engine.revision) == ("cuda", "bfloat16", EDGE_REVISION)
    assert engine.sampler.guidance_interval is None
    assert engine.threads is None
    other = dataclasses.replace(
        settings,
        profile="tiny",
        scheme="bf16",
        device="cuda:1",
        guidance_interval=(960.0, 1001.0),
        threads=2,
    )
    engine = engine_settings(other, "somewhere")
    assert (engine.device, engine.dtype, engine.revision) == ("cuda:1", "bfloat16", "")
    assert engine.sampler.guidance_interval == (960.0, 1001.0)
    assert (engine.profile, engine.threads) == ("tiny", 2)


def test_the_pinned_revision_belongs_to_the_profiles_own_checkpoint() -> None:
    edge = profile("edge_rtx4090")
    assert revision_of(PolicySettings(), edge) == EDGE_REVISION
    assert revision_of(PolicySettings(checkpoint=edge.checkpoint), edge) == EDGE_REVISION
    assert revision_of(PolicySettings(checkpoint="me/mine"), edge) == ""
    assert revision_of(PolicySettings(checkpoint="me/mine", revision="a" * 40), edge) == "a" * 40


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc only")
def test_the_allocator_takes_both_settings() -> None:
    assert set_image_allocator()
