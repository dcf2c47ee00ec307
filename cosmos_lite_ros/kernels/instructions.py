# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Which matrix instruction each kernel compiles to on each architecture, by its PTX name.

Tests compile every kernel for every architecture listed and hold this table: an arithmetic that a
GPU lacks must be refused and not be replaced by a conversion to float16.
"""

from __future__ import annotations

from typing import Final

ARCHITECTURES: Final = ("sm_86", "sm_89", "sm_90", "sm_120")
REFUSED: Final = "REFUSED"
_MMA: Final = "mma.sync.aligned."
_WGMMA: Final = "wgmma.mma_async.sync.aligned."


def _both(mma: str, wgmma: str, *, since: str = "sm_86") -> dict[str, tuple[str, ...]]:
    names = {a: (_WGMMA + wgmma if a == "sm_90" else _MMA + mma,) for a in ARCHITECTURES}
    first = ARCHITECTURES.index(since)
    return {a: names[a] if i >= first else (REFUSED,) for i, a in enumerate(ARCHITECTURES)}


_FP8: Final = _both("m16n8k32.row.col.f32.e4m3.e4m3.f32", "m64nNk32.f32.e4m3.e4m3", since="sm_89")
_INT8: Final = _both("m16n8k32.row.col.satfinite.s32.s8.s8.s32", "m64nNk32.s32.s8.s8")
_BF16: Final = _both("m16n8k16.row.col.f32.bf16.bf16.f32", "m64nNk16.f32.bf16.bf16")
_FP16: Final = _both("m16n8k16.row.col.f32.f16.f16.f32", "m64nNk16.f32.f16.f16")
# By kernel, by architecture; N is the tile's width and no part of the arithmetic.
INSTRUCTIONS: Final[dict[str, dict[str, tuple[str, ...]]]] = {
    "gemm_fp8": _FP8,
    "gemm_fp8_unpromoted": _FP8,
    "gemm_fp8_fast": _both(
        "m16n8k32.row.col.f16.e4m3.e4m3.f16", "m64nNk32.f16.e4m3.e4m3", since="sm_89"
    ),
    "gemm_int8": _INT8,
    "gemm_int8_blocked": _INT8,
    "gemm_int8wo": _BF16,
    "gemm_int4wo": _BF16,
    "attention_int8qk": {a: _INT8[a] + _FP16[a] for a in ARCHITECTURES},
}
