# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What an artifact holds, and that an engine answers with it as if it quantised while loading."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open

from cosmos_lite_ros import __version__
from cosmos_lite_ros.errors import BadInputError, CheckpointError
from cosmos_lite_ros.policy.artifact import quantise_checkpoint
from cosmos_lite_ros.policy.checkpoint import inspect, read_tensors
from cosmos_lite_ros.policy.engine import EngineSettings, PolicyEngine, SamplerSettings
from cosmos_lite_ros.policy.strict import check_tensors
from cosmos_lite_ros.quantize.matrix import dequantise, quantise
from cosmos_lite_ros.quantize.schemes import SCHEMES, role_of
from cosmos_lite_ros.quantize.verify import verify

from ..cli.test_act import invoke, run
from ..conftest import GOLDEN
from .makers import FAMILIES, QUANTISING, artifact, copy_of, names_below, relative_error, stored

Tiny = Callable[[str], Path]
families = pytest.mark.parametrize("family", FAMILIES)
schemes = pytest.mark.parametrize("name", QUANTISING)
# Relative L2 of a matrix of about normal values.
ERROR = {"e4m3": 0.03, "int8": 0.0125, "int4": 0.15}


@schemes
@families
def test_every_tensor(family: str, name: str, tmp_path: Path) -> None:
    source = GOLDEN / family / "checkpoint"
    out = artifact(source, tmp_path / "out", name)
    assert verify(out) == []
    info = inspect(str(out))
    check_tensors(info)
    assert info.scheme == name
    plain, found = stored(source), stored(out)
    scheme = SCHEMES[name]
    expected = set()
    assert info.manifest is not None
    for key, tensor in plain.items():
        role = role_of(key)
        if key in info.manifest.left_out:
            continue
        expected.add(key)
        if role is None:
            assert torch.equal(found[key], tensor), key
            continue
        kind = scheme.weights[role]
        assert kind != "bf16"
        expected.add(key + ".scale")
        data, scale = quantise(tensor.float(), kind, scheme.weight_limit(role))
        assert found[key].dtype == data.dtype
        assert torch.equal(found[key].view(torch.uint8), data.view(torch.uint8)), key
        assert torch.equal(found[key + ".scale"], scale), key
        back = dequantise(data, scale, kind, torch.float32)
        assert relative_error(back, tensor.float()) < ERROR[kind]
    assert set(found) == expected
    # What is not the network is copied byte for byte.
    for path in ("vae/config.json", "transformer/config.json", "text_tokenizer/tokenizer.json"):
        assert (out / path).read_bytes() == (source / path).read_bytes()
    for path in sorted((source / "vae").glob("*.safetensors")):
        assert (out / "vae" / path.name).read_bytes() == path.read_bytes()


@families
def test_only_what_no_request_reads_is_left_out(family: str, tmp_path: Path) -> None:
    source = GOLDEN / family / "checkpoint"
    out = artifact(source, tmp_path / "out")
    manifest = inspect(str(out)).manifest
    assert manifest is not None
    last = json.loads((source / "transformer/config.json").read_text())["num_hidden_layers"] - 1
    for name in manifest.left_out:
        assert name.startswith(("lm_head.", "norm.", f"layers.{last}."))
        assert "moe_gen" not in name
        assert "add" not in name
    assert "lm_head.weight" in manifest.left_out
    assert len(manifest.left_out) == (7 if family == "edge" else 9)


@schemes
@families
def test_it_answers_as_its_source_quantised_while_loading(
    family: str, name: str, tiny_checkpoint: Tiny, make_observation: Any, tmp_path: Path
) -> None:
    source = tiny_checkpoint(family)
    out = artifact(source, tmp_path / "out", name)
    observation = make_observation(3)

    def positions(checkpoint: Path, scheme: str) -> Any:
        settings = EngineSettings(
            str(checkpoint),
            scheme=scheme,
            dtype="bfloat16",
            sampler=SamplerSettings(steps=1, guidance=1.0),
            threads=1,
        )
        engine = PolicyEngine.load(settings)
        try:
            assert engine.effective["scheme"] == (scheme or name)
            return engine.act(observation).positions
        finally:
            engine.close()

    of_artifact = positions(out, "")
    assert np.array_equal(of_artifact, positions(source, name))
    if name == "int8":
        assert not np.array_equal(of_artifact, positions(source, "bf16"))
        assert np.array_equal(of_artifact, positions(out, name))


