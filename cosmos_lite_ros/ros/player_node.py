# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Play a bag: its messages as the bytes that were recorded, on topics of one's own namespace.

Nothing is decoded; header stamps are moved to now in place (see bags/playback.py, which also says
what is never played unless it is named). A topic with another publisher is refused, when the player
starts and while it plays: two sources of joint states would mislead whoever moves the arm by them.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NoReturn, cast, get_args

import rclpy
from rclpy.duration import Duration
from rclpy.exceptions import NameValidationException
from rclpy.node import Node
from rclpy.publisher import Publisher
from rclpy.qos import DurabilityPolicy, HistoryPolicy, QoSProfile, ReliabilityPolicy
from rclpy.signals import SignalHandlerOptions
from rich.console import Console
from rosbags.interfaces import Qos, QosDurability, QosHistory, QosReliability

from cosmos_lite_ros.bags.playback import Playback, Stamps, parse_remaps, restamped, select
from cosmos_lite_ros.bags.reader import Bag, BagTopic
from cosmos_lite_ros.bags.topics import INSTRUCTION, STRING
from cosmos_lite_ros.bags.writer import BagLabels
from cosmos_lite_ros.errors import BadInputError, CosmosLiteError, EnvironmentLacksError
from cosmos_lite_ros.ros.allocator import set_image_allocator
from cosmos_lite_ros.ros.dds import use_shipped_dds_profile
from cosmos_lite_ros.ros.qos import node_label

# Fast DDS announces a participant every 3 s. One that is up already is often found at once, but in
# a range of LOCALHOST only with its next announcement (measured: 0 to 2.7 s).
DISCOVERY_S: Final = 3.2
_DEPTH: Final = 10
_LINGER_S: Final = 1.0
_PROGRESS_S: Final = 0.5
_PLAIN_PROGRESS_S: Final = 10.0


@dataclass(frozen=True)
class PlayerSettings:
    """What to play, and how; see ``build_parser`` for each."""

    bag: Path
    rate: float = 1.0
    loop: bool = False
    start_s: float = 0.0
    duration_s: float | None = None
    topics: tuple[str, ...] = ()
    publish: tuple[str, ...] = ()
    remap: dict[str, str] = field(default_factory=dict)
    namespace: str = ""
    stamps: Stamps = "now"
    force: bool = False
    wait_for_subscribers_s: float = 0.0
    quiet: bool = False


def offered_qos(recorded: Sequence[Qos], topic: BagTopic) -> QoSProfile:
    """The profile to offer: the strongest that was recorded, which every subscriber can accept.

    Without a recorded one: reliable, keep last 10, and transient local for the instruction.
    """
    instruction = topic.msgtype == STRING and topic.name.endswith(f"/{INSTRUCTION}")
    reliable = not recorded or any(
        q.reliability is not QosReliability.BEST_EFFORT for q in recorded
    )
    latched = any(q.durability is QosDurability.TRANSIENT_LOCAL for q in recorded) or (
        not recorded and instruction
    )
    depths = [q.depth for q in recorded if q.history is QosHistory.KEEP_LAST and q.depth > 0]
    return QoSProfile(
        history=HistoryPolicy.KEEP_LAST,
        depth=min(max(depths, default=_DEPTH), 1000),
        reliability=ReliabilityPolicy.RELIABLE if reliable else ReliabilityPolicy.BEST_EFFORT,
        durability=DurabilityPolicy.TRANSIENT_LOCAL if latched else DurabilityPolicy.VOLATILE,
    )


def message_class(msgtype: str) -> Any:
    """The Python class of a message type.

    Raises:
        EnvironmentLacksError: its package is not installed here.
    """
    package, kind, name = msgtype.split("/")
    try:
        return getattr(import_module(f"{package}.{kind}"), name)
    except (ImportError, AttributeError) as error:
        raise EnvironmentLacksError(
            f"type {msgtype} is not installed here: install the ROS package {package}, or leave "
            "the topic out with --topics"
        ) from error


