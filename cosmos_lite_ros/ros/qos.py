# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The quality of service of every topic, in one place.

| function     | topics                                             | quality of service           |
|--------------|----------------------------------------------------|------------------------------|
| image        | camera images, raw and compressed                  | best effort, 1               |
| joint_states | joint_states, gripper/joint_states                 | best effort, 10              |
| command      | joint_trajectory, command_preview, gripper_command | reliable, 1                  |
| exchange     | chunk_request, action_chunk                        | reliable, 1                  |
| heartbeat    | enable, robot_ready                                | reliable, 1                  |
| plain        | instruction, emergency_stop: one half              | reliable, volatile, 1        |
| latched      | their other half; policy_status                    | reliable, transient local, 1 |
| status       | executor_status, /diagnostics                      | reliable, 10                 |
| monitor      | pictures and paths for the eye                     | best effort, 1               |

A best-effort subscription hears reliable and best-effort publishers. A transient-local subscription
hears nothing from a volatile publisher, which is what ``ros2 topic pub`` is, hence two halves.
"""

from __future__ import annotations

from collections.abc import Callable

from rclpy.event_handler import PublisherEventCallbacks, SubscriptionEventCallbacks
from rclpy.qos import (
    DurabilityPolicy,
    HistoryPolicy,
    QoSPolicyKind,
    QoSProfile,
    ReliabilityPolicy,
)


def _profile(*, reliable: bool, depth: int, transient_local: bool = False) -> QoSProfile:
    return QoSProfile(
        history=HistoryPolicy.KEEP_LAST,
        depth=depth,
        reliability=ReliabilityPolicy.RELIABLE if reliable else ReliabilityPolicy.BEST_EFFORT,
        durability=(
            DurabilityPolicy.TRANSIENT_LOCAL if transient_local else DurabilityPolicy.VOLATILE
        ),
    )


def image() -> QoSProfile:
    """Camera images, our subscription: only the newest frame matters."""
    return _profile(reliable=False, depth=1)


def joint_states() -> QoSProfile:
    """Joint states, our subscription: arm and gripper may come as several messages."""
    return _profile(reliable=False, depth=10)


def command() -> QoSProfile:
    """Commands to a controller, and their preview."""
    return _profile(reliable=True, depth=1)


def exchange() -> QoSProfile:
    """Chunk requests and chunks: a request that nobody heard is never answered later."""
    return _profile(reliable=True, depth=1)


def heartbeat() -> QoSProfile:
    """The enable and robot_ready heartbeats."""
    return _profile(reliable=True, depth=1)


def plain() -> QoSProfile:
    """The volatile half of instruction and emergency_stop."""
    return _profile(reliable=True, depth=1)


def latched() -> QoSProfile:
    """Transient local: a late subscriber gets the newest message."""
    return _profile(reliable=True, depth=1, transient_local=True)


def status() -> QoSProfile:
    """Streams of statuses."""
    return _profile(reliable=True, depth=10)


def monitor() -> QoSProfile:
    """What is only looked at."""
    return _profile(reliable=False, depth=1)


def _policy_name(kind: int) -> str:
    try:
        return str(QoSPolicyKind(kind).name).lower().replace("_", " ")
    except ValueError:
        return f"policy {kind}"


def subscription_events(topic: str, report: Callable[[str], None]) -> SubscriptionEventCallbacks:
    """Event callbacks that turn a publisher with incompatible settings into one line.

    ``report`` gets a line that says which side, which setting and what to do.
    """

    def incompatible(event: object) -> None:
        kind = _policy_name(int(getattr(event, "last_policy_kind", 0)))
        report(
            f"{topic}: a publisher offers a {kind} that this subscription cannot accept, so "
            f"nothing arrives from it: change the publisher's {kind}"
        )

    return SubscriptionEventCallbacks(incompatible_qos=incompatible)


def publisher_events(topic: str, report: Callable[[str], None]) -> PublisherEventCallbacks:
    """The same for a publisher of ours: a subscriber asks for more than is offered."""

    def incompatible(event: object) -> None:
        kind = _policy_name(int(getattr(event, "last_policy_kind", 0)))
        report(
            f"{topic}: a subscriber asks for a {kind} that this publisher does not offer, so it "
            f"hears nothing: change the subscriber's {kind}"
        )

    return PublisherEventCallbacks(incompatible_qos=incompatible)


def node_label(namespace: str, name: str) -> str:
    """A node's full name for people; discovery may not have named it yet."""
    if "UNKNOWN" in name:
        return "a node not named yet"
    return f"{namespace.rstrip('/')}/{name}"
