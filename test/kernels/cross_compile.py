# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Compile what a launcher launches for a GPU that is not there, and read what became of it."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import triton
from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

OBJDUMP = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
OPTIONS = ("num_warps", "num_stages", "enable_fp_fusion")
TYPES = {
    torch.bfloat16: "*bf16",
    torch.float16: "*fp16",
    torch.float32: "*fp32",
    torch.float8_e4m3fn: "*fp8e4nv",
    torch.int8: "*i8",
    torch.uint8: "*u8",
}
INSTRUCTION = re.compile(r"^\s*(?:@!?%\w+\s+)?([a-z]\w*(?:(?:::|\.)\w+)*)", re.MULTILINE)


class Launched:
    """In a kernel's place: keeps the arguments of its launches."""

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel
        self.calls: list[dict[str, Any]] = []

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        def keep(*positional: Any, **named: Any) -> None:
            names = self.kernel.arg_names[: len(positional)]
            self.calls.append({**dict(zip(names, positional, strict=True)), **named})

        assert min(grid) > 0
        return keep


@dataclass(frozen=True)
class Compiled:
    """One kernel as it would be loaded.

    Attributes:
        name: of the kernel.
        instructions: of the PTX, with all their suffixes, and how often each is written.
        registers: of a thread.
        spilled_bytes: of a thread's registers, in local memory.
        shared_bytes: of a program, without the 1024 that the system keeps on sm_90 and later.
    """

    name: str
    instructions: Counter[str]
    registers: int
    spilled_bytes: int
    shared_bytes: int

    def named(self, *starts: str) -> set[str]:
        """The instructions that start like one of ``starts``."""
        return {i for i in self.instructions if i.startswith(starts)}

    @property
    def matrix_instructions(self) -> set[str]:
        return self.named("mma.", "wgmma.mma_async")

    @property
    def loads(self) -> Counter[str]:
        """From global memory, asynchronous copies to shared memory too."""
        return Counter({i: n for i, n in self.instructions.items() if _loads(i)})

    @property
    def stores(self) -> Counter[str]:
        found = self.instructions.items()
        return Counter({i: n for i, n in found if i.startswith("st.global")})


def _loads(instruction: str) -> bool:
    return instruction.startswith(("ld.global", "cp.async.ca", "cp.async.cg"))


def launches(
    modules: list[ModuleType], work: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> list[Launched]:
    """Run ``work`` on meta tensors; each kernel of ``modules`` that it launched, in order."""
    found = []
    for module in modules:
        for name in [n for n in dir(module) if n.endswith("_kernel")]:
            launched = Launched(getattr(module, name))
            monkeypatch.setattr(module, name, launched)
            found.append(launched)
    work()
    return [launched for launched in found if launched.calls]


def compile_for(launched: Launched, capability: int) -> Compiled:
    """What a first launch with these arguments compiles on sm_``capability``.

    Raises:
        triton.CompilationError: it has no such arithmetic.
    """
    arguments = launched.calls[0]
    signature: dict[str, str] = {}
    constants, attributes = {}, {}
    for position, parameter in enumerate(launched.kernel.params):
        value = arguments[parameter.name]
        if parameter.is_constexpr or (isinstance(value, int) and value == 1):
            signature[parameter.name] = "constexpr"
            constants[parameter.name] = value
            continue
        if isinstance(value, Tensor):
            signature[parameter.name] = TYPES[value.dtype]
        else:
            signature[parameter.name] = "fp32" if isinstance(value, float) else "i32"
        if isinstance(value, Tensor) or (isinstance(value, int) and value % 16 == 0):
            attributes[(position,)] = [["tt.divisibility", 16]]
    compiled = triton.compile(
        ASTSource(launched.kernel, signature, constants, attributes),
        target=GPUTarget("cuda", capability, 32),
        options={name: arguments[name] for name in OPTIONS if name in arguments},
    )
    with tempfile.NamedTemporaryFile(suffix=".cubin") as cubin:
        cubin.write(compiled.asm["cubin"])
        cubin.flush()
        usage = subprocess.run(
            [OBJDUMP, "-res-usage", cubin.name],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        ).stdout
    found = re.search(r"REG:(\d+) STACK:(\d+) SHARED:\d+ LOCAL:(\d+)", usage)
    assert found is not None, usage
    registers, stack, local = (int(v) for v in found.groups())
    return Compiled(
        launched.kernel.__name__,
        Counter(INSTRUCTION.findall(compiled.asm["ptx"])),
        registers,
        stack + local,
        compiled.metadata.shared,
    )
