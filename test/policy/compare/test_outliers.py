# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Planted outliers are outliers, and change nothing that the network computes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from cosmos_lite_ros.errors import BadInputError
from cosmos_lite_ros.policy.artifact import quantise_checkpoint
from cosmos_lite_ros.policy.checkpoint import MARKER_FILE, inspect, read_tensors
from cosmos_lite_ros.policy.compare.outliers import (
    PLANTED_KEY,
    Planting,
    plant,
    plant_in_place,
    planted_in,
)
from cosmos_lite_ros.policy.compare.requests import frozen_requests
from cosmos_lite_ros.policy.engine import EngineSettings, PolicyEngine, SamplerSettings

from ...conftest import GOLDEN
from .makers import small_checkpoint

FAMILIES = ("edge", "nano")
EVERYTHING = Planting(norm=64.0, mlp=8.0)


def golden(family: str) -> Path:
    return GOLDEN / family / "checkpoint"


def tensors_of(folder: Path) -> dict[str, Tensor]:
    # Copies: the library's tensors show what is written to the file later.
    files = inspect(str(folder)).transformer_files
    return {name: tensor.clone() for name, tensor in read_tensors(files)}


def action(folder: Path, dtype: str = "float32") -> Any:
    """One forward's worth of a chunk, in float32 arithmetic or the reference's."""
    engine = PolicyEngine.load(
        EngineSettings(str(folder), dtype=dtype, sampler=SamplerSettings(1, 1.0))
    )
    request = frozen_requests(1)[0]
    try:
        return engine.act(request.observation, seed=request.seed).as_array()
    finally:
        engine.close()


@pytest.mark.parametrize("family", FAMILIES)
def test_the_golden_action_keeps_its_bits(family: str, tmp_path: Path) -> None:
    plain = action(golden(family))
    planted = action(plant(golden(family), tmp_path / "planted", EVERYTHING))
    assert plain.std() > 0.1
    # Powers of two: every product is the same up to its exponent.
    assert abs(planted - plain).max() == 0.0


@pytest.mark.parametrize("family", FAMILIES)
def test_a_factor_of_sixty_in_float32_weights_is_rounding_alone(
    family: str, tmp_path: Path
) -> None:
    """Stored wide enough, any factor will do."""
    from safetensors.torch import save_file

    folder = small_checkpoint(family, tmp_path / family)
    for file in inspect(str(folder)).transformer_files:
        wide = {name: t.float() for name, t in read_tensors((file,))}
        save_file(wide, file.path, metadata={"format": "pt"})
    plain = action(folder)
    planted = action(plant(folder, tmp_path / "planted", Planting(norm=60.0)))
    assert abs(planted - plain).max() < 4e-6


def test_the_bfloat16_reference_keeps_its_bits(tmp_path: Path) -> None:
    folder = small_checkpoint("nano", tmp_path / "nano")
    plain = action(folder, "bfloat16")
    plant_in_place(folder, EVERYTHING)
    assert (action(folder, "bfloat16") == plain).all()


def changed(before: dict[str, Tensor], after: dict[str, Tensor]) -> dict[str, Tensor]:
    """Name -> ratio of the values, of the tensors that differ; NaN where both are zero."""
    assert before.keys() == after.keys()
    return {
        name: after[name].double() / before[name].double()
        for name in before
        if not torch.equal(before[name], after[name])
    }


def equal(ratio: Tensor, expected: Tensor | float) -> Tensor:
    """Where the ratio is as expected, or unknown."""
    return (ratio == expected) | ratio.isnan()


@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_planted_where(family: str, tmp_path: Path) -> None:
    before = tensors_of(golden(family))
    after = tensors_of(plant(golden(family), tmp_path / "planted", Planting(norm=64.0)))
    ratios = changed(before, after)
    layers = inspect(str(golden(family))).config.layers
    gate = ["mlp_moe_gen.gate_proj.weight"] if family == "nano" else []
    parts = {
        "input_layernorm_moe_gen.weight": [f"self_attn.add_{n}_proj.weight" for n in "qkv"],
        "post_attention_layernorm_moe_gen.weight": ["mlp_moe_gen.up_proj.weight", *gate],
    }
    assert ratios.keys() == {
        f"layers.{i}.{name}" for i in range(layers) for k, v in parts.items() for name in (k, *v)
    }
    for i in range(layers):
        for norm, matrices in parts.items():
            gain = ratios[f"layers.{i}.{norm}"]
            assert int((gain == 64.0).sum()) == 4
            for name in matrices:
                # Every row of the matrix, at the norm's channels.
                assert bool(equal(ratios[f"layers.{i}.{name}"], 1.0 / gain).all())
    chosen = {tuple(torch.nonzero(r.flatten() == 64.0).flatten().tolist()) for r in ratios.values()}
    assert len(chosen - {()}) == 2 * layers  # each norm has channels of its own


