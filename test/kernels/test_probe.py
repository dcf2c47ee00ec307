# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The start-up probe's rule: which ready-made kernel is used, and why."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")
import torch
from torch import Tensor

from cosmos_lite_ros.kernels import probe as module
from cosmos_lite_ros.kernels.gemm_fp8 import gemm_fp8_twin
from cosmos_lite_ros.kernels.probe import (
    choose_attention,
    choose_fp8,
    probe,
    probe_attention,
    probe_fp8,
)
from cosmos_lite_ros.kernels.trial import arguments

HOPPER, ADA = (9, 0), (8, 9)


@pytest.mark.parametrize(
    ("capability", "scaled_mm", "triton", "name"),
    [
        (HOPPER, 100.0, 90.0, "scaled_mm"),  # preferred, and not much slower
        (HOPPER, 100.0, 70.0, "scaled_mm"),
        (HOPPER, 100.0, 60.0, "triton"),  # 1.67 times
        (HOPPER, 50.0, 100.0, "scaled_mm"),
        (ADA, 70.0, 100.0, "triton"),  # preferred there, 1.43 times
        (ADA, 60.0, 100.0, "scaled_mm"),
        (ADA, 400.0, 100.0, "triton"),
        ((10, 0), 100.0, 90.0, "scaled_mm"),
        ((12, 0), 100.0, 110.0, "triton"),
    ],
)
def test_the_preferred_product_gives_way_only_to_one_much_faster(
    capability: tuple[int, int], scaled_mm: float, triton: float, name: str
) -> None:
    took = {"scaled_mm": scaled_mm, "triton": triton}
    assert choose_fp8(capability, took, {}).name == name


def test_noise_of_a_few_per_cent_changes_nothing() -> None:
    for noise in (0.95, 1.0, 1.05):
        assert choose_fp8(HOPPER, {"scaled_mm": 100.0 * noise, "triton": 85.0}, {}).name == (
            "scaled_mm"
        )


def test_what_is_missing_or_wrong_is_never_used() -> None:
    fault = {"scaled_mm": "off by 0.3 of the largest value"}
    found = choose_fp8(HOPPER, {"triton": 500.0}, fault)
    assert (found.name, found.reason) == ("triton", "scaled_mm: off by 0.3 of the largest value")
    found = choose_fp8(ADA, {"triton": 100.0}, {"scaled_mm": "RuntimeError: not on sm_89"})
    assert found.reason == "preferred on sm_89; scaled_mm: RuntimeError: not on sm_89"
    assert choose_fp8(ADA, {"scaled_mm": 100.0}, {"triton": "wrong"}).name == "scaled_mm"
    found = choose_fp8(ADA, {}, {"triton": "wrong", "scaled_mm": "missing"})
    assert (found.name, found.reason) == ("refused", "scaled_mm: missing; triton: wrong")


def test_flash_attn_is_used_where_it_is_clearly_faster() -> None:
    assert choose_attention({"flash_attn": 100.0, "sdpa": 130.0}).name == "flash_attn"
    assert choose_attention({"flash_attn": 100.0, "sdpa": 115.0}).name == "sdpa"


def test_a_cpu_measures_nothing() -> None:
    found = probe(torch.device("cpu")).describe()
    assert found["fp8"] == {
        "name": "triton",
        "reason": "a CPU runs the torch twin",
        "microseconds": {},
    }
    assert found["attention"]["name"] == "sdpa"


def test_a_product_s_faults_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    given = arguments("gemm_fp8", 40, 64, 256, torch.device("cpu"), None)

    def judge(spoil: Any) -> str:
        def product(a: Tensor, a_scale: Tensor, b: Tensor, b_scale: Tensor, out: Tensor, **_: Any):  # type: ignore[no-untyped-def]
            gemm_fp8_twin(a, a_scale, b, b_scale, out)
            spoil(out)

        monkeypatch.setattr(module, "linear_fp8", product)
        return module._product_fault("scaled_mm", given)

    assert judge(lambda out: None) == ""
    assert judge(lambda out: out.mul_(1.1)).startswith("off by 0.")
    assert "NaN among the scales" in judge(lambda out: out.nan_to_num_(0.0))
    assert "NaN among the scales" in judge(lambda out: out[5].fill_(torch.nan))


class Gpu:
    """Stands in for one: what torch says of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int]) -> None:
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
        self.device = torch.device("cuda", 0)


def test_a_gpu_without_float8_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    found = probe_fp8(Gpu(monkeypatch, (8, 6)).device)
    assert (found.name, found.reason) == ("refused", "sm_86 has no float8 arithmetic")


def test_a_missing_flash_attn_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "flash_attn", None)
    found = probe_attention(Gpu(monkeypatch, HOPPER).device)
    assert found.name == "sdpa"
    assert found.reason.startswith("flash-attn cannot be imported: ModuleNotFoundError")
