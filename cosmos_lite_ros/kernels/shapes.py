# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Shapes of the matrix products of the released networks, by the role of the matrix in a layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

ROLES: Final = ("qkv", "out", "up", "down")
# Rows of one product: the action tokens alone (last layer of the last step), all tokens; of one
# guidance branch and of both.
ACTION_ROWS: Final = 33
TOKEN_ROWS: Final = 3093


@dataclass(frozen=True)
class LayerShape:
    """One layer of a generation tower.

    Attributes:
        hidden: width of the residual stream.
        kv_heads, group, head_dim: attention; ``group`` query heads share a key head.
        intermediate: width of the MLP.
        gated: SwiGLU of two halves, else ReLU squared of one.
        twice: the norms round before their gain.
        layers: how many.
    """

    hidden: int
    kv_heads: int
    group: int
    head_dim: int
    intermediate: int
    gated: bool
    twice: bool
    layers: int

    def matrix(self, role: str) -> tuple[int, int]:
        """[out, in] of a matrix; query, key, value and gate, up in one each."""
        heads = self.kv_heads * self.group
        return {
            "qkv": ((heads + 2 * self.kv_heads) * self.head_dim, self.hidden),
            "out": (self.hidden, heads * self.head_dim),
            "up": (self.intermediate * (2 if self.gated else 1), self.hidden),
            "down": (self.hidden, self.intermediate),
        }[role]


RELEASED: Final[dict[str, LayerShape]] = {
    "edge": LayerShape(2048, 8, 2, 128, 9216, gated=False, twice=False, layers=28),
    "nano": LayerShape(4096, 8, 4, 128, 12288, gated=True, twice=True, layers=36),
}
