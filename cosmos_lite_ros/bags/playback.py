# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What may be played back, when each message is due, and which stamp it gets. No ROS here.

A recorded command played beside a live arm moves it. So only what sensors say is played unless a
topic is named: sensor messages, and the instruction, which moves nothing before ``~/resume``.

Stamps. The recorded ones are old, so a policy that checks ages would drop every message. With
``now``, a message that was recorded d seconds after its stamp is published with a stamp d seconds
before the instant at which it is due: latencies and skews stay as recorded, and a frozen stamp
stays frozen. Zero and negative stamps stay as they are, being invalid on purpose. With a loop each
pass starts 0.1 s after the end of the one before, so stamps go on increasing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from cosmos_lite_ros.bags.reader import Bag, BagMessage, BagTopic
from cosmos_lite_ros.bags.stamps import header_stamp_ns, with_stamp
from cosmos_lite_ros.bags.topics import INSTRUCTION, STRING
from cosmos_lite_ros.errors import BadInputError

Stamps = Literal["now", "keep"]

LOOP_GAP_NS: Final = 100_000_000
_NS: Final = 1_000_000_000
_STAMP_END_NS: Final = 2**31 * _NS
_SENSORS: Final = "sensor_msgs/msg/"
_OPERATOR_INPUTS: Final = ("Joy", "JoyFeedback", "JoyFeedbackArray")
# Names of commands, stops and requests, whatever their type: ours, ros2_control's, drivers'.
_COMMAND_NAMES: Final = frozenset(
    {
        "joint_trajectory",
        "command_preview",
        "gripper_cmd",
        "gripper_command",
        "enable",
        "emergency_stop",
        "robot_ready",
        "chunk_request",
        "action_chunk",
        "policy_status",
        "executor_status",
        "clock",
    }
)
_COMMAND_WORD: Final = re.compile(
    r"(^|_)(cmd|cmds|command|commands|commanded|desired|target|targets|goal|goals|setpoint|"
    r"setpoints|reference|references|trajectory|stop|estop)(_|$)"
)


def refusal(name: str, msgtype: str) -> str:
    """Why a topic is not played unless it is named; empty if it is.

    Args:
        name: its name, in any namespace.
        msgtype: for example ``sensor_msgs/msg/Image``.
    """
    parts = [part for part in name.lower().split("/") if part]
    # The last two parts are a topic's own; before them come namespaces, which may be any words.
    words = [part for part in parts[-2:] if _COMMAND_WORD.search(part)]
    words += [part for part in parts if part in _COMMAND_NAMES]
    if words:
        return f"{words[0]!r} names a command, a stop, a request or a clock"
    if msgtype.startswith(_SENSORS):
        kind = msgtype.removeprefix(_SENSORS)
        return f"{kind} is an operator's input" if kind in _OPERATOR_INPUTS else ""
    if msgtype == STRING and parts and parts[-1] == INSTRUCTION:
        return ""
    return f"{msgtype} is not a sensor's message"


@dataclass(frozen=True)
class Selection:
    """Topics to play (bag name -> name to publish on) and those left out, with the reason."""

    names: Mapping[str, str]
    left_out: Mapping[str, str]


def absolute(name: str) -> str:
    """A name with exactly one leading slash."""
    return "/" + name.strip().lstrip("/")


def select(
    topics: Mapping[str, BagTopic],
    *,
    only: Collection[str] = (),
    publish: Collection[str] = (),
    remap: Mapping[str, str] | None = None,
    resolve: Callable[[str], str] = absolute,
) -> Selection:
    """Choose what to play.

    Args:
        topics: of the bag.
        only: names in the bag; empty: all.
        publish: names (in the bag, or as published) that are played although they may move
            something.
        remap: name in the bag -> name to publish on (relative, or absolute with a slash).
        resolve: from such a name to the final one, with namespace and ROS remappings.

    Raises:
        BadInputError: a name that the bag lacks, two topics on one name, or a topic in ``only``
            that may not be played.
    """
    remap = {absolute(old): new for old, new in (remap or {}).items()}
    wanted = {absolute(name) for name in only}
    named = {absolute(name) for name in publish}
    final = {name: resolve(remap.get(name, name.lstrip("/"))) for name in topics}
    aliases = {n: {n, absolute(remap.get(n, n)), final[n]} for n in topics}
    lacking = sorted((wanted | set(remap)) - set(topics))
    lacking += sorted(named - set().union(*aliases.values()))
    if lacking:
        raise BadInputError(
            f"{lacking[0]} is not in the bag; it holds: {', '.join(sorted(topics)) or 'nothing'}"
        )
    names: dict[str, str] = {}
    left_out: dict[str, str] = {}
    for name, topic in topics.items():
        allowed = bool(named & aliases[name])
        if wanted and name not in wanted and not allowed:
            continue
        why = refusal(name, topic.msgtype) or refusal(final[name], topic.msgtype) or topic.problem
        if topic.encoding != "cdr":
            why, allowed = topic.problem, False
        elif why:
            why += f"; --publish {name} plays it all the same"
        if why and not allowed:
            if name in wanted:
                raise BadInputError(f"{name} is not played: {why}")
            left_out[name] = why
        elif final[name] in names.values():
            raise BadInputError(
                f"two topics would be published on {final[name]}: remap one of them"
            )
        else:
            names[name] = final[name]
    if not names:
        reasons = "; ".join(f"{name}: {why}" for name, why in left_out.items())
        raise BadInputError(f"nothing to play: {reasons or 'the bag holds no topic'}")
    return Selection(names, left_out)


