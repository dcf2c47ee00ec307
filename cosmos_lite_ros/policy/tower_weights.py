# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The generation tower's weights: laid out once, filled as the files come, quantised on the way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from cosmos_lite_ros.errors import CheckpointError
from cosmos_lite_ros.policy.checkpoint import CheckpointInfo, Progress, read_for
from cosmos_lite_ros.policy.config import DROID_DOMAIN, NetworkConfig
from cosmos_lite_ros.policy.layout import ACTION_CHANNELS
from cosmos_lite_ros.policy.linears import Matrix
from cosmos_lite_ros.quantize.matrix import empty_matrix
from cosmos_lite_ros.quantize.schemes import ROLES, Scheme

SCALE_SUFFIX = ".scale"


@dataclass(frozen=True, eq=False)
class Layer:
    """Weights of one layer, [out, in]; query, key, value (and gate, up) in one matrix each."""

    qkv: Matrix
    out: Matrix
    up: Matrix
    down: Matrix
    norm_in: Tensor
    norm_post: Tensor
    norm_q: Tensor
    norm_k: Tensor


@dataclass(frozen=True, eq=False)
class Heads:
    """What stands around the layers; the action head is the DROID domain's."""

    proj_in: Tensor
    proj_in_bias: Tensor
    proj_out: Tensor
    proj_out_bias: Tensor
    action_in: Tensor
    action_in_bias: Tensor
    action_out: Tensor
    action_out_bias: Tensor
    norm: Tensor
    time: tuple[Tensor, Tensor, Tensor, Tensor]


def load_weights(
    info: CheckpointInfo,
    scheme: Scheme | None,
    device: torch.device,
    dtype: torch.dtype,
    progress: Progress | None = None,
) -> tuple[tuple[Layer, ...], Heads]:
    """Stream the generation half of the checkpoint: peak is the final size and one tensor.

    Keys and shapes must have been checked with the headers (``strict.check_tensors``).
    """
    builder = Builder(info.config, device, dtype, scheme)
    total = sum(len(f.shapes) for f in info.transformer_files)
    for done, (name, tensor) in enumerate(read_for(info, scheme), 1):
        builder.put(name, tensor)
        if progress is not None:
            progress(done / total, "loading the network")
    return builder.finish()


