# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Every damaged or foreign checkpoint is refused with one line that says what to do."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from cosmos_lite_ros.errors import CheckpointError, CosmosLiteError, EnvironmentLacksError
from cosmos_lite_ros.policy.checkpoint import inspect
from cosmos_lite_ros.policy.engine import EngineSettings, PolicyEngine
from cosmos_lite_ros.policy.tiny import make_tiny

Tiny = Callable[[str], Path]
WEIGHTS = Path("transformer/diffusion_pytorch_model.safetensors")


def _copy(source: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(source, tmp_path / "checkpoint"))


def _edit(path: Path, **changes: Any) -> None:
    value = json.loads(path.read_text())
    for key, new in changes.items():
        if new is None:
            value.pop(key)
        else:
            value[key] = new
    path.write_text(json.dumps(value))


def _load(folder: Path) -> str:
    """Load and return the one line of the refusal."""
    with pytest.raises(CosmosLiteError) as caught:
        PolicyEngine.load(EngineSettings(checkpoint=str(folder)))
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize("family", ["edge", "nano"])
def test_headers(family: str, tiny_checkpoint: Tiny) -> None:
    info = inspect(str(tiny_checkpoint(family)))
    assert info.config.family == family
    assert info.random_weights
    assert len(info.transformer_files) == (1 if family == "edge" else 2)
    assert 1e6 < info.weight_bytes < 8e6


def test_wrong_folder(tmp_path: Path) -> None:
    assert "config.json is missing" in _load(tmp_path)
    assert "neither a folder nor a Hugging Face id" in _load(tmp_path / "absent")
    file = tmp_path / "file"
    file.touch()
    assert "is a file" in _load(file)


def test_hugging_face_id_needs_a_pinned_revision() -> None:
    for revision in ("", "main", "6706d7"):
        with pytest.raises(CheckpointError, match="pin it"):
            inspect("nvidia/Cosmos3-Edge-Policy-DROID", revision)


