# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Which modes a latency allows, with the figures of the released policies."""

from __future__ import annotations

import math

import pytest

from cosmos_lite_ros.execution.modes import delay_rows, prefix_possible, why_impossible
from cosmos_lite_ros.execution.settings import ExecutorSettings

EDGE_S, NANO_S, SLOW_S = 0.331, 0.958, 3.0


def test_delay_in_rows() -> None:
    assert [delay_rows(s) for s in (EDGE_S, NANO_S, SLOW_S, 0.0, 0.01, 1 / 15)] == [
        5,
        15,
        45,
        0,
        1,
        1,
    ]


@pytest.mark.parametrize(
    ("mode", "latency_s", "words"),
    [
        ("prefix", EDGE_S, ""),
        ("prefix", 0.01, ""),
        ("sync", SLOW_S, ""),
        ("sync", math.nan, ""),
        ("async", EDGE_S, ""),
        ("async", NANO_S, ""),
        ("average", EDGE_S, ""),
        ("async", SLOW_S, "the policy takes 3.00 s (p95), which is 45 rows, and only 32 rows"),
        ("average", SLOW_S, "use mode sync"),
        ("sync", 4.5, "request_timeout_s is 4: make it larger"),
        ("prefix", NANO_S, "which is 15 rows, and horizon is 20, expected 15 to 17: change"),
        ("prefix", 1.2, "takes 1.20 s (p95), which is 18 rows, and a chunk has 32, expected twice"),
    ],
)
def test_impossible_modes(mode: str, latency_s: float, words: str) -> None:
    horizon = 20 if mode == "prefix" else 32
    settings = ExecutorSettings(mode=mode, horizon=horizon)  # type: ignore[arg-type]
    reason = why_impossible(settings, latency_s)
    assert words in reason
    assert bool(words) == bool(reason)
    assert "\n" not in reason


def test_sync_waits_no_longer_than_an_underrun_lasts() -> None:
    settings = ExecutorSettings(request_timeout_s=60.0)
    assert why_impossible(settings, 4.9) == ""
    assert "underrun_timeout_s is 5: make it larger" in why_impossible(settings, 5.1)


def test_where_a_prefix_is_possible() -> None:
    assert [s for s in range(33) if prefix_possible(5, s)] == list(range(5, 28))
    assert [s for s in range(33) if prefix_possible(15, s)] == [15, 16, 17]
    assert [s for s in range(33) if prefix_possible(16, s)] == [16]
    assert [s for s in range(33) if prefix_possible(17, s)] == []
