# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Whole requests of the lean engine against the same requests on diffusers' modules, float32.

The recorded cases fix both to the reference server at two settings; here the settings vary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cosmos_lite_ros.contract.observation import Observation
from cosmos_lite_ros.policy import tiny
from cosmos_lite_ros.policy.engine import EngineSettings, PolicyEngine, SamplerSettings
from cosmos_lite_ros.policy.reference import ReferencePolicy
from cosmos_lite_ros.policy.runner import TextSlot
from cosmos_lite_ros.policy.tiny import make_tiny
from cosmos_lite_ros.policy.tower import Branch, GenerationTower
from cosmos_lite_ros.policy.trace import Trace

from ..conftest import Figure

FAMILIES = ("edge", "nano")
LIMIT = 1e-4
VIDEO_LIMIT = 1e-3


Pair = tuple[PolicyEngine, ReferencePolicy]
Maker = Callable[..., Observation]


@pytest.fixture(scope="module", params=FAMILIES)
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pair]:
    """Engine and reference of a tiny checkpoint; its own, since a module's fixture comes first."""
    folder = make_tiny(request.param, tmp_path_factory.mktemp("pair") / request.param)
    engine = PolicyEngine.load(EngineSettings(str(folder)))
    yield engine, ReferencePolicy(str(folder))
    engine.close()


def model_action(chunk: Any) -> np.ndarray:
    """[32, 8] as the network says it: gripper 1 = open."""
    return np.column_stack([chunk.positions, 1.0 - chunk.gripper])


def worst(found: Any, expected: Any) -> float:
    return float(np.abs(np.asarray(found, np.float64) - np.asarray(expected, np.float64)).max())


def count_forwards(engine: PolicyEngine, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """A list that grows by ``video`` with every forward of the generation tower."""
    seen: list[bool] = []
    plain = GenerationTower.forward

    def forward(*args: Any, **options: Any) -> Any:
        seen.append(options["video"])
        return plain(*args, **options)

    monkeypatch.setattr(GenerationTower, "forward", forward)
    return seen


# Settings, and which of the steps are guided.
SETTINGS = [
    (SamplerSettings(1, 3.0), [True]),
    (SamplerSettings(2, 3.0, (960.0, 1001.0)), [True, False]),  # t = 999 833
    (SamplerSettings(3, 2.0, (713.0, 999.0)), [False, True, False]),  # strict: t = 999 908 713
]


@pytest.mark.parametrize(
    "setting", SETTINGS, ids=lambda s: f"{s[0].steps}-{s[0].guidance_interval}"
)
def test_answers_keep(
    setting: tuple[SamplerSettings, list[bool]],
    pair: Pair,
    make_observation: Maker,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine, reference = pair
    (sampler, guided), seed = setting, 7
    seen = make_observation()
    trace = Trace()
    expected = reference.act(seen, sampler, seed, trace)
    assert [not np.isnan(v).any() for v in trace.velocity_uncond] == guided
    forwards = count_forwards(engine, monkeypatch)
    plain = engine.act(seen, sampler=sampler, seed=seed)
    each = [2 if g else 1 for g in guided]
    # Without a preview the last step's forwards leave the video out.
    assert forwards == [True] * sum(each[:-1]) + [False] * each[-1]
    assert worst(model_action(plain), expected[1:]) < LIMIT
    assert plain.predicted_video_latent is None
    if sampler.steps != 2:
        return
    forwards.clear()
    preview = engine.act(seen, sampler=sampler, seed=seed, preview=True)
    assert forwards == [True] * sum(each)
    assert worst(model_action(preview), expected[1:]) < LIMIT
    assert worst(preview.predicted_video_latent, trace.video_latent) < VIDEO_LIMIT
    np.testing.assert_array_equal(
        preview.predicted_video_latent[:, 0], engine._runner.latent_frame0()
    )


def test_every_number_of_steps(
    tmp_path: Path, make_observation: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    # One layer with one head will do: what varies is the way from step to step.
    config, small = tiny._transformer_config, {"num_hidden_layers": 1, "num_attention_heads": 1}
    monkeypatch.setattr(tiny, "_transformer_config", lambda family: {**config(family), **small})
    folder = str(make_tiny("edge", tmp_path / "edge"))
    engine, reference = PolicyEngine.load(EngineSettings(folder)), ReferencePolicy(folder)
    answers = []
    try:
        for steps in range(1, 9):
            sampler, trace, preview = SamplerSettings(steps, 1.0), Trace(), steps in (3, 8)
            expected = reference.act(make_observation(), sampler, 0, trace)
            chunk = engine.act(make_observation(), sampler=sampler, preview=preview)
            answers.append(model_action(chunk))
            assert worst(answers[-1], expected[1:]) < LIMIT, steps
            if preview:
                assert worst(chunk.predicted_video_latent, trace.video_latent) < VIDEO_LIMIT
    finally:
        engine.close()
    # Every number of steps gives a chunk of its own.
    assert min(worst(a, b) for a, b in pairwise(answers)) > 1e-3


def test_one_rotary_table_for_both_branches_is_caught(
    pair: Pair,
    make_observation: Maker,
    monkeypatch: pytest.MonkeyPatch,
    figure: Figure,
) -> None:
    """The mistake is made on purpose: it must not pass for rounding."""
    engine, reference = pair
    sampler = SamplerSettings(1, 3.0)
    seen = make_observation()
    expected = reference.act(seen, sampler, 3)[1:]
    right = worst(model_action(engine.act(seen, sampler=sampler, seed=3)), expected)
    tables: list[Branch] = []
    plain = TextSlot.branch

    def shared(slot: TextSlot, tower: GenerationTower) -> Branch:
        tables.append(plain(slot, tower))
        return replace(tables[-1], cos=tables[0].cos, sin=tables[0].sin)

    monkeypatch.setattr(TextSlot, "branch", shared)
    wrong = worst(model_action(engine.act(seen, sampler=sampler, seed=3)), expected)
    assert len(tables) == 2
    assert tables[0].length != tables[1].length
    figure(f"tables of both branches: {right:.1e}; one for both: {wrong:.1e}")
    assert right < LIMIT
    assert wrong > 100 * LIMIT