def test_hugging_face_id_that_is_not_cached(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from huggingface_hub import constants

    # The library reads both at import time; this is its own switch for "no network".
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(EnvironmentLacksError, match="profile:=tiny") as caught:
        inspect("nvidia/Cosmos3-Edge-Policy-DROID", "3" * 40)
    assert "\n" not in str(caught.value)


def test_missing_shard(tiny_checkpoint: Tiny, tmp_path: Path) -> None:
    folder = _copy(tiny_checkpoint("nano"), tmp_path)
    next((folder / "transformer").glob("*-00002-of-*")).unlink()
    assert "00002-of-00002.safetensors is missing though the index names it" in _load(folder)


def test_truncated_shard(tiny_checkpoint: Tiny, tmp_path: Path) -> None:
    folder = _copy(tiny_checkpoint("edge"), tmp_path)
    data = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(data[: len(data) // 2])
    assert "damaged" in _load(folder)


def test_index_that_leaves_its_folder(tiny_checkpoint: Tiny, tmp_path: Path) -> None:
    folder = _copy(tiny_checkpoint("nano"), tmp_path)
    index = next((folder / "transformer").glob("*.index.json"))
    _edit(index, weight_map={"a": "../../elsewhere.safetensors"})
    assert "expected a .safetensors file beside it" in _load(folder)


def test_unknown_family(tiny_checkpoint: Tiny, tmp_path: Path) -> None:
    folder = _copy(tiny_checkpoint("edge"), tmp_path)
    _edit(folder / "transformer/config.json", hidden_act="gelu")
    assert "not a Cosmos 3 policy" in _load(folder)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("use_und_k_norm_for_gen", None),
        ("qk_norm_for_text", True),
        ("rms_norm_eps", 1e-6),
        ("rope_theta", 5e6),
        ("action_gen", False),
        ("_class_name", "FooTransformer"),
        ("num_embodiment_domains", 8),
        ("num_hidden_layers", None),
    ],
)
def test_incomplete_or_foreign_configuration(
    key: str, value: Any, tiny_checkpoint: Tiny, tmp_path: Path
) -> None:
    folder = _copy(tiny_checkpoint("edge"), tmp_path)
    _edit(folder / "transformer/config.json", **{key: value})
    message = _load(folder)
    assert key in message or "embodiment domains" in message


def test_missing_and_unexpected_tensors(tiny_checkpoint: Tiny, tmp_path: Path) -> None:
    folder = _copy(tiny_checkpoint("edge"), tmp_path)
    tensors = load_file(folder / WEIGHTS)
    taken = tensors.pop("layers.1.self_attn.k_norm_und_for_gen.weight")
    save_file(tensors, folder / WEIGHTS)
    assert "1 tensors missing, 0 unexpected" in _load(folder)
    tensors["layers.1.self_attn.k_norm_und_for_gen.weight"] = taken
    tensors["layers.7.mlp.up_proj.weight"] = torch.zeros(2, 2)
    save_file(tensors, folder / WEIGHTS)
    assert "0 tensors missing, 1 unexpected" in _load(folder)


def test_mis_shaped_tensor(tiny_checkpoint: Tiny, tmp_path: Path) -> None:
    folder = _copy(tiny_checkpoint("edge"), tmp_path)
    tensors = load_file(folder / WEIGHTS)
    tensors["proj_in.weight"] = torch.zeros(128, 96)
    save_file(tensors, folder / WEIGHTS)
    assert "proj_in.weight is [128, 96], its configuration says [128, 192]" in _load(folder)


def test_stray_tensors_of_the_edge_converter_are_dropped(
    tiny_checkpoint: Tiny, tmp_path: Path
) -> None:
    folder = _copy(tiny_checkpoint("edge"), tmp_path)
    tensors = load_file(folder / WEIGHTS)
    tensors["layers.layers.0.self_attn.k_norm_und_for_gen.weight"] = torch.zeros(128)
    save_file(tensors, folder / WEIGHTS)
    PolicyEngine.load(EngineSettings(checkpoint=str(folder))).close()


def test_foreign_vae(tiny_checkpoint: Tiny, tmp_path: Path) -> None:
    folder = _copy(tiny_checkpoint("edge"), tmp_path)
    _edit(folder / "vae/config.json", latents_mean=[0.0] * 16)
    assert "not the Wan 2.2 VAE" in _load(folder)


def test_tiny_is_reproducible_and_never_overwrites(tmp_path: Path) -> None:
    a, b = (make_tiny("edge", tmp_path / name) for name in "ab")
    for file in sorted(p.relative_to(a) for p in a.rglob("*") if p.is_file()):
        assert (a / file).read_bytes() == (b / file).read_bytes(), file
    make_tiny("nano", a)
    assert inspect(str(a)).config.family == "nano"
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").write_text("kept")
    with pytest.raises(CosmosLiteError, match="not a tiny checkpoint"):
        make_tiny("edge", precious)
    assert (precious / "file").read_text() == "kept"
    assert not list(tmp_path.glob(".*"))


def test_unmarked_small_networks_count_as_random(tiny_checkpoint: Tiny, tmp_path: Path) -> None:
    folder = _copy(tiny_checkpoint("edge"), tmp_path)
    (folder / "cosmos_lite_ros.json").unlink()
    assert inspect(str(folder)).random_weights


def test_no_such_device(tiny_checkpoint: Tiny) -> None:
    checkpoint = str(tiny_checkpoint("edge"))
    with pytest.raises(CosmosLiteError, match="expected cpu, cuda or cuda:N"):
        PolicyEngine.load(EngineSettings(checkpoint=checkpoint, device="tpu"))
    missing = f"cuda:{torch.cuda.device_count()}"
    with pytest.raises(EnvironmentLacksError, match="CUDA GPUs found"):
        PolicyEngine.load(EngineSettings(checkpoint=checkpoint, device=missing))
