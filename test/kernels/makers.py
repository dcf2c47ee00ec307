# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Cases of every kernel: arguments by dtype and device, and what is exact, written out again.

The values are multiples of bfloat16's steps, so that all dtypes see the same numbers. A case is a
function of the public function's keyword arguments; twin, launcher and public function share them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

Arguments = dict[str, Any]
SENTINEL = 7.0


@dataclass(frozen=True)
class Case:
    """One kernel at one shape.

    Attributes:
        name: unique, for test ids.
        module, function: of ``cosmos_lite_ros.kernels``.
        make: (dtype, device) -> keyword arguments, the same values every time.
        written: names of the arguments that are written.
        roundings: to the tensors' dtype on the way to the output, at most.
    """

    name: str
    module: str
    function: str
    make: Callable[[torch.dtype, str], Arguments]
    written: tuple[str, ...] = ("out",)
    roundings: int = 1

    def implementation(self, which: str) -> Callable[..., None]:
        """which: public, twin or launch (the Triton kernel)."""
        module = import_module(
            f"cosmos_lite_ros.kernels.{self.module}{'_triton' if which == 'launch' else ''}"
        )
        if which == "launch":
            several = self.module == "activation"
            found = getattr(module, f"launch_{self.function}" if several else "launch")
        else:
            found = getattr(module, self.function + ("_twin" if which == "twin" else ""))
        return found  # type: ignore[no-any-return]

    def run(self, which: str, dtype: torch.dtype, device: str = "cpu") -> dict[str, Tensor]:
        """What an implementation writes, each name of ``written``."""
        arguments = self.make(dtype, device)
        self.implementation(which)(**arguments)
        return {name: arguments[name] for name in self.written}


class Source:
    """Tensors of one case, in order, from one seed."""

    def __init__(self, seed: int, dtype: torch.dtype, device: str) -> None:
        self._generator = torch.Generator().manual_seed(seed)
        self._dtype = dtype
        self._device = device

    def normal(self, *shape: int, mean: float = 0.0, scale: float = 1.0) -> Tensor:
        drawn = torch.randn(shape, generator=self._generator) * scale + mean
        return drawn.bfloat16().to(self._device, self._dtype)

    def gain(self, *shape: int) -> Tensor:
        return self.normal(*shape, mean=1.0, scale=0.25)

    def empty(self, *shape: int) -> Tensor:
        """Filled with what nothing may read or leave."""
        return torch.full(shape, SENTINEL, dtype=self._dtype, device=self._device)

    def table(self, rows: int, width: int) -> tuple[Tensor, Tensor]:
        angles = torch.randn((rows, width), generator=self._generator) * 100
        dtype = torch.promote_types(self._dtype, torch.float32)
        return angles.cos().to(self._device, dtype), angles.sin().to(self._device, dtype)


def rms_norm(
    rows: int, width: int, *, delta: bool = False, twice: bool = False, strided: bool = False
) -> Case:
    def make(dtype: torch.dtype, device: str) -> Arguments:
        s = Source(rows * width, dtype, device)
        room = 2 * width if strided else width
        return {
            "x": s.normal(rows, room, scale=3.0)[:, :width],
            "weight": s.gain(width),
            "eps": 1e-5,
            "out": s.empty(rows, room)[:, :width],
            "delta": s.normal(rows, room)[:, :width] if delta else None,
            "twice": twice,
        }

    flags = f"{'_delta' * delta}{'_twice' * twice}{'_strided' * strided}"
    return Case(
        f"rms_norm_{rows}x{width}{flags}",
        "rms_norm",
        "rms_norm",
        make,
        ("out", "x"),
        1 + delta + twice,
    )


