# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Make a checkpoint of the released sizes with random weights: for timings and memory, no more.

Layout, configuration and tensor names are the released policies'; the tokenizer is the tiny one.
Tensors are drawn one by one, on a GPU where there is one, and written as they are drawn.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from cosmos_lite_ros.contract.prompt import Family
from cosmos_lite_ros.errors import BadInputError, EnvironmentLacksError
from cosmos_lite_ros.policy import tiny
from cosmos_lite_ros.policy.checkpoint import MARKER_FILE

Shapes = dict[str, tuple[int, ...]]

# Sizes of the released policies, as in their transformer/config.json.
RELEASED: Final[dict[Family, dict[str, int]]] = {
    "edge": {
        "hidden_size": 2048,
        "intermediate_size": 9216,
        "num_attention_heads": 16,
        "num_hidden_layers": 28,
        "num_key_value_heads": 8,
        "vocab_size": 131072,
    },
    "nano": {
        "hidden_size": 4096,
        "intermediate_size": 12288,
        "num_attention_heads": 32,
        "num_hidden_layers": 36,
        "num_key_value_heads": 8,
        "vocab_size": 151936,
    },
}
# Sizes of the Wan 2.2 VAE, as in its config.json.
RELEASED_VAE: Final[dict[str, Any]] = {
    "base_dim": 160,
    "decoder_base_dim": 256,
    "dim_mult": [1, 2, 4, 4],
    "num_res_blocks": 2,
}
SHARD_BYTES: Final = 5_000_000_000
_STEM: Final = "diffusion_pytorch_model"
_WRITERS: Final = 4
_STAGE_BYTES: Final = 64 * 2**20


def transformer_shapes(family: Family, sizes: Mapping[str, int] | None = None) -> Shapes:
    """Every tensor of the network by name; ``sizes`` None: the released ones."""
    return _shapes("transformer", _transformer_config(family, sizes))


def make_random(
    family: Family,
    out: Path,
    *,
    seed: int = 0,
    device: torch.device | None = None,
    sizes: Mapping[str, int] | None = None,
    vae_sizes: Mapping[str, Any] | None = None,
    shard_bytes: int = SHARD_BYTES,
) -> Path:
    """Write a checkpoint to ``out``, marked random; the folder appears whole or not at all.

    The same seed and kind of device give the same tensors. Host memory stays below one tensor.

    Args:
        family: edge or nano.
        out: a folder that does not exist, or an earlier marked checkpoint to replace.
        seed: of the weights.
        device: where they are drawn; None: a CUDA GPU where there is one.
        sizes, vae_sizes: entries of the two configurations; None: the released sizes.
        shard_bytes: most bytes of one file of the network.

    Raises:
        BadInputError: an unknown family, or ``out`` holds something else.
        EnvironmentLacksError: too little space on the disk.
    """
    if family not in RELEASED:
        raise BadInputError(f"family is {family!r}, expected edge or nano")
    if out.exists() and not (out / MARKER_FILE).is_file():
        raise BadInputError(f"{out} exists and is not a random checkpoint: choose another folder")
    if device is None:
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    out.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    try:
        folder = tiny.make_tiny(family, beside / "checkpoint", seed)
        config = _transformer_config(family, sizes)
        vae = json.loads((folder / "vae" / "config.json").read_text())
        vae.update(RELEASED_VAE if vae_sizes is None else vae_sizes)
        parts = (("transformer", config, shard_bytes), ("vae", vae, 2**63))
        planned = [(part, c, _shapes(part, c), limit) for part, c, limit in parts]
        _check_space(out.parent, [shapes for _, _, shapes, _ in planned])
        for part, part_config, shapes, limit in planned:
            _write_part(folder / part, part_config, shapes, limit, seed, device)
        if out.exists():
            shutil.rmtree(out)
        folder.rename(out)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    if device.type == "cuda":
        torch.cuda.empty_cache()
    return out


def _transformer_config(family: Family, sizes: Mapping[str, int] | None) -> dict[str, Any]:
    chosen = RELEASED[family] if sizes is None else sizes
    return {**tiny._transformer_config(family), **chosen}


