# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Columns moved within int4's steps by what the norm says of them; nothing else changes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from cosmos_lite_ros.policy.checkpoint import inspect, read_for
from cosmos_lite_ros.quantize.awareness import Rescaling, column_exponents
from cosmos_lite_ros.quantize.matrix import dequantise, quantise
from cosmos_lite_ros.quantize.schemes import SCHEMES
from cosmos_lite_ros.quantize.verify import verify

from .makers import artifact, copy_of, stored

Tiny = Callable[[str], Path]
GAIN = "layers.1.post_attention_layernorm_moe_gen.weight"
UP = "layers.1.mlp_moe_gen.up_proj.weight"
OUTLIERS = [3, 40, 77, 100]


def plant(gain: Tensor, *matrices: Tensor) -> None:
    """Outliers that change no product: gains times 60, the next weights over 60."""
    gain[OUTLIERS] *= 60
    for matrix in matrices:
        matrix[:, OUTLIERS] /= 60


def product_error(gain: Tensor, matrix: Tensor, exponents: Tensor) -> float:
    """Relative error of int4 products of unit inputs behind the norm, in float64."""
    factor = torch.exp2(exponents.double())
    x = torch.randn(256, gain.numel(), generator=torch.Generator().manual_seed(9)).double()
    data, scale = quantise((matrix.double() * factor).float(), "int4", 7.0)
    found = (x * gain.double() / factor) @ dequantise(data, scale, "int4", torch.float64).T
    expected = (x * gain.double()) @ matrix.double().T
    return float((found - expected).norm() / expected.norm())


def make(seed: int = 0, columns: int = 256) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    gain = 1 + 0.1 * torch.randn(columns, generator=generator)
    matrix = torch.randn(64, columns, generator=generator) * columns**-0.5
    return gain.bfloat16(), matrix.bfloat16()


def test_planted_outliers_are_undone() -> None:
    gain, matrix = make()
    plain = product_error(gain, matrix, torch.zeros(256))
    plant(gain, matrix)
    without = product_error(gain, matrix, torch.zeros(256))
    exponents = column_exponents(gain, [matrix])
    # 60 is nearly 2^6.
    assert set(exponents[OUTLIERS].tolist()) <= {5, 6}
    assert product_error(gain, matrix, exponents) < 1.02 * plain
    assert without > 1.1 * plain


def test_large_gains_alone_help_too() -> None:
    gain, matrix = make(1)
    gain[OUTLIERS] *= 16
    exponents = column_exponents(gain, [matrix])
    assert bool((exponents[OUTLIERS] > 0).all())
    plain = product_error(gain, matrix, torch.zeros(256))
    assert product_error(gain, matrix, exponents) < 0.9 * plain


def test_nothing_moves_where_nothing_stands_out() -> None:
    gain, matrix = make(2)
    flat = torch.ones_like(gain)
    assert not bool(column_exponents(flat, [matrix]).any())
    assert not bool(column_exponents(torch.zeros_like(gain), [matrix]).any())
    gain[5] = float("nan")
    assert not bool(column_exponents(gain, [matrix]).any())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float16])
def test_the_product_keeps_every_bit(dtype: torch.dtype) -> None:
    gain, matrix = (t.to(dtype) for t in make(3))
    plant(gain, matrix)
    gain[7] = 0
    tensors = {GAIN: gain, UP: matrix}
    rescaling = Rescaling(tensors.get)
    moved_gain, moved = rescaling.apply(GAIN, gain), rescaling.apply(UP, matrix)
    assert not torch.equal(moved, matrix.to(moved.dtype))
    assert moved_gain.dtype == (torch.float32 if dtype == torch.float16 else dtype)
    assert torch.equal(moved_gain.double() * moved.double(), gain.double() * matrix.double())
    for other in ("layers.1.mlp_moe_gen.down_proj.weight", "layers.1.mlp.up_proj.weight", "norm"):
        assert rescaling.apply(other, matrix) is matrix
        assert rescaling.factor(other) is None
    assert rescaling.factor(UP.replace("1", "2")) is None


def test_gate_and_up_move_together() -> None:
    gain, up = make(4)
    gate = make(5)[1]
    plant(gain, up, gate)
    tensors = {GAIN: gain, UP: up, UP.replace("up_proj", "gate_proj"): gate}
    rescaling = Rescaling(tensors.get)
    factors = [rescaling.factor(name) for name in tensors]
    assert all(factor is not None for factor in factors)
    assert torch.equal(factors[1], factors[2])  # type: ignore[arg-type]
    assert torch.equal(factors[0] * factors[1], torch.ones(256))  # type: ignore[operator]


@pytest.mark.parametrize("family", ["edge", "nano"])
def test_artifact_and_loading_agree(family: str, tiny_checkpoint: Tiny, tmp_path: Path) -> None:
    source = copy_of(tiny_checkpoint(family), tmp_path / "source")
    tensors = stored(source)
    names = [
        n
        for n in tensors
        if n.startswith("layers.1.mlp_moe_gen.") and ("gate_proj" in n or "up_proj" in n)
    ]
    assert len(names) == (1 if family == "edge" else 2)
    plant(tensors[GAIN], *(tensors[n] for n in names))
    for path in (source / "transformer").glob("*.safetensors"):
        save_file({k: tensors[k] for k in load_file(path)}, path)
    out = artifact(source, tmp_path / "out", "int4wo")
    assert verify(out) == []
    found = stored(out)
    scheme = SCHEMES["int4wo"]
    seen = dict(read_for(inspect(str(source)), scheme))
    rescaled = json.loads((out / "artifact.json").read_text())["rescaled"]
    assert {GAIN, *names} <= set(rescaled)
    for name in rescaled:
        if name.endswith("layernorm_moe_gen.weight"):
            assert torch.equal(found[name], seen[name])
            continue
        data, scale = quantise(seen[name].float(), "int4", 7.0)
        assert torch.equal(found[name], data)
        assert torch.equal(found[name + ".scale"], scale)
    for name in ("int8", "int8wo", "fp8"):
        plain = dict(read_for(inspect(str(source)), SCHEMES[name]))
        assert all(torch.equal(plain[key], tensors[key]) for key in (GAIN, *names))
    again = dict(read_for(inspect(str(out)), scheme))
    assert torch.equal(again[GAIN], found[GAIN])
