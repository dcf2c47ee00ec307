# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Cases of the quantising kernels: arguments by dtype and device, and what they stand for exactly.

Each case has rows that quantisation finds hard: zeros, one outlier channel, values below the
smallest scale, and, where the kernel quantises its input as it is, ties and the edge of the type.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

import torch
from torch import Tensor

from cosmos_lite_ros.kernels.quantise import SCALE_FLOOR

from .makers import Arguments, Source

# Quantised type and the magnitude that a row's largest value gets.
KINDS = {
    "int8": (torch.int8, 127.0),
    "e4m3": (torch.float8_e4m3fn, 448.0),
    "e4m3_28": (torch.float8_e4m3fn, 28.0),
}
# Over a row whose largest value is the limit, so that the scale is 1: ties of both types, the edges
# of float8's range and of its subnormal numbers.
EDGES = {
    "int8": [127, -127, 0.5, 1.5, -2.5, 126.5, -126.5, 64.5, 0.498046875, 0],
    "e4m3": [448, -448, 432, -432, 440, 17, 19, -1.0625, 2**-10, 3 * 2**-10, -(2**-9), 2**-7],
    "e4m3_28": [28, -28, 27, 25, -17, 13, 1.0625, 2**-10, 3 * 2**-10, 2**-9, 0.0146484375],
}


@dataclass(frozen=True)
class Case:
    """One quantising kernel at one shape.

    Attributes:
        name: unique, for test ids.
        module, function: of ``cosmos_lite_ros.kernels``.
        kind: of ``KINDS``.
        make: (dtype, device) -> keyword arguments, the same values every time.
        exact: float64 arguments -> [N, I] float64, what is quantised.
        source: the argument that a fault is planted in.
        roundings: to the tensors' dtype before the quantisation, at most.
        bit_equal: whether nothing in the kernel depends on an order of summation or a library.
        written: names of the arguments that are written.
    """

    name: str
    module: str
    function: str
    kind: str
    make: Callable[[torch.dtype, str], Arguments]
    exact: Callable[[Arguments], Tensor]
    source: str
    roundings: int
    bit_equal: bool
    written: tuple[str, ...] = ("q", "scale")

    def implementation(self, which: str) -> Callable[..., None]:
        """which: public, twin or launch (the Triton kernel)."""
        module = import_module(
            f"cosmos_lite_ros.kernels.{self.module}{'_triton' if which == 'launch' else ''}"
        )
        if which == "launch":
            name = f"launch_{self.function}" if "activation" in self.module else "launch"
        else:
            name = self.function + ("_twin" if which == "twin" else "")
        return getattr(module, name)  # type: ignore[no-any-return]

    def run(self, which: str, dtype: torch.dtype, device: str = "cpu") -> dict[str, Tensor]:
        """What an implementation writes, each name of ``written``."""
        arguments = self.make(dtype, device)
        self.implementation(which)(**arguments)
        return {name: arguments[name] for name in self.written}

    @property
    def block(self) -> int | None:
        return 128 if self.name.endswith("_blocks") else None

    def widest_error(self, exact: Tensor, dtype: torch.dtype) -> Tensor:
        """How far ``q * scale`` may be from ``exact``, elementwise, by the definitions."""
        limit = KINDS[self.kind][1]
        step = {torch.float64: 1e-12, torch.float32: 8e-6, torch.bfloat16: 2.0**-8 * 1.01}[dtype]
        rounding = step * (self.roundings if dtype is torch.bfloat16 else 1)
        block = self.block or exact.shape[1]
        padded = torch.nn.functional.pad(exact, (0, -exact.shape[1] % block))
        largest = padded.abs().unflatten(1, (-1, block)).amax(-1, keepdim=True)
        scale = (largest / limit).clamp(min=SCALE_FLOOR).expand(-1, -1, block)
        scale = scale.flatten(1)[:, : exact.shape[1]] * (1 + rounding + 2e-7)
        size = exact.abs() * (1 + rounding)
        # Half a step: of an integer; of e4m3, three bits or 2^-9 in its subnormal range.
        half = scale / 2 if self.kind == "int8" else torch.maximum(size / 16, scale * 2.0**-10)
        return half * (1 + 1e-4) + exact.abs() * rounding + 1e-30


