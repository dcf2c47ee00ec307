# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Whole requests against the reference's recorded values, in float32 on a CPU.

Case P1 of each family is in the repository; further cases are run where they are found.
"""

from __future__ import annotations

import hashlib
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from cosmos_lite_ros.contract.chunk import ActionChunk
from cosmos_lite_ros.contract.observation import Observation
from cosmos_lite_ros.contract.prompt import build_prompt
from cosmos_lite_ros.contract.views import arrange_views, pad_canvas
from cosmos_lite_ros.policy.engine import EngineSettings, PolicyEngine, SamplerSettings
from cosmos_lite_ros.policy.layout import position_ids
from cosmos_lite_ros.policy.sampler import sigmas
from cosmos_lite_ros.policy.trace import Trace

from ..conftest import GOLDEN, SHARED, Figure

ACTION_LIMIT = 1e-4
LATENT_LIMIT = 1e-5
VELOCITY_LIMIT = 1e-4
RELATIVE_LIMIT = 1e-6


def _cases() -> list[Any]:
    """(family, case file), those of the repository first."""
    found = {}
    for root in (GOLDEN, SHARED / "golden"):
        for path in sorted(root.glob("*/cases/*.npz")):
            found.setdefault((path.parent.parent.name, path.stem), path)
    return [pytest.param((f, p), id=f"{f}-{name}") for (f, name), p in sorted(found.items())]


def load_case(path: Path) -> dict[str, Any]:
    """All arrays of a case."""
    with np.load(path, allow_pickle=False) as archive:
        return {key: archive[key] for key in archive.files}


def images_of(case: dict[str, Any]) -> list[np.ndarray]:
    """wrist, exterior 1, exterior 2 as uint8 RGB."""
    keys = ("wrist_png", "exterior_1_png", "exterior_2_png")
    return [np.asarray(Image.open(io.BytesIO(case[k].tobytes())).convert("RGB")) for k in keys]


def observation_of(case: dict[str, Any]) -> Observation:
    """The case's request."""
    return Observation(
        arrange_views(*images_of(case)),
        case["joints"].astype(np.float64),
        float(case["gripper"]),
        str(case["task"]),
    )


def sampler_of(case: dict[str, Any]) -> SamplerSettings:
    """The case's sampler settings."""
    low, high = (float(v) for v in case["guidance_interval"])
    interval = None if np.isnan(low) else (low, high)
    return SamplerSettings(
        int(case["steps"]), float(case["guidance"]), interval, float(case["shift"])
    )


@dataclass
class Answer:
    """One case, answered once for all tests below."""

    case: dict[str, Any]
    observation: Observation
    trace: Trace
    chunk: ActionChunk


@pytest.fixture(scope="module", params=_cases())
def answer(request: pytest.FixtureRequest) -> Answer:
    family, path = request.param
    case = load_case(path)
    engine = PolicyEngine.load(EngineSettings(checkpoint=str(GOLDEN / family / "checkpoint")))
    try:
        observation, trace = observation_of(case), Trace()
        chunk = engine.act(
            observation, sampler=sampler_of(case), seed=int(case["seed"]), trace=trace
        )
    finally:
        engine.close()
    return Answer(case, observation, trace, chunk)


def _worst(found: Any, expected: Any) -> float:
    return float(np.max(np.abs(np.asarray(found, np.float64) - np.asarray(expected, np.float64))))


def test_strings_ids_hashes_timesteps_exactly(answer: Answer) -> None:
    case = answer.case
    family = str(case["family"])
    image = answer.observation.composed
    assert build_prompt(str(case["task"]), family) == str(case["prompt"])
    assert answer.trace.token_ids == case["token_ids"].tolist()
    assert answer.trace.uncond_token_ids == case["uncond_token_ids"].tolist()
    assert hashlib.sha256(image.tobytes()).hexdigest() == str(case["composed_sha256"])
    np.testing.assert_array_equal(image[352:376, 308:332], case["composed_crop"])
    canvas = pad_canvas(image)
    assert hashlib.sha256(canvas.tobytes()).hexdigest() == str(case["canvas_sha256"])
    assert answer.trace.timesteps == case["timesteps"].tolist()
    used = [not np.isnan(v).any() for v in answer.trace.velocity_uncond]
    assert used == case["cfg_used"].tolist()


def test_positions_and_sigmas(answer: Answer) -> None:
    case = answer.case
    found = position_ids(len(case["token_ids"])).numpy()
    np.testing.assert_allclose(found, case["position_ids"], rtol=RELATIVE_LIMIT, atol=0)
    levels = sigmas(int(case["steps"]), float(case["shift"]))
    np.testing.assert_allclose(levels, case["sigmas"], rtol=RELATIVE_LIMIT, atol=0)
    np.testing.assert_allclose(answer.trace.sigmas, case["sigmas"][:-1], rtol=RELATIVE_LIMIT)


def test_latent_and_velocities(answer: Answer, figure: Figure) -> None:
    case, trace = answer.case, answer.trace
    latent = _worst(trace.latent_frame0, case["latent_frame0"])
    cond = _worst(trace.velocity_cond[0], case["velocity_cond"][0])
    uncond = 0.0
    if case["cfg_used"][0]:
        uncond = _worst(trace.velocity_uncond[0], case["velocity_uncond"][0])
    figure(f"latent {latent:.1e}, step-0 velocity {cond:.1e} / {uncond:.1e}")
    assert latent <= LATENT_LIMIT
    assert max(cond, uncond) <= VELOCITY_LIMIT


def test_action(answer: Answer, figure: Figure) -> None:
    case = answer.case
    action = _worst(answer.chunk.as_array(), case["action"])
    model = _worst(answer.trace.model_action, case["model_action"])
    video = _worst(answer.trace.video_latent[:, :, ::4, ::4], case["video_latent_sub"])
    figure(f"action {action:.1e}, model action {model:.1e}, video {video:.1e}")
    assert answer.chunk.as_array().dtype == np.float32
    assert answer.chunk.as_array().shape == (32, 8)
    assert action <= ACTION_LIMIT
    assert model <= ACTION_LIMIT
    assert video <= 1e-2
