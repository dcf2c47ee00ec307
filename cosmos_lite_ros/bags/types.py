# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Message types without a ROS installation: Jazzy's, ours, and those that a bag carries itself.

A definition out of a bag becomes Python code inside ``rosbags``, so it is only used for a type that
we do not know ourselves, and only after every name in it has been checked to be an identifier.
"""

from __future__ import annotations

import os
import re
import sys
from functools import cache
from pathlib import Path
from typing import Any

from rosbags.interfaces import MessageDefinition, MessageDefinitionFormat, Nodetype
from rosbags.typesys import Stores, get_types_from_idl, get_types_from_msg, get_typestore
from rosbags.typesys.store import Typestore

from cosmos_lite_ros.errors import BadInputError

PACKAGE = "cosmos_lite_ros"
_HEADER = (Nodetype.NAME, "std_msgs/msg/Header")
_TYPE_NAME = re.compile(r"[a-z][a-z0-9_]*(/(msg|srv|action))?/[A-Za-z][A-Za-z0-9_]*")
_IDENTIFIER = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_IDL_SEPARATOR = "=" * 80 + "\n"


def message_folder() -> Path | None:
    """The folder with this package's .msg files: of the source tree or of the installation."""
    here = Path(__file__).resolve()
    candidates = [here.parents[2] / "msg"]
    candidates += [parent / "share" / PACKAGE / "msg" for parent in here.parents]
    prefixes = [*os.environ.get("AMENT_PREFIX_PATH", "").split(os.pathsep), sys.prefix]
    candidates += [Path(p) / "share" / PACKAGE / "msg" for p in prefixes if p]
    return next((c for c in candidates if (c / "ActionChunk.msg").is_file()), None)


@cache
def default_typestore() -> Typestore:
    """Jazzy's message types and, where their .msg files are found, this package's own."""
    store = get_typestore(Stores.ROS2_JAZZY)
    folder = message_folder()
    if folder is not None:
        own: dict[str, Any] = {}
        for path in sorted(folder.glob("*.msg")):
            own |= get_types_from_msg(path.read_text(), f"{PACKAGE}/msg/{path.stem}")
        store.register(own)
    return store


class MessageTypes:
    """The types of one bag: which can be decoded, and why the others cannot."""

    def __init__(self) -> None:
        self._known = default_typestore()
        self._stores: dict[str, Typestore] = {}
        self._problems: dict[str, str] = {}

    def add(self, msgtype: str, definition: MessageDefinition, digest: str) -> None:
        """Make a type of the bag known.

        Args:
            msgtype: for example ``sensor_msgs/msg/Image``.
            definition: the text that the bag carries, format NONE where it carries none.
            digest: the RIHS01 type hash that the bag carries, empty where it carries none.
        """
        if msgtype in self._stores:
            return
        try:
            self._stores[msgtype] = self._resolve(msgtype, definition, digest)
            self._problems.pop(msgtype, None)
        except BadInputError as error:
            self._problems[msgtype] = str(error)
        except Exception as error:  # the parser of a foreign text may raise anything
            self._problems[msgtype] = f"its definition cannot be parsed ({_one_line(error)})"

    def _resolve(self, msgtype: str, definition: MessageDefinition, digest: str) -> Typestore:
        if not _TYPE_NAME.fullmatch(msgtype):
            raise BadInputError("its type name is not a ROS type name")
        known = msgtype in self._known.fielddefs
        if known and digest and self._known.hash_rihs01(msgtype) == digest:
            return self._known
        if definition.format == MessageDefinitionFormat.NONE:
            if known and not digest:
                return self._known
            raise BadInputError(
                "the bag holds no definition and a type hash other than Jazzy's"
                if known
                else "the bag holds no definition and it is neither one of Jazzy's types nor ours"
            )
        parsed = _parse(definition, msgtype)
        if known and all(_same(self._known, name, parsed[name]) for name in parsed):
            return self._known
        store = get_typestore(Stores.EMPTY)
        store.register(parsed)
        if digest and store.hash_rihs01(msgtype) != digest:
            raise BadInputError("its definition does not match the type hash in the bag")
        store.get_msgdef(msgtype)  # a nested type without a definition shows here
        return store

    def problem(self, msgtype: str) -> str:
        """Why a type cannot be decoded; empty if it can."""
        return self._problems.get(msgtype, "")

    def store(self, msgtype: str) -> Typestore:
        """The type store that decodes a type.

        Raises:
            BadInputError: it cannot be decoded; the message says why.
        """
        try:
            return self._stores[msgtype]
        except KeyError:
            why = self._problems.get(msgtype, "it does not occur in the bag")
            raise BadInputError(f"type {msgtype} cannot be decoded: {why}") from None

    def digest(self, msgtype: str) -> str:
        """RIHS01 hash of the definition that decodes a type; empty where there is none."""
        store = self._stores.get(msgtype)
        return store.hash_rihs01(msgtype) if store is not None else ""

    def starts_with_header(self, msgtype: str) -> bool:
        """Whether the first field is a std_msgs/Header, so that its stamp has a fixed place."""
        store = self._stores.get(msgtype)
        fields = store.fielddefs[msgtype][1] if store is not None else []
        return bool(fields) and fields[0][1] == _HEADER


def _parse(definition: MessageDefinition, msgtype: str) -> dict[str, Any]:
    parsed: dict[str, Any] = {}
    if definition.format == MessageDefinitionFormat.MSG:
        parsed = dict(get_types_from_msg(definition.data, msgtype))
    elif definition.data.startswith(f"{_IDL_SEPARATOR}IDL: "):
        for part in definition.data.split(_IDL_SEPARATOR)[1:]:
            parsed |= get_types_from_idl(part.split("\n", 1)[1])
    else:
        parsed = dict(get_types_from_idl(definition.data))
    if msgtype not in parsed:
        raise BadInputError("its definition in the bag describes another type")
    for name, (constants, fields) in parsed.items():
        members = [field[0] for field in fields] + [constant[0] for constant in constants]
        if not _TYPE_NAME.fullmatch(name) or not all(map(_IDENTIFIER.fullmatch, members)):
            raise BadInputError("its definition holds names that are not identifiers")
    return parsed


def _same(store: Typestore, name: str, parsed: Any) -> bool:
    have = store.fielddefs.get(name)
    return have is not None and list(have[1]) == list(parsed[1])


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
