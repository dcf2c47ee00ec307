# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The thread that ticks: absolute deadlines on the steady clock, nothing else."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from cosmos_lite_ros.execution.clock import NS
from cosmos_lite_ros.execution.ticker import Arrival, Ticker, TickGrid


class TickThread:
    """Calls ``work(arrival, now_ns)`` at each tick until it is told to end.

    An exception in ``work`` ends the thread and is kept in ``error``: the arm comes to rest by
    itself, since every trajectory ends at rest.
    """

    def __init__(self, grid: TickGrid, work: Callable[[Arrival, int], None]) -> None:
        self._work = work
        self._ticker = Ticker(grid, grid.running(time.monotonic_ns()) + 1)
        self._last = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tick", daemon=True)
        self.error: BaseException | None = None

    def start(self) -> None:
        """Begin with the next tick."""
        self._thread.start()

    def end(self) -> None:
        """Run one more tick and end; returns within about three periods."""
        self._last.set()
        if self._thread.is_alive():
            self._thread.join(0.3)

    def _run(self) -> None:
        try:
            last = False
            while not last:
                now_ns = time.monotonic_ns()
                while (left_ns := self._ticker.deadline_ns - now_ns) > 0:
                    time.sleep(left_ns / NS)
                    now_ns = time.monotonic_ns()
                # Read before the work: the last tick must see what was said before end().
                last = self._last.is_set()
                arrival = self._ticker.arrive(now_ns)
                if arrival is not None:
                    self._work(arrival, now_ns)
        except BaseException as error:
            self.error = error