def _shapes(part: str, config: dict[str, Any]) -> Shapes:
    from diffusers import AutoencoderKLWan, Cosmos3OmniTransformer

    cls = Cosmos3OmniTransformer if part == "transformer" else AutoencoderKLWan
    with torch.device("meta"):
        model = cls(**{k: v for k, v in config.items() if not k.startswith("_")})
    return {name: tuple(value.shape) for name, value in model.state_dict().items()}


def _nbytes(shape: tuple[int, ...]) -> int:
    return torch.Size(shape).numel() * torch.bfloat16.itemsize


def _check_space(folder: Path, parts: list[Shapes]) -> None:
    needed = sum(_nbytes(shape) for shapes in parts for shape in shapes.values())
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise EnvironmentLacksError(
            f"{folder} has {free / 1e9:.1f} GB free, this checkpoint takes {needed / 1e9:.1f} GB: "
            "choose a folder on another disk"
        )


def _write_part(
    folder: Path,
    config: dict[str, Any],
    shapes: Shapes,
    shard_bytes: int,
    seed: int,
    device: torch.device,
) -> None:
    """Configuration, and one file or shards with an index, in diffusers' names."""
    for old in folder.glob("*.safetensors*"):
        old.unlink()
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    number = {name: i for i, name in enumerate(shapes)}
    shards = _cut(shapes, shard_bytes)
    files = [f"{_STEM}.safetensors"]
    if len(shards) > 1:
        files = [
            f"{_STEM}-{i:05d}-of-{len(shards):05d}.safetensors" for i in range(1, 1 + len(shards))
        ]
        weight_map = {n: file for file, s in zip(files, shards, strict=True) for n in s}
        total = sum(_nbytes(shape) for shape in shapes.values())
        index = {"metadata": {"total_size": total}, "weight_map": weight_map}
        (folder / f"{_STEM}.safetensors.index.json").write_text(json.dumps(index, indent=2))
    with ThreadPoolExecutor(_WRITERS) as pool:
        jobs = [
            pool.submit(_write_file, folder / file, shard, number, seed, device)
            for file, shard in zip(files, shards, strict=True)
        ]
        for job in jobs:
            job.result()


def _cut(shapes: Shapes, most_bytes: int) -> list[Shapes]:
    """Shards in the order of the names, each at most so large (or a single tensor)."""
    shards: list[Shapes] = [{}]
    size = 0
    for name, shape in shapes.items():
        if shards[-1] and size + _nbytes(shape) > most_bytes:
            shards.append({})
            size = 0
        shards[-1][name] = shape
        size += _nbytes(shape)
    return shards


def _write_file(
    path: Path, shapes: Shapes, number: dict[str, int], seed: int, device: torch.device
) -> None:
    """A safetensors file, tensor by tensor: the library's own writer wants them all in memory."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    start = 0
    for name, shape in shapes.items():
        end = start + _nbytes(shape)
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [start, end]}
        start = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    stage = torch.empty(_STAGE_BYTES, dtype=torch.uint8, pin_memory=device.type == "cuda")
    generator = torch.Generator(device)
    with torch.inference_mode(), path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name, shape in shapes.items():
            # One seed a tensor: which thread writes it does not matter.
            generator.manual_seed(1_000_003 * seed + number[name])
            raw = _draw(name, shape, generator, device).view(torch.uint8).flatten()
            for at in range(0, raw.numel(), _STAGE_BYTES):
                chunk = raw[at : at + _STAGE_BYTES]
                host = stage[: chunk.numel()]
                host.copy_(chunk)
                host.numpy().tofile(file)


def _draw(
    name: str, shape: tuple[int, ...], generator: torch.Generator, device: torch.device
) -> Tensor:
    """bfloat16: gains about 1, biases small, matrices scaled by their fan-in."""
    drawn = torch.randn(shape, generator=generator, device=device, dtype=torch.bfloat16)
    if "bias" in name or name == "action_modality_embed":
        return drawn.mul_(0.02)
    if name.endswith(("gamma", "weight")) and sum(n > 1 for n in shape) <= 1:
        return drawn.mul_(0.1).add_(1.0)
    fan_in = max(1, torch.Size(shape[1:]).numel())
    if name == "action_proj_in.fc.weight":
        fan_in = 64  # one row a domain, [action channels, hidden]
    elif name == "action_proj_out.fc.weight":
        fan_in //= 64  # [hidden, action channels]
    return drawn.mul_(fan_in**-0.5)
