# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""From settings to arithmetic; a GPU that fails is invented, since there is none here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from cosmos_lite_ros.errors import BadInputError, EnvironmentLacksError
from cosmos_lite_ros.kernels.shapes import RELEASED
from cosmos_lite_ros.policy import arithmetic, selftest
from cosmos_lite_ros.policy.arithmetic import choose
from cosmos_lite_ros.policy.checkpoint import inspect
from cosmos_lite_ros.policy.config import NetworkConfig
from cosmos_lite_ros.policy.linears import Linears
from cosmos_lite_ros.policy.selftest import layer_shape, self_test
from cosmos_lite_ros.policy.settings import EngineSettings
from cosmos_lite_ros.quantize.schemes import SCHEMES

from .test_memory import released_info

Tiny = Callable[[str], Path]
GPU = torch.device("cuda")


def settings(folder: Path, **changes: Any) -> EngineSettings:
    return EngineSettings(str(folder), dtype="bfloat16", device="cuda", **changes)


@pytest.fixture
def only_bf16_works(monkeypatch: pytest.MonkeyPatch) -> None:
    def proven(name: str, asked: EngineSettings, info: object, device: torch.device) -> object:
        if name != "bf16":
            raise EnvironmentLacksError("the self-test on a GPU failed: gemm_fp8")
        return arithmetic._plain(name, asked, torch.device("cpu"))

    monkeypatch.setattr(arithmetic, "_proven", proven)


@pytest.mark.usefixtures("only_bf16_works")
def test_a_gpu_that_fails_is_refused_or_falls_back_and_says_so(tiny_checkpoint: Tiny) -> None:
    folder = tiny_checkpoint("edge")
    info = inspect(str(folder))
    with pytest.raises(EnvironmentLacksError, match="gemm_fp8"):
        choose(settings(folder, scheme="fp8"), info, GPU)
    found = choose(settings(folder, scheme="fp8", fallback="bf16"), info, GPU)
    assert found.scheme == "bf16"
    assert found.linears.scheme is None
    assert len(found.notes) == 1
    assert "fp8 was asked for and bf16 runs" in found.notes[0]
    assert found.effective["notes"] == list(found.notes)


def test_whatever_a_launch_raises_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(plan: object, device: torch.device) -> list[object]:
        raise RuntimeError("out of resource: shared memory\nRequired: 131072")

    monkeypatch.setattr(selftest, "run_selftest", broken)
    linears = Linears(SCHEMES["fp8"], torch.bfloat16)
    device = torch.device("cpu")
    with pytest.raises(EnvironmentLacksError) as caught:
        self_test("edge", RELEASED["edge"], "fp8", linears, device, attention="auto", batch=2)
    assert "\n" not in str(caught.value)
    assert "RuntimeError: out of resource: shared memory" in str(caught.value)


@pytest.mark.parametrize("family", ["edge", "nano"])
def test_the_released_networks_have_the_tested_shapes(family: Any) -> None:
    config: NetworkConfig = released_info(family).config
    assert layer_shape(config) == RELEASED[family]


def test_float32_and_a_scheme_do_not_go_together_on_a_gpu(
    tiny_checkpoint: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tiny_checkpoint("edge")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    asked = EngineSettings(str(folder), dtype="float32", scheme="int8", device="cuda")
    with pytest.raises(BadInputError, match="expected dtype 'bfloat16'"):
        choose(asked, inspect(str(folder)), GPU)
