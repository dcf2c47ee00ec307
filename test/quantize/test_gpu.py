# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Quantised on a GPU: the same bits as on a CPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from cosmos_lite_ros.quantize.matrix import quantise
from cosmos_lite_ros.quantize.schemes import Kind

from .makers import QUANTISING, artifact, stored

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"),
]


@pytest.mark.parametrize(
    ("kind", "limit"), [("e4m3", 448.0), ("e4m3", 28.0), ("int8", 127.0), ("int4", 7.0)]
)
def test_the_same_bits(kind: Kind, limit: float) -> None:
    rows = torch.randn(3000, 2048, generator=torch.Generator().manual_seed(1)).bfloat16().float()
    rows[5] = 0
    rows[6, 700] = 1e4
    rows[7] *= 1e-20
    data, scale = quantise(rows, kind, limit)
    there = quantise(rows.cuda(), kind, limit)
    assert torch.equal(there[1].cpu(), scale)
    assert torch.equal(there[0].cpu().view(torch.uint8), data.view(torch.uint8))


@pytest.mark.parametrize("name", QUANTISING)
def test_the_same_artifact(
    name: str, tiny_checkpoint: Callable[[str], Path], tmp_path: Path
) -> None:
    source = tiny_checkpoint("nano")
    here = stored(artifact(source, tmp_path / "cpu", name))
    there = stored(artifact(source, tmp_path / "cuda", name, device=torch.device("cuda")))
    assert here.keys() == there.keys()
    for key, tensor in here.items():
        assert torch.equal(tensor.view(torch.uint8), there[key].view(torch.uint8)), key
