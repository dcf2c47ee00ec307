# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Reading, hashing and writing of files in pieces; safetensors headers."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

import torch
from torch import Tensor

from cosmos_lite_ros.errors import CheckpointError
from cosmos_lite_ros.quantize.manifest import FileEntry

PIECE_BYTES: Final = 4 * 2**20
# A header beyond this is no header (the safetensors library's own limit).
_MAX_HEADER: Final = 100_000_000
ITEM_BYTES: Final[Mapping[str, int]] = {
    **dict.fromkeys(("F64", "I64", "U64"), 8),
    **dict.fromkeys(("F32", "I32", "U32"), 4),
    **dict.fromkeys(("F16", "BF16", "I16", "U16"), 2),
    **dict.fromkeys(("F8_E4M3", "F8_E5M2", "I8", "U8", "BOOL"), 1),
}


class Stopped(Exception):  # not an error: somebody asked for it
    """Hashing was told to stop."""


@dataclass(frozen=True)
class Entry:
    """One tensor of a safetensors header; ``start`` counts from the first byte of the data."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    nbytes: int


def header_entries(path: Path) -> dict[str, Entry]:
    """Tensors of a safetensors file by name, in the order of their data.

    Raises:
        CheckpointError: damaged.
    """
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if length > _MAX_HEADER:
                raise ValueError(f"a header of {length} bytes")
            value = json.loads(file.read(length))
        value.pop("__metadata__", None)
        found = [
            Entry(
                name,
                str(e["dtype"]),
                tuple(int(n) for n in e["shape"]),
                int(e["data_offsets"][0]),
                int(e["data_offsets"][1]) - int(e["data_offsets"][0]),
            )
            for name, e in value.items()
        ]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{path} is damaged ({error}): copy it again") from error
    return {e.name: e for e in sorted(found, key=lambda e: e.start)}


def nbytes_of(dtype: str, shape: tuple[int, ...]) -> int:
    """Bytes of a tensor.

    Raises:
        CheckpointError: a dtype that no checkpoint of ours has.
    """
    if dtype not in ITEM_BYTES:
        raise CheckpointError(f"found a tensor of dtype {dtype}, expected {', '.join(ITEM_BYTES)}")
    count = 1
    for n in shape:
        count *= n
    return count * ITEM_BYTES[dtype]


def plan_header(tensors: Mapping[str, tuple[str, tuple[int, ...]]]) -> tuple[bytes, dict[str, int]]:
    """Head of a safetensors file and where each tensor's data starts in the file.

    Wide items come first, so that every tensor is aligned to its item.
    """
    order = sorted(tensors, key=lambda name: -ITEM_BYTES[tensors[name][0]])
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    starts = {}
    at = 0
    for name in order:
        dtype, shape = tensors[name]
        end = at + nbytes_of(dtype, shape)
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, end]}
        starts[name] = at
        at = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    head = len(text).to_bytes(8, "little") + text
    return head, {name: len(head) + start for name, start in starts.items()}


def write_tensor(file: BinaryIO, tensor: Tensor) -> int:
    """Write a tensor's bytes at the file's position, in pieces; returns how many."""
    raw = tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy()
    for at in range(0, raw.size, PIECE_BYTES):
        file.write(raw[at : at + PIECE_BYTES].data)
    return int(raw.size)


def hash_file(
    path: Path,
    stop: threading.Event | None = None,
    count: Callable[[int], None] | None = None,
) -> FileEntry:
    """Size and SHA-256 of a file.

    Args:
        path: the file.
        stop: set from another thread to end it with ``Stopped``.
        count: called with the bytes of every piece.
    """
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        while piece := file.read(PIECE_BYTES):
            if stop is not None and stop.is_set():
                raise Stopped
            digest.update(piece)
            size += len(piece)
            if count is not None:
                count(len(piece))
    return FileEntry(size, digest.hexdigest())


def copy_file(source: Path, target: Path, count: Callable[[int], None]) -> FileEntry:
    """Copy contents in pieces, to the disk; size and SHA-256 of what was copied."""
    digest, size = hashlib.sha256(), 0
    with source.open("rb") as read, target.open("xb") as written:
        while piece := read.read(PIECE_BYTES):
            digest.update(piece)
            written.write(piece)
            size += len(piece)
            count(len(piece))
        sync(written)
    return FileEntry(size, digest.hexdigest())


def sync(file: BinaryIO) -> None:
    """Onto the disk before anything relies on it."""
    file.flush()
    os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """The names in a folder onto the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
