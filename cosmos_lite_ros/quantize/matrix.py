# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""A weight matrix in fewer bits: filled in row chunks, so that no second whole copy exists.

``e4m3`` and ``int8`` have one float32 scale per row (output channel): largest magnitude over limit.
``int4`` has one per row and 128 columns, values -7..7 stored plus 8, the even column in the low
half of a byte. A NaN or an infinity makes the scale, and so the whole row, not finite.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from cosmos_lite_ros.errors import BadInputError
from cosmos_lite_ros.kernels.gemm_int4wo import pack_int4, unpack_int4
from cosmos_lite_ros.kernels.quantise import dequantise as dequantise_rows
from cosmos_lite_ros.kernels.quantise import quantise_rows
from cosmos_lite_ros.quantize.schemes import BLOCK, Kind, data_shape, scale_shape

DATA_DTYPES: Final[dict[str, torch.dtype]] = {
    "e4m3": torch.float8_e4m3fn,
    "int8": torch.int8,
    "int4": torch.uint8,
}
# float32 bytes of one chunk of rows.
_CHUNK_BYTES: Final = 16 * 2**20


@dataclass(frozen=True, eq=False)
class QuantisedMatrix:
    """One matrix [out, in].

    Attributes:
        data: float8_e4m3fn or int8 [out, in], or uint8 [out, in / 2].
        scale: float32 [out], or [out, ceil(in / 128)] for int4.
        kind: ``e4m3``, ``int8`` or ``int4``.
        limit: largest magnitude that a stored value takes.
    """

    data: Tensor
    scale: Tensor
    kind: Kind
    limit: float

    @property
    def shape(self) -> tuple[int, int]:
        """(out, in)."""
        rows, columns = self.data.shape
        return rows, 2 * columns if self.kind == "int4" else columns

    @property
    def nbytes(self) -> int:
        """Bytes of values and scales."""
        return self.data.nbytes + self.scale.nbytes

    def put(self, start_row: int, tensor: Tensor) -> None:
        """Quantise rows [n, in] of any floating dtype and device into rows ``start_row`` on.

        Raises:
            BadInputError: rows that do not fit.
        """
        self._check_rows(start_row, tensor, self.shape[1])
        chunk = max(1, _CHUNK_BYTES // (4 * self.shape[1]))
        for first in range(0, tensor.shape[0], chunk):
            rows = tensor[first : first + chunk].to(self.data.device).float()
            data, scale = quantise(rows, self.kind, self.limit)
            place = slice(start_row + first, start_row + first + rows.shape[0])
            self.data[place] = data
            self.scale[place] = scale

    def put_quantised(self, start_row: int, data: Tensor, scale: Tensor) -> None:
        """Copy rows that are quantised already, values and scales as they are stored.

        Raises:
            BadInputError: another dtype, or rows that do not fit.
        """
        self._check_rows(start_row, data, self.data.shape[1])
        for name, found, own in (("data", data, self.data), ("scale", scale, self.scale)):
            if found.dtype != own.dtype:
                raise BadInputError(f"{name} is {found.dtype}, expected {own.dtype}")
        if scale.shape != (data.shape[0], *self.scale.shape[1:]):
            raise BadInputError(
                f"scale is {list(scale.shape)} for data {list(data.shape)}, a {self.kind} matrix "
                f"has {list(self.scale.shape)} for {list(self.data.shape)}"
            )
        place = slice(start_row, start_row + data.shape[0])
        self.data[place] = data.to(self.data.device)
        self.scale[place] = scale.to(self.scale.device)

    def dequantise(self, dtype: torch.dtype = torch.float32) -> Tensor:
        """[out, in] in ``dtype``: stored value times scale, in float32 (float64 for float64)."""
        return dequantise(self.data, self.scale, self.kind, dtype)

    def _check_rows(self, start_row: int, tensor: Tensor, columns: int) -> None:
        rows = self.data.shape[0]
        if tensor.ndim != 2 or tensor.shape[1] != columns:
            raise BadInputError(f"found rows {list(tensor.shape)}, expected [n, {columns}]")
        if not 0 <= start_row <= rows - tensor.shape[0]:
            raise BadInputError(
                f"found {tensor.shape[0]} rows from {start_row} on, the matrix has {rows}"
            )


def empty_matrix(
    kind: Kind, rows: int, columns: int, device: torch.device, limit: float
) -> QuantisedMatrix:
    """A matrix [rows, columns] (out, in) with memory and without contents.

    Raises:
        BadInputError: no such kind, or columns that it cannot hold.
    """
    if kind not in DATA_DTYPES:
        raise BadInputError(f"kind is {kind!r}, expected one of {', '.join(DATA_DTYPES)}")
    data = torch.empty(data_shape(kind, rows, columns), dtype=DATA_DTYPES[kind], device=device)
    scale = torch.empty(scale_shape(kind, rows, columns), dtype=torch.float32, device=device)
    return QuantisedMatrix(data, scale, kind, limit)


def quantise(rows: Tensor, kind: Kind, limit: float) -> tuple[Tensor, Tensor]:
    """Stored values and scales of rows [n, in], as ``kernels.quantise.quantise_rows`` makes them.

    The same bits on a CPU and on a GPU.
    """
    count, columns = rows.shape
    scale = torch.empty(scale_shape(kind, count, columns), dtype=torch.float32, device=rows.device)
    whole = torch.int8 if kind == "int4" else DATA_DTYPES[kind]
    data = torch.empty(rows.shape, dtype=whole, device=rows.device)
    quantise_rows(rows, data, scale, limit, _block(kind))
    return pack_int4(data) if kind == "int4" else data, scale


def dequantise(data: Tensor, scale: Tensor, kind: Kind, dtype: torch.dtype) -> Tensor:
    """[out, in] in ``dtype`` from what ``quantise`` gave."""
    values = unpack_int4(data) if kind == "int4" else data
    return dequantise_rows(values, scale, dtype, _block(kind))


def _block(kind: Kind) -> int | None:
    return BLOCK if kind == "int4" else None
