# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The table of schemes, and which tensors of a checkpoint they touch."""

from __future__ import annotations

import pytest

from cosmos_lite_ros.errors import BadInputError
from cosmos_lite_ros.policy.random_checkpoint import RELEASED, transformer_shapes
from cosmos_lite_ros.quantize.schemes import (
    ROLES,
    SCHEME_NAMES,
    SCHEMES,
    data_shape,
    role_of,
    scale_shape,
    scheme,
)

# name -> weights and activations of qkv, out, up, down; limit
TABLE = {
    "bf16": (["bf16"] * 4, ["bf16"] * 4, 0.0),
    "fp8": (["e4m3"] * 4, ["token"] * 4, 448.0),
    "fp8_fast": (["e4m3"] * 4, ["token"] * 4, 28.0),
    "int8": (["int8"] * 4, ["token", "token", "token", "block"], 127.0),
    "int8wo": (["int8"] * 4, ["bf16"] * 4, 127.0),
    "int4wo": (["int8", "int8", "int4", "int4"], ["bf16"] * 4, 127.0),
}


def test_the_table() -> None:
    assert tuple(TABLE) == SCHEME_NAMES
    for name, (weights, activations, limit) in TABLE.items():
        one = scheme(name)
        assert [one.weights[role] for role in ROLES] == weights
        assert [one.activations[role] for role in ROLES] == activations
        assert one.limit == limit
        assert one.quantised == (name != "bf16")
        assert one.quantises_activations == (name in ("fp8", "fp8_fast", "int8"))
    assert [scheme("int4wo").weight_limit(role) for role in ROLES] == [127, 127, 7, 7]


def test_a_block_of_fp8_fast_stays_below_float16() -> None:
    limit = SCHEMES["fp8_fast"].limit
    assert 64 * limit * limit == 50176 < 65504
    # 28 is a float8 value, so clamping to it is exact.
    assert limit == 1.75 * 2**4


def test_an_unknown_scheme() -> None:
    with pytest.raises(BadInputError, match="scheme is 'fp4', expected one of bf16, fp8, fp8_fast"):
        scheme("fp4")


@pytest.mark.parametrize("family", ["edge", "nano"])
def test_roles_are_the_matrices_of_the_generation_layers(family: str) -> None:
    shapes = transformer_shapes(family)
    roles = {name: role_of(name) for name in shapes}
    found = [name for name, role in roles.items() if role is not None]
    sizes = RELEASED[family]
    per_layer = 6 if family == "edge" else 7
    assert len(found) == per_layer * sizes["num_hidden_layers"]
    assert all(len(shapes[name]) == 2 for name in found)
    # Multiply-accumulates of one token, known from the published sizes.
    total = sum(shapes[name][0] * shapes[name][1] for name in found)
    assert total == {"edge": 1_409_286_144, "nano": 6_945_767_424}[family]
    for name, role in roles.items():
        if role is None and name.startswith("layers.") and len(shapes[name]) == 2:
            assert "moe_gen" not in name
            assert "add_" not in name


def test_names_that_only_look_like_it() -> None:
    for name in (
        "layers.0.self_attn.add_q_proj.weight.scale",
        "layers.0.self_attn.to_q.weight",
        "layers.x.self_attn.add_q_proj.weight",
        "layers.layers.0.self_attn.add_q_proj.weight",
        "self_attn.add_q_proj.weight",
        "layers.0.mlp.up_proj.weight",
        "proj_in.weight",
        "",
    ):
        assert role_of(name) is None, name


def test_stored_shapes() -> None:
    assert data_shape("e4m3", 6, 9216) == data_shape("int8", 6, 9216) == (6, 9216)
    assert data_shape("int4", 6, 9216) == (6, 4608)
    assert scale_shape("e4m3", 6, 9216) == scale_shape("int8", 6, 9216) == (6,)
    assert scale_shape("int4", 6, 9216) == (6, 72)
    assert scale_shape("int4", 6, 96) == (6, 1)
    with pytest.raises(BadInputError, match="even number"):
        data_shape("int4", 6, 97)
