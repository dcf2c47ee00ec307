# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Whole bags read as written; of broken ones what is there, or one line that says why not."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from mcap.writer import Writer
from rosbags.interfaces import QosDurability, QosReliability

from cosmos_lite_ros.bags.info import inspect
from cosmos_lite_ros.bags.reader import Bag
from cosmos_lite_ros.bags.storage import Raw, in_order
from cosmos_lite_ros.bags.types import default_typestore
from cosmos_lite_ros.bags.writer import BagLabels, BagWriter, Compression, Storage, qos
from cosmos_lite_ros.errors import BadInputError

from .makers import NS, START_NS, STORAGES, joints_bag, string

COUNT = 200


def positions(bag: Bag) -> list[float]:
    """First joint of every joint state."""
    return [float(bag.decode(m).position[0]) for m in bag.messages(["/joint_states"])]


def storage_file(folder: Path) -> Path:
    (found,) = (p for p in folder.iterdir() if p.name != "metadata.yaml")
    return found


def cut(path: Path, share: float) -> None:
    os.truncate(path, int(path.stat().st_size * share))


KINDS = [
    *((storage, packed) for storage in STORAGES for packed in ("none", "message", "file")),
    ("mcap", "chunk"),
]


@pytest.mark.parametrize(("storage", "compression"), KINDS)
def test_round_trip(tmp_path: Path, storage: Storage, compression: Compression) -> None:
    path = joints_bag(tmp_path / "bag", storage=storage, compression=compression)
    with Bag(path) as bag:
        assert bag.storage == storage
        assert bag.message_count == COUNT
        assert positions(bag) == [k / 1000 for k in range(COUNT)]
        assert positions(bag) == [k / 1000 for k in range(COUNT)]  # again
        log = [m.log_ns for m in bag.messages()]
        assert log == [START_NS + k * NS // 100 + 1_000_000 for k in range(COUNT)]
        assert (bag.start_ns, bag.end_ns) == (log[0], log[-1] + 1)
        half = [m.log_ns for m in bag.messages(None, log[50], log[60])]
        assert half == log[50:60]
        topic = bag.topics["/joint_states"]
        assert topic.starts_with_header
        assert topic.digest.startswith("RIHS01_")
        assert topic.qos[0].depth == 7
        assert topic.qos[0].reliability is QosReliability.RELIABLE


@pytest.mark.parametrize("storage", STORAGES)
def test_own_messages_and_labels_round_trip(tmp_path: Path, storage: Storage) -> None:
    labels = BagLabels({"/chunks": "synthetic: ramp"}, "a test", "none", 7)
    kind = "cosmos_lite_ros/msg/ChunkRequest"
    with BagWriter(tmp_path / "bag", storage=storage, labels=labels) as writer:
        writer.add_topic("/chunks", kind, qos(depth=1, transient_local=True))
        request = _request(writer)
        writer.write("/chunks", START_NS, request)
    with Bag(tmp_path / "bag") as bag:
        (message,) = bag.messages()
        decoded = bag.decode(message)
        assert decoded.request_id == 2**63 + 1
        assert decoded.instruction == "grüße den Becher"
        assert decoded.prefix_positions.tolist() == list(range(7))
        assert bag.topics["/chunks"].qos[0].durability is QosDurability.TRANSIENT_LOCAL
        assert BagLabels.of(bag.custom) == labels
    # The labels lie in the storage file too, for a file that is copied alone.
    with Bag(storage_file(tmp_path / "bag")) as bag:
        assert BagLabels.of(bag.custom) == labels


def _request(writer: BagWriter) -> Any:
    return writer.make(
        "cosmos_lite_ros/msg/ChunkRequest",
        header=writer.header(START_NS),
        request_id=2**63 + 1,
        epoch=3,
        instruction="grüße den Becher",
        instruction_sha256="00",
        reason=2,
        prefix_rows=1,
        prefix_positions=np.arange(7.0),
    )


@pytest.mark.parametrize(("storage", "compression"), KINDS)
def test_without_metadata(tmp_path: Path, storage: Storage, compression: Compression) -> None:
    path = joints_bag(tmp_path / "bag", storage=storage, compression=compression)
    (path / "metadata.yaml").unlink()
    with Bag(path) as bag:
        assert positions(bag) == [k / 1000 for k in range(COUNT)]
        assert any("metadata.yaml is missing" in note for note in bag.notes)
        assert bag.topics["/joint_states"].qos[0].depth == 7


def test_a_split_bag_without_metadata_is_read_in_order(tmp_path: Path) -> None:
    """Part 10 comes after part 9, and parts may overlap in time."""
    folder = tmp_path / "split"
    folder.mkdir()
    for part in range(12):
        with BagWriter(tmp_path / f"p{part}") as writer:
            writer.add_topic("/text", "std_msgs/msg/String")
            for k in range(3):
                log_ns = START_NS + (part * 3 + k) * 1000
                writer.write("/text", log_ns, string(writer, f"{part}.{k}"))
        shutil.move(tmp_path / f"p{part}" / f"p{part}.mcap", folder / f"split_{part}.mcap")
    with Bag(folder) as bag:
        texts = [bag.decode(m).data for m in bag.messages()]
        assert texts == [f"{part}.{k}" for part in range(12) for k in range(3)]
        assert bag.message_count == 36


@pytest.mark.parametrize("with_metadata", [True, False])
@pytest.mark.parametrize("storage", STORAGES)
def test_a_file_cut_off_by_a_crash(tmp_path: Path, storage: Storage, with_metadata: bool) -> None:
    path = joints_bag(tmp_path / "bag", storage=storage, count=1000, padding=6000)
    cut(storage_file(path), 0.6)
    if not with_metadata:
        (path / "metadata.yaml").unlink()
    with Bag(path) as bag:
        found = positions(bag)
        assert 400 < len(found) < 800
        assert found == [k / 1000 for k in range(len(found))]
        (note,) = (n for n in bag.notes if "cut off" in n)
        assert f"{bag.message_count} messages" in note
        # The same topics in the measured view, with what is really there.
        info = inspect(bag)
        assert sum(t.count for t in info.topics) == bag.message_count


def test_a_cut_off_mcap_with_compressed_chunks(tmp_path: Path) -> None:
    path = joints_bag(tmp_path / "bag", compression="chunk", count=1000, padding=6000)
    cut(storage_file(path), 0.6)
    with Bag(path) as bag:
        found = positions(bag)
        # Whole chunks only: the last one is lost.
        assert 150 < len(found) < 1000
        assert found == [k / 1000 for k in range(len(found))]
        assert any("cut off" in note for note in bag.notes)


def test_an_mcap_of_another_recorder(tmp_path: Path) -> None:
    """No ros2 profile, one topic in JSON, one in CDR with an embedded definition."""
    store = default_typestore()
    point = store.types["geometry_msgs/msg/Point"](x=1.0, y=2.0, z=3.0)
    with (tmp_path / "a.mcap").open("wb") as stream:
        writer = Writer(stream)
        writer.start()
        schema = writer.register_schema(
            "lab_msgs/msg/P", "ros2msg", b"float64 x\nfloat64 y\nfloat64 z"
        )
        cdr = writer.register_channel("/point", "cdr", schema)
        json_schema = writer.register_schema("Plain", "jsonschema", b"{}")
        plain = writer.register_channel("/plain", "json", json_schema)
        data = bytes(store.serialize_cdr(point, "geometry_msgs/msg/Point"))
        for k in range(3):
            writer.add_message(cdr, START_NS + k, data, START_NS + k)
            writer.add_message(plain, START_NS + k, b"{}", START_NS + k)
        writer.finish()
    with Bag(tmp_path / "a.mcap") as bag:
        assert "encoded as 'json'" in bag.topics["/plain"].problem
        decoded = [bag.decode(m) for m in bag.messages(["/point"])]
        assert [(p.x, p.y, p.z) for p in decoded] == [(1.0, 2.0, 3.0)] * 3


def test_damage_inside_a_chunk_is_one_line(tmp_path: Path) -> None:
    """Bytes flipped in the middle of a compressed bag: read up to there, then say so."""
    path = joints_bag(tmp_path / "bag", compression="message")
    file = storage_file(path)
    data = bytearray(file.read_bytes())
    middle = len(data) // 3
    data[middle : middle + 40] = b"\xff" * 40
    file.write_bytes(data)
    with Bag(path) as bag, pytest.raises(BadInputError, match="damaged after") as caught:
        list(bag.messages())
    assert "\n" not in str(caught.value)
    with Bag(path) as bag:
        assert any("damaged" in note for note in inspect(bag).notes)


@pytest.mark.parametrize("storage", STORAGES)
def test_an_empty_bag(tmp_path: Path, storage: Storage) -> None:
    path = joints_bag(tmp_path / "bag", storage=storage, count=0)
    with Bag(path) as bag:
        assert bag.message_count == 0
        assert inspect(bag).duration_s == 0
        with pytest.raises(BadInputError, match="1 topics and no message"):
            bag.require_messages()


def test_unknown_type_and_missing_topic_are_said_together(tmp_path: Path) -> None:
    """A sqlite3 bag of an older release: no definitions, no hashes, a type that nobody knows."""
    path = joints_bag(tmp_path / "bag", storage="sqlite3", padding=60)
    database = sqlite3.connect(storage_file(path))
    database.execute("DELETE FROM message_definitions")
    database.execute("UPDATE topics SET type_description_hash='', type='lab_msgs/msg/Blob' "
                     "WHERE name='/padding'")  # fmt: skip
    database.execute("UPDATE topics SET type_description_hash=''")
    database.commit()
    database.close()
    text = (path / "metadata.yaml").read_text()
    content = yaml.safe_load(text)
    for entry in content["rosbag2_bagfile_information"]["topics_with_message_count"]:
        entry["topic_metadata"]["type_description_hash"] = ""
        if entry["topic_metadata"]["name"] == "/padding":
            entry["topic_metadata"]["type"] = "lab_msgs/msg/Blob"
    (path / "metadata.yaml").write_text(yaml.safe_dump(content))
    with Bag(path) as bag:
        assert positions(bag)[:3] == [0.0, 0.001, 0.002]  # a standard type needs no definition
        assert "no definition" in bag.topics["/padding"].problem
        with pytest.raises(BadInputError) as caught:
            bag.require_decodable(["/padding", "/elbow"])
    assert "/elbow is not in the bag" in str(caught.value)
    assert "/padding (lab_msgs/msg/Blob)" in str(caught.value)


def _nothing(folder: Path) -> Path:
    return folder / "absent"


def _no_bag(folder: Path) -> Path:
    (folder / "notes.txt").write_text("hello")
    return folder


def _only_metadata(folder: Path) -> Path:
    path = joints_bag(folder / "bag")
    storage_file(path).unlink()
    return path


def _zero_bytes(folder: Path) -> Path:
    (folder / "a.mcap").touch()
    return folder / "a.mcap"


def _garbage_mcap(folder: Path) -> Path:
    (folder / "a.mcap").write_bytes(b"no bag at all" * 100)
    return folder / "a.mcap"


def _garbage_db3(folder: Path) -> Path:
    (folder / "a.db3").write_bytes(b"no bag at all" * 100)
    return folder / "a.db3"


def _ros1(folder: Path) -> Path:
    (folder / "a.bag").write_bytes(b"#ROSBAG V2.0\n")
    return folder / "a.bag"


def _other_file(folder: Path) -> Path:
    (folder / "a.mp4").write_bytes(b"x")
    return folder / "a.mp4"


def _head_only(folder: Path) -> Path:
    path = joints_bag(folder / "bag")
    os.truncate(storage_file(path), 60)
    return path


def _damaged_zstd(folder: Path) -> Path:
    path = joints_bag(folder / "bag", compression="file")
    file = storage_file(path)
    file.write_bytes(b"\x28\xb5\x2f\xfd" + b"\xff" * 100)
    return path


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (_nothing, "does not exist"),
        (_no_bag, "is not a bag"),
        (_only_metadata, "neither a .mcap nor a .db3"),
        (_zero_bytes, "empty"),
        (_garbage_mcap, "no message can be read"),
        (_garbage_db3, "not a sqlite3 file"),
        (_ros1, "ROS 1"),
        (_other_file, "no bag file"),
        (_head_only, "no message can be read"),
        (_damaged_zstd, "cannot be decompressed"),
    ],
)
def test_what_cannot_be_read_is_one_line(make: Any, reason: str, tmp_path: Path) -> None:
    path = make(tmp_path)
    with pytest.raises(BadInputError, match=reason) as caught:
        Bag(path)
    assert "\n" not in str(caught.value)


