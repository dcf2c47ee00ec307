# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Forward kinematics against a recorded arm, a second description of it, and differences."""

from __future__ import annotations

import math

import numpy as np
import pytest

from cosmos_lite_ros.contract.robots import PANDA
from cosmos_lite_ros.execution.kinematics import MOVED_BY, posture, tool_speed

from ..conftest import SHARED

TOOL = np.array([0.01, -0.02, 0.163])
# One frame of a real Panda of DROID (episode 48330): joints, and where its controller said that
# panda_link8 was (position in m, roll, pitch and yaw in rad).
JOINTS = (
    0.04376882314682007,
    -0.4094367623329163,
    0.42356184124946594,
    -2.4313332736492157,
    -0.02757996320724487,
    1.9793097972869873,
    0.6358067393302917,
)
POSITION = (0.37279505, 0.19076526, 0.43716934)
ROLL_PITCH_YAW = (2.94386911, -0.05018207, -0.18918519)
# The links as MuJoCo's models of the Panda describe them (robosuite's was read): position in the
# link before and the turn about its x axis; each joint turns about the new z axis.
LINKS = (
    ((0.0, 0.0, 0.333), 0.0),
    ((0.0, 0.0, 0.0), -math.pi / 2),
    ((0.0, -0.316, 0.0), math.pi / 2),
    ((0.0825, 0.0, 0.0), math.pi / 2),
    ((-0.0825, 0.384, 0.0), -math.pi / 2),
    ((0.0, 0.0, 0.0), math.pi / 2),
    ((0.088, 0.0, 0.0), math.pi / 2),
)


def about(axis: int, angle: float) -> np.ndarray:
    c, s = math.cos(angle), math.sin(angle)
    i, j = (axis + 1) % 3, (axis + 2) % 3
    m = np.eye(3)
    m[i, i], m[i, j], m[j, i], m[j, j] = c, -s, s, c
    return m


def second_opinion(q: np.ndarray) -> list[np.ndarray]:
    """Origins of the seven links and the flange."""
    rotation, origin, found = np.eye(3), np.zeros(3), []
    for (place, twist), angle in zip(LINKS, q, strict=True):
        origin = origin + rotation @ np.array(place)
        rotation = rotation @ about(0, twist) @ about(2, angle)
        found.append(origin)
    return [*found, origin + rotation @ np.array([0, 0, 0.107])]


def test_a_recorded_posture() -> None:
    found = posture(np.array([JOINTS]))
    assert found.flange[0] == pytest.approx(POSITION, abs=1e-6)
    roll, pitch, yaw = ROLL_PITCH_YAW
    wanted = about(2, yaw) @ about(1, pitch) @ about(0, roll)
    assert found.rotation[0] == pytest.approx(wanted, abs=1e-6)


@pytest.mark.skipif(not (SHARED / "recordings").is_dir(), reason="no ../shared/recordings")
def test_a_recorded_motion() -> None:
    with np.load(SHARED / "recordings/nvidia_droid_ep48330/derived_joints.npz") as data:
        joints = data["joint_position_reconstructed"]
        recorded = data["cartesian_position_recorded"]
    # Frame 0 is a recording of both; the other joints were found from the recorded poses.
    assert np.abs(posture(joints[:1]).flange - recorded[:1, :3]).max() < 1e-8
    assert np.abs(posture(joints).flange - recorded[:, :3]).max() < 1e-6


def test_a_second_description_of_the_arm_has_the_same_elbow_wrist_and_flange() -> None:
    low, high = PANDA.limits()
    rows = np.random.default_rng(0).uniform(low, high, (40, 7))
    found = posture(rows)
    for i, q in enumerate(rows):
        origins = second_opinion(q)
        assert found.elbow[i] == pytest.approx(origins[3], abs=1e-12)
        assert found.wrist[i] == pytest.approx(origins[5], abs=1e-12)
        assert found.flange[i] == pytest.approx(origins[7], abs=1e-12)
        tool = found.flange[i] + found.rotation[i] @ TOOL
        assert found.places(TOOL)[i] == pytest.approx(np.array([origins[3], origins[5], tool]))


def test_the_arm_stretched_up() -> None:
    found = posture(np.zeros((1, 7)))
    assert found.elbow[0] == pytest.approx([0.0825, 0.0, 0.333 + 0.316])
    assert found.wrist[0] == pytest.approx([0.0, 0.0, 0.333 + 0.316 + 0.384])
    assert found.flange[0] == pytest.approx([0.088, 0.0, 0.333 + 0.316 + 0.384 - 0.107])
    # The tool points down: its x axis forwards, its y axis to the right.
    assert found.tool(TOOL)[0] == pytest.approx(found.flange[0] + TOOL * [1, -1, -1])


def test_speeds_are_derivatives() -> None:
    rng = np.random.default_rng(1)
    q, speed, h = rng.normal(0, 1, (20, 7)), rng.normal(0, 1, (20, 7)), 1e-6
    before, here, after = posture(q - h * speed), posture(q), posture(q + h * speed)
    moved = (after.places(TOOL) - before.places(TOOL)) / (2 * h)
    for i, joints in enumerate(MOVED_BY):
        columns = here.jacobian(here.places(TOOL)[:, i], joints)
        assert np.einsum("jnk,nj->nk", columns, speed[:, :joints]) == pytest.approx(
            moved[:, i], abs=1e-7
        )
    assert tool_speed(here, speed, TOOL) == pytest.approx(
        np.linalg.norm(moved[:, 2], axis=1), abs=1e-7
    )
