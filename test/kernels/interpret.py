# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Run every Triton kernel on the CPU in Triton's interpreter; a program of its own.

TRITON_INTERPRET=1 is read when a kernel is decorated and holds for the whole process. Usage:
``TRITON_INTERPRET=1 python -m test.kernels.interpret OUT`` saves {"case/dtype/argument": tensor}.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import torch
import triton.language as tl
from triton.runtime import interpreter

from .makers import SMALL
from .makers import heads_to_rows as heads_to_rows_case
from .makers import qk_rope as qk_rope_case
from .makers import relu2 as relu2_case
from .makers import residual_add as residual_add_case
from .makers import rms_norm as rms_norm_case
from .makers import rms_silu as rms_silu_case
from .makers import swiglu as swiglu_case

DTYPES = (torch.float32, torch.bfloat16)
# Where a NaN is planted: case, argument, index.
BROKEN = [
    (rms_norm_case(3, 64, delta=True), "x", (1, 5)),
    (rms_norm_case(3, 64, delta=True, twice=True), "delta", (2, 0)),
    (qk_rope_case(3, 2, 2, 16), "qkv", (1, 3 * 16 + 2)),
    (qk_rope_case(3, 2, 2, 16), "qkv", (2, 5 * 16 + 9)),
    (qk_rope_case(3, 2, 2, 16), "qkv", (0, 7 * 16 + 4)),
    (relu2_case(3, 64), "x", (1, 5)),
    (swiglu_case(3, 64), "gate_up", (1, 5)),
    (swiglu_case(3, 64), "gate_up", (2, 70)),
    (rms_silu_case(20, 48), "x", (17, 5)),
    (rms_silu_case(20, 48, silu=False), "x", (17, 5)),
    (rms_silu_case(20, 48, bias=True), "bias", (5,)),
    (residual_add_case(20, 48), "shortcut", (17, 5)),
    (heads_to_rows_case(3, 2, 2, 16), "attn", (1, 2, 0, 3)),
]


def repair_rounding() -> None:
    """Let float32 to bfloat16 round to nearest even, as GPUs do; the interpreter cuts."""
    original = interpreter._convert_float

    def convert(data: Any, source: Any, target: Any, rounding: Any) -> Any:
        if (source, target) != (tl.float32, tl.bfloat16):
            return original(data, source, target, rounding)
        values = torch.from_numpy(np.ascontiguousarray(data).view(np.float32).copy())
        bits = values.to(torch.bfloat16).view(torch.int16).numpy().view(np.uint16)
        return bits.reshape(data.shape)

    interpreter._convert_float = convert


def main(out: str) -> None:
    """Every small case in both dtypes, then those with a NaN in bfloat16."""
    repair_rounding()
    found = {}
    for case in SMALL:
        for dtype in DTYPES:
            for name, tensor in case.run("launch", dtype).items():
                found[f"{case.name}/{dtype}/{name}"] = tensor.clone()
    for number, (case, argument, index) in enumerate(BROKEN):
        arguments = case.make(torch.bfloat16, "cpu")
        arguments[argument][index] = float("nan")
        case.implementation("launch")(**arguments)
        for name in case.written:
            found[f"broken{number}/{name}"] = arguments[name].clone()
    torch.save(found, out)


if __name__ == "__main__":
    # Divisions by a sum that is NaN and exp of large numbers are part of the cases.
    np.seterr(all="ignore")
    main(sys.argv[1])
