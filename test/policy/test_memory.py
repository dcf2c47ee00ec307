# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What a policy needs: the forecast against what is held, and the peak of a streaming load."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from cosmos_lite_ros.contract.prompt import Family
from cosmos_lite_ros.errors import EnvironmentLacksError
from cosmos_lite_ros.policy import memory
from cosmos_lite_ros.policy.artifact import quantise_checkpoint
from cosmos_lite_ros.policy.checkpoint import CheckpointInfo, TensorFile, inspect
from cosmos_lite_ros.policy.config import parse_config
from cosmos_lite_ros.policy.encoder import encoder_tensors
from cosmos_lite_ros.policy.linears import Linears
from cosmos_lite_ros.policy.memory import (
    check_arithmetic,
    check_free,
    check_memory,
    needed_bytes,
)
from cosmos_lite_ros.policy.profiles import PROFILES
from cosmos_lite_ros.policy.random_checkpoint import (
    RELEASED,
    RELEASED_VAE,
    make_random,
    transformer_shapes,
)
from cosmos_lite_ros.policy.text_tower import TextTower
from cosmos_lite_ros.policy.tiny import _transformer_config
from cosmos_lite_ros.policy.tower import GenerationTower, arena_bytes
from cosmos_lite_ros.quantize.schemes import SCHEMES, role_of

from ..conftest import GOLDEN, REPOSITORY, Figure

CPU = torch.device("cpu")
SCHEMES_PAGE = REPOSITORY / "docs" / "reference" / "schemes.md"
FAMILIES: tuple[Family, ...] = ("edge", "nano")


