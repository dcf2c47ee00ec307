# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The manifest of an artifact: what it was made from and how, and everything that lies in it.

``artifact.json`` at the root of the folder. It carries a digest of itself, so that a changed byte
in it is seen without hashing the weights.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final

from cosmos_lite_ros.errors import CheckpointError
from cosmos_lite_ros.quantize.schemes import SCHEMES, Kind, data_shape, role_of, scale_shape

MANIFEST_FILE: Final = "artifact.json"
FORMAT: Final = "cosmos_lite_ros quantised checkpoint"
# Raise it when an older reader would misread a newer artifact, or the other way round.
FORMAT_VERSION: Final = 1
SCALE_SUFFIX: Final = ".scale"
# Names of the dtypes in a safetensors header.
STORED_DTYPES: Final[Mapping[str, str]] = {"e4m3": "F8_E4M3", "int8": "I8", "int4": "U8"}
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_AGAIN: Final = "copy it again, or make it again with quantize"


@dataclass(frozen=True)
class FileEntry:
    """Size and SHA-256 of one file."""

    size: int
    sha256: str


@dataclass(frozen=True)
class TensorEntry:
    """One stored tensor: the file that holds it, its dtype as safetensors names it, its shape."""

    file: str
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Manifest:
    """Everything that artifact.json says.

    Attributes:
        scheme: one of ``schemes.SCHEMES``.
        family: ``edge`` or ``nano``.
        random_weights: the mark of the source.
        package_version, torch_version, device: what made it.
        source_id: Hugging Face id, or the name of the source folder.
        source_revision: commit of that id, or empty.
        source_files: files of the source that were read, by path below it.
        files: every other file of the artifact, by path below it.
        tensors: every tensor of the network, by name; a quantised one has NAME.scale beside it.
        left_out: tensors of the source that no request reads.
        rescaled: tensors whose columns were multiplied by powers of two before (awareness).
    """

    scheme: str
    family: str
    random_weights: bool
    package_version: str
    torch_version: str
    device: str
    source_id: str
    source_revision: str
    source_files: Mapping[str, FileEntry]
    files: Mapping[str, FileEntry]
    tensors: Mapping[str, TensorEntry]
    left_out: tuple[str, ...]
    rescaled: tuple[str, ...]

    @property
    def nbytes(self) -> int:
        """Size of all files but the manifest, bytes."""
        return sum(entry.size for entry in self.files.values())

    def text(self) -> str:
        """The file's contents."""
        value: dict[str, Any] = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "scheme": self.scheme,
            "family": self.family,
            "random_weights": self.random_weights,
            "package_version": self.package_version,
            "torch_version": self.torch_version,
            "device": self.device,
            "source": {
                "id": self.source_id,
                "revision": self.source_revision,
                "files": _files_value(self.source_files),
            },
            "files": _files_value(self.files),
            "tensors": {
                name: {"file": t.file, "dtype": t.dtype, "shape": list(t.shape)}
                for name, t in self.tensors.items()
            },
            "left_out": list(self.left_out),
            "rescaled": list(self.rescaled),
        }
        value["digest"] = digest_of(value)
        return json.dumps(value, indent=1) + "\n"


def digest_of(value: Mapping[str, Any]) -> str:
    """SHA-256 of a manifest's value, its own digest left out."""
    rest = {key: v for key, v in value.items() if key != "digest"}
    canonical = json.dumps(rest, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def stored_as(name: str, shape: tuple[int, ...], scheme: str) -> dict[str, tuple[str, Any]]:
    """What a scheme stores for a tensor: name -> (dtype, shape); dtype empty: as it was."""
    role = role_of(name)
    kind = SCHEMES[scheme].weights[role] if role is not None else "bf16"
    if kind == "bf16":
        return {name: ("", shape)}
    stored: Kind = kind
    rows, columns = shape
    return {
        name: (STORED_DTYPES[kind], data_shape(stored, rows, columns)),
        name + SCALE_SUFFIX: ("F32", scale_shape(stored, rows, columns)),
    }


def read_manifest(folder: Path) -> Manifest:
    """Read and check artifact.json; touches no other file.

    Raises:
        CheckpointError: absent, damaged, edited, or of another format version.
    """
    path = folder / MANIFEST_FILE
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise CheckpointError(
            f"{path} is missing: expected a folder that quantize has written"
        ) from error
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} is damaged ({error}): {_AGAIN}") from error
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise CheckpointError(f"{path} is no manifest of this package: {_AGAIN}")
    version = value.get("format_version")
    if version != FORMAT_VERSION:
        raise CheckpointError(
            f"{path} has format version {version!r}, this version of the package reads "
            f"{FORMAT_VERSION}: make the artifact again with quantize"
        )
    if value.get("digest") != digest_of(value):
        raise CheckpointError(
            f"{path} was changed after it was written (its digest is another): {_AGAIN}"
        )
    try:
        manifest = _parse(value)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CheckpointError(f"{path} is incomplete ({error!r}): {_AGAIN}") from error
    _check_scheme(manifest, path)
    return manifest


def _check_scheme(manifest: Manifest, path: Path) -> None:
    known = [s.name for s in SCHEMES.values() if s.quantised]
    if manifest.scheme not in known:
        raise CheckpointError(
            f"{path}: scheme is {manifest.scheme!r}, expected one of {', '.join(known)}: make the "
            "artifact again with quantize"
        )
    weights = SCHEMES[manifest.scheme].weights
    for name, tensor in manifest.tensors.items():
        role = role_of(name)
        if role is None:
            continue
        expected = STORED_DTYPES[weights[role]]
        if tensor.dtype != expected or name + SCALE_SUFFIX not in manifest.tensors:
            raise CheckpointError(
                f"{path}: {name} is {tensor.dtype}, {manifest.scheme} stores {expected} and a "
                f"scale: {_AGAIN}"
            )


def _parse(value: dict[str, Any]) -> Manifest:
    source = value["source"]
    return Manifest(
        scheme=_text(value["scheme"]),
        family=_text(value["family"]),
        random_weights=bool(value["random_weights"]),
        package_version=_text(value["package_version"]),
        torch_version=_text(value["torch_version"]),
        device=_text(value["device"]),
        source_id=_text(source["id"]),
        source_revision=_text(source["revision"]),
        source_files=_files(source["files"]),
        files=_files(value["files"]),
        tensors={
            _text(name): TensorEntry(
                _relative(t["file"]), _text(t["dtype"]), tuple(int(n) for n in t["shape"])
            )
            for name, t in value["tensors"].items()
        },
        left_out=tuple(_text(name) for name in value["left_out"]),
        rescaled=tuple(_text(name) for name in value["rescaled"]),
    )


def _files_value(files: Mapping[str, FileEntry]) -> dict[str, Any]:
    return {path: {"size": e.size, "sha256": e.sha256} for path, e in files.items()}


def _files(value: dict[str, Any]) -> dict[str, FileEntry]:
    found = {}
    for path, entry in value.items():
        digest = _text(entry["sha256"])
        if not _SHA256.fullmatch(digest):
            raise ValueError(f"{digest!r} is no SHA-256")
        found[_relative(path)] = FileEntry(int(entry["size"]), digest)
    return found


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"found {value!r}, expected text")
    return value


def _relative(value: Any) -> str:
    """A path below the folder; one out of a file never leaves it."""
    path = PurePosixPath(_text(value))
    if path.is_absolute() or not path.parts or ".." in path.parts or "\\" in str(path):
        raise ValueError(f"{value!r} is no path below the folder")
    return str(path)
