# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""``bench tick`` end to end, for seconds; no times are asserted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("rclpy")

from cosmos_lite_ros.ros.bench_tick import _report

from .test_act import invoke

pytestmark = pytest.mark.ros

BARE = {"lateness_s": [0.001] * 100, "missed": 0, "realtime": False}


def test_it_measures_the_executor_and_a_bare_loop(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "tick.json"
    code = invoke(
        *("bench", "tick", "--minutes", 0.05, "--rate", 250),
        *("--domain", 99, "--json", file),
    )
    assert code in (0, 1), capsys.readouterr().err
    report = json.loads(file.read_text())
    (run,) = report["runs"]
    assert report["passed"] is (code == 0)
    assert run["rate_hz"] == 250
    for loop in ("executor", "bare"):
        figures = run[loop]
        assert 300 < figures["count"] + figures["missed"] < 1500
        assert 0 <= figures["p50_ms"] <= figures["p95_ms"] <= figures["p99_ms"] <= figures["max_ms"]
    assert run["scheduling"].startswith("SCHED_")
    assert run["realtime"] == run["scheduling"].startswith("SCHED_FIFO")
    assert run["load"]["cores_busy"] > 0
    shown = capsys.readouterr().out
    assert "executor" in shown
    assert "bare" in shown
    assert run["scheduling"] in shown


@pytest.mark.parametrize(
    ("rate_hz", "lateness_s", "missed", "words"),
    [
        (15, 0.0019, 0, []),
        (15, 0.0021, 0, ["15 Hz: p99 2.10 ms, expected at most 1 ms more than the bare loop's"]),
        (15, 0.001, 1, ["15 Hz: 1 ticks were missed, expected none"]),
        (250, 0.001, 7, []),
    ],
)
def test_the_verdict(rate_hz: int, lateness_s: float, missed: int, words: list[str]) -> None:
    report = _report(rate_hz, [lateness_s] * 100, missed, BARE, {}, {})
    assert len(report["failures"]) == len(words)
    for failure, expected in zip(report["failures"], words, strict=True):
        assert failure.startswith(expected)


def test_bad_options_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke("bench", "tick", "--rate", 5) == 2
    assert "command_rate_hz is 5, expected 15 to 500" in capsys.readouterr().err
    assert invoke("bench", "tick", "--priority", 99) == 2
    assert "--priority is 99, expected 0 to 98" in capsys.readouterr().err