def released_info(family: Family) -> CheckpointInfo:
    """Headers of a checkpoint of the released sizes; there are no files."""
    from diffusers import AutoencoderKLWan

    info = inspect(str(GOLDEN / family / "checkpoint"))
    vae = {**info.vae_config, **RELEASED_VAE}
    with torch.device("meta"):
        model = AutoencoderKLWan(**{k: v for k, v in vae.items() if k[0] != "_"})
    shapes = {name: tuple(t.shape) for name, t in model.state_dict().items()}
    raw = {**_transformer_config(family), **RELEASED[family]}
    return replace(
        info,
        config=parse_config(raw, "test"),
        transformer_files=(TensorFile(Path("none"), transformer_shapes(family)),),
        vae_files=(TensorFile(Path("none"), shapes),),
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("family", FAMILIES)
def test_the_forecast_is_what_is_held(family: Family, dtype: torch.dtype) -> None:
    info = inspect(str(GOLDEN / family / "checkpoint"))
    tower = GenerationTower.load(info, device=CPU, dtype=dtype)
    encoder = sum(t.numel() for _, t in encoder_tensors(info)) * dtype.itemsize
    fixed = arena_bytes(info.config, dtype) + memory._OVERHEAD_BYTES
    weights = needed_bytes(info, dtype, text_on_gpu=False) - fixed
    # The time embedder stays float32, which the forecast leaves to the overhead.
    longer = sum(t.nbytes - t.numel() * dtype.itemsize for t in tower.heads.time)
    assert weights == tower.nbytes - longer + encoder
    text = TextTower(info, CPU, dtype, "gpu").host_bytes
    both = needed_bytes(info, dtype, text_on_gpu=True) - fixed - weights
    # Matrices start at multiples of 256 bytes.
    assert text - 256 * 20 <= both <= text


@pytest.mark.parametrize("name", [s.name for s in SCHEMES.values() if s.quantised])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_forecast_of_a_scheme_is_what_is_held(
    family: Family, name: str, tmp_path: Path
) -> None:
    """Quantised while loading, and read from an artifact."""
    info = inspect(str(GOLDEN / family / "checkpoint"))
    quantise_checkpoint(str(info.folder), name, tmp_path / "artifact")
    artifact = inspect(str(tmp_path / "artifact"))
    dtype, scheme = torch.bfloat16, SCHEMES[name]
    linears = Linears(scheme, dtype)
    tower = GenerationTower.load(info, device=CPU, dtype=dtype, linears=linears, batch=2)
    longer = sum(t.nbytes - t.numel() * dtype.itemsize for t in tower.heads.time)
    encoder = sum(t.numel() for _, t in encoder_tensors(info)) * dtype.itemsize
    arena = tower.arena.block.nbytes
    held = tower.nbytes - longer + arena + memory._OVERHEAD_BYTES
    found = needed_bytes(info, dtype, text_on_gpu=False, scheme=scheme, batch=2)
    assert found == held + encoder
    assert needed_bytes(artifact, dtype, text_on_gpu=False, batch=2) == found
    away = needed_bytes(artifact, dtype, text_on_gpu=False, batch=2, vae_offload=True)
    assert away == held + max(encoder - arena, 0)
    plain = needed_bytes(info, dtype, text_on_gpu=False) - arena_bytes(info.config, dtype)
    saved = (plain - (found - arena)) / (2 * sum(_quantised_values(info)))
    # Of two bytes a value, less the scales; of the MLP's int4 three quarters.
    assert 0.4 < saved < (0.75 if name == "int4wo" else 0.5)


def _quantised_values(info: CheckpointInfo) -> list[int]:
    shapes = {k: s for file in info.transformer_files for k, s in file.shapes.items()}
    return [torch.Size(s).numel() for k, s in shapes.items() if role_of(k) is not None]


@pytest.mark.parametrize("name", SCHEMES)
def test_the_page_says_what_a_scheme_needs(name: str) -> None:
    """To 10 MB."""
    scheme = SCHEMES[name]
    rows = [r for r in SCHEMES_PAGE.read_text().splitlines() if r.startswith(f"| `{name}` |")]
    stated = [float(cell) for cell in rows[-1].strip("|").split("|")[1:]]
    branches = 2 if scheme.quantises_activations else 1
    for family, gb in zip(FAMILIES, stated, strict=True):
        needed = needed_bytes(
            released_info(family), torch.bfloat16, text_on_gpu=False, scheme=scheme, batch=branches
        )
        assert abs(needed / 1e9 - gb) < 0.012, (family, needed)


@pytest.mark.parametrize("name", [p.name for p in PROFILES.values() if p.device == "cuda"])
def test_profiles_state_what_they_need(name: str) -> None:
    one = PROFILES[name]
    scheme = SCHEMES[one.effective_scheme]
    needed = needed_bytes(
        released_info(one.family),
        torch.bfloat16,
        text_on_gpu=one.text_residency == "gpu",
        scheme=scheme,
        batch=2 if scheme.quantises_activations else 1,
        vae_offload=one.vae_offload == "cpu",
    )
    # Rounded up to 10 MB.
    assert needed <= one.gpu_bytes < needed + 20_000_000, needed
    row = next(r for r in SCHEMES_PAGE.read_text().splitlines() if r.startswith(f"| `{name}`"))
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[2:5] == [f"`{scheme.name}`", one.gpu, f"{one.gpu_bytes / 1e9:.2f} GB"]


# Of the released weights: linears of the generation tower alone, then what must be free at most
# for the policy to be admitted (what a card's ballast test leaves, less a CUDA context).
@pytest.mark.parametrize(
    ("family", "linears", "admitted_bytes", "text_bytes"),
    [("edge", 1_409_286_144, 3.9e9, 3.2e9), ("nano", 6_945_767_424, 15.5e9, 14.9e9)],
)
def test_the_forecast_at_the_released_sizes(
    family: Family, linears: int, admitted_bytes: float, text_bytes: float
) -> None:
    info = released_info(family)
    needed = needed_bytes(info, torch.bfloat16, text_on_gpu=False)
    assert 2 * linears + memory._OVERHEAD_BYTES < needed < admitted_bytes
    text = needed_bytes(info, torch.bfloat16, text_on_gpu=True) - needed
    # The tower without its last layer's queries, output and MLP, with the embedding.
    assert text == pytest.approx(text_bytes, rel=0.03)


def test_too_little_memory_is_refused_with_numbers() -> None:
    gb = 1_000_000_000
    check_free(3 * gb, 3 * gb, 24 * gb, "cuda:0", text_on_gpu=True)
    with pytest.raises(EnvironmentLacksError) as caught:
        check_free(22_310_000_000, 15_870_000_000, 16 * gb, "cuda:1", text_on_gpu=True)
    assert str(caught.value) == (
        "cuda:1 has 15.87 GB free of 16.00, this policy needs about 22.31 GB: close other programs "
        "on it, or try text_residency:=pinned"
    )
    with pytest.raises(EnvironmentLacksError) as caught:
        check_free(3 * gb + 1, 3 * gb, 24 * gb, "cuda:0", text_on_gpu=False)
    # No advice that would not help.
    assert str(caught.value).endswith("3.00 GB: close other programs on it")


def test_the_check_asks_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU's answers are invented: there is none here."""
    info = released_info("edge")
    needed = needed_bytes(info, torch.bfloat16, text_on_gpu=False)
    asked: list[torch.device] = []
    free = [needed - 50_000_000, needed - 1, needed - 1, 1_000_000]

    def mem_get_info(device: torch.device) -> tuple[int, int]:
        asked.append(device)
        return free.pop(0), 8_000_000_000

    # Another engine's memory is not free; what came since is the self-test's, and is.
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: 700_000_000)
    capability = [(8, 6), (7, 5), (9, 0)]
    monkeypatch.setattr(torch.cuda, "mem_get_info", mem_get_info)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability.pop(0))
    gpu = torch.device("cuda:3")
    check_memory(info, gpu, torch.bfloat16, text_on_gpu=False, others=650_000_000)
    says = r"cuda:3 has 3\.\d\d GB free of 8\.00"
    with pytest.raises(EnvironmentLacksError, match=says) as caught:
        check_memory(info, gpu, torch.bfloat16, text_on_gpu=False, others=700_000_000)
    # Of the schemes that Ampere has.
    expected = (
        r"on it, or try scheme int8 \(2\.\d\d GB\) or int8wo \(2\.\d\d GB\) or int4wo \(1\.\d"
    )
    assert re.search(expected, str(caught.value))
    with pytest.raises(EnvironmentLacksError) as caught:
        check_memory(info, gpu, torch.bfloat16, text_on_gpu=False, others=700_000_000)
    assert str(caught.value).endswith("close other programs on it")
    with pytest.raises(EnvironmentLacksError) as caught:
        check_memory(
            info, gpu, torch.bfloat16, text_on_gpu=True, scheme=SCHEMES["fp8"], others=700_000_000
        )
    assert str(caught.value).endswith("close other programs on it, or try text_residency:=pinned")
    assert asked == [gpu] * 4
    check_memory(info, CPU, torch.bfloat16, text_on_gpu=False)
    assert len(asked) == 4