def qk_rope(
    rows: int,
    kv_heads: int,
    group: int,
    width: int,
    *,
    spare: int = 0,
    text: int = 0,
    twice: bool = False,
    strided: bool = False,
) -> Case:
    """text: rows of text keys and values; spare: rows of k_out and v_out behind the written ones.

    strided: all outputs are views.
    """

    def make(dtype: torch.dtype, device: str) -> Arguments:
        s = Source(rows * width + group, dtype, device)
        heads = kv_heads * (group + 2)
        cos, sin = s.table(rows, width // 2)
        arguments = {
            "qkv": s.normal(rows, heads * width + 16 * strided)[:, : heads * width],
            "q_weight": s.gain(width),
            "k_weight": s.gain(width),
            "cos": cos,
            "sin": sin,
            "eps": 1e-6,
            "q_out": s.empty(kv_heads, rows, group, width),
            "k_out": s.empty(kv_heads, rows + text + spare, width),
            "v_out": s.empty(kv_heads, rows + text + spare, width),
            "twice": twice,
        }
        if text:
            # As views of longer buffers, as a text slot has them.
            for name in ("text_keys", "text_values"):
                arguments[name] = s.normal(kv_heads, text + 3, width)[:, :text]
        if strided:
            pair = s.empty(rows + text + spare, kv_heads, 2, width)
            arguments["k_out"] = pair[:, :, 0].transpose(0, 1)
            arguments["v_out"] = pair[:, :, 1].transpose(0, 1)
            arguments["q_out"] = s.empty(rows, kv_heads, group, width).transpose(0, 1)
        return arguments

    flags = f"_text{text}_spare{spare}{'_twice' * twice}{'_strided' * strided}"
    return Case(
        f"qk_rope_{rows}x{kv_heads}x{group}x{width}{flags}",
        "qk_rope",
        "qk_rope",
        make,
        ("q_out", "k_out", "v_out"),
        2 + twice,
    )


def relu2(rows: int, width: int, *, strided: bool = False) -> Case:
    def make(dtype: torch.dtype, device: str) -> Arguments:
        s = Source(rows + width, dtype, device)
        room = width + 16 * strided
        return {"x": s.normal(rows, room)[:, :width], "out": s.empty(rows, room)[:, :width]}

    return Case(f"relu2_{rows}x{width}{'_strided' * strided}", "activation", "relu2", make)


def swiglu(rows: int, width: int, *, strided: bool = False) -> Case:
    def make(dtype: torch.dtype, device: str) -> Arguments:
        s = Source(rows + width, dtype, device)
        spare = 16 * strided
        return {
            "gate_up": s.normal(rows, 2 * width + spare, scale=4.0)[:, : 2 * width],
            "out": s.empty(rows, width + spare)[:, :width],
        }

    return Case(f"swiglu_{rows}x{width}{'_strided' * strided}", "activation", "swiglu", make)


def rms_silu(
    pixels: int, channels: int, *, bias: bool = False, silu: bool = True, strided: bool = False
) -> Case:
    def make(dtype: torch.dtype, device: str) -> Arguments:
        s = Source(pixels + channels, dtype, device)
        room = channels + 16 * strided
        x = s.normal(pixels, room, scale=5.0)
        if not bias:
            x[0] = 0.0  # a row without a direction
        return {
            "x": x[:, :channels],
            "gamma": s.gain(channels),
            "out": s.empty(pixels, room)[:, :channels],
            "bias": s.normal(channels) if bias else None,
            "silu": silu,
        }

    flags = f"{'_bias' * bias}{'_linear' * (not silu)}{'_strided' * strided}"
    name = f"rms_silu_{pixels}x{channels}{flags}"
    return Case(name, "rms_silu", "rms_silu", make, roundings=1 + 4 * bias)


def residual_add(pixels: int, channels: int, *, strided: bool = False) -> Case:
    def make(dtype: torch.dtype, device: str) -> Arguments:
        s = Source(pixels + channels, dtype, device)
        room = channels + 16 * strided
        return {
            "x": s.normal(pixels, room)[:, :channels],
            "bias": s.normal(channels),
            "shortcut": s.normal(pixels, room)[:, :channels],
            "out": s.empty(pixels, room)[:, :channels],
        }

    name = f"residual_add_{pixels}x{channels}{'_strided' * strided}"
    return Case(name, "residual_add", "residual_add", make, roundings=2)


def canvas_patches(picture: tuple[int, ...], height: int, width: int, channels: int = 16) -> Case:
    """picture: [H, W, 3] or, with a 3 in front, views [3, h, w, 3]."""

    def make(dtype: torch.dtype, device: str) -> Arguments:
        s = Source(height + width, dtype, device)
        generator = torch.Generator().manual_seed(height)
        image = torch.randint(0, 256, picture, dtype=torch.uint8, generator=generator)
        rows = (height // 2) * (width // 2)
        return {
            "image": image.to(device),
            "out": s.empty(rows, channels),
            "height": height,
            "width": width,
        }

    kind = "views" if len(picture) == 4 else "image"
    name = f"canvas_patches_{kind}_{height}x{width}x{channels}"
    return Case(name, "canvas", "canvas_patches", make)


def heads_to_rows(
    rows: int, kv_heads: int, group: int, width: int, *, strided: bool = False
) -> Case:
    """strided: as attention kernels that write rows of tokens return it."""

    def make(dtype: torch.dtype, device: str) -> Arguments:
        s = Source(rows, dtype, device)
        attn = s.normal(kv_heads, rows, group, width)
        if strided:
            attn = s.normal(rows, group, kv_heads, width).permute(2, 0, 1, 3)
        return {"attn": attn, "out": s.empty(rows, kv_heads * group * width)}

    return Case(
        f"heads_to_rows_{rows}x{kv_heads}x{group}x{width}{'_strided' * strided}",
        "gather",
        "heads_to_rows",
        make,
        roundings=0,
    )


# Ragged and strided shapes beside those of the networks.
SMALL = [
    *(rms_norm(3, 2048, delta=d, twice=t) for d in (False, True) for t in (False, True)),
    rms_norm(2, 4096, delta=True, twice=True),
    rms_norm(5, 200, delta=True, strided=True),
    rms_norm(1, 24),
    qk_rope(3, 8, 2, 128, spare=4),
    qk_rope(3, 8, 4, 128, spare=4, twice=True),
    qk_rope(3, 8, 2, 128, text=2, spare=1),
    qk_rope(5, 3, 2, 24, spare=1, twice=True, strided=True),
    qk_rope(3, 9, 1, 24, text=4, strided=True),
    qk_rope(2, 9, 1, 16, strided=True),
    relu2(3, 2000),
    relu2(2, 4100, strided=True),
    swiglu(3, 1000),
    swiglu(2, 2050, strided=True),
    rms_silu(37, 160),
    rms_silu(9, 320),
    rms_silu(5, 640, silu=False),
    rms_silu(7, 48, strided=True),
    rms_silu(9, 160, bias=True),
    residual_add(37, 160),
    residual_add(5, 640),
    residual_add(7, 48, strided=True),
    canvas_patches((30, 40, 3), 36, 50),
    canvas_patches((3, 20, 40, 3), 32, 40, 12),
    canvas_patches((3, 20, 44, 3), 36, 50),
    heads_to_rows(3, 8, 2, 128),
    heads_to_rows(2, 8, 4, 128, strided=True),
    heads_to_rows(5, 3, 2, 24, strided=True),
]
# Edge and Nano: 3093 tokens, 33 of them action rows; an encoder's pixels from 544x736.
REAL = [
    rms_norm(3093, 2048, delta=True),
    rms_norm(3093, 4096, delta=True, twice=True),
    rms_norm(33, 2048, delta=True),
    qk_rope(3093, 8, 2, 128, text=141),
    qk_rope(3093, 8, 4, 128, text=95, twice=True),
    relu2(3093, 9216),
    swiglu(3093, 12288),
    rms_silu(272 * 368, 160),
    rms_silu(136 * 184, 320),
    rms_silu(68 * 92, 640),
    rms_silu(34 * 46, 640),
    rms_silu(272 * 368, 160, bias=True),
    residual_add(272 * 368, 160),
    canvas_patches((540, 640, 3), 544, 736),
    canvas_patches((3, 360, 640, 3), 544, 736),
    residual_add(34 * 46, 640),
    heads_to_rows(3093, 8, 2, 128),
    heads_to_rows(3093, 8, 4, 128),
]


def error_limit(case: Case, dtype: torch.dtype, name: str, exact: Tensor) -> Tensor:
    """How far an output may be from ``exact`` (float64), elementwise.

    A rounding to bfloat16 is off by 2^-8 of the value at most. What is inside float32 may add a few
    of its own roundings. Rotation mixes two channels, so the length of the pair takes the place of
    the value.
    """
    size = exact.abs()
    if name in ("q_out", "k_out"):
        half = exact.shape[-1] // 2
        size = torch.hypot(exact[..., :half], exact[..., half:]).repeat_interleave(2, -1)
        size = size.unflatten(-1, (half, 2)).transpose(-1, -2).flatten(-2)
    if case.function == "canvas_patches" and dtype is not torch.bfloat16:
        size = size + 1.0  # bytes / 127.5, of which 1 is taken
    if case.function == "residual_add":
        size = size + 8.0  # the first sum, which is rounded too
    roundings = 1 if name == "x" else case.roundings
    step = {torch.float64: 1e-12, torch.float32: 4e-6, torch.bfloat16: 2.0**-8 * 1.01}[dtype]
    if case.function == "heads_to_rows" or name == "v_out":
        roundings = 0
    elif dtype is not torch.bfloat16:
        roundings = 1
    return size * step * roundings + 1e-30
