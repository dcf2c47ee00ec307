# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Compare an artifact with its manifest, byte for byte."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from cosmos_lite_ros.errors import CheckpointError
from cosmos_lite_ros.quantize.files import Entry, hash_file, header_entries
from cosmos_lite_ros.quantize.manifest import MANIFEST_FILE, FileEntry, Manifest, read_manifest

_SUFFIX: Final = ".safetensors"
# Folders in which loading looks for files by pattern: one too many there is read.
_SEARCHED: Final = ("transformer", "vae", "text_tokenizer")
_READERS: Final = 4

Progress = Callable[[float, str], None]


def verify(folder: Path, progress: Progress | None = None) -> list[str]:
    """Read everything; one line for each problem, none where all is as it was written.

    Raises:
        CheckpointError: not an artifact: there is no manifest.
    """
    if not (folder / MANIFEST_FILE).is_file():
        raise CheckpointError(
            f"{folder} has no {MANIFEST_FILE}, expected a folder that quantize has written"
        )
    try:
        manifest = read_manifest(folder)
    except CheckpointError as error:
        return [str(error)]
    problems = check_layout(folder, manifest)
    total, done, lock = max(1, manifest.nbytes), 0, threading.Lock()

    def count(nbytes: int) -> None:
        nonlocal done
        with lock:
            done += nbytes
        if progress is not None:
            progress(min(done / total, 1.0), "hashing")

    def check(item: tuple[str, FileEntry]) -> str:
        name, entry = item
        path = folder / name
        if not path.is_file() or path.stat().st_size != entry.size:
            return ""  # a problem of the layout
        try:
            found = hash_file(path, count=count)
        except OSError as error:
            return f"{name} cannot be read: {error.strerror or error}"
        if found == entry:
            return ""
        return f"{name} has SHA-256 {found.sha256[:16]}.., the manifest says {entry.sha256[:16]}.."

    with ThreadPoolExecutor(min(_READERS, os.cpu_count() or 1)) as pool:
        return problems + [line for line in pool.map(check, manifest.files.items()) if line]


def check_layout(folder: Path, manifest: Manifest) -> list[str]:
    """What headers, names and sizes say: one line for each problem. Reads no tensor."""
    problems = []
    for name, entry in manifest.files.items():
        path = folder / name
        if not path.is_file():
            problems.append(f"{name} is missing")
        elif path.stat().st_size != entry.size:
            problems.append(f"{name} has {path.stat().st_size} bytes, expected {entry.size}")
    for part in _SEARCHED:
        for path in sorted((folder / part).rglob("*")):
            name = path.relative_to(folder).as_posix()
            if path.is_file() and name not in manifest.files:
                problems.append(f"{name} is not in the manifest")
    return problems + _check_tensors(folder, manifest)


def _check_tensors(folder: Path, manifest: Manifest) -> list[str]:
    problems = []
    shards = [n for n in manifest.files if n.startswith("transformer/") and n.endswith(_SUFFIX)]
    found: dict[str, tuple[str, Entry]] = {}
    for name in shards:
        if not (folder / name).is_file():
            continue
        try:
            found |= {k: (name, entry) for k, entry in header_entries(folder / name).items()}
        except CheckpointError as error:
            problems.append(str(error))
    for name, tensor in manifest.tensors.items():
        if name not in found:
            problems.append(f"tensor {name} is missing from {tensor.file}")
            continue
        file, entry = found[name]
        if (file, entry.dtype, entry.shape) != (tensor.file, tensor.dtype, tensor.shape):
            problems.append(
                f"tensor {name} is {entry.dtype} {list(entry.shape)} in {file}, expected "
                f"{tensor.dtype} {list(tensor.shape)} in {tensor.file}"
            )
    problems += [
        f"tensor {name} is not in the manifest" for name in found.keys() - manifest.tensors
    ]
    return problems
