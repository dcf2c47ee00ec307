# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""From messages to an Observation, or the reason why there is none."""

from __future__ import annotations

import dataclasses
import threading
from typing import Any

import numpy as np
import pytest

from cosmos_lite_ros.contract.assembler import (
    AssemblerSettings,
    ObservationAssembler,
    Skip,
    fingerprint,
)
from cosmos_lite_ros.contract.constants import VIEWS
from cosmos_lite_ros.contract.gripper import GripperMapping
from cosmos_lite_ros.contract.observation import Observation
from cosmos_lite_ros.contract.robots import PANDA
from cosmos_lite_ros.contract.views import compose_views
from cosmos_lite_ros.errors import BadInputError
from test.contract.makers import MS, S, compressed, file_bytes, image, joint_state, noise, scene

ARM = PANDA.joint_names
Q = tuple(0.1 * (i + 1) for i in range(7))
T0 = 1_000 * S
SETTINGS = AssemblerSettings(ARM, "finger", GripperMapping(open=0.0, closed=0.8))


def assembler(**changes: Any) -> ObservationAssembler:
    return ObservationAssembler(dataclasses.replace(SETTINGS, **changes))


def feed(
    target: ObservationAssembler, now_ns: int = T0, skip: Any = (), seed: int | None = None
) -> None:
    """One good message of everything, except from what ``skip`` names."""
    if "joints" not in skip:
        target.push_joint_state(joint_state([*ARM, "finger"], [*Q, 0.2], now_ns - MS), now_ns)
    for i, view in enumerate(VIEWS):
        if view not in skip:
            picture = noise(36, 64, i if seed is None else seed + i)
            target.push_image(view, image(picture, "bgr8", stamp_ns=now_ns - 5 * MS), now_ns)


def observed(target: ObservationAssembler, now_ns: int = T0) -> Observation:
    result = target.assemble("wipe the table", now_ns)
    assert isinstance(result, Observation), result
    return result


def skipped(target: ObservationAssembler, now_ns: int = T0, text: str | None = "wipe") -> Skip:
    result = target.assemble(text, now_ns)
    assert isinstance(result, Skip)
    assert "\n" not in result.reason
    return result


def test_an_observation_holds_what_was_sent() -> None:
    target = assembler()
    pictures = [noise(360, 640, i) for i in range(3)]
    target.push_joint_state(joint_state([*ARM, "finger"], [*Q, 0.2], T0 - 3 * MS), T0)
    encodings = ("bgra8", "rgb8", "bgr8")
    for i, view in enumerate(VIEWS):
        message = image(pictures[i], encodings[i], padding=i, stamp_ns=T0 - (10 + i) * MS)
        target.push_image(view, message, T0)
    observation = target.assemble("  wipe the table ", T0 + 20 * MS)
    assert isinstance(observation, Observation)
    np.testing.assert_array_equal(observation.composed, compose_views(*pictures))
    assert observation.joint_positions.tolist() == list(Q)
    assert observation.gripper == pytest.approx(0.25)
    assert observation.instruction == "wipe the table"
    assert observation.stamp_ns == observation.joint_state_stamp_ns == T0 - 3 * MS
    assert observation.image_stamps_ns == (T0 - 10 * MS, T0 - 11 * MS, T0 - 12 * MS)
    assert target.counters()["observations"] == 1
    assert target.take_notices() == []


def test_the_state_is_the_one_nearest_to_the_newest_image_s_arrival() -> None:
    target = assembler()
    for i in range(10):
        at = T0 + 10 * i * MS
        target.push_joint_state(joint_state([*ARM, "finger"], [float(i)] * 8, at - 2 * MS), at)
    for view, arrival in zip(VIEWS, (T0 + 10 * MS, T0 + 63 * MS, T0 + 30 * MS), strict=True):
        target.push_image(view, image(noise(36, 64), stamp_ns=arrival - 20 * MS), arrival)
    observation = observed(target, T0 + 95 * MS)
    assert observation.joint_positions[0] == 6.0
    assert observation.stamp_ns == T0 + 58 * MS


