# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What is broken on purpose in the arguments of quantising kernels, and what must then show it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from . import quantise_makers as makers
from .quantise_makers import KINDS, Case

NAN, INF = float("nan"), float("inf")


@dataclass(frozen=True)
class Fault:
    """A value at one place of a case's source.

    Attributes:
        case: which kernel, where.
        index: in the source argument.
        value: what is put there.
        row: of q, the only one that may and must show it.
        block: of that row, with a scale of its own; None for all of it.
    """

    case: Case
    index: tuple[int, ...]
    value: float
    row: int
    block: int | None = None

    @property
    def name(self) -> str:
        return f"{self.case.name}@{self.index}={self.value}"


FAULTS = [
    fault
    for kind in KINDS
    for value in (NAN, INF, -INF)
    for fault in (
        Fault(makers.rms_norm_quantise(3, 64, kind), (1, 5), value, 1),
        Fault(makers.rms_norm_quantise(3, 64, kind, delta=True, twice=True), (2, 0), value, 2),
        Fault(makers.heads_to_rows_quantise(3, 2, 2, 16, kind), (1, 2, 0, 3), value, 2),
        Fault(makers.swiglu_quantise(3, 300, kind), (1, 5), value, 1),
        Fault(makers.swiglu_quantise(3, 300, kind), (2, 599), value, 2),
        Fault(makers.swiglu_quantise(3, 300, kind, blocks=True), (2, 430), value, 2, 1),
        Fault(makers.relu2_quantise(3, 300, kind), (1, 299), value, 1),
        Fault(makers.relu2_quantise(3, 300, kind, blocks=True), (1, 130), value, 1, 1),
    )
    # Squared ReLU makes 0 of -inf in any precision.
    if not (value == -INF and fault.case.function == "relu2_quantise")
]


def plant(fault: Fault, which: str, device: str = "cpu") -> dict[str, Tensor]:
    """What an implementation writes from bfloat16 arguments with the fault."""
    arguments = fault.case.make(torch.bfloat16, device)
    arguments[fault.case.source][fault.index] = fault.value
    fault.case.implementation(which)(**arguments)
    return {name: arguments[name] for name in fault.case.written}
