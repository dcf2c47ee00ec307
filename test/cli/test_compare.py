# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""``compare`` as a user runs it: figures, verdicts, exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ..policy.compare.makers import small_checkpoint
from .test_act import invoke

ENOUGH = ("--requests", 4, "--steps", 1)
FEW = ("--requests", 2, "--steps", 1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_checkpoint("edge", tmp_path_factory.mktemp("compare") / "edge")


def test_all_three_tests_of_the_reference_itself(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The candidate is the reference's own arithmetic: it must pass, whatever the weights."""
    out = tmp_path / "report.json"
    options = ("--candidate", "bf16", "--level", "request", "--reference", "bf16", "--json", out)
    assert invoke("compare", "--checkpoint", folder, *options, *ENOUGH) == 0
    report = json.loads(out.read_text())
    (candidate,) = report["candidates"]
    assert candidate["verdict"] == "pass"
    assert [candidate[t]["verdict"] for t in ("T0", "T1", "T2")] == ["pass"] * 3
    assert report["reference"]["T0"]["verdict"] == "pass"
    assert all(check["equal"] for check in candidate["T0"]["checks"])
    assert report["planted"]["norm"] == 64.0
    assert report["random_weights"] is True
    assert [m["name"] for m in report["accepted"]] == [
        "stock modules",
        "stock modules, float32 products",
    ]
    # The accepted set is the library's network on the same inputs: near, and not the same.
    assert all(5e-4 < m["action_l2"] < 0.01 for m in report["accepted"])
    assert candidate["T2"]["picture_relative_l2"] == 0.0
    assert 0.0 <= candidate["T2"]["false_alarms"] <= 1.0
    said = capsys.readouterr()
    printed = " ".join(said.out.split())
    assert "not applicable: random weights" in printed
    assert "planted on 4 channels of each layer" in printed
    assert "13 to 17 % of runs of 16 requests" in printed
    assert "success rate" in printed
    assert said.out.rstrip().endswith("bf16: pass")
    assert max(map(len, said.out.split("relative L2 of the velocity; x")[1].splitlines())) <= 80
    assert "q1" in printed
    assert "gripper" in printed
    assert "request 4 of 4" in said.err


def test_a_scheme_with_planted_outliers_and_without(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = {}
    for outliers in ("planted", "none"):
        out = tmp_path / f"{outliers}.json"
        options = ("--candidate", "int8", "--candidate", "fp8", "--test", "T1", "--json", out)
        code = invoke("compare", "--checkpoint", folder, *options, "--outliers", outliers, *FEW)
        # Eight bits are another arithmetic: the limits of a change of kernels say so.
        assert code == 1
        report = json.loads(out.read_text())
        found[outliers] = {c["name"]: mean_l2(c) for c in report["candidates"]}
        assert all("T2" not in c and "T0" not in c for c in report["candidates"])
        assert (report["planted"] is None) == (outliers == "none")
    assert "rank precisions backwards" in " ".join(capsys.readouterr().out.split())
    # Without outliers int8 looks better than fp8; with them it is what it is.
    assert found["none"]["int8"] < 0.7 * found["none"]["fp8"]
    assert found["planted"]["int8"] > 2.0 * found["planted"]["fp8"]


def test_a_tiny_checkpoint_made_for_the_occasion(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "report.json"
    options = ("--candidate", "bf16", "--test", "T1", "--requests", 1, "--steps", 1, "--json", out)
    # The same bits as the reference's, and still: one request decides nothing.
    assert invoke("compare", "--tiny", "nano", *options) == 1
    report = json.loads(out.read_text())
    assert report["family"] == "nano"
    assert report["planted"]["norm"] == 64.0
    assert not Path(report["checkpoint"]).exists()
    assert report["candidates"][0]["verdict"] == "undecided"
    assert "1 requests, at least 4 are needed for a verdict" in capsys.readouterr().out


def mean_l2(candidate: dict[str, Any]) -> float:
    (step,) = candidate["T1"]["steps"]
    values = step["action"]["relative_l2"]
    return float(sum(values) / len(values))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--tiny", "edge", "--candidate", "fp7"), "scheme is 'fp7', expected one of"),
        (("--candidate", "fp8"), "exactly one of --checkpoint, --tiny and --released"),
        (("--tiny", "edge", "--checkpoint", "x", "--candidate", "fp8"), "exactly one of"),
        (("--tiny", "giant", "--candidate", "fp8"), "is 'giant', expected edge or nano"),
        (
            ("--tiny", "edge", "--candidate", "fp8", "--level", "run"),
            "--level is 'run', expected request",
        ),
        (
            ("--tiny", "edge", "--candidate", "fp8", "--reference", "fp8"),
            "--reference is 'fp8', expected bf16",
        ),
        (("--tiny", "edge", "--candidate", "fp8", "--requests", 0), "found 0 requests"),
        (("--tiny", "edge", "--candidate", "fp8", "--test", "T3"), "test is 'T3'"),
        (("--tiny", "edge", "--candidate", "fp8", "--outliers", "some"), "outliers is 'some'"),
        (("--tiny", "edge", "--candidate", "fp8", "--residual", "0"), "residual is 0.0"),
        (("--checkpoint", "nowhere", "--candidate", "fp8"), "'nowhere' is neither a folder"),
    ],
)
def test_what_cannot_be_compared_is_refused_in_one_line(
    arguments: tuple[object, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke("compare", *arguments) == 2
    errors = capsys.readouterr().err
    assert said in errors
    assert errors.count("\n") == 1


def test_an_artifact_is_refused(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    artifact = tmp_path / "int8"
    assert invoke("quantize", folder, "--scheme", "int8", "--out", artifact) == 0
    capsys.readouterr()
    assert invoke("compare", "--checkpoint", artifact, "--candidate", "int8") == 2
    assert "quantised as int8" in capsys.readouterr().err


@pytest.mark.gpu
@pytest.mark.parametrize("family", ["edge", "nano"])
def test_on_a_gpu(family: str, tmp_path: Path) -> None:
    """Graphs repeat bit for bit, and the library's transformer is the accepted set."""
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no CUDA GPU")
    out = tmp_path / "report.json"
    options = ("--candidate", "bf16", "--candidate", "int8", "--device", "cuda", "--json", out)
    assert invoke("compare", "--tiny", family, *options, "--requests", 4) == 1
    report = json.loads(out.read_text())
    bf16, int8 = report["candidates"]
    assert report["reference"]["effective"]["graphs"] is True
    assert [c["T0"]["verdict"] for c in (bf16, int8)] == ["pass", "pass"]
    assert bf16["T1"]["verdict"] == "pass"
    assert int8["T1"]["verdict"] == "fail"
    names = [m["name"] for m in report["accepted"]]
    assert names[:2] == ["stock transformer, eager", "stock transformer, compiled"]
    assert names[2].startswith("engine, ")
    assert all(0.0 < m["action_l2"] < 0.02 for m in report["accepted"])