def test_the_oldest_image_may_be_the_anchor() -> None:
    target = assembler(observation_anchor="oldest_image")
    feed(target, T0)
    target.push_image("exterior_1", image(noise(36, 64), stamp_ns=T0 - 70 * MS), T0)
    observation = observed(target)
    assert observation.stamp_ns == T0 - 70 * MS
    assert observation.joint_state_stamp_ns == T0 - MS


@pytest.mark.parametrize("view", VIEWS)
def test_a_camera_that_never_came_is_named(view: str) -> None:
    target = assembler()
    feed(target, skip=(view,))
    assert skipped(target) == Skip("no_image", f"{view}: no image yet")


def test_all_missing_cameras_are_named() -> None:
    assert skipped(assembler()).reason == "; ".join(f"{view}: no image yet" for view in VIEWS)


def test_a_camera_that_stopped_is_named_with_its_age() -> None:
    target = assembler()
    feed(target)
    observed(target, T0 + 280 * MS - 100 * MS)
    feed(target, T0 + 350 * MS, skip=("exterior_2",))
    skip = skipped(target, T0 + 350 * MS)
    assert skip == Skip("image_age", "exterior_2: no image since 0.350 s (max_image_age_s 0.3)")


def test_an_old_stamp_on_a_fresh_arrival_is_refused() -> None:
    target = assembler()
    feed(target)
    target.push_image("wrist", image(noise(36, 64), stamp_ns=T0 - 400 * MS), T0)
    skip = skipped(target)
    assert skip.kind == "image_age"
    assert "wrist: image is 0.400 s old by its stamp, though it arrived 0.000 s ago" in skip.reason


def test_a_declared_latency_adds_to_the_age_and_moves_nothing_else() -> None:
    latency = dict.fromkeys(VIEWS, 0.2)
    target = assembler(camera_latency_s=latency)
    feed(target)
    assert target.camera_status(T0)["wrist"].header_age_s == pytest.approx(0.205)
    assert observed(target).stamp_ns == T0 - MS
    assert skipped(target, T0 + 100 * MS).kind == "image_age"


def test_cameras_apart_in_time_are_refused_unless_their_latency_explains_it() -> None:
    def late_wrist(**changes: Any) -> ObservationAssembler:
        target = assembler(**changes)
        feed(target)
        target.push_image("wrist", image(noise(36, 64), stamp_ns=T0 - 125 * MS), T0)
        return target

    skip = skipped(late_wrist())
    assert skip.kind == "camera_skew"
    assert skip.reason.startswith("wrist was taken 0.120 s before exterior_1 (max_camera_skew_s")
    late_exteriors = {"exterior_1": 0.12, "exterior_2": 0.12}
    observed(late_wrist(camera_latency_s=late_exteriors))
    observed(late_wrist(max_camera_skew_s=0.15))


@pytest.mark.parametrize("stamp", [0, T0 + 60 * MS], ids=["zero", "future"])
def test_a_bad_image_stamp_is_replaced_by_the_arrival_and_said_once(stamp: int) -> None:
    target = assembler(observation_anchor="oldest_image")
    for i in range(3):
        feed(target, T0 + i * MS)
        target.push_image("wrist", image(noise(36, 64, i), stamp_ns=stamp), T0 + i * MS)
    observation = observed(target, T0 + 2 * MS)
    assert observation.image_stamps_ns[0] == 0
    assert observation.stamp_ns == T0 + 2 * MS - 5 * MS
    word = "zero" if stamp == 0 else "future"
    assert target.take_notices() == [
        f"wrist: header stamps are {word}: the time of arrival is used instead"
    ]
    assert target.take_notices() == []
    assert target.camera_status(T0)["wrist"].stamp_problem == word


def test_a_frozen_stamp_is_not_an_age() -> None:
    target = assembler()
    for i in range(10):
        now = T0 + 66 * i * MS
        feed(target, now, seed=3 * i, skip=("wrist",))
        target.push_image("wrist", image(noise(36, 64, 99 + i), stamp_ns=T0 - 5 * MS), now)
    assert observed(target, now).image_stamps_ns[0] == 0


