# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Checkpoints quantised ahead of time: how one is made of a checkpoint."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import torch

from cosmos_lite_ros.errors import BadInputError, CheckpointError
from cosmos_lite_ros.policy.checkpoint import (
    MARKER_FILE,
    CheckpointInfo,
    Progress,
    inspect,
    is_stray,
)
from cosmos_lite_ros.policy.strict import check_tensors, unread_tensors
from cosmos_lite_ros.quantize.manifest import Manifest
from cosmos_lite_ros.quantize.schemes import SCHEMES, scheme
from cosmos_lite_ros.quantize.staging import refuse_existing
from cosmos_lite_ros.quantize.write import SHARD_BYTES, Order, write_artifact

# Copied as they are where the source has them: what loading reads, the mark of random weights, and
# terms that must travel with the weights.
_ROOT_FILES = (MARKER_FILE, "model_index.json", "policy.yaml", "LICENSE*", "NOTICE*")
_FOLDER_FILES = ("scheduler/*.json", "transformer/config.json", "vae/config.json")
_TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.*",
)


def quantise_checkpoint(
    source: str,
    scheme_name: str,
    out: Path,
    *,
    revision: str = "",
    device: torch.device | None = None,
    shard_bytes: int = SHARD_BYTES,
    progress: Progress | None = None,
) -> Manifest:
    """Write the artifact of a checkpoint in a scheme to ``out``, whole or not at all.

    Args:
        source: folder or Hugging Face id of a plain checkpoint.
        scheme_name: one of ``schemes.SCHEMES`` that quantises.
        out: a folder that does not exist.
        revision: commit of a Hugging Face id.
        device: where matrices are quantised; None: the CPU.
        shard_bytes: most bytes of one file of the network.
        progress: called with a fraction 0..1 and the name of the step in hand.

    Raises:
        BadInputError: no such scheme, one that quantises nothing, or ``out`` exists.
        CheckpointError: an incomplete, foreign, damaged or already quantised source.
        EnvironmentLacksError: too little disk space.
    """
    chosen = scheme(scheme_name)
    if not chosen.quantised:
        known = ", ".join(s.name for s in SCHEMES.values() if s.quantised)
        raise BadInputError(f"scheme {chosen.name} quantises nothing, expected one of {known}")
    refuse_existing(out)
    info = inspect(source, revision)
    if info.scheme is not None:
        raise CheckpointError(
            f"{info.folder} is an artifact of scheme {info.scheme} already: quantise the "
            "checkpoint that it was made from"
        )
    check_tensors(info)
    names = [name for file in info.transformer_files for name in file.shapes]
    left_out = unread_tensors(info, names) | {name for name in names if is_stray(name)}
    folder = Path(source).expanduser()
    order = Order(
        scheme=chosen,
        family=info.config.family,
        # A folder's place on this machine is nobody's business.
        source_id=folder.resolve().name if folder.is_dir() else source,
        source_revision=info.revision,
        random_weights=info.random_weights,
        root=info.folder,
        shards=tuple(file.path for file in info.transformer_files),
        left_out=frozenset(left_out),
        copies=dict(_copies(info)),
    )
    return write_artifact(
        order,
        out,
        device=device or torch.device("cpu"),
        shard_bytes=shard_bytes,
        progress=progress,
    )


def _copies(info: CheckpointInfo) -> Iterable[tuple[str, Path]]:
    for pattern in (*_ROOT_FILES, *_FOLDER_FILES):
        for path in sorted(info.folder.glob(pattern)):
            if path.is_file():
                yield path.relative_to(info.folder).as_posix(), path
    for file in info.vae_files:
        yield f"vae/{file.path.name}", file.path
    for path in sorted((info.folder / "vae").glob("*.safetensors.index.json")):
        yield f"vae/{path.name}", path
    for pattern in _TOKENIZER_FILES:
        for path in sorted(info.tokenizer_folder.glob(pattern)):
            if path.is_file():
                yield f"text_tokenizer/{path.name}", path
