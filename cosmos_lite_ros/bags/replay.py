# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Run a policy over a bag in lock step: no ROS graph, no clock, the same answer every time.

Messages go through the same ``ObservationAssembler`` as in the live node, each at the time at which
the recorder received it. At each request time the bag stands still until the policy has answered,
so neither the machine's speed nor its load changes what is asked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from cosmos_lite_ros.bags.reader import Bag, BagMessage
from cosmos_lite_ros.bags.topics import COMPRESSED_IMAGE, BagInputs, TopicMap
from cosmos_lite_ros.bags.writer import BagLabels
from cosmos_lite_ros.contract.assembler import AssemblerSettings, ObservationAssembler, Skip
from cosmos_lite_ros.contract.cameras import CameraStatus
from cosmos_lite_ros.contract.chunk import ActionChunk
from cosmos_lite_ros.contract.constants import ACTION_WIDTH, CHUNK_ROWS, ROW_PERIOD_S, View
from cosmos_lite_ros.contract.observation import Observation, clean_instruction
from cosmos_lite_ros.errors import BadInputError

# One request for each chunk that has been used up: what an open-loop executor would ask for.
CHUNK_PERIOD_S: Final = CHUNK_ROWS * ROW_PERIOD_S
_NS: Final = 1_000_000_000


class Policy(Protocol):
    """What replay needs of ``policy.engine.PolicyEngine``."""

    @property
    def random_weights(self) -> bool:
        """Whether the actions mean nothing physically."""

    @property
    def effective(self) -> dict[str, object]:
        """What is in effect."""

    def act(self, observation: Observation, *, seed: int | None = None) -> ActionChunk:
        """One request."""


@dataclass(frozen=True)
class ReplaySettings:
    """When to ask, and for what.

    Attributes:
        assembler: how observations are made.
        period_s: time between requests, from the instant at which every input has been seen.
        at_s: request times after the start of the bag instead, s, ascending.
        max_requests: at most so many; None: to the end of the bag.
        instruction: instead of the bag's own.
        seed: noise seed of every request; None leaves it to the policy.
        topic_map: from the bag's names to ours.

    Raises:
        BadInputError: a number out of range, or an empty instruction.
    """

    assembler: AssemblerSettings
    period_s: float = CHUNK_PERIOD_S
    at_s: tuple[float, ...] = ()
    max_requests: int | None = None
    instruction: str | None = None
    seed: int | None = None
    topic_map: TopicMap = field(default_factory=TopicMap)

    def __post_init__(self) -> None:
        """Check."""
        if not ROW_PERIOD_S / 2 <= self.period_s <= 3600:
            raise BadInputError(f"the period is {self.period_s} s, expected 0.033 to 3600")
        if list(self.at_s) != sorted(set(self.at_s)) or any(t < 0 for t in self.at_s):
            raise BadInputError(f"request times {list(self.at_s)} must be ascending and positive")
        if self.max_requests is not None and self.max_requests < 1:
            raise BadInputError(f"max_requests is {self.max_requests}, expected at least 1")
        if self.instruction is not None:
            clean_instruction(self.instruction)


@dataclass(frozen=True)
class ReplayRequest:
    """One request and what came of it: a chunk, or the reason why there is none.

    Attributes:
        at_ns: log time of the request; bag_s: the same after the start of the bag, s.
        cameras: of each camera at that time.
        digest: of the observation, empty where there was none.
    """

    at_ns: int
    bag_s: float
    instruction: str
    chunk: ActionChunk | None
    skip: Skip | None
    cameras: dict[View, CameraStatus]
    digest: str


@dataclass(frozen=True)
class ReplayResult:
    """All requests of a bag.

    Attributes:
        counters: of the assembler, and ``undecodable`` messages.
        notes: what deserves to be said about the bag and its messages.
        effective: of the policy.
    """

    bag: str
    duration_s: float
    inputs: BagInputs
    labels: BagLabels
    requests: tuple[ReplayRequest, ...]
    counters: dict[str, int]
    notes: tuple[str, ...]
    effective: dict[str, object]
    random_weights: bool

    @property
    def chunks(self) -> list[ActionChunk]:
        """The chunks, in order."""
        return [r.chunk for r in self.requests if r.chunk is not None]

    def actions(self) -> npt.NDArray[np.float32]:
        """float32 [chunks, 32, 8]: joint positions (rad) and gripper (0 open .. 1 closed)."""
        chunks = self.chunks
        if not chunks:
            return np.zeros((0, CHUNK_ROWS, ACTION_WIDTH), np.float32)
        return np.stack([chunk.as_array() for chunk in chunks])


def check(bag: Bag, settings: ReplaySettings) -> BagInputs:
    """Whether a bag can be replayed at all, before anything slow is done.

    Raises:
        BadInputError: empty, a topic missing or of a wrong or unknown type, no instruction.
    """
    bag.require_messages()
    inputs = settings.topic_map.find({name: t.msgtype for name, t in bag.topics.items()})
    missing = set(inputs.missing)
    if settings.instruction is not None:
        missing.discard("instruction")
    if missing:
        hint = " (or give --instruction)" if missing == {"instruction"} else ""
        raise BadInputError(
            f"the bag {bag.path} lacks {', '.join(sorted(missing))}; it holds "
            f"{', '.join(sorted(bag.topics))}: name them in a topic map{hint}"
        )
    bag.require_decodable(inputs.names())
    empty = [name for name in inputs.names() if not bag.topics[name].count]
    if settings.instruction is not None and inputs.instruction in empty:
        empty.remove(inputs.instruction)
    if empty:
        raise BadInputError(f"the bag {bag.path} has no message on {', '.join(empty)}")
    if settings.at_s and settings.at_s[-1] > bag.duration_s:
        raise BadInputError(
            f"a request at {settings.at_s[-1]} s was asked for, the bag is {bag.duration_s:.2f} s "
            "long"
        )
    return inputs


