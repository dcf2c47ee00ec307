# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Replay: the right requests at the right times, the same answer every time, honest reports."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cosmos_lite_ros.bags import report
from cosmos_lite_ros.bags.reader import Bag
from cosmos_lite_ros.bags.replay import ReplaySettings, replay
from cosmos_lite_ros.bags.stamps import header_stamp_ns
from cosmos_lite_ros.bags.topics import TopicMap
from cosmos_lite_ros.bags.writer import BagWriter, qos
from cosmos_lite_ros.contract.constants import VIEWS
from cosmos_lite_ros.contract.robots import PANDA
from cosmos_lite_ros.errors import BadInputError

from .makers import ASSEMBLER, NS, EchoPolicy, demo, joint_state, string


def run(path: Path, **options: Any) -> tuple[Any, EchoPolicy]:
    policy = EchoPolicy()
    with Bag(path) as bag:
        return replay(bag, policy, ReplaySettings(ASSEMBLER, **options)), policy


def test_requests_come_at_the_period_and_see_the_newest_of_each_input(tmp_path: Path) -> None:
    path = demo(tmp_path / "bag", seconds=3.0)
    result, policy = run(path, period_s=0.7)
    assert [r.skip for r in result.requests] == [None] * 5
    times = [r.at_ns for r in result.requests]
    assert np.diff(times).tolist() == [700_000_000] * 4
    with Bag(path) as bag:
        for request, observation in zip(result.requests, policy.seen, strict=True):
            for view, stamp_ns in zip(VIEWS, observation.image_stamps_ns, strict=True):
                before = [
                    header_stamp_ns(m.data)
                    for m in bag.messages([f"/{view}/image/compressed"], None, request.at_ns + 1)
                ]
                assert stamp_ns == before[-1]
            assert request.digest == observation.digest()
            assert abs(request.at_ns - observation.stamp_ns) < 0.1 * NS
    assert result.requests[0].instruction == "pick up the banana and place it in the bowl"


def test_the_first_request_waits_for_every_input(tmp_path: Path) -> None:
    path = tmp_path / "late"
    source = demo(tmp_path / "bag", seconds=2.0)
    with Bag(source) as bag, BagWriter(path) as writer:
        for topic in bag.topics.values():
            writer.add_topic(topic.name, topic.msgtype, qos())
        for message in bag.messages():
            late = message.topic.startswith("/exterior_2")
            if not late or message.log_ns > bag.start_ns + NS:
                writer.write_raw(message.topic, message.log_ns, message.data)
        first = next(bag.messages(["/exterior_2/image/compressed"], bag.start_ns + NS + 1)).log_ns
    result, _ = run(path)
    assert result.requests[0].at_ns == first
    assert result.requests[0].skip is None


def test_times_may_be_given_and_a_request_too_early_says_what_was_missing(tmp_path: Path) -> None:
    path = demo(tmp_path / "bag", seconds=2.0)
    result, _ = run(path, at_s=(0.0, 0.5, 1.25), instruction="wave")
    assert [r.bag_s for r in result.requests] == [0.0, 0.5, 1.25]
    assert result.requests[0].skip.kind == "no_image"
    assert "wrist: no image yet" in result.requests[0].skip.reason
    assert [r.chunk is not None for r in result.requests] == [False, True, True]
    assert len(run(path, at_s=(0.5, 1.0), max_requests=1)[0].requests) == 1


