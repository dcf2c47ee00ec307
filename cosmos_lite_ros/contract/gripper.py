# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The declared mapping between a gripper's own unit and 0 open .. 1 closed.

Grippers report metres, radians or a fraction, some with open as the larger value: what a value
means is declared, never guessed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from cosmos_lite_ros.errors import BadInputError

# Beyond the declared range by more than this share of it: the mapping is probably wrong. Drivers
# overshoot by a few percent (a 2F-85 closes at pi/4 rad or at 0.8 rad, as the driver says).
SUSPICIOUS_SHARE = 0.1


@dataclass(frozen=True)
class GripperMapping:
    """What the gripper reports when open and when closed, in its own unit.

    Raises:
        BadInputError: both are equal or one is not finite.
    """

    open: float
    closed: float

    def __post_init__(self) -> None:
        """Refuse a mapping that maps nothing."""
        if not (math.isfinite(self.open) and math.isfinite(self.closed)):
            raise BadInputError(f"gripper open {self.open} and closed {self.closed} must be finite")
        if self.open == self.closed:
            raise BadInputError(
                f"gripper open and closed are both {self.open}: say what the gripper reports when "
                "open and when closed"
            )

    def fraction(self, value: float) -> float:
        """The value on the scale 0 open .. 1 closed, not clipped."""
        return (value - self.open) / (self.closed - self.open)

    def to_unit(self, value: float) -> float:
        """The value as 0 open .. 1 closed, clipped: the network never saw anything else.

        Raises:
            BadInputError: the value is not finite.
        """
        if not math.isfinite(value):
            raise BadInputError(f"gripper position {value} is not finite")
        return min(1.0, max(0.0, self.fraction(value)))

    def is_suspicious(self, value: float) -> bool:
        """Whether the value is so far out of range that the mapping itself is in doubt."""
        return not -SUSPICIOUS_SHARE <= self.fraction(value) <= 1 + SUSPICIOUS_SHARE

    def from_unit(self, unit: float) -> float:
        """The gripper's own value of 0 open .. 1 closed; clipped to the declared range.

        Raises:
            BadInputError: the value is not finite.
        """
        if not math.isfinite(unit):
            raise BadInputError(f"gripper command {unit} is not finite")
        # Exact at both ends, so that a full open or close is what was declared.
        inside = min(1.0, max(0.0, unit))
        return self.open * (1.0 - inside) + self.closed * inside
