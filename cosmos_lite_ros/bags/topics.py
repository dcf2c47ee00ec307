# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Which topic of a bag is which input of the policy.

Names are ours (relative: ``wrist/image``, ``joint_states`` and so on), in any one namespace, or
given by a map from the bag's own names to ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import yaml

from cosmos_lite_ros.contract.constants import VIEWS, View
from cosmos_lite_ros.errors import BadInputError

COMPRESSED: Final = "/compressed"
IMAGE_TOPICS: Final[dict[View, str]] = {view: f"{view}/image" for view in VIEWS}
JOINT_STATES: Final = "joint_states"
GRIPPER_JOINT_STATES: Final = "gripper/joint_states"
INSTRUCTION: Final = "instruction"
INPUTS: Final[tuple[str, ...]] = (
    *IMAGE_TOPICS.values(),
    JOINT_STATES,
    GRIPPER_JOINT_STATES,
    INSTRUCTION,
)

IMAGE: Final = "sensor_msgs/msg/Image"
COMPRESSED_IMAGE: Final = "sensor_msgs/msg/CompressedImage"
JOINT_STATE: Final = "sensor_msgs/msg/JointState"
STRING: Final = "std_msgs/msg/String"
_TYPES: Final[dict[str, tuple[str, ...]]] = {
    **dict.fromkeys(IMAGE_TOPICS.values(), (COMPRESSED_IMAGE, IMAGE)),
    JOINT_STATES: (JOINT_STATE,),
    GRIPPER_JOINT_STATES: (JOINT_STATE,),
    INSTRUCTION: (STRING,),
}


@dataclass(frozen=True)
class BagInputs:
    """The policy's inputs as found in one bag; all names are the bag's own.

    Attributes:
        images: view -> topic.
        joint_states: topics with joint states, arm first; they are merged by joint name.
        instruction: topic with the instruction, None where the bag has none.
        missing: our names of what was not found (never the gripper's topic: a driver may report
            arm and gripper in one message).
        notes: what was chosen where there was a choice.
    """

    images: Mapping[View, str]
    joint_states: tuple[str, ...]
    instruction: str | None
    missing: tuple[str, ...]
    notes: tuple[str, ...] = ()

    def names(self) -> tuple[str, ...]:
        """All topics used."""
        last = () if self.instruction is None else (self.instruction,)
        return (*self.images.values(), *self.joint_states, *last)


@dataclass(frozen=True)
class TopicMap:
    """A map from a bag's own topic names to our input names; empty: the bag uses our names."""

    names: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Normalise our names and refuse unknown ones."""
        cleaned = {}
        for theirs, ours in self.names.items():
            name = str(ours).strip("/").removesuffix(COMPRESSED)
            if name not in INPUTS:
                raise BadInputError(
                    f"the topic map sends {theirs!r} to {ours!r}, expected one of "
                    f"{', '.join(INPUTS)}"
                )
            cleaned[_absolute(str(theirs))] = name
        object.__setattr__(self, "names", cleaned)

    @classmethod
    def load(cls, path: Path) -> TopicMap:
        """Read a YAML file of ``bag topic: our input`` lines.

        Raises:
            BadInputError: not such a file, or an unknown input name.
        """
        try:
            content = yaml.safe_load(path.read_text())
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            why = " ".join(str(error).split())
            raise BadInputError(f"the topic map {path} cannot be read: {why}") from error
        if not isinstance(content, dict):
            raise BadInputError(
                f"the topic map {path} is not a YAML mapping: write one line for each topic, "
                "'/bag/topic: wrist/image'"
            )
        return cls({str(k): str(v) for k, v in content.items()})

    def find(self, types: Mapping[str, str]) -> BagInputs:
        """Find the inputs among a bag's topics.

        Args:
            types: topic name -> message type of the whole bag.

        Raises:
            BadInputError: the map names a topic that the bag lacks or one of a wrong type, or two
                topics would serve the same input.
        """
        for theirs, ours in self.names.items():
            if theirs not in types:
                raise BadInputError(
                    f"the topic map names {theirs}, which the bag lacks; it holds: "
                    f"{', '.join(sorted(types)) or 'nothing'}"
                )
            _check_type(theirs, types[theirs], ours)
        found: dict[str, list[str]] = {name: [] for name in INPUTS}
        for theirs, ours in self.names.items():
            found[ours].append(theirs)
        notes: list[str] = []
        namespace = _namespace(types)
        for ours in INPUTS:
            if not found[ours]:
                found[ours] = _by_name(ours, namespace, types, notes)
        for ours, topics in found.items():
            if len(topics) > 1 and ours not in (JOINT_STATES, GRIPPER_JOINT_STATES):
                raise BadInputError(
                    f"{' and '.join(topics)} both serve {ours}: keep one in the topic map"
                )
        optional = {GRIPPER_JOINT_STATES}
        joints = dict.fromkeys(found[JOINT_STATES] + found[GRIPPER_JOINT_STATES])
        return BagInputs(
            images={v: found[name][0] for v, name in IMAGE_TOPICS.items() if found[name]},
            joint_states=tuple(joints),
            instruction=next(iter(found[INSTRUCTION]), None),
            missing=tuple(n for n in INPUTS if not found[n] and n not in optional),
            notes=tuple(notes),
        )


def _absolute(name: str) -> str:
    return "/" + name.strip().lstrip("/")


def _check_type(topic: str, msgtype: str, ours: str) -> None:
    if msgtype not in _TYPES[ours]:
        raise BadInputError(
            f"{topic} is of type {msgtype}, expected {' or '.join(_TYPES[ours])} for {ours}"
        )


def _namespace(types: Mapping[str, str]) -> str:
    """The one namespace below which our names occur; the root wins.

    Raises:
        BadInputError: several namespaces hold our camera topics, and none is the root.
    """
    roots: set[str] = set()
    for topic in types:
        plain = topic.removesuffix(COMPRESSED)
        for ours in IMAGE_TOPICS.values():
            if plain.endswith("/" + ours):
                roots.add(plain.removesuffix("/" + ours))
    if len(roots) > 1 and "" not in roots:
        raise BadInputError(
            f"the bag holds camera topics in several namespaces ({', '.join(sorted(roots))}): "
            "choose with a topic map"
        )
    return "" if "" in roots or not roots else roots.pop()


def _by_name(ours: str, namespace: str, types: Mapping[str, str], notes: list[str]) -> list[str]:
    plain = f"{namespace}/{ours}"
    names: Iterable[str] = (plain + COMPRESSED, plain) if ours.endswith("/image") else (plain,)
    found = [name for name in names if name in types]
    for name in found:
        _check_type(name, types[name], ours)
    if len(found) > 1:
        notes.append(f"both {' and '.join(found)} are there: {found[0]} is used")
    return found[:1]
