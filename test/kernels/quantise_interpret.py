# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Run the quantising kernels on the CPU in Triton's interpreter; a program of its own.

``TRITON_INTERPRET=1 python -m test.kernels.quantise_interpret OUT`` saves
{"case/dtype/argument": tensor}, int8 and float8 as they are.
"""

from __future__ import annotations

import sys

import numpy as np
import torch
import triton
import triton.language as tl

from cosmos_lite_ros.kernels.quantise_triton import _odd

from .interpreter_shim import install
from .quantise_faults import FAULTS, plant
from .quantise_makers import SMALL, TALL

DTYPES = (torch.float32, torch.bfloat16)


@triton.jit
def odd_kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
    lanes = tl.arange(0, BLOCK)
    tl.store(out_ptr + lanes, _odd(tl.load(x_ptr + lanes)))


def near_ties() -> torch.Tensor:
    """16384 float32 around the numbers of e4m3 and between them."""
    every = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).float()
    positive = every[every >= 0].unique()
    centres = torch.cat((positive[1:], (positive[1:] + positive[:-1]) / 2)).repeat(64)
    bits = centres.view(torch.int32) + torch.arange(len(centres)) % 5 - 2
    some = torch.rand(16384 - len(bits), generator=torch.Generator().manual_seed(0)) * 448
    return torch.cat((bits.int().view(torch.float32), some))


def main(out: str) -> None:
    """Every small case in both dtypes, then a tall one and each fault in bfloat16."""
    install()
    found = {}
    for case in SMALL:
        for dtype in DTYPES:
            for name, tensor in case.run("launch", dtype).items():
                found[f"{case.name}/{dtype}/{name}"] = tensor.clone()
    for name, tensor in TALL.run("launch", torch.bfloat16).items():
        found[f"{TALL.name}/{torch.bfloat16}/{name}"] = tensor.clone()
    for fault in FAULTS:
        for name, tensor in plant(fault, "launch").items():
            found[f"{fault.name}/{name}"] = tensor.clone()
    found["near_ties"] = near_ties()
    found["odd"] = torch.empty_like(found["near_ties"])
    odd_kernel[(1,)](found["near_ties"], found["odd"], BLOCK=16384)
    torch.save(found, out)


if __name__ == "__main__":
    np.seterr(all="ignore")
    main(sys.argv[1])
