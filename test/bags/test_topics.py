# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Which topic of a bag serves which input."""

from __future__ import annotations

from pathlib import Path

import pytest

from cosmos_lite_ros.bags.topics import COMPRESSED_IMAGE, IMAGE, JOINT_STATE, STRING, TopicMap
from cosmos_lite_ros.errors import BadInputError

OURS = {
    "/wrist/image/compressed": COMPRESSED_IMAGE,
    "/exterior_1/image/compressed": COMPRESSED_IMAGE,
    "/exterior_2/image": IMAGE,
    "/joint_states": JOINT_STATE,
    "/gripper/joint_states": JOINT_STATE,
    "/instruction": STRING,
    "/tf": "tf2_msgs/msg/TFMessage",
}


def test_our_names_are_found() -> None:
    found = TopicMap().find(OURS)
    assert found.images == {
        "wrist": "/wrist/image/compressed",
        "exterior_1": "/exterior_1/image/compressed",
        "exterior_2": "/exterior_2/image",
    }
    assert found.joint_states == ("/joint_states", "/gripper/joint_states")
    assert found.instruction == "/instruction"
    assert found.missing == ()


def test_one_namespace_is_found_and_two_are_refused() -> None:
    left = {f"/left{name}": kind for name, kind in OURS.items()}
    assert TopicMap().find(left).images["wrist"] == "/left/wrist/image/compressed"
    assert TopicMap().find(left).joint_states[0] == "/left/joint_states"
    right = {f"/right{name}": kind for name, kind in OURS.items()}
    with pytest.raises(BadInputError, match="/left, /right"):
        TopicMap().find(left | right)
    # The root wins over a namespace.
    assert TopicMap().find(OURS | right).images["wrist"] == "/wrist/image/compressed"


def test_missing_inputs_are_named_and_the_grippers_topic_is_optional() -> None:
    types = {k: v for k, v in OURS.items() if "exterior_2" not in k and "gripper" not in k}
    assert TopicMap().find(types).missing == ("exterior_2/image",)


def test_compressed_is_chosen_and_said_where_both_are_there() -> None:
    found = TopicMap().find(OURS | {"/wrist/image": IMAGE})
    assert found.images["wrist"] == "/wrist/image/compressed"
    assert found.notes == (
        "both /wrist/image/compressed and /wrist/image are there: /wrist/image/compressed is used",
    )


def test_a_map_from_foreign_names(tmp_path: Path) -> None:
    path = tmp_path / "map.yaml"
    path.write_text("/zed/left: wrist/image\nfranka/state: joint_states\n/hand: joint_states\n")
    types = OURS | {"/zed/left": IMAGE, "/franka/state": JOINT_STATE, "/hand": JOINT_STATE}
    found = TopicMap.load(path).find(types)
    assert found.images["wrist"] == "/zed/left"
    assert found.joint_states == ("/franka/state", "/hand", "/gripper/joint_states")


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        ({"/a": "elbow/image"}, "expected one of"),
        ({"/nowhere": "wrist/image"}, "the bag lacks"),
        ({"/tf": "wrist/image"}, "tf2_msgs/msg/TFMessage"),
        ({"/wrist/image/compressed": "wrist/image", "/exterior_2/image": "wrist/image"}, "both"),
    ],
)
def test_wrong_maps_are_refused(names: dict[str, str], reason: str) -> None:
    with pytest.raises(BadInputError, match=reason):
        TopicMap(names).find(OURS)


@pytest.mark.parametrize("content", ["- a\n- b\n", "just text", "{: ]", "\x00"])
def test_files_that_are_no_map_are_refused(content: str, tmp_path: Path) -> None:
    path = tmp_path / "map.yaml"
    path.write_text(content)
    with pytest.raises(BadInputError, match="topic map"):
        TopicMap.load(path)
    with pytest.raises(BadInputError, match="cannot be read"):
        TopicMap.load(tmp_path / "absent.yaml")


def test_a_wrong_type_under_our_name_is_refused() -> None:
    with pytest.raises(BadInputError, match="/joint_states is of type"):
        TopicMap().find(OURS | {"/joint_states": STRING})
