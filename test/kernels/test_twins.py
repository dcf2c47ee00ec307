# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The public functions on a CPU against formulas in float64, and the rules of each kernel."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
import numpy as np
import torch
from torch import Tensor

from cosmos_lite_ros.errors import BadInputError, EnvironmentLacksError
from cosmos_lite_ros.kernels import dispatch
from cosmos_lite_ros.kernels.activation import relu2, swiglu
from cosmos_lite_ros.kernels.gather import heads_to_rows
from cosmos_lite_ros.kernels.qk_rope import qk_rope
from cosmos_lite_ros.kernels.residual_add import residual_add
from cosmos_lite_ros.kernels.rms_norm import rms_norm
from cosmos_lite_ros.kernels.rms_silu import rms_silu

from . import makers
from .makers import SENTINEL, SMALL, Case, error_limit

DTYPES = (torch.float64, torch.float32, torch.bfloat16)
REPOSITORY = Path(__file__).resolve().parent.parent.parent


def exact(case: Case) -> dict[str, Tensor]:
    """The outputs in float64, head by head and straight from the definitions."""
    a: dict[str, Any] = case.make(torch.float64, "cpu")
    if case.function == "rms_norm":
        x = a["x"] + (0 if a["delta"] is None else a["delta"])
        return {"x": x, "out": x / (x.pow(2).mean(1, True) + a["eps"]).sqrt() * a["weight"]}
    if case.function == "relu2":
        return {"out": torch.where(a["x"] > 0, a["x"] ** 2, 0.0)}
    if case.function == "swiglu":
        gate, up = a["gate_up"].tensor_split(2, dim=1)
        return {"out": gate * torch.sigmoid(gate) * up}
    if case.function == "rms_silu":
        x = a["x"] if a["bias"] is None else a["x"] + a["bias"]
        y = x / x.pow(2).sum(1, True).sqrt().clamp(min=1e-12) * x.shape[1] ** 0.5 * a["gamma"]
        return {"out": y * torch.sigmoid(y) if a["silu"] else y}
    if case.function == "canvas_patches":
        image = a["image"].numpy()
        if image.ndim == 4:
            halves = [v.reshape(v.shape[0] // 2, 2, -1, 2, 3).sum((1, 3)) // 4 for v in image[1:]]
            image = np.concatenate([image[0], np.concatenate(halves, axis=1)])
        more = a["height"] - image.shape[0], a["width"] - image.shape[1]
        canvas = np.pad(image, ((0, more[0]), (0, more[1]), (0, 0)), mode="reflect") / 127.5 - 1
        out = np.zeros(a["out"].shape)
        for channel in range(12):
            c, q, p = channel // 4, channel // 2 % 2, channel % 2
            out[:, channel] = canvas[p::2, q::2, c].flatten()
        return {"out": torch.from_numpy(out)}
    if case.function == "residual_add":
        return {"out": a["x"] + a["bias"] + a["shortcut"]}
    if case.function == "heads_to_rows":
        return {"out": torch.stack([a["attn"][:, n].flatten() for n in range(a["out"].shape[0])])}
    kv_heads, rows, group, width = a["q_out"].shape
    angle = torch.complex(a["cos"], a["sin"])
    found = {name: a[name].clone() for name in case.written}

    def head(index: int, weight: Tensor) -> Tensor:
        h = a["qkv"][:, index * width : (index + 1) * width]
        h = h / (h.pow(2).mean(1, True) + a["eps"]).sqrt() * weight
        turned = torch.complex(h[:, : width // 2], h[:, width // 2 :]) * angle
        return torch.cat([turned.real, turned.imag], dim=1)

    for k in range(kv_heads):
        for g in range(group):
            found["q_out"][k, :, g] = head(k * group + g, a["q_weight"])
        found["k_out"][k, :rows] = head(kv_heads * group + k, a["k_weight"])
        start = (kv_heads * (group + 1) + k) * width
        found["v_out"][k, :rows] = a["qkv"][:, start : start + width]
        if "text_keys" in a:
            end = rows + a["text_keys"].shape[1]
            found["k_out"][k, rows:end] = a["text_keys"][k]
            found["v_out"][k, rows:end] = a["text_values"][k]
    return found


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", SMALL, ids=lambda c: c.name)
def test_outputs_are_the_formula_s(case: Case, dtype: torch.dtype) -> None:
    found, expected = case.run("public", dtype), exact(case)
    assert found.keys() == expected.keys()
    for name, tensor in found.items():
        error = (tensor.double() - expected[name]).abs()
        assert (error <= error_limit(case, dtype, name, expected[name])).all(), (name, error.max())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_norms_are_bit_equal_to_the_reference_modules(dtype: torch.dtype) -> None:
    cosmos = pytest.importorskip("diffusers.models.transformers.transformer_cosmos3")
    a = makers.rms_norm(4, 2048).make(dtype, "cpu")
    for twice, kind in ((False, cosmos.Cosmos3NemotronRMSNorm), (True, cosmos.RMSNorm)):
        module = kind(2048, eps=1e-5).to(dtype)
        module.weight.data = a["weight"]
        rms_norm(a["x"], a["weight"], 1e-5, a["out"], twice=twice)
        assert torch.equal(a["out"], module(a["x"]))


def test_rounding_once_and_twice_differ_in_bfloat16() -> None:
    once, twice = (makers.rms_norm(3, 2048, twice=t).run("public", torch.bfloat16) for t in (0, 1))
    assert 0.05 < (once["out"] != twice["out"]).float().mean() < 0.6


def test_bias_and_shortcut_round_as_two_additions() -> None:
    a = makers.residual_add(37, 160).make(torch.bfloat16, "cpu")
    expected = (a["x"] + a["bias"]) + a["shortcut"]
    residual_add(**a)
    assert torch.equal(a["out"], expected)
    b = makers.rms_silu(9, 160, bias=True).make(torch.bfloat16, "cpu")
    expected = torch.empty_like(b["out"])
    rms_silu(b["x"] + b["bias"], b["gamma"], expected)
    rms_silu(**b)
    assert torch.equal(b["out"], expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_delta_is_added_in_place_and_rounded_before_the_norm(dtype: torch.dtype) -> None:
    a = makers.rms_norm(4, 64, delta=True).make(dtype, "cpu")
    total = a["x"] + a["delta"]
    delta = a["delta"].clone()
    storage = a["x"].data_ptr()
    rms_norm(**a)
    assert a["x"].data_ptr() == storage
    assert torch.equal(a["x"], total)
    assert torch.equal(a["delta"], delta)
    alone = torch.empty_like(total)
    rms_norm(total, a["weight"], a["eps"], alone)
    assert torch.equal(a["out"], alone)


def test_x_is_left_alone_without_delta() -> None:
    a = makers.rms_norm(4, 64).make(torch.float32, "cpu")
    before = a["x"].clone()
    rms_norm(**a)
    assert torch.equal(a["x"], before)


def test_rows_behind_the_written_ones_are_left_alone() -> None:
    a = makers.qk_rope(3, 2, 2, 16, spare=5).make(torch.float32, "cpu")
    qk_rope(**a)
    for name in ("k_out", "v_out"):
        assert (a[name][:, 3:] == SENTINEL).all()
        assert (a[name][:, :3] != SENTINEL).all()


def test_rotation_by_a_quarter_turn_swaps_the_halves() -> None:
    a = makers.qk_rope(2, 1, 1, 8).make(torch.float32, "cpu")
    a["cos"].zero_()
    a["sin"].fill_(1.0)
    a["qkv"][:, 8:16] = torch.tensor([2.0, 0, 0, 0, 0, 2, 0, 0])
    a["k_weight"].fill_(1.0)
    qk_rope(**a)
    # mean square 1; (a, b) -> (-b, a)
    expected = torch.tensor([0.0, -2, 0, 0, 2, 0, 0, 0])
    torch.testing.assert_close(a["k_out"][0, 0], expected, rtol=1e-5, atol=1e-6)


def test_relu2_and_rms_silu_may_write_over_their_input() -> None:
    a = makers.relu2(3, 50).make(torch.bfloat16, "cpu")
    relu2(**a)
    relu2(a["x"], a["x"])
    assert torch.equal(a["x"], a["out"])
    a = makers.rms_silu(3, 48).make(torch.bfloat16, "cpu")
    rms_silu(**a)
    rms_silu(a["x"], a["gamma"], a["x"])
    assert torch.equal(a["x"], a["out"])


def test_a_nan_stays_in_its_row_and_fills_it() -> None:
    nan = float("nan")
    for make, written in ((makers.rms_norm(3, 64), "x"), (makers.rms_silu(3, 64), "x")):
        a = make.make(torch.bfloat16, "cpu")
        a[written][1, 5] = nan
        make.implementation("public")(**a)
        assert a["out"].isnan().all(dim=1).tolist() == [False, True, False]
        assert a["out"].isnan().any(dim=1).tolist() == [False, True, False]
    a = makers.qk_rope(2, 2, 2, 16).make(torch.bfloat16, "cpu")
    a["qkv"][1, 3 * 16 + 2] = nan  # query head 3: k 1, g 1
    a["qkv"][0, 7 * 16 + 4] = nan  # value head 1
    qk_rope(**a)
    assert a["q_out"].isnan().any(-1).nonzero().tolist() == [[1, 1, 1]]
    assert a["q_out"][1, 1, 1].isnan().all()
    assert not a["k_out"].isnan().any()
    assert a["v_out"].isnan().nonzero().tolist() == [[1, 0, 4]]


def test_a_nan_stays_where_it_is_elementwise() -> None:
    nan = float("nan")
    x, out = torch.tensor([[1.0, nan, -3.0, -0.5]]), torch.empty(1, 4)
    relu2(x, out)
    assert out[0, [0, 2, 3]].tolist() == [1.0, 0.0, 0.0]
    assert out.isnan().tolist() == [[False, True, False, False]]
    out = torch.empty(1, 2)
    swiglu(x, out)  # gates 1 and nan
    assert out[0, 0].item() == pytest.approx(-3 / (1 + 2.718281828**-1))
    assert out.isnan().tolist() == [[False, True]]
    out = torch.empty(2, 2)
    heads_to_rows(x.view(1, 2, 1, 2), out)
    assert out.isnan().tolist() == [[False, True], [False, False]]


def change(case: Case, name: str, tensor: Tensor) -> dict[str, Any]:
    return {**case.make(torch.float32, "cpu"), name: tensor}


@pytest.mark.parametrize(
    ("case", "name", "tensor", "says"),
    [
        (makers.rms_norm(2, 8), "x", torch.zeros(2, 9), r"x: found shape \(2, 9\)"),
        (makers.rms_norm(2, 8), "out", torch.zeros(3, 8), r"out: found shape \(3, 8\)"),
        (makers.rms_norm(2, 8), "delta", torch.zeros(1, 8), r"delta: found shape \(1, 8\)"),
        (makers.rms_norm(2, 8), "out", torch.zeros(2, 8).double(), "out: found torch.float64"),
        (makers.rms_norm(2, 8), "x", torch.zeros(8, 2).T, "x: found stride 2"),
        (makers.qk_rope(2, 1, 1, 8), "k_out", torch.zeros(1, 1, 8), "room for 1 rows"),
        (makers.qk_rope(2, 1, 1, 8), "v_out", torch.zeros(2, 2, 8), "v_out: found shape"),
        (makers.qk_rope(2, 1, 1, 8), "qkv", torch.zeros(2, 32), "qkv: found shape"),
        (makers.qk_rope(2, 1, 1, 8), "cos", torch.zeros(2, 8), "cos: found shape"),
        (makers.qk_rope(2, 1, 1, 8), "sin", torch.zeros(2, 4).bfloat16(), "sin: found torch.bf"),
        (makers.qk_rope(2, 1, 1, 8), "q_out", torch.zeros(1, 2, 1, 7), "an even number"),
        (makers.relu2(2, 8), "out", torch.zeros(2, 7), "out: found shape"),
        (makers.swiglu(2, 8), "gate_up", torch.zeros(2, 8), r"expected \(2, 16\)"),
        (makers.rms_silu(2, 8), "gamma", torch.zeros(7), "x: found shape"),
        (makers.heads_to_rows(2, 1, 1, 8), "out", torch.zeros(2, 9), "out: found shape"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(
    case: Case, name: str, tensor: Tensor, says: str
) -> None:
    with pytest.raises(BadInputError, match=says):
        case.implementation("public")(**change(case, name, tensor))


def test_two_devices_are_refused() -> None:
    with pytest.raises(BadInputError, match="found tensors on cpu and meta"):
        relu2(torch.zeros(2, 4), torch.zeros(2, 4, device="meta"))


def test_a_missing_triton_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    # Stands in for a CUDA machine without it: what is asked before the first launch there.
    monkeypatch.setitem(sys.modules, "triton", None)
    dispatch._check_triton.cache_clear()
    with pytest.raises(EnvironmentLacksError, match=r"pip install 'cosmos_lite_ros\[triton\]'"):
        dispatch._check_triton()
    dispatch._check_triton.cache_clear()


def test_the_cpu_path_never_imports_triton() -> None:
    code = (
        "import sys, torch\n"
        "sys.modules['triton'] = None\n"
        "from test.kernels.makers import SMALL\n"
        "for case in SMALL: case.run('public', torch.float32)\n"
        "print(len(SMALL), sorted(m for m in sys.modules if m.endswith('_triton')))"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, cwd=REPOSITORY
    )
    assert run.stdout.split(maxsplit=1)[0] == str(len(SMALL)), run.stderr
    assert "cosmos_lite_ros" not in run.stdout
