# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Who counts as the same arithmetic: the library's network in three guises."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from cosmos_lite_ros.policy.compare.accepted import RoundedOnce, StockNetwork, other_backend
from cosmos_lite_ros.policy.compare.measure import measure_chunks, measure_forwards
from cosmos_lite_ros.policy.compare.requests import frozen_requests
from cosmos_lite_ros.policy.compare.subjects import EngineSubject, StockSubject
from cosmos_lite_ros.policy.reference import ReferencePolicy
from cosmos_lite_ros.policy.sampler import SamplerSettings

from .makers import GUIDANCE, settings_for, small_checkpoint

ONE_STEP = SamplerSettings(1)


@pytest.mark.parametrize("family", ["edge", "nano"])
def test_the_whole_stock_transformer_answers_as_its_modules(family: str, tmp_path: Path) -> None:
    """What stands for the library on a GPU, with the text tower in every forward."""
    folder = small_checkpoint(family, tmp_path / family)
    reference = EngineSubject.load("reference", settings_for(folder, sampler=ONE_STEP))
    try:
        recordings = [reference.record(request) for request in frozen_requests(2)]
    finally:
        reference.close()
    policy = ReferencePolicy(str(folder), dtype=torch.bfloat16, server_arithmetic=True)
    modules = StockSubject("modules", policy, sampler=ONE_STEP)
    errors = measure_forwards(modules, recordings, GUIDANCE)
    chunks = measure_chunks(modules, recordings)
    network: Any = StockNetwork(policy, str(folder))
    policy.network = network
    whole = StockSubject("whole", policy, sampler=ONE_STEP)
    np.testing.assert_array_equal(
        measure_forwards(whole, recordings, GUIDANCE).signed, errors.signed
    )
    np.testing.assert_array_equal(measure_chunks(whole, recordings).signed, chunks.signed)
    assert 0.0 < errors.action_l2.max() < 0.01
    # The reference's picture: the network is judged, and not the encoder.
    assert not chunks.latent_l2.any()


def test_recorded_inputs_are_those_of_the_request(tmp_path: Path) -> None:
    folder = small_checkpoint("edge", tmp_path / "edge")
    reference = EngineSubject.load("reference", settings_for(folder))
    request = frozen_requests(1)[0]
    try:
        recording = reference.record(request)
        plain = reference.engine.act(request.observation, seed=request.seed, preview=True)
        again = measure_forwards(reference, [recording], GUIDANCE)
        assert reference.engine._runner.tower.__class__.__name__ == "GenerationTower"
    finally:
        reference.close()
    first, second = recording.forwards
    assert (first.timestep, second.timestep) == (999.0, 833.0)
    assert first.vision.shape == (3060, 192)
    assert first.rows.dtype == torch.bfloat16
    # Frame 0 is the picture in both, the rest moves.
    assert torch.equal(first.vision[:340], second.vision[:340])
    assert not torch.equal(first.vision[340:], second.vision[340:])
    assert [len(step) for step in recording.velocities] == [2, 2]
    assert recording.velocities[0][0].action.shape == (32, 8)
    assert recording.velocities[0][0].video.shape == (48, 8, 33, 40)
    # Fed with them, the reference says the same at both steps and in both branches.
    assert again.action_l2.shape == (1, 2, 2)
    assert not again.signed.any()
    assert not again.video.any()
    # Recording changes nothing: the same request gives the same bits.
    np.testing.assert_array_equal(recording.answer.chunk, plain.as_array())
    np.testing.assert_array_equal(recording.answer.video, plain.predicted_video_latent)


def test_rounded_once_widens_products_and_attention_and_nothing_else() -> None:
    generator = torch.Generator().manual_seed(0)
    x, w = (torch.randn(64, 512, generator=generator).bfloat16() for _ in range(2))
    exact = x.double() @ w.double().t()
    with RoundedOnce():
        wide = functional.linear(x, w)
        kept = functional.linear(x.float(), w.float())
    assert wide.dtype == torch.bfloat16
    # Half a unit of the last place at most: one rounding.
    torch.testing.assert_close(wide.double(), exact, rtol=2**-8, atol=1e-4)
    torch.testing.assert_close(kept, functional.linear(x.float(), w.float()), rtol=0, atol=0)
    assert torch.equal(functional.linear(x, w), functional.linear(x, w))  # the mode has ended
    q, k, v = (torch.randn(1, 2, 40, 32, generator=generator).bfloat16() for _ in range(3))
    with RoundedOnce():
        found = functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)
    wide_attention = functional.scaled_dot_product_attention(q.float(), k.float(), v.float())
    assert torch.equal(found, wide_attention.bfloat16())


@pytest.mark.parametrize("name", ["cudnn", "flash", "efficient", "math"])
def test_the_other_attention_backend_is_another(name: str) -> None:
    assert other_backend(name) != name
