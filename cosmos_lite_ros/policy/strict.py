# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What a checkpoint must hold: the tensors of the model classes that its configuration describes.

The classes are built on the meta device for their names and shapes alone; nothing of them runs.
"""

from __future__ import annotations

import inspect as python_inspect
from typing import Any

import torch

from cosmos_lite_ros.policy.checkpoint import CheckpointInfo, check_keys


def _shapes(cls: Any, config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    known = set(python_inspect.signature(cls.__init__).parameters) - {"dtype"}
    with torch.device("meta"):
        model = cls(**{k: v for k, v in config.items() if k in known})
    return {k: tuple(v.shape) for k, v in model.state_dict().items()}


def check_tensors(info: CheckpointInfo) -> None:
    """Insist on zero missing, unexpected and mis-shaped tensors in every part that is read.

    Raises:
        CheckpointError: with the counts and the first names.
        ImportError: diffusers is not installed.
    """
    from diffusers import AutoencoderKLWan, Cosmos3OmniTransformer

    check_keys(info.vae_files, _shapes(AutoencoderKLWan, info.vae_config), "vae")
    shapes = _shapes(Cosmos3OmniTransformer, info.config.raw)
    check_keys(info.transformer_files, shapes, "transformer")