def _hard_rows(x: Tensor) -> Tensor:
    """Zeros in row 1, an outlier channel in row 2 and a row below the smallest scale."""
    if x.shape[0] > 3:
        x[1] = 0.0
        x[2, x.shape[1] // 2] = 1000.0
        x[3] *= 1e-20
    return x


def _quantised(rows: int, width: int, kind: str, s: Source, *, strided: bool) -> Arguments:
    dtype, limit = KINDS[kind]
    room = width + 16 * strided
    device = s.empty(1).device
    q = torch.full((rows, room), 7.0).to(dtype).to(device)[:, :width]
    return {"q": q, "scale": torch.full((rows,), 7.0, device=device), "limit": limit}


def rms_norm_quantise(
    rows: int,
    width: int,
    kind: str,
    *,
    delta: bool = False,
    twice: bool = False,
    strided: bool = False,
) -> Case:
    def make(dtype: torch.dtype, device: str) -> Arguments:
        s = Source(rows * width, dtype, device)
        room = 2 * width if strided else width
        return {
            "x": _hard_rows(s.normal(rows, room, scale=3.0)[:, :width]),
            "weight": s.gain(width),
            "eps": 1e-5,
            "delta": _hard_rows(s.normal(rows, room)[:, :width]) if delta else None,
            "twice": twice,
            **_quantised(rows, width, kind, s, strided=strided),
        }

    def exact(a: Arguments) -> Tensor:
        x = a["x"] + (0 if a["delta"] is None else a["delta"])
        return x / (x.pow(2).mean(1, True) + a["eps"]).sqrt() * a["weight"]

    flags = f"{'_delta' * delta}{'_twice' * twice}{'_strided' * strided}"
    name = f"rms_norm_quantise_{rows}x{width}_{kind}{flags}"
    module = "rms_norm_quantise"
    return Case(
        *(name, module, module, kind, make, exact, "x", 1 + twice + delta, False),
        written=("q", "scale", "x"),
    )


def _activation(
    function: str, rows: int, width: int, kind: str, *, blocks: bool, strided: bool
) -> Case:
    swiglu = function == "swiglu_quantise"
    source = "gate_up" if swiglu else "x"

    def make(dtype: torch.dtype, device: str) -> Arguments:
        s = Source(rows + width, dtype, device)
        columns = width * (1 + swiglu)
        room = columns + 16 * strided
        x = _hard_rows(s.normal(rows, room, scale=3.0)[:, :columns])
        arguments = {source: x, **_quantised(rows, width, kind, s, strided=strided)}
        if blocks:
            arguments["scale"] = torch.full((rows, -(-width // 128)), 7.0, device=x.device)
        return arguments

    def exact(a: Arguments) -> Tensor:
        if swiglu:
            gate, up = a["gate_up"].tensor_split(2, dim=1)
            return gate * torch.sigmoid(gate) * up
        return torch.where(a["x"] > 0, a["x"] ** 2, 0.0)

    name = f"{function}_{rows}x{width}_{kind}{'_strided' * strided}{'_blocks' * blocks}"
    module = "activation_quantise"
    return Case(name, module, function, kind, make, exact, source, 1, not swiglu)


def relu2_quantise(
    rows: int, width: int, kind: str, *, blocks: bool = False, strided: bool = False
) -> Case:
    return _activation("relu2_quantise", rows, width, kind, blocks=blocks, strided=strided)


def swiglu_quantise(
    rows: int, width: int, kind: str, *, blocks: bool = False, strided: bool = False
) -> Case:
    return _activation("swiglu_quantise", rows, width, kind, blocks=blocks, strided=strided)


def heads_to_rows_quantise(
    rows: int, kv_heads: int, group: int, width: int, kind: str, *, strided: bool = False
) -> Case:
    """Row 0 holds the kind's ``EDGES``; strided: as attention that writes rows returns it."""
    columns = kv_heads * group * width

    def make(dtype: torch.dtype, device: str) -> Arguments:
        s = Source(rows, dtype, device)
        x = _hard_rows(s.normal(rows, columns))
        edges = torch.tensor(EDGES[kind], dtype=dtype)
        x[0] = 0.0
        x[0, : len(edges)] = edges.to(device)
        attn = x.view(rows, kv_heads, group, width).transpose(0, 1)
        if not strided:
            attn = attn.contiguous()
        return {"attn": attn, **_quantised(rows, columns, kind, s, strided=strided)}

    def exact(a: Arguments) -> Tensor:
        return torch.stack([a["attn"][:, n].flatten() for n in range(rows)])

    name = f"heads_to_rows_quantise_{rows}x{kv_heads}x{group}x{width}_{kind}{'_strided' * strided}"
    module, function = "gather_quantise", "heads_to_rows_quantise"
    return Case(name, module, function, kind, make, exact, "attn", 0, True)


def at_kinds(make: Callable[..., Case], *shape: int, **flags: bool) -> list[Case]:
    """One case for each of ``KINDS``."""
    return [make(*shape, kind, **flags) for kind in KINDS]


# The networks' widths, ragged and strided ones.
SMALL = [
    *at_kinds(rms_norm_quantise, 4, 2048, delta=True),
    *at_kinds(rms_norm_quantise, 4, 4096, twice=True),
    rms_norm_quantise(5, 200, "int8", delta=True, strided=True),
    rms_norm_quantise(5, 24, "e4m3", twice=True),
    *at_kinds(relu2_quantise, 4, 9216),
    *at_kinds(relu2_quantise, 4, 9216, blocks=True),
    *at_kinds(relu2_quantise, 5, 301, strided=True),
    *at_kinds(relu2_quantise, 5, 301, blocks=True, strided=True),
    relu2_quantise(4, 1, "int8"),
    *at_kinds(swiglu_quantise, 4, 12288),
    *at_kinds(swiglu_quantise, 4, 12288, blocks=True),
    *at_kinds(swiglu_quantise, 5, 96, strided=True),
    *at_kinds(swiglu_quantise, 5, 2100, blocks=True, strided=True),
    *at_kinds(heads_to_rows_quantise, 4, 8, 2, 128),
    *at_kinds(heads_to_rows_quantise, 4, 8, 4, 128, strided=True),
    *at_kinds(heads_to_rows_quantise, 5, 3, 2, 24, strided=True),
]
# As many rows as the networks have; the interpreter takes 5 ms for each.
TALL = relu2_quantise(3093, 32, "int8", blocks=True)


def real(rows: int) -> list[Case]:
    """Edge's and Nano's shapes, a row for each token of one guidance branch or of both."""
    return [
        case
        for kind in KINDS
        for case in (
            rms_norm_quantise(rows, 2048, kind, delta=True),
            rms_norm_quantise(rows, 4096, kind, delta=True, twice=True),
            relu2_quantise(rows, 9216, kind, blocks=kind == "int8"),
            swiglu_quantise(rows, 12288, kind, blocks=kind == "int8"),
            heads_to_rows_quantise(rows, 8, 2, 128, kind),
            heads_to_rows_quantise(rows, 8, 4, 128, kind),
        )
    ]