class Player(Node):  # type: ignore[misc]
    """Publishes a bag. It has no callbacks, so nothing spins it."""

    def __init__(self, bag: Bag, settings: PlayerSettings, stop: threading.Event) -> None:
        """Create the publishers.

        Args:
            stop: cuts every wait short.

        Raises:
            BadInputError: nothing to play, another publisher is there, or a type differs.
            EnvironmentLacksError: a message package is not installed.
        """
        super().__init__(
            "player",
            namespace=settings.namespace or None,
            start_parameter_services=False,
            enable_rosout=False,
        )
        self._bag = bag
        self._settings = settings
        chosen = select(
            bag.topics,
            only=settings.topics,
            publish=settings.publish,
            remap=settings.remap,
            resolve=self._resolve,
        )
        self.left_out = dict(chosen.left_out)
        self.names = dict(chosen.names)
        if not settings.force:
            self._refuse_second_publishers(stop)
        self._publishers_by_name: dict[str, Publisher] = {}
        latched = set()
        for name in self.names:
            topic = bag.topics[name]
            profile = offered_qos(topic.qos, topic)
            if profile.durability == DurabilityPolicy.TRANSIENT_LOCAL:
                latched.add(name)
            self._publishers_by_name[name] = self.create_publisher(
                message_class(topic.msgtype), self.names[name], profile
            )
        self._check_types()
        self.playback = Playback(
            settings.rate, settings.start_s, settings.duration_s, settings.loop, frozenset(latched)
        )
        self.sent = dict.fromkeys(self.names, 0)
        self.passes = 0
        self.bag_s = 0.0
        self.worst_late_s = 0.0

    def _resolve(self, name: str) -> str:
        try:
            return str(self.resolve_topic_name(name))
        except Exception as error:  # rclpy's own types differ between releases
            raise BadInputError(
                f"{name!r} cannot be a topic name ({' '.join(str(error).split())}): remap it"
            ) from error

    def _refuse_second_publishers(self, stop: threading.Event) -> None:
        """Wait for discovery, then look who publishes on our names already."""
        stop.wait(DISCOVERY_S)
        taken = [
            f"{name} (by {self._publishing_nodes(name)})"
            for name in sorted(self.names.values())
            if self.count_publishers(name)
        ]
        if taken:
            raise BadInputError(
                f"already published: {'; '.join(taken)}: stop that, choose another --namespace, "
                "leave the topic out with --topics, or --force"
            )

    def _publishing_nodes(self, name: str) -> str:
        others = self.get_publishers_info_by_topic(name)
        return ", ".join(sorted({node_label(o.node_namespace, o.node_name) for o in others}))

    def _stop_beside_another(self, name: str) -> None:
        """A cell that comes up while a bag is playing must not be fed with the bag."""
        if not self._settings.force and self.count_publishers(name) > 1:
            raise BadInputError(
                f"{name} has got another publisher (among {self._publishing_nodes(name)}): "
                "playing has stopped; choose another --namespace, or --force"
            )

    def _check_types(self) -> None:
        """Compare the bag's type hashes with those of the classes installed here."""
        for name, publisher in self._publishers_by_name.items():
            recorded = self._bag.topics[name].digest
            own = [
                str(info.topic_type_hash)
                for info in self.get_publishers_info_by_topic(publisher.topic_name)
                if info.node_name == self.get_name() and info.node_namespace == self.get_namespace()
            ]
            if recorded and own and all(digest != recorded for digest in own):
                raise BadInputError(
                    f"{name}: the bag's definition of {self._bag.topics[name].msgtype} differs "
                    "from the one installed here: convert the bag, or leave the topic out"
                )

    def wait_for_subscribers(self, stop: threading.Event) -> list[str]:
        """Wait until every topic is heard, at most as long as set; topics that are not heard."""
        end = time.monotonic() + self._settings.wait_for_subscribers_s
        while True:
            unheard = [
                p.topic_name
                for p in self._publishers_by_name.values()
                if not p.get_subscription_count()
            ]
            if not unheard or time.monotonic() >= end or stop.wait(0.02):
                return unheard

    def play(self, stop: threading.Event, report: Progress) -> None:
        """Publish until the end or until ``stop`` is set."""
        move = {
            name
            for name in self.names
            if self._settings.stamps == "now" and self._bag.topics[name].starts_with_header
        }
        begin_ns = time.monotonic_ns()
        wall_ns = time.time_ns() - begin_ns
        number = 0
        for due in self.playback.schedule(self._bag, tuple(self.names)):
            at_ns = begin_ns + due.due_ns
            if due.number != number:
                # The wall clock may have been set since.
                number, wall_ns = due.number, time.time_ns() - time.monotonic_ns()
            while (left_ns := at_ns - time.monotonic_ns()) > 0:
                report.show(self)
                if stop.wait(min(left_ns / 1e9, _PROGRESS_S)):
                    return
            if stop.is_set():
                return
            message = due.message
            data = message.data
            if message.topic in move:
                data = restamped(message, at_ns + wall_ns)
            self._stop_beside_another(self.names[message.topic])
            self._publishers_by_name[message.topic].publish(data)
            self.sent[message.topic] += 1
            self.passes, self.bag_s = due.number, due.bag_s
            self.worst_late_s = max(self.worst_late_s, (time.monotonic_ns() - at_ns) / 1e9)
        self._wait_until_received(stop)

    def _wait_until_received(self, stop: threading.Event) -> None:
        """Reliable subscribers have a second to fetch what they have not received yet."""
        end = time.monotonic() + _LINGER_S
        for publisher in self._publishers_by_name.values():
            left_s = end - time.monotonic()
            if stop.is_set() or left_s <= 0:
                return
            publisher.wait_for_all_acked(Duration(seconds=left_s))


