# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Before a node is active: every kernel that it will use, at real shapes, against its twin, here.

Each check runs the public function, which on a GPU launches the kernel, fills its output with NaN
before, plants a zero row, an outlier and a NaN, and compares a sample of rows and columns (the last
ones among them) with the twin. Memory is that of one layer's largest product; call it before the
weights are loaded, then ``torch.cuda.empty_cache()``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

from cosmos_lite_ros.kernels.activation import relu2, relu2_twin, swiglu, swiglu_twin
from cosmos_lite_ros.kernels.activation_quantise import (
    relu2_quantise,
    relu2_quantise_twin,
    swiglu_quantise,
    swiglu_quantise_twin,
)
from cosmos_lite_ros.kernels.attention_int8qk import (
    Workspace,
    attention_int8qk,
    attention_int8qk_twin,
)
from cosmos_lite_ros.kernels.gather import heads_to_rows, heads_to_rows_twin
from cosmos_lite_ros.kernels.gather_quantise import (
    heads_to_rows_quantise,
    heads_to_rows_quantise_twin,
)
from cosmos_lite_ros.kernels.gemm_checks import blocks_of
from cosmos_lite_ros.kernels.gemm_fp8 import Backend
from cosmos_lite_ros.kernels.qk_rope import qk_rope, qk_rope_twin
from cosmos_lite_ros.kernels.rms_norm import rms_norm, rms_norm_twin
from cosmos_lite_ros.kernels.rms_norm_quantise import rms_norm_quantise, rms_norm_quantise_twin
from cosmos_lite_ros.kernels.selftest_products import STEP, Check, Product, check_product, worst
from cosmos_lite_ros.kernels.shapes import ROLES, LayerShape

# Text behind the generation tokens, a ragged number.
_TEXT: Final = 141
_EPS: Final = 1e-5


@dataclass(frozen=True)
class Plan:
    """What a node will run.

    Attributes:
        layer: shape of the network.
        scheme: bf16, fp8, fp8_fast, int8, int8wo or int4wo.
        rows: numbers of rows of the products.
        tokens: of one branch, what attention sees.
        fp8_backend, fast: as ``linear_fp8`` takes them.
        attention: ``int8qk`` to check that kernel; anything else is torch's.
        float16_sum: as ``attention_int8qk`` takes it.
    """

    layer: LayerShape
    scheme: str
    rows: tuple[int, ...]
    tokens: int
    fp8_backend: Backend = "triton"
    fast: bool = False
    attention: str = "sdpa"
    float16_sum: bool = False


def run_selftest(plan: Plan, device: torch.device) -> list[Check]:
    """All checks of a plan, one after the other on the current stream.

    A kernel that cannot be launched raises what its launch does.
    """
    checks = []
    for role in ROLES:
        kernel = kernel_of(plan, role)
        for rows in plan.rows if kernel else ():
            checks.append(
                check_product(kernel, (rows, *plan.layer.matrix(role)), device, plan.fp8_backend)
            )
    for rows in plan.rows:
        checks += _pointwise(plan, rows, device)
    checks.append(_check_rope(plan, device))
    if plan.attention == "int8qk":
        checks.append(_check_attention(plan, device))
    return checks


def kernel_of(plan: Plan, role: str) -> str:
    """The key in ``tables.KERNELS`` of a matrix's product; empty: torch's own bfloat16 product."""
    mlp = role in ("up", "down")
    return {
        "bf16": "",
        "fp8": "gemm_fp8_unpromoted" if plan.fast else "gemm_fp8",
        "fp8_fast": "gemm_fp8_fast",
        "int8": "gemm_int8_blocked" if role == "down" else "gemm_int8",
        "int8wo": "gemm_int8wo",
        "int4wo": "gemm_int4wo" if mlp else "gemm_int8wo",
    }[plan.scheme]


