# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Every table's matrix products compiled for its architecture, without one.

The named matrix instruction and no other, nothing converted to a wider float on the way, nothing
spilled, shared memory that fits; float8 refused where the GPU has none.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton", reason="the Triton kernels need triton, which has no wheel here")
import torch
import triton
import triton.language as tl
from triton import CompilationError

from cosmos_lite_ros.kernels import (
    gemm_fp8_triton,
    gemm_int4wo_triton,
    gemm_int8_triton,
    gemm_int8wo_triton,
)
from cosmos_lite_ros.kernels.gemm_checks import blocks_of
from cosmos_lite_ros.kernels.instructions import ARCHITECTURES, INSTRUCTIONS, REFUSED
from cosmos_lite_ros.kernels.tables import KERNELS, GemmConfig, Table, built_in, number_of
from cosmos_lite_ros.kernels.trial import launcher

from . import test_quantise_compiled as attention
from .cross_compile import Compiled, Launched, compile_for, launches

REPOSITORY = Path(__file__).resolve().parent.parent.parent
MODULES = [gemm_fp8_triton, gemm_int4wo_triton, gemm_int8_triton, gemm_int8wo_triton]
# Bytes of one program: 99 KB, and 227 KB on Hopper.
SHARED_LIMITS = {"sm_86": 99 * 1024, "sm_89": 99 * 1024, "sm_90": 227 * 1024, "sm_120": 99 * 1024}
# A request's widths and rows; the compiler sees that the former are multiples of 16.
SHAPE = (3093, 4096, 2048)


def configurations(found: Table, kernel: str) -> list[GemmConfig]:
    """A kernel's different configurations, the most frequent first."""
    return [
        c for c, _ in Counter(e.config for e in found.entries if e.kernel == kernel).most_common()
    ]


def cases(*, first: bool) -> Iterator[tuple[str, str, GemmConfig]]:
    """Architecture, kernel and configuration: the most frequent of each, or the others."""
    for architecture, found in built_in().items():
        for kernel in KERNELS:
            listed = configurations(found, kernel)
            yield from ((architecture, kernel, c) for c in (listed[:1] if first else listed[1:]))


def named(case: tuple[str, str, GemmConfig]) -> str:
    architecture, kernel, config = case
    return f"{architecture}-{kernel}-{'x'.join(str(n) for n in config.constants().values())}"


