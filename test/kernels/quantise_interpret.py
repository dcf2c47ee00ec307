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

from .interpreter_shim import install
from .quantise_faults import FAULTS, plant
from .quantise_makers import SMALL, TALL

DTYPES = (torch.float32, torch.bfloat16)


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
    torch.save(found, out)


if __name__ == "__main__":
    np.seterr(all="ignore")
    main(sys.argv[1])