class Progress:
    """One line that says how far the player is: in place on a terminal, now and then elsewhere."""

    def __init__(self, console: Console, duration_s: float, quiet: bool) -> None:
        self._console = console
        self._duration_s = duration_s
        self._quiet = quiet
        self._next_s = 0.0

    def show(self, player: Player) -> None:
        """Say it if it is time to."""
        now_s = time.monotonic()
        if self._quiet or now_s < self._next_s:
            return
        terminal = self._console.is_terminal
        self._next_s = now_s + (_PROGRESS_S if terminal else _PLAIN_PROGRESS_S)
        again = f", pass {player.passes + 1}" if player.passes else ""
        line = (
            f"{player.bag_s:6.1f} of {self._duration_s:.1f} s{again}, "
            f"{sum(player.sent.values())} messages"
        )
        self._console.print(line, end="\r" if terminal else "\n", markup=False)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise BadInputError(f"{message}; {self.prog} --help shows what is possible")


def build_parser() -> argparse.ArgumentParser:
    """The command line of ``lib/cosmos_lite_ros/player``, the same as that of the ``play`` command.

    It is written down here again since nothing in this folder may import the command line.
    """
    parser = _Parser(
        prog="player",
        description="Play a bag on ROS 2 topics. Commands, stops, requests and clocks are never "
        "published unless named. ROS arguments may follow: --ros-args ...",
    )
    several: dict[str, Any] = {"nargs": "+", "action": "extend", "default": []}
    add = parser.add_argument
    add("bag", metavar="BAG", type=Path, help="bag folder, .mcap or .db3 file")
    add("--rate", type=float, default=1.0, help="1 is as recorded (default)")
    add("--loop", action="store_true", help="start again at the end")
    add("--start", type=float, default=0.0, metavar="S", help="skip the first S seconds")
    add("--duration", type=float, metavar="S", help="play S seconds of the bag")
    add("--topics", metavar="TOPIC", help="play only these", **several)
    add("--publish", metavar="TOPIC", help="play these although they may move things", **several)
    add("--remap", metavar="OLD:=NEW", help="publish under other names", **several)
    add("--namespace", default="", metavar="NS", help="put all relative names below NS")
    stamps = "header stamps: moved to now, latencies kept (default), or as recorded"
    add("--stamps", choices=get_args(Stamps), default="now", help=stamps)
    add("--force", action="store_true", help="publish beside other publishers")
    wait = "wait up to S seconds until each topic is heard"
    add("--wait-for-subscribers", type=float, default=0.0, metavar="S", help=wait)
    add("--quiet", action="store_true", help="errors only")
    return parser