def test_a_frozen_camera_is_named_and_recovers() -> None:
    target = assembler()
    still = noise(36, 64, 7)
    for i in range(31):
        now = T0 + 67 * i * MS
        feed(target, now, seed=100 + 3 * i, skip=("exterior_1",))
        target.push_image("exterior_1", image(still, stamp_ns=now), now)
        if i < 30:
            observed(target, now)
    skip = skipped(target, now + MS)
    expected = "exterior_1: identical images for 2.0 s (frozen_image_s 2)"
    assert skip == Skip("frozen_image", expected)
    target.push_image("exterior_1", image(noise(36, 64, 8), stamp_ns=now), now)
    observed(target, now)


def test_the_frozen_check_can_be_switched_off() -> None:
    target = assembler(frozen_image_s=0.0)
    for i in range(40):
        feed(target, T0 + 66 * i * MS)
        observed(target, T0 + 66 * i * MS)


def test_the_fingerprint_sees_any_changed_row_of_a_large_image_with_noise() -> None:
    large = image(noise(720, 1280), "bgra8")
    same, other = image(noise(720, 1280), "bgra8"), image(noise(720, 1280, 1), "bgra8")
    assert fingerprint(large) == fingerprint(same) != fingerprint(other)
    jpeg = file_bytes(noise(16, 16), "JPEG")
    changed = jpeg[:-3] + bytes([jpeg[-3] ^ 1]) + jpeg[-2:]
    assert fingerprint(compressed(jpeg)) != fingerprint(compressed(changed))


def test_compressed_images_go_the_same_way() -> None:
    pictures = [scene(360, 640, i) for i in range(3)]
    target = assembler()
    feed(target)
    for view, picture in zip(VIEWS, pictures, strict=True):
        target.push_compressed(view, compressed(file_bytes(picture, "PNG"), "png", T0), T0)
    np.testing.assert_array_equal(observed(target).composed, compose_views(*pictures))


