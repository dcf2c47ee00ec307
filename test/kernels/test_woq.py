# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Inductor's rewrite of int8 weights with bfloat16 scales, slow on a GPU: not with ours."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")
import torch
from torch import Tensor
from torch._dynamo.utils import counters
from torch._inductor.graph import GraphLowering


class Lowered(Exception):
    """All rewriting is done; what would follow is C++."""


def matches(scale_dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> int:
    """How often ``linear(x, int8) * scale`` becomes ``_weight_int8pack_mm``."""

    def linear(x: Tensor, w: Tensor, scale: Tensor) -> Tensor:
        return torch.nn.functional.linear(x, w.to(x.dtype)) * scale

    def stop(*_: Any) -> None:
        raise Lowered

    # Compiling the code that comes of it takes a minute and changes nothing here.
    monkeypatch.setattr(GraphLowering, "compile_to_module", stop)
    torch._dynamo.reset()
    counters.clear()
    x = torch.ones((1, 64, 64), dtype=torch.bfloat16)
    w, scale = torch.ones((32, 64), dtype=torch.int8), torch.ones(32, dtype=scale_dtype)
    with torch.no_grad(), pytest.raises(Exception, match="Lowered"):
        torch.compile(linear)(x, w, scale)
    return int(counters["inductor"]["woq_matcher_count"])


def test_float32_scales_are_not_rewritten(monkeypatch: pytest.MonkeyPatch) -> None:
    assert matches(torch.float32, monkeypatch) == 0


def test_bfloat16_scales_are_which_is_the_trap(monkeypatch: pytest.MonkeyPatch) -> None:
    assert matches(torch.bfloat16, monkeypatch) == 1