def replay(
    bag: Bag,
    policy: Policy,
    settings: ReplaySettings,
    progress: Callable[[float], None] | None = None,
) -> ReplayResult:
    """Replay a bag.

    Args:
        bag: an open bag.
        policy: answers the requests, one at a time.
        settings: when to ask.
        progress: called with 0..1.

    Raises:
        BadInputError: see ``check``; or the bag is damaged before the first request.
    """
    run = _Run(bag, policy, settings)
    for message in run.messages():
        for at_ns in run.due_before(message.log_ns):
            run.ask(at_ns)
            if progress is not None:
                progress((at_ns - bag.start_ns) / max(bag.end_ns - bag.start_ns, 1))
            if run.finished:
                break
        if run.finished:
            break
        run.push(message)
    if not run.finished:
        for at_ns in run.due_before(bag.end_ns):
            if not run.finished:
                run.ask(at_ns)
    if progress is not None:
        progress(1.0)
    return run.result()


class _Run:
    """State of one replay."""

    def __init__(self, bag: Bag, policy: Policy, settings: ReplaySettings) -> None:
        self._bag = bag
        self._policy = policy
        self._settings = settings
        self._inputs = check(bag, settings)
        self._views = {topic: view for view, topic in self._inputs.images.items()}
        self._assembler = ObservationAssembler(settings.assembler)
        self._instruction = settings.instruction
        # Without explicit times the first request waits until every input has been seen.
        self._unseen = set(self._inputs.names())
        if settings.instruction is not None:
            self._unseen.discard(self._inputs.instruction or "")
        self._times = [bag.start_ns + round(t * _NS) for t in settings.at_s]
        self._next_ns: int | None = self._times[0] if self._times else None
        self._requests: list[ReplayRequest] = []
        self._failures: Counter[str] = Counter()
        self._notes: list[str] = [*bag.notes, *self._inputs.notes]

    @property
    def finished(self) -> bool:
        """Whether no request is left."""
        most = self._settings.max_requests
        if most is not None and len(self._requests) >= most:
            return True
        return bool(self._times) and self._next_ns is None

    def messages(self) -> Iterator[BagMessage]:
        """The bag's messages; of a bag that is damaged further on, those before."""
        try:
            yield from self._bag.messages(self._inputs.names())
        except BadInputError as error:
            if not self._requests:
                raise
            self._notes.append(str(error))

    def due_before(self, log_ns: int) -> Iterator[int]:
        """Request times before a log time: a message that arrives at that instant comes first."""
        while self._next_ns is not None and self._next_ns < log_ns:
            at_ns = self._next_ns
            if self._times:
                later = [t for t in self._times if t > at_ns]
                self._next_ns = later[0] if later else None
            else:
                self._next_ns = at_ns + round(self._settings.period_s * _NS)
            yield at_ns

    def push(self, message: BagMessage) -> None:
        """Hand one message to the assembler."""
        try:
            decoded: Any = self._bag.decode(message)
        except BadInputError as error:
            if not self._failures[message.topic]:
                self._notes.append(str(error))
            self._failures[message.topic] += 1
            return
        view = self._views.get(message.topic)
        if view is not None:
            if message.msgtype == COMPRESSED_IMAGE:
                self._assembler.push_compressed(view, decoded, message.log_ns)
            else:
                self._assembler.push_image(view, decoded, message.log_ns)
        elif message.topic == self._inputs.instruction:
            if self._settings.instruction is None:
                self._instruction = str(decoded.data)
        else:
            self._assembler.push_joint_state(decoded, message.log_ns)
        if self._unseen:
            self._unseen.discard(message.topic)
            if not self._unseen and not self._times:
                self._next_ns = message.log_ns

    def ask(self, at_ns: int) -> None:
        """One request."""
        made = self._assembler.assemble(self._instruction, at_ns)
        chunk: ActionChunk | None = None
        skip: Skip | None = None
        digest = ""
        if isinstance(made, Skip):
            skip = made
        else:
            chunk = self._policy.act(made, seed=self._settings.seed)
            digest = made.digest()
        self._requests.append(
            ReplayRequest(
                at_ns=at_ns,
                bag_s=(at_ns - self._bag.start_ns) / _NS,
                instruction=(self._instruction or "").strip(),
                chunk=chunk,
                skip=skip,
                cameras=self._assembler.camera_status(at_ns),
                digest=digest,
            )
        )

    def result(self) -> ReplayResult:
        """Everything."""
        counters = self._assembler.counters()
        counters["undecodable"] = self._failures.total()
        return ReplayResult(
            bag=str(self._bag.path),
            duration_s=self._bag.duration_s,
            inputs=self._inputs,
            labels=BagLabels.of(self._bag.custom),
            requests=tuple(self._requests),
            counters=counters,
            notes=(*self._notes, *self._assembler.take_notices()),
            effective=dict(self._policy.effective),
            random_weights=self._policy.random_weights,
        )
