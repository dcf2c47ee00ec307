# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Quantising functions on a CPU: against float64, against values by hand, and what they refuse."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cosmos_lite_ros.errors import BadInputError, EnvironmentLacksError
from cosmos_lite_ros.kernels import quantise
from cosmos_lite_ros.kernels.activation import relu2_twin, swiglu_twin
from cosmos_lite_ros.kernels.gather import heads_to_rows_twin
from cosmos_lite_ros.kernels.quantise import SCALE_FLOOR, dequantise, quantise_rows
from cosmos_lite_ros.kernels.rms_norm import rms_norm_twin

from . import quantise_makers as makers
from .quantise_faults import FAULTS, Fault, plant
from .quantise_makers import KINDS, SMALL, TALL, Case

DTYPES = (torch.float64, torch.float32, torch.bfloat16)
REPOSITORY = Path(__file__).resolve().parent.parent.parent
E4M3 = torch.float8_e4m3fn
NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", [*SMALL, TALL], ids=lambda c: c.name)
def test_dequantised_outputs_are_the_formula_s(case: Case, dtype: torch.dtype) -> None:
    found = case.run("public", dtype)
    exact = case.exact(case.make(torch.float64, "cpu"))
    back = dequantise(found["q"], found["scale"], torch.float64, case.block)
    error = (back - exact).abs() / case.widest_error(exact, dtype)
    assert error.max() <= 1.0
    # The limit is not so wide that it says nothing: somewhere half a step is really lost.
    if exact.numel() > 1000 and dtype is torch.float64:
        assert error.max() > 0.9


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("function", ["rms_norm", "relu2", "swiglu", "heads_to_rows"])
def test_what_is_quantised_is_what_the_plain_kernel_stores(function: str, kind: str) -> None:
    dtype, limit = KINDS[kind]
    case = next(c for c in SMALL if function in c.name and c.kind == kind and not c.block)
    found = case.run("public", torch.bfloat16)
    a = case.make(torch.bfloat16, "cpu")
    plain = torch.empty(a["q"].shape, dtype=torch.bfloat16)
    if function == "rms_norm":
        rms_norm_twin(a["x"], a["weight"], a["eps"], plain, delta=a["delta"], twice=a["twice"])
        assert torch.equal(found["x"], a["x"])
    elif function == "heads_to_rows":
        heads_to_rows_twin(a["attn"], plain)
    else:
        {"relu2": relu2_twin, "swiglu": swiglu_twin}[function](a[case.source], plain)
    q, scale = torch.empty(a["q"].shape, dtype=dtype), torch.empty(a["scale"].shape)
    quantise_rows(plain, q, scale, limit)
    assert torch.equal(found["q"].view(torch.int8), q.view(torch.int8))
    assert torch.equal(found["scale"], scale)


@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        # Scale 1; ties go to the even neighbour.
        ("int8", [127, -127, 0.5, 1.5, -2.5, 126.5, -126.5], [127, -127, 0, 2, -2, 126, -126]),
        ("e4m3", [448, -448, 440, 424, 17, 19, -1.0625], [448, -448, 448, 416, 16, 20, -1]),
        # Below 2^-6 the steps are 2^-9.
        ("e4m3", [448, 2**-10, 3 * 2**-10, 2**-9, 2**-11], [448, 0, 2**-8, 2**-9, 0]),
        ("e4m3_28", [28, -28, 27, 25, 1.0625], [28, -28, 28, 24, 1]),
    ],
)
def test_values_by_hand(kind: str, values: list[float], expected: list[float]) -> None:
    dtype, limit = KINDS[kind]
    x = torch.tensor([values])
    q, scale = torch.empty(x.shape, dtype=dtype), torch.empty(1)
    quantise_rows(x, q, scale, limit)
    assert scale.tolist() == [1.0]
    assert q.float().tolist() == [expected]


def test_scales_are_largest_over_limit_with_a_floor() -> None:
    x = torch.tensor([[0.0, 0.0], [-254.0, 3.0], [1e-11, 0.0], [3e38, 1.0]])
    q, scale = torch.empty(4, 2, dtype=torch.int8), torch.empty(4)
    quantise_rows(x, q, scale, 127.0)
    assert scale[:3].tolist() == [torch.tensor(SCALE_FLOOR).item(), 2.0, scale[2].item()]
    assert scale[2].item() == pytest.approx(SCALE_FLOOR)
    assert q.tolist() == [[0, 0], [-127, 2], [10, 0], [127, 0]]
    assert dequantise(q, scale)[3, 0].item() == pytest.approx(3e38, rel=1e-6)


def test_blocks_have_scales_of_their_own_and_the_last_may_be_short() -> None:
    x = torch.ones(2, 300)
    x[0, 128:256] = 254.0
    x[1, 299] = -508.0
    q, scale = torch.empty(2, 300, dtype=torch.int8), torch.empty(2, 3)
    quantise_rows(x, q, scale, 127.0, 128)
    torch.testing.assert_close(scale * 127, torch.tensor([[1.0, 254, 1], [1, 1, 508]]))
    assert q[0].tolist() == [127] * 300
    assert q[1, 256:].tolist() == [0] * 43 + [-127]
    torch.testing.assert_close(
        dequantise(q, scale, block=128)[1, 256:], torch.tensor([*[0.0] * 43, -508])
    )