def test_a_truncated_jpeg_is_a_dropped_frame_counted_once() -> None:
    target = assembler()
    feed(target)
    jpeg = file_bytes(scene(), "JPEG")
    target.push_compressed("wrist", compressed(jpeg[: len(jpeg) // 2], stamp_ns=T0), T0)
    for _ in range(3):
        skip = skipped(target)
        assert skip.kind == "decode"
        assert skip.reason.startswith("wrist: compressed image of format 'jpeg'")
    status = target.camera_status(T0)["wrist"]
    assert status.decode_failures == 1
    assert "cut off" in status.error
    target.push_compressed("wrist", compressed(jpeg, stamp_ns=T0 + MS), T0 + MS)
    observed(target, T0 + MS)
    assert target.camera_status(T0)["wrist"].error == ""
    assert target.counters()["skip.decode"] == 3


def test_a_depth_image_on_a_colour_topic_names_camera_and_encoding() -> None:
    target = assembler()
    feed(target)
    message = image(noise(36, 64), "rgb8", stamp_ns=T0)
    message.encoding = "16UC1"
    target.push_image("exterior_2", message, T0)
    assert skipped(target).reason.startswith("exterior_2: encoding '16UC1'")


@pytest.mark.parametrize(
    ("aspect", "words"), [("pad", "padded with black"), ("crop", "cropped"), ("refuse", None)]
)
def test_a_wrong_aspect_is_said_once_or_refused(aspect: Any, words: str | None) -> None:
    target = assembler(aspect=aspect)
    for i in range(2):
        feed(target, T0 + i * MS)
        message = image(noise(48, 64), stamp_ns=T0 + i * MS)
        target.push_image("wrist", message, T0 + i * MS)
        if words is None:
            skip = skipped(target, T0 + i * MS)
            assert skip.kind == "decode"
            assert "wrist is 64x48, expected 16:9" in skip.reason
        else:
            observed(target, T0 + i * MS)
    expected = (
        [] if words is None else [f"wrist: 64x48 is not 16:9 and is {words} (parameter aspect)"]
    )
    assert target.take_notices() == expected


def test_joints_and_gripper_from_two_topics() -> None:
    target = assembler()
    feed(target, skip=("joints",))
    assert "no joint state yet of panda_joint1" in skipped(target).reason
    target.push_joint_state(joint_state(ARM, Q, T0), T0)
    assert skipped(target) == Skip("joint_state", "no joint state yet of finger")
    target.push_joint_state(joint_state(["finger"], [0.8], T0), T0)
    assert observed(target).gripper == 1.0


def test_a_joint_that_stopped_is_named() -> None:
    target = assembler()
    feed(target)
    now = T0 + 250 * MS
    feed(target, now, skip=("joints",))
    assert "panda_joint1: no joint state since 0.250 s" in skipped(target, now).reason
    rest = [*ARM[:2], *ARM[3:], "finger"]
    target.push_joint_state(joint_state(rest, [0.0] * 7, now), now)
    assert skipped(target, now).reason.startswith("panda_joint3: no joint state since 0.250 s")
    target.push_joint_state(joint_state([ARM[2]], [0.0], now), now)
    observed(target, now)


def test_a_gripper_may_report_less_often_than_the_arm() -> None:
    target = assembler()
    feed(target)
    for now in (T0 + 400 * MS, T0 + 550 * MS):
        feed(target, now, skip=("joints",))
        target.push_joint_state(joint_state(ARM, Q, now), now)
        if now < T0 + 500 * MS:
            observed(target, now)
    assert skipped(target, now).reason.startswith("finger: no joint state since 0.550 s")


def test_joint_states_with_an_old_stamp_are_refused() -> None:
    target = assembler()
    feed(target, skip=("joints",))
    target.push_joint_state(joint_state([*ARM, "finger"], [*Q, 0.2], T0 - 300 * MS), T0)
    assert "panda_joint1: joint state is 0.300 s old by its stamp" in skipped(target).reason


def test_joint_states_far_from_the_image_are_refused() -> None:
    target = assembler(max_image_age_s=1.0)
    feed(target, skip=("joints",))
    now = T0 + 300 * MS
    target.push_joint_state(joint_state([*ARM, "finger"], [*Q, 0.2], now), now)
    skip = skipped(target, now)
    assert "nearest joint state arrived 0.300 s apart from the newest image" in skip.reason


def test_nan_is_not_ready_and_said() -> None:
    target = assembler()
    feed(target)
    bad = [*Q[:6], float("nan"), 0.2]
    target.push_joint_state(joint_state([*ARM, "finger"], bad, T0 + MS), T0 + MS)
    assert skipped(target, T0 + MS).reason == "joint state of panda_joint7 is not finite"
    assert target.take_notices() == ["joint state of panda_joint7 is not finite"]


def test_a_gripper_far_out_of_range_is_clipped_counted_and_said() -> None:
    target = assembler()
    feed(target)
    target.push_joint_state(joint_state(["finger"], [255.0], T0), T0)
    assert observed(target).gripper == 1.0
    assert target.counters()["gripper.out_of_range"] == 1
    assert "gripper reports 255" in target.take_notices()[0]


@pytest.mark.parametrize("text", [None, "", "   \n", "x" * 1001])
def test_no_instruction_no_observation(text: str | None) -> None:
    target = assembler()
    feed(target)
    skip = skipped(target, text=text)
    assert skip.kind == "instruction"
    assert "no instruction yet" in skip.reason or "1001 characters" in skip.reason


def test_time_set_back_waits_for_new_messages() -> None:
    target = assembler()
    feed(target, T0)
    now = T0 - 500 * S
    assert "time went back by 500.000 s" in skipped(target, now).reason
    feed(target, now, skip=("joints",))
    assert "panda_joint1: time went back" in skipped(target, now).reason
    feed(target, now)
    assert observed(target, now).stamp_ns == now - MS
    assert target.counters()["joints.time_jump"] == 1


def test_reset_forgets_messages_and_keeps_counters() -> None:
    target = assembler()
    feed(target)
    observed(target)
    target.reset()
    assert skipped(target).kind == "no_image"
    assert target.counters()["observations"] == 1
    assert target.camera_status(T0)["wrist"].received == 1


def test_the_received_rate_is_measured() -> None:
    target = assembler()
    for i in range(30):
        feed(target, T0 + i * S // 15)
    now = T0 + 29 * S // 15
    status = target.camera_status(now)["exterior_1"]
    assert status.rate_hz == pytest.approx(15.0, rel=1e-6)
    assert status.received == 30
    assert status.arrival_age_s == 0
    assert target.camera_status(now + 3 * S)["exterior_1"].rate_hz == 0
    assert target.camera_status(now + 3 * S)["exterior_1"].arrival_age_s == pytest.approx(3)


def test_the_conversion_can_be_another_one() -> None:
    target = assembler(decode_image=lambda message: np.full((360, 640, 3), 8, np.uint8))
    feed(target)
    assert set(observed(target).composed.ravel()) == {8}


def test_pushing_and_assembling_in_two_threads() -> None:
    ages = ("max_image_age_s", "max_joint_state_age_s", "max_gripper_age_s", "max_camera_skew_s")
    target = assembler(**dict.fromkeys(ages, 3600.0))
    feed(target)
    stop = threading.Event()

    def push() -> None:
        now = T0
        while not stop.is_set():
            now += MS
            feed(target, now, seed=now % 97)

    thread = threading.Thread(target=push)
    thread.start()
    try:
        results = [target.assemble("wipe", T0 + 10 * S) for _ in range(60)]
    finally:
        stop.set()
        thread.join(10)
    assert [result for result in results if isinstance(result, Skip)] == []


@pytest.mark.ros
def test_live_and_bag_messages_give_identical_observations() -> None:
    messages = pytest.importorskip("sensor_msgs.msg")
    serialize = pytest.importorskip("rclpy.serialization").serialize_message
    rosbags = pytest.importorskip("rosbags.typesys")
    store = rosbags.get_typestore(rosbags.Stores.ROS2_JAZZY)

    def stamped(message: Any, stamp_ns: int) -> Any:
        message.header.stamp.sec, message.header.stamp.nanosec = divmod(stamp_ns, S)
        return message

    def read(message: Any, kind: str) -> Any:
        return store.deserialize_cdr(serialize(message), f"sensor_msgs/msg/{kind}")

    live, bag = assembler(), assembler()
    values = [*Q, 0.3]
    joints = messages.JointState(
        name=[*ARM, "finger"], position=values, velocity=values, effort=values
    )
    stamped(joints, T0 - MS)
    live.push_joint_state(joints, T0)
    bag.push_joint_state(read(joints, "JointState"), T0)
    made = image(noise(90, 120), "bgra8", padding=4)
    picture = messages.Image(height=90, width=120, encoding="bgra8", step=made.step, data=made.data)
    file = messages.CompressedImage(
        format="jpeg", data=compressed(file_bytes(scene(), "JPEG")).data
    )
    for view in VIEWS[:2]:
        live.push_image(view, stamped(picture, T0), T0)
        bag.push_image(view, read(picture, "Image"), T0)
    live.push_compressed(VIEWS[2], stamped(file, T0), T0)
    bag.push_compressed(VIEWS[2], read(file, "CompressedImage"), T0)
    first, second = observed(live), observed(bag)
    assert first.digest() == second.digest()
    np.testing.assert_array_equal(first.composed, second.composed)
    assert first.stamp_ns == second.stamp_ns == T0 - MS
    assert first.image_stamps_ns == second.image_stamps_ns == (T0, T0, T0)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"joint_names": ARM[:6]}, "6 joint names, expected 7"),
        ({"gripper_joint": ARM[0]}, "differ from each other"),
        ({"compose": "both"}, "compose is 'both'"),
        ({"observation_anchor": "now"}, "observation_anchor is 'now'"),
        ({"max_image_age_s": 0.0}, "must be positive"),
        ({"max_camera_skew_s": float("nan")}, "must be positive"),
        ({"camera_latency_s": {"front": 0.1}}, "camera 'front' is unknown"),
        ({"camera_latency_s": {"wrist": -0.1}}, "must be >= 0"),
    ],
)
def test_wrong_settings_are_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInputError, match=words):
        dataclasses.replace(SETTINGS, **changes)
