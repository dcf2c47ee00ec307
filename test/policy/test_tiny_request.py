# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The recorded tiny request: current, the same in every arithmetic's twins, and not blind."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Literal

import pytest
import torch

from cosmos_lite_ros.kernels.selftest_products import Check
from cosmos_lite_ros.policy import tiny_request as module
from cosmos_lite_ros.policy.linears import Linears
from cosmos_lite_ros.policy.selftest import SelfTest
from cosmos_lite_ros.policy.tiny_request import RECORD, TinyRequest, tiny_request
from cosmos_lite_ros.policy.tower import GenerationTower
from cosmos_lite_ros.quantize.schemes import SCHEMES

CPU = torch.device("cpu")


def linears(scheme: str) -> Linears:
    return Linears(SCHEMES[scheme], torch.bfloat16)


def test_every_family_and_scheme_is_recorded() -> None:
    record = json.loads(RECORD.read_text())
    assert set(record) == {"edge", "nano"}
    for family in record.values():
        assert set(family) == set(SCHEMES)


@pytest.mark.parametrize(("family", "scheme", "batch"), [("edge", "fp8", 2), ("nano", "int8", 1)])
def test_a_cpu_gives_the_recorded_answer(
    family: Literal["edge", "nano"], scheme: str, batch: int
) -> None:
    found = tiny_request(family, linears(scheme), CPU, batch=batch)
    assert found.passed


def test_a_wrong_rotary_table_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = GenerationTower.branch

    def rolled(tower: GenerationTower, keys: torch.Tensor, values: torch.Tensor) -> object:
        found = tables(tower, keys, values)
        return replace(found, cos=found.cos.roll(32, 1))

    monkeypatch.setattr(GenerationTower, "branch", rolled)
    found = tiny_request("edge", linears("bf16"), CPU)
    assert found.rows > module.ROWS_LIMIT
    assert not found.passed


def test_what_failed_is_named_in_one_line() -> None:
    good, bad = Check("gemm 1x2x3", 0.4), Check("gemm 4x5x6", float("nan"))
    fine = SelfTest((good,), TinyRequest(0.01, 0.01), 1.0)
    assert fine.failures == []
    assert fine.describe()["passed"]
    broken = SelfTest((good, bad), TinyRequest(0.01, float("nan")), 1.0)
    assert len(broken.failures) == 2
    assert "gemm 4x5x6" in broken.failures[0]
    assert "tiny request" in broken.failures[1]
