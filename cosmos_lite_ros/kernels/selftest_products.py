# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Self-test of the matrix products: a launch at a real shape with planted values, and its twin."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from cosmos_lite_ros.kernels.gemm_fp8 import (
    Backend,
    gemm_fp8_fast,
    gemm_fp8_fast_twin,
    gemm_fp8_twin,
    linear_fp8,
)
from cosmos_lite_ros.kernels.gemm_int4wo import gemm_int4wo, gemm_int4wo_twin
from cosmos_lite_ros.kernels.gemm_int8 import gemm_int8, gemm_int8_twin
from cosmos_lite_ros.kernels.gemm_int8wo import gemm_int8wo, gemm_int8wo_twin
from cosmos_lite_ros.kernels.tables import KERNELS
from cosmos_lite_ros.kernels.trial import arguments

Product = Callable[..., None]
# A rounding to bfloat16 is off by 2^-8 of the value at most.
STEP: Final = 2.0**-8 * 1.01
SAMPLE: Final = 48


@dataclass(frozen=True)
class Check:
    """One kernel at one shape.

    Attributes:
        name: kernel and shape.
        error: the largest error as a share of what roundings explain; inf where a NaN is missing
            or one too many.
        passed: it is at most 1.
    """

    name: str
    error: float

    @property
    def passed(self) -> bool:
        """Whether the kernel computes what its twin does."""
        return self.error <= 1.0


def check_product(
    kernel: str,
    shape: tuple[int, int, int],
    device: torch.device,
    fp8_backend: Backend = "triton",
    run: Product | None = None,
) -> Check:
    """One matrix product with planted values against its twin in float64.

    Args:
        kernel: one of ``tables.KERNELS``.
        shape: M, N and K.
        device: where.
        fp8_backend: as ``linear_fp8`` takes it.
        run: in the place of the public function.
    """
    assert kernel in KERNELS
    given = [*arguments(kernel, *shape, device, None)]
    scale = given[2] if kernel.endswith("wo") else given[1]
    first, out = given[0], given[-1]
    _bytes(first)[0] = 0
    broken = shape[0] - 2 if shape[0] > 1 else 0
    if kernel.endswith("wo"):
        first[-1, 0] *= 64  # an outlier channel of the activation
        first[broken, 1] = torch.nan
    else:
        scale[-1] *= 64
        scale[broken].fill_(torch.nan)
    out.fill_(torch.nan)
    (run or public_product(kernel, fp8_backend))(*given)
    rows, columns = sample(shape[0], device), sample(shape[1], device)
    found = out[rows][:, columns].double()
    part = list(given)
    part[0], part[-1] = take(first, rows), torch.empty_like(found)
    weight = 1 if kernel.endswith("wo") else 2
    part[weight], part[weight + 1] = take(given[weight], columns), given[weight + 1][columns]
    if weight == 2:
        part[1] = scale[rows]
    twin_of(kernel)(*part)
    name = f"{kernel} {'x'.join(str(n) for n in shape)}"
    # NaN belongs to the broken row alone, of the sample and of everything else.
    nans = out.isnan()
    if not bool(nans[broken].all()) or int(nans.any(1).sum()) != 1:
        return Check(name, torch.inf)
    return Check(name, _share(found, part[-1], tolerance(kernel, shape[2])))


def tolerance(kernel: str, depth: int) -> float:
    """Error of the sums as a share of a row's root mean square, beyond the output's rounding.

    Sums in float32 by a matrix unit that cuts instead of rounding, by its published or observed
    bits: 14 in one float8 sum of sm_90, float16's 11 for ``gemm_fp8_fast``.
    """
    return {
        "gemm_fp8": 4e-3,
        "gemm_fp8_unpromoted": max(depth / 32 * 2.0**-13, 4e-3),
        "gemm_fp8_fast": 1e-2,
        "gemm_int8": 1e-5,
        "gemm_int8_blocked": 1e-4,
    }.get(kernel, 1e-3)


def public_product(kernel: str, fp8_backend: Backend = "triton") -> Product:
    """What a network calls for a kernel."""
    if kernel in ("gemm_fp8", "gemm_fp8_unpromoted"):

        def product(*given: Tensor) -> None:
            linear_fp8(*given, fast=kernel != "gemm_fp8", backend=fp8_backend)

        return product
    found: Mapping[str, Product] = {
        "gemm_fp8_fast": gemm_fp8_fast,
        "gemm_int8": gemm_int8,
        "gemm_int8_blocked": gemm_int8,
        "gemm_int8wo": gemm_int8wo,
        "gemm_int4wo": gemm_int4wo,
    }
    return found[kernel]


def twin_of(kernel: str) -> Product:
    """The kernel's twin."""
    found: Mapping[str, Product] = {
        "gemm_fp8": gemm_fp8_twin,
        "gemm_fp8_unpromoted": gemm_fp8_twin,
        "gemm_fp8_fast": gemm_fp8_fast_twin,
        "gemm_int8": gemm_int8_twin,
        "gemm_int8_blocked": gemm_int8_twin,
        "gemm_int8wo": gemm_int8wo_twin,
        "gemm_int4wo": gemm_int4wo_twin,
    }
    return found[kernel]


def _bytes(tensor: Tensor) -> Tensor:
    return tensor.view(torch.uint8) if tensor.dtype is torch.float8_e4m3fn else tensor


def take(tensor: Tensor, rows: Tensor) -> Tensor:
    """Rows of a tensor; not every torch can index float8."""
    return _bytes(tensor)[rows].view(tensor.dtype)


def sample(count: int, device: torch.device) -> Tensor:
    """Indices: the first, the last, and some between."""
    if count <= 3 * SAMPLE:
        return torch.arange(count, device=device)
    ends = [*range(SAMPLE), *range(count - SAMPLE, count)]
    between = torch.linspace(SAMPLE, count - SAMPLE - 1, SAMPLE).long().tolist()
    return torch.tensor(sorted({*ends, *between}), device=device)


def _share(found: Tensor, exact: Tensor, tolerated: float) -> float:
    """Largest error as a share of a rounding and of ``tolerated`` of the row's size."""
    size = exact.square().mean(1, keepdim=True).sqrt()
    error = (found - exact).abs() / (exact.abs() * STEP + size * tolerated + 1e-30)
    return worst(error, found, exact)


def worst(error: Tensor, found: Tensor, exact: Tensor) -> float:
    """The largest finite error; inf where one is NaN or inf and the other is not."""
    odd = found.isfinite() != exact.isfinite()
    if bool(odd.any()):
        return float("inf")
    return float(torch.where(found.isfinite(), error, 0.0).max())
