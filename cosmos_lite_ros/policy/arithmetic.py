# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""From settings to the arithmetic in effect: scheme, kernels, and how many branches go together.

On a GPU it is proven before anything is loaded (``selftest``). What does not pass is refused or, by
the setting ``fallback``, replaced by bfloat16, which is said.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import torch

from cosmos_lite_ros.errors import BadInputError, EnvironmentLacksError
from cosmos_lite_ros.kernels.probe import probe_attention, probe_fp8
from cosmos_lite_ros.kernels.tables import use_table
from cosmos_lite_ros.policy.attention import FLASH_ATTN, attention_backend
from cosmos_lite_ros.policy.checkpoint import CheckpointInfo
from cosmos_lite_ros.policy.linears import Linears
from cosmos_lite_ros.policy.memory import check_arithmetic
from cosmos_lite_ros.policy.selftest import layer_shape, self_test
from cosmos_lite_ros.policy.settings import DTYPES, EngineSettings
from cosmos_lite_ros.quantize.schemes import Scheme, scheme


@dataclass(frozen=True, eq=False)
class Arithmetic:
    """What is in effect.

    Attributes:
        scheme: the scheme's name; ``float32`` where nothing is quantised and the dtype is.
        linears: for the tower.
        batch: guidance branches in one pass.
        attention: backend of attention, as ``GenerationTower`` takes it.
        notes: what differs from what was asked for, one line each.
        found: what was measured and tested on this device.
    """

    scheme: str
    linears: Linears
    batch: int
    attention: str
    notes: tuple[str, ...] = ()
    found: dict[str, Any] = field(default_factory=dict)

    @property
    def effective(self) -> dict[str, object]:
        """For status, logs and reports."""
        return {
            "scheme": self.scheme,
            "branches_per_pass": self.batch,
            "attention": self.attention,
            "notes": list(self.notes),
            **self.linears.effective,
            **self.found,
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
    """The arithmetic that these settings mean on this device, proven on a GPU.

    Raises:
        BadInputError: settings that do not belong together.
        EnvironmentLacksError: a GPU without this arithmetic, or whose kernels fail the self-test.
    """
    name = scheme_of(settings, info)
    if device.type != "cuda":
        return _plain(name, settings, device)
    try:
        return _proven(name, settings, info, device)
    except EnvironmentLacksError as error:
        # An artifact holds no bfloat16 weights to fall back to.
        if settings.fallback != "bf16" or info.scheme is not None or name in ("bf16", "float32"):
            raise
        instead = _proven("bf16", settings, info, device)
        return replace(instead, notes=(f"scheme {name} was asked for and bf16 runs: {error}",))


def _plain(name: str, settings: EngineSettings, device: torch.device) -> Arithmetic:
    """As the settings say, nothing measured."""
    chosen: Scheme | None = None if name == "float32" else scheme(name)
    linears = Linears(chosen, DTYPES[settings.dtype], fast=settings.accumulate == "fast")
    batch = settings.branches_per_pass
    if not batch:
        # Measured on an H200: docs/performance.md.
        together = chosen is not None and chosen.quantises_activations and device.type == "cuda"
        batch = 2 if together else 1
    return Arithmetic(name, linears, batch, attention_backend(device, settings.attention))


def _proven(
    name: str, settings: EngineSettings, info: CheckpointInfo, device: torch.device
) -> Arithmetic:
    """On a CUDA device: probed, self-tested."""
    check_arithmetic(name, torch.cuda.get_device_capability(device), info.config.family)
    plain = _plain(name, settings, device)
    if name == "float32":
        return plain
    if settings.dtype != "bfloat16":
        raise BadInputError(
            f"scheme is {name!r} with dtype {settings.dtype!r} on a GPU, expected dtype 'bfloat16'"
        )
    table = use_table(settings.gemm_table, device)
    found: dict[str, Any] = {"gemm_table": f"{table.source} {table.digest}"}
    linears, attention = plain.linears, plain.attention
    if name == "fp8":
        fp8 = probe_fp8(device)
        if fp8.name not in ("scaled_mm", "triton"):
            raise EnvironmentLacksError(
                f"no float8 product is usable here ({fp8.reason}): try scheme:=int8"
            )
        linears = linears.with_backend("scaled_mm" if fp8.name == "scaled_mm" else "triton")
        found["fp8_reason"] = fp8.reason
    if settings.attention == "auto":
        chosen = probe_attention(device)
        found["attention_reason"] = chosen.reason
        if chosen.name == FLASH_ATTN:
            attention = FLASH_ATTN
    if settings.self_test:
        test = self_test(
            info.config.family,
            layer_shape(info.config),
            name,
            linears,
            device,
            attention=attention,
            batch=plain.batch,
        )
        test.require()
        found["self_test"] = test.describe()
    return replace(plain, linears=linears, attention=attention, found=found)
