# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The image encoder: one frame through the Wan 2.2 VAE to a normalised latent.

The VAE is causal in time, so the latent of the observed frame needs that frame alone. The decoder
is not loaded.
"""

from __future__ import annotations

import inspect as python_inspect
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from cosmos_lite_ros.errors import CheckpointError
from cosmos_lite_ros.policy.checkpoint import CheckpointInfo, Progress, check_keys, fill
from cosmos_lite_ros.policy.layout import LATENT_CHANNELS, LATENT_HEIGHT, LATENT_WIDTH


class ImageEncoder:
    """The VAE's encoder on one device in one dtype."""

    def __init__(
        self, model: Any, config: dict[str, Any], device: torch.device, dtype: torch.dtype
    ):
        """Use ``load``."""
        self._model = model
        self._device = device
        self._dtype = dtype
        shape = (1, LATENT_CHANNELS, 1, 1, 1)
        mean = torch.tensor(config["latents_mean"], dtype=torch.float32, device=device)
        std = torch.tensor(config["latents_std"], dtype=torch.float32, device=device)
        # In bfloat16 the reference normalises in bfloat16 too, with a reciprocal of that dtype.
        self._mean = mean.view(shape).to(dtype)
        self._scale = 1.0 / std.view(shape).to(dtype)

    @classmethod
    def load(
        cls,
        info: CheckpointInfo,
        *,
        device: torch.device,
        dtype: torch.dtype,
        progress: Progress | None = None,
    ) -> ImageEncoder:
        """Build on the meta device, check every key, stream the encoder's tensors.

        Raises:
            CheckpointError: missing or unexpected tensors, or a VAE of another geometry.
        """
        from diffusers import AutoencoderKLWan

        known = set(python_inspect.signature(AutoencoderKLWan.__init__).parameters)
        config = {k: v for k, v in info.vae_config.items() if k in known}
        for key in ("latents_mean", "latents_std"):
            if len(config.get(key) or ()) != LATENT_CHANNELS:
                raise CheckpointError(
                    f"vae/config.json: {key} has {len(config.get(key) or ())} values, expected "
                    f"{LATENT_CHANNELS}: this is not the Wan 2.2 VAE"
                )
        with torch.device("meta"):
            model = AutoencoderKLWan(**config)
        check_keys(
            info.vae_files, {k: tuple(v.shape) for k, v in model.state_dict().items()}, "vae"
        )
        model.decoder = nn.Identity()
        model.post_quant_conv = nn.Identity()
        fill(
            model,
            info.vae_files,
            device=device,
            dtype=lambda key: dtype,
            progress=progress,
            step="loading the image encoder",
        )
        model.eval()
        return cls(model, info.vae_config, device, dtype)

    def encode(self, canvas: npt.NDArray[np.uint8]) -> Tensor:
        """uint8 [544, 736, 3] RGB -> float32 [48, 33, 40], normalised and cropped."""
        pixels = torch.from_numpy(canvas).to(self._device)
        image = pixels.permute(2, 0, 1).float() / 127.5 - 1.0
        # mean, not a sample
        mu = self._model.encode(image[None, :, None].to(self._dtype)).latent_dist.mode()
        latent: Tensor = (mu - self._mean) * self._scale
        return latent[0, :, 0, :LATENT_HEIGHT, :LATENT_WIDTH].float()
