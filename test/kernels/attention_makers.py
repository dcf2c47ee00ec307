# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Cases of the int8 attention, exact attention in float64, and what is broken on purpose."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from cosmos_lite_ros.kernels.attention_int8qk import Workspace

from .makers import SENTINEL, Source

Arguments = dict[str, Any]
NAN, INF = float("nan"), float("inf")
# What a workspace is filled with before a call: nothing may depend on it.
STALE = 99.0


@dataclass(frozen=True)
class Attention:
    """One call.

    Attributes:
        heads, rows, keys, width: K, R, T, D.
        outlier: none; offset (one channel of every key larger by 60, which its mean takes away);
            gain (two channels 60 times as large in the keys and 60 times smaller in the queries,
            which changes no score); or both.
        strided: q, k, v and out are views into larger tensors.
        spare: keys that the workspace has room for beyond T.
        float16_sum: as the function.
    """

    heads: int
    rows: int
    keys: int
    width: int = 128
    outlier: str = "none"
    strided: bool = False
    spare: int = 0
    float16_sum: bool = False

    @property
    def name(self) -> str:
        flags = f"{'_strided' * self.strided}{f'_spare{self.spare}' * bool(self.spare)}"
        flags += "_float16" * self.float16_sum
        return f"{self.heads}x{self.rows}x{self.keys}x{self.width}_{self.outlier}{flags}"

    def make(self, dtype: torch.dtype, device: str = "cpu") -> Arguments:
        s = Source(self.rows + self.keys, dtype, device)
        pad = 8 * self.strided
        q = s.normal(self.heads, self.rows, self.width + pad, scale=1.5)[..., : self.width]
        k = s.normal(self.heads, self.keys, self.width + pad)[..., : self.width]
        v = s.normal(self.heads, self.keys, self.width + pad)[..., : self.width]
        if self.outlier in ("gain", "both"):
            for channel in (1, 9):
                k[..., channel] *= 64
                q[..., channel] /= 64
        if self.outlier in ("offset", "both"):
            k[..., 5] += 60
        out = torch.full_like(s.empty(self.heads, self.rows, self.width + pad), SENTINEL)
        workspace = Workspace.empty(self.heads, self.keys + self.spare, self.width, device)
        for field in fields(workspace):
            getattr(workspace, field.name).fill_(STALE)
        return {
            "q": q,
            "k": k,
            "v": v,
            "out": out[..., : self.width],
            "workspace": workspace,
            "float16_sum": self.float16_sum,
        }


def exact(a: Arguments) -> Tensor:
    """Attention in float64, from the definition."""
    q, k, v = (a[name].double() for name in ("q", "k", "v"))
    scores = q @ k.transpose(1, 2) / q.shape[2] ** 0.5
    return scores.softmax(-1) @ v


def relative_error(found: Tensor, expected: Tensor) -> float:
    """L2, over everything."""
    return float((found.double() - expected).norm() / expected.norm())


SMALL = [
    Attention(2, 130, 333),
    Attention(2, 70, 256, outlier="both", float16_sum=True),
    Attention(1, 5, 1, 32),
    Attention(1, 1, 64, 16),
    Attention(3, 17, 129, 16, strided=True, spare=300),
    Attention(1, 40, 200, 64, outlier="offset", spare=1, float16_sum=True),
    # As many rows as a network has, of one query of a group.
    Attention(1, 3093, 70, 16, outlier="gain"),
]
# Edge and Nano: 3093 tokens and 141 or 95 of text, groups of 2 and 4 queries.
REAL = {
    "Edge": Attention(8, 2 * 3093, 3093 + 141),
    "Nano": Attention(8, 4 * 3093, 3093 + 95),
}


@dataclass(frozen=True)
class Fault:
    """A value at one place of q, k or v of two heads, 40 rows and 150 keys of 32 channels."""

    argument: str
    index: tuple[int, int, int]
    value: float

    @property
    def name(self) -> str:
        return f"{self.argument}{list(self.index)}={self.value}"

    def shown(self) -> Tensor:
        """[2, 40, 32], where the output must be no number, and nowhere else."""
        head, row, channel = self.index
        found = torch.zeros(2, 40, 32, dtype=torch.bool)
        if self.argument == "q":
            found[head, row] = True
        elif self.argument == "k":
            found[head] = True
        else:
            found[head, :, channel] = True
        return found

    def make(self) -> Arguments:
        arguments = Attention(2, 40, 150, 32).make(torch.bfloat16)
        arguments[self.argument][self.index] = self.value
        return arguments


FAULTS = [
    Fault(argument, index, value)
    for value in (NAN, INF, -INF)
    for argument, index in (("q", (1, 33, 7)), ("k", (0, 149, 31)), ("v", (1, 0, 3)))
]