@pytest.mark.parametrize(
    ("scheme", "capability", "family", "end"),
    [
        ("fp8", (8, 6), "edge", "try profile edge_a10g or edge_a10g_int8"),
        ("fp8_fast", (8, 0), "nano", "try profile nano_bf16 or nano_a10g"),
        ("fp8", (11, 0), "nano", "try profile nano_bf16 or nano_a10g"),
        ("int8", (7, 5), "edge", "no GPU profile runs there"),
        ("bf16", (7, 0), "", "no GPU profile runs there"),
    ],
)
def test_arithmetic_that_a_gpu_lacks(
    scheme: str, capability: tuple[int, int], family: str, end: str
) -> None:
    with pytest.raises(EnvironmentLacksError) as caught:
        check_arithmetic(scheme, capability, family)
    message = str(caught.value)
    major, minor = capability
    assert message.startswith(
        f"scheme {scheme} does not run on a GPU of compute capability {major}.{minor}, no "
    )
    assert message.endswith(end)
    assert "\n" not in message


def test_arithmetic_that_gpus_have() -> None:
    for capability in ((8, 9), (9, 0), (10, 0), (12, 0)):
        for scheme in (*SCHEMES, "float32"):
            check_arithmetic(scheme, capability)
    for capability in ((8, 0), (8, 6), (8, 7), (10, 3), (12, 1)):
        for scheme in ("bf16", "int8", "int8wo", "int4wo"):
            check_arithmetic(scheme, capability)
    check_arithmetic("float32", (6, 1))


_LOAD = """
import json, sys, threading, time
import torch
from cosmos_lite_ros.policy.checkpoint import inspect
from cosmos_lite_ros.policy.engine import EngineSettings, PolicyEngine
from cosmos_lite_ros.policy.process import host_anonymous_bytes
from cosmos_lite_ros.policy.strict import check_tensors

info = inspect(sys.argv[1])
check_tensors(info)  # imports what it imports before anything is measured
before = peak = host_anonymous_bytes()
loading = True

def look(*_):
    global peak
    peak = max(peak, host_anonymous_bytes())

def watch():
    while loading:
        look()
        time.sleep(0.0005)

watcher = threading.Thread(target=watch)
watcher.start()
settings = EngineSettings(sys.argv[1], text_residency="pinned", threads=1)
engine = PolicyEngine.load(settings, look)
loading = False
watcher.join()
tensors = [s for f in info.transformer_files + info.vae_files for s in f.shapes.values()]
print(json.dumps({
    "final": engine._runner.tower.nbytes + engine._runner.encoder.nbytes + engine._tower.host_bytes,
    "largest": 4 * max(torch.Size(s).numel() for s in tensors),
    "peak": peak - before,
    "after": host_anonymous_bytes() - before,
}))
"""
# About 130 MB in five files; no tensor is larger than a thirtieth of what stays.
_SIZES = {
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "num_hidden_layers": 5,
}


def test_a_streaming_load_peaks_at_its_final_size_and_one_tensor(
    tmp_path: Path, figure: Figure
) -> None:
    folder = make_random(
        "edge", tmp_path / "edge", sizes=_SIZES, vae_sizes={}, shard_bytes=30_000_000
    )
    try:
        shards = list((folder / "transformer").glob("*-of-*.safetensors"))
        assert len(shards) >= 5
        assert sum(s.stat().st_size for s in shards) > 120_000_000
        done = subprocess.run(
            [sys.executable, "-c", _LOAD, str(folder)],
            capture_output=True,
            text=True,
            timeout=120,
            cwd=REPOSITORY,
        )
    finally:
        shutil.rmtree(folder)
    assert done.returncode == 0, done.stderr
    found = {k: v / 1e6 for k, v in json.loads(done.stdout.splitlines()[-1]).items()}
    megabytes = {k: round(v, 1) for k, v in found.items()}
    figure(f"streaming load, MB: {megabytes}")
    # float32 from bfloat16 files: nothing is a view of the files.
    assert found["after"] > 0.95 * found["final"]
    # Beside the weights: the tokenizer, static buffers, Python objects.
    rest = 12.0
    assert found["peak"] < found["final"] + found["largest"] + rest
    assert found["largest"] < found["final"] / 20
