#!/usr/bin/env python3
# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The recorded tiny request on a CUDA GPU: families, schemes, attention, one and two branches."""

from __future__ import annotations

import itertools
import sys
import time

import torch

from cosmos_lite_ros.policy.linears import Linears
from cosmos_lite_ros.policy.tiny_request import tiny_request
from cosmos_lite_ros.quantize.schemes import SCHEMES


def main() -> int:
    """A line each; exit code 1 where one is off."""
    device = torch.device("cuda")
    failed = False
    backends = ("scaled_mm", "triton")
    for family, scheme in itertools.product(("edge", "nano"), SCHEMES.values()):
        for backend in backends if scheme.name == "fp8" else backends[:1]:
            for attention, batch in (("auto", 1), ("auto", 2), ("int8qk", 2)):
                linears = Linears(scheme, torch.bfloat16, fp8_backend=backend)  # type: ignore[arg-type]
                started = time.perf_counter()
                try:
                    found = tiny_request(
                        family,  # type: ignore[arg-type]
                        linears,
                        device,
                        attention=attention,
                        batch=batch,
                    )
                    line = f"latent {found.latent:.4f} rows {found.rows:.4f} passed {found.passed}"
                    failed |= not found.passed
                except Exception as error:
                    line, failed = f"{type(error).__name__}: {str(error)[:300]}", True
                seconds = time.perf_counter() - started
                case = f"{family} {scheme.name} {backend} {attention} x{batch}"
                print(f"{case}: {line} {seconds:.1f} s", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
