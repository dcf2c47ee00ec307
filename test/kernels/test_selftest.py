# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The self-test: it passes twins, and finds what a broken kernel would do."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import pytest

pytest.importorskip("torch")
import torch
from torch import Tensor

from cosmos_lite_ros.kernels import selftest
from cosmos_lite_ros.kernels.gemm_int4wo import unpack_int4
from cosmos_lite_ros.kernels.selftest import Plan, kernel_of, run_selftest
from cosmos_lite_ros.kernels.selftest_products import check_product, public_product
from cosmos_lite_ros.kernels.shapes import ROLES, LayerShape
from cosmos_lite_ros.kernels.tables import KERNELS

CPU = torch.device("cpu")
EDGE = LayerShape(128, 1, 2, 128, 96, gated=False, twice=False, layers=2)
NANO = LayerShape(128, 2, 2, 32, 192, gated=True, twice=True, layers=2)
SCHEMES = ("bf16", "fp8", "fp8_fast", "int8", "int8wo", "int4wo")
SHAPE = (70, 160, 512)
Fault = Callable[[Callable[..., None], list[Tensor]], None]


@pytest.mark.parametrize("layer", [EDGE, NANO], ids=["edge", "nano"])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_cpu_passes_with_every_scheme(scheme: str, layer: LayerShape) -> None:
    plan = Plan(layer, scheme, (3, 70), 70, attention="int8qk")
    checks = run_selftest(plan, CPU)
    assert [c for c in checks if not c.passed] == []
    names = [c.name.split()[0] for c in checks]
    assert names.count("qk_rope") == names.count("attention_int8qk") == 1
    products = 0 if scheme == "bf16" else 2 * len(ROLES)
    assert sum(name.startswith("gemm") for name in names) == products
    assert len(checks) == products + 2 * 3 + 2
    quantises = scheme in ("fp8", "fp8_fast", "int8")
    assert ("rms_norm_quantise" in names) == quantises
    assert ("rms_norm" in names) != quantises


def test_a_plan_checks_what_its_scheme_runs() -> None:
    def found(scheme: str, *, fast: bool = False) -> list[str]:
        return [kernel_of(Plan(EDGE, scheme, (1,), 1, fast=fast), role) for role in ROLES]

    assert found("bf16") == [""] * 4
    assert found("fp8") == ["gemm_fp8"] * 4
    assert found("fp8", fast=True) == ["gemm_fp8_unpromoted"] * 4
    assert found("fp8_fast") == ["gemm_fp8_fast"] * 4
    assert found("int8") == ["gemm_int8"] * 3 + ["gemm_int8_blocked"]
    assert found("int8wo") == ["gemm_int8wo"] * 4
    assert found("int4wo") == ["gemm_int8wo"] * 2 + ["gemm_int4wo"] * 2


def _skip_last_rows(right: Callable[..., None], given: list[Tensor]) -> None:
    out = torch.empty_like(given[-1])
    right(*given[:-1], out)
    given[-1][:-1] = out[:-1]


def _skip_last_columns(right: Callable[..., None], given: list[Tensor]) -> None:
    out = torch.empty_like(given[-1])
    right(*given[:-1], out)
    given[-1][:, :-16] = out[:, :-16]


def _scale_off_by_two_percent(right: Callable[..., None], given: list[Tensor]) -> None:
    right(*given)
    given[-1].mul_(1.02)


def _drop_last_terms(right: Callable[..., None], given: list[Tensor]) -> None:
    # The last 32 columns of K.
    first = given[0].clone()
    view = first.view(torch.uint8) if first.dtype is torch.float8_e4m3fn else first
    view[:, -32:] = torch.where(first[:, -32:].float().isnan(), view[:, -32:], 0)
    right(first, *given[1:])


def _hide_nan(right: Callable[..., None], given: list[Tensor]) -> None:
    right(*given)
    given[-1].nan_to_num_(0.0)


def _spread_nan(right: Callable[..., None], given: list[Tensor]) -> None:
    right(*given)
    given[-1][0, 0] = torch.nan


def _swap_columns(right: Callable[..., None], given: list[Tensor]) -> None:
    right(*given)
    given[-1][:, :2] = given[-1][:, :2].flip(1)


@pytest.mark.parametrize(
    "fault",
    [
        _skip_last_rows,
        _skip_last_columns,
        _scale_off_by_two_percent,
        _drop_last_terms,
        _hide_nan,
        _spread_nan,
        _swap_columns,
    ],
    ids=lambda f: f.__name__,
)
@pytest.mark.parametrize("kernel", list(KERNELS))
def test_a_broken_product_is_found(kernel: str, fault: Fault) -> None:
    right = public_product(kernel)

    def run(*given: Tensor) -> None:
        fault(right, list(given))

    assert check_product(kernel, SHAPE, CPU, run=right).passed
    assert not check_product(kernel, SHAPE, CPU, run=run).passed


def test_int4_halves_the_other_way_round_are_found() -> None:
    def run(x: Tensor, packed: Tensor, scale: Tensor, out: Tensor) -> None:
        w = unpack_int4(packed).unflatten(1, (-1, 2)).flip(2).flatten(1).float()
        out.copy_(x.float() @ (w * scale.repeat_interleave(128, dim=1)).T)

    assert not check_product("gemm_int4wo", SHAPE, CPU, run=run).passed


def test_a_broken_kernel_between_the_products_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = selftest.rms_norm_quantise

    @wraps(right)
    def hiding(*given: Any, **named: Any) -> None:
        right(*given, **named)
        given[4].nan_to_num_(1e-3)  # the scale

    monkeypatch.setattr(selftest, "rms_norm_quantise", hiding)
    checks = run_selftest(Plan(EDGE, "int8", (70,), 70), CPU)
    assert [c.name for c in checks if not c.passed] == ["rms_norm_quantise 70x128"]
