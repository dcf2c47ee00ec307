# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Find a checkpoint, read its headers, and stream its tensors; nothing is trusted unchecked.

A checkpoint is a folder in the diffusers layout (``transformer/``, ``vae/``, ``text_tokenizer/``)
or a Hugging Face id with a pinned revision. Parts are loaded by subfolder: ``model_index.json`` may
name a pipeline class that does not exist, and Edge's root index belongs to another module.
A folder that ``quantize`` has written has the same layout and an ``artifact.json``: an artifact.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from cosmos_lite_ros.errors import CheckpointError, EnvironmentLacksError
from cosmos_lite_ros.policy.config import RELEASED_SIZES, NetworkConfig, parse_config
from cosmos_lite_ros.quantize.awareness import Rescaling
from cosmos_lite_ros.quantize.manifest import (
    MANIFEST_FILE,
    SCALE_SUFFIX,
    Manifest,
    read_manifest,
)
from cosmos_lite_ros.quantize.schemes import Scheme, role_of
from cosmos_lite_ros.quantize.verify import check_layout

Progress = Callable[[float, str], None]

# make-tiny writes it beside model_index.json.
MARKER_FILE = "cosmos_lite_ros.json"
_REPO_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")
_COMMIT = re.compile(r"[0-9a-f]{40}")
# Files of a repository that a policy request reads.
_WANTED = (
    "transformer/*",
    "vae/*",
    "text_tokenizer/*",
    "*.json",
    "*.jinja",
)
# Left over in Edge's file by its converter; the real ones are under layers.N.
_STRAY = re.compile(r"layers\.layers\.\d+\..*k_norm_und_for_gen\..*")


@dataclass(frozen=True)
class TensorFile:
    """One safetensors file and the tensors in it, by name with shape and dtype (as stored)."""

    path: Path
    shapes: dict[str, tuple[int, ...]]
    dtypes: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class CheckpointInfo:
    """What the headers say, before any tensor is read.

    Of an artifact ``scheme`` is its scheme's name and ``manifest`` what it says of itself; its
    quantised matrices are stored as NAME and NAME.scale. Both are None of a plain checkpoint.
    """

    folder: Path
    source: str
    revision: str
    config: NetworkConfig
    vae_config: dict[str, Any]
    transformer_files: tuple[TensorFile, ...]
    vae_files: tuple[TensorFile, ...]
    tokenizer_folder: Path
    random_weights: bool
    scheme: str | None = None
    manifest: Manifest | None = None

    @property
    def weight_bytes(self) -> int:
        """Size on disk of all tensor files, bytes."""
        files = self.transformer_files + self.vae_files
        return sum(f.path.stat().st_size for f in files)


def resolve(source: str, revision: str = "") -> Path:
    """The local folder of a path or of a Hugging Face id (from the cache, else downloaded).

    Raises:
        CheckpointError: neither a folder nor an id, or an id without a pinned revision.
        EnvironmentLacksError: not cached and not reachable.
    """
    folder = Path(source).expanduser()
    if folder.is_dir():
        return folder
    if folder.exists():
        raise CheckpointError(f"{source} is a file, expected a checkpoint folder")
    if not _REPO_ID.fullmatch(source) or source.startswith((".", "/", "~")):
        raise CheckpointError(
            f"{source!r} is neither a folder nor a Hugging Face id like OWNER/NAME: check the path"
        )
    if not _COMMIT.fullmatch(revision):
        raise CheckpointError(
            f"revision of {source} is {revision!r}, expected the 40 hexadecimal digits of a "
            "commit: pin it, since a newer revision is another policy"
        )
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError
    except ImportError as error:
        raise EnvironmentLacksError(
            "huggingface_hub is not installed: pip install 'cosmos_lite_ros[policy]'"
        ) from error
    wanted: dict[str, Any] = {"revision": revision, "allow_patterns": list(_WANTED)}
    try:
        return Path(snapshot_download(source, local_files_only=True, **wanted))
    except (LocalEntryNotFoundError, FileNotFoundError):
        pass
    try:
        return Path(snapshot_download(source, **wanted))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise EnvironmentLacksError(
            f"{source} at {revision[:12]} is not in the local cache and cannot be downloaded "
            f"({reason}): download it where there is a network, or try profile:=tiny"
        ) from error


