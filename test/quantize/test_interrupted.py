# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""An artifact appears whole or not at all, and writing it takes little memory."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from safetensors.torch import load_file, save_file

from cosmos_lite_ros.errors import BadInputError, CheckpointError, EnvironmentLacksError
from cosmos_lite_ros.policy.artifact import quantise_checkpoint
from cosmos_lite_ros.policy.random_checkpoint import make_random
from cosmos_lite_ros.quantize import write
from cosmos_lite_ros.quantize.staging import hidden_name, staging
from cosmos_lite_ros.quantize.verify import verify

from ..conftest import REPOSITORY, Figure
from .makers import artifact, copy_of, names_below, shard_of

Tiny = Callable[[str], Path]

# Stops where so much is done (not in the thread that hashes) and says so, then waits to be stopped.
_HALF_WAY = """
import sys, threading, time
from pathlib import Path
from cosmos_lite_ros.policy.artifact import quantise_checkpoint

def show(fraction, step):
    if fraction > float(sys.argv[3]) and threading.current_thread() is threading.main_thread():
        print("half way", flush=True)
        time.sleep(60)

quantise_checkpoint(sys.argv[1], "fp8", Path(sys.argv[2]), shard_bytes=200_000, progress=show)
"""


@contextmanager
def half_way(source: Path, out: Path, fraction: float) -> Iterator[subprocess.Popen[str]]:
    """A process that has written so much of an artifact."""
    process = subprocess.Popen(
        [sys.executable, "-c", _HALF_WAY, str(source), str(out), str(fraction)],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "half way\n"
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=20)


@pytest.mark.parametrize("fraction", [0.2, 0.99])
def test_killed(fraction: float, tiny_checkpoint: Tiny, tmp_path: Path) -> None:
    source, out = tiny_checkpoint("nano"), tmp_path / "out"
    with half_way(source, out, fraction) as process:
        left = names_below(hidden_name(out))
        assert any(name.startswith("transformer/") for name in left)
        # A second run meanwhile touches nothing.
        with pytest.raises(BadInputError, match="another process is writing"):
            quantise_checkpoint(str(source), "int8", out)
        assert names_below(hidden_name(out)) == left
        process.kill()
        process.wait(20)
    assert not out.exists()
    assert hidden_name(out).is_dir()
    (hidden_name(out) / "transformer" / "left_over.safetensors").touch()
    artifact(source, out, "int8")
    assert not hidden_name(out).exists()
    assert verify(out) == []
    assert json.loads((out / "artifact.json").read_text())["scheme"] == "int8"


def test_interrupted_from_the_keyboard(tiny_checkpoint: Tiny, tmp_path: Path) -> None:
    source, out = tiny_checkpoint("edge"), tmp_path / "out"
    with half_way(source, out, 0.5) as process:
        process.send_signal(signal.SIGINT)
        assert process.wait(20) != 0
    assert list(tmp_path.iterdir()) == []


