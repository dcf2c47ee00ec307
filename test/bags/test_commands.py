# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The bag commands as processes: exit codes, one line for an error, what is printed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from .makers import demo, joints_bag

ROOT = Path(__file__).resolve().parents[2]


def command(*arguments: object) -> subprocess.CompletedProcess[str]:
    path = f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    return subprocess.run(
        [sys.executable, "-m", "cosmos_lite_ros.cli.main", *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": path, "COLUMNS": "200", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_make_demo_bag_and_info_say_what_is_synthetic(tmp_path: Path) -> None:
    done = command("make-demo-bag", tmp_path / "bag", "--seconds", "1", "--generated")
    assert done.returncode == 0, done.stderr
    assert "/joint_states is synthetic" in done.stdout
    assert "/wrist/image/compressed is generated pictures: no camera" in done.stdout
    done = command("bag", "info", tmp_path / "bag")
    assert done.returncode == 0, done.stderr
    assert "/gripper/joint_states is synthetic" in done.stdout
    assert "rgb8; jpeg compressed bgr8" in done.stdout
    assert "missing" not in done.stdout


def test_info_of_a_broken_and_incomplete_bag(tmp_path: Path) -> None:
    path = joints_bag(tmp_path / "bag")
    (path / "metadata.yaml").unlink()
    done = command("bag", "info", path)
    assert done.returncode == 0, done.stderr
    assert "note: metadata.yaml is missing" in done.stdout
    assert (
        "missing for the policy: wrist/image, exterior_1/image, exterior_2/image, instruction"
        in (done.stdout)
    )


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["bag", "info", "absent"], "error: absent does not exist"),
        (["make-demo-bag", "BAG"], "exists already"),
        (["make-demo-bag", "new", "--clip", "absent"], "error: the clip folder absent lacks"),
        (["make-demo-bag", "new", "--size", "wide"], "error: --size is 'wide'"),
        (["make-demo-bag", "new", "--storage", "zip"], "error: --storage is 'zip'"),
        (["play", "BAG", "--speed", "2"], "error: unknown argument '--speed'"),
        (["play", "BAG", "--stamps", "old"], "error: --stamps is 'old'"),
        (["replay", "BAG", "--checkpoint", "c", "--out", "new"], "lacks exterior_1/image"),
        (["replay", "BAG", "--checkpoint", "c", "--out", "BAG/metadata.yaml"], "is a file"),
        (["replay", "BAG", "--checkpoint", "c", "--out", "new", "--robot", "ur5"], "robot type"),
    ],
)
def test_bad_input_is_one_line_and_code_2(tmp_path: Path, arguments: list[str], line: str) -> None:
    path = joints_bag(tmp_path / "bag")
    done = command(*(a.replace("BAG", str(path)) for a in arguments))
    assert done.returncode == 2
    (found,) = done.stderr.strip().splitlines()
    assert found.startswith("error: ")
    assert line in found
    assert not Path("new").exists()


def test_replay(
    tmp_path: Path,
    tiny_checkpoint: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("diffusers")
    from cosmos_lite_ros.cli.main import app

    monkeypatch.setenv("COLUMNS", "200")
    path = demo(tmp_path / "bag")
    options = ["--checkpoint", tiny_checkpoint("edge"), "--max-requests", 1, "--steps", 1]
    options += ["--guidance", 1, "--instruction", "wave"]

    def replay(out: Path, *more: object) -> Any:
        # In this process: importing torch and diffusers anew takes longer than the rest.
        return CliRunner().invoke(
            app, [str(a) for a in ("replay", path, "--out", out, *options, *more)]
        )

    done = replay(tmp_path / "out")
    assert done.exit_code == 0, done.output
    assert "1 chunks" in done.output
    assert "random weights" in done.output
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["requests"][0]["instruction"] == "wave"
    with np.load(tmp_path / "out" / "actions.npz", allow_pickle=False) as arrays:
        assert arrays["actions"].shape == (1, 32, 8)
        assert np.isfinite(arrays["actions"]).all()
    # No observation at all is a failed check, and the reason is said.
    done = replay(tmp_path / "none", "--gripper-joint", "thumb")
    assert done.exit_code == 1
    assert "no joint state yet of thumb" in done.output
