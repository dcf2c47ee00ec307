# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""doctor: here, and on a machine without torch and ROS."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from cosmos_lite_ros.cli import doctor
from cosmos_lite_ros.cli.doctor import PACKAGES, Package, State
from cosmos_lite_ros.errors import BadInputError
from cosmos_lite_ros.policy.profiles import EDGE, EDGE_REVISION

ROOT = Path(__file__).resolve().parents[2]

# A machine that lacks packages: importing them fails as if they were not installed.
BLOCKER = textwrap.dedent(
    """
    import sys

    class Blocker:
        def find_spec(self, name, path=None, target=None):
            if name.split(".")[0] in {blocked!r} or name == "cosmos_lite_ros.msg":
                raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
            return None

    sys.meta_path.insert(0, Blocker())
    """
)


def run_doctor(**environment: str) -> tuple[int, list[str], str]:
    """Exit code, lines of the table, and everything that was printed."""
    done = subprocess.run(
        [sys.executable, "-m", "cosmos_lite_ros.cli.main", "doctor"],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    text = done.stdout + done.stderr
    return done.returncode, [line for line in text.splitlines() if line.startswith("│")], text


def row(lines: list[str], name: str) -> list[str]:
    """The cells of one row."""
    found = [
        [cell.strip() for cell in line.strip("│").split("│")]
        for line in lines
        if line.strip("│").split("│")[0].strip() == name
    ]
    assert len(found) == 1, f"{name}: {found}"
    return found[0]


@pytest.mark.ros
def test_where_everything_needed_is_installed_the_exit_code_is_0() -> None:
    pytest.importorskip("rclpy")
    pytest.importorskip("torch")
    code, lines, text = run_doctor()
    assert code == 0, text
    assert row(lines, "torch")[1] == "ok"
    assert row(lines, "messages built")[1] == "ok"
    assert row(lines, "opencv")[1] == "ok"
    assert "everything that profile:=tiny and the demo need is here" in text
    names = {line.strip("│").split("│")[0].strip() for line in lines}
    assert {package.name for package in PACKAGES} <= names
    assert {"Python", "GPU", "disk", "memory", "checkpoint of Edge"} <= names


def test_without_torch_and_ros_it_says_what_to_do_and_ends_with_3(tmp_path: Path) -> None:
    blocked = {"torch", "rclpy", "diffusers", "rosbags"}
    (tmp_path / "sitecustomize.py").write_text(BLOCKER.format(blocked=blocked))
    path = f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    code, lines, text = run_doctor(PYTHONPATH=path)
    assert code == 3, text
    assert "Traceback" not in text
    for name in ("torch", "diffusers", "rclpy", "messages built", "middleware"):
        _, state, found, remedy = row(lines, name)
        assert state == "missing", name
        assert "No module named" in found
        assert remedy
    assert row(lines, "torch")[3] == "pip install 'cosmos_lite_ros[policy]'"
    assert row(lines, "rosbags")[1] == "absent", "needed by some commands only"
    assert row(lines, "GPU")[2] == "unknown without torch"
    assert "missing: torch, diffusers, rclpy, messages built, middleware" in text


def test_an_import_that_kills_the_interpreter_is_one_row() -> None:
    code = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"
    check = doctor.check_package(Package("bridge", code, "use another one", needed=False))
    assert check.state is State.OPTIONAL
    assert check.found == "the interpreter was killed by signal 11"
    assert check.remedy == "use another one"


def test_a_cached_revision_is_found_and_another_one_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    folder = tmp_path / f"models--{EDGE.replace('/', '--')}" / "snapshots"
    (folder / ("0" * 40)).mkdir(parents=True)
    edge, nano = doctor.check_checkpoints()
    assert (edge.state, nano.state) == (State.OPTIONAL, State.OPTIONAL)
    assert edge.remedy == f"hf download {EDGE} --revision {EDGE_REVISION}"
    (folder / EDGE_REVISION).mkdir()
    edge, nano = doctor.check_checkpoints()
    assert (edge.state, nano.state) == (State.OK, State.OPTIONAL)
    assert edge.found.endswith(EDGE_REVISION)


def test_where_downloads_are_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HF_HUB_CACHE", "HF_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert doctor.hub_cache() == tmp_path / "huggingface" / "hub"
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    assert doctor.hub_cache() == tmp_path / "home" / "hub"
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    assert doctor.hub_cache() == tmp_path / "cache"


def test_little_disk_and_memory_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert doctor.check_disk().state is State.OK
    monkeypatch.setattr(doctor, "_DISK_NEEDED", 1 << 60)
    monkeypatch.setattr(doctor, "_MEMORY_NEEDED", 1 << 60)
    monkeypatch.setattr(doctor, "_SHARED_MEMORY_WANTED", 1 << 60)
    assert doctor.check_disk().state is State.MISSING
    assert doctor.check_memory().state is State.MISSING
    shared = doctor.check_shared_memory()
    assert shared.state is State.OPTIONAL


def test_the_report_can_be_sent(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    out = tmp_path / "report.json"
    checks = [doctor.check_python(), doctor.Check("a", State.OK, f"{Path.home()}/secret")]
    doctor.write_report(out, checks, lambda _: None)
    found = json.loads(out.read_text())
    assert [c["name"] for c in found["checks"]] == [checks[0].name, "a"]
    assert found["checks"][1]["found"] == "~/secret"
    assert found["packages"]["numpy"]
    assert isinstance(found["gpus"], list)


def test_a_report_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="cannot write"):
        doctor.write_report(tmp_path / "no" / "report.json", [], lambda _: None)
