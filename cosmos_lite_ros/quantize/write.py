# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Write an artifact: the checkpoint's layout, with the generation matrices quantised.

Tensor by tensor and in chunks of rows: host memory holds one chunk and one tensor's scales. The
sizes of everything are known from the headers, so the disk is asked first and every tensor is
written straight to its place.
"""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from cosmos_lite_ros import __version__
from cosmos_lite_ros.errors import CheckpointError, EnvironmentLacksError
from cosmos_lite_ros.quantize.awareness import Rescaling
from cosmos_lite_ros.quantize.files import (
    copy_file,
    hash_file,
    header_entries,
    nbytes_of,
    plan_header,
    sync,
    sync_folder,
    write_tensor,
)
from cosmos_lite_ros.quantize.manifest import (
    MANIFEST_FILE,
    SCALE_SUFFIX,
    FileEntry,
    Manifest,
    TensorEntry,
    stored_as,
)
from cosmos_lite_ros.quantize.matrix import quantise
from cosmos_lite_ros.quantize.schemes import Kind, Scheme, role_of
from cosmos_lite_ros.quantize.staging import staging

SHARD_BYTES: Final = 2_000_000_000
_STEM: Final = "diffusion_pytorch_model"
_PART: Final = "transformer"
# float32 bytes of one chunk of rows: little beside any tensor on a CPU, enough work for a GPU.
_CHUNK_BYTES: Final = {"cpu": 4 * 2**20, "cuda": 64 * 2**20}
# Dtypes of the matrices of a plain checkpoint.
_PLAIN: Final = ("BF16", "F16", "F32")
# Free space to leave on the disk.
_SPARE_BYTES: Final = 64_000_000

Progress = Callable[[float, str], None]
_Stored = dict[str, tuple[str, tuple[int, ...]]]


@dataclass(frozen=True)
class Order:
    """What to write.

    Attributes:
        scheme: a scheme that quantises.
        family: of the source.
        source_id, source_revision, random_weights: as the manifest keeps them.
        root: folder of the source.
        shards: the network's safetensors files, below ``root``.
        left_out: names of tensors that are not written.
        copies: path below the artifact -> file below ``root`` to copy as it is.
    """

    scheme: Scheme
    family: str
    source_id: str
    source_revision: str
    random_weights: bool
    root: Path
    shards: tuple[Path, ...]
    left_out: frozenset[str]
    copies: Mapping[str, Path]


@dataclass
class _Shard:
    """One file to be written: what it stores, and the source tensors in reading order."""

    stored: _Stored
    sources: list[tuple[Path, str]]
    nbytes: int = 0
    name: str = ""


def write_artifact(
    order: Order,
    out: Path,
    *,
    device: torch.device,
    shard_bytes: int = SHARD_BYTES,
    progress: Progress | None = None,
) -> Manifest:
    """Quantise into ``out``, which appears whole or not at all.

    Args:
        order: what to write.
        out: a folder that does not exist.
        device: where matrices are quantised.
        shard_bytes: most bytes of one file of the network.
        progress: called with a fraction 0..1 and the name of the step in hand.

    Raises:
        BadInputError: ``out`` exists, or another process is writing it.
        CheckpointError: a damaged source, or weights that are not finite.
        EnvironmentLacksError: too little space on the disk.
    """
    shards = _plan(order, shard_bytes)
    with staging(out) as hidden:
        _check_space(out, order, shards)
        try:
            return _Writer(order, shards, hidden, device, progress).run()
        except OSError as error:
            raise EnvironmentLacksError(
                f"cannot write {out} ({error.strerror or error}): free disk space, or choose "
                "another folder"
            ) from error
        except SafetensorError as error:
            raise CheckpointError(
                f"{order.root} is damaged ({error}): copy or download it again"
            ) from error


def _plan(order: Order, shard_bytes: int) -> list[_Shard]:
    """Shards in the order of the source's data, each at most so large (or a single tensor)."""
    shards = [_Shard({}, [])]
    for path in order.shards:
        for entry in header_entries(path).values():
            if entry.name in order.left_out:
                continue
            stored = {
                name: (dtype or entry.dtype, shape)
                for name, (dtype, shape) in stored_as(
                    entry.name, entry.shape, order.scheme.name
                ).items()
            }
            if len(stored) > 1 and entry.dtype not in _PLAIN:
                raise CheckpointError(
                    f"{path}: {entry.name} is {entry.dtype}, expected {', '.join(_PLAIN)}: only a "
                    "plain checkpoint can be quantised"
                )
            size = sum(nbytes_of(*tensor) for tensor in stored.values())
            if shards[-1].sources and shards[-1].nbytes + size > shard_bytes:
                shards.append(_Shard({}, []))
            shards[-1].stored.update(stored)
            shards[-1].sources.append((path, entry.name))
            shards[-1].nbytes += size
    for i, shard in enumerate(shards, 1):
        number = f"-{i:05d}-of-{len(shards):05d}" if len(shards) > 1 else ""
        shard.name = f"{_STEM}{number}.safetensors"
    return shards


