# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The generation tower, static: weights laid out once, one reused arena, no allocation per request.

Every generation token attends to all text keys and values and to all generation keys and values,
unmasked. So the query heads that share a key head are just more rows: queries are written as
[kv_heads, tokens * group, head_dim] and any attention kernel sees plain heads. Keys and values lie
as [generation | text], so that everything but the attention call is independent of the text length.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from cosmos_lite_ros.kernels.activation import relu2, swiglu
from cosmos_lite_ros.kernels.gather import heads_to_rows
from cosmos_lite_ros.kernels.qk_rope import qk_rope
from cosmos_lite_ros.kernels.rms_norm import rms_norm
from cosmos_lite_ros.policy.checkpoint import CheckpointInfo, Progress, read_tensors
from cosmos_lite_ros.policy.config import DROID_DOMAIN, NetworkConfig
from cosmos_lite_ros.policy.layout import (
    ACTION_CHANNELS,
    ACTION_TOKENS,
    FRAME_TOKENS,
    GENERATION_TOKENS,
    LATENT_CHANNELS,
    PATCH,
    VISION_TOKENS,
    position_ids,
    rotary_table,
)

PATCH_CHANNELS = LATENT_CHANNELS * PATCH * PATCH
# Text tokens that the arena has room for; the released prompts hold 82 to 150.
MAX_TEXT = 1024
_ALIGN = 256
# Rotary tables kept, by text length: 1.6 MB each.
_MAX_TABLES = 16


@dataclass(frozen=True, eq=False)
class Layer:
    """Weights of one layer, [out, in]; query, key, value (and gate, up) in one matrix each."""

    qkv: Tensor
    out: Tensor
    up: Tensor
    down: Tensor
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


@dataclass(frozen=True, eq=False)
class Branch:
    """One guidance branch: its text and the rotary table that the text's length decides.

    Attributes:
        keys, values: [layers, kv_heads, L, head_dim] on the device, keys rotated.
        cos, sin: float32 [3093, head_dim / 2] of the generation tokens.
    """

    keys: Tensor
    values: Tensor
    cos: Tensor
    sin: Tensor

    @property
    def length(self) -> int:
        """L, the number of text tokens."""
        return int(self.keys.shape[2])