def parse_remaps(texts: Iterable[str]) -> dict[str, str]:
    """``old:=new`` texts as a map.

    Raises:
        BadInputError: another form.
    """
    remaps: dict[str, str] = {}
    for text in texts:
        old, separator, new = text.partition(":=")
        if not (old and separator and new):
            raise BadInputError(f"cannot read the remapping {text!r}, expected OLD:=NEW")
        remaps[old] = new
    return remaps


class Due(NamedTuple):
    """One message to publish: when, on the player's own axis from 0, and what.

    Attributes:
        due_ns: after the first message of the first pass, ns, with rate and gaps applied.
        number: pass, from 0.
        bag_s: time in the bag, s.
    """

    due_ns: int
    number: int
    bag_s: float
    message: BagMessage


@dataclass(frozen=True)
class Playback:
    """When each message is due.

    Attributes:
        rate: 1 is as recorded, 2 twice as fast.
        start_s: skip this much of the bag; the newest message before it of each latched topic is
            still published, at once.
        duration_s: play this much of the bag; None: to its end.
        loop: start again at the end, for ever.
        latched: topics offered as transient local: in later passes a message that is already
            latched is not published again, since to a receiver it would be a new one.
    """

    rate: float = 1.0
    start_s: float = 0.0
    duration_s: float | None = None
    loop: bool = False
    latched: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        """Check the numbers."""
        if not 0.01 <= self.rate <= 100:
            raise BadInputError(f"rate {self.rate} is not within 0.01..100")
        if self.start_s < 0 or (self.duration_s is not None and not self.duration_s > 0):
            raise BadInputError(
                f"start {self.start_s} s and duration {self.duration_s} s must be positive"
            )

    def span_ns(self, bag: Bag) -> tuple[int, int]:
        """Log times of what is played: first, and just after the last, ns.

        Raises:
            BadInputError: the bag is empty or shorter than ``start_s``.
        """
        bag.require_messages()
        begin = bag.start_ns + round(self.start_s * _NS)
        if begin >= bag.end_ns:
            raise BadInputError(
                f"the bag is {bag.duration_s:.2f} s long: it cannot start at {self.start_s} s"
            )
        end = bag.end_ns
        if self.duration_s is not None:
            end = min(end, begin + round(self.duration_s * _NS))
        return begin, end

    def schedule(self, bag: Bag, names: Collection[str]) -> Iterator[Due]:
        """All messages in the order in which they are due."""
        begin, end = self.span_ns(bag)
        pass_ns = round((end - begin) / self.rate) + LOOP_GAP_NS
        latched: dict[str, bytes] = {}
        for message in self._latched_before(bag, names, begin):
            latched[message.topic] = message.data
            yield Due(0, 0, 0.0, message)
        number = 0
        while True:
            played = 0
            for message in bag.messages(names, begin, end):
                if message.topic in self.latched:
                    if latched.get(message.topic) == message.data:
                        continue
                    latched[message.topic] = message.data
                since_ns = message.log_ns - begin
                due_ns = number * pass_ns + round(since_ns / self.rate)
                yield Due(due_ns, number, (message.log_ns - bag.start_ns) / _NS, message)
                played += 1
            if not self.loop or not played:  # nothing left but what is latched
                return
            number += 1

    def _latched_before(
        self, bag: Bag, names: Collection[str], begin: int
    ) -> Collection[BagMessage]:
        wanted = self.latched & set(names)
        if begin <= bag.start_ns or not wanted:
            return ()
        newest = {m.topic: m for m in bag.messages(wanted, None, begin)}
        return newest.values()


def restamped(message: BagMessage, due_wall_ns: int) -> bytes:
    """The bytes of a message with its header stamp moved to now; see the module.

    Args:
        message: of a type that starts with a header.
        due_wall_ns: ROS time at which it is due, ns.
    """
    stamp_ns = header_stamp_ns(message.data)
    if stamp_ns is None or stamp_ns <= 0:
        return message.data
    moved_ns = due_wall_ns - (message.log_ns - stamp_ns)
    # An absurd stamp may leave what int32 seconds can hold; it stays absurd.
    return with_stamp(message.data, moved_ns) if 0 <= moved_ns < _STAMP_END_NS else message.data