def _pointwise(plan: Plan, rows: int, device: torch.device) -> list[Check]:
    """The kernels between the products, quantising where the scheme does."""
    layer = plan.layer
    draw = _Draw(rows, device)
    x, delta = draw(rows, layer.hidden, outlier=True), draw(rows, layer.hidden)
    gain = draw(layer.hidden)
    attended = draw(layer.kv_heads, rows, layer.group, layer.head_dim)
    wide = draw(rows, layer.matrix("up")[0], outlier=True)
    quantised = plan.scheme in ("fp8", "fp8_fast", "int8")
    limit = {"fp8_fast": 28.0, "int8": 127.0}.get(plan.scheme, 448.0)
    dtype = torch.int8 if plan.scheme == "int8" else torch.float8_e4m3fn
    named = {"delta": delta, "twice": layer.twice}
    activations = (swiglu, swiglu_twin) if layer.gated else (relu2, relu2_twin)
    if not quantised:
        norm: Sequence[Product] = (rms_norm, rms_norm_twin)
        return [
            _check_plain("rms_norm", norm, (x, gain, _EPS), rows, layer.hidden, 3, named),
            _check_plain("activation", activations, (wide,), rows, layer.intermediate, 1, {}),
            _check_plain(
                "heads_to_rows",
                (heads_to_rows, heads_to_rows_twin),
                (attended,),
                rows,
                layer.matrix("out")[1],
                0,
                {},
            ),
        ]
    pairs = (
        (swiglu_quantise, swiglu_quantise_twin)
        if layer.gated
        else (relu2_quantise, relu2_quantise_twin)
    )
    blocked = (blocks_of(layer.intermediate),) if plan.scheme == "int8" else ()
    return [
        _check_quantised(
            "rms_norm_quantise",
            (rms_norm_quantise, rms_norm_quantise_twin),
            (x, gain, _EPS),
            (rows, layer.hidden),
            (),
            (dtype, limit),
            named,
        ),
        _check_quantised(
            "heads_to_rows_quantise",
            (heads_to_rows_quantise, heads_to_rows_quantise_twin),
            (attended,),
            (rows, layer.matrix("out")[1]),
            (),
            (dtype, limit),
            {},
        ),
        _check_quantised(
            f"{pairs[0].__name__}",
            pairs,
            (wide,),
            (rows, layer.intermediate),
            blocked,
            (dtype, limit),
            {},
        ),
    ]


def _check_plain(
    name: str,
    pair: Sequence[Product],
    given: tuple[Any, ...],
    rows: int,
    width: int,
    roundings: int,
    named: dict[str, Any],
) -> Check:
    outs = []
    for function in pair:
        copied = [_copy(a) for a in given]
        out = torch.full((rows, width), torch.nan, dtype=torch.bfloat16, device=given[0].device)
        function(*copied, out, **named)
        outs.append(out.float())
    found, exact = outs
    error = (found - exact).abs() / (exact.abs() * STEP * max(roundings, 1) + 1e-30)
    if roundings == 0:
        error = torch.where(found == exact, 0.0, torch.inf)
    return Check(f"{name} {rows}x{width}", worst(error, found, exact))


def _check_quantised(
    name: str,
    pair: Sequence[Product],
    given: tuple[Any, ...],
    shape: tuple[int, int],
    blocked: tuple[int, ...],
    kind: tuple[torch.dtype, float],
    named: dict[str, Any],
) -> Check:
    """Values may differ by one step of the quantisation where sums were rounded otherwise."""
    device = given[0].device
    dtype, limit = kind
    outs = []
    for function in pair:
        copied = [_copy(a) for a in given]
        q = torch.zeros(shape, dtype=dtype, device=device)
        scale = torch.full((shape[0], *blocked), torch.nan, device=device)
        function(*copied, q, scale, limit, **named)
        per_column = scale[:, None] if scale.ndim == 1 else _spread(scale, shape[1])
        outs.append((q.float() * per_column, per_column))
    (found, _), (exact, scale) = outs
    # int8 has equal steps; those of e4m3 are an eighth of the value at most, and 2^-9 near zero.
    step = scale if dtype is torch.int8 else exact.abs() / 8 + scale * 2.0**-9
    error = (found - exact).abs() / (step * 1.05 + exact.abs() * 4 * STEP + 1e-30)
    return Check(f"{name} {shape[0]}x{shape[1]}", worst(error, found, exact))