@pytest.fixture(scope="module", autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", str(tmp_path_factory.mktemp("triton")))
        yield


def compile_product(
    architecture: str,
    kernel: str,
    config: GemmConfig,
    monkeypatch: pytest.MonkeyPatch,
    shape: tuple[int, int, int] = SHAPE,
) -> Compiled:
    """What a launch at a shape compiles."""
    rows, columns, depth = shape
    meta = partial(torch.empty, device="meta")
    out = meta((rows, columns), dtype=torch.bfloat16)
    scale = meta(columns)
    if kernel == "gemm_int4wo":
        packed = meta((columns, depth // 2), dtype=torch.uint8)
        x = meta((rows, depth), dtype=torch.bfloat16)
        given = (x, packed, meta((columns, blocks_of(depth))), out)
    elif kernel == "gemm_int8wo":
        w = meta((columns, depth), dtype=torch.int8)
        given = (meta((rows, depth), dtype=torch.bfloat16), w, scale, out)
    else:
        dtype = torch.float8_e4m3fn if "fp8" in kernel else torch.int8
        a, b = meta((rows, depth), dtype=dtype), meta((columns, depth), dtype=dtype)
        blocked = kernel == "gemm_int8_blocked"
        a_scale = meta((rows, blocks_of(depth)) if blocked else rows)
        given = (a, a_scale, b, scale, out)
    work = partial(launcher(kernel), *given, config=config)
    (launched,) = launches(MODULES, work, monkeypatch)
    return compile_for(launched, number_of(architecture))


def check(case: tuple[str, str, GemmConfig], monkeypatch: pytest.MonkeyPatch) -> None:
    architecture, kernel, config = case
    compiled = compile_product(architecture, kernel, config, monkeypatch)
    matrix = {re.sub(r"m64n\d+k", "m64nNk", i) for i in compiled.matrix_instructions}
    assert matrix == set(INSTRUCTIONS[kernel][architecture])
    # Eight bits reach the matrix unit as they are; int4 and int8 weights become bfloat16.
    assert not compiled.named("cvt.rn.f16x2.e4m3x2", "cvt.f16", "cvt.rn.f16")
    assert not {i for i in compiled.instructions if i.startswith("cvt") and "e4m3" in i}
    if kernel.startswith("gemm_int8") and kernel != "gemm_int8wo":
        assert compiled.named("cvt.rn.f32.s32")
    else:
        assert not compiled.named("cvt.rn.f32.s")
    assert compiled.spilled_bytes == 0
    assert compiled.shared_bytes <= SHARED_LIMITS[architecture]
    # Tiles come 16 bytes at a time, and the output leaves so.
    assert compiled.loads["cp.async.cg.shared.global"] >= 4
    assert set(compiled.stores) == {"st.global.v4.b32"}


@pytest.mark.parametrize("case", list(cases(first=True)), ids=named)
def test_most_frequent_configuration(
    case: tuple[str, str, GemmConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    check(case, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("case", list(cases(first=False)), ids=named)
def test_other_configurations(
    case: tuple[str, str, GemmConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    check(case, monkeypatch)


@pytest.mark.parametrize("kernel", list(KERNELS))
def test_widths_that_are_no_multiple_of_a_tile(
    kernel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The tiny networks: masked loads, the same instruction.
    found = configurations(built_in()["sm_90"], kernel)[0]
    compiled = compile_product("sm_90", kernel, found, monkeypatch, (9, 40, 90))
    matrix = {re.sub(r"m64n\d+k", "m64nNk", i) for i in compiled.matrix_instructions}
    assert matrix == set(INSTRUCTIONS[kernel]["sm_90"])


@pytest.mark.parametrize("kernel", [k for k in KERNELS if "fp8" in k])
def test_float8_is_refused_on_sm_86(kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert INSTRUCTIONS[kernel]["sm_86"] == (REFUSED,)
    config = configurations(built_in()["sm_89"], kernel)[0]
    with pytest.raises(CompilationError, match="fp8e4nv not supported in this architecture"):
        compile_product("sm_86", kernel, config, monkeypatch)


def test_a_tile_too_large_for_the_registers_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    # Two float32 sums of 128 x 128 in four warps.
    config = GemmConfig(128, 128, 128, 1, 8, 4, 3)
    assert compile_product("sm_90", "gemm_fp8", config, monkeypatch).spilled_bytes > 0


@triton.jit
def upcast_kernel(a_ptr, b_ptr, out_ptr):
    """What must not pass: e4m3 values multiplied as float16."""
    i = tl.arange(0, 32)
    square = i[:, None] * 32 + i[None, :]
    a = tl.load(a_ptr + square).to(tl.float16)
    b = tl.load(b_ptr + square).to(tl.float16)
    tl.store(out_ptr + square, tl.dot(a, b))


def test_a_conversion_to_float16_would_be_seen() -> None:
    launched = Launched(upcast_kernel)
    eight = torch.empty((32, 32), dtype=torch.float8_e4m3fn, device="meta")
    launched[(1,)](eight, eight, torch.empty((32, 32), device="meta"))
    compiled = compile_for(launched, 89)
    assert compiled.named("cvt.rn.f16x2.e4m3x2")
    assert compiled.matrix_instructions == {"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"}


def test_attention_s_instructions_are_those_that_its_own_test_finds() -> None:
    found = INSTRUCTIONS["attention_int8qk"]
    for architecture in ("sm_86", "sm_89", "sm_120"):
        assert found[architecture] == (attention.MMA_INT8, attention.MMA_FLOAT16)
    wide = (attention.WGMMA_INT8, attention.WGMMA_FLOAT16)
    assert found["sm_90"] == tuple(re.sub(r"m64n\d+k", "m64nNk", i) for i in wide)


def test_the_page_is_current() -> None:
    assert set(INSTRUCTIONS) == {*KERNELS, "attention_int8qk"}
    assert all(tuple(found) == ARCHITECTURES for found in INSTRUCTIONS.values())
    done = subprocess.run(
        [sys.executable, "scripts/make_kernel_docs.py", "--check"],
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, "run: PYTHONPATH=. python scripts/make_kernel_docs.py"