def test_the_command_line_interrupted(tmp_path: Path) -> None:
    source = make_random("edge", tmp_path / "edge", sizes=_SIZES, vae_sizes={})
    out = tmp_path / "out"
    command = ("quantize", str(source), "--scheme", "fp8", "--out", str(out))
    process = subprocess.Popen(
        [sys.executable, "-m", "cosmos_lite_ros.cli.main", *command],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        while not (hidden_name(out) / "transformer").exists() and process.poll() is None:
            time.sleep(0.001)
        process.send_signal(signal.SIGINT)
        shown, errors = process.communicate(timeout=60)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate(timeout=20)
        shutil.rmtree(source)
    assert process.returncode == 130, errors
    assert (shown, "Traceback" in errors) == ("", False)
    assert list(tmp_path.iterdir()) == []


def test_any_error_leaves_nothing(tiny_checkpoint: Tiny, tmp_path: Path) -> None:
    source = copy_of(tiny_checkpoint("edge"), tmp_path / "source")
    name = "layers.1.mlp_moe_gen.up_proj.weight"
    tensors = load_file(shard_of(source))
    tensors[name][3, 4] = float("nan")
    save_file(tensors, shard_of(source))
    with pytest.raises(CheckpointError, match=f"{name} holds values that are not finite"):
        quantise_checkpoint(str(source), "int8", tmp_path / "out")
    assert [p.name for p in tmp_path.iterdir()] == ["source"]
    tensors[name] = torch.zeros_like(tensors[name], dtype=torch.float8_e4m3fn)
    save_file(tensors, shard_of(source))
    with pytest.raises(CheckpointError, match=r"up_proj\.weight is F8_E4M3, expected BF16"):
        quantise_checkpoint(str(source), "int8", tmp_path / "out")
    assert [p.name for p in tmp_path.iterdir()] == ["source"]


def test_a_full_disk_is_said_before_anything_is_written(
    tiny_checkpoint: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk's answer is invented."""

    class Usage(NamedTuple):
        free: int

    source = str(tiny_checkpoint("edge"))
    monkeypatch.setattr(write.shutil, "disk_usage", lambda _: Usage(66_000_000))
    with pytest.raises(EnvironmentLacksError) as caught:
        quantise_checkpoint(source, "fp8", tmp_path / "out")
    assert str(caught.value) == (
        f"{tmp_path} has 0.07 GB free, this artifact takes 0.07 GB: choose a folder on another disk"
    )
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(write.shutil, "disk_usage", lambda _: Usage(67_000_000))
    quantise_checkpoint(source, "fp8", tmp_path / "out")


def test_a_write_that_fails(
    tiny_checkpoint: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(write, "write_tensor", full)
    with pytest.raises(EnvironmentLacksError, match="No space left on device"):
        quantise_checkpoint(str(tiny_checkpoint("edge")), "fp8", tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_name_that_is_taken_meanwhile(tmp_path: Path) -> None:
    out = tmp_path / "out"

    def fill() -> None:
        with staging(out) as hidden:
            (hidden / "file").touch()
            out.mkdir()

    with pytest.raises(BadInputError, match="out exists"):
        fill()
    assert [p.name for p in tmp_path.iterdir()] == ["out"]
    assert list(out.iterdir()) == []


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(EnvironmentLacksError, match="cannot write to"), staging(file / "out"):
        pass


_PEAK = """
import json, sys, threading, time
from pathlib import Path
import torch
from cosmos_lite_ros.policy.artifact import quantise_checkpoint
from cosmos_lite_ros.policy.checkpoint import inspect
from cosmos_lite_ros.policy.process import host_anonymous_bytes
from cosmos_lite_ros.policy.strict import check_tensors

check_tensors(inspect(sys.argv[1]))  # imports what it imports before anything is measured
for scheme in ("fp8", "int4wo"):
    before = peak = host_anonymous_bytes()

    def look(*_):
        global peak
        peak = max(peak, host_anonymous_bytes())

    running = True

    def watch():
        while running:
            look()
            time.sleep(0.001)

    watcher = threading.Thread(target=watch)
    watcher.start()
    quantise_checkpoint(sys.argv[1], scheme, Path(sys.argv[2]) / scheme, progress=look)
    running = False
    watcher.join()
    print(json.dumps({"scheme": scheme, "peak": peak - before}))
"""
# About 130 MB.
_SIZES = {
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "num_hidden_layers": 5,
}


def test_the_peak_is_a_chunk_of_rows(tmp_path: Path, figure: Figure) -> None:
    source = make_random("edge", tmp_path / "edge", sizes=_SIZES, vae_sizes={})
    try:
        done = subprocess.run(
            [sys.executable, "-c", _PEAK, str(source), str(tmp_path)],
            capture_output=True,
            text=True,
            timeout=120,
            cwd=REPOSITORY,
        )
        assert done.returncode == 0, done.stderr
        sizes = [
            sum(p.stat().st_size for p in (tmp_path / s).rglob("*.safetensors"))
            for s in ("fp8", "int4wo")
        ]
        assert all(verify(tmp_path / scheme) == [] for scheme in ("fp8", "int4wo"))
    finally:
        for name in ("edge", "fp8", "int4wo"):
            shutil.rmtree(tmp_path / name, ignore_errors=True)
    peaks = [json.loads(line) for line in done.stdout.splitlines()[-2:]]
    megabytes = {p["scheme"]: round(p["peak"] / 1e6, 1) for p in peaks}
    figure(f"quantise, MB anonymous: {megabytes}")
    # Chunks of 4 MB in float32, their temporaries, and what is hashed beside it.
    assert all(p["peak"] < 45e6 for p in peaks)
    assert min(sizes) > 80e6
