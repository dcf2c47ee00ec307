# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The Cosmos 3 network in two parts: text tower once a prompt, generation tower every step.

The modules are diffusers' ``Cosmos3OmniTransformer`` (bit-identical to NVIDIA's network); the way
through them is ours. The text tower attends to text alone, causally, so its keys and values depend
on the prompt and on nothing else; every generation token attends to them and to all generation
tokens, unmasked.
"""

from __future__ import annotations

import inspect as python_inspect
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from cosmos_lite_ros.errors import CheckpointError
from cosmos_lite_ros.policy.checkpoint import CheckpointInfo, Progress, check_keys, fill
from cosmos_lite_ros.policy.config import DROID_DOMAIN, NetworkConfig
from cosmos_lite_ros.policy.layout import (
    FRAME_TOKENS,
    VISION_TOKENS,
    patchify,
    position_ids,
    rotary_table,
    unpatchify,
)


@dataclass(frozen=True, eq=False)
class TextCache:
    """Keys and values of one prompt, and the rotary tables that its length decides.

    Attributes:
        keys, values: per layer [1, kv_heads, L, head_dim] in the network's dtype, keys rotated.
        cos, sin: [3093, 1, head_dim] of the generation tokens, in the network's dtype.
        length: L, the number of text tokens.
    """

    keys: tuple[Tensor, ...]
    values: tuple[Tensor, ...]
    cos: Tensor
    sin: Tensor
    length: int

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors."""
        return sum(t.nbytes for t in (*self.keys, *self.values, self.cos, self.sin))


@dataclass(frozen=True)
class Velocity:
    """Network output of one forward.

    ``video`` [1, 48, 8, 33, 40], frames 1 to 8 (None where not asked for); ``action`` [32, 64],
    rows 1 to 32. Clean positions (frame 0, row 0) have no velocity.
    """

    video: Tensor
    action: Tensor


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    turned = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
    return x * cos + turned * sin


def _attend(q: Tensor, k: Tensor, v: Tensor, *, causal: bool) -> Tensor:
    """q [1, heads, N, d], k and v [1, kv_heads, M, d] -> [N, heads * d]."""
    out = functional.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True)
    return out[0].transpose(0, 1).flatten(1)


