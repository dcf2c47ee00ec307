# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Activation-aware scales for int4: input channels that carry more get finer steps.

The inputs of the MLP's first matrices come out of a norm, so how large a channel is there is known
without data: its gain. Multiplying a column of the matrix by 2^k and dividing the gain by 2^k
changes no bit of the product, since powers of two are exact in bfloat16; it only moves the column
within the steps of its group of 128. How far is searched on the matrix itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import torch
from torch import Tensor

from cosmos_lite_ros.quantize.matrix import dequantise, quantise
from cosmos_lite_ros.quantize.schemes import INT4_LIMIT

# The norm's gain and what it feeds, below a layer.
_GAIN: Final = ".post_attention_layernorm_moe_gen.weight"
_MATRICES: Final = ("gate_proj.weight", "up_proj.weight")
# Shares of the gain that go into the matrix; the first one that is not beaten is taken.
SHARES: Final = (0.0, 0.25, 0.5, 0.75, 1.0)
# Largest exponent of two: gains spread further than 2^16 are not a norm's.
_MAX_EXPONENT: Final = 8
# Rows of a matrix that the search looks at, evenly spaced.
_SAMPLED_ROWS: Final = 512


def column_exponents(gain: Tensor, matrices: Sequence[Tensor]) -> Tensor:
    """k of each input channel: its column times 2^k, its gain over 2^k.

    Args:
        gain: [in] of the norm before the matrices, any floating dtype.
        matrices: each [out, in], all fed by that norm.

    Returns:
        int32 [in] on the CPU: zeros where plain scales are best, or where the gain is not finite.
    """
    wide = gain.detach().float().cpu()
    zeros = torch.zeros(wide.shape, dtype=torch.int32)
    if not bool(wide.isfinite().all()) or not bool((wide != 0).any()):
        return zeros
    magnitude = wide.abs()
    typical = magnitude[magnitude > 0].median()
    spread = torch.log2(torch.where(magnitude > 0, magnitude / typical, 1.0))
    samples = [_sample(matrix) for matrix in matrices]
    best, least = zeros, float("inf")
    for share in SHARES:
        exponents = (share * spread).round().clamp(-_MAX_EXPONENT, _MAX_EXPONENT)
        factor = torch.exp2(exponents)
        # What the norm's dtype cannot hold exactly stays where it is.
        exact = (wide / factor).to(gain.dtype).float() * factor == wide
        exponents = torch.where(exact, exponents, 0.0)
        error = sum(_error(sample, magnitude, torch.exp2(exponents)) for sample in samples)
        if error < least:
            best, least = exponents.to(torch.int32), error
    return best


def _sample(matrix: Tensor) -> Tensor:
    step = max(1, matrix.shape[0] // _SAMPLED_ROWS)
    return matrix[::step].float().cpu()


def _error(rows: Tensor, magnitude: Tensor, factor: Tensor) -> float:
    """Squared error of the products, for independent inputs as large as the gain says."""
    data, scale = quantise(rows * factor, "int4", INT4_LIMIT)
    difference = dequantise(data, scale, "int4", torch.float32) / factor - rows
    return float((difference * magnitude).square().sum(dtype=torch.float64))


class Rescaling:
    """The columns' factors of a checkpoint, found layer by layer when they are first asked for."""

    def __init__(self, read: Callable[[str], Tensor | None]):
        """``read`` gives a tensor of the plain checkpoint by its name, None where there is none."""
        self._read = read
        self._factors: dict[str, Tensor | None] = {}

    def factor(self, name: str) -> Tensor | None:
        """float32 [in] that a tensor is multiplied by; None: it stays as it is."""
        layer, _, rest = name.partition(".mlp_moe_gen.")
        is_gain = name.endswith(_GAIN)
        if is_gain:
            layer = name.removesuffix(_GAIN)
        elif rest not in _MATRICES:
            return None
        if layer not in self._factors:
            self._factors[layer] = self._find(layer)
        factor = self._factors[layer]
        return factor if factor is None or not is_gain else 1.0 / factor

    def apply(self, name: str, tensor: Tensor) -> Tensor:
        """The tensor multiplied by its factor, exactly; itself where it has none."""
        factor = self.factor(name)
        if factor is None:
            return tensor
        if tensor.dtype == torch.float16:
            tensor = tensor.float()  # too few exponents for products by powers of two
        return tensor * factor.to(tensor.dtype)

    def _find(self, layer: str) -> Tensor | None:
        gain = self._read(layer + _GAIN)
        matrices = [self._read(f"{layer}.mlp_moe_gen.{name}") for name in _MATRICES]
        found = [matrix for matrix in matrices if matrix is not None]
        if gain is None or not found:
            return None
        exponents = column_exponents(gain, found)
        return torch.exp2(exponents.float()) if bool(exponents.any()) else None
