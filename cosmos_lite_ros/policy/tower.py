# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The generation tower, static: weights laid out once, one reused arena, no allocation per request.

Every generation token attends to all text keys and values and to all generation keys and values,
unmasked. So the query heads that share a key head are just more rows: queries are written as
[kv_heads, tokens * group, head_dim] and any attention kernel sees plain heads. Keys and values lie
as [generation | text], so that everything but the attention call is independent of the text length.

Both guidance branches may go through in one pass: their rows one after the other through every
matrix, and one attention call each.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from cosmos_lite_ros.kernels.attention_int8qk import Workspace, attention_int8qk
from cosmos_lite_ros.kernels.qk_rope import qk_rope
from cosmos_lite_ros.kernels.rms_norm import rms_norm
from cosmos_lite_ros.policy.arena import ALIGN, Arena
from cosmos_lite_ros.policy.attention import INT8QK, attend, float16_sums
from cosmos_lite_ros.policy.checkpoint import CheckpointInfo, Progress
from cosmos_lite_ros.policy.config import NetworkConfig
from cosmos_lite_ros.policy.layout import (
    ACTION_TOKENS,
    FRAME_TOKENS,
    GENERATION_TOKENS,
    LATENT_CHANNELS,
    PATCH,
    VISION_TOKENS,
    position_ids,
    rotary_table,
)
from cosmos_lite_ros.policy.linears import Linears, Rows
from cosmos_lite_ros.policy.tower_weights import Heads, Layer, load_weights
from cosmos_lite_ros.quantize.matrix import QuantisedMatrix

PATCH_CHANNELS = LATENT_CHANNELS * PATCH * PATCH
# Text tokens that the arena has room for; the released prompts hold 82 to 150.
MAX_TEXT = 1024
# Rotary tables kept, by text length: 1.6 MB each.
_MAX_TABLES = 16


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