@pytest.mark.parametrize(("family", "back"), [("edge", 1 / 64.0), ("nano", 1 / 8.0)])
def test_outliers_of_the_mlp_undo_what_the_activation_makes_of_them(
    family: str, back: float, tmp_path: Path
) -> None:
    before = tensors_of(golden(family))
    planted = plant(golden(family), tmp_path / "planted", Planting(norm=1.0, mlp=8.0))
    ratios = changed(before, tensors_of(planted))
    for i in range(3):
        up = ratios[f"layers.{i}.mlp_moe_gen.up_proj.weight"]
        down = ratios[f"layers.{i}.mlp_moe_gen.down_proj.weight"]
        rows = equal(up, 8.0).all(dim=1)
        assert int(rows.sum()) == 4
        assert torch.equal(equal(down, back).all(dim=0), rows)
    assert len(ratios) == 6


def test_a_quiet_stream_scales_all_that_is_added_to_it(tmp_path: Path) -> None:
    before = tensors_of(golden("edge"))
    planted = plant(golden("edge"), tmp_path / "planted", Planting(norm=1.0, residual=2.0**-8))
    ratios = changed(before, tensors_of(planted))
    assert all(bool(equal(r, 2.0**-8).all()) for r in ratios.values())
    assert ratios.keys() == {
        *(f"proj_in.{k}" for k in ("weight", "bias")),
        *(f"time_embedder.linear_2.{k}" for k in ("weight", "bias")),
        *(f"action_proj_in.{k}.weight" for k in ("fc", "bias")),
        "action_modality_embed",
        *(f"layers.{i}.self_attn.to_add_out.weight" for i in range(3)),
        *(f"layers.{i}.mlp_moe_gen.down_proj.weight" for i in range(3)),
    }


@pytest.mark.parametrize("family", FAMILIES)
def test_in_place_and_into_a_copy_give_the_same_tensors(family: str, tmp_path: Path) -> None:
    folder = small_checkpoint(family, tmp_path / family)
    copy = plant(folder, tmp_path / "copy", EVERYTHING)
    plain = tensors_of(folder)
    plant_in_place(folder, EVERYTHING)
    first, second = tensors_of(copy), tensors_of(folder)
    assert changed(plain, first)
    assert all(torch.equal(first[n], second[n]) for n in first)
    for each in (copy, folder):
        assert planted_in(each) == EVERYTHING.describe()
        assert inspect(str(each)).random_weights
    assert json.loads((copy / MARKER_FILE).read_text())["family"] == family


def test_the_copy_keeps_what_its_source_is(tmp_path: Path) -> None:
    planted = plant(golden("edge"), tmp_path / "planted")
    assert inspect(str(planted)).random_weights == inspect(str(golden("edge"))).random_weights
    assert json.loads((planted / MARKER_FILE).read_text())[PLANTED_KEY]["norm"] == 64.0
    assert planted_in(golden("edge")) is None


def test_refusals(tmp_path: Path) -> None:
    planted = plant(golden("edge"), tmp_path / "planted")
    with pytest.raises(BadInputError, match="planted outliers already"):
        plant(planted, tmp_path / "twice")
    with pytest.raises(BadInputError, match="exists"):
        plant(golden("edge"), planted)
    with pytest.raises(BadInputError, match="channels is 1000, the network has 96"):
        plant(golden("edge"), tmp_path / "many", Planting(channels=1000))
    with pytest.raises(BadInputError, match="norm is 0"):
        Planting(norm=0.0)
    artifact = tmp_path / "artifact"
    quantise_checkpoint(str(golden("edge")), "int8", artifact, device=torch.device("cpu"))
    with pytest.raises(BadInputError, match="quantised as int8"):
        plant(artifact, tmp_path / "late")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["artifact", "planted"]