def _read_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise CheckpointError(
            f"{path} is missing: expected a folder with transformer/, vae/ and text_tokenizer/ "
            "(diffusers layout)"
        )
    try:
        loaded = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        raise CheckpointError(f"{path} cannot be read as JSON: {error}") from error
    if not isinstance(loaded, dict):
        raise CheckpointError(f"{path} holds {type(loaded).__name__}, expected a JSON object")
    return loaded


def _shard_names(folder: Path) -> list[str]:
    """File names of the shards of one part, from its own index, else the single file."""
    indexes = sorted(folder.glob("*.safetensors.index.json"))
    if indexes:
        weight_map = _read_json(indexes[0]).get("weight_map")
        if not isinstance(weight_map, dict) or not weight_map:
            raise CheckpointError(f"{indexes[0]} has no weight_map: the index is damaged")
        names = sorted({str(v) for v in weight_map.values()})
        for name in names:
            # A name out of a file never leaves its folder.
            if Path(name).name != name or not name.endswith(".safetensors"):
                raise CheckpointError(
                    f"{indexes[0]} names {name!r}, expected a .safetensors file beside it"
                )
        return names
    names = sorted(p.name for p in folder.glob("*.safetensors"))
    if len(names) != 1:
        raise CheckpointError(
            f"{folder} holds {len(names)} .safetensors files and no index, expected one file or an "
            "index: the checkpoint is incomplete"
        )
    return names


def _tensor_files(folder: Path) -> tuple[TensorFile, ...]:
    files = []
    for name in _shard_names(folder):
        path = folder / name
        if not path.is_file():
            raise CheckpointError(
                f"{path} is missing though the index names it: copy or download the shard again"
            )
        try:
            with safe_open(path, framework="pt") as handle:
                keys = list(handle.keys())
                slices = {k: handle.get_slice(k) for k in keys}
                shapes = {k: tuple(part.get_shape()) for k, part in slices.items()}
                dtypes = {k: str(part.get_dtype()) for k, part in slices.items()}
        except (SafetensorError, OSError) as error:
            raise CheckpointError(
                f"{path} is damaged ({error}): copy or download the shard again"
            ) from error
        files.append(TensorFile(path, shapes, dtypes))
    return tuple(files)


def _marked_random(folder: Path) -> bool:
    path = folder / MARKER_FILE
    return path.is_file() and bool(_read_json(path).get("random_weights", False))


def inspect(source: str, revision: str = "") -> CheckpointInfo:
    """Read every header of a checkpoint; reads no tensor.

    Raises:
        CheckpointError: what is missing, foreign or damaged.
        EnvironmentLacksError: a Hugging Face id that is neither cached nor reachable.
    """
    folder = resolve(source, revision)
    config_path = folder / "transformer" / "config.json"
    config = parse_config(_read_json(config_path), str(config_path))
    vae_config = _read_json(folder / "vae" / "config.json")
    tokenizer = folder / "text_tokenizer"
    if not tokenizer.is_dir():
        tokenizer = folder
    if not (tokenizer / "tokenizer.json").is_file():
        raise CheckpointError(
            f"{folder} has no text_tokenizer/tokenizer.json: the checkpoint is incomplete"
        )
    # Anything smaller than the released policies was never trained for a robot: golden and test
    # networks carry no mark.
    released = RELEASED_SIZES[config.family] == (config.layers, config.hidden)
    manifest = _artifact(folder, config)
    transformer_files = _tensor_files(folder / "transformer")
    if manifest is None:
        _check_plain(folder, transformer_files)
    marked = _marked_random(folder) or (manifest is not None and manifest.random_weights)
    return CheckpointInfo(
        folder=folder,
        source=source,
        revision=revision or ("" if manifest is None else manifest.source_revision),
        config=config,
        vae_config=vae_config,
        transformer_files=transformer_files,
        vae_files=_tensor_files(folder / "vae"),
        tokenizer_folder=tokenizer,
        random_weights=marked or not released,
        scheme=None if manifest is None else manifest.scheme,
        manifest=manifest,
    )


def _artifact(folder: Path, config: NetworkConfig) -> Manifest | None:
    """The manifest of an artifact whose names, sizes and headers are as it says; else None.

    Raises:
        CheckpointError: the first thing that is not. ``verify`` compares every byte.
    """
    if not (folder / MANIFEST_FILE).is_file():
        return None
    manifest = read_manifest(folder)
    if manifest.family != config.family:
        raise CheckpointError(
            f"{folder} is an artifact of the {manifest.family} family, its transformer/config.json "
            f"says {config.family}: files of two artifacts were mixed, copy it again"
        )
    if problems := check_layout(folder, manifest):
        more = f" and {len(problems) - 1} problems more" if len(problems) > 1 else ""
        raise CheckpointError(
            f"{folder} is not as quantize wrote it: {problems[0]}{more}: copy it again, or make it "
            "again with quantize"
        )
    return manifest