@given(
    st.lists(
        st.floats(-(2.0**127), 2.0**127, width=32, allow_subnormal=False), min_size=1, max_size=40
    ),
    st.sampled_from(sorted(KINDS)),
)
@settings(max_examples=150, deadline=None)
def test_no_finite_row_is_further_than_half_a_step(values: list[float], kind: str) -> None:
    dtype, limit = KINDS[kind]
    x = torch.tensor([values])
    q, scale = torch.empty(x.shape, dtype=dtype), torch.empty(1)
    quantise_rows(x, q, scale, limit)
    assert q.double().abs().max() <= limit
    assert scale[0] >= torch.tensor(SCALE_FLOOR)
    half = torch.full_like(x, 0.5) if kind == "int8" else (q.float().abs() / 15).clamp(min=2**-10)
    error = (q.double() * scale.double() - x.double()).abs()
    assert (error <= half * scale.double() * (1 + 1e-5)).all()


def lost(fault: Fault, written: dict[str, Tensor]) -> Tensor:
    """[N, I]: where the products of a row come out as no number."""
    products = dequantise(written["q"], written["scale"], block=fault.case.block)
    return ~products.isfinite()


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.name)
def test_a_fault_shows_in_all_of_its_row_and_nowhere_else(fault: Fault) -> None:
    assert_shown(fault, plant(fault, "public"))


def assert_shown(fault: Fault, written: dict[str, Tensor]) -> None:
    """Its scale is no number, so every product of the row (a sum over blocks) is none."""
    broken = ~written["scale"].isfinite()
    expected = torch.zeros_like(broken)
    expected[(fault.row,) if fault.block is None else (fault.row, fault.block)] = True
    assert torch.equal(broken, expected)
    columns = torch.zeros_like(written["q"], dtype=torch.bool)
    block = fault.block
    columns[fault.row, slice(None) if block is None else slice(128 * block, 128 * block + 128)] = 1
    found = lost(fault, written)
    # inf * q of int8 or of a value that became 0 is inf or NaN, never a number.
    assert torch.equal(found, columns)
    sound = fault.case.run("public", torch.bfloat16)
    others = [n for n in range(3) if n != fault.row]
    for name in ("q", "scale"):
        kept = [t[others].view(torch.int8) for t in (written[name], sound[name])]
        assert torch.equal(*kept), name


def test_no_float8_in_a_broken_row_is_a_plausible_number() -> None:
    q, scale = torch.empty(2, 3, dtype=E4M3), torch.empty(2)
    quantise_rows(torch.tensor([[NAN, 1.0, 2.0], [INF, 1.0, -INF]]), q, scale, 448.0)
    assert q[0].float().isnan().all()
    assert not (q.float() * scale[:, None]).isfinite().any()


def change(case: Case, name: str, value: Any) -> dict[str, Any]:
    return {**case.make(torch.float32, "cpu"), name: value}


@pytest.mark.parametrize(
    ("case", "name", "value", "says"),
    [
        (makers.rms_norm_quantise(2, 8, "int8"), "q", torch.zeros(2, 8), "q: found torch.float32"),
        (makers.rms_norm_quantise(2, 8, "int8"), "limit", 128.0, "limit is 128, expected .* 127"),
        (makers.rms_norm_quantise(2, 8, "e4m3"), "limit", 449.0, "limit is 449, expected .* 448"),
        (makers.rms_norm_quantise(2, 8, "e4m3"), "limit", 0.0, "limit is 0"),
        (makers.rms_norm_quantise(2, 8, "e4m3"), "limit", NAN, "limit is nan"),
        (makers.rms_norm_quantise(2, 8, "int8"), "scale", torch.zeros(3), "scale: found shape"),
        (makers.rms_norm_quantise(2, 8, "int8"), "scale", torch.zeros(2, 1), "scale: found shape"),
        (makers.rms_norm_quantise(2, 8, "int8"), "delta", torch.zeros(2, 7), "delta: found shape"),
        (makers.rms_norm_quantise(2, 8, "int8"), "x", torch.zeros(8, 2).T, "x: found stride 2"),
        (makers.relu2_quantise(2, 300, "int8"), "scale", torch.zeros(2, 2), r"expected \(2, 3\)"),
        (makers.relu2_quantise(2, 300, "int8"), "scale", torch.zeros(2).double(), "torch.float64"),
        (makers.relu2_quantise(2, 8, "int8"), "q", torch.zeros(2, 9).char(), "q: found shape"),
        (makers.swiglu_quantise(2, 8, "int8"), "gate_up", torch.zeros(2, 8), r"\(2, 16\)"),
        (
            makers.heads_to_rows_quantise(2, 1, 1, 16, "int8"),
            "q",
            torch.zeros(2, 9).char(),
            "q: found",
        ),
        (makers.heads_to_rows_quantise(2, 1, 1, 16, "int8"), "scale", torch.zeros(2, 1), "scale: "),
    ],
)
def test_arguments_that_do_not_fit_are_refused(
    case: Case, name: str, value: Any, says: str
) -> None:
    with pytest.raises(BadInputError, match=says):
        case.implementation("public")(**change(case, name, value))


def test_float8_is_refused_where_a_gpu_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    # Stands in for an A10G, which does not exist here.
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (8, 6))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "NVIDIA A10G")
    with pytest.raises(EnvironmentLacksError, match="A10G is sm_86, fp8 needs sm_89 or newer"):
        quantise._check_e4m3(torch.device("cuda", 0))
    quantise._check_e4m3.cache_clear()


def test_the_cpu_path_never_imports_triton() -> None:
    code = (
        "import sys, torch\n"
        "sys.modules['triton'] = None\n"
        "from test.kernels.quantise_makers import SMALL\n"
        "for case in SMALL: case.run('public', torch.float32)\n"
        "print(len(SMALL))"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, cwd=REPOSITORY
    )
    assert run.stdout.split() == [str(len(SMALL))], run.stderr
