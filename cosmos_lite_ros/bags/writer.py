# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Write rosbag2 bags (MCAP or sqlite3) without a ROS installation, with labels that travel along.

Labels lie in rosbag2's own ``custom_data``: in metadata.yaml and inside the storage file, so that
a file copied alone still says which of its topics were never recorded on a robot.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, get_args

from rosbags.interfaces import (
    Connection,
    Qos,
    QosDurability,
    QosHistory,
    QosLiveliness,
    QosReliability,
    QosTime,
)
from rosbags.rosbag2 import StoragePlugin, Writer
from rosbags.rosbag2.enums import CompressionFormat, CompressionMode

from cosmos_lite_ros.bags.types import default_typestore
from cosmos_lite_ros.errors import BadInputError

Storage = Literal["mcap", "sqlite3"]
# zstd over each message, over the file, or (MCAP only) over each chunk of the file.
Compression = Literal["none", "message", "file", "chunk"]
_STORAGES: Final = {"mcap": StoragePlugin.MCAP, "sqlite3": StoragePlugin.SQLITE3}
_COMPRESSIONS: Final = {
    "message": CompressionMode.MESSAGE,
    "file": CompressionMode.FILE,
    "chunk": CompressionMode.STORAGE,
}
_PREFIX: Final = "cosmos_lite_ros."
_UNSET: Final = QosTime(0, 0)


@dataclass(frozen=True)
class BagLabels:
    """Where a bag's contents come from.

    Attributes:
        synthetic: topic -> how it was made, for every topic that no robot or camera produced.
        source: where the recorded topics come from, in words.
        licence: licence of that source, in words.
        seed: seed of everything that was generated, None where nothing was.
    """

    synthetic: Mapping[str, str] = field(default_factory=dict)
    source: str = ""
    licence: str = ""
    seed: int | None = None

    def as_custom(self) -> dict[str, str]:
        """As rosbag2 custom_data."""
        custom = {
            "synthetic_topics": json.dumps(dict(self.synthetic), sort_keys=True),
            "source": self.source,
            "licence": self.licence,
            "seed": "" if self.seed is None else str(self.seed),
        }
        return {_PREFIX + key: value for key, value in custom.items() if value}

    @classmethod
    def of(cls, custom: Mapping[str, str]) -> BagLabels:
        """From a bag's custom_data; empty labels where it holds none of ours."""

        def get(key: str) -> str:
            return str(custom.get(_PREFIX + key, ""))

        try:
            synthetic = json.loads(get("synthetic_topics") or "{}")
        except ValueError:
            synthetic = {}
        if not isinstance(synthetic, dict):
            synthetic = {}
        seed = get("seed")
        return cls(
            {str(k): str(v) for k, v in synthetic.items()},
            get("source"),
            get("licence"),
            int(seed) if seed.isdecimal() else None,
        )


def qos(*, reliable: bool = True, transient_local: bool = False, depth: int = 10) -> Qos:
    """A QoS profile to record with a topic, as its publisher would have offered it."""
    return Qos(
        QosHistory.KEEP_LAST,
        depth,
        QosReliability.RELIABLE if reliable else QosReliability.BEST_EFFORT,
        QosDurability.TRANSIENT_LOCAL if transient_local else QosDurability.VOLATILE,
        _UNSET,
        _UNSET,
        QosLiveliness.AUTOMATIC,
        _UNSET,
        False,
    )


class BagWriter:
    """Writes one bag; a context manager. A bag that failed half-way has no metadata.yaml."""

    def __init__(
        self,
        path: Path,
        *,
        storage: Storage = "mcap",
        compression: Compression = "none",
        labels: BagLabels | None = None,
    ) -> None:
        """Create the bag's folder.

        Raises:
            BadInputError: the path exists, or the storage or compression is unknown.
        """
        if storage not in _STORAGES:
            raise BadInputError(f"storage {storage!r} is unknown, expected mcap or sqlite3")
        if compression not in get_args(Compression) or (storage, compression) == (
            "sqlite3",
            "chunk",
        ):
            raise BadInputError(f"compression {compression!r} is not possible with {storage}")
        if path.exists():
            raise BadInputError(f"{path} exists already: choose another name or remove it")
        self.path = path
        self.types = default_typestore()
        self._writer = Writer(path, version=9, storage_plugin=_STORAGES[storage])
        if compression != "none":
            self._writer.set_compression(_COMPRESSIONS[compression], CompressionFormat.ZSTD)
        for key, value in (labels.as_custom() if labels is not None else {}).items():
            self._writer.set_custom_data(key, value)
        self._connections: dict[str, Connection] = {}

    def __enter__(self) -> BagWriter:
        """Open."""
        try:
            self._writer.open()
        except OSError as error:
            raise BadInputError(
                f"{self.path} cannot be created ({error.strerror}): choose another folder"
            ) from error
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Write the index, or leave it out after an error."""
        self._writer.__exit__(kind, error, trace)

    def add_topic(self, name: str, msgtype: str, profile: Qos | None = None) -> None:
        """Declare a topic before its first message.

        Raises:
            BadInputError: a type that neither Jazzy nor this package has.
        """
        if msgtype not in self.types.fielddefs:
            raise BadInputError(
                f"type {msgtype} of {name} is neither one of Jazzy's nor one of this package"
            )
        self._connections[name] = self._writer.add_connection(
            name,
            msgtype,
            typestore=self.types,
            offered_qos_profiles=[qos() if profile is None else profile],
        )

    def make(self, msgtype: str, **fields: Any) -> Any:
        """A message object; all fields must be given, number sequences as numpy arrays."""
        return self.types.types[msgtype](**fields)

    def header(self, stamp_ns: int, frame_id: str = "") -> Any:
        """A std_msgs/Header."""
        sec, nanosec = divmod(stamp_ns, 1_000_000_000)
        stamp = self.make("builtin_interfaces/msg/Time", sec=sec, nanosec=nanosec)
        return self.make("std_msgs/msg/Header", stamp=stamp, frame_id=frame_id)

    def write(self, topic: str, log_ns: int, message: Any) -> None:
        """Serialize and write one message of a declared topic."""
        connection = self._connections[topic]
        data = self.types.serialize_cdr(message, connection.msgtype)
        self._writer.write(connection, log_ns, bytes(data))

    def write_raw(self, topic: str, log_ns: int, data: bytes) -> None:
        """Write one message that is already serialized."""
        self._writer.write(self._connections[topic], log_ns, data)
