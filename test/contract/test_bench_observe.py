# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""``bench observe`` measures the real way, on one core, and says on what machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cosmos_lite_ros.contract.bench_observe import CASES, bench_observe, machine, one_core
from cosmos_lite_ros.contract.views import pillow_resize
from cosmos_lite_ros.errors import BadInputError
from test.conftest import REPOSITORY


def test_the_command_prints_a_table_and_writes_json(tmp_path: Path) -> None:
    file = tmp_path / "bench.json"
    # In a process of its own: it keeps itself to one thread.
    arguments = ["bench", "observe", "--runs", "50", "--json", str(file)]
    result = subprocess.run(
        [sys.executable, "-m", "cosmos_lite_ros.cli.main", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=REPOSITORY,
    )
    assert result.returncode == 0, result.stderr
    assert "memcpy" in result.stdout
    assert machine() in result.stdout
    report = json.loads(file.read_text())
    assert report["cores"] == 1
    assert {r["case"] for r in report["results"]} == {case.name for case in CASES}
    for r in report["results"]:
        assert r["runs"] == 50
        assert 0 < r["memcpy_ms"] < r["observation_ms"] <= r["observation_p95_ms"]
        assert (r["pillow_resize_ms"] is None) == ("640x360" in r["case"])
        # Ten times the aim: per-pixel Python would take seconds, a busy machine does not.
        assert r["observation_ms"] < 10 * r["aim_ms"]


def test_too_few_runs_are_refused() -> None:
    with pytest.raises(BadInputError, match="found 49 runs, expected at least 50"):
        bench_observe({"pillow": pillow_resize}, 49)


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="no processor affinity here")
def test_one_core_is_given_back() -> None:
    before = os.sched_getaffinity(0)
    with one_core():
        assert len(os.sched_getaffinity(0)) == 1
    assert os.sched_getaffinity(0) == before
