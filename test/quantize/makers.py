# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Artifacts to look into and to damage."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from cosmos_lite_ros.policy.artifact import quantise_checkpoint
from cosmos_lite_ros.quantize.manifest import MANIFEST_FILE, digest_of
from cosmos_lite_ros.quantize.schemes import SCHEMES

QUANTISING = tuple(s.name for s in SCHEMES.values() if s.quantised)
FAMILIES = ("edge", "nano")


def artifact(source: Path, out: Path, scheme: str = "fp8", **options: Any) -> Path:
    """Written from a checkpoint."""
    quantise_checkpoint(str(source), scheme, out, **options)
    return out


def copy_of(folder: Path, out: Path) -> Path:
    return Path(shutil.copytree(folder, out))


def shard_of(folder: Path) -> Path:
    """The network's only file."""
    return folder / "transformer" / "diffusion_pytorch_model.safetensors"


def stored(folder: Path) -> dict[str, Tensor]:
    """Every tensor of the network of a checkpoint or an artifact."""
    found: dict[str, Tensor] = {}
    for path in sorted((folder / "transformer").glob("*.safetensors")):
        found |= load_file(path)
    return found


def flip(path: Path, at: int, bit: int = 1) -> None:
    """Change one bit of a file; negative places count from its end."""
    with path.open("r+b") as file:
        file.seek(at, 2 if at < 0 else 0)
        place = file.tell()
        byte = file.read(1)[0]
        file.seek(place)
        file.write(bytes([byte ^ bit]))


def rewrite(folder: Path, change: Callable[[dict[str, Tensor]], None]) -> None:
    """Change the tensors of the only file, as another program could."""
    tensors = load_file(shard_of(folder))
    change(tensors)
    save_file(tensors, shard_of(folder), metadata={"format": "pt"})


def edit(folder: Path, change: Callable[[dict[str, Any]], None], *, seal: bool = True) -> None:
    """Change the manifest, and its digest with it unless told otherwise."""
    path = folder / MANIFEST_FILE
    value = json.loads(path.read_text())
    change(value)
    if seal:
        value["digest"] = digest_of(value)
    path.write_text(json.dumps(value))


def names_below(folder: Path) -> list[str]:
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())


def relative_error(found: Tensor, expected: Tensor) -> float:
    """L2 of the difference over L2 of what is expected."""
    return float(torch.linalg.norm(found - expected) / torch.linalg.norm(expected))
