# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The text tower against the reference network, and its residencies against each other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cosmos_lite_ros.errors import BadInputError, CheckpointError, EnvironmentLacksError
from cosmos_lite_ros.policy.checkpoint import CheckpointInfo, TensorFile, inspect
from cosmos_lite_ros.policy.network import PolicyNetwork
from cosmos_lite_ros.policy.text_tower import TextKV, TextTower, text_matrices
from cosmos_lite_ros.policy.text_weights import Place, aligned, ring_places

FAMILIES = ("edge", "nano")
DTYPES = (torch.float32, torch.bfloat16)
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def info(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], CheckpointInfo]:
    """A checkpoint of three layers: one more than tiny, so that a middle layer exists."""
    made: dict[str, CheckpointInfo] = {}

    def make(family: str) -> CheckpointInfo:
        if family not in made:
            folder = make_deep(family, tmp_path_factory.mktemp("deep") / family)
            made[family] = inspect(str(folder))
        return made[family]

    return make


def make_deep(family: str, out: Path) -> Path:
    """A tiny checkpoint with three layers, four query heads and two KV heads."""
    from cosmos_lite_ros.policy import tiny

    sizes = {"num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2}
    original = tiny._transformer_config
    try:
        tiny._transformer_config = lambda f: {**original(f), **sizes}
        return tiny.make_tiny(family, out)
    finally:
        tiny._transformer_config = original


def tokens(length: int, seed: int = 0) -> list[int]:
    """Token ids of a prompt."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 448, (length,), generator=generator).tolist()


def same(a: TextKV, b: TextKV) -> bool:
    """Whether two results are equal bit for bit."""
    return a.length == b.length and torch.equal(a.keys, b.keys) and torch.equal(a.values, b.values)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("family", FAMILIES)
def test_equals_the_reference_network(
    family: str, dtype: torch.dtype, info: Callable[[str], CheckpointInfo]
) -> None:
    network = PolicyNetwork.load(info(family), device=CPU, dtype=dtype)
    tower = TextTower(info(family), CPU, dtype)
    for length in (1, 10, 95, 141):
        expected = network.text_cache(tokens(length))
        found = tower.compute(tokens(length))
        assert found.keys.shape == (3, 2, length, 128)
        assert found.keys.dtype == found.values.dtype == dtype
        assert found.keys.is_contiguous()
        assert found.values.is_contiguous()
        assert found.nbytes == 2 * 3 * 2 * length * 128 * dtype.itemsize
        for layer in range(3):
            assert torch.equal(found.keys[layer], expected.keys[layer][0])
            assert torch.equal(found.values[layer], expected.values[layer][0])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("family", FAMILIES)
def test_residencies_are_equal(
    family: str, dtype: torch.dtype, info: Callable[[str], CheckpointInfo]
) -> None:
    ids = tokens(77)
    expected = TextTower(info(family), CPU, dtype, "gpu").compute(ids)
    largest = max(m.nbytes(dtype) for m in text_matrices(info(family)))
    lent = torch.empty(5 * largest, dtype=torch.uint8)
    asked: list[int] = []

    def scratch(nbytes: int, size: int) -> Tensor:
        asked.append(nbytes)
        # Rubbish from before must not show.
        return lent[:size].fill_(255)

    for residency in ("pinned", "mmap"):
        assert same(TextTower(info(family), CPU, dtype, residency).compute(ids), expected)
        for size in (largest + 256, 2 * largest, 5 * largest):
            tower = TextTower(
                info(family), CPU, dtype, residency, lambda n, size=size: scratch(n, size)
            )
            assert same(tower.compute(ids), expected)
            assert same(tower.compute(ids), expected)
        assert same(
            TextTower(info(family), CPU, dtype, residency, lambda n: None).compute(ids), expected
        )
    assert len(asked) == 12
    assert set(asked) == {2 * aligned(largest) + 256}


def test_a_small_or_odd_scratch_is_refused(info: Callable[[str], CheckpointInfo]) -> None:
    for lent in (torch.empty(1000, dtype=torch.uint8), torch.empty(10**6)):
        tower = TextTower(info("edge"), CPU, torch.float32, "mmap", lambda n, lent=lent: lent)
        with pytest.raises(ValueError, match="scratch memory is"):
            tower.compute(tokens(3))


def test_the_prompt_alone_and_its_order_decide(info: Callable[[str], CheckpointInfo]) -> None:
    tower = TextTower(info("nano"), CPU, torch.float32)
    ids = tokens(20)
    first = tower.compute(ids)
    tower.compute(tokens(33, 1))
    assert same(tower.compute(ids), first)
    other = tower.compute([*ids[:-1], (ids[-1] + 1) % 448])
    assert torch.equal(other.keys[:, :, :-1], first.keys[:, :, :-1])  # causal
    assert not torch.equal(other.keys[:, :, -1], first.keys[:, :, -1])


def test_resident_bytes(info: Callable[[str], CheckpointInfo]) -> None:
    for dtype in DTYPES:
        matrices = sum(m.nbytes(dtype) for m in text_matrices(info("edge")))
        small = 3 * (128 + 128) * dtype.itemsize + 2 * 128 * dtype.itemsize
        embedding = 448 * 128 * dtype.itemsize
        by = {r: TextTower(info("edge"), CPU, dtype, r) for r in ("gpu", "pinned", "mmap", "none")}
        assert {r: t.device_bytes for r, t in by.items()} == dict.fromkeys(by, 0)
        assert {r: t.host_bytes for r, t in by.items()} == {
            "gpu": matrices + small + embedding,
            "pinned": matrices + small,
            "mmap": small,
            "none": 0,
        }
        by["gpu"].close()
        assert by["gpu"].host_bytes == 0
        with pytest.raises(RuntimeError, match="closed"):
            by["gpu"].compute(tokens(9))
        lean = TextTower(info("edge"), CPU, dtype, "gpu", embedding_on_device=False)
        assert lean.host_bytes == matrices + small
        assert same(lean.compute(tokens(9)), by["pinned"].compute(tokens(9)))


def test_none_refuses_in_one_line_with_the_remedy(info: Callable[[str], CheckpointInfo]) -> None:
    tower = TextTower(info("edge"), CPU, torch.bfloat16, "none")
    with pytest.raises(EnvironmentLacksError) as caught:
        tower.compute(tokens(5))
    assert "prewarm" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_bad_input(info: Callable[[str], CheckpointInfo]) -> None:
    with pytest.raises(BadInputError, match="text_residency is 'disk'"):
        TextTower(info("edge"), CPU, torch.float32, "disk")
    for residency in ("gpu", "mmap"):
        tower = TextTower(info("edge"), CPU, torch.float32, residency)
        for ids in ([], [448], [-1]):
            with pytest.raises(BadInputError, match="token ids"):
                tower.compute(ids)


def without(info: CheckpointInfo, name: str, shape: tuple[int, ...] | None) -> CheckpointInfo:
    """Headers that lack a tensor, or give it another shape."""

    def changed(file: TensorFile) -> TensorFile:
        shapes: dict[str, Any] = {k: v for k, v in file.shapes.items() if k != name}
        if shape is not None and name in file.shapes:
            shapes[name] = shape
        return TensorFile(file.path, shapes)

    return replace(info, transformer_files=tuple(map(changed, info.transformer_files)))


@pytest.mark.parametrize("residency", ["gpu", "mmap"])
def test_a_foreign_tensor_is_refused(residency: Any, info: Callable[[str], CheckpointInfo]) -> None:
    name = "layers.1.mlp.up_proj.weight"
    with pytest.raises(CheckpointError, match=f"{name} is missing"):
        TextTower(without(info("edge"), name, None), CPU, torch.float32, residency)
    with pytest.raises(CheckpointError, match=rf"{name} is \[96, 64\].*says \[96, 128\]"):
        TextTower(without(info("edge"), name, (96, 64)), CPU, torch.float32, residency)


def test_open_files_stay_those_of_the_load(tmp_path: Path) -> None:
    from cosmos_lite_ros.policy.tiny import make_tiny

    folder = make_tiny("edge", tmp_path / "tiny")
    tower = TextTower(inspect(str(folder)), CPU, torch.float32, "mmap")
    before = tower.compute(tokens(12))
    make_tiny("edge", folder, seed=1)
    assert same(tower.compute(tokens(12)), before)
    other = TextTower(inspect(str(folder)), CPU, torch.float32, "mmap").compute(tokens(12))
    assert not torch.equal(other.keys, before.keys)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(1, 50), min_size=1, max_size=40), st.integers(0, 120))
def test_no_block_is_overwritten_before_its_use(sizes: list[int], spare: int) -> None:
    capacity = max(sizes) + spare
    places = ring_places(sizes, capacity)
    for i, (place, size) in enumerate(zip(places, sizes, strict=True)):
        assert 0 <= place.start <= place.start + size <= capacity
        assert place.after < i
        for j in range(place.after + 1, i):
            apart = (
                places[j].start + sizes[j] <= place.start or place.start + size <= places[j].start
            )
            assert apart


def test_two_blocks_of_memory_let_a_copy_run_ahead() -> None:
    assert ring_places([4, 4, 4, 4], 8) == [Place(0, -1), Place(4, -1), Place(0, 0), Place(4, 1)]
    assert ring_places([4, 4], 4) == [Place(0, -1), Place(0, 0)]


@pytest.mark.gpu
@pytest.mark.parametrize("family", FAMILIES)
def test_residencies_are_equal_on_a_gpu(family: str, info: Callable[[str], CheckpointInfo]) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA GPU")
    cuda = torch.device("cuda")
    network = PolicyNetwork.load(info(family), device=cuda, dtype=torch.bfloat16)
    for length in (10, 141):
        expected = network.text_cache(tokens(length))
        for residency in ("gpu", "pinned", "mmap"):
            tower = TextTower(info(family), cuda, torch.bfloat16, residency)
            for _ in range(3):
                found = tower.compute(tokens(length))
                assert torch.equal(found.keys, torch.cat(expected.keys))
                assert torch.equal(found.values, torch.cat(expected.values))
            tower.close()
