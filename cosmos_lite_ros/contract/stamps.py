# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Header stamps, and whether they can be believed.

Drivers publish stamps that are zero, that never change, or that lie in the future. Then the time
of arrival is used instead, and it is said.
"""

from __future__ import annotations

from typing import Any, Final

NS_PER_S: Final = 1_000_000_000
# Clocks of two machines may differ by a little; more than this is not a capture time.
FUTURE_TOLERANCE_NS: Final = 50_000_000
# Several messages may share a stamp (one state in two halves); not for as long as this.
FROZEN_STAMP_NS: Final = 50_000_000
# Arrivals this much earlier than the last one mean that time itself was set back (a bag that
# starts again, a simulator's reset); smaller steps are a clock being adjusted.
TIME_JUMP_NS: Final = 500_000_000


def message_stamp_ns(message: Any) -> int:
    """Header stamp of any stamped message, ns."""
    stamp = message.header.stamp
    return int(stamp.sec) * NS_PER_S + int(stamp.nanosec)


class StampCheck:
    """Judges the stamps of one source, message by message."""

    def __init__(self) -> None:
        self._stamp_ns = 0
        self._first_arrival_ns = 0

    def judge(self, stamp_ns: int, arrival_ns: int) -> str:
        """What is wrong with the stamp (``zero``, ``future``, ``frozen``), or an empty string."""
        if stamp_ns != self._stamp_ns or arrival_ns < self._first_arrival_ns:
            self._stamp_ns, self._first_arrival_ns = stamp_ns, arrival_ns
        if stamp_ns <= 0:
            return "zero"
        if stamp_ns - arrival_ns > FUTURE_TOLERANCE_NS:
            return "future"
        if arrival_ns - self._first_arrival_ns > FROZEN_STAMP_NS:
            return "frozen"
        return ""
