# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The precision schemes: what the generation tower's matrices are stored in and computed in.

A scheme touches the four kinds of matrix of the generation layers and nothing else: heads, norms,
the text tower and the image encoder stay as they are. No torch here: names and rules only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

from cosmos_lite_ros.errors import BadInputError

Role = Literal["qkv", "out", "up", "down"]
Kind = Literal["e4m3", "int8", "int4"]
WeightKind = Literal["bf16", "e4m3", "int8", "int4"]
ActivationKind = Literal["bf16", "token", "block"]

ROLES: Final[tuple[Role, ...]] = ("qkv", "out", "up", "down")
# Columns that share a scale, of int4 weights and of activations quantised by block.
BLOCK: Final = 128
INT4_LIMIT: Final = 7.0

Capability = tuple[int, int]
_AMPERE: Final[Capability] = (8, 0)
# What the kernels are compiled and tested for: Ada, Hopper, and Blackwell of data centres and of
# desktops.
_WITH_FP8: Final[tuple[Capability, ...]] = ((8, 9), (9, 0), (10, 0), (12, 0))


@dataclass(frozen=True)
class Scheme:
    """One scheme.

    Attributes:
        name: in settings, artifacts, chunks and documentation.
        weights: by role, what the matrix is stored in.
        activations: by role, what the matrix's input is in: ``bf16``, or quantised at run time with
            one scale per ``token`` or per ``block`` of 128 columns of a token.
        limit: the largest magnitude that a quantised value takes (int4 weights: ``INT4_LIMIT``).
        minimum: lowest compute capability with the arithmetic.
        capabilities: the only compute capabilities with the arithmetic; empty: all from
            ``minimum`` on.
        refusal: why another GPU is refused, as the end of a sentence.
        summary: one line for people.
    """

    name: str
    weights: Mapping[Role, WeightKind]
    activations: Mapping[Role, ActivationKind]
    limit: float
    minimum: Capability
    capabilities: tuple[Capability, ...]
    refusal: str
    summary: str

    @property
    def quantised(self) -> bool:
        """Whether any matrix is stored in fewer bits."""
        return any(kind != "bf16" for kind in self.weights.values())

    @property
    def activation_aware(self) -> bool:
        """Whether columns of the MLP's first matrices are rescaled by the norm's gain before."""
        return self.weights["up"] == "int4"

    @property
    def quantises_activations(self) -> bool:
        """Whether the arithmetic itself is in eight bits."""
        return any(kind != "bf16" for kind in self.activations.values())

    def weight_limit(self, role: Role) -> float:
        """Largest magnitude of the quantised weights of a role."""
        return INT4_LIMIT if self.weights[role] == "int4" else self.limit

    def runs_on(self, capability: Capability) -> bool:
        """Whether a GPU of this compute capability has the arithmetic."""
        if self.capabilities:
            return capability in self.capabilities
        return capability >= self.minimum


def _scheme(
    name: str,
    weights: str,
    activations: str,
    limit: float,
    refusal: str,
    summary: str,
    *,
    mlp: str = "",
    down: str = "",
    capabilities: tuple[Capability, ...] = (),
) -> Scheme:
    stored = {role: mlp if mlp and role in ("up", "down") else weights for role in ROLES}
    seen = {role: down if down and role == "down" else activations for role in ROLES}
    return Scheme(
        name=name,
        weights=MappingProxyType(stored),  # type: ignore[arg-type]
        activations=MappingProxyType(seen),  # type: ignore[arg-type]
        limit=limit,
        minimum=min(capabilities, default=_AMPERE),
        capabilities=capabilities,
        refusal=refusal,
        summary=summary,
    )


_NO_FP8 = "no tested float8 arithmetic there (compiled for 8.9, 9.0, 10.0 and 12.0)"
_NO_BF16 = "no bfloat16 arithmetic there (8.0 and newer have it)"
_NO_INT8 = "no int8 matrix arithmetic of this kind there (8.0 and newer have it)"

# Limits: e4m3 ends at 448. With 28 on both sides, 64 products of a block add up to at most
# 64 * 28 * 28 = 50176, below float16's 65504.
SCHEMES: Final[Mapping[str, Scheme]] = MappingProxyType(
    {
        scheme.name: scheme
        for scheme in (
            _scheme("bf16", "bf16", "bf16", 0.0, _NO_BF16, "bfloat16 throughout: the reference"),
            _scheme(
                "fp8",
                "e4m3",
                "token",
                448.0,
                _NO_FP8,
                "float8 weights and activations, float32 accumulation",
                capabilities=_WITH_FP8,
            ),
            _scheme(
                "fp8_fast",
                "e4m3",
                "token",
                28.0,
                _NO_FP8,
                "float8 in a range that float16 accumulation holds, promoted to float32",
                capabilities=_WITH_FP8,
            ),
            _scheme(
                "int8",
                "int8",
                "token",
                127.0,
                _NO_INT8,
                "int8 weights and activations, int32 accumulation",
                down="block",
            ),
            _scheme(
                "int8wo",
                "int8",
                "bf16",
                127.0,
                _NO_BF16,
                "int8 weights, bfloat16 arithmetic: saves memory and not time",
            ),
            _scheme(
                "int4wo",
                "int8",
                "bf16",
                127.0,
                _NO_BF16,
                "int4 weights of the MLP, int8 of attention, bfloat16 arithmetic: smallest",
                mlp="int4",
            ),
        )
    }
)
SCHEME_NAMES: Final[tuple[str, ...]] = tuple(SCHEMES)


def scheme(name: str) -> Scheme:
    """The scheme of that name.

    Raises:
        BadInputError: no such scheme.
    """
    try:
        return SCHEMES[name]
    except KeyError:
        known = ", ".join(SCHEMES)
        raise BadInputError(f"scheme is {name!r}, expected one of {known}") from None


# Ends of the names of the generation layers' matrices in a checkpoint.
_ROLE_OF: Final[Mapping[str, Role]] = MappingProxyType(
    {
        "self_attn.add_q_proj.weight": "qkv",
        "self_attn.add_k_proj.weight": "qkv",
        "self_attn.add_v_proj.weight": "qkv",
        "self_attn.to_add_out.weight": "out",
        "mlp_moe_gen.gate_proj.weight": "up",
        "mlp_moe_gen.up_proj.weight": "up",
        "mlp_moe_gen.down_proj.weight": "down",
    }
)


def role_of(tensor: str) -> Role | None:
    """Role of a checkpoint's tensor by its name; None for all that no scheme touches."""
    head, _, rest = tensor.partition(".")
    number, _, leaf = rest.partition(".")
    return _ROLE_OF.get(leaf) if head == "layers" and number.isdecimal() else None


def scale_shape(kind: Kind, rows: int, columns: int) -> tuple[int, ...]:
    """Shape of the float32 scales of a matrix [rows, columns]."""
    return (rows, -(-columns // BLOCK)) if kind == "int4" else (rows,)


def data_shape(kind: Kind, rows: int, columns: int) -> tuple[int, int]:
    """Shape of the stored values of a matrix [rows, columns]: int4 packs two in a byte.

    Raises:
        BadInputError: an odd number of columns, which int4 cannot pack.
    """
    if kind != "int4":
        return rows, columns
    if columns % 2:
        raise BadInputError(f"found {columns} columns, expected an even number: int4 packs pairs")
    return rows, columns // 2
