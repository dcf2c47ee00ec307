# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Prompt cards: bit for bit, and never a foreign or damaged one."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from cosmos_lite_ros.errors import BadInputError, EnvironmentLacksError
from cosmos_lite_ros.policy import cards
from cosmos_lite_ros.policy.cards import CardFolder, checkpoint_identity, default_folder
from cosmos_lite_ros.policy.checkpoint import CheckpointInfo, inspect
from cosmos_lite_ros.policy.text_tower import TextKV

from ..conftest import GOLDEN

PROMPT = list(range(40, 52))
DTYPES = (torch.float32, torch.bfloat16)


def make_info(family: str = "edge") -> CheckpointInfo:
    return inspect(str(GOLDEN / family / "checkpoint"))


def make_kv(info: CheckpointInfo, dtype: torch.dtype, length: int = len(PROMPT)) -> TextKV:
    """Random numbers of the right shape, with values that only bits tell apart."""
    c = info.config
    both = torch.randn(2, c.layers, c.kv_heads, length, c.head_dim).to(dtype)
    both[0, 0, 0, 0, :4] = torch.tensor([-0.0, 1e-38, 3e38, float("inf")]).to(dtype)
    return TextKV(both[0], both[1], length)


def bits(kv: TextKV) -> bytes:
    return torch.stack([kv.keys, kv.values]).view(torch.uint8).numpy().tobytes()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("family", ["edge", "nano"])
def test_round_trip_bit_for_bit(family: str, dtype: torch.dtype, tmp_path: Path) -> None:
    info = make_info(family)
    folder = CardFolder(tmp_path / "new" / "cards", info, dtype)
    assert folder.load(PROMPT) is None
    kv = make_kv(info, dtype)
    path = folder.save(PROMPT, kv, "a test")
    assert path == folder.path_of(PROMPT)
    assert [p.name for p in path.parent.iterdir()] == [path.name]
    assert kv.nbytes < path.stat().st_size < kv.nbytes + 4000
    found = CardFolder(tmp_path / "new" / "cards", make_info(family), dtype).load(PROMPT)
    assert found is not None
    assert bits(found) == bits(kv)
    assert found.length == len(PROMPT)
    assert found.keys.dtype == dtype
    with safe_open(path, framework="pt") as handle:
        assert handle.metadata()["made_on"] == "a test"
    # What was read is a copy: the file may go.
    path.unlink()
    assert bits(found) == bits(kv)
    assert folder.rejected == 0


def test_a_card_of_something_else_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = make_info()
    own = CardFolder(tmp_path, info, torch.bfloat16)
    own.save(PROMPT, make_kv(info, torch.bfloat16), "")
    others = {
        "dtype": CardFolder(tmp_path, info, torch.float32),
        "revision": CardFolder(tmp_path, replace(info, revision="0" * 40), torch.bfloat16),
        "family": CardFolder(tmp_path, make_info("nano"), torch.bfloat16),
    }
    monkeypatch.setattr(cards, "TEXT_VERSION", cards.TEXT_VERSION + 1)
    others["text_version"] = CardFolder(tmp_path, info, torch.bfloat16)
    paths = {own.path_of(PROMPT), own.path_of([*PROMPT, 1]), own.path_of(PROMPT[::-1])}
    paths |= {folder.path_of(PROMPT) for folder in others.values()}
    assert len(paths) == 7
    for folder in others.values():
        assert folder.load(PROMPT) is None
        assert folder.rejected == 0
    assert own.load(PROMPT[::-1]) is None
    # Nor does it help to give it the other's name.
    reasons = {"dtype": "dtype", "revision": "checkpoint", "text_version": "text_version"}
    for name, key in reasons.items():
        folder = others[name]
        shutil.copy(own.path_of(PROMPT), folder.path_of(PROMPT))
        with pytest.raises(ValueError, match=f"its {key} is not that"):
            folder._read(folder.path_of(PROMPT), PROMPT, False)
        assert folder.load(PROMPT) is None
        assert folder.rejected == 1
    shutil.copy(own.path_of(PROMPT), own.path_of(PROMPT[::-1]))
    assert own.load(PROMPT[::-1]) is None
    assert own.rejected == 1