def test_gaps_and_a_cut_off_picture_are_skips_with_a_reason(tmp_path: Path) -> None:
    path = tmp_path / "gaps"
    source = demo(tmp_path / "bag", seconds=3.0)
    with Bag(source) as bag, BagWriter(path) as writer:
        for topic in bag.topics.values():
            writer.add_topic(topic.name, topic.msgtype, qos())
        for message in bag.messages():
            at_s = (message.log_ns - bag.start_ns) / NS
            data = message.data
            if message.topic.startswith("/wrist") and 0.5 < at_s < 1.5:
                continue
            if message.topic.startswith("/exterior_1") and 1.9 < at_s < 2.1:
                decoded = bag.decode(message)
                decoded.data = decoded.data[: decoded.data.size // 2]
                data = bytes(writer.types.serialize_cdr(decoded, message.msgtype))
            writer.write_raw(message.topic, message.log_ns, data)
    result, _ = run(path, at_s=(0.4, 1.2, 2.0, 2.8))
    kinds = [None if r.skip is None else r.skip.kind for r in result.requests]
    assert kinds == [None, "image_age", "decode", None]
    assert "wrist: no image since" in result.requests[1].skip.reason
    assert report.skip_reasons(result) == {"decode": 1, "image_age": 1}
    assert result.counters["skipped"] == 2


def test_instruction_changes_take_effect_and_one_given_replaces_them(tmp_path: Path) -> None:
    path = tmp_path / "two"
    source = demo(tmp_path / "bag", seconds=2.0)
    with Bag(source) as bag, BagWriter(path) as writer:
        for topic in bag.topics.values():
            writer.add_topic(topic.name, topic.msgtype, qos())
        for message in bag.messages():
            writer.write_raw(message.topic, message.log_ns, message.data)
        writer.write("/instruction", bag.start_ns + NS, string(writer, "  open the drawer \n"))
    result, policy = run(path, at_s=(0.5, 1.5))
    assert [o.instruction for o in policy.seen] == [
        "pick up the banana and place it in the bowl",
        "open the drawer",
    ]
    assert [r.instruction for r in result.requests] == [o.instruction for o in policy.seen]
    _, policy = run(path, at_s=(0.5, 1.5), instruction="wave")
    assert [o.instruction for o in policy.seen] == ["wave", "wave"]


def test_foreign_names_and_one_joint_state_topic(tmp_path: Path) -> None:
    """Arm and gripper in one message, cameras under other names, no instruction."""
    path = tmp_path / "foreign"
    source = demo(tmp_path / "bag", seconds=1.0)
    names = {f"/{view}/image/compressed": f"/cam{k}/jpeg" for k, view in enumerate(VIEWS)}
    with Bag(source) as bag, BagWriter(path) as writer:
        for old, new in names.items():
            writer.add_topic(new, bag.topics[old].msgtype, qos())
        writer.add_topic("/robot/state", "sensor_msgs/msg/JointState")
        for message in bag.messages(list(names)):
            writer.write_raw(names[message.topic], message.log_ns, message.data)
        joints = ["finger_joint", *reversed(PANDA.joint_names)]
        for k in range(100):
            stamp_ns = bag.start_ns + k * NS // 100
            writer.write("/robot/state", stamp_ns, joint_state(writer, stamp_ns, 0.2, joints))
    with pytest.raises(BadInputError, match="wrist/image"):
        run(path)
    own = {new: f"{view}/image" for view, new in zip(VIEWS, names.values(), strict=True)}
    topic_map = TopicMap({**own, "/robot/state": "joint_states"})
    with pytest.raises(BadInputError, match="give --instruction"):
        run(path, topic_map=topic_map)
    result, policy = run(path, topic_map=topic_map, instruction="wave", max_requests=1)
    assert len(result.chunks) == 1
    np.testing.assert_array_equal(policy.seen[0].joint_positions, np.full(7, 0.2))
    assert policy.seen[0].gripper == pytest.approx(0.25)


def test_the_report(tmp_path: Path) -> None:
    result, policy = run(demo(tmp_path / "bag", seconds=3.0), seed=5, period_s=1.0)
    out = tmp_path / "out"
    report.write(result, out)
    with np.load(out / report.ACTIONS, allow_pickle=False) as arrays:
        assert arrays["actions"].dtype == np.float32
        assert arrays["actions"].shape == (3, 32, 8)
        np.testing.assert_array_equal(arrays["stamps_ns"], [o.stamp_ns for o in policy.seen])
        np.testing.assert_array_equal(arrays["request_ns"], [r.at_ns for r in result.requests])
        assert arrays["seeds"].tolist() == [5, 5, 5]
        np.testing.assert_allclose(arrays["measured"], arrays["actions"][:, 0], atol=1e-6)
    content = json.loads((out / report.REPORT).read_text())
    assert content["totals"]["requests"] == content["totals"]["chunks"] == 3
    assert content["totals"]["latency_s"] == {"p50": 0.25, "p95": 0.25, "max": 0.25}
    assert content["random_weights"] is True
    assert content["policy"] == {"profile": "echo", "threads": None}
    assert set(content["synthetic_topics"]) >= {"/joint_states", "/gripper/joint_states"}
    entry = content["requests"][1]
    assert entry["encode_s"] == 0.05
    assert entry["observation_sha256"] == policy.seen[1].digest()
    assert 0 < entry["cameras"]["wrist"]["header_age_s"] < 0.15
    with pytest.raises(BadInputError, match="exists already"):
        report.write(result, out)


@pytest.mark.parametrize(
    "options",
    [
        {"period_s": 0.0},
        {"at_s": (1.0, 0.5)},
        {"at_s": (-1.0,)},
        {"max_requests": 0},
        {"instruction": "   "},
    ],
)
def test_wrong_settings(options: dict[str, Any]) -> None:
    with pytest.raises(BadInputError):
        ReplaySettings(ASSEMBLER, **options)


def test_a_time_after_the_end_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r"the bag is 0\.99 s long"):
        run(demo(tmp_path / "bag"), at_s=(0.5, 7.0))


def test_repeatable_to_the_bit_with_a_real_network(
    tmp_path: Path, tiny_checkpoint: Callable[[str], Path]
) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("diffusers")
    from cosmos_lite_ros.policy.engine import EngineSettings, PolicyEngine, SamplerSettings

    path = demo(tmp_path / "bag", seconds=2.0)
    settings = ReplaySettings(ASSEMBLER, at_s=(0.5, 1.5), seed=3)
    engine_settings = EngineSettings(
        str(tiny_checkpoint("edge")), sampler=SamplerSettings(steps=1, guidance=1.0), threads=1
    )
    actions = []
    for k in range(2):
        engine = PolicyEngine.load(engine_settings)
        try:
            with Bag(path) as bag:
                result = replay(bag, engine, settings)
        finally:
            engine.close()
        report.write(result, tmp_path / f"out{k}")
        with np.load(tmp_path / f"out{k}" / report.ACTIONS) as arrays:
            actions.append({name: arrays[name].tobytes() for name in arrays.files})
    assert actions[0] == actions[1]
    assert result.actions().shape == (2, 32, 8)
    # Not because everything is the same: another picture, another answer.
    assert not np.array_equal(result.actions()[0], result.actions()[1])
    with Bag(path) as bag:
        engine = PolicyEngine.load(engine_settings)
        other = replay(bag, engine, replace(settings, seed=4, max_requests=1))
        engine.close()
    assert not np.array_equal(result.actions()[0], other.actions()[0])
