# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Guided rows: they continue what is given, the rest follows continuously, the clip is needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cosmos_lite_ros.errors import BadInputError
from cosmos_lite_ros.policy import runner
from cosmos_lite_ros.policy.engine import EngineSettings, PolicyEngine, SamplerSettings
from cosmos_lite_ros.policy.prefix import prefix_table, pull, step_weights
from cosmos_lite_ros.policy.runner import Key

Tiny = Callable[[str], Path]
Maker = Callable[..., Any]
TWO, ONE = SamplerSettings(), SamplerSettings(steps=1, guidance=1.0)
D = 5


@pytest.fixture(scope="module")
def engine(tiny_checkpoint: Tiny) -> Iterator[PolicyEngine]:
    made = PolicyEngine.load(EngineSettings(str(tiny_checkpoint("edge")), sampler=TWO))
    yield made
    made.close()


def given(n: int = D, offset: float = 0.0) -> np.ndarray:
    """Rows of an arm that moves, rad [n, 7]."""
    return np.linspace(-0.4, 0.8, 7) + offset + 0.02 * np.arange(n)[:, None]


# The table and the weights


def test_weights_are_clipped_where_a_step_would_overshoot() -> None:
    assert step_weights(TWO) == pytest.approx((6.0, 1.2), abs=0.003)
    assert step_weights(ONE) == pytest.approx((1.0002,), abs=1e-5)
    # With more steps the bound is far, and the published weight is what it is.
    many = step_weights(SamplerSettings(steps=8))
    t = 1 - 5 * (0.999 / 8) / (1 + 4 * 0.999 / 8)
    assert many[-1] == pytest.approx((t * t + (1 - t) ** 2) / (t * (1 - t)), rel=1e-5)
    assert many[-1] < 1 / (1 - t)


def test_the_table_holds_rows_and_fading_weights() -> None:
    table = prefix_table(given(7), 3)
    assert (table.shape, table.dtype) == ((33, 8), np.float32)
    np.testing.assert_array_equal(table[1:8, :7], given(7).astype(np.float32))
    assert not table[0].any()
    assert not table[8:].any()
    c = np.array([1, 1, 1, 1, 0.75, 0.5, 0.25])
    expected = c * (np.exp(c) - 1) / (np.e - 1)
    np.testing.assert_allclose(table[1:8, 7], expected, rtol=1e-6)
    assert (prefix_table(given(31))[1:32, 7] == 1).all()


@pytest.mark.parametrize(
    ("rows", "fade", "words"),
    [
        (np.zeros((0, 7)), 0, "shape [0, 7], expected 1 to 31 rows of 7"),
        (np.zeros((32, 7)), 0, "shape [32, 7]"),
        (np.zeros((5, 8)), 0, "shape [5, 8]"),
        (np.zeros(7), 0, "shape [7]"),
        (np.full((2, 7), np.nan), 0, "not finite"),
        (np.zeros((2, 7)), 3, "3 rows of the prefix fade, expected 0 to its 2 rows"),
    ],
)
def test_a_bad_prefix_is_refused(
    engine: PolicyEngine, make_observation: Maker, rows: np.ndarray, fade: int, words: str
) -> None:
    with pytest.raises(BadInputError) as error:
        engine.act(make_observation(), prefix=rows, prefix_fade_rows=fade)
    assert words in str(error.value)


def test_only_joints_are_pulled() -> None:
    generator = torch.Generator().manual_seed(3)
    x, velocity = (torch.randn(33, 64, generator=generator) for _ in range(2))
    table = torch.from_numpy(prefix_table(given()))
    found = pull(x, velocity, 0.5, 2.0, table)
    moved = found != velocity
    assert moved[1 : D + 1, :7].all()
    moved[1 : D + 1, :7] = False
    assert not moved.any()
    # sigma w = 1: x0 is where the prefix is.
    torch.testing.assert_close((x - 0.5 * found)[1 : D + 1, :7], table[1 : D + 1, :7])


def test_a_graph_with_and_one_without_are_two() -> None:
    assert Key(1, 1, TWO, False, True) != Key(1, 1, TWO, False)


# Whole requests


@pytest.mark.parametrize(
    ("sampler", "within_rad"),
    [(ONE, 1e-5), (TWO, 1e-5), (SamplerSettings(steps=4), 1e-5), (SamplerSettings(steps=8), 0.2)],
    ids=lambda value: f"{value.steps} steps" if isinstance(value, SamplerSettings) else "",
)
def test_the_first_rows_continue_the_prefix(
    engine: PolicyEngine, make_observation: Maker, sampler: SamplerSettings, within_rad: float
) -> None:
    plain = engine.act(make_observation(), sampler=sampler).positions
    found = engine.act(make_observation(), sampler=sampler, prefix=given()).positions
    far = np.abs(plain[:D] - given()).max()
    assert far > 0.5
    # With 8 steps the last weight is below the bound: seven eighths of the way.
    assert np.abs(found[:D] - given()).max() < within_rad * far
    assert np.abs(found[D:] - given(32)[D:]).max() > 0.5


