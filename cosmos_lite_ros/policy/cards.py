# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Prompt cards: keys and values of a prompt on disk, so that a known prompt needs no text tower.

A card holds exactly what the tower computed. The same device and torch compute the same bits again;
a card made on another device differs in rounding, as the devices do: ``made_on`` in the card tells.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import secrets
import zlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from cosmos_lite_ros.errors import BadInputError, EnvironmentLacksError
from cosmos_lite_ros.policy.checkpoint import CheckpointInfo
from cosmos_lite_ros.policy.profiles import cache_folder
from cosmos_lite_ros.policy.text_tower import (
    TEXT_VERSION,
    TextKV,
    empty_kv,
    text_embedding,
    text_matrices,
    text_norms,
)
from cosmos_lite_ros.policy.text_weights import read_header

_log = logging.getLogger(__name__)

_NAMES = {torch.float32: ("float32", "F32"), torch.bfloat16: ("bfloat16", "BF16")}
# Bytes of each of the text tower's tensors that enter the checkpoint's identity.
_SAMPLE = 4096
# Bytes under one checksum; several are computed at a time.
_CHUNK = 2**21


def default_folder() -> Path:
    """Where cards lie unless told otherwise."""
    return cache_folder() / "cards"


def checkpoint_identity(info: CheckpointInfo) -> str:
    """SHA-256 that stands for the text tower's weights, without reading them all.

    It covers the revision, the configuration, name, size and header of every transformer shard,
    and 4 KiB from the middle of each of the text tower's tensors (about 1 MB in all). What it can
    miss: weights changed by hand in place, outside of every sample, at the same sizes and with the
    same revision. A training run, a merge or another precision changes every matrix throughout.

    Raises:
        CheckpointError: a damaged header.
    """
    digest = hashlib.sha256()

    def add(value: bytes) -> None:
        digest.update(len(value).to_bytes(8, "little") + value)

    add(info.revision.encode())
    add(json.dumps(info.config.raw, sort_keys=True).encode())
    wanted = [*text_matrices(info), *text_norms(info), text_embedding(info)]
    names = {matrix.name for matrix in wanted}
    for file in sorted(info.transformer_files, key=lambda f: f.path.name):
        header, entries = read_header(file.path)
        add(file.path.name.encode())
        add(file.path.stat().st_size.to_bytes(8, "little"))
        add(header)
        with file.path.open("rb") as data:
            for name in sorted(names & entries.keys()):
                first, last = entries[name]["data_offsets"]
                size = min(_SAMPLE, last - first)
                data.seek(len(header) + first + (last - first - size) // 2)
                add(data.read(size))
    return digest.hexdigest()


def _checksum(*tensors: Tensor) -> str:
    """CRC-32 of every 2 MiB, hexadecimal."""
    flat = [t.flatten().view(torch.uint8) for t in tensors]
    chunks = [t[i : i + _CHUNK] for t in flat for i in range(0, t.numel(), _CHUNK)]
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        return "".join(pool.map(lambda chunk: f"{zlib.crc32(chunk.numpy()):08x}", chunks))


class CardFolder:
    """The cards of one checkpoint in one dtype, in a folder that others may share.

    Attributes:
        path: the folder.
        rejected: cards that were there and were not used; each was logged with its reason.
    """

    def __init__(self, path: Path, info: CheckpointInfo, dtype: torch.dtype):
        """Nothing is created before the first ``save``.

        Raises:
            BadInputError: ``path`` is no folder, or a dtype that no engine has.
            CheckpointError: a damaged checkpoint.
        """
        if path.exists() and not path.is_dir():
            raise BadInputError(f"{path} is a file, expected a folder for prompt cards")
        if dtype not in _NAMES:
            raise BadInputError(f"cards hold float32 or bfloat16, found {dtype}")
        self.path = path
        self.rejected = 0
        self._info = info
        self._dtype = dtype
        self._common = {
            "format": "cosmos_lite_ros prompt card",
            "text_version": str(TEXT_VERSION),
            "checkpoint": checkpoint_identity(info),
            "dtype": _NAMES[dtype][0],
        }

    def _header(self, token_ids: list[int]) -> dict[str, str]:
        return {**self._common, "token_ids": " ".join(map(str, token_ids))}

    def path_of(self, token_ids: list[int]) -> Path:
        """The file of a prompt, whether it exists or not."""
        text = json.dumps(self._header(token_ids), sort_keys=True)
        return self.path / f"{hashlib.sha256(text.encode()).hexdigest()}.safetensors"

    def load(self, token_ids: list[int], *, pin: bool = False) -> TextKV | None:
        """The prompt's keys and values in host memory, or None without a sound card of its own.

        Args:
            token_ids: the prompt.
            pin: into page-locked memory.
        """
        path = self.path_of(token_ids)
        if not path.exists():
            return None
        try:
            found = self._read(path, token_ids, pin)
        except (SafetensorError, OSError, ValueError) as error:
            self.rejected += 1
            _log.warning("prompt card %s is not used: %s", path, error)
            return None
        return found

    def _read(self, path: Path, token_ids: list[int], pin: bool) -> TextKV:
        """Read and check one file.

        Raises:
            ValueError: what is wrong with it.
        """
        kv = empty_kv(self._info, len(token_ids), self._dtype, torch.device("cpu"), pin=pin)
        shape = list(kv.keys.shape)
        with safe_open(path, framework="pt") as handle:
            header: dict[str, Any] = handle.metadata() or {}
            for key, expected in self._header(token_ids).items():
                if header.get(key) != expected:
                    raise ValueError(f"its {key} is not that of the prompt asked for")
            if sorted(handle.keys()) != ["keys", "values"]:
                raise ValueError(f"it holds {sorted(handle.keys())}, expected keys and values")
            for name, target in (("keys", kv.keys), ("values", kv.values)):
                found = handle.get_slice(name)
                if found.get_shape() != shape or found.get_dtype() != _NAMES[self._dtype][1]:
                    raise ValueError(
                        f"{name} is {found.get_dtype()} {found.get_shape()}, expected "
                        f"{_NAMES[self._dtype][1]} {shape}"
                    )
                target.copy_(handle.get_tensor(name))
        if header.get("crc32") != _checksum(kv.keys, kv.values):
            raise ValueError("its checksum does not match its data")
        return kv

    def save(self, token_ids: list[int], kv: TextKV, made_on: str) -> Path:
        """Write the card of a prompt; it appears whole or not at all.

        Args:
            token_ids: the prompt.
            kv: its keys and values, on any device.
            made_on: what computed them, for people.

        Raises:
            EnvironmentLacksError: the folder cannot be written.
        """
        host = kv.on_host()
        tensors = {"keys": host.keys, "values": host.values}
        header = {
            **self._header(token_ids),
            "crc32": _checksum(tensors["keys"], tensors["values"]),
            "made_on": made_on,
        }
        path = self.path_of(token_ids)
        beside = path.with_name(f".{path.stem}.{secrets.token_hex(4)}")
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            save_file(tensors, beside, metadata=header)
            with beside.open("rb") as written:
                os.fsync(written.fileno())
            beside.replace(path)
        except (OSError, SafetensorError) as error:
            with suppress(OSError):
                beside.unlink(missing_ok=True)
            raise EnvironmentLacksError(
                f"cannot write a prompt card of {kv.nbytes / 1e6:.0f} MB to {self.path} ({error}): "
                "free disk space, or choose another folder"
            ) from error
        return path