class PolicyNetwork:
    """The two towers and the heads of the DROID domain, on one device in one dtype."""

    def __init__(self, model: Any, config: NetworkConfig, device: torch.device, dtype: torch.dtype):
        """Use ``load``."""
        self.config = config
        self.device = device
        self.dtype = dtype
        self._model = model
        hidden = config.hidden
        width = model.action_proj_in.input_size
        # One weight per embodiment domain: a robot needs one of them.
        self._action_in = model.action_proj_in.fc.weight[DROID_DOMAIN].view(width, hidden)
        self._action_in_bias = model.action_proj_in.bias.weight[DROID_DOMAIN]
        self._action_out = model.action_proj_out.fc.weight[DROID_DOMAIN].view(hidden, width)
        self._action_out_bias = model.action_proj_out.bias.weight[DROID_DOMAIN]

    @classmethod
    def load(
        cls,
        info: CheckpointInfo,
        *,
        device: torch.device,
        dtype: torch.dtype,
        progress: Progress | None = None,
    ) -> PolicyNetwork:
        """Build on the meta device, check every key, stream the tensors.

        Raises:
            CheckpointError: missing, unexpected or mis-shaped tensors, or quantised ones.
        """
        from diffusers import Cosmos3OmniTransformer

        if info.scheme is not None:
            raise CheckpointError(
                f"{info.folder} is an artifact of scheme {info.scheme}, the reference network "
                "needs the plain checkpoint that it was made from"
            )
        known = set(python_inspect.signature(Cosmos3OmniTransformer.__init__).parameters)
        with torch.device("meta"):
            model = Cosmos3OmniTransformer(
                **{k: v for k, v in info.config.raw.items() if k in known and k != "dtype"}
            )
        expected = {k: tuple(v.shape) for k, v in model.state_dict().items()}
        check_keys(info.transformer_files, expected, "transformer")
        # Never used by a policy request.
        model.lm_head = nn.Identity()
        model.norm = nn.Identity()

        def dtype_of(key: str) -> torch.dtype:
            # The reference keeps the timestep embedder in float32.
            return torch.float32 if key.startswith("time_embedder.") else dtype

        fill(
            model,
            info.transformer_files,
            device=device,
            dtype=dtype_of,
            progress=progress,
            step="loading the network",
        )
        model.eval()
        return cls(model, info.config, device, dtype)

    def text_cache(self, token_ids: list[int]) -> TextCache:
        """Run the text tower: keys and values of every layer for one prompt."""
        c = self.config
        length = len(token_ids)
        cos, sin = rotary_table(position_ids(length), c.head_dim, c.rope_theta, c.rope_sections)
        cos, sin = (t.to(self.device, self.dtype)[:, None] for t in (cos, sin))
        x = self._model.embed_tokens(torch.tensor(token_ids, device=self.device))
        keys, values = [], []
        for i, layer in enumerate(self._model.layers):
            a = layer.self_attn
            h = layer.input_layernorm(x)
            k = a.norm_k(a.to_k(h).view(length, c.kv_heads, c.head_dim))
            v = a.to_v(h).view(length, c.kv_heads, c.head_dim)
            seen = k if a.k_norm_und_for_gen is None else a.k_norm_und_for_gen(k)
            keys.append(_heads_first(_rotate(seen, cos[:length], sin[:length])))
            values.append(_heads_first(v))
            if i + 1 == c.layers:
                break  # the rest of the last layer reaches nothing
            q = a.norm_q(a.to_q(h).view(length, c.heads, c.head_dim))
            q, k = (_heads_first(_rotate(t, cos[:length], sin[:length])) for t in (q, k))
            x = x + a.to_out(_attend(q, k, values[-1], causal=True))
            x = x + layer.mlp(layer.post_attention_layernorm(x))
        return TextCache(
            tuple(keys), tuple(values), cos[length:].contiguous(), sin[length:].contiguous(), length
        )

    def time_embedding(self, timestep: float) -> Tensor:
        """[hidden] in the network's dtype; computed in float32."""
        t = torch.tensor([timestep], dtype=torch.float32, device=self.device)
        projected = self._model.time_proj(t * self.config.timestep_scale)
        embedded: Tensor = self._model.time_embedder(projected.float())[0]
        return embedded.to(self.dtype)

    def forward(
        self,
        video: Tensor,
        action: Tensor,
        timestep: float,
        text: TextCache,
        *,
        action_head: torch.dtype | None = None,
    ) -> Velocity:
        """One evaluation of the generation tower.

        Args:
            video: [1, 48, 9, 33, 40], frame 0 observed, any float dtype (cast to the network's).
            action: [33, 64], row 0 the state; likewise.
            timestep: 0..1000.
            text: the branch's prompt.
            action_head: run the action head in this dtype instead of the network's.
        """
        c = self.config
        embedding = self.time_embedding(timestep)
        vision = self._model.proj_in(patchify(video.to(self.dtype)))
        rows = action.to(self.dtype) @ self._action_in + self._action_in_bias
        rows = rows + self._model.action_modality_embed
        # Time is added to noisy tokens only: frame 0 and row 0 are clean.
        vision[FRAME_TOKENS:] += embedding
        rows[1:] += embedding
        x = torch.cat([vision, rows])
        n = x.shape[0]
        for layer, text_k, text_v in zip(self._model.layers, text.keys, text.values, strict=True):
            a = layer.self_attn
            h = layer.input_layernorm_moe_gen(x)
            q = a.norm_added_q(a.add_q_proj(h).view(n, c.heads, c.head_dim))
            k = a.norm_added_k(a.add_k_proj(h).view(n, c.kv_heads, c.head_dim))
            v = _heads_first(a.add_v_proj(h).view(n, c.kv_heads, c.head_dim))
            q, k = (_heads_first(_rotate(t, text.cos, text.sin)) for t in (q, k))
            k = torch.cat([text_k, k], dim=2)
            v = torch.cat([text_v, v], dim=2)
            x = x + a.to_add_out(_attend(q, k, v, causal=False))
            x = x + layer.mlp_moe_gen(layer.post_attention_layernorm_moe_gen(x))
        x = self._model.norm_moe_gen(x)
        moved = unpatchify(self._model.proj_out(x[FRAME_TOKENS:VISION_TOKENS]))
        head = action_head or self.dtype
        rows = x[VISION_TOKENS + 1 :].to(head) @ self._action_out.to(head)
        return Velocity(moved, rows + self._action_out_bias.to(head))


def _heads_first(x: Tensor) -> Tensor:
    """[N, heads, d] -> [1, heads, N, d], a view."""
    return x.transpose(0, 1).unsqueeze(0)