def _check_plain(folder: Path, files: tuple[TensorFile, ...]) -> None:
    """Refuse quantised matrices without the manifest that says what they are."""
    for name in (n for file in files for n in file.shapes):
        if name.endswith(SCALE_SUFFIX) and role_of(name.removesuffix(SCALE_SUFFIX)) is not None:
            raise CheckpointError(
                f"{folder} holds quantised matrices ({name}) and no {MANIFEST_FILE}: copy the "
                "artifact again with it"
            )


def is_stray(name: str) -> bool:
    """Whether a tensor is one that the releases hold by mistake."""
    return _STRAY.fullmatch(name) is not None


def check_keys(
    files: tuple[TensorFile, ...], expected: dict[str, tuple[int, ...]], part: str
) -> None:
    """Insist on zero missing, zero unexpected and zero mis-shaped tensors.

    Raises:
        CheckpointError: with the counts and the first names.
    """
    found = {k: s for f in files for k, s in f.shapes.items() if not is_stray(k)}
    missing = sorted(expected.keys() - found.keys())
    unexpected = sorted(found.keys() - expected.keys())
    if missing or unexpected:
        example = f"first missing {missing[0]}" if missing else f"first unexpected {unexpected[0]}"
        raise CheckpointError(
            f"{part}: {len(missing)} tensors missing, {len(unexpected)} unexpected ({example}): "
            "configuration and weights belong to different models, or a file is incomplete"
        )
    for key, shape in expected.items():
        if found[key] != shape:
            raise CheckpointError(
                f"{part}: {key} is {list(found[key])}, its configuration says {list(shape)}: "
                "configuration and weights belong to different models"
            )


def read_tensors(files: tuple[TensorFile, ...]) -> Iterator[tuple[str, Tensor]]:
    """Every tensor of the files as stored, on the CPU, file by file; strays are left out.

    Within a file in the order of the names, so NAME.scale comes right after NAME, in one file.
    """
    for file in files:
        with safe_open(file.path, framework="pt") as handle:
            for key in sorted(handle.keys()):
                if not is_stray(key):
                    yield key, handle.get_tensor(key)


def read_for(info: CheckpointInfo, scheme: Scheme | None) -> Iterator[tuple[str, Tensor]]:
    """The network's tensors as ``scheme`` quantises them: as they are, or rescaled before.

    Those of an artifact are as they must be already. Peak memory is one tensor.
    """
    if scheme is None or not scheme.activation_aware or info.scheme is not None:
        yield from read_tensors(info.transformer_files)
        return
    paths = {name: file.path for file in info.transformer_files for name in file.shapes}

    def read(name: str) -> Tensor | None:
        if name not in paths:
            return None
        with safe_open(paths[name], framework="pt") as handle:
            tensor: Tensor = handle.get_tensor(name)
            return tensor

    rescaling = Rescaling(read)
    for name, tensor in read_tensors(info.transformer_files):
        yield name, rescaling.apply(name, tensor)


def fill(
    module: nn.Module,
    files: tuple[TensorFile, ...],
    *,
    device: torch.device,
    dtype: Callable[[str], torch.dtype],
    progress: Progress | None = None,
    step: str = "",
) -> None:
    """Move tensor after tensor into a module built on the meta device.

    Tensors that the module no longer holds (a part that this request never uses) are skipped.
    Peak memory is the module plus one tensor.
    """
    wanted = dict(module.named_parameters()) | dict(module.named_buffers())
    total = max(1, sum(len(f.shapes) for f in files))
    for done, (key, tensor) in enumerate(read_tensors(files), 1):
        if key in wanted:
            owner_name, _, leaf = key.rpartition(".")
            owner = module.get_submodule(owner_name)
            moved = tensor.to(device=device, dtype=dtype(key))
            if leaf in owner._parameters:
                setattr(owner, leaf, nn.Parameter(moved, requires_grad=False))
            else:
                setattr(owner, leaf, moved)
        if progress is not None:
            progress(done / total, step)
