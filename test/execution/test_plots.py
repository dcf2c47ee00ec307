# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The script that draws the plots of the documentation still runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ..conftest import REPOSITORY

SCRIPT = REPOSITORY / "scripts" / "plot_execution.py"


def test_a_figure_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    command = [sys.executable, str(SCRIPT), "stops", "--out", str(tmp_path)]
    subprocess.run(command, env=environment, check=True, timeout=120)
    assert [path.name for path in tmp_path.iterdir()] == ["motion_stops.png"]
    assert (tmp_path / "motion_stops.png").read_bytes().startswith(b"\x89PNG")


def test_the_page_shows_every_figure() -> None:
    page = (REPOSITORY / "docs" / "explanation" / "motion.md").read_text(encoding="utf-8")
    for name in ("modes", "limits", "noise", "stops", "latency"):
        assert f"../images/motion_{name}.png" in page
        assert (REPOSITORY / "docs" / "images" / f"motion_{name}.png").stat().st_size > 10_000
