# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The quantised products on a CPU: twins against float64, the range of float16 sums, refusals."""

from __future__ import annotations

import math
from typing import Any

import pytest

pytest.importorskip("torch")
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cosmos_lite_ros.errors import BadInputError
from cosmos_lite_ros.kernels.gemm_fp8 import (
    FAST_BLOCK,
    FAST_LIMIT,
    LIMIT,
    gemm_fp8,
    gemm_fp8_fast,
    linear_fp8,
)
from cosmos_lite_ros.kernels.gemm_int4wo import gemm_int4wo, pack_int4, unpack_int4
from cosmos_lite_ros.kernels.gemm_int8 import gemm_int8
from cosmos_lite_ros.kernels.gemm_int8wo import gemm_int8wo
from cosmos_lite_ros.kernels.quantise import quantise_rows
from cosmos_lite_ros.kernels.selftest_products import public_product

from .gemm_makers import PRODUCTS, Product, overflowing, small

DTYPES = (torch.float64, torch.float32, torch.bfloat16)
E4M3 = torch.float8_e4m3fn
HALF_MAX = 65504.0


def exact(product: Product) -> Tensor:
    """float64 [M, N] from the definition, one output at a time over plain numbers."""
    first, *rest = product.make(torch.float64)[:-1]
    x = first.double()
    if product.kernel == "gemm_int4wo":
        packed, scale = rest
        w = torch.stack([packed & 15, packed >> 4], 2).flatten(1).double() - 8
        w = w * torch.stack([scale[:, k // 128] for k in range(w.shape[1])], 1).double()
        return x @ w.T
    if product.kernel == "gemm_int8wo":
        w, scale = rest
        return torch.einsum("mk,nk,n->mn", x, w.double(), scale.double())
    a_scale, b, b_scale = rest
    if a_scale.ndim == 2:
        x = x * torch.stack([a_scale[:, k // 128] for k in range(x.shape[1])], 1).double()
        return torch.einsum("mk,nk,n->mn", x, b.double(), b_scale.double())
    return torch.einsum("mk,nk,m,n->mn", x, b.double(), a_scale.double(), b_scale.double())


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("product", PRODUCTS, ids=lambda p: p.name)
def test_outputs_are_the_formula_s(product: Product, dtype: torch.dtype) -> None:
    found = product.run(public_product(product.kernel), dtype).double()
    expected, size = exact(product), product.size()
    rows = torch.ones(product.shape[0], dtype=torch.bool)
    if product.broken is not None:
        rows[product.broken] = False
        assert found[product.broken].isnan().all()
    sums = {torch.float64: 1e-14, torch.float32: 1e-6, torch.bfloat16: 1e-6}[dtype]
    if product.kernel == "gemm_fp8_fast" and dtype is not torch.float64:
        # Two roundings to float16 of each 64 terms.
        sums = 2.0**-10
    limit = size * sums + expected.abs() * (2.0**-8 if dtype is torch.bfloat16 else 0.0)
    assert ((found - expected).abs()[rows] <= limit[rows]).all()
    assert found[rows].isfinite().all()
    if product.values == "zeros":
        assert (found[rows] == 0).all()


def test_int8_sums_are_exact_beyond_float32() -> None:
    # 1041 * 127 * 127 + 1 = 16790290: odd, and above 2^24.
    a = torch.full((1, 1042), 127, dtype=torch.int8)
    b = a.clone()
    a[0, -1], b[0, -1] = 1, 1
    out, one = torch.empty(1, 1, dtype=torch.float64), torch.ones(1)
    gemm_int8(a, one, b, one, out)
    assert out.item() == 1041 * 127 * 127 + 1


def test_a_scale_of_inf_is_not_hidden_by_zeros() -> None:
    a, b = torch.zeros(2, 128, dtype=torch.int8), torch.ones(3, 128, dtype=torch.int8)
    out = torch.empty(2, 3)
    for shape in ((2,), (2, 1)):
        scale = torch.ones(shape)
        scale[1] = torch.inf
        gemm_int8(a, scale, b, torch.ones(3), out)
        assert out.isnan().all(1).tolist() == [False, True]


def test_block_scales_are_those_of_their_block() -> None:
    a = torch.ones(1, 300, dtype=torch.int8)
    b = torch.ones(1, 300, dtype=torch.int8)
    out = torch.empty(1, 1)
    gemm_int8(a, torch.tensor([[1.0, 100.0, 10000.0]]), b, torch.tensor([2.0]), out)
    assert out.item() == 2 * (128 + 128 * 100 + 44 * 10000)


def test_int4_halves_are_in_the_named_order() -> None:
    values = torch.tensor([[-7, 7, 0, 1], [3, -2, 5, -8]], dtype=torch.int8)
    packed = pack_int4(values)
    # Low half the even column, stored + 8: -7 -> 1, 7 -> 15.
    assert packed.tolist() == [[1 + 16 * 15, 8 + 16 * 9], [11 + 16 * 6, 13 + 16 * 0]]
    assert torch.equal(unpack_int4(packed), values)
    x = torch.tensor([[1.0, 10, 100, 1000]])
    out = torch.empty(1, 2)
    gemm_int4wo(x, packed, torch.tensor([[1.0], [0.5]]), out)
    assert out.tolist() == [[-7 + 70 + 1000.0, (3 - 20 + 500 - 8000) / 2]]


def test_sums_of_a_block_at_28_stay_in_float16_at_their_very_worst() -> None:
    assert FAST_BLOCK * FAST_LIMIT**2 == 50176 < HALF_MAX
    a = torch.full((1, FAST_BLOCK * 40), FAST_LIMIT).to(E4M3)
    out, one = torch.empty(1, 1), torch.ones(1)
    gemm_fp8_fast(a, one, a, one, out)
    assert out.item() == 40 * 50176


def test_at_448_most_blocks_leave_float16() -> None:
    a, a_scale, b, b_scale, out = overflowing()
    gemm_fp8_fast(a, a_scale, b, b_scale, out)
    assert (~out.isfinite()).float().mean() > 0.5
    gemm_fp8(a, a_scale, b, b_scale, out)
    assert out.isfinite().all()


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    outlier=st.floats(1e-6, 1e6),
    ones=st.floats(0, 1),
)
def test_what_is_quantised_to_28_never_overflows(seed: int, outlier: float, ones: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(8, 256, generator=generator)
    # From heavy-tailed rows to rows of one magnitude, the worst of all.
    x = torch.where(torch.rand(8, 256, generator=generator) < ones, x.sign(), x)
    x[:, seed % 256] *= outlier
    q, scale = torch.empty(x.shape, dtype=E4M3), torch.empty(8)
    quantise_rows(x, q, scale, FAST_LIMIT)
    out = torch.empty(8, 8)
    gemm_fp8_fast(q, scale, q, scale, out)
    assert out.isfinite().all()
    wide = q.float() * scale[:, None]
    size = wide.abs() @ wide.abs().T
    assert ((out - wide @ wide.T).abs() <= size * 2.0**-10).all()


def test_fast_sums_cost_less_than_float8_itself() -> None:
    generator = torch.Generator().manual_seed(0)
    x, w = (torch.randn(64, 2048, generator=generator) for _ in range(2))
    outs = []
    for limit, function in ((LIMIT, gemm_fp8), (FAST_LIMIT, gemm_fp8_fast)):
        given = []
        for tensor in (x, w):
            q, scale = torch.empty(tensor.shape, dtype=E4M3), torch.empty(64)
            quantise_rows(tensor, q, scale, limit)
            given += [q, scale]
        out = torch.empty(64, 64)
        function(*given, out)
        outs.append(float((out - x @ w.T).norm() / (x @ w.T).norm()))
    accurate, fast = outs
    assert 0.02 < accurate < 0.05
    assert fast < accurate * 1.05


def test_linear_fp8_is_the_twin_on_a_cpu_whatever_the_backend() -> None:
    product = Product("gemm_fp8", (5, 16, 64), "normal", small("gemm_fp8"))
    expected = product.twin(torch.bfloat16)
    for backend in ("scaled_mm", "triton"):
        for fast in (False, True):
            a, a_scale, b, b_scale, out = product.make(torch.bfloat16)
            linear_fp8(a, a_scale, b, b_scale, out, fast=fast, backend=backend)
            assert torch.equal(out, expected)
    with pytest.raises(BadInputError, match="backend is 'cublas', expected scaled_mm or triton"):
        linear_fp8(a, a_scale, b, b_scale, out, fast=True, backend="cublas")  # type: ignore[arg-type]


def int8(*shape: int) -> Tensor:
    return torch.zeros(shape, dtype=torch.int8)


def f8(*shape: int) -> Tensor:
    return torch.zeros(shape).to(E4M3)


@pytest.mark.parametrize(
    ("function", "arguments", "says"),
    [
        (gemm_fp8, (f8(2, 8), torch.ones(2), f8(3, 9), torch.ones(3), torch.ones(2, 3)), "a: "),
        (gemm_fp8, (int8(2, 8), torch.ones(2), f8(3, 8), torch.ones(3), torch.ones(2, 3)), "a: "),
        (gemm_fp8, (f8(2, 8), torch.ones(3), f8(3, 8), torch.ones(3), torch.ones(2, 3)), "a_sc"),
        (
            gemm_fp8_fast,
            (f8(2, 8), torch.ones(2), f8(3, 8), torch.ones(3).bfloat16(), torch.ones(2, 3)),
            "b_scale: found torch.bfloat16",
        ),
        (
            gemm_int8,
            (int8(2, 300), torch.ones(2, 2), int8(3, 300), torch.ones(3), torch.ones(2, 3)),
            r"a_scale: found shape \(2, 2\), expected \(2, 3\)",
        ),
        (
            gemm_int8,
            (int8(2, 8), torch.ones(2), int8(3, 8), torch.ones(3), torch.ones(2, 3).half()),
            "out: found torch.float16",
        ),
        (gemm_int8wo, (torch.ones(2, 8), int8(3, 7), torch.ones(3), torch.ones(2, 3)), "x: found"),
        (
            gemm_int8wo,
            (torch.ones(2, 8), int8(3, 8), torch.ones(3), torch.ones(3, 2).T),
            "out: found stride 2",
        ),
        (
            gemm_int4wo,
            (torch.ones(2, 8), int8(3, 4), torch.ones(3, 1), torch.ones(2, 3)),
            "packed: found torch.int8, expected torch.uint8",
        ),
        (
            gemm_int4wo,
            (torch.ones(2, 9), int8(3, 4).view(torch.uint8), torch.ones(3, 1), torch.ones(2, 3)),
            r"x: found shape \(2, 9\), expected \(2, 8\)",
        ),
        (pack_int4, (int8(2, 3),), "3 columns, expected"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(
    function: Any, arguments: tuple[Any, ...], says: str
) -> None:
    with pytest.raises(BadInputError, match=says):
        function(*arguments)


def test_more_elements_than_32_bits_are_refused() -> None:
    rows, columns = 3093, 1 << 20
    given = (
        torch.empty((rows, 8), dtype=torch.bfloat16, device="meta"),
        torch.empty((columns, 8), dtype=torch.int8, device="meta"),
        torch.empty(columns, device="meta"),
        torch.empty((rows, columns), dtype=torch.bfloat16, device="meta"),
    )
    assert math.prod(given[-1].shape) > 2**31
    with pytest.raises(BadInputError, match="split its rows"):
        gemm_int8wo(*given)
