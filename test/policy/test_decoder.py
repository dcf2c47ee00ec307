# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The predicted video: decoded only when asked for, the same with and without offload."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cosmos_lite_ros.errors import BadInputError
from cosmos_lite_ros.policy.engine import EngineSettings, PolicyEngine, SamplerSettings

Tiny = Callable[[str], Path]
Maker = Callable[..., Any]


def test_video(tiny_checkpoint: Tiny, make_observation: Maker) -> None:
    from diffusers import AutoencoderKLWan

    folder = tiny_checkpoint("edge")
    videos = []
    for offload in ("none", "cpu"):
        sampler = SamplerSettings(steps=1, guidance=1.0)
        settings = EngineSettings(str(folder), sampler=sampler, vae_offload=offload)
        engine = PolicyEngine.load(settings)
        latent = engine.act(make_observation(), preview=True).predicted_video_latent
        assert engine._decoder is None
        latent = np.ascontiguousarray(latent[:, :2])  # five pictures: enough, and quick
        videos.append(engine.decode_video(latent))
        with pytest.raises(BadInputError, match="expected"):
            engine.decode_video(latent[:, :, :3])
        engine.close()
    assert videos[0].dtype == np.uint8
    assert videos[0].shape == (5, 528, 640, 3)
    np.testing.assert_array_equal(videos[0], videos[1])
    # The whole VAE as diffusers loads it, independently of our loader.
    vae = AutoencoderKLWan.from_pretrained(folder / "vae", torch_dtype=torch.float32)
    mean, std = (
        torch.tensor(vae.config[k]).view(1, 48, 1, 1, 1) for k in ("latents_mean", "latents_std")
    )
    with torch.inference_mode():
        frames = vae.decode(torch.from_numpy(latent)[None] * std + mean).sample[0]
    expected = ((frames + 1) * 127.5).round().clamp(0, 255).permute(1, 2, 3, 0).numpy()
    assert np.abs(videos[0].astype(int) - expected.astype(int)).max() <= 1
    assert videos[0].std() > 1.0
