# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Mistakes that the quality gate must find, made on purpose in a loaded engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from cosmos_lite_ros.policy.engine import PolicyEngine
from cosmos_lite_ros.policy.runner import TextSlot
from cosmos_lite_ros.policy.tower import Branch
from cosmos_lite_ros.quantize.matrix import QuantisedMatrix

Undo = Callable[[], None]
OTHER_EPS = {"edge": 1e-6, "nano": 1e-5}


def scale_error(engine: PolicyEngine, part: str, factor: float = 1.02, layer: int = 1) -> Undo:
    """One matrix of one layer is off by a factor; quantised: its scales are."""
    tower = engine._runner.tower
    right = tower.layers

    def wrong(matrix: Any) -> Any:
        if isinstance(matrix, QuantisedMatrix):
            return replace(matrix, scale=matrix.scale * factor)
        return (matrix.float() * factor).to(matrix.dtype)

    tower.layers = tuple(
        replace(one, **{part: wrong(getattr(one, part))}) if i == layer else one
        for i, one in enumerate(right)
    )

    def undo() -> None:
        tower.layers = right

    return undo


def not_a_number(engine: PolicyEngine) -> Undo:
    """One norm gain of the last layer is a NaN."""
    tower = engine._runner.tower
    right = tower.layers
    gain = right[-1].norm_post.clone()
    gain[5] = float("nan")
    tower.layers = (*right[:-1], replace(right[-1], norm_post=gain))

    def undo() -> None:
        tower.layers = right

    return undo


def swapped_scales(engine: PolicyEngine) -> Undo:
    """The scales of the keys' rows and of the values' rows are exchanged in every layer."""
    tower = engine._runner.tower
    right, c = tower.layers, tower.config
    first, size = c.heads * c.head_dim, c.kv_heads * c.head_dim

    def wrong(matrix: Any) -> Any:
        assert isinstance(matrix, QuantisedMatrix)
        scale = matrix.scale.clone()
        scale[first : first + size] = matrix.scale[first + size :]
        scale[first + size :] = matrix.scale[first : first + size]
        return replace(matrix, scale=scale)

    tower.layers = tuple(replace(one, qkv=wrong(one.qkv)) for one in right)

    def undo() -> None:
        tower.layers = right

    return undo


def stale_text(engine: PolicyEngine, *, length: bool = True) -> Undo:
    """The first instruction's keys and values stay; without ``length`` its length does not."""
    right = TextSlot.fill

    def wrong(slot: TextSlot, keys: Any, values: Any) -> None:
        if not slot.length:
            right(slot, keys, values)
        elif not length:
            slot.length = int(keys.shape[2])

    slot = engine._slot
    slot.fill = wrong.__get__(slot)  # type: ignore[method-assign]

    def undo() -> None:
        del slot.fill
        engine._slot_ids = ()

    return undo


def other_eps(engine: PolicyEngine) -> Undo:
    """The norms' epsilon of the other family."""
    tower = engine._runner.tower
    right = tower.config
    tower.config = replace(right, rms_norm_eps=OTHER_EPS[right.family])

    def undo() -> None:
        tower.config = right

    return undo


def one_rotary_table(engine: PolicyEngine) -> Undo:
    """The unconditional branch rotates with the table of the conditional one's text length."""
    runner = engine._runner
    right = runner._branches

    def wrong(*arguments: Any) -> tuple[Branch, Branch | None]:
        text, uncond = right(*arguments)
        return text, uncond and replace(uncond, cos=text.cos, sin=text.sin)

    runner._branches = wrong  # type: ignore[method-assign]

    def undo() -> None:
        del runner._branches

    return undo
