# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Every intermediate value of one request, for comparing it with another implementation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cosmos_lite_ros.contract.constants import ACTION_WIDTH
from cosmos_lite_ros.policy.sampler import Step

Array = npt.NDArray[Any]


@dataclass
class Trace:
    """Filled by ``PolicyEngine.act(trace=...)``; all float32.

    Attributes:
        latent_frame0: [48, 33, 40].
        noisy_action: per step [33, 8], the sampler's state entering the step.
        velocity_cond, velocity_uncond: per step [33, 8], row 0 zero; NaN where not run.
        model_action: [33, 8], the result in model space (gripper 1 = open).
        video_latent: [48, 9, 33, 40].
    """

    latent_frame0: Array | None = None
    token_ids: list[int] = field(default_factory=list)
    uncond_token_ids: list[int] = field(default_factory=list)
    sigmas: list[float] = field(default_factory=list)
    timesteps: list[float] = field(default_factory=list)
    noisy_action: list[Array] = field(default_factory=list)
    velocity_cond: list[Array] = field(default_factory=list)
    velocity_uncond: list[Array] = field(default_factory=list)
    model_action: Array | None = None
    video_latent: Array | None = None

    def add_step(self, rows: Tensor, cond: Tensor, uncond: Tensor | None, step: Step) -> None:
        """Copy what one step saw and said."""
        self.sigmas.append(step.sigma)
        self.timesteps.append(step.timestep)
        self.noisy_action.append(rows[:, :ACTION_WIDTH].to(torch.float32).cpu().numpy().copy())
        self.velocity_cond.append(_masked(cond))
        self.velocity_uncond.append(
            np.full((rows.shape[0], ACTION_WIDTH), np.nan, np.float32)
            if uncond is None
            else _masked(uncond)
        )


def _masked(action: Tensor) -> Array:
    moving = action[:, :ACTION_WIDTH].to(torch.float32).cpu().numpy()
    return np.concatenate([np.zeros((1, ACTION_WIDTH), np.float32), moving])
