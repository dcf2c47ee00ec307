# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The same request on diffusers' own modules: what the lean engine is compared with.

Not used by any node. Tests and benches run it; it does nothing cleverly, loads both towers and
keeps the video as a clip.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cosmos_lite_ros.contract.constants import ACTION_WIDTH
from cosmos_lite_ros.contract.observation import Observation
from cosmos_lite_ros.contract.prompt import PromptFormat, build_prompt, state_row
from cosmos_lite_ros.contract.views import pad_canvas
from cosmos_lite_ros.policy.checkpoint import inspect
from cosmos_lite_ros.policy.layout import ACTION_CHANNELS, VIDEO_SHAPE
from cosmos_lite_ros.policy.network import PolicyNetwork, TextCache, Velocity
from cosmos_lite_ros.policy.sampler import SamplerSettings, UniPC, draw_noise, guide, schedule
from cosmos_lite_ros.policy.tokenizer import PromptTokenizer
from cosmos_lite_ros.policy.trace import Trace
from cosmos_lite_ros.policy.vae import ImageEncoder


class ReferencePolicy:
    """One checkpoint on diffusers' modules."""

    def __init__(
        self,
        checkpoint: str,
        *,
        device: str = "cpu",
        dtype: torch.dtype = torch.float32,
        server_arithmetic: bool = False,
        prompt_format: PromptFormat = "auto",
    ):
        """Load everything.

        Raises:
            CheckpointError: as ``PolicyEngine.load``.
        """
        info = inspect(checkpoint)
        place: dict[str, Any] = {"device": torch.device(device), "dtype": dtype}
        self.network = PolicyNetwork.load(info, **place)
        self.encoder = ImageEncoder.load(info, **place)
        self._family = info.config.family
        self._format = prompt_format
        self._server = server_arithmetic and dtype != torch.float32
        self._tokenizer = PromptTokenizer(
            info.tokenizer_folder, info.config.family, info.config.vocab_size
        )

    @torch.inference_mode()
    def act(
        self,
        observation: Observation,
        sampler: SamplerSettings | None = None,
        seed: int = 0,
        trace: Trace | None = None,
    ) -> npt.NDArray[np.float32]:
        """float32 [33, 8]: the result in model space, row 0 the state, gripper 1 = open."""
        prompt = build_prompt(observation.instruction, self._family, self._format)
        text = self.network.text_cache(self._tokenizer.encode(prompt))
        uncond = self.network.text_cache(self._tokenizer.encode(""))
        latent = self.encoder.encode(pad_canvas(observation.composed))
        state = state_row(observation.joint_positions, observation.gripper)
        device = self.network.device
        video, action = (torch.from_numpy(n).to(device) for n in draw_noise(seed))
        video, rows = self._sample(
            latent, state, (video, action), (text, uncond), sampler or SamplerSettings(), trace
        )
        answer: npt.NDArray[np.float32] = rows[:, :ACTION_WIDTH].cpu().numpy()
        if trace is not None:
            trace.latent_frame0 = latent.cpu().numpy()
            trace.model_action = answer
            trace.video_latent = video[0].cpu().numpy()
        return answer

    def _sample(
        self,
        latent: Tensor,
        state: npt.NDArray[np.float32],
        noise: tuple[Tensor, Tensor],
        texts: tuple[TextCache, TextCache],
        sampler: SamplerSettings,
        trace: Trace | None,
    ) -> tuple[Tensor, Tensor]:
        network, (text, uncond_text) = self.network, texts
        low, server = network.dtype, self._server
        video = noise[0].clone()
        video[0, :, 0] = latent
        rows = noise[1].to(low).float()
        rows[:, ACTION_WIDTH:] = 0.0
        rows[0, :ACTION_WIDTH] = torch.from_numpy(state).to(rows.device).to(low).float()
        clean_row = rows[0].clone()
        steps = schedule(sampler)
        video_solver = UniPC(steps, round_product=low if low != torch.float32 else None)
        row_solver = UniPC(steps, round_product=low if server else None)
        head = None if server else torch.float32
        for step in steps:
            cond = network.forward(video, rows, step.timestep, text, action_head=head)
            uncond = None
            velocity = cond
            if sampler.guided(step.timestep):
                uncond = network.forward(video, rows, step.timestep, uncond_text, action_head=head)
                velocity = Velocity(
                    guide(uncond.video, cond.video, sampler.guidance),
                    guide(uncond.action, cond.action, sampler.guidance),
                )
            if trace is not None:
                trace.add_step(rows, cond.action, uncond.action if uncond else None, step)
            video = video_solver.step(video, _whole_video(velocity.video))
            seen = rows if server else rows.to(low).float()
            rows = row_solver.step(seen, _whole_rows(velocity.action))
            video[0, :, 0] = latent
            rows[0] = clean_row
        return video, rows


def _whole_video(moving: Tensor) -> Tensor:
    """Frames 1..8 -> all nine, frame 0 without velocity."""
    whole = torch.zeros(VIDEO_SHAPE, dtype=moving.dtype, device=moving.device)
    whole[:, :, 1:] = moving
    return whole


def _whole_rows(moving: Tensor) -> Tensor:
    """Rows 1..32 -> [33, 64]; row 0 and columns beyond the action have no velocity."""
    whole = torch.zeros(
        moving.shape[0] + 1, ACTION_CHANNELS, dtype=moving.dtype, device=moving.device
    )
    whole[1:, :ACTION_WIDTH] = moving[:, :ACTION_WIDTH]
    return whole
