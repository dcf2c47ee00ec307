# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What is remembered of one camera: the newest frame, its rate and its troubles."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import Any, Final

from cosmos_lite_ros.contract.constants import View
from cosmos_lite_ros.contract.stamps import NS_PER_S, TIME_JUMP_NS, StampCheck, message_stamp_ns

_RATE_MESSAGES: Final = 64
_RATE_WINDOW_NS: Final = 2 * NS_PER_S


@dataclass(frozen=True)
class Frame:
    """A stored message; ``stamp_ns`` is the arrival where the header's stamp is invalid (0)."""

    message: Any
    compressed: bool
    arrival_ns: int
    stamp_ns: int
    header_stamp_ns: int


@dataclass(frozen=True)
class CameraStatus:
    """One camera, for status and diagnostics.

    Attributes:
        received: messages in all.
        rate_hz: received rate over the last 2 s; 0 when nothing came in that time.
        arrival_age_s: since the newest message arrived; infinite before the first.
        header_age_s: since its pixels were taken, by stamp and declared latency.
        decode_failures: messages that were asked for and could not be decoded.
        stamp_problem: ``zero``, ``future``, ``frozen`` or empty, of the newest message.
        error: why the last frame could not be decoded, empty when it could.
        height, width: of the last decoded frame, 0 before.
    """

    received: int
    rate_hz: float
    arrival_age_s: float
    header_age_s: float
    decode_failures: int
    stamp_problem: str
    error: str
    height: int
    width: int


class Camera:
    """State of one view; the assembler's lock guards it."""

    def __init__(self, view: View, latency_ns: int) -> None:
        self.view = view
        self.latency_ns = latency_ns
        self.received = 0
        self.decode_failures = 0
        self.error = ""
        self.height = self.width = 0
        self.reset()

    def reset(self) -> None:
        """Forget messages; counters stay."""
        self.frame: Frame | None = None
        self.stamp_problem = ""
        self._failed: Frame | None = None
        self._check = StampCheck()
        self._arrivals: deque[int] = deque(maxlen=_RATE_MESSAGES)
        self._fingerprint: int | None = None
        self._unchanged_since_ns = 0

    def push(self, message: Any, compressed: bool, arrival_ns: int) -> str:
        """Store the newest message; returns what is wrong with its stamp, if anything."""
        if self.frame is not None and arrival_ns < self.frame.arrival_ns - TIME_JUMP_NS:
            self.reset()
        self.received += 1
        self._arrivals.append(arrival_ns)
        stamp_ns = message_stamp_ns(message)
        self.stamp_problem = self._check.judge(stamp_ns, arrival_ns)
        if self.stamp_problem:
            self.frame = Frame(message, compressed, arrival_ns, arrival_ns, 0)
        else:
            self.frame = Frame(message, compressed, arrival_ns, stamp_ns, stamp_ns)
        return self.stamp_problem

    def status(self, now_ns: int) -> CameraStatus:
        """See CameraStatus."""
        arrival_age_s = header_age_s = math.inf
        if self.frame is not None:
            arrival_age_s = (now_ns - self.frame.arrival_ns) / NS_PER_S
            header_age_s = (now_ns - self.frame.stamp_ns + self.latency_ns) / NS_PER_S
        return CameraStatus(
            received=self.received,
            rate_hz=self._rate_hz(now_ns),
            arrival_age_s=arrival_age_s,
            header_age_s=header_age_s,
            decode_failures=self.decode_failures,
            stamp_problem=self.stamp_problem,
            error=self.error,
            height=self.height,
            width=self.width,
        )

    def note_failure(self, frame: Frame, error: str) -> None:
        """Count a frame that could not be decoded, once."""
        if frame is not self._failed:
            self._failed = frame
            self.decode_failures += 1
        self.error = error

    def note_size(self, height: int, width: int) -> None:
        """Remember that a frame was decoded."""
        self.height, self.width, self.error = height, width, ""

    def unchanged_s(self, frame: Frame, fingerprint: int) -> float:
        """For how long frames with this fingerprint have arrived, s."""
        if fingerprint != self._fingerprint or frame.arrival_ns < self._unchanged_since_ns:
            self._fingerprint, self._unchanged_since_ns = fingerprint, frame.arrival_ns
        return (frame.arrival_ns - self._unchanged_since_ns) / NS_PER_S

    def _rate_hz(self, now_ns: int) -> float:
        recent = [at for at in self._arrivals if 0 <= now_ns - at <= _RATE_WINDOW_NS]
        if len(recent) < 2 or recent[-1] <= recent[0]:
            return 0.0
        return (len(recent) - 1) * NS_PER_S / (recent[-1] - recent[0])
