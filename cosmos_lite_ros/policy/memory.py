# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What a checkpoint needs on the GPU, before anything is loaded; and what a process holds."""

from __future__ import annotations

import torch

from cosmos_lite_ros.errors import EnvironmentLacksError
from cosmos_lite_ros.policy.checkpoint import CheckpointInfo
from cosmos_lite_ros.policy.text_tower import text_embedding, text_matrices, text_norms
from cosmos_lite_ros.policy.tower import arena_bytes

# Graph pools, workspaces of cuBLAS and cuDNN, text slots: measured on an H200, rounded up.
_OVERHEAD_BYTES = 400_000_000


def _count(shape: tuple[int, ...]) -> int:
    count = 1
    for n in shape:
        count *= n
    return count


def needed_bytes(info: CheckpointInfo, dtype: torch.dtype, *, text_on_gpu: bool) -> int:
    """GPU bytes of a request: generation tower, encoder, arena, and the text tower where asked."""
    generation = 0
    for file in info.transformer_files:
        for name, shape in file.shapes.items():
            if name.startswith(("lm_head", "embed_tokens", "norm.")):
                continue
            is_generation = (
                "moe_gen" in name
                or "add_" in name
                or "norm_added" in name
                or not name.startswith("layers.")
            )
            if name.startswith("action_proj_"):
                shape = shape[1:]  # one domain
            if is_generation:
                generation += _count(shape)
    text = 0
    if text_on_gpu:
        for matrix in (*text_matrices(info), *text_norms(info), text_embedding(info)):
            text += _count(matrix.shape)
    encoder = 0
    for file in info.vae_files:
        for name, shape in file.shapes.items():
            if name.startswith(("encoder.", "quant_conv.")) and ".time_conv." not in name:
                # Only the last temporal tap stays.
                encoder += _count(shape[:2] + shape[3:] if len(shape) == 5 else shape)
    weights = generation + encoder + text
    return weights * dtype.itemsize + arena_bytes(info.config, dtype) + _OVERHEAD_BYTES


def check_memory(
    info: CheckpointInfo, device: torch.device, dtype: torch.dtype, *, text_on_gpu: bool
) -> None:
    """Refuse before loading where the GPU's free memory is too small.

    Raises:
        EnvironmentLacksError: with the numbers.
    """
    if device.type != "cuda":
        return
    free, total = torch.cuda.mem_get_info(device)
    needed = needed_bytes(info, dtype, text_on_gpu=text_on_gpu)
    check_free(needed, free, total, str(device), text_on_gpu=text_on_gpu)


def check_free(needed: int, free: int, total: int, device: str, *, text_on_gpu: bool) -> None:
    """Refuse where ``needed`` bytes are more than are ``free``.

    Raises:
        EnvironmentLacksError: with the numbers.
    """
    if needed > free:
        remedy = "close other programs on it"
        if text_on_gpu:
            remedy += ", or try text_residency:=pinned"
        raise EnvironmentLacksError(
            f"{device} has {free / 1e9:.2f} GB free of {total / 1e9:.2f}, this policy needs about "
            f"{needed / 1e9:.2f} GB: {remedy}"
        )