def test_the_manifest_says_where_it_comes_from(tmp_path: Path) -> None:
    source = copy_of(GOLDEN / "nano" / "checkpoint", tmp_path / "my policy")
    (source / "LICENSE").write_text("terms")
    (source / "NOTICE.txt").write_text("notice")
    (source / "vision_encoder").mkdir()
    (source / "vision_encoder" / "model.safetensors").write_bytes(bytes(1000))
    out = artifact(source, tmp_path / "out", "int8")
    value = json.loads((out / "artifact.json").read_text())
    assert value["scheme"] == "int8"
    assert value["family"] == "nano"
    assert value["random_weights"] is True
    assert (value["package_version"], value["torch_version"]) == (__version__, torch.__version__)
    assert value["source"]["id"] == "my policy"
    assert str(tmp_path) not in (out / "artifact.json").read_text()
    for path, entry in value["source"]["files"].items():
        data = (source / path).read_bytes()
        assert entry == {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    read = {p for p in names_below(source) if "index" not in p and "vision" not in p}
    assert set(value["source"]["files"]) == read | {"model_index.json"}
    assert set(value["files"]) == set(names_below(out)) - {"artifact.json"}
    for path, entry in value["files"].items():
        data = (out / path).read_bytes()
        assert entry == {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    assert {"LICENSE", "NOTICE.txt"} <= set(value["files"])
    assert not any(path.startswith("vision") for path in value["files"])
    with safe_open(next((out / "transformer").glob("*.safetensors")), framework="pt") as handle:
        shapes = {k: handle.get_slice(k) for k in sorted(handle.keys())}
    assert {k: (t["dtype"], t["shape"]) for k, t in value["tensors"].items()} == {
        k: (part.get_dtype(), part.get_shape()) for k, part in shapes.items()
    }


def test_the_mark_of_random_weights_goes_with_it(tiny_checkpoint: Tiny, tmp_path: Path) -> None:
    out = artifact(tiny_checkpoint("edge"), tmp_path / "out")
    (out / "cosmos_lite_ros.json").unlink()
    manifest = json.loads((out / "artifact.json").read_text())
    assert manifest["random_weights"] is True


@families
def test_shards_are_as_small_as_asked_for(
    family: str, tiny_checkpoint: Tiny, tmp_path: Path
) -> None:
    source = tiny_checkpoint(family)
    whole = artifact(source, tmp_path / "whole", "int4wo")
    cut = artifact(source, tmp_path / "cut", "int4wo", shard_bytes=200_000)
    shards = sorted((cut / "transformer").glob("*.safetensors"))
    assert len(shards) > 5
    for shard in shards:
        with safe_open(shard, framework="pt") as handle:
            names = set(handle.keys())
        # Values and their scales share a file.
        assert {n.removesuffix(".scale") for n in names if n.endswith(".scale")} <= names
        tensors = sum(t.nbytes for k, t in stored(cut).items() if k in names)
        assert tensors <= 200_000 or len(names) == 1
    assert verify(cut) == []
    one, other = stored(whole), stored(cut)
    assert one.keys() == other.keys()
    assert all(torch.equal(one[k].view(torch.uint8), other[k].view(torch.uint8)) for k in one)
    check_tensors(inspect(str(cut)))


def test_scales_follow_their_values(tiny_checkpoint: Tiny, tmp_path: Path) -> None:
    info = inspect(str(artifact(tiny_checkpoint("nano"), tmp_path / "out", shard_bytes=200_000)))
    names = [name for name, _ in read_tensors(info.transformer_files)]
    for name, following in pairwise(names):
        if role_of(name) is not None:
            assert following == name + ".scale"


def test_what_is_not_quantised_is_refused(tiny_checkpoint: Tiny, tmp_path: Path) -> None:
    source = str(tiny_checkpoint("edge"))
    with pytest.raises(BadInputError, match="quantises nothing, expected one of fp8, fp8_fast"):
        quantise_checkpoint(source, "bf16", tmp_path / "out")
    with pytest.raises(BadInputError, match="scheme is 'fp4'"):
        quantise_checkpoint(source, "fp4", tmp_path / "out")
    out = artifact(Path(source), tmp_path / "out")
    with pytest.raises(CheckpointError, match="is an artifact of scheme fp8 already"):
        quantise_checkpoint(str(out), "int8", tmp_path / "again")
    for existing in (out, tmp_path / "empty", tmp_path / "file", tmp_path / "dangling"):
        if existing.name == "empty":
            existing.mkdir()
        elif existing.name == "file":
            existing.touch()
        elif existing.name == "dangling":
            existing.symlink_to(tmp_path / "nowhere")
        with pytest.raises(BadInputError, match="exists: choose another folder"):
            quantise_checkpoint(source, "int8", existing)
    assert verify(out) == []
    assert not list(tmp_path.glob(".*"))


def test_a_reference_network_wants_the_plain_checkpoint(
    tiny_checkpoint: Tiny, tmp_path: Path
) -> None:
    from cosmos_lite_ros.policy.reference import ReferencePolicy

    out = artifact(tiny_checkpoint("edge"), tmp_path / "out")
    with pytest.raises(CheckpointError, match="artifact of scheme fp8"):
        ReferencePolicy(str(out))


def test_the_command_line(
    tiny_checkpoint: Tiny, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, out = tiny_checkpoint("edge"), tmp_path / "out"
    assert invoke("quantize", source, "--scheme", "int8wo", "--out", out) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    lines = shown.out.splitlines()
    assert lines[0].startswith(f"{out}: edge in int8wo, 2.3 MB from 2.9 MB, 7 tensors left out")
    assert lines[1] == "random weights: its actions mean nothing physically"
    assert invoke("verify", out) == 0
    assert capsys.readouterr().out.startswith(
        f"{out}: edge in int8wo, 10 files, 2.3 MB, all as they were"
    )
    shutil.copy(out / "vae" / "config.json", out / "vae" / "other.json")
    (out / "transformer" / "config.json").unlink()
    done = run("verify", out)
    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        "transformer/config.json is missing",
        "vae/other.json is not in the manifest",
        f"{out}: 2 problems",
    ]
    assert invoke("verify", source) == 2
    assert invoke("quantize", source, "--scheme", "bf16", "--out", tmp_path / "b") == 2
    assert invoke("quantize", source, "--scheme", "fp8", "--out", out) == 2
    if not torch.cuda.is_available():
        options = ("--scheme", "fp8", "--out", tmp_path / "b", "--device", "cuda")
        assert invoke("quantize", source, *options) == 3
    assert names_below(tmp_path) == sorted(f"out/{n}" for n in names_below(out))
