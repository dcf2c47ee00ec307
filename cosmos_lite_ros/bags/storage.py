# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Where a bag's messages come from: one reader for whole bags, two for damaged files.

``rosbags`` reads whole bags. A file that a crash has cut off has no index any more; what was
written before is still there, and the two scanners here read it in the order of the file.
"""

from __future__ import annotations

import heapq
import sqlite3
import struct
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from io import BytesIO
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

import yaml
import zstandard
from mcap.data_stream import ReadDataStream
from mcap.exceptions import McapError
from mcap.reader import make_reader
from mcap.records import Channel, Chunk, Message, Metadata, Schema
from mcap.stream_reader import StreamReader, get_chunk_data_stream
from rosbags.interfaces import MessageDefinition, MessageDefinitionFormat, Qos
from rosbags.rosbag2 import Reader
from rosbags.rosbag2.metadata import parse_qos

from cosmos_lite_ros.errors import BadInputError

ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
NO_DEFINITION: Final = MessageDefinition(MessageDefinitionFormat.NONE, "")
_FORMATS: Final = {
    "ros2msg": MessageDefinitionFormat.MSG,
    "ros2idl": MessageDefinitionFormat.IDL,
    "omgidl": MessageDefinitionFormat.IDL,
}
# Recorders write in the order of arrival, give or take their caches; this much disorder is mended.
_ORDER_WINDOW_NS: Final = 2_000_000_000
_CHUNK_PART: Final = struct.Struct("<BQ")


class Raw(NamedTuple):
    """One message as stored: topic, log time (ns) and serialized bytes."""

    topic: str
    log_ns: int
    data: bytes


@dataclass(frozen=True)
class StoredTopic:
    """What the storage says about a topic."""

    name: str
    msgtype: str
    count: int
    encoding: str = "cdr"
    definition: MessageDefinition = NO_DEFINITION
    digest: str = ""
    qos: tuple[Qos, ...] = ()


class Source(Protocol):
    """One storage: its topics and its messages in log-time order."""

    storage: str
    topics: list[StoredTopic]
    start_ns: int
    end_ns: int
    custom: dict[str, str]
    notes: list[str]

    def messages(self, names: Collection[str], start_ns: int, stop_ns: int) -> Iterator[Raw]:
        """Messages of these topics with start_ns <= log time < stop_ns."""

    def close(self) -> None:
        """Release the files."""


class WholeSource:
    """A bag folder with metadata.yaml, or one undamaged storage file, by ``rosbags``."""

    def __init__(self, path: Path) -> None:
        self._reader = Reader(path)
        self._reader.open()
        reader: Any = self._reader
        self.storage = _storage_of(path)
        self.start_ns = reader.start_time if reader.message_count else 0
        self.end_ns = reader.end_time if reader.message_count else 0
        self.custom = dict(reader.storage.metadata.custom or {})
        self.notes: list[str] = []
        if reader.compression_format:
            self.notes.append(
                f"compressed with {reader.compression_format} ({reader.compression_mode} by "
                f"{reader.compression_mode})"
            )
        merged: dict[tuple[str, str], StoredTopic] = {}
        for c in reader.connections:
            key = (c.topic, c.msgtype)
            seen = merged.get(key)
            qos = tuple(c.ext.offered_qos_profiles)
            if seen is None:
                merged[key] = StoredTopic(
                    c.topic,
                    c.msgtype,
                    c.msgcount,
                    c.ext.serialization_format,
                    c.msgdef,
                    c.digest,
                    qos,
                )
            else:
                merged[key] = replace(seen, count=seen.count + c.msgcount, qos=seen.qos + qos)
        self.topics = list(merged.values())

    def messages(self, names: Collection[str], start_ns: int, stop_ns: int) -> Iterator[Raw]:
        """See Source."""
        connections = [c for c in self._reader.connections if c.topic in names]
        if connections:
            for c, log_ns, data in self._reader.messages(connections, start_ns, stop_ns):
                yield Raw(c.topic, log_ns, data)

    def close(self) -> None:
        """See Source."""
        self._reader.close()


@dataclass
class _Tally:
    """What a first pass over a damaged file has counted."""

    counts: dict[int, int] = field(default_factory=dict)
    start_ns: int = 0
    end_ns: int = 0

    def add(self, key: int, log_ns: int) -> None:
        self.start_ns = min(self.start_ns, log_ns) if self.counts else log_ns
        self.end_ns = max(self.end_ns, log_ns + 1)
        self.counts[key] = self.counts.get(key, 0) + 1


class McapScan:
    """An MCAP file without a usable index, read from its start to where it breaks."""

    storage = "mcap"

    def __init__(self, path: Path) -> None:
        self._path = path
        self._schemas: dict[int, Schema] = {}
        self._channels: dict[int, Channel] = {}
        self._broken = ""
        self.custom: dict[str, str] = {}
        tally = _Tally()
        for message in self._scan():
            tally.add(message.channel_id, message.log_time)
        self.start_ns, self.end_ns = tally.start_ns, tally.end_ns
        self.notes: list[str] = []
        if self._broken:
            total = sum(tally.counts.values())
            self.notes.append(
                f"{path.name} is cut off or damaged ({self._broken}): {total} messages up to "
                f"{(self.end_ns - self.start_ns) / 1e9:.2f} s are readable"
            )
        self.topics = [self._topic(c, tally.counts.get(c.id, 0)) for c in self._channels.values()]

    def _topic(self, channel: Channel, count: int) -> StoredTopic:
        schema = self._schemas.get(channel.schema_id)
        definition = NO_DEFINITION
        if schema is not None and schema.encoding in _FORMATS:
            text = schema.data.decode("utf-8", "replace")
            definition = MessageDefinition(_FORMATS[schema.encoding], text)
        return StoredTopic(
            channel.topic,
            schema.name if schema is not None else "",
            count,
            channel.message_encoding,
            definition,
            channel.metadata.get("topic_type_hash", ""),
            tuple(_qos(channel.metadata.get("offered_qos_profiles", ""))),
        )

    def _scan(self) -> Iterator[Message]:
        self._broken = ""
        with self._path.open("rb") as stream:
            try:
                for record in StreamReader(stream, emit_chunks=True).records:
                    if isinstance(record, Chunk):
                        yield from self._of_chunk(record)
                    elif isinstance(record, Message):
                        yield record
                    else:
                        self._remember(record)
            except (McapError, struct.error, ValueError, EOFError) as error:
                self._broken = " ".join(str(error).split()) or "it ends in the middle of a record"

    def _remember(self, record: object) -> None:
        if isinstance(record, Schema):
            self._schemas[record.id] = record
        elif isinstance(record, Channel):
            self._channels[record.id] = record
        elif isinstance(record, Metadata) and record.name == "rosbag2":
            self.custom = custom_of(record.metadata.get("serialized_metadata", ""))

    def _of_chunk(self, chunk: Chunk) -> Iterator[Message]:
        """Messages of a chunk in log-time order; of an uncompressed one also when it is cut."""
        if chunk.compression:
            try:
                stream, size = get_chunk_data_stream(chunk, validate_crc=True)
            except (zstandard.ZstdError, RuntimeError) as error:
                raise McapError(f"a compressed chunk is damaged: {error}") from error
            data = stream.read(size)
        else:
            data = chunk.data
        messages: list[Message] = []
        at = 0
        while at + _CHUNK_PART.size <= len(data):
            opcode, length = _CHUNK_PART.unpack_from(data, at)
            at += _CHUNK_PART.size
            if at + length > len(data):
                break
            body = ReadDataStream(BytesIO(data[at : at + length]))
            at += length
            if opcode == 0x03:
                self._remember(Schema.read(body))
            elif opcode == 0x04:
                self._remember(Channel.read(body))
            elif opcode == 0x05:
                messages.append(Message.read(body, length))
        yield from sorted(messages, key=lambda m: m.log_time)

    def messages(self, names: Collection[str], start_ns: int, stop_ns: int) -> Iterator[Raw]:
        """See Source."""
        topics = {c.id: c.topic for c in self._channels.values() if c.topic in names}
        raw = (
            Raw(topics[m.channel_id], m.log_time, m.data)
            for m in self._scan()
            if m.channel_id in topics and start_ns <= m.log_time < stop_ns
        )
        return in_order(raw)

    def close(self) -> None:
        """See Source."""


class SqliteScan:
    """A sqlite3 file that is shorter than it says, read row by row to where it breaks."""

    storage = "sqlite3"

    def __init__(self, path: Path) -> None:
        self._path = path
        # writable_schema is what lets sqlite open a file with missing pages; nothing is written.
        uri = f"{path.resolve().as_uri()}?mode=ro&immutable=1"
        self._database = sqlite3.connect(uri, uri=True, check_same_thread=False)
        self._database.execute("PRAGMA writable_schema=ON")
        self._broken = ""
        self.custom: dict[str, str] = {}
        columns = {row[1] for row in self._rows("PRAGMA table_info(topics)")}
        wanted = ["id", "name", "type", "serialization_format"]
        wanted += [c for c in ("offered_qos_profiles", "type_description_hash") if c in columns]
        rows = [
            dict(zip(wanted, row, strict=True))
            for row in self._rows(f"SELECT {','.join(wanted)} FROM topics")
            if isinstance(row[0], int) and all(isinstance(text, str) for text in row[1:])
        ]
        definitions: dict[str, MessageDefinition] = {}
        if list(self._rows("PRAGMA table_info(message_definitions)")):
            for name, encoding, text in self._rows(
                "SELECT topic_type, encoding, encoded_message_definition FROM message_definitions"
            ):
                if encoding in _FORMATS and isinstance(text, str):
                    definitions[name] = MessageDefinition(_FORMATS[encoding], text)
        self._names = {row["id"]: row["name"] for row in rows}
        tally = _Tally()
        for topic_id, log_ns, _ in self._messages():
            tally.add(topic_id, log_ns)
        self.start_ns, self.end_ns = tally.start_ns, tally.end_ns
        total = sum(tally.counts.values())
        self.notes = [
            f"{path.name} is cut off or damaged ({self._broken or 'pages are missing'}): {total} "
            f"messages up to {(self.end_ns - self.start_ns) / 1e9:.2f} s are readable"
        ]
        self.topics = [
            StoredTopic(
                row["name"],
                row["type"],
                tally.counts.get(row["id"], 0),
                row["serialization_format"],
                definitions.get(row["type"], NO_DEFINITION),
                row.get("type_description_hash", ""),
                tuple(_qos(row.get("offered_qos_profiles", ""))),
            )
            for row in rows
        ]

    def _messages(self) -> Iterator[tuple[int, int, bytes]]:
        # A damaged page may hold rows of anything.
        for row in self._rows("SELECT topic_id, timestamp, data FROM messages"):
            topic_id, log_ns, data = row
            if topic_id in self._names and isinstance(log_ns, int) and isinstance(data, bytes):
                yield topic_id, log_ns, data

    def _rows(self, query: str) -> Iterator[tuple[Any, ...]]:
        try:
            yield from self._database.execute(query)
        except sqlite3.DatabaseError as error:
            self._broken = str(error)

    def messages(self, names: Collection[str], start_ns: int, stop_ns: int) -> Iterator[Raw]:
        """See Source."""
        raw = (
            Raw(self._names[topic_id], log_ns, data)
            for topic_id, log_ns, data in self._messages()
            if self._names[topic_id] in names and start_ns <= log_ns < stop_ns
        )
        return in_order(raw)

    def close(self) -> None:
        """See Source."""
        self._database.close()


def in_order(messages: Iterator[Raw]) -> Iterator[Raw]:
    """Mend disorder of up to two seconds between messages; equal times keep their order."""
    waiting: list[tuple[int, int, Raw]] = []
    for number, message in enumerate(messages):
        heapq.heappush(waiting, (message.log_ns, number, message))
        while waiting and waiting[0][0] < message.log_ns - _ORDER_WINDOW_NS:
            yield heapq.heappop(waiting)[2]
    while waiting:
        yield heapq.heappop(waiting)[2]


def custom_of(serialized_metadata: str) -> dict[str, str]:
    """custom_data of a bag's metadata text as stored inside its files; empty where unreadable."""
    try:
        content = yaml.safe_load(serialized_metadata)
    except yaml.YAMLError:
        return {}
    custom = content.get("custom_data") if isinstance(content, dict) else None
    return {str(k): str(v) for k, v in custom.items()} if isinstance(custom, dict) else {}


