# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Triton kernels in Triton's interpreter against their twins."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton", reason="the Triton kernels need triton, which has no wheel here")
import torch
from torch import Tensor

from .makers import SMALL, Case, error_limit

REPOSITORY = Path(__file__).resolve().parent.parent.parent


@pytest.fixture(scope="module")
def interpreted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tensor]:
    """What the kernels wrote, from one process in which they are interpreted."""
    out = tmp_path_factory.mktemp("interpreted") / "out.pt"
    run = subprocess.run(
        [sys.executable, "-m", "test.kernels.interpret", str(out)],
        capture_output=True,
        text=True,
        timeout=200,
        cwd=REPOSITORY,
        env={**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"},
    )
    assert run.returncode == 0, run.stderr[-2000:]
    found: dict[str, Tensor] = torch.load(out, weights_only=True)
    return found


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("case", SMALL, ids=lambda c: c.name)
def test_kernel_equals_its_twin(
    interpreted: dict[str, Tensor], case: Case, dtype: torch.dtype
) -> None:
    for name, expected in case.run("twin", dtype).items():
        found = interpreted[f"{case.name}/{dtype}/{name}"]
        assert found.dtype == expected.dtype
        error = (found.double() - expected.double()).abs()
        limit = error_limit(case, dtype, name, expected.double())
        assert (error <= limit).all(), (name, error.max())
        if dtype is torch.bfloat16:
            # Another order of summation turns the last bit of few values.
            assert (found != expected).float().mean() < 0.002, name


def test_a_nan_reaches_what_it_reaches_in_the_twin(interpreted: dict[str, Tensor]) -> None:
    pattern = "broken{}/{}"
    # NaNs of each output, counted by hand: a row of 64, a head of 16, an element.
    counts = [
        {"out": 64, "x": 1},
        {"out": 64, "x": 1},
        {"q_out": 16, "k_out": 0, "v_out": 0},
        {"q_out": 0, "k_out": 16, "v_out": 0},
        {"q_out": 0, "k_out": 0, "v_out": 1},
        *({"out": 1},) * 3,
        *({"out": 48},) * 2,
        {"out": 20 * 48},
        {"out": 1},
        {"out": 1},
    ]
    found = [
        {name: int(interpreted[pattern.format(i, name)].isnan().sum()) for name in expected}
        for i, expected in enumerate(counts)
    ]
    assert found == counts
    assert interpreted["broken0/out"].isnan().all(1).tolist() == [False, True, False]
    assert interpreted["broken1/out"].isnan().all(1).tolist() == [False, False, True]
    assert interpreted["broken2/q_out"][1, 1, 1].isnan().all()
    assert interpreted["broken3/k_out"][1, 2].isnan().all()
    assert interpreted["broken8/out"].isnan().all(1).nonzero().tolist() == [[17]]
    assert pattern.format(len(counts), "out") not in interpreted
