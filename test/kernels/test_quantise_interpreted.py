# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Quantising Triton kernels in Triton's interpreter against their twins, bit by bit."""

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

from cosmos_lite_ros.kernels.quantise import dequantise

from .quantise_faults import FAULTS, Fault
from .quantise_makers import SMALL, TALL, Case
from .test_quantise_twins import assert_shown

REPOSITORY = Path(__file__).resolve().parent.parent.parent


@pytest.fixture(scope="module")
def interpreted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tensor]:
    """What the kernels wrote, from one process in which they are interpreted."""
    out = tmp_path_factory.mktemp("interpreted") / "out.pt"
    run = subprocess.run(
        [sys.executable, "-m", "test.kernels.quantise_interpret", str(out)],
        capture_output=True,
        text=True,
        timeout=200,
        cwd=REPOSITORY,
        env={**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"},
    )
    assert run.returncode == 0, run.stderr[-2000:]
    found: dict[str, Tensor] = torch.load(out, weights_only=True)
    return found


def compare(interpreted: dict[str, Tensor], case: Case, dtype: torch.dtype) -> None:
    found = {name: interpreted[f"{case.name}/{dtype}/{name}"] for name in case.written}
    expected = case.run("twin", dtype)
    assert [t.dtype for t in found.values()] == [t.dtype for t in expected.values()]
    if "x" in found:
        assert torch.equal(found.pop("x"), expected.pop("x"))
    differs = (found["q"].view(torch.int8) != expected["q"].view(torch.int8)).float().mean()
    if case.bit_equal:
        assert differs == 0
        assert torch.equal(found["scale"], expected["scale"])
        return
    # Another order of summation, or another exp, turns the last bit of few values.
    assert differs < 0.002
    torch.testing.assert_close(
        found["scale"], expected["scale"], rtol=2.0**-7 if dtype is torch.bfloat16 else 1e-5, atol=0
    )
    exact = case.exact(case.make(torch.float64, "cpu"))
    back = dequantise(found["q"], found["scale"], torch.float64, case.block)
    assert ((back - exact).abs() <= case.widest_error(exact, dtype)).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("case", SMALL, ids=lambda c: c.name)
def test_kernel_equals_its_twin(
    interpreted: dict[str, Tensor], case: Case, dtype: torch.dtype
) -> None:
    compare(interpreted, case, dtype)


def test_kernel_equals_its_twin_over_all_rows_of_a_network(interpreted: dict[str, Tensor]) -> None:
    compare(interpreted, TALL, torch.bfloat16)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.name)
def test_a_fault_shows_in_all_of_its_row_and_nowhere_else(
    interpreted: dict[str, Tensor], fault: Fault
) -> None:
    written = {name: interpreted[f"{fault.name}/{name}"] for name in fault.case.written}
    assert_shown(fault, written)


def test_a_cut_to_float16_on_the_way_to_float8_changes_nothing(
    interpreted: dict[str, Tensor],
) -> None:
    def by_float16(x: Tensor) -> Tensor:
        # As Triton 3.6 does on sm_89: the last 13 bits are cut off.
        cut = (x.view(torch.int32) & -0x2000).view(torch.float32).half()
        return cut.to(torch.float8_e4m3fn).view(torch.uint8)

    x = interpreted["near_ties"]
    expected = x.to(torch.float8_e4m3fn).view(torch.uint8)
    assert torch.equal(interpreted["odd"].to(torch.float8_e4m3fn).view(torch.uint8), expected)
    assert torch.equal(by_float16(interpreted["odd"]), expected)
    assert not torch.equal(by_float16(x), expected)
