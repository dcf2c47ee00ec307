# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Random checkpoints: the released sizes, whole files, shards, the mark."""

from __future__ import annotations

import json
from collections import namedtuple
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from cosmos_lite_ros.errors import BadInputError, EnvironmentLacksError
from cosmos_lite_ros.policy import random_checkpoint
from cosmos_lite_ros.policy.checkpoint import inspect, read_tensors
from cosmos_lite_ros.policy.random_checkpoint import make_random, transformer_shapes
from cosmos_lite_ros.policy.strict import check_tensors

CPU = torch.device("cpu")
SIZES = {"hidden_size": 128, "intermediate_size": 96, "num_hidden_layers": 2, "vocab_size": 448}
SHARD = 1_000_000


def make(out: Path, family: str = "nano", seed: int = 3) -> Path:
    return make_random(
        family, out, seed=seed, device=CPU, sizes=SIZES, vae_sizes={}, shard_bytes=SHARD
    )


@pytest.mark.parametrize(
    # Tensors and parameters of the released files without their vision tower.
    ("family", "tensors", "parameters"),
    [("edge", 549, 3_369_657_024), ("nano", 809, 15_173_136_576)],
)
def test_released_sizes(family: str, tensors: int, parameters: int) -> None:
    shapes = transformer_shapes(family)
    assert len(shapes) == tensors
    assert sum(torch.Size(s).numel() for s in shapes.values()) == parameters


def test_files_are_what_the_loader_expects(tmp_path: Path) -> None:
    info = inspect(str(make(tmp_path / "made")))
    check_tensors(info)
    assert info.random_weights
    assert info.config.family == "nano"
    files = [file.path for file in info.transformer_files]
    assert len(files) > 1
    single = max(
        torch.Size(s).numel() * 2 for f in info.transformer_files for s in f.shapes.values()
    )
    assert all(path.stat().st_size <= max(SHARD, single) + 100_000 for path in files)
    index = json.loads(next(files[0].parent.glob("*.index.json")).read_text())
    for name, file in index["weight_map"].items():
        with safe_open(files[0].parent / file, framework="pt") as handle:
            assert handle.get_slice(name).get_dtype() == "BF16"
    assert [p.name for p in (tmp_path).iterdir()] == ["made"]


def test_scales_and_seeds(tmp_path: Path) -> None:
    one = dict(read_tensors(inspect(str(make(tmp_path / "a", seed=1))).transformer_files))
    again = dict(read_tensors(inspect(str(make(tmp_path / "b", seed=1))).transformer_files))
    other = dict(read_tensors(inspect(str(make(tmp_path / "c", seed=2))).transformer_files))
    name = "layers.1.mlp_moe_gen.down_proj.weight"
    fan_in = one[name].shape[1]
    assert float(one[name].float().std()) == pytest.approx(fan_in**-0.5, rel=0.05)
    gain = one["layers.0.input_layernorm_moe_gen.weight"].float()
    assert float(gain.mean()) == pytest.approx(1.0, abs=0.05)
    assert all(torch.equal(one[k], again[k]) for k in one)
    assert not any(torch.equal(one[k], other[k]) for k in one)
    head = one["action_proj_out.fc.weight"].float()
    assert float(head.std()) == pytest.approx(128**-0.5, rel=0.05)


def test_a_foreign_folder_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    with pytest.raises(BadInputError, match="exists and is not a random checkpoint"):
        make(tmp_path / "mine")
    made = make(tmp_path / "made")
    before = (made / "transformer" / "config.json").stat().st_ino
    assert make(made, family="edge") == made
    assert (made / "transformer" / "config.json").stat().st_ino != before
    assert inspect(str(made)).config.family == "edge"


def test_a_full_disk_is_said_before_anything_is_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")
    # A full disk cannot be had here.
    monkeypatch.setattr(
        random_checkpoint.shutil, "disk_usage", lambda path: usage(10**9, 10**9, 400_000)
    )
    with pytest.raises(EnvironmentLacksError, match=r"0\.0 GB free, this checkpoint takes"):
        make(tmp_path / "made")
    assert list(tmp_path.iterdir()) == []
