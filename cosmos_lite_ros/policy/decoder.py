# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The video decoder: a predicted latent to pictures, for the eye; never on the control path.

It is loaded when a video is asked for the first time. At the released size it holds 555 M
parameters and takes several GB while it works.
"""

from __future__ import annotations

import inspect as python_inspect
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from cosmos_lite_ros.errors import BadInputError
from cosmos_lite_ros.policy.checkpoint import CheckpointInfo, fill
from cosmos_lite_ros.policy.layout import (
    LATENT_CHANNELS,
    LATENT_FRAMES,
    LATENT_HEIGHT,
    LATENT_WIDTH,
)


class VideoDecoder:
    """diffusers' Wan decoder on one device in one dtype."""

    def __init__(
        self,
        info: CheckpointInfo,
        device: torch.device,
        dtype: torch.dtype,
        *,
        offload: bool = False,
    ):
        """Load the decoder's tensors; keys were checked with the headers.

        Args:
            offload: keep the weights in host memory and copy them to the device for each video.
        """
        from diffusers import AutoencoderKLWan

        known = set(python_inspect.signature(AutoencoderKLWan.__init__).parameters)
        with torch.device("meta"):
            model: Any = AutoencoderKLWan(
                **{k: v for k, v in info.vae_config.items() if k in known}
            )
        model.encoder = nn.Identity()
        model.quant_conv = nn.Identity()
        self._device = device
        self._dtype = dtype
        self._offload = offload
        home = torch.device("cpu") if offload else device
        fill(model, info.vae_files, device=home, dtype=lambda name: dtype)
        self._model = model.eval()
        shape = (1, LATENT_CHANNELS, 1, 1, 1)
        self._mean = torch.tensor(info.vae_config["latents_mean"], device=device).view(shape)
        self._std = torch.tensor(info.vae_config["latents_std"], device=device).view(shape)

    def decode(self, latent: npt.NDArray[np.float32]) -> npt.NDArray[np.uint8]:
        """Normalised latent [48, n, 33, 40] to uint8 [1 + 4 (n - 1), 528, 640, 3] RGB.

        A whole prediction has n = 9 latent frames, 33 pictures. The lowest 12 rows of the composed
        image lie outside the latent's 33 rows.

        Raises:
            BadInputError: another shape.
        """
        frames = latent.shape[1] if latent.ndim == 4 else 0
        expected = (LATENT_CHANNELS, frames, LATENT_HEIGHT, LATENT_WIDTH)
        if latent.shape != expected or not 1 <= frames <= LATENT_FRAMES:
            raise BadInputError(
                f"the video latent is {list(latent.shape)}, expected [{LATENT_CHANNELS}, 1 to "
                f"{LATENT_FRAMES}, {LATENT_HEIGHT}, {LATENT_WIDTH}]"
            )
        z = torch.from_numpy(latent).to(self._device)[None] * self._std + self._mean
        if self._offload:
            self._model.to(self._device)
        try:
            pixels = self._model.decode(z.to(self._dtype)).sample[0]
        finally:
            if self._offload:
                self._model.to("cpu")
        levels = ((pixels.float() + 1.0) * 127.5).round().clamp(0, 255).to(torch.uint8)
        return np.ascontiguousarray(levels.permute(1, 2, 3, 0).cpu().numpy())
