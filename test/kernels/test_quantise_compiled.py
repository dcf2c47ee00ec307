# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Quantising kernels and int8 attention compiled for four GPUs, without one.

Wide accesses, nothing spilled, shared memory that fits, the matrix instruction by name, and float8
refused where the GPU has none.
"""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton", reason="the Triton kernels need triton, which has no wheel here")
import torch
from triton import CompilationError

from cosmos_lite_ros.kernels import (
    activation_quantise_triton,
    attention_int8qk_triton,
    gather_quantise_triton,
    rms_norm_quantise_triton,
)
from cosmos_lite_ros.kernels.attention_int8qk import Workspace
from cosmos_lite_ros.kernels.attention_int8qk_triton import TILES, launch

from . import quantise_makers as makers
from .cross_compile import Compiled, compile_for, launches
from .quantise_makers import Case

MODULES = [activation_quantise_triton, gather_quantise_triton, rms_norm_quantise_triton]
# Bytes a program may have on sm_86, 89 and 120: 99 KB.
SHARED_LIMIT = 99 * 1024
# What the schemes call: int8 scales blocks before MLP-down, fp8 rows.
CASES = [
    makers.rms_norm_quantise(9, 2048, "int8", delta=True),
    makers.rms_norm_quantise(9, 4096, "int8", delta=True, twice=True),
    makers.relu2_quantise(9, 9216, "int8", blocks=True),
    makers.swiglu_quantise(9, 12288, "int8", blocks=True),
    makers.heads_to_rows_quantise(9, 8, 2, 128, "int8"),
    makers.heads_to_rows_quantise(9, 8, 4, 128, "int8"),
    makers.rms_norm_quantise(9, 2048, "e4m3", delta=True),
    makers.rms_norm_quantise(9, 4096, "e4m3", delta=True, twice=True),
    makers.relu2_quantise(9, 9216, "e4m3"),
    makers.swiglu_quantise(9, 12288, "e4m3"),
    makers.heads_to_rows_quantise(9, 8, 2, 128, "e4m3"),
]
MMA_INT8 = "mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.s8.s32"
MMA_FLOAT16 = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
MMA_FLOAT16_SUM = "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16"
WGMMA_INT8 = "wgmma.mma_async.sync.aligned.m64n128k32.s32.s8.s8"
WGMMA_FLOAT16 = "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16"


@pytest.fixture(autouse=True)
def _cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))


@pytest.mark.parametrize("capability", [86, 89, 90, 120])
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_kernels_compile_to_wide_accesses_without_spills(
    case: Case, capability: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = case.make(torch.bfloat16, "meta")
    work = case.implementation("launch")
    (launched,) = launches(MODULES, lambda: work(**arguments), monkeypatch)
    if capability < 89 and case.kind != "int8":
        with pytest.raises(CompilationError, match="fp8e4nv not supported"):
            compile_for(launched, capability)
        return
    compiled = compile_for(launched, capability)
    # One narrow store is the scale's; 9216 columns have a second part of 1024, few a thread.
    second = case.function == "relu2_quantise" and not case.block
    assert compiled.stores.total() - compiled.stores["st.global.v4.b32"] == 1 + second
    assert compiled.loads.total() - compiled.loads["ld.global.v4.b32"] <= second
    assert compiled.spilled_bytes == 0
    assert compiled.shared_bytes <= 8192
    # Five programs of four warps a multiprocessor at least.
    assert compiled.registers <= 100
    assert not compiled.matrix_instructions
    if case.kind != "int8":
        # Triton 3.6 on sm_89: from f16x2, of which the kernel knows.
        assert compiled.named("cvt.rn.satfinite.e4m3x2")
    # The scale is divided as IEEE has it, and no float is turned into an integer.
    assert compiled.named("div.rn.f32")
    assert not compiled.named("cvt.rzi", "cvt.rni")


def attention(
    capability: int, *, float16_sum: bool, monkeypatch: pytest.MonkeyPatch
) -> dict[str, Compiled]:
    """Edge's call compiled with the tile of an architecture."""
    q = torch.empty((8, 6186, 128), dtype=torch.bfloat16, device="meta")
    k = torch.empty((8, 3234, 128), dtype=torch.bfloat16, device="meta")
    workspace = Workspace.empty(8, 3234, 128, "meta")
    tile = TILES.get(divmod(capability, 10), TILES[8, 0])

    def work() -> None:
        launch(q, k, k, q, workspace, float16_sum=float16_sum, tile=tile)

    found = launches([attention_int8qk_triton], work, monkeypatch)
    return {c.name: c for c in (compile_for(launched, capability) for launched in found)}


@pytest.mark.parametrize(
    ("capability", "float16_sum"),
    [(86, False), (86, True), (89, True), (90, False), (120, True)],
)
def test_attention_multiplies_int8_and_float16_in_the_matrix_unit(
    capability: int, float16_sum: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = attention(capability, float16_sum=float16_sum, monkeypatch=monkeypatch)
    assert list(found) == ["attention_kernel", "prepare_kernel", "sums_kernel"]
    main = found["attention_kernel"]
    if capability == 90:
        expected = {WGMMA_INT8, WGMMA_FLOAT16}
    else:
        expected = {MMA_INT8, MMA_FLOAT16_SUM if float16_sum else MMA_FLOAT16}
    assert main.matrix_instructions == expected
    # Scores leave the matrix unit as float32 bits: no conversion of them.
    assert not main.named("cvt.rn.f32.s32")
    # In the loop keys and values arrive by asynchronous copies of 16 bytes (the scales by 4).
    assert main.instructions["cp.async.cg.shared.global"] >= 12
    assert main.stores.keys() == {"st.global.v4.b32"}
    for compiled in found.values():
        assert compiled.spilled_bytes == 0
        assert compiled.loads.keys() <= {
            *("ld.global.v4.b32", "ld.global.v2.b32"),
            *("cp.async.cg.shared.global", "cp.async.ca.shared.global"),
        }
        if capability != 90:
            assert compiled.shared_bytes < SHARED_LIMIT