def parse_arguments(arguments: Sequence[str]) -> PlayerSettings:
    """Settings from the command line without ROS arguments.

    Raises:
        BadInputError: bad usage.
    """
    given = build_parser().parse_args(arguments)
    return PlayerSettings(
        bag=given.bag,
        rate=given.rate,
        loop=given.loop,
        start_s=given.start,
        duration_s=given.duration,
        topics=tuple(given.topics),
        publish=tuple(given.publish),
        remap=parse_remaps(given.remap),
        namespace=given.namespace,
        stamps=cast(Stamps, given.stamps),
        force=given.force,
        wait_for_subscribers_s=given.wait_for_subscribers,
        quiet=given.quiet,
    )


def split_ros_arguments(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Our arguments, and those from each ``--ros-args`` to ``--`` or the end.

    rclpy's own function would also take every ``OLD:=NEW`` away.
    """
    ours: list[str] = []
    theirs: list[str] = []
    target = ours
    for argument in arguments:
        if argument == "--ros-args":
            target = theirs
        target.append(argument)
        if target is theirs and argument == "--":
            target = ours
    return ours, theirs


def run(settings: PlayerSettings, ros_arguments: Sequence[str] = ()) -> None:
    """Play a bag until its end, SIGINT or SIGTERM.

    Args:
        settings: what to play.
        ros_arguments: ``--ros-args ...``.

    Raises:
        CosmosLiteError: nothing was published, or the bag is damaged where this came to it.
    """
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    say = (lambda line: None) if settings.quiet else _printer(console)
    with _stop_event() as stop, Bag(settings.bag) as bag:
        for note in bag.notes:
            say(f"note: {note}")
        Playback(settings.rate, settings.start_s, settings.duration_s).span_ns(bag)
        set_image_allocator()
        use_shipped_dds_profile()
        try:
            rclpy.init(args=list(ros_arguments), signal_handler_options=SignalHandlerOptions.NO)
        except Exception as error:  # rcl's own types differ between releases
            raise BadInputError(
                f"the ROS arguments cannot be read: {' '.join(str(error).split())}"
            ) from error
        player: Player | None = None
        try:
            try:
                player = Player(bag, settings, stop)
            except NameValidationException as error:
                why = str(error).splitlines()[0].rstrip(":")
                raise BadInputError(f"namespace {settings.namespace!r}: {why}") from error
            for name, why in player.left_out.items():
                say(f"not played: {name}: {why}")
            synthetic = BagLabels.of(bag.custom).synthetic
            for name, published in player.names.items():
                label = f"; {synthetic[name]}" if name in synthetic else ""
                say(f"{name} -> {published}{label}")
            for name in (
                player.wait_for_subscribers(stop) if settings.wait_for_subscribers_s else ()
            ):
                say(f"nobody listens to {name}")
            player.play(stop, Progress(console, bag.duration_s, settings.quiet))
            say(
                f"published {sum(player.sent.values())} messages in {player.passes + 1} "
                f"pass(es), at most {player.worst_late_s * 1e3:.1f} ms late"
            )
        finally:
            if player is not None:
                player.destroy_node()
            rclpy.try_shutdown()


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; ``argv`` is the whole command line with the program's name."""
    arguments = list(sys.argv if argv is None else argv)
    try:
        ours, theirs = split_ros_arguments(arguments[1:])
        run(parse_arguments(ours), theirs)
    except CosmosLiteError as error:
        Console(stderr=True, highlight=False, soft_wrap=True).print(f"error: {error}", markup=False)
        return error.exit_code
    return 0


def _printer(console: Console) -> Any:
    return lambda line: console.print(line, markup=False)


@contextmanager
def _stop_event() -> Iterator[threading.Event]:
    """An event that SIGINT and SIGTERM set, also where a shell has set SIGINT to ignored."""
    stop = threading.Event()
    numbers = (signal.SIGINT, signal.SIGTERM)
    old = {n: signal.signal(n, lambda number, frame: stop.set()) for n in numbers}
    try:
        yield stop
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


if __name__ == "__main__":
    sys.exit(main())
