# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Outliers planted into a checkpoint without changing what it computes.

Random weights have no outliers, and so they rank precisions backwards: the few channels of trained
networks that are far larger than the rest are what one scale per token cannot hold. Here such
channels are made: a factor in one place, its inverse in the next. Factors are powers of two, which
every floating-point format multiplies exactly: the planted checkpoint gives the same actions bit
for bit in float32 and bfloat16.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from safetensors import safe_open
from torch import Tensor

from cosmos_lite_ros.errors import BadInputError
from cosmos_lite_ros.policy.checkpoint import MARKER_FILE, CheckpointInfo, inspect
from cosmos_lite_ros.policy.config import NetworkConfig
from cosmos_lite_ros.quantize.files import header_entries, plan_header, sync, write_tensor
from cosmos_lite_ros.quantize.staging import staging

PLANTED_KEY: Final = "planted_outliers"
_ATTENTION_INPUTS: Final = tuple(f"self_attn.add_{n}_proj.weight" for n in "qkv")
_MLP_INPUTS: Final = ("mlp_moe_gen.gate_proj.weight", "mlp_moe_gen.up_proj.weight")
_DOWN: Final = "mlp_moe_gen.down_proj.weight"
# What writes to the residual stream of the generation tower; norms alone read it.
_RESIDUAL: Final = (
    "proj_in.",
    "action_proj_in.",
    "action_modality_embed",
    "time_embedder.linear_2.",
)
_RESIDUAL_IN_LAYER: Final = ("self_attn.to_add_out.weight", _DOWN)


@dataclass(frozen=True)
class Planting:
    """What is planted in every layer of the generation tower.

    Attributes:
        norm: factor of the gains of both norms on some channels; the columns of query, key, value,
            gate and up that read them are divided by it. 1: none.
        mlp: factor of some rows of the MLP's up matrix; down's columns are divided by what the
            activation makes of it (its square for Edge's relu2). 1: none.
        channels: how many channels, and rows of the MLP, each layer gets.
        residual: factor of everything that is added to the residual stream. Preserves the
            function but for the epsilon of the norms, which a quiet stream makes felt: a probe for
            it, no outlier. 1: none.
        seed: of the choice of channels.
    """

    norm: float = 64.0
    mlp: float = 1.0
    channels: int = 4
    residual: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what cannot be planted."""
        for name in ("norm", "mlp", "residual"):
            if not 0.0 < getattr(self, name) < 1e6:
                raise BadInputError(f"{name} is {getattr(self, name)}, expected above 0")
        if self.channels < 1:
            raise BadInputError(f"channels is {self.channels}, expected at least 1")

    def describe(self) -> dict[str, Any]:
        """For reports."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def plant(source: str | Path, out: Path, planting: Planting | None = None) -> Path:
    """Write the planted checkpoint to ``out``, which appears whole or not at all.

    The network's files are written anew, the other parts are links into the source.

    Raises:
        BadInputError: ``out`` exists, something is planted there already, or too few channels.
        CheckpointError: an unusable source.
    """
    planting = planting or Planting()
    info = inspect(str(source))
    if info.scheme is not None:
        raise BadInputError(
            f"{source} is quantised as {info.scheme}, expected the plain checkpoint: outliers come "
            "before the quantisation"
        )
    _refuse_planted(info.folder)
    transform = _Transform(info.config, planting)
    with staging(out) as hidden:
        (hidden / "transformer").mkdir()
        written = {file.path.name for file in info.transformer_files}
        for file in info.transformer_files:
            _write_file(file.path, hidden / "transformer" / file.path.name, transform)
        for path in sorted((info.folder / "transformer").iterdir()):
            if path.name not in written:
                os.symlink(path.resolve(), hidden / "transformer" / path.name)
        for path in sorted(info.folder.iterdir()):
            if path.name not in ("transformer", MARKER_FILE):
                os.symlink(path.resolve(), hidden / path.name)
        _write_marker(info, hidden / MARKER_FILE, planting)
    return out


