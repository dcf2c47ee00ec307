# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What a checkpoint must hold: the tensors of the model classes that its configuration describes.

The classes are built on the meta device for their names and shapes alone; nothing of them runs.
"""

from __future__ import annotations

import inspect as python_inspect
import re
from collections.abc import Iterable
from typing import Any

import torch

from cosmos_lite_ros.policy.checkpoint import CheckpointInfo, check_keys
from cosmos_lite_ros.policy.text_tower import text_matrices, text_norms
from cosmos_lite_ros.quantize.manifest import stored_as

# The text half of a layer, whose generation half says moe_gen, add_ or added in its names.
_TEXT_LAYER = re.compile(
    r"layers\.\d+\.(input_layernorm|post_attention_layernorm|mlp\.\w+|"
    r"self_attn\.(to_q|to_k|to_v|to_out|norm_q|norm_k|k_norm_und_for_gen))\.weight"
)


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
    if info.scheme is not None:
        for name in unread_tensors(info, shapes):
            del shapes[name]
        shapes = {
            stored: shape
            for name, plain in shapes.items()
            for stored, (_, shape) in stored_as(name, plain, info.scheme).items()
        }
    check_keys(info.transformer_files, shapes, "transformer")


def unread_tensors(info: CheckpointInfo, names: Iterable[str]) -> set[str]:
    """Those of the network's tensors that no policy request reads; an artifact leaves them out.

    The language model's head and last norm, and of the last text layer what follows its keys and
    values.
    """
    parts = (*text_matrices(info), *text_norms(info))
    read = {part.name for part in parts}
    return {
        name
        for name in names
        if name.startswith(("lm_head.", "norm."))
        or (_TEXT_LAYER.fullmatch(name) is not None and name not in read)
    }