def test_identity_tells_checkpoints_apart(
    tmp_path: Path, tiny_checkpoint: Callable[[str], Path]
) -> None:
    from cosmos_lite_ros.policy.tiny import make_tiny

    made = inspect(str(tiny_checkpoint("nano")))
    before = checkpoint_identity(made)
    copied = Path(shutil.copytree(tiny_checkpoint("nano"), tmp_path / "elsewhere"))
    assert checkpoint_identity(inspect(str(copied))) == before  # a copy is the same checkpoint
    # Same names, sizes and headers, other weights.
    other = make_tiny("nano", tmp_path / "other", seed=1)
    assert checkpoint_identity(inspect(str(other))) != before
    # One norm gain of the text tower.
    name = "layers.1.input_layernorm.weight"
    for file in inspect(str(copied)).transformer_files:
        if name in file.shapes:
            tensors = load_file(file.path)
            tensors[name][64] += 1
            save_file(tensors, file.path, metadata={"format": "pt"})
    assert checkpoint_identity(inspect(str(copied))) != before


def damage(path: Path, how: str) -> None:
    """One way in which a file can be wrong."""
    raw = bytearray(path.read_bytes())
    header = 8 + int.from_bytes(raw[:8], "little")
    tensors = load_file(path)
    with safe_open(path, framework="pt") as handle:
        metadata = handle.metadata()
    if how == "empty":
        raw = bytearray()
    elif how == "cut off":
        raw = raw[:-100]
    elif how == "header":
        raw[20] ^= 1
    elif how == "giant header":
        raw[:8] = (2**62).to_bytes(8, "little")
    elif how == "one bit":
        raw[header + 1000] ^= 4
    elif how == "a block of zeros":
        raw[header + 512 : header + 1024] = bytes(512)
    elif how == "text":
        raw = bytearray(b"not a card, rather a text that somebody saved here\n" * 5)
    else:
        if how == "no values":
            del tensors["values"]
        elif how == "one more":
            tensors["more"] = tensors["keys"]
        elif how == "shorter":
            tensors = {k: v[:, :, :-1].contiguous() for k, v in tensors.items()}
        elif how == "other dtype":
            tensors = {k: v.view(torch.float16) for k, v in tensors.items()}
        elif how == "swapped":
            tensors = {"keys": tensors["values"], "values": tensors["keys"]}
        elif how == "no header":
            metadata = None
        save_file({k: v.clone() for k, v in tensors.items()}, path, metadata=metadata)
        return
    path.write_bytes(raw)


@pytest.mark.parametrize(
    "how",
    [
        *("empty", "cut off", "header", "giant header", "one bit", "a block of zeros", "text"),
        *("no values", "one more", "shorter", "other dtype", "swapped", "no header"),
    ],
)
def test_a_damaged_card_is_counted_logged_and_not_used(
    how: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    info = make_info()
    folder = CardFolder(tmp_path, info, torch.bfloat16)
    kv = make_kv(info, torch.bfloat16)
    path = folder.save(PROMPT, kv, "")
    damage(path, how)
    with caplog.at_level(logging.WARNING):
        assert folder.load(PROMPT) is None
    assert folder.rejected == 1
    assert len(caplog.records) == 1
    assert path.name in caplog.text
    assert "is not used: " in caplog.text
    # Made anew in its place.
    folder.save(PROMPT, kv, "")
    found = folder.load(PROMPT)
    assert found is not None
    assert bits(found) == bits(kv)
    assert folder.rejected == 1


def test_places_that_cannot_hold_cards(tmp_path: Path) -> None:
    info = make_info()
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(BadInputError, match="is a file"):
        CardFolder(file, info, torch.bfloat16)
    with pytest.raises(BadInputError, match="float16"):
        CardFolder(tmp_path, info, torch.float16)
    below = CardFolder(file / "cards", info, torch.bfloat16)
    assert below.load(PROMPT) is None
    with pytest.raises(EnvironmentLacksError, match="cannot write a prompt card"):
        below.save(PROMPT, make_kv(info, torch.bfloat16), "")
    assert os.listdir(tmp_path) == ["file"]


def test_a_folder_in_a_card_s_place(tmp_path: Path) -> None:
    folder = CardFolder(tmp_path, make_info(), torch.bfloat16)
    folder.path_of(PROMPT).mkdir()
    assert folder.load(PROMPT) is None
    assert folder.rejected == 1


def test_default_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_folder() == tmp_path / "cosmos_lite_ros" / "cards"
