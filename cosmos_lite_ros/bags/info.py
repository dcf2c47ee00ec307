# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What a bag holds: counts, rates, gaps, ages and picture formats, by one pass over its bytes.

Only one message of each image topic is decoded; stamps are read in place (stamps.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from cosmos_lite_ros.bags.reader import Bag, BagMessage
from cosmos_lite_ros.bags.stamps import header_stamp_ns
from cosmos_lite_ros.bags.topics import COMPRESSED_IMAGE, IMAGE, BagInputs, TopicMap
from cosmos_lite_ros.bags.writer import BagLabels
from cosmos_lite_ros.errors import BadInputError


@dataclass(frozen=True)
class TopicInfo:
    """One topic, measured.

    Attributes:
        count: messages read.
        rate_hz: mean rate between the first and the last message; NaN below two messages.
        max_gap_s: longest time between two messages by log time; NaN below two messages.
        age_s: median of log time minus header stamp; NaN where no message has a valid stamp.
        content: picture size and encoding or format, else empty.
        role: the policy input that it serves, else empty.
        synthetic: how it was made, empty for a recording.
        problem: why it cannot be decoded; empty if it can.
    """

    name: str
    msgtype: str
    count: int
    rate_hz: float
    max_gap_s: float
    age_s: float
    content: str
    role: str
    synthetic: str
    problem: str


@dataclass(frozen=True)
class BagInfo:
    """One bag, measured.

    Attributes:
        missing: policy inputs that the bag lacks.
        notes: what a reader should know: missing metadata, damage, unknown types.
    """

    path: str
    storage: str
    duration_s: float
    start_ns: int
    message_count: int
    topics: tuple[TopicInfo, ...]
    labels: BagLabels
    custom: dict[str, str]
    missing: tuple[str, ...]
    notes: tuple[str, ...]


def inspect(
    bag: Bag, topic_map: TopicMap | None = None, progress: Callable[[float], None] | None = None
) -> BagInfo:
    """Measure a bag.

    Raises:
        BadInputError: the topic map does not fit the bag.
    """
    labels = BagLabels.of(bag.custom)
    notes = list(bag.notes)
    types = {name: topic.msgtype for name, topic in bag.topics.items()}
    inputs = (topic_map or TopicMap()).find(types)
    log_ns: dict[str, list[int]] = {name: [] for name in bag.topics}
    ages_ns: dict[str, list[int]] = {name: [] for name in bag.topics}
    content: dict[str, str] = {}
    expected = max(bag.message_count, 1)
    done = 0
    try:
        for message in bag.messages():
            log_ns[message.topic].append(message.log_ns)
            if bag.topics[message.topic].starts_with_header:
                stamp_ns = header_stamp_ns(message.data)
                if stamp_ns is not None and stamp_ns > 0:
                    ages_ns[message.topic].append(message.log_ns - stamp_ns)
            if message.topic not in content:
                content[message.topic] = _content(bag, message)
            done += 1
            if progress is not None and done % 500 == 0:
                progress(min(1.0, done / expected))
    except BadInputError as error:  # what was read before is still worth showing
        notes.append(str(error))
    if done != bag.message_count and not any("damaged" in note for note in notes):
        notes.append(f"metadata.yaml counts {bag.message_count} messages, {done} were read")
    topics = tuple(
        TopicInfo(
            name,
            topic.msgtype,
            len(log_ns[name]),
            *_rhythm(log_ns[name]),
            float(np.median(ages_ns[name])) / 1e9 if ages_ns[name] else float("nan"),
            content.get(name, ""),
            _role(name, inputs),
            labels.synthetic.get(name, ""),
            topic.problem,
        )
        for name, topic in sorted(bag.topics.items())
    )
    return BagInfo(
        str(bag.path),
        bag.storage,
        bag.duration_s,
        bag.start_ns,
        done,
        topics,
        labels,
        dict(bag.custom),
        inputs.missing,
        (*notes, *inputs.notes),
    )


def _rhythm(log_ns: list[int]) -> tuple[float, float]:
    if len(log_ns) < 2:
        return float("nan"), float("nan")
    times = np.sort(np.asarray(log_ns, np.int64))
    span_s = float(times[-1] - times[0]) / 1e9
    rate_hz = (len(log_ns) - 1) / span_s if span_s > 0 else float("nan")
    return rate_hz, float(np.diff(times).max()) / 1e9


def _content(bag: Bag, message: BagMessage) -> str:
    if bag.topics[message.topic].problem or message.msgtype not in (IMAGE, COMPRESSED_IMAGE):
        return ""
    try:
        decoded = bag.decode(message)
    except BadInputError as error:
        return str(error)
    if message.msgtype == COMPRESSED_IMAGE:
        return str(decoded.format)
    return f"{decoded.width}x{decoded.height} {decoded.encoding}"


def _role(name: str, inputs: BagInputs) -> str:
    for view, topic in inputs.images.items():
        if topic == name:
            return view
    if name in inputs.joint_states:
        return "joints"
    return "instruction" if name == inputs.instruction else ""