def _check_space(out: Path, order: Order, shards: list[_Shard]) -> None:
    needed = sum(s.nbytes for s in shards) + sum(p.stat().st_size for p in order.copies.values())
    needed += _SPARE_BYTES
    free = shutil.disk_usage(out.parent).free
    if needed > free:
        raise EnvironmentLacksError(
            f"{out.parent} has {free / 1e9:.2f} GB free, this artifact takes {needed / 1e9:.2f} "
            "GB: choose a folder on another disk"
        )


class _Writer:
    """One run, in the hidden folder."""

    def __init__(
        self,
        order: Order,
        shards: list[_Shard],
        folder: Path,
        device: torch.device,
        progress: Progress | None,
    ):
        self._order = order
        self._shards = shards
        self._folder = folder
        self._device = device
        self._progress = progress
        self._paths = {name: path for shard in shards for path, name in shard.sources}
        self._rescaling = Rescaling(self._read) if order.scheme.activation_aware else None
        self._rescaled: list[str] = []
        self._stop = threading.Event()
        self._step = ""
        copied = sum(p.stat().st_size for p in order.copies.values())
        # Bytes written and, in another thread, bytes hashed.
        self._total = 2 * sum(s.nbytes for s in shards) + copied
        self._total += sum(p.stat().st_size for p in order.shards)
        self._done = 0
        self._count_lock = threading.Lock()

    def run(self) -> Manifest:
        order = self._order
        hasher = ThreadPoolExecutor(1, "hash")
        sources: dict[str, Future[FileEntry]] = {}
        written: dict[str, Future[FileEntry]] = {}
        files: dict[str, FileEntry] = {}
        try:
            (self._folder / _PART).mkdir()
            for shard in self._shards:
                self._step = f"{_PART}/{shard.name}"
                for path in dict.fromkeys(path for path, _ in shard.sources):
                    relative = path.relative_to(order.root).as_posix()
                    if relative not in sources:
                        sources[relative] = hasher.submit(self._hash, path)
                target = self._folder / _PART / shard.name
                self._write_shard(target, shard)
                written[f"{_PART}/{shard.name}"] = hasher.submit(self._hash, target)
            if len(self._shards) > 1:
                written[f"{_PART}/{_STEM}.safetensors.index.json"] = hasher.submit(
                    self._hash, self._write_index()
                )
            for name, path in order.copies.items():
                self._step = name
                target = self._folder / name
                target.parent.mkdir(parents=True, exist_ok=True)
                files[name] = copy_file(path, target, self._count)
                sync_folder(target.parent)
            self._step = "hashing"
            self._count(0)
            copied = {
                path.relative_to(order.root).as_posix(): files[name]
                for name, path in order.copies.items()
            }
            files |= {name: future.result() for name, future in written.items()}
            found = {name: future.result() for name, future in sources.items()} | copied
        finally:
            self._stop.set()
            hasher.shutdown(cancel_futures=True)
        sync_folder(self._folder / _PART)
        manifest = self._manifest(files, found)
        with (self._folder / MANIFEST_FILE).open("xb") as file:
            file.write(manifest.text().encode())
            sync(file)
        if self._progress is not None:
            self._progress(1.0, "done")
        return manifest

    def _manifest(self, files: dict[str, FileEntry], sources: dict[str, FileEntry]) -> Manifest:
        order = self._order
        tensors = {
            name: TensorEntry(f"{_PART}/{shard.name}", *shard.stored[name])
            for shard in self._shards
            for name in shard.stored
        }
        device = self._device.type
        if device == "cuda":
            device = torch.cuda.get_device_name(self._device)
        return Manifest(
            scheme=order.scheme.name,
            family=order.family,
            random_weights=order.random_weights,
            package_version=__version__,
            torch_version=torch.__version__,
            device=device,
            source_id=order.source_id,
            source_revision=order.source_revision,
            source_files=dict(sorted(sources.items())),
            files=dict(sorted(files.items())),
            tensors=dict(sorted(tensors.items())),
            left_out=tuple(sorted(order.left_out)),
            rescaled=tuple(sorted(self._rescaled)),
        )

    def _hash(self, path: Path) -> FileEntry:
        return hash_file(path, self._stop, self._count)

    def _count(self, nbytes: int) -> None:
        with self._count_lock:
            self._done += nbytes
            done = self._done
        if self._progress is not None:
            self._progress(min(done / max(1, self._total), 1.0), self._step)

    def _write_index(self) -> Path:
        weight_map = {name: shard.name for shard in self._shards for name in shard.stored}
        index: dict[str, Any] = {
            "metadata": {"total_size": sum(shard.nbytes for shard in self._shards)},
            "weight_map": dict(sorted(weight_map.items())),
        }
        path = self._folder / _PART / f"{_STEM}.safetensors.index.json"
        with path.open("xb") as file:
            file.write((json.dumps(index, indent=1) + "\n").encode())
            sync(file)
        return path

    def _write_shard(self, target: Path, shard: _Shard) -> None:
        head, starts = plan_header(shard.stored)
        with torch.inference_mode(), target.open("xb") as file:
            file.write(head)
            for path in dict.fromkeys(path for path, _ in shard.sources):
                with safe_open(path, framework="pt") as handle:
                    for name in (n for p, n in shard.sources if p == path):
                        self._write(file, name, handle.get_tensor(name), starts)
            sync(file)

    def _read(self, name: str) -> Tensor | None:
        path = self._paths.get(name)
        if path is None:
            return None
        with safe_open(path, framework="pt") as handle:
            tensor: Tensor = handle.get_tensor(name)
            return tensor

    def _write(self, file: BinaryIO, name: str, tensor: Tensor, starts: dict[str, int]) -> None:
        role = role_of(name)
        kind = "bf16" if role is None else self._order.scheme.weights[role]
        factor = None if self._rescaling is None else self._rescaling.factor(name)
        if factor is not None:
            self._rescaled.append(name)
        file.seek(starts[name])
        if role is None or kind == "bf16":
            if factor is not None:
                tensor = tensor * factor.to(tensor.dtype)  # exact, see awareness
            self._count(write_tensor(file, tensor))
            return
        limit = self._order.scheme.weight_limit(role)
        scales = self._write_rows(file, name, tensor, kind, limit, factor)
        file.seek(starts[name + SCALE_SUFFIX])
        self._count(write_tensor(file, scales))

    def _write_rows(
        self,
        file: BinaryIO,
        name: str,
        tensor: Tensor,
        kind: Kind,
        limit: float,
        factor: Tensor | None,
    ) -> Tensor:
        """Quantise and write a matrix's values, columns times ``factor``; returns its scales."""
        chunk = max(1, _CHUNK_BYTES[self._device.type] // (4 * tensor.shape[1]))
        factor = None if factor is None else factor.to(self._device)
        scales = []
        for first in range(0, tensor.shape[0], chunk):
            rows = tensor[first : first + chunk].to(self._device).float()
            data, scale = quantise(rows if factor is None else rows * factor, kind, limit)
            scales.append(scale.cpu())
            if not bool(scales[-1].isfinite().all()):
                raise CheckpointError(
                    f"{name} holds values that are not finite, expected finite weights: the "
                    "source is damaged, copy or download it again"
                )
            self._count(write_tensor(file, data))
        return torch.cat(scales)