def inner_metadata(path: Path) -> dict[str, str]:
    """custom_data that a whole storage file carries inside, for files without metadata.yaml."""
    if path.suffix == ".mcap":
        try:
            with path.open("rb") as stream:
                for record in make_reader(stream).iter_metadata():
                    if record.name == "rosbag2":
                        return custom_of(record.metadata.get("serialized_metadata", ""))
        except (McapError, struct.error, ValueError):
            pass  # the messages do not depend on it
        return {}
    uri = f"{path.resolve().as_uri()}?mode=ro&immutable=1"
    database = sqlite3.connect(uri, uri=True)
    try:
        row = database.execute("SELECT metadata FROM metadata ORDER BY id DESC").fetchone()
    except sqlite3.DatabaseError:
        return {}
    finally:
        database.close()
    return custom_of(row[0]) if row else {}


def sqlite_is_short(path: Path) -> bool:
    """Whether a sqlite3 file holds fewer pages than its header says (a crash cut it off)."""
    with path.open("rb") as stream:
        head = stream.read(100)
    if len(head) < 100 or not head.startswith(b"SQLite format 3\0"):
        raise BadInputError(f"{path} is not a sqlite3 file (or is empty): record the bag again")
    page = int.from_bytes(head[16:18], "big")
    page = 65536 if page == 1 else page
    pages = int.from_bytes(head[28:32], "big")
    valid = head[24:28] == head[92:96]  # only then does the page count mean anything
    return valid and path.stat().st_size < page * pages


def _storage_of(path: Path) -> str:
    if path.is_dir():
        return "mcap" if any(".mcap" in p.name for p in path.iterdir()) else "sqlite3"
    return "mcap" if path.suffix == ".mcap" else "sqlite3"


def _qos(text: str) -> list[Qos]:
    try:
        return list(parse_qos(text))
    except Exception:  # a damaged profile is no reason to refuse the messages
        return []
