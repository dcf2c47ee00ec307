# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The text tower: from token ids to the keys and values that every generation token attends to.

It depends on the prompt alone, so it runs once per prompt. Mathematics and rounding are those of
``PolicyNetwork.text_cache``; of the last layer only keys and values exist.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from cosmos_lite_ros.errors import BadInputError, CheckpointError, EnvironmentLacksError
from cosmos_lite_ros.policy.checkpoint import CheckpointInfo, Progress
from cosmos_lite_ros.policy.layout import position_ids, rotary_table
from cosmos_lite_ros.policy.text_weights import (
    RESIDENCIES,
    MappedWeights,
    Matrix,
    Residency,
    ResidentWeights,
    Scratch,
    Shards,
    StreamedWeights,
)

# Part of a prompt card's name: raise it with every change of this file that changes a bit of K/V.
TEXT_VERSION = 2

_EMBEDDING = "embed_tokens.weight"


@dataclass(frozen=True, eq=False)
class TextKV:
    """Keys and values of one prompt.

    Attributes:
        keys, values: [layers, kv_heads, length, head_dim] in the engine's dtype, C-contiguous.
            Keys are those that the generation tower attends to: rotated, and for Edge normalised by
            ``k_norm_und_for_gen`` before.
        length: number of text tokens.
    """

    keys: Tensor
    values: Tensor
    length: int

    @property
    def nbytes(self) -> int:
        """Bytes of both tensors."""
        return self.keys.nbytes + self.values.nbytes

    def on_host(self, *, pin: bool = False) -> TextKV:
        """The same in host memory when this returns; itself if it is there already."""
        if self.keys.device.type == "cpu" and (self.keys.is_pinned() or not pin):
            return self
        both = torch.empty((2, *self.keys.shape), dtype=self.keys.dtype, pin_memory=pin)
        both[0].copy_(self.keys)
        both[1].copy_(self.values)
        return TextKV(both[0], both[1], self.length)


def empty_kv(
    info: CheckpointInfo,
    length: int,
    dtype: torch.dtype,
    device: torch.device,
    *,
    pin: bool = False,
) -> TextKV:
    """Uninitialised keys and values, both in one allocation; ``pin``: page-locked host memory."""
    c = info.config
    shape = (2, c.layers, c.kv_heads, length, c.head_dim)
    both = torch.empty(shape, dtype=dtype, device=device, pin_memory=pin)
    return TextKV(both[0], both[1], length)


def text_matrices(info: CheckpointInfo) -> list[Matrix]:
    """The tower's matrices in the order of their use.

    Raises:
        CheckpointError: the MLP's width is not in the configuration.
    """
    c = info.config
    inner = c.raw.get("intermediate_size")
    if not isinstance(inner, int):
        raise CheckpointError(
            f"transformer/config.json: intermediate_size is {inner!r}, expected a whole number: "
            "the file is incomplete"
        )
    queries, keys = c.heads * c.head_dim, c.kv_heads * c.head_dim
    plan = []
    for i in range(c.layers):
        a, m = f"layers.{i}.self_attn", f"layers.{i}.mlp"
        plan.append(Matrix(f"{a}.to_k.weight", (keys, c.hidden)))
        plan.append(Matrix(f"{a}.to_v.weight", (keys, c.hidden)))
        if i + 1 == c.layers:
            break
        plan.append(Matrix(f"{a}.to_q.weight", (queries, c.hidden)))
        plan.append(Matrix(f"{a}.to_out.weight", (c.hidden, queries)))
        if c.family == "nano":
            plan.append(Matrix(f"{m}.gate_proj.weight", (inner, c.hidden)))
        plan.append(Matrix(f"{m}.up_proj.weight", (inner, c.hidden)))
        plan.append(Matrix(f"{m}.down_proj.weight", (c.hidden, inner)))
    return plan


def text_norms(info: CheckpointInfo) -> list[Matrix]:
    """The tower's norm gains."""
    c = info.config
    gains = []
    for i in range(c.layers):
        layer, last = f"layers.{i}", i + 1 == c.layers
        gains.append(Matrix(f"{layer}.input_layernorm.weight", (c.hidden,)))
        if c.family == "edge":
            gains.append(Matrix(f"{layer}.self_attn.k_norm_und_for_gen.weight", (c.head_dim,)))
        else:
            gains.append(Matrix(f"{layer}.self_attn.norm_k.weight", (c.head_dim,)))
        if not last:
            gains.append(Matrix(f"{layer}.post_attention_layernorm.weight", (c.hidden,)))
            if c.family == "nano":
                gains.append(Matrix(f"{layer}.self_attn.norm_q.weight", (c.head_dim,)))
    return gains


