# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""A damaged, edited or mixed-up artifact is refused with the reason."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from cosmos_lite_ros.errors import BadInputError, CheckpointError
from cosmos_lite_ros.policy.checkpoint import inspect
from cosmos_lite_ros.policy.engine import EngineSettings, PolicyEngine
from cosmos_lite_ros.quantize.manifest import read_manifest
from cosmos_lite_ros.quantize.verify import verify

from .makers import artifact, copy_of, edit, flip, names_below, rewrite, shard_of

Tiny = Callable[[str], Path]


@pytest.fixture(scope="module")
def sound(tiny_checkpoint: Tiny, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return artifact(tiny_checkpoint("edge"), tmp_path_factory.mktemp("sound") / "artifact", "fp8")


@pytest.fixture
def folder(sound: Path, tmp_path: Path) -> Path:
    """A copy to damage."""
    return copy_of(sound, tmp_path / "artifact")


def refusal(folder: Path, **settings: Any) -> str:
    """The one line with which an engine refuses it."""
    with pytest.raises(BadInputError) as caught:
        PolicyEngine.load(EngineSettings(str(folder), **settings))
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_sound(folder: Path) -> None:
    assert verify(folder) == []
    assert inspect(str(folder)).scheme == "fp8"


def test_one_bit_in_any_file(sound: Path, tmp_path: Path) -> None:
    for number, name in enumerate(names_below(sound)):
        folder = copy_of(sound, tmp_path / str(number))
        size = (folder / name).stat().st_size
        flip(folder / name, size // 2)
        problems = verify(folder)
        assert len(problems) >= 1, name
        assert name in problems[-1] or name == "artifact.json"
        if name.endswith(".safetensors"):
            # Loading looks at headers and sizes: this is what verify is for.
            assert problems[0].startswith(f"{name} has SHA-256 ")
            inspect(str(folder))
        if name == "artifact.json":
            with pytest.raises(CheckpointError):
                inspect(str(folder))


def test_every_byte_of_the_weights_counts(folder: Path) -> None:
    name = "transformer/diffusion_pytorch_model.safetensors"
    for at in (-1, -1000, -100_000):
        flip(folder / name, at)
        assert len(verify(folder)) == 1
        flip(folder / name, at)
    assert verify(folder) == []


def test_a_missing_tensor(folder: Path) -> None:
    name = "layers.1.mlp_moe_gen.down_proj.weight.scale"
    rewrite(folder, lambda tensors: tensors.pop(name))
    assert f"tensor {name} is missing from transformer/" in " ".join(verify(folder))
    assert "is not as quantize wrote it: transformer/diffusion" in refusal(folder)
    # Even where sizes and hashes are made to match.
    path = "transformer/diffusion_pytorch_model.safetensors"

    def adapt(value: dict[str, Any]) -> None:
        value["files"][path]["size"] = (folder / path).stat().st_size

    edit(folder, adapt)
    assert f"quantize wrote it: tensor {name} is missing from {path}" in refusal(folder)

    def forget(value: dict[str, Any]) -> None:
        del value["tensors"][name]

    edit(folder, forget)
    assert "is F8_E4M3, fp8 stores F8_E4M3 and a scale" in refusal(folder)

    def forget_both(value: dict[str, Any]) -> None:
        del value["tensors"][name.removesuffix(".scale")]

    edit(folder, forget_both)
    rewrite(folder, lambda tensors: tensors.pop(name.removesuffix(".scale")))
    edit(folder, adapt)
    assert "transformer: 2 tensors missing, 0 unexpected" in refusal(folder)


def test_a_missing_or_cut_file(folder: Path) -> None:
    shard = shard_of(folder)
    data = shard.read_bytes()
    shard.write_bytes(data[:-1])
    assert f"has {len(data) - 1} bytes, expected {len(data)}" in refusal(folder)
    assert f"has {len(data) - 1} bytes, expected {len(data)}" in verify(folder)[0]
    shard.unlink()
    assert "diffusion_pytorch_model.safetensors is missing and" in refusal(folder)
    assert verify(folder)[0] == "transformer/diffusion_pytorch_model.safetensors is missing"


def test_another_format_version(folder: Path) -> None:
    for version in (2, 0, None, "1"):
        edit(folder, lambda value, v=version: value.update(format_version=v), seal=version != 0)
        message = refusal(folder)
        assert f"has format version {version!r}, this version of the package reads 1" in message
        assert verify(folder) == [message]


def test_another_family(folder: Path, tiny_checkpoint: Tiny, tmp_path: Path) -> None:
    edit(folder, lambda value: value.update(family="nano"))
    assert "is an artifact of the nano family, its transformer/config.json says edge" in refusal(
        folder
    )
    edit(folder, lambda value: value.update(family="edge"))
    inspect(str(folder))
    other = artifact(tiny_checkpoint("nano"), tmp_path / "nano", "fp8")
    config = "transformer/config.json"
    (folder / config).write_bytes((other / config).read_bytes())
    assert "is an artifact of the edge family, its transformer/config.json says nano" in refusal(
        folder
    )
    assert any(config in problem for problem in verify(folder))


def test_another_scheme_than_was_asked_for(folder: Path) -> None:
    for asked in ("int8", "fp8_fast", "bf16"):
        message = refusal(folder, scheme=asked, dtype="bfloat16")
        assert repr(asked) in message
        assert "'fp8'" in message


@pytest.mark.parametrize(
    ("scheme", "expected"),
    [
        ("int8", "is F8_E4M3, int8 stores I8 and a scale"),
        ("int4wo", "is F8_E4M3, int4wo stores "),
        ("bf16", "scheme is 'bf16', expected one of fp8, "),
        ("fp4", "scheme is 'fp4', expected one of fp8, "),
    ],
)
def test_a_scheme_that_the_weights_are_not_in(folder: Path, scheme: str, expected: str) -> None:
    edit(folder, lambda value: value.update(scheme=scheme))
    assert expected in refusal(folder)
    assert expected in verify(folder)[0]


@pytest.mark.parametrize("key", ["scheme", "random_weights", "source", "files", "tensors"])
def test_an_edited_manifest(folder: Path, key: str) -> None:
    def change(value: dict[str, Any]) -> None:
        value[key] = {"scheme": "fp8_fast", "random_weights": False}.get(key, {})

    edit(folder, change, seal=False)
    assert "was changed after it was written" in refusal(folder)
    assert len(verify(folder)) == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda value: value.pop("files"),
        lambda value: value.update(files=[]),
        lambda value: value.update(tensors={"a": {"file": "b"}}),
        lambda value: value["source"].pop("id"),
        lambda value: value.update(scheme=3),
        lambda value: value["files"].update(a={"size": 1, "sha256": "0"}),
    ],
)
def test_an_incomplete_manifest(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    edit(folder, change)
    assert "artifact.json is incomplete (" in refusal(folder)


@pytest.mark.parametrize("path", ["../secret", "/etc/passwd", "a/../../b", "", "a\\b"])
def test_a_path_that_leaves_the_folder(folder: Path, path: str) -> None:
    entry = {"size": 1, "sha256": 64 * "0"}
    edit(folder, lambda value: value["files"].update({path: entry}))
    assert "is no path below the folder" in refusal(folder)


def test_a_manifest_that_is_none(folder: Path) -> None:
    path = folder / "artifact.json"
    for text in ("", "[]", "{}", '{"format": "other"}', "\xff"):
        path.write_text(text, encoding="latin-1")
        assert "artifact.json is" in refusal(folder)
    path.unlink()
    message = refusal(folder)
    assert "holds quantised matrices (layers.0" in message
    assert "no artifact.json" in message
    with pytest.raises(CheckpointError, match="expected a folder that quantize has written"):
        verify(folder)
    with pytest.raises(CheckpointError, match=r"artifact\.json is missing"):
        read_manifest(folder)


def test_files_that_were_added(folder: Path) -> None:
    (folder / "README.md").write_text("read by nothing")
    assert verify(folder) == []
    index = folder / "transformer" / "a.safetensors.index.json"
    index.write_text('{"weight_map": {"x": "y.safetensors"}}')
    expected = "transformer/a.safetensors.index.json is not in the manifest"
    assert verify(folder) == [expected]
    assert expected in refusal(folder)


def test_scales_of_another_dtype(folder: Path) -> None:
    def halve(tensors: dict[str, torch.Tensor]) -> None:
        for name in tensors:
            if name.endswith(".scale"):
                tensors[name] = tensors[name].half()

    rewrite(folder, halve)
    edit(folder, lambda v: v["files"].update(_sizes(folder)))
    assert "is F16 [" in refusal(folder)


def _sizes(folder: Path) -> dict[str, Any]:
    path = "transformer/diffusion_pytorch_model.safetensors"
    return {path: {"size": (folder / path).stat().st_size, "sha256": 64 * "0"}}
