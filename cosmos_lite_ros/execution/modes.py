# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Which modes a policy is quick enough for."""

from __future__ import annotations

import math

from cosmos_lite_ros.contract.constants import CHUNK_ROWS, RATE_HZ
from cosmos_lite_ros.execution.settings import ExecutorSettings


def delay_rows(latency_s: float) -> int:
    """Rows that lie in the past when a chunk arrives that was asked for ``latency_s`` before."""
    # Answers are taken at ticks: a hundredth is the rounding of a whole number of them.
    return math.ceil(latency_s * RATE_HZ - 0.01)


def prefix_possible(delay: int, horizon: int) -> bool:
    """Whether a chunk can be guided to continue the running one, ``delay`` rows being its latency.

    It is asked for when ``horizon`` rows of the running chunk lie behind, and must continue the
    ``delay`` rows that run until it arrives: those must be there (horizon + delay <= 32), and the
    chunk that they belong to must have arrived before it was ``horizon`` rows old (delay <=
    horizon).
    """
    return delay <= horizon <= CHUNK_ROWS - delay


def why_impossible(settings: ExecutorSettings, latency_s: float) -> str:
    """Why a mode cannot work with a policy that takes ``latency_s`` (p95); empty when it can."""
    if not math.isfinite(latency_s):
        return ""
    mode, patience_s = settings.mode, settings.request_timeout_s
    taken = f"the policy takes {latency_s:.2f} s (p95)"
    if latency_s >= patience_s:
        return (
            f"mode {mode} is impossible: {taken} and request_timeout_s is {patience_s:g}: make it "
            "larger"
        )
    if mode == "sync":
        if latency_s < settings.underrun_timeout_s:
            return ""
        return (
            f"mode sync is impossible: {taken} and underrun_timeout_s is "
            f"{settings.underrun_timeout_s:g}: make it larger"
        )
    delay = delay_rows(latency_s)
    if mode == "prefix":
        if prefix_possible(delay, settings.horizon):
            return ""
        taken = f"mode prefix is impossible: {taken}, which is {delay} rows"
        if 2 * delay > CHUNK_ROWS:
            return (
                f"{taken}, and a chunk has {CHUNK_ROWS}, expected twice as many; use async or sync"
            )
        return (
            f"{taken}, and horizon is {settings.horizon}, expected {delay} to "
            f"{CHUNK_ROWS - delay}: change horizon, or use async"
        )
    if delay < settings.horizon:
        return ""
    return (
        f"mode {mode} is impossible: {taken}, which is {delay} rows, and only {settings.horizon} "
        "rows of a chunk may be executed: every row would lie in the past; use mode sync"
    )
