# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""When the next chunk is asked for while one runs, and what it is to continue."""

from __future__ import annotations

import math

from cosmos_lite_ros.contract.constants import CHUNK_ROWS
from cosmos_lite_ros.execution.chunk_buffer import ChunkBuffer
from cosmos_lite_ros.execution.modes import delay_rows, prefix_possible
from cosmos_lite_ros.execution.requests import Prefix, RequestTracker
from cosmos_lite_ros.execution.settings import ExecutorSettings


def refill_at(settings: ExecutorSettings, requests: RequestTracker) -> float:
    """Rows left at which the next chunk is asked for; infinity while no latency is measured."""
    needed = requests.rows_needed(settings.refill_margin_rows)
    if settings.mode == "average":
        # Chunks that hardly overlap have nothing to average.
        return max(needed, settings.horizon / 2)
    if settings.mode == "prefix":
        return max(needed, CHUNK_ROWS - settings.horizon)
    return needed


def rows_to_continue(
    settings: ExecutorSettings, requests: RequestTracker, buffer: ChunkBuffer
) -> Prefix | None:
    """In mode ``prefix``, the rows that run while the policy thinks, and ``blend_rows`` after them.

    The first one is the row of this tick, which ``advance`` gave out last. None where there is
    nothing to continue or where it cannot be: the answer is then taken as in ``async``.
    """
    latency_s = requests.latency().p95_s
    if settings.mode != "prefix" or not math.isfinite(latency_s):
        return None
    delay = delay_rows(latency_s)
    if delay < 1 or not prefix_possible(delay, settings.horizon):
        return None
    positions = buffer.ahead(min(delay + settings.blend_rows, CHUNK_ROWS - 1))
    return Prefix(positions, min(delay, len(positions))) if len(positions) else None
