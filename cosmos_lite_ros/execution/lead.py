# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Slow motion to one position: the way to a first row that is far away, and the way home."""

from __future__ import annotations

import numpy as np

from cosmos_lite_ros.execution.limiter import Floats

# A joint that has almost nothing to go need not wait for the others, rad/s.
_SLOWEST_RAD_S = 0.02
# Ticks without progress after which the way counts as blocked, and what counts as progress, rad.
_PATIENCE = 8
_PROGRESS_RAD = 1e-5


class Lead:
    """One such motion.

    Invariants: no joint is faster than ``speed``; the joints arrive at about the same time, so that
    the way is nearly straight in joint space; a way that does not come nearer ends as blocked.
    """

    def __init__(self, start: Floats, target: Floats, speed: Floats) -> None:
        """From ``start`` to ``target``, rad [joints], at most at ``speed``, rad/s [joints]."""
        self.target = target
        distance = np.abs(target - start)
        seconds = float((distance / speed).max())
        even = distance / seconds if seconds > 0 else speed
        self.speed = np.minimum(np.maximum(even, _SLOWEST_RAD_S), speed)
        self._nearest = np.inf
        self._waited = 0

    def blocked(self, position: Floats) -> bool:
        """Whether the command (rad [joints]) has come no nearer for too long; call once a tick."""
        left = float(np.abs(self.target - position).sum())
        if left < self._nearest - _PROGRESS_RAD:
            self._nearest, self._waited = left, 0
            return False
        self._waited += 1
        return self._waited > _PATIENCE
