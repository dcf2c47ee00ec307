# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Arguments of every quantised product with adversarial values, the same numbers every time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from cosmos_lite_ros.kernels.gemm_checks import blocks_of
from cosmos_lite_ros.kernels.gemm_int4wo import pack_int4
from cosmos_lite_ros.kernels.selftest_products import twin_of
from cosmos_lite_ros.kernels.tables import KERNELS, GemmConfig, built_in

LIMITS = {
    "gemm_fp8": 448.0,
    "gemm_fp8_unpromoted": 448.0,
    "gemm_fp8_fast": 28.0,
    "gemm_int8": 127.0,
    "gemm_int8_blocked": 127.0,
    "gemm_int8wo": 127.0,
    "gemm_int4wo": 7.0,
}
# 99 rows and columns of tiles of 32 x 16 and a K that is no multiple of a step, and of a 32nd.
RAGGED = (37, 40, 200)
VALUES = ("normal", "zeros", "edges", "outlier")


@dataclass(frozen=True)
class Product:
    """One product.

    Attributes:
        kernel: of ``tables.KERNELS``.
        shape: M, N, K.
        values: of ``VALUES``.
        config: what the kernel runs with.
        broken: a row whose scale or input is NaN.
    """

    kernel: str
    shape: tuple[int, int, int]
    values: str
    config: GemmConfig
    broken: int | None = None

    @property
    def name(self) -> str:
        cut = "x".join(str(n) for n in self.config.constants().values())
        shape = "x".join(str(n) for n in self.shape)
        return f"{self.kernel}-{shape}-{self.values}-{cut}{'' if self.broken is None else '-nan'}"

    def make(self, dtype: torch.dtype) -> list[Tensor]:
        """The launch's arguments on a CPU; ``dtype`` is the output's."""
        rows, columns, depth = self.shape
        generator = torch.Generator().manual_seed(sum(self.shape))
        limit = LIMITS[self.kernel]

        def normal(*shape: int) -> Tensor:
            return torch.randn(shape, generator=generator)

        def whole(*shape: int) -> Tensor:
            """Values up to the limit, one row or channel of edges among them."""
            drawn = normal(*shape) * (limit / 4)
            if self.values == "edges":
                drawn = torch.where(drawn < 0, -limit, limit)
            elif self.values == "outlier":
                drawn = normal(*shape) * (limit / 400)
                drawn[:, 3] = torch.where(drawn[:, 3] < 0, -limit, limit)
            elif self.values == "zeros":
                drawn = torch.zeros(shape)
            return drawn.clamp(-limit, limit)

        def scales(*shape: int) -> Tensor:
            return normal(*shape).abs() * 0.01 + 1e-4

        out = torch.full((rows, columns), torch.nan, dtype=dtype)
        if self.kernel in ("gemm_int8wo", "gemm_int4wo"):
            x = whole(rows, depth).bfloat16()
            if self.broken is not None:
                x[self.broken, depth - 1] = torch.nan
            w = (normal(columns, depth) * (limit / 3)).clamp(-limit, limit).round().to(torch.int8)
            if self.values == "edges":
                w = torch.where(w < 0, -limit, limit).to(torch.int8)
            if self.kernel == "gemm_int4wo":
                return [x, pack_int4(w), scales(columns, blocks_of(depth)), out]
            return [x, w, scales(columns), out]
        blocked = (blocks_of(depth),) if self.kernel == "gemm_int8_blocked" else ()
        a_scale = scales(rows, *blocked)
        if self.broken is not None:
            a_scale[self.broken].fill_(torch.nan)
        a, b = whole(rows, depth), whole(columns, depth)
        if "fp8" in self.kernel:
            eights = [t.to(torch.float8_e4m3fn) for t in (a, b)]
        else:
            eights = [t.round().to(torch.int8) for t in (a, b)]
        return [eights[0], a_scale, eights[1], scales(columns), out]

    def run(self, function: Callable[..., None], dtype: torch.dtype) -> Tensor:
        """What a function of these arguments writes."""
        given = self.make(dtype)
        function(*given)
        return given[-1]

    def twin(self, dtype: torch.dtype) -> Tensor:
        return self.run(twin_of(self.kernel), dtype)

    def size(self) -> Tensor:
        """float64 [M, N]: the sum of the terms' magnitudes, what rounding errors go by."""
        given = self.make(torch.float64)
        if self.kernel == "gemm_int4wo":
            from cosmos_lite_ros.kernels.gemm_int4wo import unpack_int4

            per_column = given[2].double().repeat_interleave(128, dim=1)[:, : self.shape[2]]
            return given[0].double().abs() @ (unpack_int4(given[1]).double().abs() * per_column).T
        if self.kernel == "gemm_int8wo":
            return given[0].double().abs() @ given[1].double().abs().T * given[2].double()
        a, a_scale, b, b_scale = (t.double().abs() for t in given[:4])
        if a_scale.ndim == 2:
            a = a * a_scale.repeat_interleave(128, dim=1)[:, : self.shape[2]]
            return a @ b.T * b_scale
        return a @ b.T * a_scale[:, None] * b_scale


def small(kernel: str) -> GemmConfig:
    """A configuration for few rows and columns, two products a step."""
    return GemmConfig(32, 16, 128, 2, 2, 4, 3)


# Ragged tiles, every kind of values; a single row; the number of rows of a request.
PRODUCTS = [
    *(Product(kernel, RAGGED, values, small(kernel)) for kernel in KERNELS for values in VALUES),
    *(Product(kernel, (1, 16, 384), "normal", small(kernel)) for kernel in KERNELS),
    *(Product(kernel, RAGGED, "normal", small(kernel), broken=36) for kernel in KERNELS),
]
# A request's rows with what the package's tables say, products from registers and from memory.
TALL = [
    Product(kernel, (3093, 24, 256), "normal", config)
    for kernel in KERNELS
    for architecture in ("sm_89", "sm_90")
    if (config := built_in()[architecture].find(kernel, 3093, 2048, 2048)) is not None
]
# Scaled to 448 instead of 28: what float16 accumulation must not be given.
OVERFLOWING = "gemm_fp8_fast-overflowing"


def overflowing() -> list[Tensor]:
    """Arguments of ``gemm_fp8_fast`` in the range of ``gemm_fp8``."""
    product = Product("gemm_fp8", (32, 32, 512), "normal", small("gemm_fp8_fast"))
    return product.make(torch.float32)
