# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Messages taken at the tick instead of in callbacks.

A joint state broadcaster publishes at up to 1 kHz. A callback for each message would keep the
interpreter busy beside the tick, and the tick waits whenever the processor is taken away from a
callback that holds the interpreter (two busy cores, 500 Hz: tick p99 25 ms instead of 2, and 4.5
times the processor time). The subscriptions are in no wait set; the tick takes what has arrived,
and the node's main thread sleeps nearly all the time.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from rclpy.callback_groups import CallbackGroup
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSCompatibility, QoSProfile, qos_check_compatible

from cosmos_lite_ros.ros.qos import node_label

# More than arrive within a tick at 1 kHz with partial messages rare among them.
STATES_DEPTH = 128


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

    It has no event callbacks: in a wait set they would be woken by every message, over and over
    until it is taken. ``incompatible`` looks for what they would tell.
    """

    def __init__(self, node: Node, kind: type, topic: str, profile: QoSProfile) -> None:
        self._node = node
        self._profile = profile
        self.topic = topic
        # A transient-local half hears nothing from a volatile publisher by design.
        self.half = profile.durability == DurabilityPolicy.TRANSIENT_LOCAL
        self.subscription = node.create_subscription(
            kind, topic, lambda message: None, profile, callback_group=NeverGroup()
        )

    def take(self) -> Iterator[tuple[Any, int]]:
        """What has arrived since the last call, oldest first, with its age since arrival in ns."""
        handle = self.subscription.handle
        with handle:
            for _ in range(self._profile.depth):
                taken = handle.take_message(self.subscription.msg_type, False)
                if taken is None:
                    return
                message, info = taken
                # Of the system clock, whatever clock the node follows.
                yield message, max(time.time_ns() - int(info["received_timestamp"]), 0)

    def incompatible(self) -> str:
        """A publisher from which nothing can arrive, in one line; empty where there is none."""
        for info in self._node.get_publishers_info_by_topic(self.subscription.topic_name):
            fits, reason = qos_check_compatible(info.qos_profile, self._profile)
            if fits == QoSCompatibility.ERROR:
                label = node_label(info.node_namespace, info.node_name)
                return f"{self.topic}: nothing arrives from {label}: {reason.rstrip('; ')}"
        return ""
