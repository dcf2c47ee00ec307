# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""How a scheme multiplies: activations on their way into a matrix, and the product.

What feeds a matrix (a norm, the gathered heads, an activation) writes its rows in the form that the
matrix wants: as they are, or quantised in the same kernel. So the tower is written once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from cosmos_lite_ros.kernels.activation import relu2, swiglu
from cosmos_lite_ros.kernels.activation_quantise import relu2_quantise, swiglu_quantise
from cosmos_lite_ros.kernels.gather import heads_to_rows
from cosmos_lite_ros.kernels.gather_quantise import heads_to_rows_quantise
from cosmos_lite_ros.kernels.gemm_fp8 import Backend, gemm_fp8_fast, linear_fp8
from cosmos_lite_ros.kernels.gemm_int4wo import gemm_int4wo
from cosmos_lite_ros.kernels.gemm_int8 import gemm_int8
from cosmos_lite_ros.kernels.gemm_int8wo import gemm_int8wo
from cosmos_lite_ros.kernels.rms_norm import rms_norm
from cosmos_lite_ros.kernels.rms_norm_quantise import rms_norm_quantise
from cosmos_lite_ros.policy.arena import ALIGN, Arena
from cosmos_lite_ros.quantize.matrix import DATA_DTYPES, QuantisedMatrix
from cosmos_lite_ros.quantize.schemes import BLOCK, Role, Scheme

Matrix = Tensor | QuantisedMatrix


class Take(Protocol):
    """``Arena.take``."""

    def __call__(self, *shape: int, dtype: torch.dtype) -> Tensor:
        """The next tensor of the arena."""


@dataclass(frozen=True, eq=False)
class Rows:
    """Activations [n, width] as a matrix takes them.

    Attributes:
        data: the tower's dtype, int8 or float8_e4m3fn.
        scale: float32 [n] or [n, ceil(width / 128)] of quantised data; None otherwise.
    """

    data: Tensor
    scale: Tensor | None = None

    def __getitem__(self, rows: slice) -> Rows:
        """These rows, as a view."""
        return Rows(self.data[rows], None if self.scale is None else self.scale[rows])

    @property
    def count(self) -> int:
        """n."""
        return int(self.data.shape[0])


class Linears:
    """The arithmetic of one scheme (None: the tower's dtype throughout)."""

    def __init__(
        self,
        scheme: Scheme | None,
        dtype: torch.dtype,
        *,
        fast: bool = False,
        fp8_backend: Backend = "triton",
    ):
        """Choose the kernels.

        Args:
            scheme: of quantize.schemes.
            dtype: of everything that the scheme leaves alone.
            fast: with ``fp8`` and ``scaled_mm``, sums of fewer bits.
            fp8_backend: ``scaled_mm`` or ``triton``, see kernels.probe.
        """
        self.scheme = scheme if scheme is not None and scheme.quantised else None
        self.dtype = dtype
        self.fast = fast
        self.fp8_backend = fp8_backend

    @property
    def effective(self) -> dict[str, object]:
        """The kernels' names, for status and reports."""
        if self.scheme is None:
            return {}
        if self.scheme.name == "fp8":
            sums = "fast" if self.fast else "accurate"
            return {"fp8_backend": self.fp8_backend, "accumulate": sums}
        return {}

    def with_backend(self, fp8_backend: Backend) -> Linears:
        """The same with another float8 product."""
        return Linears(self.scheme, self.dtype, fast=self.fast, fp8_backend=fp8_backend)

    def quantises(self, role: Role) -> bool:
        """Whether the inputs of these matrices are quantised."""
        return self.scheme is not None and self.scheme.activations[role] != "bf16"

    def _activation_dtype(self, role: Role) -> torch.dtype:
        if self.scheme is None or self.scheme.activations[role] == "bf16":
            return self.dtype
        return DATA_DTYPES[self.scheme.weights[role]]

    def _scale_shape(self, role: Role, n: int, width: int) -> tuple[int, ...]:
        assert self.scheme is not None
        return (n, -(-width // BLOCK)) if self.scheme.activations[role] == "block" else (n,)

    def rows(self, take: Take, role: Role, n: int, width: int) -> Rows:
        """Room for the inputs [n, width] of a matrix."""
        data = take(n, width, dtype=self._activation_dtype(role))
        if not self.quantises(role):
            return Rows(data)
        return Rows(data, take(*self._scale_shape(role, n, width), dtype=torch.float32))

    def rows_bytes(self, role: Role, n: int, width: int) -> int:
        """Bytes that ``rows`` takes, alignment included."""
        nbytes = n * width * self._activation_dtype(role).itemsize + 2 * ALIGN
        if self.quantises(role):
            count = 4
            for size in self._scale_shape(role, n, width):
                count *= size
            nbytes += count
        return nbytes

    def rms_norm(
        self,
        x: Tensor,
        weight: Tensor,
        eps: float,
        out: Rows,
        *,
        delta: Tensor | None = None,
        twice: bool = False,
    ) -> None:
        """``kernels.rms_norm``, into rows."""
        if out.scale is None:
            rms_norm(x, weight, eps, out.data, delta=delta, twice=twice)
        else:
            limit = self._limit
            rms_norm_quantise(x, weight, eps, out.data, out.scale, limit, delta=delta, twice=twice)

    def heads_to_rows(self, attended: Tensor, out: Rows) -> None:
        """[kv_heads, n, group, head_dim] into rows."""
        if out.scale is None:
            heads_to_rows(attended, out.data)
        else:
            heads_to_rows_quantise(attended, out.data, out.scale, self._limit)

    def activate(self, arena: Arena, wide: Tensor, *, gated: bool) -> Rows:
        """The MLP's activation of wide [n, I], or [n, 2 I] where gated: rows [n, I]."""
        n, width = wide.shape
        inner = width // 2 if gated else width
        if not self.quantises("down"):
            if not gated:
                relu2(wide, wide)
                return Rows(wide)
            out = Rows(arena.take(n, inner, dtype=self.dtype))
            swiglu(wide, out.data)
            return out
        out = self.rows(arena.take, "down", n, inner)
        assert out.scale is not None
        function = swiglu_quantise if gated else relu2_quantise
        function(wide, out.data, out.scale, self._limit)
        return out

    def mm(self, rows: Rows, matrix: Matrix, out: Tensor) -> None:
        """``out = rows @ matrix^T`` [n, out] in the tower's dtype."""
        if isinstance(matrix, Tensor):
            torch.mm(rows.data, matrix.t(), out=out)
        elif rows.scale is None:
            product: Callable[..., None] = gemm_int4wo if matrix.kind == "int4" else gemm_int8wo
            product(rows.data, matrix.data, matrix.scale, out)
        elif matrix.kind == "int8":
            gemm_int8(rows.data, rows.scale, matrix.data, matrix.scale, out)
        elif self.scheme is not None and self.scheme.name == "fp8_fast":
            gemm_fp8_fast(rows.data, rows.scale, matrix.data, matrix.scale, out)
        else:
            linear_fp8(
                rows.data,
                rows.scale,
                matrix.data,
                matrix.scale,
                out,
                fast=self.fast,
                backend=self.fp8_backend,
            )

    @property
    def _limit(self) -> float:
        assert self.scheme is not None
        return self.scheme.limit