class GenerationTower:
    """Layers and heads on one device in one arithmetic, and the arena that a forward works in."""

    def __init__(
        self,
        config: NetworkConfig,
        layers: tuple[Layer, ...],
        heads: Heads,
        device: torch.device,
        dtype: torch.dtype,
        *,
        linears: Linears | None = None,
        attention: str = "auto",
        batch: int = 1,
        min_arena_bytes: int = 0,
    ):
        """Use ``load``."""
        self.config = config
        self.device = device
        self.dtype = dtype
        self.layers = layers
        self.heads = heads
        self.linears = linears or Linears(None, dtype)
        self.batch = batch
        self._tables: dict[int, tuple[Tensor, Tensor]] = {}
        self.twice = config.family == "nano"  # how the family's RMSNorm rounds
        # float32 has no backend but torch's own.
        plain = dtype == torch.float32 and attention != INT8QK
        self.attention = "default" if plain else attention
        self._workspace: Workspace | None = None
        if attention == INT8QK:
            keys = GENERATION_TOKENS + MAX_TEXT
            self._workspace = Workspace.empty(config.kv_heads, keys, config.head_dim, device)
        needed = arena_bytes(config, dtype, linears=self.linears, batch=batch)
        self.arena = Arena(max(min_arena_bytes, needed), device)

    @classmethod
    def load(
        cls,
        info: CheckpointInfo,
        *,
        device: torch.device,
        dtype: torch.dtype,
        linears: Linears | None = None,
        attention: str = "auto",
        batch: int = 1,
        min_arena_bytes: int = 0,
        progress: Progress | None = None,
    ) -> GenerationTower:
        """Stream the weights onto the device, quantised on the way where the scheme says so.

        Args:
            info: checked headers (``strict.check_tensors``).
            device, dtype: where, and of everything that the scheme leaves alone.
            linears: the scheme's arithmetic; None: ``dtype`` throughout.
            attention: a backend's name, see ``attention``.
            batch: guidance branches in one pass at most, 1 or 2.
            min_arena_bytes: size of the arena at least.
            progress: told how far the files are read.
        """
        scheme = linears.scheme if linears is not None else None
        layers, heads = load_weights(info, scheme, device, dtype, progress)
        return cls(
            info.config,
            layers,
            heads,
            device,
            dtype,
            linears=linears,
            attention=attention,
            batch=batch,
            min_arena_bytes=min_arena_bytes,
        )

    @property
    def nbytes(self) -> int:
        """Bytes of the weights."""
        parts: list[Tensor | QuantisedMatrix] = [t for y in self.layers for t in vars(y).values()]
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
        *branches: Branch,
        video: bool = True,
        head_dtype: torch.dtype | None = None,
    ) -> list[tuple[Tensor | None, Tensor]]:
        """One evaluation of each branch, in one pass.

        Args:
            vision: [3060, 192], rows: [33, 64], in the tower's dtype.
            time: of ``time_embedding``.
            branches: text and rotary table, one or (with ``batch`` 2) two.
            video: False prunes everything that only the video head needs from the last layer.
            head_dtype: dtype of the action head; None: the tower's.

        Returns:
            For each branch (velocity of frames 1..8 [2720, 192] or None, of rows 1..32 [32, 64]);
            new tensors.
        """
        c, n, count, linears = self.config, GENERATION_TOKENS, len(branches), self.linears
        self.arena.reset()
        take = self.arena.take
        x = take(count * n, c.hidden, dtype=self.dtype)
        delta = take(count * n, c.hidden, dtype=self.dtype)
        h = linears.rows(take, "qkv", count * n, c.hidden)
        mark = self.arena.mark
        self.embed(vision, rows, time, x[:n])
        x[n:].view(count - 1, n, c.hidden).copy_(x[:n])
        eps, twice = c.rms_norm_eps, self.twice
        # Before the first attention all branches are the same; where the attended rows have a place
        # of their own (not qkv's), they share what is computed until then.
        shared = linears.quantises("out")
        first_rows = n if shared else count * n
        linears.rms_norm(x[:first_rows], self.layers[0].norm_in, eps, h[:first_rows], twice=twice)
        last = len(self.layers) - 1
        for i, layer in enumerate(self.layers):
            first = VISION_TOKENS if i == last and not video else 0
            self.arena.reset(mark)
            rows_in = h[:n] if shared and i == 0 else h
            attended = self._attend(layer, rows_in, branches, i, first)
            m = count * (n - first)
            if first:
                kept = take(m, c.hidden, dtype=self.dtype)
                kept.view(count, n - first, -1).copy_(x.view(count, n, -1)[:, first:])
                x, h, delta = kept, h[:m], delta[:m]
                mark = self.arena.mark
            linears.mm(attended, layer.out, delta)
            linears.rms_norm(x, layer.norm_post, eps, h, delta=delta, twice=twice)
            self.arena.reset(mark)
            wide = take(m, layer.up.shape[0], dtype=self.dtype)
            linears.mm(h, layer.up, wide)
            gated = c.family == "nano"
            linears.mm(linears.activate(self.arena, wide, gated=gated), layer.down, delta)
            if i < last:
                following = self.layers[i + 1].norm_in
                linears.rms_norm(x, following, eps, h, delta=delta, twice=twice)
        self.arena.reset(mark)
        final = take(x.shape[0], c.hidden, dtype=self.dtype)
        rms_norm(x, self.heads.norm, eps, final, delta=delta, twice=twice)
        parts = final.view(count, -1, c.hidden)
        return [self._velocities(part, video, head_dtype or self.dtype) for part in parts]

    def _velocities(
        self, hidden: Tensor, video: bool, head_dtype: torch.dtype
    ) -> tuple[Tensor | None, Tensor]:
        """Of one branch's normed hidden rows."""
        heads = self.heads
        moved = None
        if video:
            moved = torch.addmm(
                heads.proj_out_bias, hidden[FRAME_TOKENS:VISION_TOKENS], heads.proj_out.t()
            )
        return moved, self.action_velocity(hidden[-(ACTION_TOKENS - 1) :], head_dtype)

    def action_velocity(self, hidden: Tensor, dtype: torch.dtype) -> Tensor:
        """The action head: normed hidden rows [n, hidden] to velocities [n, 64] in ``dtype``."""
        heads = self.heads
        return hidden.to(dtype) @ heads.action_out.to(dtype) + heads.action_out_bias.to(dtype)

    def _attend(
        self, layer: Layer, h: Rows, branches: tuple[Branch, ...], i: int, first: int
    ) -> Rows:
        """Attention of each branch's tokens from ``first`` on to all of the branch's.

        Args:
            h: normed rows [branches * 3093, hidden]; or [3093, hidden], the same for all branches.

        Returns:
            [branches * (3093 - first), heads * head_dim].
        """
        c, n, count, linears = self.config, GENERATION_TOKENS, len(branches), self.linears
        group, width = c.heads // c.kv_heads, c.heads * c.head_dim
        take = self.arena.take
        qkv = take(h.count, width + 2 * c.kv_heads * c.head_dim, dtype=self.dtype)
        linears.mm(h, layer.qkv, qkv)
        m = n - first
        if linears.quantises("out"):
            attended = linears.rows(take, "out", count * m, width)
        else:
            # A branch's part of qkv has been read when its rows are written.
            assert h.count == count * n
            attended = Rows(qkv.view(-1)[: count * m * width].view(count * m, width))
        start = self.arena.mark
        for b, branch in enumerate(branches):
            self.arena.reset(start)
            text = branch.length
            q = take(c.kv_heads, n, group, c.head_dim, dtype=self.dtype)
            k = take(c.kv_heads, n + text, c.head_dim, dtype=self.dtype)
            v = take(c.kv_heads, n + text, c.head_dim, dtype=self.dtype)
            qk_rope(
                qkv[b * n : (b + 1) * n] if h.count > n else qkv,
                layer.norm_q,
                layer.norm_k,
                branch.cos,
                branch.sin,
                c.rms_norm_eps,
                q,
                k,
                v,
                twice=self.twice,
                text_keys=branch.keys[i],
                text_values=branch.values[i],
            )
            queries = q[:, first:].reshape(c.kv_heads, m * group, c.head_dim)
            if self._workspace is not None:
                out = queries  # a program has read its queries when it writes
                sums = float16_sums(self.device)
                attention_int8qk(queries, k, v, out, self._workspace, float16_sum=sums)
            else:
                out = attend(queries, k, v, self.attention)
            folded = out.reshape(c.kv_heads, m, group, c.head_dim)
            linears.heads_to_rows(folded, attended[b * m : (b + 1) * m])
        return attended


