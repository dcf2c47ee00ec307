# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""bfloat16 against the reference server's recorded request (case B1), both families.

The free-running rows cannot test the rounding order (rounding noise is as large as any mistake in
it); the teacher-forced rows do, and are exact. Tolerances are those of the case's own notes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from cosmos_lite_ros.policy.engine import EngineSettings, PolicyEngine
from cosmos_lite_ros.policy.sampler import UniPC, guide, schedule
from cosmos_lite_ros.policy.trace import Trace

from ..conftest import GOLDEN, SHARED, Figure
from .test_golden import load_case, observation_of, sampler_of

FAMILIES = ("edge", "nano")


def _case(family: str) -> dict[str, Any]:
    path = SHARED / "golden" / family / "cases_bf16_B1.npz"
    if not path.is_file():
        pytest.skip(f"the bfloat16 case is not in this repository and {path.name} is not found")
    return load_case(path)


def _bf16(array: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(array)).to(torch.bfloat16)


@pytest.mark.parametrize("family", FAMILIES)
def test_guidance_rounds_as_the_reference(family: str) -> None:
    case = _case(family)
    for step in range(2):
        cond, uncond = _bf16(case["velocity_cond"][step]), _bf16(case["velocity_uncond"][step])
        guided = guide(uncond, cond, float(case["guidance"])).float().numpy()
        np.testing.assert_array_equal(guided, case["velocity_cfg"][step])


@pytest.mark.parametrize("family", FAMILIES)
def test_update_rounds_as_the_reference(family: str) -> None:
    case = _case(family)
    solver = UniPC(schedule(sampler_of(case)), round_product=torch.bfloat16)
    x = torch.from_numpy(case["noisy_action"][0])
    x = solver.step(x, _bf16(case["velocity_cfg"][0]))
    np.testing.assert_allclose(x.numpy(), case["noisy_action"][1], atol=1e-5, rtol=0)
    x = solver.step(torch.from_numpy(case["noisy_action"][1]), _bf16(case["velocity_cfg"][1]))
    np.testing.assert_allclose(x.numpy(), case["model_action"], atol=1e-5, rtol=0)
    # The same without rounding sigma * v is off by far more than the tolerance.
    exact = UniPC(schedule(sampler_of(case)))
    exact.step(torch.from_numpy(case["noisy_action"][0]), _bf16(case["velocity_cfg"][0]))
    y = exact.step(torch.from_numpy(case["noisy_action"][1]), _bf16(case["velocity_cfg"][1]))
    assert np.abs(y.numpy() - case["model_action"]).max() > 1e-3


def _relative(found: Any, expected: Any) -> float:
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("arithmetic", ["server", "float32"])
def test_whole_request(family: str, arithmetic: Any, figure: Figure) -> None:
    case = _case(family)
    settings = EngineSettings(
        checkpoint=str(GOLDEN / family / "checkpoint"),
        dtype="bfloat16",
        action_arithmetic=arithmetic,
    )
    engine = PolicyEngine.load(settings)
    trace = Trace()
    try:
        chunk = engine.act(
            observation_of(case), sampler=sampler_of(case), seed=int(case["seed"]), trace=trace
        )
    finally:
        engine.close()
    assert chunk.scheme == "bf16"
    np.testing.assert_array_equal(trace.noisy_action[0], case["noisy_action"][0])
    assert trace.token_ids == case["token_ids"].tolist()
    velocity = [
        max(
            _relative(trace.velocity_cond[i], case["velocity_cond"][i]),
            _relative(trace.velocity_uncond[i], case["velocity_uncond"][i]),
        )
        for i in range(2)
    ]
    error = chunk.as_array() - case["action"]
    rms, worst = float(np.sqrt(np.mean(error**2))), float(np.abs(error).max())
    latent = _relative(trace.latent_frame0, case["latent_frame0"])
    figure(
        f"{family} {arithmetic}: velocity {velocity[0]:.4f} {velocity[1]:.4f}, action rms "
        f"{rms:.4f} max {worst:.3f}, latent {latent:.4f}",
    )
    assert velocity[0] <= 0.02
    assert velocity[1] <= 0.03
    assert rms <= 0.05
    assert worst <= 0.2
    assert latent <= 0.05
