# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Joint states taken at the tick instead of in callbacks.

A joint state broadcaster publishes at up to 1 kHz. A callback for each message would keep the
interpreter busy beside the tick, and the tick waits whenever the processor is taken away from a
callback that holds the interpreter (two busy cores, 500 Hz: tick p99 25 ms instead of 2, and 4.5
times the processor time). The subscription is in no wait set; the tick takes what has arrived.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from rclpy.callback_groups import CallbackGroup
from rclpy.node import Node
from rclpy.qos import QoSProfile

# More than arrive within a tick at 1 kHz with partial messages rare among them.
DEPTH = 128


class NeverGroup(CallbackGroup):  # type: ignore[misc]
    """Entities of this group are never executed by an executor."""

    def can_execute(self, entity: object) -> bool:
        """Not by an executor."""
        return False

    def beginning_execution(self, entity: object) -> bool:
        """Not by an executor."""
        return False

    def ending_execution(self, entity: object) -> None:
        """Nothing was begun."""


class PolledSubscription:
    """A subscription whose messages are taken by hand, from any one thread.

    It has no event callbacks: they would wait with it. Best effort and volatile, which it is meant
    for, is compatible with every publisher.
    """

    def __init__(self, node: Node, kind: type, topic: str, profile: QoSProfile) -> None:
        profile.depth = DEPTH
        self.subscription = node.create_subscription(
            kind,
            topic,
            lambda message: None,
            profile,
            callback_group=NeverGroup(),
        )

    def take(self) -> Iterator[tuple[Any, int]]:
        """What has arrived since the last call, oldest first, with its age since arrival in ns."""
        handle = self.subscription.handle
        with handle:
            for _ in range(DEPTH):
                taken = handle.take_message(self.subscription.msg_type, False)
                if taken is None:
                    return
                message, info = taken
                # Of the system clock, whatever clock the node follows.
                yield message, max(time.time_ns() - int(info["received_timestamp"]), 0)
