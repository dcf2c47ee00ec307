# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The static generation tower against diffusers' network, and against itself."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from cosmos_lite_ros.policy.checkpoint import inspect, read_tensors
from cosmos_lite_ros.policy.config import NetworkConfig
from cosmos_lite_ros.policy.layout import (
    ACTION_CHANNELS,
    ACTION_TOKENS,
    FRAME_TOKENS,
    GENERATION_TOKENS,
    VISION_TOKENS,
    unpatchify,
)
from cosmos_lite_ros.policy.linears import Linears, Rows
from cosmos_lite_ros.policy.network import PolicyNetwork
from cosmos_lite_ros.policy.tower import (
    MAX_TEXT,
    PATCH_CHANNELS,
    Branch,
    GenerationTower,
    arena_bytes,
    patch_mask,
)
from cosmos_lite_ros.policy.tower_weights import Builder, Layer
from cosmos_lite_ros.quantize.schemes import SCHEMES

from ..conftest import GOLDEN

FAMILIES = ("edge", "nano")
CPU = torch.device("cpu")
TIMESTEP = 833.0


@cache
def load_tower(family: str, dtype: torch.dtype = torch.float32) -> GenerationTower:
    info = inspect(str(GOLDEN / family / "checkpoint"))
    return GenerationTower.load(info, device=CPU, dtype=dtype)


@cache
def load_network(family: str, dtype: torch.dtype = torch.float32) -> PolicyNetwork:
    info = inspect(str(GOLDEN / family / "checkpoint"))
    return PolicyNetwork.load(info, device=CPU, dtype=dtype)


