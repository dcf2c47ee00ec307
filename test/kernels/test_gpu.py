# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The Triton kernels on a GPU at the networks' real shapes, against the twins in float64."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("torch")
import torch

from cosmos_lite_ros.errors import BadInputError
from cosmos_lite_ros.kernels.activation import relu2

from .makers import REAL, SMALL, Case

SCRIPT = Path(__file__).resolve().parent.parent.parent / "scripts" / "gpu_kernels.py"
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"),
]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("gpu_kernels", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("case", [*SMALL, *REAL], ids=lambda c: c.name)
def test_kernel_is_exact_to_its_roundings_and_capturable(
    script: ModuleType, case: Case, dtype: torch.dtype
) -> None:
    assert script.check_case(case, dtype) <= 1.0


@pytest.mark.parametrize("function", ["rms_norm", "rms_silu", "qk_rope"])
def test_a_nan_stays_in_its_row(function: str) -> None:
    case = next(c for c in REAL if c.function == function)
    arguments = case.make(torch.bfloat16, "cuda")
    source = "qkv" if function == "qk_rope" else "x"
    arguments[source][7, 3] = float("nan")
    case.implementation("public")(**arguments)
    if function == "qk_rope":
        assert arguments["q_out"].isnan().any(-1).nonzero().tolist() == [[0, 7, 0]]
        assert not arguments["k_out"].isnan().any()
    else:
        assert arguments["out"].isnan().all(1).nonzero().tolist() == [[7]]
        assert int(arguments["out"].isnan().any(1).sum()) == 1


def test_a_dtype_without_a_kernel_is_refused() -> None:
    x = torch.zeros(2, 64, dtype=torch.float64, device="cuda")
    with pytest.raises(BadInputError, match="float64"):
        relu2(x, torch.empty_like(x))
