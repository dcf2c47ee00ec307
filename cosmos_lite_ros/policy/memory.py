# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What a checkpoint needs on the GPU, before anything is loaded; and what a process holds."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from cosmos_lite_ros.errors import EnvironmentLacksError
from cosmos_lite_ros.policy.checkpoint import CheckpointInfo
from cosmos_lite_ros.policy.linears import Linears
from cosmos_lite_ros.policy.profiles import profiles_that_run
from cosmos_lite_ros.policy.text_tower import text_embedding, text_matrices, text_norms
from cosmos_lite_ros.policy.tower import arena_bytes
from cosmos_lite_ros.quantize.files import nbytes_of
from cosmos_lite_ros.quantize.manifest import SCALE_SUFFIX, stored_as
from cosmos_lite_ros.quantize.schemes import SCHEMES, Scheme, role_of

# Graph pools, workspaces of cuBLAS and cuDNN, text slots: measured on an H200, rounded up.
_OVERHEAD_BYTES = 400_000_000


def _count(shape: tuple[int, ...]) -> int:
    count = 1
    for n in shape:
        count *= n
    return count


def needed_bytes(
    info: CheckpointInfo,
    dtype: torch.dtype,
    *,
    text_on_gpu: bool,
    scheme: Scheme | None = None,
    batch: int = 1,
    vae_offload: bool = False,
) -> int:
    """GPU bytes of a request: generation tower, encoder, arena, and the text tower where asked.

    Args:
        info: of the checkpoint, or of an artifact, whose scheme then counts.
        dtype: of all that the scheme leaves alone.
        text_on_gpu: whether the text tower's weights lie on the GPU.
        scheme: None: ``dtype`` throughout.
        batch: guidance branches that go through the tower together.
        vae_offload: the encoder's weights lie in host memory and pass through the arena.
    """
    if info.scheme is not None:
        scheme = SCHEMES[info.scheme]
    encoder = _encoder_values(info) * dtype.itemsize
    linears = Linears(scheme, dtype)
    arena = arena_bytes(info.config, dtype, linears=linears, batch=batch)
    weights = _generation_bytes(info, dtype, scheme)
    if text_on_gpu:
        parts = (*text_matrices(info), *text_norms(info), text_embedding(info))
        weights += sum(_count(part.shape) for part in parts) * dtype.itemsize
    if vae_offload:
        return weights + max(arena, encoder) + _OVERHEAD_BYTES
    return weights + encoder + arena + _OVERHEAD_BYTES


def _generation_bytes(info: CheckpointInfo, dtype: torch.dtype, scheme: Scheme | None) -> int:
    total = 0
    for file in info.transformer_files:
        for name, shape in file.shapes.items():
            if not _is_generation(name):
                continue
            if info.scheme is None:
                plain = {name: ("", shape)}
                stored = plain if scheme is None else stored_as(name, shape, scheme.name)
                for stored_dtype, stored_shape in stored.values():
                    if stored_dtype:
                        total += nbytes_of(stored_dtype, stored_shape)
                    else:
                        total += _held(name, stored_shape) * dtype.itemsize
            elif name.endswith(SCALE_SUFFIX):
                total += 4 * _count(shape)
            elif role_of(name) is not None:
                total += _count(shape)  # one byte each: int4 is packed
            else:
                total += _held(name, shape) * dtype.itemsize
    return total


def _is_generation(name: str) -> bool:
    """Whether the generation tower holds a tensor of the network."""
    if not name.startswith("layers."):
        return not name.startswith(("lm_head", "embed_tokens", "norm."))
    return "moe_gen" in name or "add_" in name or "norm_added" in name


def _held(name: str, shape: tuple[int, ...]) -> int:
    """Values of a tensor that stay; of the action heads one domain."""
    return _count(shape[1:] if name.startswith("action_proj_") else shape)


def _encoder_values(info: CheckpointInfo) -> int:
    values = 0
    for file in info.vae_files:
        for name, shape in file.shapes.items():
            if name.startswith(("encoder.", "quant_conv.")) and ".time_conv." not in name:
                # Only the last temporal tap stays.
                values += _count(shape[:2] + shape[3:] if len(shape) == 5 else shape)
    return values


def check_memory(
    info: CheckpointInfo,
    device: torch.device,
    dtype: torch.dtype,
    *,
    text_on_gpu: bool,
    scheme: Scheme | None = None,
    batch: int = 1,
    vae_offload: bool = False,
    others: int = 0,
) -> None:
    """Refuse before loading where the GPU's free memory is too small; as ``needed_bytes``.

    ``others``: bytes that this process's allocator held before, for another engine say.

    Raises:
        EnvironmentLacksError: with the numbers, and those of schemes that would fit.
    """
    if device.type != "cuda":
        return
    free, total = torch.cuda.mem_get_info(device)
    # What the allocator has kept of the self-test serves what comes.
    free += max(0, torch.cuda.memory_reserved(device) - others)
    place = {"text_on_gpu": text_on_gpu, "vae_offload": vae_offload}
    needed = needed_bytes(info, dtype, scheme=scheme, batch=batch, **place)
    smaller = {}
    if needed > free and info.scheme is None:
        capability = torch.cuda.get_device_capability(device)
        for other in SCHEMES.values():
            if other.quantised and other.runs_on(capability):
                branches = 2 if other.quantises_activations else 1
                theirs = needed_bytes(info, dtype, scheme=other, batch=branches, **place)
                if theirs <= free:
                    smaller[other.name] = theirs
    check_free(needed, free, total, str(device), text_on_gpu=text_on_gpu, smaller=smaller)


def check_free(
    needed: int,
    free: int,
    total: int,
    device: str,
    *,
    text_on_gpu: bool,
    smaller: Mapping[str, int] | None = None,
) -> None:
    """Refuse where ``needed`` bytes are more than are ``free``.

    Args:
        needed, free, total: bytes.
        device: its name.
        text_on_gpu: whether moving the text tower off the GPU would help.
        smaller: scheme -> bytes of those that would fit.

    Raises:
        EnvironmentLacksError: with the numbers.
    """
    if needed > free:
        remedies = ["close other programs on it"]
        if text_on_gpu:
            remedies.append("or try text_residency:=pinned")
        if smaller:
            listed = " or ".join(f"{name} ({n / 1e9:.2f} GB)" for name, n in smaller.items())
            remedies.append(f"or try scheme {listed}")
        raise EnvironmentLacksError(
            f"{device} has {free / 1e9:.2f} GB free of {total / 1e9:.2f}, this policy needs about "
            f"{needed / 1e9:.2f} GB: {', '.join(remedies)}"
        )


def check_arithmetic(scheme: str, capability: tuple[int, int], family: str = "") -> None:
    """Refuse a scheme whose arithmetic a GPU lacks.

    Args:
        scheme: name of a scheme, or ``float32``.
        capability: compute capability of the GPU.
        family: ``edge`` or ``nano``: only its profiles are named.

    Raises:
        EnvironmentLacksError: naming the profiles that would run there.
    """
    if scheme not in SCHEMES or SCHEMES[scheme].runs_on(capability):
        return
    running = profiles_that_run(capability, family)
    remedy = f"try profile {' or '.join(running)}" if running else "no GPU profile runs there"
    raise EnvironmentLacksError(
        f"scheme {scheme} does not run on a GPU of compute capability {capability[0]}."
        f"{capability[1]}, {SCHEMES[scheme].refusal}: {remedy}"
    )
