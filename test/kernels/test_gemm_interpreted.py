# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The matrix products' Triton kernels in Triton's interpreter against their twins."""

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

from .gemm_makers import OVERFLOWING, PRODUCTS, TALL, Product, overflowing

REPOSITORY = Path(__file__).resolve().parent.parent.parent
# Kernels whose every operation has one result: exact integer sums, or float16 sums of 32 terms that
# the interpreter and the twin round alike.
TO_THE_BIT = ("gemm_int8", "gemm_int8_blocked", "gemm_fp8_fast")
# float32 sums of up to 384 terms in another order, as a share of the sum of magnitudes.
SUM_ERROR = 2.0**-18


@pytest.fixture(scope="module")
def interpreted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tensor]:
    """What the kernels wrote, from one process in which they are interpreted."""
    out = tmp_path_factory.mktemp("interpreted") / "out.pt"
    run = subprocess.run(
        [sys.executable, "-m", "test.kernels.gemm_interpret", str(out)],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=REPOSITORY,
        env={**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"},
    )
    assert run.returncode == 0, run.stderr[-2000:]
    found: dict[str, Tensor] = torch.load(out, weights_only=True)
    return found


@pytest.mark.parametrize("product", [*PRODUCTS, *TALL], ids=lambda p: p.name)
def test_kernel_equals_its_twin(interpreted: dict[str, Tensor], product: Product) -> None:
    dtypes = [torch.bfloat16] if product in TALL else [torch.bfloat16, torch.float32]
    for dtype in dtypes:
        found, expected = interpreted[f"{product.name}/{dtype}"], product.twin(dtype)
        if product.broken is not None:
            rows = torch.arange(product.shape[0]) != product.broken
            assert found[product.broken].isnan().all()
            found, expected, size = found[rows], expected[rows], product.size()[rows]
        else:
            size = product.size()
        assert found.isfinite().all()
        if product.kernel in TO_THE_BIT:
            assert torch.equal(found, expected)
            continue
        if dtype is torch.float32:
            assert ((found.double() - expected.double()).abs() <= size * SUM_ERROR).all()
        else:
            assert (found != expected).float().mean() < 0.01
            step = 2.0**-7 * expected.double().abs() + size * SUM_ERROR
            assert ((found.double() - expected.double()).abs() <= step).all()


def test_kernel_without_the_range_of_28_overflows(interpreted: dict[str, Tensor]) -> None:
    # 448 * 448 / 25 a term at random, 64 terms: beyond 65504 in most blocks.
    found = interpreted[OVERFLOWING]
    assert (~found.isfinite()).float().mean() > 0.5
    assert all(t.float().isfinite().all() for t in overflowing()[:-1])
