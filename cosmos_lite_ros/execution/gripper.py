# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Gripper rows to gripper commands: a threshold with hysteresis and a shortest dwell."""

from __future__ import annotations

from cosmos_lite_ros.execution.clock import NS
from cosmos_lite_ros.execution.settings import GripperSettings

OPEN = 0.0
CLOSED = 1.0


class GripperLogic:
    """Decides open or closed; ``command`` is None until a row has been decisive.

    Invariants: command is None, OPEN or CLOSED; two changes are at least min_dwell_s apart; a row
    between the thresholds, or one that is not finite, changes nothing.
    """

    def __init__(self, settings: GripperSettings) -> None:
        self._settings = settings
        self._changed_ns: int | None = None
        self.command: float | None = None

    def update(self, row: float, now_ns: int) -> float | None:
        """The new command if this row changes it, else None."""
        # NaN fails both comparisons.
        if row > self._settings.close_above:
            wanted = CLOSED
        elif row < self._settings.open_below:
            wanted = OPEN
        else:
            return None
        if wanted == self.command:
            return None
        dwell_ns = int(self._settings.min_dwell_s * NS)
        if self._changed_ns is not None and now_ns - self._changed_ns < dwell_ns:
            return None
        self.command, self._changed_ns = wanted, now_ns
        return wanted

    def forget(self) -> None:
        """Somebody may have moved the gripper: the next decisive row is a change again."""
        self.command = None
