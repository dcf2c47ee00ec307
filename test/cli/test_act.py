# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""``act`` and ``make-tiny`` as a user runs them: exit codes, one line of error, the right chunk."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from cosmos_lite_ros.cli.main import main

from ..conftest import GOLDEN, REPOSITORY
from ..policy.test_golden import ACTION_LIMIT, load_case


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    """The command line in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "cosmos_lite_ros.cli.main", *map(str, arguments)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def invoke(*arguments: object) -> int:
    """The same entry point in this process, which has loaded torch already; the exit code."""
    before = sys.argv
    sys.argv = ["cosmos-lite-ros", *map(str, arguments)]
    try:
        return main()
    except SystemExit as end:
        return int(end.code or 0)
    finally:
        sys.argv = before


def _arguments(folder: Path, family: str = "edge") -> dict[str, object]:
    """The golden request P1 as files and options."""
    case = load_case(GOLDEN / family / "cases" / "P1.npz")
    files = {}
    for key in ("wrist", "exterior_1", "exterior_2"):
        files[key] = folder / f"{key}.png"
        files[key].write_bytes(case[f"{key}_png"].tobytes())
    return {
        "--checkpoint": GOLDEN / family / "checkpoint",
        "--wrist": files["wrist"],
        "--exterior-1": files["exterior_1"],
        "--exterior-2": files["exterior_2"],
        "--joints": ",".join(str(v) for v in case["joints"]),
        "--gripper": str(case["gripper"]),
        "--instruction": str(case["task"]),
        "--seed": int(case["seed"]),
        "--out": folder / "chunk.npy",
    }


def _flat(options: dict[str, object]) -> list[object]:
    return [item for pair in options.items() for item in pair]


@pytest.mark.parametrize("family", ["edge", "nano"])
def test_golden_request(family: str, tmp_path: Path) -> None:
    done = run("act", *_flat(_arguments(tmp_path, family)))
    assert done.returncode == 0, done.stderr
    chunk = np.load(tmp_path / "chunk.npy", allow_pickle=False)
    expected = load_case(GOLDEN / family / "cases" / "P1.npz")["action"]
    assert chunk.shape == (32, 8)
    assert chunk.dtype == np.float32
    assert np.abs(chunk - expected).max() <= ACTION_LIMIT
    assert "random weights" in done.stdout
    assert done.stdout.count("\n") > 32


def test_the_table_is_whole_at_80_columns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert invoke("act", *_flat(_arguments(tmp_path)), "--steps", 1, "--guidance", 1) == 0
    chunk = np.load(tmp_path / "chunk.npy", allow_pickle=False)
    lines = capsys.readouterr().out.splitlines()
    row = next(line.split() for line in lines if line.split()[:2] == ["31", "2.067"])
    np.testing.assert_allclose([float(cell) for cell in row[2:]], chunk[31], atol=6e-4)


def test_a_missing_extra_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = ("rosbags", "cosmos_lite_ros.bags")
    for name in [n for n in sys.modules if n.startswith(loaded)]:
        monkeypatch.delitem(sys.modules, name)
    # None is how Python itself marks a package that cannot be imported.
    monkeypatch.setitem(sys.modules, "rosbags", None)
    assert invoke("bag", "info", "nowhere") == 3
    error = capsys.readouterr().err
    assert "the extra [bags]" in error
    assert len(error.strip().splitlines()) == 1


def test_options_reach_the_sampler(tmp_path: Path) -> None:
    options = _arguments(tmp_path)
    chunks = {}
    for name, extra in {
        "guided at 999 only": ["--guidance-interval", 960, 1001],
        "guided nowhere": ["--guidance-interval", 0, 1],
        "unguided": ["--guidance", 1],
    }.items():
        assert invoke("act", *_flat(options), *extra) == 0
        chunks[name] = np.load(tmp_path / "chunk.npy", allow_pickle=False)
    np.testing.assert_array_equal(chunks["guided nowhere"], chunks["unguided"])
    assert np.abs(chunks["guided at 999 only"] - chunks["unguided"]).max() > 1e-3


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("--checkpoint", "/nonexistent/checkpoint", "neither a folder nor a Hugging Face id"),
        ("--joints", "1,2,3", "--joints has 3 values, expected 7"),
        ("--joints", "1,2,3,4,5,6,x", "expected q1,..,q7 in rad"),
        ("--joints", "1,2,3,4,5,6,nan", "must be finite"),
        ("--gripper", "1.5", "expected 0 (open) to 1 (closed)"),
        ("--instruction", "  ", "the instruction is empty"),
        ("--steps", "9", "expected 1 to 8"),
        ("--seed", "-1", "--seed is -1"),
        ("--dtype", "float16", "expected one of float32, bfloat16"),
        ("--device", "cuda:99", "CUDA GPUs found"),
        ("--compose", "stretch", "expected client or server"),
        ("--wrist", "nowhere.png", "no such image file"),
        ("--out", "chunk.txt", "expected FILE.npy"),
    ],
)
def test_bad_input_is_one_line(
    option: str, value: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = invoke("act", *_flat({**_arguments(tmp_path), option: value}))
    error = capsys.readouterr().err
    assert code == (3 if option == "--device" else 2)
    assert says in error
    assert len(error.strip().splitlines()) == 1
    assert not (tmp_path / "chunk.npy").exists()


def test_truncated_image_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = _arguments(tmp_path)
    wrist = Path(str(options["--wrist"]))
    wrist.write_bytes(wrist.read_bytes()[:5000])
    assert invoke("act", *_flat(options)) == 2
    error = capsys.readouterr().err
    assert "cannot be read as an image" in error
    assert len(error.strip().splitlines()) == 1


def test_make_tiny(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke("make-tiny", "--family", "nano", "--out", tmp_path / "tiny") == 0
    assert "random weights" in capsys.readouterr().out
    assert (tmp_path / "tiny" / "model_index.json").is_file()
    assert invoke("make-tiny", "--family", "mega", "--out", tmp_path / "other") == 2
    assert "expected edge or nano" in capsys.readouterr().err
    assert not (tmp_path / "other").exists()


def test_version_and_help() -> None:
    assert run("--version").stdout.startswith("cosmos-lite-ros 0.")
    assert run("act", "--help").returncode == 0
    assert run("no-such-command").returncode == 2
