# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Quantised matrices: how far they are from what was put in, and what they hand on."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cosmos_lite_ros.errors import BadInputError
from cosmos_lite_ros.kernels.gemm_int4wo import unpack_int4
from cosmos_lite_ros.quantize import matrix as module
from cosmos_lite_ros.quantize.matrix import QuantisedMatrix, empty_matrix, quantise
from cosmos_lite_ros.quantize.schemes import Kind

from .makers import relative_error

CPU = torch.device("cpu")
KINDS: tuple[tuple[Kind, float], ...] = (
    ("e4m3", 448.0),
    ("e4m3", 28.0),
    ("int8", 127.0),
    ("int4", 7.0),
)
kinds = pytest.mark.parametrize(("kind", "limit"), KINDS, ids=lambda v: str(v))


def make(kind: Kind, limit: float, rows: Tensor) -> QuantisedMatrix:
    found = empty_matrix(kind, rows.shape[0], rows.shape[1], CPU, limit)
    found.put(0, rows)
    return found


def spread(matrix: QuantisedMatrix) -> Tensor:
    """The scale of every value [out, in]."""
    rows, columns = matrix.shape
    if matrix.kind == "int4":
        return matrix.scale.repeat_interleave(128, dim=1)[:, :columns]
    return matrix.scale[:, None].expand(rows, columns)


@kinds
@given(seed=st.integers(0, 10_000), power=st.floats(-8, 8), outlier=st.floats(1, 1000))
@settings(max_examples=25, deadline=None)
def test_the_error_is_half_a_step(
    kind: Kind, limit: float, seed: int, power: float, outlier: float
) -> None:
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(5, 320, generator=generator) * 10**power
    rows[1, seed % 320] *= outlier
    found = make(kind, limit, rows)
    scale = spread(found)
    error = (found.dequantise() - rows).abs()
    if kind == "e4m3":
        # 3 bits of mantissa: half of 2^-3; the smallest steps are 2^-9.
        allowed = torch.maximum(rows.abs() * 2**-4, scale * 2**-10)
    else:
        allowed = scale / 2
    assert bool((error <= allowed * (1 + 1e-4)).all())
    # The largest value of a row (or of a block) is met.
    assert bool((found.dequantise().abs().amax(1) <= rows.abs().amax(1) * (1 + 1e-5)).all())


# relative L2 of a matrix of normal values: measured, a tenth above.
@pytest.mark.parametrize(
    ("kind", "limit", "expected"),
    [("e4m3", 448.0, 0.029), ("e4m3", 28.0, 0.029), ("int8", 127.0, 0.0083), ("int4", 7.0, 0.122)],
)
def test_the_error_of_a_normal_matrix(kind: Kind, limit: float, expected: float) -> None:
    rows = torch.randn(64, 2048, generator=torch.Generator().manual_seed(1)) * 0.02
    found = relative_error(make(kind, limit, rows).dequantise(), rows)
    assert 0.8 * expected < found < expected


@kinds
def test_a_row_of_zeros_gives_zeros(kind: Kind, limit: float) -> None:
    rows = torch.ones(3, 256)
    rows[1] = 0
    found = make(kind, limit, rows)
    assert bool((found.dequantise()[1] == 0).all())
    assert bool((found.scale[1] == 1e-12).all())
    assert relative_error(found.dequantise(), rows) < 1e-6


@kinds
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_finite_is_handed_on(kind: Kind, limit: float, bad: float) -> None:
    rows = torch.ones(3, 256)
    rows[1, 130] = bad
    found = make(kind, limit, rows).dequantise()
    assert bool(found[[0, 2]].isfinite().all())
    assert not bool(found[1, 128:].isfinite().any())
    # A product with it is not finite, whatever the other side is.
    assert not bool((found @ torch.ones(256))[1].isfinite())


@kinds
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_chunks_do_not_show(
    kind: Kind, limit: float, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = torch.randn(41, 192, generator=torch.Generator().manual_seed(3)).to(dtype)
    data, scale = quantise(rows.float(), kind, limit)
    monkeypatch.setattr(module, "_CHUNK_BYTES", 7 * 4 * 192)
    found = empty_matrix(kind, 41, 192, CPU, limit)
    for first, last in ((30, 41), (0, 1), (1, 30)):
        found.put(first, rows[first:last])
    assert torch.equal(found.data.view(torch.uint8), data.view(torch.uint8))
    assert torch.equal(found.scale, scale)
    again = empty_matrix(kind, 41, 192, CPU, limit)
    again.put_quantised(20, data[20:], scale[20:])
    again.put_quantised(0, data[:20], scale[:20])
    assert torch.equal(again.dequantise(), found.dequantise())
    assert found.shape == (41, 192)
    assert found.nbytes == 41 * (96 + 4 * 2 if kind == "int4" else 192 + 4)


def test_int4_lies_as_documented() -> None:
    rows = torch.zeros(1, 130)
    rows[0, :5] = torch.tensor([7.0, -7.0, 1.0, 0.0, -3.0])
    rows[0, 128:] = torch.tensor([-14.0, 14.0])
    found = make("int4", 7.0, rows)
    assert found.scale.tolist() == [[1.0, 2.0]]
    # low half: even column, plus 8
    assert found.data[0, :3].tolist() == [15 | 1 << 4, 9 | 8 << 4, 5 | 8 << 4]
    assert found.data[0, 64].item() == 1 | 15 << 4
    assert unpack_int4(found.data)[0, :5].tolist() == [7, -7, 1, 0, -3]
    assert torch.equal(found.dequantise(), rows)


def test_halves_round_to_even() -> None:
    rows = torch.tensor([[127.0, 0.5, 1.5, 2.5, -0.5, -1.5]])
    assert make("int8", 127.0, rows).data.tolist() == [[127, 0, 2, 2, 0, -2]]
    # 17 and 19 lie between the float8 values 16, 18, 20.
    rows = torch.tensor([[448.0, 17.0, 19.0, -17.0]])
    assert make("e4m3", 448.0, rows).dequantise().tolist() == [[448.0, 16.0, 20.0, -16.0]]


def test_nothing_exceeds_its_limit() -> None:
    rows = torch.randn(200, 64, generator=torch.Generator().manual_seed(5)) * 1e-3
    for kind, limit in KINDS[:3]:
        data = make(kind, limit, rows).data.float().abs()
        assert bool((data.amax(1) == limit).all())
    values = unpack_int4(make("int4", 7.0, rows).data)
    assert values.min() == -7
    assert values.max() == 7


def test_what_does_not_fit_is_refused() -> None:
    found = empty_matrix("int8", 4, 8, CPU, 127.0)
    for start, rows in ((0, torch.ones(5, 8)), (3, torch.ones(2, 8)), (-1, torch.ones(1, 8))):
        with pytest.raises(BadInputError, match="the matrix has 4"):
            found.put(start, rows)
    with pytest.raises(BadInputError, match=r"expected \[n, 8\]"):
        found.put(0, torch.ones(2, 9))
    data, scale = quantise(torch.ones(2, 8), "int8", 127.0)
    with pytest.raises(BadInputError, match="uint8, expected torch"):
        found.put_quantised(0, data.view(torch.uint8), scale)
    with pytest.raises(BadInputError, match=r"scale is \[1\] for data \[2, 8\]"):
        found.put_quantised(0, data, scale[:1])
    with pytest.raises(BadInputError, match="kind is 'int2'"):
        empty_matrix("int2", 4, 8, CPU, 1.0)  # type: ignore[arg-type]
