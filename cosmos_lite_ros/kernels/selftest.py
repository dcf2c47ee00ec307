# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Before a node is active: every kernel that it will use, at real shapes, against its twin, here.

Each check runs the public function, which on a GPU launches the kernel, fills its output with NaN
before, plants a zero row, an outlier and a NaN, and compares a sample of rows and columns (the last
ones among them) with the twin. Memory is that of one layer's largest product; call it before the
weights are loaded, then ``torch.cuda.empty_cache()``.
"""

from __future__ import annotations

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
from cosmos_lite_ros.kernels.gemm_checks import SCALE_BLOCK, blocks_of
from cosmos_lite_ros.kernels.gemm_fp8 import Backend
from cosmos_lite_ros.kernels.qk_rope import qk_rope, qk_rope_twin
from cosmos_lite_ros.kernels.rms_norm import rms_norm, rms_norm_twin
from cosmos_lite_ros.kernels.rms_norm_quantise import rms_norm_quantise, rms_norm_quantise_twin
from cosmos_lite_ros.kernels.selftest_products import (
    STEP,
    Check,
    Product,
    check_product,
    sample,
    take,
    worst,
)
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
    wide = draw(rows, layer.matrix("up")[0], outlier=True)
    attended = draw(layer.kv_heads, rows, layer.group, layer.head_dim)
    width = layer.matrix("out")[1]

    def norm(function: Product, part: Tensor, *written: Any) -> None:
        named = {"delta": delta[part], "twice": layer.twice}
        function(x[part], gain, _EPS, *written, **named)

    def activation(function: Product, part: Tensor, *written: Any) -> None:
        function(wide[part], *written)

    def gather(function: Product, part: Tensor, *written: Any) -> None:
        function(attended[:, part], *written)

    if plan.scheme not in ("fp8", "fp8_fast", "int8"):
        pair = (swiglu, swiglu_twin) if layer.gated else (relu2, relu2_twin)
        # Roundings to bfloat16: of the sum, the norm and the gain; none in a copy.
        return [
            _check_plain((rms_norm, rms_norm_twin), norm, x, layer.hidden, 3),
            _check_plain(pair, activation, wide, layer.intermediate, 1),
            _check_plain((heads_to_rows, heads_to_rows_twin), gather, x, width, 0),
        ]
    kind = _Kind(
        torch.int8 if plan.scheme == "int8" else torch.float8_e4m3fn,
        {"fp8_fast": 28.0, "int8": 127.0}.get(plan.scheme, 448.0),
    )
    norms = (rms_norm_quantise, rms_norm_quantise_twin)
    gathers = (heads_to_rows_quantise, heads_to_rows_quantise_twin)
    plain = (relu2_quantise, relu2_quantise_twin)
    activations = (swiglu_quantise, swiglu_quantise_twin) if layer.gated else plain
    blocks = blocks_of(layer.intermediate) if plan.scheme == "int8" else 0
    return [
        _check_quantised(norms, norm, x, layer.hidden, 0, kind),
        _check_quantised(gathers, gather, x, width, 0, kind),
        _check_quantised(activations, activation, wide, layer.intermediate, blocks, kind),
    ]


@dataclass(frozen=True)
class _Kind:
    """What rows are quantised to."""

    dtype: torch.dtype
    limit: float


def _parts(source: Tensor) -> tuple[Tensor, Tensor]:
    """Indices of all rows and of a sample; no kernel here mixes rows."""
    rows, device = source.shape[0], source.device
    return torch.arange(rows, device=device), sample(rows, device)


def _check_plain(
    pair: tuple[Product, Product], call: Product, source: Tensor, width: int, roundings: int
) -> Check:
    outs = []
    for function, part in zip(pair, _parts(source), strict=True):
        shape = (len(part), width)
        out = torch.full(shape, torch.nan, dtype=torch.bfloat16, device=source.device)
        call(function, part, out)
        outs.append(out)
    found, exact = outs[0][_parts(source)[1]].float(), outs[1].float()
    if not bool(outs[0][:-1].isfinite().all()):
        return Check(f"{pair[0].__name__} {source.shape[0]}x{width}", torch.inf)
    if roundings:
        error = (found - exact).abs() / (exact.abs() * STEP * roundings + 1e-30)
    else:
        error = torch.where(found == exact, 0.0, torch.inf)
    return Check(f"{pair[0].__name__} {source.shape[0]}x{width}", worst(error, found, exact))


def _check_quantised(
    pair: tuple[Product, Product],
    call: Product,
    source: Tensor,
    width: int,
    blocks: int,
    kind: _Kind,
) -> Check:
    """Values may differ by one step of the quantisation where sums were rounded otherwise."""
    outs = []
    for function, part in zip(pair, _parts(source), strict=True):
        q = torch.zeros((len(part), width), dtype=kind.dtype, device=source.device)
        shape = (len(part), blocks) if blocks else (len(part),)
        scale = torch.full(shape, torch.nan, device=source.device)
        call(function, part, q, scale, kind.limit)
        outs.append((q, scale))
    part = _parts(source)[1]
    (whole, scales), (q, scale) = outs
    found = take(whole, part).float() * _spread(scales[part], width)
    step = _spread(scale, width)
    exact = q.float() * step
    if not bool(scales[:-1].isfinite().all()):
        return Check(f"{pair[0].__name__} {source.shape[0]}x{width}", torch.inf)
    # int8 has equal steps; those of e4m3 are an eighth of the value at most, and 2^-9 near zero.
    if kind.dtype is not torch.int8:
        step = exact.abs() / 8 + step * 2.0**-9
    error = (found - exact).abs() / (step * 1.05 + exact.abs() * 4 * STEP + 1e-30)
    return Check(f"{pair[0].__name__} {source.shape[0]}x{width}", worst(error, found, exact))


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

    def __call__(self, *shape: int, outlier: bool = False) -> Tensor:
        """A tensor; with ``outlier`` a large channel, a row of zeros and one with a NaN."""
        device = self.generator.device
        drawn = torch.randn(shape, generator=self.generator, device=device, dtype=torch.bfloat16)
        if outlier:
            drawn[:, 3] *= 64
            drawn[0] = 0
            drawn[-1, 5] = torch.nan
        return drawn


def _spread(scale: Tensor, width: int) -> Tensor:
    """Scales of rows or blocks, one a column."""
    if scale.ndim == 1:
        return scale[:, None].expand(-1, width)
    return scale.repeat_interleave(SCALE_BLOCK, dim=1)[:, :width]
