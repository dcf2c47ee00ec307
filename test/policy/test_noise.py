# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Noise by seed: the right values, kept and foreseen, never those of another seed."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cosmos_lite_ros.errors import BadInputError
from cosmos_lite_ros.policy import noise as module
from cosmos_lite_ros.policy.layout import VIDEO_SHAPE, unpatchify
from cosmos_lite_ros.policy.noise import Noise, NoiseSource
from cosmos_lite_ros.policy.sampler import draw_noise

LAST = 2**32 - 1


@pytest.fixture
def source() -> Iterator[NoiseSource]:
    made = NoiseSource()
    yield made
    made.close()


def is_of(noise: Noise, seed: int) -> bool:
    """Whether both tensors are this seed's."""
    video, rows = draw_noise(seed)
    return torch.equal(unpatchify(noise[0]), torch.from_numpy(video)) and torch.equal(
        noise[1], torch.from_numpy(rows)
    )


def test_values_are_the_references(source: NoiseSource) -> None:
    (patches, rows), changed = source.get(5)
    assert changed
    assert patches.shape == (3060, 192)
    assert patches.is_contiguous()
    assert patches.dtype == rows.dtype == torch.float32
    # Each from a fresh generator of the same seed.
    video = np.random.RandomState(5).standard_normal(VIDEO_SHAPE).astype(np.float32)
    action = np.random.RandomState(5).standard_normal((33, 64)).astype(np.float32)
    np.testing.assert_array_equal(unpatchify(patches).numpy(), video)
    np.testing.assert_array_equal(rows.numpy(), action)
    # The padded latent row carries no noise.
    assert int((patches != 0).sum()) == int((video != 0).sum())


def test_the_same_seed_is_kept(source: NoiseSource) -> None:
    first, _ = source.get(3)
    again, changed = source.get(3)
    assert not changed
    assert again is first
    assert source.ready == 1
    source.prefetch()
    assert source._ahead is None  # a fixed seed foresees nothing
    other, changed = source.get(4)
    assert changed
    assert is_of(other, 4)
    back, changed = source.get(3)
    assert changed
    assert is_of(back, 3)
    assert source.ready == 1


def test_advancing_seeds_are_drawn_ahead(source: NoiseSource) -> None:
    source.prefetch(advancing=True)
    assert source._ahead is None  # there was no request yet
    source.get(7)
    source.prefetch()
    assert source._ahead is None  # one request does not say that seeds advance
    source.get(5)
    source.prefetch()
    assert source._ahead is None  # nor do two that are apart
    source.get(7)
    source.prefetch(advancing=True)  # the engine's seed mode says it
    assert source._ahead is not None
    assert source._ahead[0] == 8
    foreseen = source._ahead[1].result()
    found, changed = source.get(8)
    assert found is foreseen
    assert changed
    assert is_of(found, 8)
    assert source.ready == 1
    source.prefetch()  # 7, 8: seen to advance
    found, _ = source.get(9)
    assert is_of(found, 9)
    assert source.ready == 2


def test_what_was_foreseen_wrongly_is_not_used(source: NoiseSource) -> None:
    source.get(7)
    source.prefetch(advancing=True)
    found, changed = source.get(20)  # instead of 8
    assert changed
    assert is_of(found, 20)
    assert source.ready == 0
    found, changed = source.get(8)  # forgotten by now, drawn anew
    assert changed
    assert is_of(found, 8)


def test_a_request_does_not_wait_for_a_second_drawing(
    source: NoiseSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[int] = []

    def counting(seed: int) -> tuple[np.ndarray, np.ndarray]:
        drawn.append(seed)
        return draw_noise(seed)

    monkeypatch.setattr(module, "draw_noise", counting)
    source.get(0)
    for seed in range(1, 4):
        source.prefetch(advancing=True)
        source.prefetch(advancing=True)  # twice is once
        source.get(seed)
        source.get(seed)
    assert drawn == [0, 1, 2, 3]


def test_seeds_wrap_around(source: NoiseSource) -> None:
    source.get(LAST)
    source.prefetch(advancing=True)
    found, changed = source.get(0)
    assert changed
    assert is_of(found, 0)
    assert source.ready == 1


@pytest.mark.parametrize("seed", [-1, LAST + 1])
def test_a_bad_seed_is_refused_and_leaves_the_rest_alone(source: NoiseSource, seed: int) -> None:
    first, _ = source.get(3)
    with pytest.raises(BadInputError, match="seed is"):
        source.get(seed)
    again, changed = source.get(3)
    assert again is first
    assert not changed


def test_a_request_in_hand_survives_the_closing(source: NoiseSource) -> None:
    source.get(7)
    for seed in (30, 40):  # one draw under way, one waiting behind it
        source._pool.submit(source._draw, seed)
    source.prefetch(advancing=True)
    source.close()
    assert source._ahead is not None
    assert source._ahead[1].cancelled()
    assert is_of(source.get(8)[0], 8)
    source.prefetch(advancing=True)
    assert is_of(source.get(9)[0], 9)


class Small:
    """Draws a small stand-in, so that many sequences can be tried; the seed is in the values."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        """In place of the 9 to 35 ms of the real one."""
        monkeypatch.setattr(module, "draw_noise", self.draw)
        monkeypatch.setattr(module, "patchify", lambda video: video)

    @staticmethod
    def draw(seed: int) -> tuple[np.ndarray, np.ndarray]:
        return np.array([seed]), np.array([-seed])


Calls = st.lists(st.tuples(st.integers(0, 5), st.booleans(), st.booleans()), max_size=30)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(calls=Calls)
def test_never_stale(calls: list[tuple[int, bool, bool]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is asked in whatever order: this seed's values, and ``changed`` tells the truth."""
    Small(monkeypatch)
    source = NoiseSource()
    on_device = None  # what a caller that copies only on ``changed`` holds
    for seed, prefetch, advancing in calls:
        noise, changed = source.get(seed)
        if changed:
            on_device = noise
        assert on_device is not None
        assert (int(on_device[0]), int(on_device[1])) == (seed, -seed)
        if prefetch:
            source.prefetch(advancing=advancing)
    source.close()