def make_inputs(dtype: torch.dtype = torch.float32, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Vision patches [3060, 192], the padded latent row zero, and rows [33, 64], 8 columns used."""
    generator = torch.Generator().manual_seed(seed)
    vision = torch.randn(VISION_TOKENS, PATCH_CHANNELS, generator=generator)
    vision = (vision.view(-1, FRAME_TOKENS, PATCH_CHANNELS) * patch_mask(CPU)).view(vision.shape)
    rows = torch.randn(ACTION_TOKENS, ACTION_CHANNELS, generator=generator)
    rows[:, 8:] = 0.0
    return vision.to(dtype), rows.to(dtype)


def make_branch(tower: GenerationTower, length: int, seed: int = 0) -> Branch:
    """A branch of random keys and values."""
    c = tower.config
    generator = torch.Generator().manual_seed(seed)
    shape = (c.layers, c.kv_heads, length, c.head_dim)
    keys, values = (torch.randn(shape, generator=generator).to(tower.dtype) for _ in range(2))
    return tower.branch(keys, values)


def worst(found: Tensor, expected: Tensor) -> float:
    return float((found.double() - expected.double()).abs().max())


def one_layer(tower: GenerationTower) -> GenerationTower:
    """The same tower cut after its first layer."""
    config = replace(tower.config, layers=1)
    return GenerationTower(config, tower.layers[:1], tower.heads, CPU, tower.dtype)


@torch.inference_mode()
def run(tower: GenerationTower, branch: Branch, *, video: bool = True) -> tuple[Tensor, Tensor]:
    time = tower.time_embedding(TIMESTEP)
    ((moved, velocity),) = tower.forward(*make_inputs(tower.dtype), time, branch, video=video)
    return (torch.empty(0) if moved is None else moved), velocity


@pytest.mark.parametrize("family", FAMILIES)
@torch.inference_mode()
def test_forward_equals_the_reference_network(family: str) -> None:
    tower, network = load_tower(family), load_network(family)
    text = network.text_cache(list(range(40, 67)))
    vision, rows = make_inputs()
    expected = network.forward(unpatchify(vision), rows, TIMESTEP, text)
    moved, velocity = run(tower, tower.branch(torch.cat(text.keys), torch.cat(text.values)))
    assert worst(unpatchify(moved), expected.video) < 1e-5
    assert worst(velocity, expected.action) < 1e-5
    assert float(velocity[:, :8].std()) > 0.1


@pytest.mark.parametrize("family", FAMILIES)
@torch.inference_mode()
def test_bfloat16_forward_is_near_the_reference_network(family: str) -> None:
    tower, network = load_tower(family, torch.bfloat16), load_network(family, torch.bfloat16)
    text = network.text_cache(list(range(40, 152)))
    vision, rows = make_inputs(torch.bfloat16)
    expected = network.forward(unpatchify(vision), rows, TIMESTEP, text)
    moved, velocity = run(tower, tower.branch(torch.cat(text.keys), torch.cat(text.values)))
    pairs = ((unpatchify(moved), expected.video), (velocity[:, :8], expected.action[:, :8]))
    for found, wanted in pairs:
        assert found.dtype == torch.bfloat16
        error = torch.linalg.vector_norm(found.float() - wanted.float())
        assert float(error / torch.linalg.vector_norm(wanted.float())) < 0.02


@pytest.mark.parametrize("family", FAMILIES)
def test_pruned_last_layer_equals_the_whole_one(family: str) -> None:
    tower = load_tower(family)
    branch = make_branch(tower, 33)
    moved, whole = run(tower, branch)
    nothing, pruned = run(tower, branch, video=False)
    assert moved.shape == (VISION_TOKENS - FRAME_TOKENS, PATCH_CHANNELS)
    assert nothing.numel() == 0
    assert whole.shape == pruned.shape == (ACTION_TOKENS - 1, ACTION_CHANNELS)
    assert worst(pruned, whole) < 1e-5


def plain_attention(tower: GenerationTower, h: Tensor, branch: Branch, i: int) -> Tensor:
    """Grouped attention of layer i as it is usually written, in float64: [3093, heads * d]."""
    c, layer, n = tower.config, tower.layers[i], h.shape[0]
    group = c.heads // c.kv_heads
    qkv = h.double() @ layer.qkv.double().t()
    heads = qkv.view(n, c.heads + 2 * c.kv_heads, c.head_dim).transpose(0, 1)
    q, k, v = heads.split([c.heads, c.kv_heads, c.kv_heads])
    cos, sin = (torch.cat([t, t], dim=-1).double() for t in (branch.cos, branch.sin))

    def norm_and_rotate(x: Tensor, gain: Tensor) -> Tensor:
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + c.rms_norm_eps) * gain.double()
        low, high = x.chunk(2, dim=-1)
        return x * cos + torch.cat([-high, low], dim=-1) * sin

    q, k = norm_and_rotate(q, layer.norm_q), norm_and_rotate(k, layer.norm_k)
    out = []
    for head in range(c.heads):
        keys = torch.cat([branch.keys[i, head // group].double(), k[head // group]])
        values = torch.cat([branch.values[i, head // group].double(), v[head // group]])
        weights = torch.softmax(q[head] @ keys.t() / c.head_dim**0.5, dim=-1)
        out.append(weights @ values)
    return torch.cat(out, dim=-1)


@pytest.mark.parametrize("family", FAMILIES)
@torch.inference_mode()
def test_folded_queries_equal_plain_grouped_attention(family: str) -> None:
    tower = load_tower(family)
    assert (tower.config.heads, tower.config.kv_heads) == (4, 2)
    branch = make_branch(tower, 19)
    h = torch.randn(GENERATION_TOKENS, tower.config.hidden, generator=torch.manual_seed(1))
    tower.arena.reset()
    found = tower._attend(tower.layers[1], Rows(h), (branch,), 1, 0).data.clone()
    expected = plain_attention(tower, h, branch, 1)
    assert worst(found, expected) < 1e-5
    # Query heads of another key head would be far away.
    swapped = expected.view(-1, 2, 2, tower.config.head_dim).transpose(1, 2).reshape(found.shape)
    assert worst(found, swapped) > 1e-2
    tower.arena.reset()
    actions = tower._attend(tower.layers[1], Rows(h), (branch,), 1, VISION_TOKENS).data
    assert worst(actions, expected[VISION_TOKENS:]) < 1e-5


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_folding_changes_no_bit(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(3)
    group, n = 2, 700
    q = torch.randn(1, 2 * group, n, 128, generator=generator).to(dtype)
    k, v = (torch.randn(1, 2, n + 50, 128, generator=generator).to(dtype) for _ in range(2))
    plain = functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)
    folded = q.view(1, 2, group, n, 128).transpose(2, 3).reshape(1, 2, n * group, 128)
    folded = functional.scaled_dot_product_attention(folded, k, v)
    back = folded.view(1, 2, n, group, 128).transpose(2, 3).reshape(q.shape)
    torch.testing.assert_close(back, plain, rtol=0, atol=1e-6 if dtype == torch.float32 else 4e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("family", FAMILIES)
@torch.inference_mode()
def test_what_was_in_the_arena_does_not_matter(family: str, dtype: torch.dtype) -> None:
    tower = one_layer(load_tower(family, dtype))
    branch = make_branch(tower, 21)
    answers = []
    for rubbish in (0, 255):  # 0xFF.. is a NaN in both dtypes
        tower.arena.block.fill_(rubbish)
        answers.append(run(tower, branch))
    for first, second in zip(*answers, strict=True):
        assert bool(torch.isfinite(first).all())
        assert torch.equal(first, second)


def wide_tower(family: str, inner: int) -> GenerationTower:
    """One layer of a golden tower with another MLP width, random in the MLP."""
    tower = one_layer(load_tower(family))
    config: NetworkConfig = replace(
        tower.config, raw={**tower.config.raw, "intermediate_size": inner}
    )
    hidden = config.hidden
    gate = inner if family == "nano" else 0
    up = torch.randn(gate + inner, hidden, generator=torch.manual_seed(5)) * hidden**-0.5
    down = torch.randn(hidden, inner, generator=torch.manual_seed(6)) * inner**-0.5
    layers: tuple[Layer, ...] = tuple(replace(x, up=up, down=down) for x in tower.layers)
    return GenerationTower(config, layers, tower.heads, CPU, torch.float32)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_arena_is_large_enough_for_the_longest_text_and_a_wide_mlp(family: str) -> None:
    tower = one_layer(load_tower(family))
    assert tower.arena.block.numel() == arena_bytes(tower.config, torch.float32)
    run(tower, make_branch(tower, MAX_TEXT))
    with pytest.raises(AssertionError, match="arena of"):
        run(tower, make_branch(tower, MAX_TEXT + 64))
    wide = wide_tower(family, 3072 if family == "edge" else 1024)
    # The MLP decides now.
    assert wide.arena.block.numel() > tower.arena.block.numel()
    assert bool(torch.isfinite(run(wide, make_branch(wide, 5))[1]).all())


@pytest.mark.parametrize("family", FAMILIES)
def test_time_embedding_equals_the_reference_network(family: str) -> None:
    for dtype in (torch.float32, torch.bfloat16):
        tower, network = load_tower(family, dtype), load_network(family, dtype)
        for timestep in (999.0, 833.0, 123.0):
            with torch.inference_mode():
                found = tower.time_embedding(timestep)
                expected = network.time_embedding(timestep)
            assert found.dtype == dtype
            # One rounding of the dtype at most.
            limit = 1e-6 if dtype == torch.float32 else 2**-8
            assert worst(found, expected) <= limit * float(expected.abs().max())


@pytest.mark.parametrize("family", FAMILIES)
def test_tensors_may_come_in_any_order(family: str) -> None:
    info = inspect(str(GOLDEN / family / "checkpoint"))
    tower = load_tower(family)
    builder = Builder(info.config, CPU, torch.float32)
    for name, tensor in reversed(list(read_tensors(info.transformer_files))):
        builder.put(name, tensor)
    layers, heads = builder.finish()
    for found, expected in ((layers, tower.layers), ((heads,), (tower.heads,))):
        for a, b in zip(found, expected, strict=True):
            for name, value in vars(a).items():
                other = vars(b)[name]
                for x, y in zip(
                    *(t if isinstance(t, tuple) else (t,) for t in (value, other)), strict=True
                ):
                    assert torch.equal(x, y), name


def test_patch_mask_names_the_padded_latent_row() -> None:
    inside = unpatchify(patch_mask(CPU))
    assert inside.shape == (1, 48, 1, 33, 40)
    assert bool((inside == 1).all())
    assert int(patch_mask(CPU).sum()) == 48 * 33 * 40


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("video", [True, False], ids=["video", "pruned"])
@torch.inference_mode()
def test_both_branches_in_one_pass_equal_one_after_the_other(family: str, video: bool) -> None:
    alone = load_tower(family)
    both = GenerationTower(alone.config, alone.layers, alone.heads, CPU, alone.dtype, batch=2)
    branches = make_branch(alone, 33, seed=1), make_branch(alone, 12, seed=2)
    time, inputs = alone.time_embedding(TIMESTEP), make_inputs()
    found = both.forward(*inputs, time, *branches, video=video)
    assert len(found) == 2
    for branch, (moved, velocity) in zip(branches, found, strict=True):
        ((other_moved, other_velocity),) = alone.forward(*inputs, time, branch, video=video)
        assert worst(velocity, other_velocity) < 1e-5
        if moved is None or other_moved is None:
            assert moved is None
            assert other_moved is None
            assert not video
        else:
            assert worst(moved, other_moved) < 1e-5
    assert worst(found[0][1], found[1][1]) > 1e-3


@pytest.mark.parametrize("family", FAMILIES)
@torch.inference_mode()
def test_int8_scores_are_near_plain_attention(family: str) -> None:
    plain = load_tower(family)
    tower = GenerationTower(
        plain.config, plain.layers, plain.heads, CPU, plain.dtype, attention="int8qk"
    )
    branch = make_branch(plain, 33)
    for found, expected in zip(run(tower, branch), run(plain, branch), strict=True):
        error = torch.linalg.vector_norm(found - expected) / torch.linalg.vector_norm(expected)
        assert 1e-5 < float(error) < 0.02


@pytest.mark.parametrize("family", FAMILIES)
@torch.inference_mode()
def test_both_branches_in_one_pass_equal_one_after_the_other_quantised(family: str) -> None:
    """The first layer is computed once for both."""
    info = inspect(str(GOLDEN / family / "checkpoint"))
    linears = Linears(SCHEMES["int8"], torch.float32)
    alone, both = (
        GenerationTower.load(info, device=CPU, dtype=torch.float32, linears=linears, batch=batch)
        for batch in (1, 2)
    )
    branches = make_branch(alone, 33, seed=1), make_branch(alone, 12, seed=2)
    time, inputs = alone.time_embedding(TIMESTEP), make_inputs()
    found = both.forward(*inputs, time, *branches, video=False)
    for branch, (_, velocity) in zip(branches, found, strict=True):
        ((_, other),) = alone.forward(*inputs, time, branch, video=False)
        # A last bit of float32 can turn a value's int8.
        assert float((velocity - other).norm() / other.norm()) < 2e-3
