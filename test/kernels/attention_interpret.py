# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Run the int8 attention on the CPU in Triton's interpreter; a program of its own.

``TRITON_INTERPRET=1 python -m test.kernels.attention_interpret OUT`` saves {"case/name": tensor},
the output and the workspace.
"""

from __future__ import annotations

import sys
from dataclasses import fields

import numpy as np
import torch

from cosmos_lite_ros.kernels.attention_int8qk_triton import launch

from .attention_makers import FAULTS, SMALL
from .interpreter_shim import install


def main(out: str) -> None:
    """Every small case in both dtypes, then each fault."""
    install()
    found = {}
    calls = {
        f"{case.name}/{dtype}": case.make(dtype)
        for case in SMALL
        for dtype in (torch.float32, torch.bfloat16)
    }
    calls |= {fault.name: fault.make() for fault in FAULTS}
    for name, arguments in calls.items():
        launch(**arguments)
        found[f"{name}/out"] = arguments["out"].clone()
        for field in fields(arguments["workspace"]):
            found[f"{name}/{field.name}"] = getattr(arguments["workspace"], field.name)
    torch.save(found, out)


if __name__ == "__main__":
    np.seterr(all="ignore")
    main(sys.argv[1])
