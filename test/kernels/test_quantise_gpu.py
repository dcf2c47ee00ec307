# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The quantising kernels and the int8 attention on a GPU at the networks' real shapes."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
import torch

from .quantise_makers import SMALL, Case, real

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"),
]


@pytest.mark.parametrize("case", [*SMALL, *real(3093)], ids=lambda c: c.name)
def test_kernel_equals_its_twin_and_is_capturable(case: Case) -> None:
    from scripts.gpu_kernels_quantise import copied, run_as_promised

    if case.kind != "int8" and torch.cuda.get_device_capability() < (8, 9):
        pytest.skip("fp8 needs sm_89 or newer")
    arguments = case.make(torch.bfloat16, "cuda")
    found = run_as_promised(case.implementation("public"), arguments)
    twin = copied(arguments)
    case.implementation("twin")(**twin)
    differs = (found["q"].view(torch.int8) != twin["q"].view(torch.int8)).float().mean()
    assert differs <= (0 if case.bit_equal else 0.002)


def test_attention_is_near_its_twin_and_capturable() -> None:
    from scripts.gpu_kernels_quantise import check_attention

    assert check_attention()