def arena_bytes(
    config: NetworkConfig,
    dtype: torch.dtype,
    max_text: int = MAX_TEXT,
    *,
    linears: Linears | None = None,
    batch: int = 1,
) -> int:
    """Residual, delta and normed rows, and the larger of attention's and the MLP's tensors."""
    linears = linears or Linears(None, dtype)
    one, size = GENERATION_TOKENS, dtype.itemsize
    n = batch * one
    heads, kv, d = config.heads, config.kv_heads, config.head_dim
    attention = (n * (heads + 2 * kv) + one * heads + 2 * kv * (one + max_text)) * d * size
    if linears.quantises("out"):
        attention += linears.rows_bytes("out", n, heads * d)
    inner = int(config.raw["intermediate_size"])
    gated = config.family == "nano"
    mlp = n * inner * (2 if gated else 1) * size
    if gated or linears.quantises("down"):
        mlp += linears.rows_bytes("down", n, inner)
    final = n * config.hidden * size
    # The pruned last layer's few rows lie behind attention's.
    pruned = batch * ACTION_TOKENS * (2 * config.hidden + 4 * inner) * size
    kept = 2 * n * config.hidden * size + linears.rows_bytes("qkv", n, config.hidden)
    return kept + max(attention + pruned, mlp, final) + 16 * ALIGN


def patch_mask(device: torch.device) -> Tensor:
    """[340, 192], 1 where a patch value lies inside the 33x40 latent, 0 in the padded 34th row."""
    mask = torch.ones(FRAME_TOKENS, PATCH, PATCH, LATENT_CHANNELS, device=device)
    columns = FRAME_TOKENS // 17
    mask[-columns:, 1] = 0.0
    return mask.view(FRAME_TOKENS, PATCH_CHANNELS)
