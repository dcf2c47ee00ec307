# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Triton kernels compiled for the GPUs that are meant, without one: wide loads, nothing spilled.

The launchers run on meta tensors at the networks' real shapes; their kernels are caught on the way
and handed to Triton's compiler with the types and alignments that a launch would find.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton", reason="the Triton kernels need triton, which has no wheel here")
import torch
import triton
from torch import Tensor

from cosmos_lite_ros.kernels import (
    activation_triton,
    gather_triton,
    qk_rope_triton,
    residual_add_triton,
    rms_norm_triton,
    rms_silu_triton,
)

from . import makers
from .makers import Case

MODULES = (
    activation_triton,
    gather_triton,
    qk_rope_triton,
    residual_add_triton,
    rms_norm_triton,
    rms_silu_triton,
)
OBJDUMP = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
LAUNCH_OPTIONS = ("num_warps", "enable_fp_fusion")
# One of each at the networks' widths; rows do not matter to the compiler.
CASES = [
    makers.rms_norm(9, 2048, delta=True),
    makers.rms_norm(9, 4096, delta=True, twice=True),
    makers.qk_rope(9, 8, 2, 128, text=141),
    makers.qk_rope(9, 8, 4, 128, text=95, twice=True),
    makers.relu2(9, 9216),
    makers.swiglu(9, 12288),
    makers.rms_silu(9, 160),
    makers.rms_silu(9, 320),
    makers.rms_silu(9, 640),
    makers.residual_add(9, 160),
    makers.residual_add(9, 640),
    makers.heads_to_rows(9, 8, 2, 128),
    makers.heads_to_rows(9, 8, 4, 128),
]


class Caught:
    """In a kernel's place: keeps the arguments of its one launch."""

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel
        self.arguments: dict[str, Any] = {}

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        def keep(*positional: Any, **named: Any) -> None:
            names = self.kernel.arg_names[: len(positional)]
            self.arguments = {**dict(zip(names, positional, strict=True)), **named}

        assert min(grid) > 0
        return keep


def catch(case: Case, monkeypatch: pytest.MonkeyPatch) -> Caught:
    """Launch a case up to the kernel."""
    caught = []
    for module in MODULES:
        for name in dir(module):
            if name.endswith("_kernel"):
                monkeypatch.setattr(module, name, Caught(getattr(module, name)))
                caught.append(getattr(module, name))
    case.implementation("launch")(**case.make(torch.bfloat16, "meta"))
    (launched,) = (c for c in caught if c.arguments)
    return launched


def compile_for(launched: Caught, capability: int) -> Any:
    """The kernel as a launch with these arguments on such a GPU would compile it."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    types = {torch.bfloat16: "*bf16", torch.float32: "*fp32"}
    signature, constants, attributes = {}, {}, {}
    for position, parameter in enumerate(launched.kernel.params):
        value = launched.arguments[parameter.name]
        aligned = isinstance(value, Tensor) or (isinstance(value, int) and value % 16 == 0)
        if parameter.is_constexpr or (isinstance(value, int) and value == 1):
            signature[parameter.name] = "constexpr"
            constants[parameter.name] = value
            continue
        if isinstance(value, Tensor):
            signature[parameter.name] = types[value.dtype]
        else:
            signature[parameter.name] = "fp32" if isinstance(value, float) else "i32"
        if aligned:
            attributes[(position,)] = [["tt.divisibility", 16]]
    return triton.compile(
        ASTSource(launched.kernel, signature, constants, attributes),
        target=GPUTarget("cuda", capability, 32),
        options={name: launched.arguments[name] for name in LAUNCH_OPTIONS},
    )


@pytest.mark.parametrize("capability", [86, 89, 90])
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_kernels_compile_to_16_byte_accesses_without_spills(
    case: Case, capability: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    compiled = compile_for(catch(case, monkeypatch), capability)
    accesses = re.findall(r"\b(?:ld|st)\.global\S*", compiled.asm["ptx"])
    stores = {a for a in accesses if a.startswith("st")}
    loads = [a for a in accesses if a.startswith("ld")]
    assert stores == {"st.global.v4.b32"}
    # Up to one load of another width: a gain or bias that is read once a program.
    assert len([a for a in loads if a != "ld.global.v4.b32"]) <= (
        case.function in ("rms_silu", "residual_add")
    )
    cubin = tmp_path / "kernel.cubin"
    cubin.write_bytes(compiled.asm["cubin"])
    usage = subprocess.run(
        [OBJDUMP, "-res-usage", cubin], capture_output=True, text=True, timeout=60, check=True
    ).stdout
    found = re.search(r"REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+)", usage)
    assert found is not None, usage
    registers, stack, shared, local = (int(v) for v in found.groups())
    # 1024 bytes belong to the system on sm_90.
    assert (stack, local) == (0, 0)
    assert max(shared, compiled.metadata.shared) <= 4096
    # Six programs of four warps a multiprocessor at least; compilers differ by a few.
    assert registers <= 80