def _check_rope(plan: Plan, device: torch.device) -> Check:
    layer, rows = plan.layer, plan.tokens
    draw = _Draw(rows, device)
    half = layer.head_dim // 2
    angles = torch.randn((rows, half), generator=draw.generator, device=device) * 100
    fixed = (
        draw(rows, layer.matrix("qkv")[0]),
        draw(layer.head_dim),
        draw(layer.head_dim),
        angles.cos(),
        angles.sin(),
        _EPS,
    )
    keys, values = (draw(layer.kv_heads, _TEXT, layer.head_dim) for _ in range(2))
    outs = []
    for function in (qk_rope, qk_rope_twin):
        q = torch.full(
            (layer.kv_heads, rows, layer.group, layer.head_dim),
            torch.nan,
            dtype=torch.bfloat16,
            device=device,
        )
        k = torch.full(
            (layer.kv_heads, rows + _TEXT, layer.head_dim),
            torch.nan,
            dtype=torch.bfloat16,
            device=device,
        )
        v = torch.full_like(k, torch.nan)
        function(*fixed, q, k, v, twice=layer.twice, text_keys=keys, text_values=values)
        outs.append(torch.cat([t.flatten(1) for t in (q, k, v)], dim=1).float())
    found, exact = outs
    # A rotation mixes two channels: the row's size takes the place of the value's.
    size = exact.abs() + exact.square().mean().sqrt()
    error = (found - exact).abs() / (size * STEP * 3)
    return Check(f"qk_rope {rows}x{layer.matrix('qkv')[0]}", worst(error, found, exact))


def _check_attention(plan: Plan, device: torch.device) -> Check:
    """Against the twin in float32, sampled rows; both quantise the same keys."""
    layer, rows, keys = plan.layer, plan.tokens * plan.layer.group, plan.tokens + _TEXT
    draw = _Draw(rows, device)
    q = draw(layer.kv_heads, rows, layer.head_dim)
    k = draw(layer.kv_heads, keys, layer.head_dim) + 4 * draw(layer.kv_heads, 1, layer.head_dim)
    v = draw(layer.kv_heads, keys, layer.head_dim)
    q[-1, 2, 5] = torch.nan
    out, exact = (torch.full_like(q, torch.inf) for _ in range(2))
    space = Workspace.empty(layer.kv_heads, keys, layer.head_dim, device)
    for function, written in ((attention_int8qk, out), (attention_int8qk_twin, exact)):
        function(q, k, v, written, space, float16_sum=plan.float16_sum)
    found, exact = out.float(), exact.float()
    # Another order of sums turns the last step of an int8, of a probability and of the output.
    size = torch.where(exact.isfinite(), exact, 0.0).square().mean().sqrt()
    error = (found - exact).abs() / (exact.abs() * 2 * STEP + size * 0.02)
    return Check(f"attention_int8qk {layer.kv_heads}x{rows}x{keys}", worst(error, found, exact))


class _Draw:
    """bfloat16 tensors of one check, normally distributed."""

    def __init__(self, seed: int, device: torch.device):
        self.generator = torch.Generator(device).manual_seed(seed)
        self._device = device

    def __call__(self, *shape: int, outlier: bool = False) -> Tensor:
        """A tensor; with ``outlier`` one channel is 64 times as large and row 0 is zero."""
        drawn = torch.randn(shape, generator=self.generator, device=self._device)
        if outlier:
            drawn[:, 3] *= 64
            drawn[0] = 0
            drawn[-1, 5] = torch.nan
        return drawn.bfloat16()


def _spread(scale: Tensor, width: int) -> Tensor:
    return scale.repeat_interleave(128, dim=1)[:, :width]


def _copy(value: Any) -> Any:
    return value.clone() if isinstance(value, Tensor) else value