def plant_in_place(folder: Path, planting: Planting | None = None) -> None:
    """The same in a checkpoint of one's own making: nothing but the changed tensors is written.

    A failure leaves the checkpoint useless.

    Raises:
        BadInputError: something is planted there already, or fewer channels than asked for.
        CheckpointError: an unusable folder.
    """
    planting = planting or Planting()
    info = inspect(str(folder))
    _refuse_planted(info.folder)
    transform = _Transform(info.config, planting)
    for shard in info.transformer_files:
        entries = header_entries(shard.path)
        with safe_open(shard.path, framework="pt") as handle, shard.path.open("r+b") as file:
            data = 8 + int.from_bytes(file.read(8), "little")
            for name, entry in entries.items():
                tensor = handle.get_tensor(name).clone()
                planted = transform(name, tensor)
                if planted is not tensor:
                    file.seek(data + entry.start)
                    write_tensor(file, planted)
    _write_marker(info, info.folder / MARKER_FILE, planting)


def planted_in(folder: Path) -> dict[str, Any] | None:
    """What was planted into a checkpoint; None: nothing that is known."""
    marker = folder / MARKER_FILE
    if not marker.is_file():
        return None
    found: dict[str, Any] | None = json.loads(marker.read_text(encoding="utf-8")).get(PLANTED_KEY)
    return found


def _refuse_planted(folder: Path) -> None:
    if planted_in(folder) is not None:
        raise BadInputError(f"{folder} has planted outliers already: take the plain checkpoint")


def _write_file(source: Path, target: Path, transform: _Transform) -> None:
    """The same tensors, transformed one by one."""
    entries = header_entries(source)
    head, starts = plan_header({e.name: (e.dtype, e.shape) for e in entries.values()})
    with safe_open(source, framework="pt") as handle, target.open("xb") as file:
        file.write(head)
        for name in entries:
            file.seek(starts[name])
            write_tensor(file, transform(name, handle.get_tensor(name)))
        sync(file)


def _write_marker(info: CheckpointInfo, path: Path, planting: Planting) -> None:
    source = info.folder / MARKER_FILE
    marker = json.loads(source.read_text(encoding="utf-8")) if source.is_file() else {}
    marker["random_weights"] = info.random_weights
    marker[PLANTED_KEY] = planting.describe()
    path.write_text(json.dumps(marker, indent=2) + "\n", encoding="utf-8")


class _Transform:
    """One tensor of the checkpoint to that of the planted one, by name."""

    def __init__(self, config: NetworkConfig, planting: Planting):
        smallest = min(config.hidden, int(config.raw["intermediate_size"]))
        if planting.channels > smallest:
            raise BadInputError(f"channels is {planting.channels}, the network has {smallest}")
        self._planting = planting
        self._edge = config.family == "edge"
        generator = torch.Generator().manual_seed(planting.seed)

        def choose(count: int) -> list[Tensor]:
            return [
                torch.randperm(count, generator=generator)[: planting.channels].sort().values
                for _ in range(config.layers)
            ]

        self._norm_in = choose(config.hidden)
        self._norm_post = choose(config.hidden)
        self._inner = choose(int(config.raw["intermediate_size"]))

    def __call__(self, name: str, tensor: Tensor) -> Tensor:
        p = self._planting
        if name.startswith(_RESIDUAL):
            return _scaled(tensor, p.residual)
        if not name.startswith("layers."):
            return tensor
        _, number, part = name.split(".", 2)
        if not number.isdecimal():
            return tensor
        layer = int(number)
        if part == "input_layernorm_moe_gen.weight":
            tensor = _scaled(tensor, p.norm, self._norm_in[layer])
        elif part == "post_attention_layernorm_moe_gen.weight":
            tensor = _scaled(tensor, p.norm, self._norm_post[layer])
        elif part in _ATTENTION_INPUTS:
            tensor = _scaled(tensor, 1 / p.norm, (slice(None), self._norm_in[layer]))
        elif part in _MLP_INPUTS:
            tensor = _scaled(tensor, 1 / p.norm, (slice(None), self._norm_post[layer]))
            if part == _MLP_INPUTS[1]:
                tensor = _scaled(tensor, p.mlp, self._inner[layer])
        elif part == _DOWN:
            # relu(s x)^2 = s^2 relu(x)^2; silu(gate) * (s up) = s (silu(gate) * up).
            back = p.mlp**2 if self._edge else p.mlp
            tensor = _scaled(tensor, 1 / back, (slice(None), self._inner[layer]))
        if part in _RESIDUAL_IN_LAYER:
            tensor = _scaled(tensor, p.residual)
        return tensor


def _scaled(tensor: Tensor, factor: float, where: Any = ...) -> Tensor:
    """A copy with the part multiplied, rounded once."""
    if factor == 1.0:
        return tensor
    out = tensor.clone()
    out[where] = (tensor[where].double() * factor).to(tensor.dtype)
    return out
