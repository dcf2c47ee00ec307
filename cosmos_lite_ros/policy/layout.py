# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The packed sequence of one request: sizes, positions and rotary tables.

Order [text | vision | action]. Three position axes (t, h, w), float32. Beside values near 15000
one float32 ulp is 0.00098, so every position is computed in float32 as the reference does.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import torch
from torch import Tensor

from cosmos_lite_ros.contract.constants import (
    CHUNK_ROWS,
    CLIP_FRAMES,
    COMPOSED_HEIGHT,
    COMPOSED_WIDTH,
)

LATENT_CHANNELS: Final = 48
LATENT_FRAMES: Final = 1 + (CLIP_FRAMES - 1) // 4  # 9
LATENT_HEIGHT: Final = COMPOSED_HEIGHT // 16  # 33
LATENT_WIDTH: Final = COMPOSED_WIDTH // 16  # 40
PATCH: Final = 2
GRID_HEIGHT: Final = (LATENT_HEIGHT + 1) // PATCH  # 17: 33 rows are zero-padded to 34
GRID_WIDTH: Final = LATENT_WIDTH // PATCH  # 20
FRAME_TOKENS: Final = GRID_HEIGHT * GRID_WIDTH  # 340
VISION_TOKENS: Final = LATENT_FRAMES * FRAME_TOKENS  # 3060
ACTION_TOKENS: Final = CHUNK_ROWS + 1  # 33, row 0 is the state
ACTION_CHANNELS: Final = 64
GENERATION_TOKENS: Final = VISION_TOKENS + ACTION_TOKENS  # 3093

_TEMPORAL_MARGIN: Final = 15000
_VISION_STEP: Final = 1.6  # base rate 24 over 15 Hz
_ACTION_STEP: Final = 0.4  # four rows for each latent frame

VIDEO_SHAPE: Final = (1, LATENT_CHANNELS, LATENT_FRAMES, LATENT_HEIGHT, LATENT_WIDTH)


def position_ids(text_length: int) -> Tensor:
    """float32 [3, text_length + 3093]: axes t, h, w in the packed order."""
    start = torch.tensor(float(text_length + _TEMPORAL_MARGIN))
    text = torch.arange(text_length, dtype=torch.float32).expand(3, -1)
    frames = torch.arange(LATENT_FRAMES, dtype=torch.float32) * _VISION_STEP + start
    rows = torch.arange(GRID_HEIGHT, dtype=torch.float32)
    columns = torch.arange(GRID_WIDTH, dtype=torch.float32)
    vision = torch.stack(torch.meshgrid(frames, rows, columns, indexing="ij")).reshape(3, -1)
    action = torch.zeros(3, ACTION_TOKENS)
    action[0] = torch.arange(ACTION_TOKENS, dtype=torch.float32) * _ACTION_STEP + start
    return torch.cat([text, vision, action], dim=1)


def rotary_table(
    positions: Tensor, head_dim: int, theta: float, sections: tuple[int, int, int]
) -> tuple[Tensor, Tensor]:
    """cos and sin, float32 [N, head_dim] each, of interleaved multi-axis RoPE.

    Args:
        positions: float32 [3, N].
        head_dim: channels of a head.
        theta: RoPE base.
        sections: frequencies that belong to t, h and w; h and w take every third one from 1 and 2.
    """
    exponent = torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim
    frequencies = 1.0 / (theta**exponent)
    angles = positions[:, :, None] * frequencies  # [3, N, head_dim / 2]
    mixed = angles[0].clone()
    for axis in (1, 2):
        taken = slice(axis, 3 * sections[axis], 3)
        mixed[:, taken] = angles[axis, :, taken]
    # The angle is float32, as the reference's; its cosine is computed in float64 by NumPy. In a
    # process's first multi-threaded call torch's own (MKL) has been seen to be off by 1.5e-4.
    wide = mixed.numpy().astype(np.float64)
    cos, sin = (torch.from_numpy(f(wide).astype(np.float32)) for f in (np.cos, np.sin))
    return torch.cat([cos, cos], dim=-1), torch.cat([sin, sin], dim=-1)


def patchify(video: Tensor) -> Tensor:
    """[1, 48, 9, 33, 40] -> [3060, 192], patch order ``c t (h p) (w q) -> t h w (p q c)``."""
    frame = torch.nn.functional.pad(video[0], (0, 0, 0, GRID_HEIGHT * PATCH - LATENT_HEIGHT))
    shape = (LATENT_CHANNELS, LATENT_FRAMES, GRID_HEIGHT, PATCH, GRID_WIDTH, PATCH)
    return frame.reshape(shape).permute(1, 2, 4, 3, 5, 0).reshape(VISION_TOKENS, -1)


def unpatchify(tokens: Tensor) -> Tensor:
    """[frames * 340, 192] -> [1, 48, frames, 33, 40], the inverse of patchify."""
    frames = tokens.shape[0] // FRAME_TOKENS
    shape = (frames, GRID_HEIGHT, GRID_WIDTH, PATCH, PATCH, LATENT_CHANNELS)
    video = tokens.reshape(shape).permute(5, 0, 1, 3, 2, 4)
    video = video.reshape(LATENT_CHANNELS, frames, GRID_HEIGHT * PATCH, LATENT_WIDTH)
    return video[None, :, :, :LATENT_HEIGHT]
