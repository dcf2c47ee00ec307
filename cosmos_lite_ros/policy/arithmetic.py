# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""From settings to the arithmetic in effect: scheme, kernels, and how many branches go together."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from cosmos_lite_ros.errors import BadInputError, EnvironmentLacksError
from cosmos_lite_ros.kernels.gemm_fp8 import Backend
from cosmos_lite_ros.policy.checkpoint import CheckpointInfo
from cosmos_lite_ros.policy.linears import Linears
from cosmos_lite_ros.policy.memory import check_arithmetic
from cosmos_lite_ros.policy.settings import DTYPES, EngineSettings
from cosmos_lite_ros.quantize.schemes import Scheme, scheme


@dataclass(frozen=True, eq=False)
class Arithmetic:
    """What is in effect.

    Attributes:
        scheme: the scheme's name; ``float32`` where nothing is quantised and the dtype is.
        linears: for the tower.
        batch: guidance branches in one pass.
        notes: what differs from what was asked for, one line each.
    """

    scheme: str
    linears: Linears
    batch: int
    notes: tuple[str, ...] = ()

    @property
    def effective(self) -> dict[str, object]:
        """For status, logs and reports."""
        return {
            "scheme": self.scheme,
            "branches_per_pass": self.batch,
            "notes": list(self.notes),
            **self.linears.effective,
        }


def scheme_of(settings: EngineSettings, info: CheckpointInfo) -> str:
    """The scheme's name, of the settings or of the artifact.

    Raises:
        BadInputError: settings and artifact disagree.
    """
    stored = info.scheme
    if stored is None:
        return settings.effective_scheme
    if settings.scheme not in ("", stored):
        raise BadInputError(
            f"scheme is {settings.scheme!r} and {info.folder} was quantised as {stored!r}: leave "
            "the scheme out, or give the checkpoint that it was made of"
        )
    return stored


def choose(settings: EngineSettings, info: CheckpointInfo, device: torch.device) -> Arithmetic:
    """The arithmetic that these settings mean on this device.

    Raises:
        BadInputError: settings that do not belong together.
        EnvironmentLacksError: a GPU without this arithmetic.
    """
    name = scheme_of(settings, info)
    notes = []
    if device.type == "cuda":
        try:
            check_arithmetic(name, torch.cuda.get_device_capability(device), info.config.family)
        except EnvironmentLacksError as error:
            if settings.fallback != "bf16" or info.scheme is not None:
                raise
            notes.append(f"runs in bf16: {error}")
            name = "bf16"
    chosen: Scheme | None = None if name == "float32" else scheme(name)
    linears = Linears(
        chosen,
        DTYPES[settings.dtype],
        fast=settings.accumulate == "fast",
        fp8_backend=_fp8_backend(device),
    )
    batch = settings.branches_per_pass
    if not batch:
        # Measured on an H200: docs/performance.md.
        together = chosen is not None and chosen.quantises_activations and device.type == "cuda"
        batch = 2 if together else 1
    return Arithmetic(name, linears, batch, tuple(notes))


def _fp8_backend(device: torch.device) -> Backend:
    if device.type != "cuda":
        return "triton"
    capability = torch.cuda.get_device_capability(device)
    return "scaled_mm" if capability in ((9, 0), (10, 0)) else "triton"
