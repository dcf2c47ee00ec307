# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Schedule, guidance interval, noise, and UniPC against an independent implementation."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cosmos_lite_ros.errors import BadInputError
from cosmos_lite_ros.policy.sampler import (
    SamplerSettings,
    UniPC,
    draw_noise,
    guide,
    schedule,
    sigmas,
)


@pytest.mark.parametrize(
    ("steps", "levels", "times"),
    [
        (1, [0.999800], [999]),
        (2, [0.999800, 0.833055], [999, 833]),
        (3, [0.999800, 0.908843, 0.713979], [999, 908, 713]),
        (4, [0.999800, 0.937265, 0.833055, 0.624687], [999, 937, 833, 624]),
    ],
)
def test_schedule_values(steps: int, levels: list[float], times: list[int]) -> None:
    found = schedule(SamplerSettings(steps=steps))
    np.testing.assert_allclose([s.sigma for s in found], levels, atol=6e-7)
    assert [s.timestep for s in found] == times
    assert sigmas(steps, 5.0)[-1] == 0.0


@pytest.mark.parametrize("steps", range(1, 9))
def test_unipc_equals_diffusers(steps: int) -> None:
    from diffusers import UniPCMultistepScheduler

    table = schedule(SamplerSettings(steps=steps))
    reference = UniPCMultistepScheduler(
        prediction_type="flow_prediction", use_flow_sigmas=True, solver_order=2, solver_type="bh2"
    )
    reference.set_timesteps(steps)
    reference.sigmas = torch.from_numpy(sigmas(steps, 5.0))
    reference.timesteps = torch.tensor([s.timestep for s in table])
    generator = torch.Generator().manual_seed(steps)
    x = torch.randn(4, 100, generator=generator)
    y = x.clone()
    solver = UniPC(table)
    for step in table:
        velocity = torch.randn(4, 100, generator=generator)
        x = reference.step(velocity, step.timestep, x).prev_sample
        y = solver.step(y, velocity)
        torch.testing.assert_close(y, x, atol=3e-6, rtol=0)


@pytest.mark.parametrize("steps", [1, 2])
def test_one_and_two_steps_are_euler(steps: int) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(50, generator=generator)
    euler, solver = x.clone(), UniPC(schedule(SamplerSettings(steps=steps)))
    levels = sigmas(steps, 5.0)
    for i in range(steps):
        velocity = torch.randn(50, generator=generator)
        x = solver.step(x, velocity)
        euler = euler + (float(levels[i + 1]) - float(levels[i])) * velocity
        torch.testing.assert_close(x, euler, atol=2e-6, rtol=0)


def test_three_steps_are_not_euler() -> None:
    table = schedule(SamplerSettings(steps=3))
    assert table[1].predictor[2] != 0.0
    assert table[2].corrector is not None


def test_guidance_interval_is_strict() -> None:
    edge = SamplerSettings(guidance_interval=(960.0, 1001.0))
    assert edge.guided(999.0)
    assert not edge.guided(833.0)
    assert not SamplerSettings(guidance_interval=(999.0, 1001.0)).guided(999.0)
    assert not SamplerSettings(guidance_interval=(0.0, 999.0)).guided(999.0)
    assert not SamplerSettings(guidance=1.0).guided(999.0)


def test_guide() -> None:
    u, c = torch.tensor([1.0, -2.0]), torch.tensor([2.0, 0.0])
    assert guide(u, c, 3.0).tolist() == [4.0, 4.0]


def test_noise_is_two_fresh_generators() -> None:
    video, action = draw_noise(7)
    assert video.shape == (1, 48, 9, 33, 40)
    assert action.shape == (33, 64)
    assert video.dtype == action.dtype == np.float32
    # Both start from the same seed.
    np.testing.assert_array_equal(video.reshape(-1)[:2112], action.reshape(-1))
    expected = np.random.RandomState(7).standard_normal(3).astype(np.float32)
    np.testing.assert_array_equal(action.reshape(-1)[:3], expected)


@pytest.mark.parametrize(
    "bad",
    [
        {"steps": 0},
        {"steps": 9},
        {"guidance": float("nan")},
        {"guidance": -1.0},
        {"shift": 0.0},
        {"guidance_interval": (5.0, 5.0)},
    ],
)
def test_bad_settings_are_refused(bad: dict[str, object]) -> None:
    with pytest.raises(BadInputError):
        SamplerSettings(**bad)


@pytest.mark.parametrize("seed", [-1, 2**32])
def test_bad_seed_is_refused(seed: int) -> None:
    with pytest.raises(BadInputError, match="seed"):
        draw_noise(seed)
