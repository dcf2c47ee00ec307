# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The demo, short, as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed")

from .test_act import run

pytestmark = [pytest.mark.ros, pytest.mark.slow]


def test_demo(tmp_path: Path) -> None:
    done = run("demo", "--out", tmp_path, "--seconds", 6, "--domain", 31)
    assert done.returncode == 0, done.stdout + done.stderr
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["chunks_accepted"] >= 1
    assert summary["commands"] >= 15
    assert summary["random_weights"] or summary["chunks"] == 0
    assert summary["exit_codes"] == {"policy": 0, "executor": 0, "player": 0}
    assert (tmp_path / "demo.png").read_bytes().startswith(b"\x89PNG")
    # What is not a recording says so.
    assert "synthetic" in done.stdout
    assert "random weights" in done.stdout
