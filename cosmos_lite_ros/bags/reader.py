# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Open a bag and say what is in it, what is missing and what is damaged, before decoding anything.

sqlite3 and MCAP, plain or compressed with zstd, with or without metadata.yaml, also cut off by a
crash. Needs no ROS installation.
"""

from __future__ import annotations

import heapq
import re
import tempfile
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import zstandard
from rosbags.interfaces import Qos

from cosmos_lite_ros.bags.storage import (
    ZSTD_MAGIC,
    McapScan,
    Raw,
    Source,
    SqliteScan,
    StoredTopic,
    WholeSource,
    inner_metadata,
    sqlite_is_short,
)
from cosmos_lite_ros.bags.types import MessageTypes
from cosmos_lite_ros.errors import BadInputError

_ALWAYS = 2**63 - 1


class BagMessage(NamedTuple):
    """One message, still serialized.

    Attributes:
        log_ns: when the recorder received it, ns.
        data: CDR bytes with the 4-byte encapsulation header.
    """

    topic: str
    msgtype: str
    log_ns: int
    data: bytes


@dataclass(frozen=True)
class BagTopic:
    """One topic of a bag.

    Attributes:
        count: messages, as the bag's index says.
        problem: why its messages cannot be decoded; empty if they can.
        starts_with_header: whether the stamp lies at a fixed place (see stamps.py).
        digest: RIHS01 type hash, empty where the bag has none and the type is unknown.
        qos: profiles that its publishers offered while it was recorded.
        encoding: of its messages; ``cdr`` is what ROS 2 sends.
    """

    name: str
    msgtype: str
    count: int
    problem: str
    starts_with_header: bool
    digest: str
    qos: tuple[Qos, ...]
    encoding: str = "cdr"


class Bag:
    """An open bag. Use as a context manager; iterate ``messages`` as often as needed.

    Attributes:
        path: what was opened.
        storage: ``mcap`` or ``sqlite3``.
        topics: name -> BagTopic.
        start_ns, end_ns: log time of the first message, and just after the last; 0 where empty.
        custom: the bag's own key/value metadata (rosbag2 ``custom_data``).
        notes: one line for each thing that a reader should know (missing metadata, damage, types).
    """

    def __init__(self, path: Path | str) -> None:
        """Open.

        Raises:
            BadInputError: nothing there, nothing readable, or no bag; the message says which.
        """
        self.path = Path(path)
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        self.notes: list[str] = []
        self._sources = self._open()
        self.storage = self._sources[0].storage
        for source in self._sources:
            self.notes += source.notes
        self.custom: dict[str, str] = {}
        for source in self._sources:
            self.custom |= source.custom
        self._types = MessageTypes()
        self.topics = self._topics()
        filled = [s for s in self._sources if any(t.count for t in s.topics)]
        self.start_ns = min((s.start_ns for s in filled), default=0)
        self.end_ns = max((s.end_ns for s in filled), default=0)

    def __enter__(self) -> Bag:
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close."""
        self.close()

    def close(self) -> None:
        """Close the files and remove what was unpacked."""
        for source in self._sources:
            source.close()
        if self._scratch is not None:
            self._scratch.cleanup()

    @property
    def message_count(self) -> int:
        """All messages, as the bag's index says."""
        return sum(topic.count for topic in self.topics.values())

    @property
    def duration_s(self) -> float:
        """Time from the first to the last message, s."""
        return max(0, self.end_ns - self.start_ns - 1) / 1e9

    def require_messages(self) -> None:
        """Refuse an empty bag.

        Raises:
            BadInputError: no topics, or topics without a message.
        """
        if not self.message_count:
            what = f"{len(self.topics)} topics and no message" if self.topics else "no topic"
            raise BadInputError(f"the bag {self.path} holds {what}: record it again")

    def require_decodable(self, names: Collection[str]) -> None:
        """Refuse topics whose messages cannot be decoded.

        Raises:
            BadInputError: a topic that the bag lacks, or an unknown type; all in one line.
        """
        problems = [f"{n} is not in the bag" for n in names if n not in self.topics]
        problems += [
            f"{n} ({self.topics[n].msgtype}): {self.topics[n].problem}"
            for n in names
            if n in self.topics and self.topics[n].problem
        ]
        if problems:
            raise BadInputError(f"the bag {self.path} cannot be used: {'; '.join(problems)}")

    def messages(
        self,
        names: Collection[str] | None = None,
        start_ns: int | None = None,
        stop_ns: int | None = None,
    ) -> Iterator[BagMessage]:
        """Messages in log-time order, still serialized.

        Args:
            names: topics; None: all.
            start_ns: first log time, inclusive; None: from the start.
            stop_ns: last log time, exclusive; None: to the end.

        Raises:
            BadInputError: the storage is damaged where this comes to it.
        """
        wanted = frozenset(self.topics if names is None else names)
        start = 0 if start_ns is None else start_ns
        stop = _ALWAYS if stop_ns is None else stop_ns
        done = 0
        unpack = zstandard.ZstdDecompressor()
        try:
            for raw in self._merged(wanted, start, stop):
                data = raw.data
                if data[:4] == ZSTD_MAGIC:  # no CDR message starts like this
                    data = unpack.decompressobj().decompress(data)
                yield BagMessage(raw.topic, self.topics[raw.topic].msgtype, raw.log_ns, data)
                done += 1
        except BadInputError:
            raise
        except Exception as error:  # rosbags, apsw and zstd each have their own
            raise BadInputError(
                f"the bag {self.path} is damaged after {done} messages ({_one_line(error)}): "
                "'ros2 bag reindex' or a fresh recording may help"
            ) from error

    def _merged(self, wanted: frozenset[str], start: int, stop: int) -> Iterator[Raw]:
        streams = [source.messages(wanted, start, stop) for source in self._sources]
        return heapq.merge(*streams, key=lambda raw: raw.log_ns)

    def decode(self, message: BagMessage) -> Any:
        """Decode one message.

        Returns:
            An object with the fields of the ROS message; number sequences are numpy arrays.

        Raises:
            BadInputError: unknown type, or the bytes do not fit the definition.
        """
        store = self._types.store(message.msgtype)
        try:
            return store.deserialize_cdr(message.data, message.msgtype)
        except Exception as error:  # damaged bytes may raise anything
            raise BadInputError(
                f"a message on {message.topic} does not fit {message.msgtype} "
                f"({_one_line(error)}): it is damaged"
            ) from error

    def _open(self) -> list[Source]:
        path = self.path
        if not path.exists():
            raise BadInputError(
                f"{path} does not exist: give a bag folder, or a .mcap or .db3 file"
            )
        if path.is_dir():
            return self._open_folder()
        if path.suffix == ".bag":
            raise BadInputError(
                f"{path} is a ROS 1 bag, expected ROS 2: convert it with 'rosbags-convert'"
            )
        return [self._open_file(path)]

    def _open_folder(self) -> list[Source]:
        metadata = self.path / "metadata.yaml"
        files = sorted(
            (p for p in self.path.iterdir() if _is_storage(p)), key=lambda p: _natural(p.name)
        )
        if metadata.is_file():
            if not files:
                raise BadInputError(
                    f"{self.path} has a metadata.yaml but neither a .mcap nor a .db3 file: copy "
                    "the whole folder"
                )
            try:
                if not any(p.suffix == ".db3" and sqlite_is_short(p) for p in files):
                    return [WholeSource(self.path)]
                why = "a .db3 file is shorter than its header says"
            except BadInputError:
                raise
            except Exception as error:  # rosbags raises many kinds for a damaged bag
                why = _one_line(error)
            self.notes.append(f"the bag does not open as a whole ({why}): read file by file")
        elif files:
            self.notes.append("metadata.yaml is missing: the storage files are read directly")
        else:
            raise BadInputError(
                f"{self.path} is not a bag: it has neither metadata.yaml nor a .mcap or .db3 file"
            )
        sources: list[Source] = []
        failures: list[BadInputError] = []
        for path in files:
            try:
                sources.append(self._open_file(path))
            except BadInputError as error:
                failures.append(error)
        if not sources:
            raise failures[0]
        self.notes += [str(error) for error in failures]
        return sources

    def _open_file(self, path: Path) -> Source:
        if path.stat().st_size == 0:
            raise BadInputError(f"{path} is empty (0 bytes): record the bag again")
        if path.suffix == ".zstd":
            path = self._unpack(path)
        if path.suffix not in (".mcap", ".db3"):
            raise BadInputError(
                f"{path} is no bag file: expected .mcap or .db3 (or either with .zstd)"
            )
        if path.suffix == ".db3" and Path(f"{path}-wal").exists():
            self.notes.append(
                f"{path.name}-wal holds messages that were not merged before the recorder ended: "
                f"they are not read; run: sqlite3 {path.name} 'pragma wal_checkpoint'"
            )
        try:
            if path.suffix == ".mcap" or not sqlite_is_short(path):
                source = WholeSource(path)
                source.custom = inner_metadata(path)
                return source
            why = "it is shorter than its header says"
        except BadInputError:
            raise
        except Exception as error:  # rosbags raises many kinds for a damaged file
            why = _one_line(error)
        scan: Source | None = None
        try:
            scan = McapScan(path) if path.suffix == ".mcap" else SqliteScan(path)
        except Exception as error:  # whatever foreign bytes lead to
            why = f"{why}; {_one_line(error)}"
        if scan is None or not any(topic.count for topic in scan.topics):
            if scan is not None:
                scan.close()
            raise BadInputError(f"no message can be read from {path} ({why}): record it again")
        return scan

    def _unpack(self, path: Path) -> Path:
        if self._scratch is None:
            self._scratch = tempfile.TemporaryDirectory(prefix="cosmos_lite_ros_bag_")
        target = Path(self._scratch.name) / path.stem
        try:
            with path.open("rb") as packed, target.open("wb") as plain:
                zstandard.ZstdDecompressor().copy_stream(packed, plain)
        except zstandard.ZstdError as error:
            raise BadInputError(
                f"{path} cannot be decompressed ({_one_line(error)}): it is damaged"
            ) from error
        self.notes.append(f"{path.name} is compressed with zstd as a file: unpacked to read it")
        return target

    def _topics(self) -> dict[str, BagTopic]:
        stored: dict[str, list[StoredTopic]] = {}
        for source in self._sources:
            for topic in source.topics:
                stored.setdefault(topic.name, []).append(topic)
        topics: dict[str, BagTopic] = {}
        for name, parts in stored.items():
            first = next((p for p in parts if p.definition.data), parts[0])
            kinds = {p.msgtype for p in parts}
            problem = ""
            if len(kinds) > 1:
                problem = f"it occurs with several types: {', '.join(sorted(kinds))}"
            elif first.encoding != "cdr":
                problem = f"its messages are encoded as {first.encoding!r}, expected 'cdr'"
            else:
                self._types.add(first.msgtype, first.definition, first.digest)
                problem = self._types.problem(first.msgtype)
            topics[name] = BagTopic(
                name,
                first.msgtype,
                sum(p.count for p in parts),
                problem,
                self._types.starts_with_header(first.msgtype) and not problem,
                first.digest or self._types.digest(first.msgtype),
                tuple(q for p in parts for q in p.qos),
                first.encoding,
            )
            if problem:
                self.notes.append(f"{name} ({first.msgtype}) cannot be decoded: {problem}")
        return topics


def _is_storage(path: Path) -> bool:
    name = path.name.removesuffix(".zstd")
    return path.is_file() and name.endswith((".mcap", ".db3"))


def _natural(name: str) -> list[tuple[int, str]]:
    """Sort key that puts part_10 after part_9."""
    return [(int(p), "") if p.isdigit() else (-1, p) for p in re.split(r"(\d+)", name)]


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