def test_one_step_is_a_cross_fade_of_outputs(engine: PolicyEngine, make_observation: Maker) -> None:
    plain = engine.act(make_observation(), sampler=ONE)
    rows = given(9)
    found = engine.act(make_observation(), sampler=ONE, prefix=rows, prefix_fade_rows=4)
    weight = prefix_table(rows, 4)[1:10, 7:]
    expected = plain.positions.copy()
    expected[:9] += weight * (rows - expected[:9])
    np.testing.assert_allclose(found.positions, expected, atol=1e-5)
    np.testing.assert_array_equal(found.positions[9:], plain.positions[9:])
    np.testing.assert_array_equal(found.gripper, plain.gripper)


def test_other_rows_change_continuously(engine: PolicyEngine, make_observation: Maker) -> None:
    def rows(offset: float) -> np.ndarray:
        return engine.act(make_observation(), prefix=given(offset=offset)).positions[D:]

    first, near, far = (rows(offset) for offset in (0.0, 1.0, 2.0))
    small, large = np.abs(near - first).max(), np.abs(far - first).max()
    # They do follow, far less than one to one, and in proportion.
    assert 1e-5 < small < 0.01
    assert large == pytest.approx(2 * small, rel=0.2)


def test_without_the_clip_the_last_step_overshoots_four_fold(
    engine: PolicyEngine, make_observation: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rows(*weights: float) -> np.ndarray:
        monkeypatch.setattr(runner, "step_weights", lambda sampler: weights)
        return engine.act(make_observation(), prefix=given()).positions[:D]

    free = rows(5.0, 0.0)
    np.testing.assert_allclose((rows(5.0, 5.0) - free) / (given() - free), 4.165, rtol=1e-3)
    np.testing.assert_allclose(rows(5.0, step_weights(TWO)[1]), given(), atol=1e-5)


def test_without_a_prefix_nothing_has_changed(
    engine: PolicyEngine, make_observation: Maker
) -> None:
    before = engine.act(make_observation()).as_array().tobytes()
    guided = [engine.act(make_observation(), prefix=given(n)).as_array() for n in (5, 9, 5)]
    assert guided[0].tobytes() == guided[2].tobytes()
    assert np.abs(guided[1][5:9, :7] - given(9)[5:]).max() < 1e-5
    assert np.abs(guided[0][5:9, :7] - given(9)[5:]).max() > 0.1
    assert engine.act(make_observation()).as_array().tobytes() == before


@pytest.mark.parametrize(("arithmetic", "within_rad"), [("float32", 1e-5), ("server", 0.02)])
def test_in_bfloat16(
    tiny_checkpoint: Tiny, make_observation: Maker, arithmetic: Any, within_rad: float
) -> None:
    settings = EngineSettings(
        str(tiny_checkpoint("edge")), dtype="bfloat16", action_arithmetic=arithmetic
    )
    low = PolicyEngine.load(settings)
    try:
        found = low.act(make_observation(), prefix=given()).positions
    finally:
        low.close()
    assert np.abs(found[:D] - given()).max() < within_rad


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_one_graph_serves_every_prefix(tiny_checkpoint: Tiny, make_observation: Maker) -> None:
    def answers(graphs: bool) -> tuple[list[bytes], int]:
        settings = EngineSettings(
            str(tiny_checkpoint("edge")), device="cuda", dtype="bfloat16", graphs=graphs
        )
        made = PolicyEngine.load(settings)
        try:
            made.warm_up()
            seen = [
                made.act(make_observation(), prefix=None if n is None else given(n), **fade)
                for n, fade in (
                    (None, {}),
                    (5, {}),
                    (12, {"prefix_fade_rows": 4}),
                    (None, {}),
                    (5, {}),
                    (31, {}),
                )
            ]
            return [chunk.as_array().tobytes() for chunk in seen], made.recompiles
        finally:
            made.close()

    replayed, captures = answers(True)
    # Of this instruction: one without and one with a prefix.
    assert captures == 2
    assert replayed == answers(False)[0]
    assert replayed[0] == replayed[3]
    assert replayed[1] == replayed[4]
    assert len(set(replayed)) == 4