@settings(max_examples=60, deadline=None)
@given(
    storage=st.sampled_from(STORAGES),
    share=st.floats(0.0, 1.0),
    flips=st.lists(
        st.tuples(st.floats(0.0, 1.0, exclude_max=True), st.binary(min_size=1, max_size=64))
    ),
    with_metadata=st.booleans(),
)
def test_whatever_happened_to_the_bytes(
    storage: Storage, share: float, flips: list[tuple[float, bytes]], with_metadata: bool
) -> None:
    """Cut anywhere and overwritten anywhere: messages, or an error of ours in one line."""
    with tempfile.TemporaryDirectory() as folder:
        path = joints_bag(Path(folder) / "bag", storage=storage, padding=600)
        file = storage_file(path)
        data = bytearray(file.read_bytes())
        for place, new in flips:
            at = int(place * len(data))
            data[at : at + len(new)] = new
        file.write_bytes(data[: int(share * len(data))])
        if not with_metadata:
            (path / "metadata.yaml").unlink()
        said = ""
        try:
            with Bag(path) as bag:
                inspect(bag)
                for message in bag.messages():
                    assert message.topic in bag.topics
        except BadInputError as error:
            said = str(error)
        assert "\n" not in said


def test_a_message_that_does_not_fit_its_type(tmp_path: Path) -> None:
    with BagWriter(tmp_path / "bag") as writer:
        writer.add_topic("/joint_states", "sensor_msgs/msg/JointState")
        writer.write_raw("/joint_states", START_NS, b"\x00\x01\x00\x00\x07")
    with Bag(tmp_path / "bag") as bag:
        (message,) = bag.messages()
        with pytest.raises(BadInputError, match="/joint_states does not fit"):
            bag.decode(message)


def test_order_is_mended() -> None:
    times = [5, 3, 4, 9, 8, 8]
    raw = (Raw("/a", t, bytes([i])) for i, t in enumerate(times))
    assert [(m.log_ns, m.data[0]) for m in in_order(raw)] == [
        (3, 1),
        (4, 2),
        (5, 0),
        (8, 4),
        (8, 5),
        (9, 3),
    ]


def test_the_writer_refuses_what_exists_and_what_it_does_not_know(tmp_path: Path) -> None:
    path = joints_bag(tmp_path / "bag")
    with pytest.raises(BadInputError, match="exists already"):
        BagWriter(path)
    with pytest.raises(BadInputError, match="not possible with sqlite3"):
        BagWriter(tmp_path / "third", storage="sqlite3", compression="chunk")
    with BagWriter(tmp_path / "other") as writer, pytest.raises(BadInputError, match="neither"):
        writer.add_topic("/a", "lab_msgs/msg/Blob")