class Arena:
    """One block of memory, handed out again from its start by every forward."""

    def __init__(self, nbytes: int, device: torch.device):
        """Allocate once."""
        self.block = torch.empty(nbytes, dtype=torch.uint8, device=device)
        self._used = 0

    def take(self, *shape: int, dtype: torch.dtype) -> Tensor:
        """The next tensor; contents are whatever was there."""
        count = 1
        for n in shape:
            count *= n
        nbytes = count * dtype.itemsize
        start = self._used
        self._used = start + -(-nbytes // _ALIGN) * _ALIGN
        if self._used > self.block.numel():
            raise AssertionError(f"arena of {self.block.numel()} bytes, {self._used} needed")
        return self.block[start : start + nbytes].view(dtype).view(shape)

    def reset(self, mark: int = 0) -> None:
        """Hand out from ``mark`` again."""
        self._used = mark

    @property
    def mark(self) -> int:
        """Where the next tensor starts."""
        return self._used


ATTENTION = ("auto", "cudnn", "flash", "efficient", "math", "default")


def attention_backend(device: torch.device, name: str = "auto") -> str:
    """The backend in effect: torch's default is not the fastest everywhere.

    ``auto`` is cuDNN on compute capability 9 and newer, flash on older GPUs.
    """
    if device.type != "cuda":
        return "default"
    if name == "auto":
        return "cudnn" if torch.cuda.get_device_capability(device)[0] >= 9 else "flash"
    return name


def sdpa_backend(device: torch.device, name: str) -> AbstractContextManager[None]:
    """Make torch's scaled dot product attention use exactly this backend."""
    effective = attention_backend(device, name)
    if effective == "default":
        return nullcontext()
    from torch.nn.attention import SDPBackend, sdpa_kernel

    chosen = {
        "cudnn": SDPBackend.CUDNN_ATTENTION,
        "flash": SDPBackend.FLASH_ATTENTION,
        "efficient": SDPBackend.EFFICIENT_ATTENTION,
        "math": SDPBackend.MATH,
    }[effective]
    return sdpa_kernel(chosen)


class GenerationTower:
    """Layers and heads on one device in one dtype, and the arena that a forward works in."""

    def __init__(
        self,
        config: NetworkConfig,
        layers: tuple[Layer, ...],
        heads: Heads,
        device: torch.device,
        dtype: torch.dtype,
        *,
        attention: str = "auto",
        min_arena_bytes: int = 0,
    ):
        """Use ``load``."""
        self.config = config
        self.device = device
        self.dtype = dtype
        self.layers = layers
        self.heads = heads
        self._tables: dict[int, tuple[Tensor, Tensor]] = {}
        self.twice = config.family == "nano"  # how the family's RMSNorm rounds
        # float32 has no backend but torch's own.
        self.attention = attention if dtype != torch.float32 else "default"
        self.arena = Arena(max(min_arena_bytes, arena_bytes(config, dtype)), device)

    @classmethod
    def load(
        cls,
        info: CheckpointInfo,
        *,
        device: torch.device,
        dtype: torch.dtype,
        attention: str = "auto",
        min_arena_bytes: int = 0,
        progress: Progress | None = None,
    ) -> GenerationTower:
        """Stream the generation half of the checkpoint: peak is the final size and one tensor.

        Keys and shapes must have been checked with the headers (``checkpoint.check_keys``).
        """
        builder = _Builder(info.config, device, dtype)
        total = sum(len(f.shapes) for f in info.transformer_files)
        for done, (name, tensor) in enumerate(read_tensors(info.transformer_files), 1):
            builder.put(name, tensor)
            if progress is not None:
                progress(done / total, "loading the network")
        layers, heads = builder.finish()
        return cls(
            info.config,
            layers,
            heads,
            device,
            dtype,
            attention=attention,
            min_arena_bytes=min_arena_bytes,
        )

    @property
    def nbytes(self) -> int:
        """Bytes of the weights."""
        parts = [t for layer in self.layers for t in vars(layer).values()]
        parts += [t for t in vars(self.heads).values() if isinstance(t, Tensor)]
        return sum(t.nbytes for t in (*parts, *self.heads.time))

    def branch(self, keys: Tensor, values: Tensor) -> Branch:
        """A guidance branch for text keys and values [layers, kv_heads, L, head_dim]."""
        c = self.config
        length = int(keys.shape[2])
        if length not in self._tables:
            cos, sin = rotary_table(position_ids(length), c.head_dim, c.rope_theta, c.rope_sections)
            half = c.head_dim // 2
            while len(self._tables) >= _MAX_TABLES:
                self._tables.pop(next(iter(self._tables)))
            self._tables[length] = (
                cos[length:, :half].contiguous().to(self.device),
                sin[length:, :half].contiguous().to(self.device),
            )
        return Branch(keys, values, *self._tables[length])

    def time_embedding(self, timestep: float) -> Tensor:
        """[hidden] in the tower's dtype: 256 sinusoids (cos, then sin), two linears, in float32."""
        half = 128
        exponent = torch.arange(half, dtype=torch.float32, device=self.device)
        frequencies = torch.exp(-torch.log(torch.tensor(10000.0)).item() * exponent / half)
        angle = (timestep * torch.tensor(self.config.timestep_scale)).to(self.device) * frequencies
        embedded = torch.cat([angle.cos(), angle.sin()])
        w1, b1, w2, b2 = self.heads.time
        hidden = functional.silu(functional.linear(embedded, w1, b1))
        return functional.linear(hidden, w2, b2).to(self.dtype)

    def embed(self, vision: Tensor, rows: Tensor, time: Tensor, x: Tensor) -> None:
        """Fill the residual stream x [3093, hidden].

        Args:
            vision: [3060, 192] patches, rows [33, 64], in the tower's dtype.
            time: [hidden]; added to noisy tokens only: frame 0 and row 0 are clean.
        """
        h = self.heads
        torch.addmm(h.proj_in_bias, vision, h.proj_in.t(), out=x[:VISION_TOKENS])
        # The reference rounds the product, the bias, the modality embedding one after the other.
        action = rows @ h.action_in
        x[VISION_TOKENS:] = action + h.action_in_bias[0] + h.action_in_bias[1]
        x[FRAME_TOKENS:VISION_TOKENS] += time
        x[VISION_TOKENS + 1 :] += time

    def forward(
        self,
        vision: Tensor,
        rows: Tensor,
        time: Tensor,
        branch: Branch,
        *,
        video: bool = True,
        head_dtype: torch.dtype | None = None,
    ) -> tuple[Tensor | None, Tensor]:
        """One evaluation.

        Args:
            vision: [3060, 192], rows: [33, 64], in the tower's dtype.
            time: of ``time_embedding``.
            branch: text and rotary table.
            video: False prunes everything that only the video head needs from the last layer.
            head_dtype: dtype of the action head; None: the tower's.

        Returns:
            (velocity of frames 1..8 [2720, 192] or None, of rows 1..32 [32, 64]); new tensors.
        """
        c, n = self.config, GENERATION_TOKENS
        self.arena.reset()
        take = self.arena.take
        x = take(n, c.hidden, dtype=self.dtype)
        h = take(n, c.hidden, dtype=self.dtype)
        delta = take(n, c.hidden, dtype=self.dtype)
        mark = self.arena.mark
        self.embed(vision, rows, time, x)
        eps, twice = c.rms_norm_eps, self.twice
        rms_norm(x, self.layers[0].norm_in, eps, h, twice=twice)
        last = len(self.layers) - 1
        for i, layer in enumerate(self.layers):
            first = VISION_TOKENS if i == last and not video else 0
            self.arena.reset(mark)
            attended = self._attend(layer, h, branch, i, first)
            m = n - first
            x, h, delta = x[first:], h[first:], delta[first:]
            torch.mm(attended, layer.out.t(), out=delta)
            rms_norm(x, layer.norm_post, eps, h, delta=delta, twice=twice)
            self.arena.reset(mark)
            torch.mm(self._activate(layer, h, m), layer.down.t(), out=delta)
            following = self.heads.norm if i == last else self.layers[i + 1].norm_in
            rms_norm(x, following, eps, h, delta=delta, twice=twice)
        heads = self.heads
        moved = None
        if video:
            moved = torch.addmm(
                heads.proj_out_bias, h[FRAME_TOKENS:VISION_TOKENS], heads.proj_out.t()
            )
        return moved, self.action_velocity(h[-(ACTION_TOKENS - 1) :], head_dtype or self.dtype)

    def action_velocity(self, hidden: Tensor, dtype: torch.dtype) -> Tensor:
        """The action head: normed hidden rows [n, hidden] to velocities [n, 64] in ``dtype``."""
        heads = self.heads
        return hidden.to(dtype) @ heads.action_out.to(dtype) + heads.action_out_bias.to(dtype)

    def _attend(self, layer: Layer, h: Tensor, branch: Branch, i: int, first: int) -> Tensor:
        """Attention of the tokens from ``first`` on to everything: [tokens, heads * head_dim]."""
        c, n, text = self.config, GENERATION_TOKENS, branch.length
        group = c.heads // c.kv_heads
        take = self.arena.take
        qkv = take(n, (c.heads + 2 * c.kv_heads) * c.head_dim, dtype=self.dtype)
        torch.mm(h, layer.qkv.t(), out=qkv)
        q = take(c.kv_heads, n, group, c.head_dim, dtype=self.dtype)
        k = take(c.kv_heads, n + text, c.head_dim, dtype=self.dtype)
        v = take(c.kv_heads, n + text, c.head_dim, dtype=self.dtype)
        qk_rope(
            qkv,
            layer.norm_q,
            layer.norm_k,
            branch.cos,
            branch.sin,
            c.rms_norm_eps,
            q,
            k,
            v,
            twice=self.twice,
        )
        k[:, n:] = branch.keys[i]
        v[:, n:] = branch.values[i]
        m = n - first
        queries = q[:, first:].reshape(1, c.kv_heads, m * group, c.head_dim)
        with sdpa_backend(self.device, self.attention):
            out = functional.scaled_dot_product_attention(queries, k[None], v[None])
        # qkv has been read: its place takes the rows.
        rows = qkv.view(-1)[: m * c.heads * c.head_dim].view(m, c.heads * c.head_dim)
        heads_to_rows(out.view(c.kv_heads, m, group, c.head_dim), rows)
        return rows

    def _activate(self, layer: Layer, h: Tensor, m: int) -> Tensor:
        """[m, intermediate]: the activation's output."""
        wide = self.arena.take(m, layer.up.shape[0], dtype=self.dtype)
        torch.mm(h, layer.up.t(), out=wide)
        if self.config.family == "edge":
            relu2(wide, wide)
            return wide
        out = self.arena.take(m, layer.up.shape[0] // 2, dtype=self.dtype)
        swiglu(wide, out)
        return out


def arena_bytes(config: NetworkConfig, dtype: torch.dtype, max_text: int = MAX_TEXT) -> int:
    """Residual, normalised and delta rows, and the larger of attention's and the MLP's tensors."""
    n, size = GENERATION_TOKENS, dtype.itemsize
    heads, kv, d = config.heads, config.kv_heads, config.head_dim
    attention = n * (2 * heads + 2 * kv) * d + 2 * kv * (n + max_text) * d
    inner = int(config.raw["intermediate_size"])
    mlp = n * inner * (1 if config.family == "edge" else 3)
    return (3 * n * config.hidden + max(attention, mlp)) * size + 16 * _ALIGN


class _Builder:
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

    def __init__(self, config: NetworkConfig, device: torch.device, dtype: torch.dtype):
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
        self._layers = [
            {k: torch.empty(s, dtype=dtype, device=device) for k, s in self._shapes.items()}
            for _ in range(config.layers)
        ]
        self._heads: dict[str, Tensor] = {}

    def put(self, name: str, tensor: Tensor) -> None:
        """One tensor of the file; those of the text tower and of other domains are dropped."""
        if name.startswith("layers."):
            _, number, rest = name.split(".", 2)
            part = self._PARTS.get(rest)
            if part is not None:
                matrix, index = part
                start = self._starts.get(matrix, (0,))[index]
                target = self._layers[int(number)][matrix]
                target[start : start + tensor.shape[0]].copy_(tensor)
        elif name.startswith("time_embedder."):
            # The reference keeps the timestep embedder in float32.
            self._heads[name] = tensor.to(self._device, torch.float32)
        elif name.startswith("action_proj_"):
            self._heads[name] = tensor[DROID_DOMAIN].clone().to(self._device, self._dtype)
        elif name.startswith(("proj_", "norm_moe_gen.", "action_modality_embed")):
            self._heads[name] = tensor.to(self._device, self._dtype)

    def finish(self) -> tuple[tuple[Layer, ...], Heads]:
        """The finished layers and heads."""
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
        return tuple(Layer(**layer) for layer in self._layers), heads


def patch_mask(device: torch.device) -> Tensor:
    """[340, 192], 1 where a patch value lies inside the 33x40 latent, 0 in the padded 34th row."""
    mask = torch.ones(FRAME_TOKENS, PATCH, PATCH, LATENT_CHANNELS, device=device)
    columns = FRAME_TOKENS // 17
    mask[-columns:, 1] = 0.0
    return mask.view(FRAME_TOKENS, PATCH_CHANNELS)