def text_embedding(info: CheckpointInfo) -> Matrix:
    """The token embedding."""
    return Matrix(_EMBEDDING, (info.config.vocab_size, info.config.hidden))


class TextTower:
    """The text tower of one checkpoint, on one device in one dtype. Not thread-safe."""

    def __init__(
        self,
        info: CheckpointInfo,
        device: torch.device,
        dtype: torch.dtype,
        residency: Residency = "gpu",
        scratch: Scratch | None = None,
        *,
        embedding_on_device: bool | None = None,
        progress: Progress | None = None,
    ):
        """Load what the residency keeps in memory.

        Args:
            info: whose weights; the strict check of all keys is the caller's.
            device: where prompts are computed.
            dtype: the engine's.
            residency: ``gpu``: all matrices on the device; ``pinned``: in locked host memory;
                ``mmap``: in the files; ``none``: nowhere, only prompt cards can be used. On a CPU
                ``gpu`` and ``pinned`` are both plain memory.
            scratch: lends a flat uint8 tensor on the device, at least as large as the largest
                matrix (asked for two), for as long as one ``compute`` is on the current stream.
                None: a buffer is taken for each prompt.
            embedding_on_device: rows of the embedding (0.5 GB Edge, 1.2 GB Nano) from a copy on
                the device instead of from the file; None: only with residency ``gpu``.
            progress: told of the load.

        Raises:
            BadInputError: an unknown residency.
            CheckpointError: a tensor is missing, mis-shaped or damaged.
            EnvironmentLacksError: host memory cannot be locked.
        """
        if residency not in RESIDENCIES:
            raise BadInputError(
                f"text_residency is {residency!r}, expected one of {', '.join(RESIDENCIES)}"
            )
        self.residency = residency
        self.device = device
        self.dtype = dtype
        self._info = info
        self._embedding: Tensor | None = None
        self._gains: dict[str, Tensor] = {}
        self._weights: ResidentWeights | MappedWeights | StreamedWeights | None = None
        self._shards: Shards | None = None
        if residency == "none":
            return
        matrices, gains, embedding = text_matrices(info), text_norms(info), text_embedding(info)
        self._shards = Shards(info.transformer_files, [*matrices, *gains, embedding])
        self._gains = {
            m.name: self._shards.tensor(m.name).to(device, dtype, copy=True) for m in gains
        }
        if residency == "gpu" if embedding_on_device is None else embedding_on_device:
            self._embedding = self._shards.tensor(_EMBEDDING).to(device, dtype, copy=True)
        cuda = device.type == "cuda"
        source: ResidentWeights | MappedWeights
        if residency == "mmap":
            source = MappedWeights(self._shards, matrices, dtype, pinned=cuda)
        else:
            pinned = cuda and residency == "pinned"
            source = ResidentWeights(
                self._shards, matrices, dtype, device, pinned=pinned, progress=progress
            )
        self._weights = source
        if residency != "gpu" and (cuda or scratch is not None):
            self._weights = StreamedWeights(source, matrices, dtype, device, scratch)

    @property
    def device_bytes(self) -> int:
        """GPU memory that stays taken between prompts, bytes; 0 on a CPU."""
        return self._small_bytes + self._matrix_bytes(True) if self.device.type == "cuda" else 0

    @property
    def host_bytes(self) -> int:
        """Host memory that stays taken between prompts, bytes, without the page cache."""
        small = 0 if self.device.type == "cuda" else self._small_bytes
        return small + self._matrix_bytes(False)

    @property
    def _small_bytes(self) -> int:
        embedding = 0 if self._embedding is None else self._embedding.nbytes
        return embedding + sum(t.nbytes for t in self._gains.values())

    def _matrix_bytes(self, on_gpu: bool) -> int:
        there = self.residency == "gpu" and self.device.type == "cuda"
        return 0 if self._weights is None or there != on_gpu else self._weights.nbytes

    def compute(self, token_ids: list[int]) -> TextKV:
        """Run the tower over one prompt, exactly as long as it is; returns tensors on the device.

        Work is only enqueued on the current stream, except where ``mmap`` waits for the disk.

        Raises:
            EnvironmentLacksError: residency ``none``.
            BadInputError: no tokens, or one beyond the embedding.
        """
        if self.residency == "none":
            raise EnvironmentLacksError(
                f"no prompt card of this instruction ({len(token_ids)} tokens) and text_residency "
                "is none: run cosmos-lite-ros prewarm with its checkpoint and dtype, or choose "
                "text_residency pinned or mmap"
            )
        if self._weights is None:
            raise RuntimeError("the text tower is closed")
        c = self._info.config
        if not token_ids or min(token_ids) < 0 or max(token_ids) >= c.vocab_size:
            raise BadInputError(
                f"found {len(token_ids)} token ids, expected at least one, each below "
                f"{c.vocab_size}: tokenizer and weights belong to different models"
            )
        stream = self._weights.matrices()
        try:
            return self._run(token_ids, stream)
        finally:
            if hasattr(stream, "close"):
                stream.close()

    def close(self) -> None:
        """Give all memory back; ``compute`` then raises RuntimeError."""
        if self._weights is not None:
            self._weights.close()
        if self._shards is not None:
            self._shards.close()
        self._weights = self._shards = self._embedding = None
        self._gains = {}

    def _embed(self, token_ids: list[int]) -> Tensor:
        ids = torch.tensor(token_ids)
        if self._embedding is not None:
            return self._embedding.index_select(0, ids.to(self.device))
        assert self._shards is not None
        rows = self._shards.tensor(_EMBEDDING).index_select(0, ids)
        return rows.to(self.dtype).to(self.device)

    def _norm(self, x: Tensor, name: str) -> Tensor:
        """RMSNorm: Edge rounds once at the end; Nano after normalising and after the gain."""
        gain, eps = self._gains[name], self._info.config.rms_norm_eps
        if self._info.config.family == "edge":
            wide = x.float()
            wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
            return (gain.float() * wide).to(x.dtype)
        scale = torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + eps)
        return (x * scale).to(gain.dtype) * gain

    def _run(self, token_ids: list[int], weights: Iterator[Tensor]) -> TextKV:
        c = self._info.config
        n, edge = len(token_ids), c.family == "edge"
        table = rotary_table(position_ids(n)[:, :n], c.head_dim, c.rope_theta, c.rope_sections)
        cos, sin = (t.to(self.device, self.dtype)[:, None] for t in table)
        out = empty_kv(self._info, n, self.dtype, self.device)
        x = self._embed(token_ids)
        for i in range(c.layers):
            a = f"layers.{i}.self_attn"
            h = self._norm(x, f"layers.{i}.input_layernorm.weight")
            k = functional.linear(h, next(weights)).view(n, c.kv_heads, c.head_dim)
            if not edge:
                k = self._norm(k, f"{a}.norm_k.weight")
            seen = self._norm(k, f"{a}.k_norm_und_for_gen.weight") if edge else k
            seen = _rotate(seen, cos, sin).transpose(0, 1)
            out.keys[i].copy_(seen)
            v = functional.linear(h, next(weights)).view(n, c.kv_heads, c.head_dim).transpose(0, 1)
            out.values[i].copy_(v)
            if i + 1 == c.layers:
                break  # the rest of the last layer reaches nothing
            q = functional.linear(h, next(weights)).view(n, c.heads, c.head_dim)
            if not edge:
                q = self._norm(q, f"{a}.norm_q.weight")
            # Edge's own text attends to keys without that norm.
            k = _rotate(k, cos, sin).transpose(0, 1) if edge else seen
            q = _rotate(q, cos, sin).transpose(0, 1)
            attended = functional.scaled_dot_product_attention(
                q[None], k[None], v[None], is_causal=True, enable_gqa=True
            )
            x = x + functional.linear(attended[0].transpose(0, 1).flatten(1), next(weights))
            h = self._norm(x, f"layers.{i}.post_attention_layernorm.weight")
            if edge:
                h = torch.relu(functional.linear(h, next(weights))).square()
            else:
                h = functional.silu(functional.linear(h, next(weights))) * functional.linear(
                    h, next(weights)
                )
            x = x + functional.linear(h, next(weights))
        return out


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    turned = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
    return x * cos + turned * sin
