# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Message types without ROS: which definition is used, and which is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rosbags.interfaces import MessageDefinition, MessageDefinitionFormat

from cosmos_lite_ros.bags.types import MessageTypes, default_typestore, message_folder
from cosmos_lite_ros.errors import BadInputError

NOTHING = MessageDefinition(MessageDefinitionFormat.NONE, "")


def text(definition: str) -> MessageDefinition:
    return MessageDefinition(MessageDefinitionFormat.MSG, definition)


def test_own_messages_come_from_the_msg_folder() -> None:
    folder = message_folder()
    assert folder is not None
    store = default_typestore()
    names = {path.stem for path in folder.glob("*.msg")}
    assert names >= {"ActionChunk", "ChunkRequest", "ExecutorStatus", "PolicyStatus"}
    for name in names:
        assert f"cosmos_lite_ros/msg/{name}" in store.fielddefs


def test_type_hashes_equal_those_of_the_built_messages() -> None:
    """rosidl writes each type's hash into share; rosbags computes it from the .msg file."""
    ament = pytest.importorskip("ament_index_python.packages")
    try:
        share = ament.get_package_share_directory("cosmos_lite_ros")
    except ament.PackageNotFoundError:
        pytest.skip("the messages are not built here")
    store = default_typestore()
    for name in ("ActionChunk", "ChunkRequest", "ExecutorStatus", "PolicyStatus"):
        described = json.loads(Path(share, "msg", f"{name}.json").read_text())
        hashes = {e["type_name"]: e["hash_string"] for e in described["type_hashes"]}
        full = f"cosmos_lite_ros/msg/{name}"
        assert store.hash_rihs01(full) == hashes[full]


def test_a_known_type_needs_no_definition() -> None:
    types = MessageTypes()
    digest = default_typestore().hash_rihs01("sensor_msgs/msg/Image")
    types.add("sensor_msgs/msg/Image", NOTHING, digest)
    types.add("std_msgs/msg/String", NOTHING, "")
    assert types.problem("sensor_msgs/msg/Image") == types.problem("std_msgs/msg/String") == ""
    assert types.store("sensor_msgs/msg/Image") is default_typestore()
    assert types.starts_with_header("sensor_msgs/msg/Image")
    assert not types.starts_with_header("std_msgs/msg/String")


def test_an_unknown_type_is_decoded_by_the_definition_in_the_bag() -> None:
    types = MessageTypes()
    types.add("lab_msgs/msg/Force", text("float64 newton\nstring sensor\n"), "")
    store = types.store("lab_msgs/msg/Force")
    force = store.types["lab_msgs/msg/Force"](newton=3.5, sensor="left")
    data = store.serialize_cdr(force, "lab_msgs/msg/Force")
    assert store.deserialize_cdr(data, "lab_msgs/msg/Force") == force


def test_another_release_of_a_known_type_is_decoded_by_its_own_definition() -> None:
    types = MessageTypes()
    types.add("std_msgs/msg/String", text("string data\nuint8 extra\n"), "")
    fields = [name for name, _ in types.store("std_msgs/msg/String").fielddefs[
        "std_msgs/msg/String"
    ][1]]  # fmt: skip
    assert fields == ["data", "extra"]
    assert len(default_typestore().fielddefs["std_msgs/msg/String"][1]) == 1


@pytest.mark.parametrize(
    ("msgtype", "definition", "digest", "reason"),
    [
        ("lab_msgs/msg/Force", NOTHING, "", "no definition"),
        ("sensor_msgs/msg/Image", NOTHING, "RIHS01_00", "hash other than Jazzy's"),
        ("lab_msgs/msg/Force", text("float64 newton\n"), "RIHS01_00", "does not match"),
        ("lab_msgs/msg/Force", text("lab_msgs/Missing part\n"), "", "cannot be parsed"),
        ("lab_msgs/msg/Force", text("this is no definition ]["), "", "cannot be parsed"),
        ("x'); import os; ('/msg/A", text("float64 a\n"), "", "not a ROS type name"),
        ("", NOTHING, "", "not a ROS type name"),
    ],
)
def test_what_cannot_be_decoded_is_said(
    msgtype: str, definition: MessageDefinition, digest: str, reason: str
) -> None:
    types = MessageTypes()
    types.add(msgtype, definition, digest)
    assert reason in types.problem(msgtype)
    assert "\n" not in types.problem(msgtype)
    with pytest.raises(BadInputError, match="cannot be decoded"):
        types.store(msgtype)