class Builder:
    """Puts tensors where they belong, in whatever order they come; allocates nothing twice."""

    # generation tensors of a layer -> (matrix, which part of it)
    _PARTS: ClassVar[dict[str, tuple[str, int]]] = {
        "self_attn.add_q_proj.weight": ("qkv", 0),
        "self_attn.add_k_proj.weight": ("qkv", 1),
        "self_attn.add_v_proj.weight": ("qkv", 2),
        "self_attn.to_add_out.weight": ("out", 0),
        "mlp_moe_gen.gate_proj.weight": ("up", 0),
        "mlp_moe_gen.up_proj.weight": ("up", 1),
        "mlp_moe_gen.down_proj.weight": ("down", 0),
        "input_layernorm_moe_gen.weight": ("norm_in", 0),
        "post_attention_layernorm_moe_gen.weight": ("norm_post", 0),
        "self_attn.norm_added_q.weight": ("norm_q", 0),
        "self_attn.norm_added_k.weight": ("norm_k", 0),
    }

    def __init__(
        self,
        config: NetworkConfig,
        device: torch.device,
        dtype: torch.dtype,
        scheme: Scheme | None = None,
    ):
        """Allocate everything."""
        self._c = config
        self._device = device
        self._dtype = dtype
        inner = int(config.raw["intermediate_size"])
        heads, kv = config.heads * config.head_dim, config.kv_heads * config.head_dim
        gate = inner if config.family == "nano" else 0
        self._shapes: dict[str, tuple[int, ...]] = {
            "qkv": (heads + 2 * kv, config.hidden),
            "out": (config.hidden, heads),
            "up": (gate + inner, config.hidden),
            "down": (config.hidden, inner),
            "norm_in": (config.hidden,),
            "norm_post": (config.hidden,),
            "norm_q": (config.head_dim,),
            "norm_k": (config.head_dim,),
        }
        self._starts = {"qkv": (0, heads, heads + kv), "up": (0, gate)}
        self._scheme = scheme
        self._layers = [
            {k: self._empty(k, s) for k, s in self._shapes.items()} for _ in range(config.layers)
        ]
        self._heads: dict[str, Tensor] = {}
        # Halves of stored matrices whose other half is in another file or later in this one.
        self._halves: dict[str, Tensor] = {}

    def _empty(self, part: str, shape: tuple[int, ...]) -> Matrix:
        for role in ROLES:
            kind = self._scheme.weights[role] if self._scheme is not None else "bf16"
            if part == role and kind != "bf16":
                assert self._scheme is not None
                limit = self._scheme.weight_limit(role)
                return empty_matrix(kind, shape[0], shape[1], self._device, limit)
        return torch.empty(shape, dtype=self._dtype, device=self._device)

    def put(self, name: str, tensor: Tensor) -> None:
        """One tensor of the file; those of the text tower and of other domains are dropped."""
        if name.startswith("layers."):
            _, number, rest = name.split(".", 2)
            part = self._PARTS.get(rest.removesuffix(SCALE_SUFFIX))
            if part is not None:
                matrix, index = part
                start = self._starts.get(matrix, (0,))[index]
                self._put_rows(self._layers[int(number)][matrix], start, name, tensor)
        elif name.startswith("time_embedder."):
            # The reference keeps the timestep embedder in float32.
            self._heads[name] = tensor.to(self._device, torch.float32)
        elif name.startswith("action_proj_"):
            self._heads[name] = tensor[DROID_DOMAIN].clone().to(self._device, self._dtype)
        elif name.startswith(("proj_", "norm_moe_gen.", "action_modality_embed")):
            self._heads[name] = tensor.to(self._device, self._dtype)

    def _put_rows(self, target: Matrix, start: int, name: str, tensor: Tensor) -> None:
        if isinstance(target, Tensor):
            target[start : start + tensor.shape[0]].copy_(tensor)
            return
        is_scale = name.endswith(SCALE_SUFFIX)
        if not is_scale and tensor.dtype.is_floating_point and tensor.dtype.itemsize > 1:
            target.put(start, tensor)
            return
        other = self._halves.pop(name.removesuffix(SCALE_SUFFIX), None)
        if other is None:
            self._halves[name.removesuffix(SCALE_SUFFIX)] = tensor.clone()
            return
        data, scale = (other, tensor) if is_scale else (tensor, other)
        target.put_quantised(start, data, scale)

    def finish(self) -> tuple[tuple[Layer, ...], Heads]:
        """The finished layers and heads.

        Raises:
            CheckpointError: values without scales.
        """
        for name in self._halves:
            raise CheckpointError(f"{name} has no counterpart: expected values and {SCALE_SUFFIX}")
        h, c = self._heads, self._c
        time = ("linear_1.weight", "linear_1.bias", "linear_2.weight", "linear_2.bias")
        bias = torch.stack([h["action_proj_in.bias.weight"], h["action_modality_embed"]])
        heads = Heads(
            proj_in=h["proj_in.weight"],
            proj_in_bias=h["proj_in.bias"],
            proj_out=h["proj_out.weight"],
            proj_out_bias=h["proj_out.bias"],
            action_in=h["action_proj_in.fc.weight"].view(ACTION_CHANNELS, c.hidden),
            action_in_bias=bias,
            action_out=h["action_proj_out.fc.weight"].view(c.hidden, ACTION_CHANNELS),
            action_out_bias=h["action_proj_out.bias.weight"],
            norm=h["norm_moe_gen.weight"],
            time=tuple(h[f"time_embedder.{t}"] for t in time),  # type: ignore[arg-type]
        )
        return tuple(Layer(**layer) for layer in self._layers), heads  # type: ignore[arg-type]
