# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Run the matrix products on the CPU in Triton's interpreter; a program of its own.

``TRITON_INTERPRET=1 python -m test.kernels.gemm_interpret OUT`` saves {"product/dtype": tensor}.
"""

from __future__ import annotations

import sys
from functools import partial

import numpy as np
import torch

from cosmos_lite_ros.kernels.trial import launcher

from .gemm_makers import OVERFLOWING, PRODUCTS, TALL, overflowing, small
from .interpreter_shim import install


def main(out: str) -> None:
    """Every product in both output dtypes, the tall ones in bfloat16."""
    install()
    found = {}
    for product in [*PRODUCTS, *TALL]:
        launch = partial(launcher(product.kernel), config=product.config)
        for dtype in (torch.bfloat16, torch.float32)[: 1 if product in TALL else 2]:
            found[f"{product.name}/{dtype}"] = product.run(launch, dtype)
    given = overflowing()
    launcher("gemm_fp8_fast")(*given, config=small("gemm_fp8_fast"))
    found[OVERFLOWING] = given[-1]
    torch.save(found, out)


if __name__ == "__main__":
    np.seterr(all="ignore")
    main(sys.argv[1])
