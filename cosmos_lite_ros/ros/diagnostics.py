# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""``/diagnostics`` without diagnostic_updater: one array a second, one line a status."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from rclpy.node import Node

from cosmos_lite_ros.ros import qos

PERIOD_S = 1.0


class Level(IntEnum):
    """Severity, as in diagnostic_msgs/DiagnosticStatus."""

    OK = 0
    WARN = 1
    ERROR = 2
    STALE = 3


def status(
    name: str, level: Level, message: str, values: Mapping[str, object] | None = None
) -> DiagnosticStatus:
    """One status; floats are shown with four digits."""
    return DiagnosticStatus(
        name=name,
        level=bytes([level]),
        message=message,
        values=[KeyValue(key=key, value=_text(value)) for key, value in (values or {}).items()],
    )


def _text(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


class Diagnostics:
    """Publishes the statuses of one node."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._publisher = node.create_publisher(DiagnosticArray, "/diagnostics", qos.status())

    def publish(self, statuses: Iterable[DiagnosticStatus]) -> None:
        """Publish; each name is prefixed with the node's, so that two robots do not mix."""
        message = DiagnosticArray()
        message.header.stamp = self._node.get_clock().now().to_msg()
        prefix = self._node.get_fully_qualified_name().lstrip("/")
        for item in statuses:
            item.name = f"{prefix}: {item.name}"
            item.hardware_id = prefix
            message.status.append(item)
        self._publisher.publish(message)
