# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Before anything is loaded: is what this GPU computes what it should compute?

Every kernel that will run, at the network's shapes, against its twin on this GPU; then a whole
request of a tiny network against its recorded answer.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Final

import torch

from cosmos_lite_ros.contract.prompt import Family
from cosmos_lite_ros.errors import CosmosLiteError, EnvironmentLacksError
from cosmos_lite_ros.kernels.selftest import Plan, run_selftest
from cosmos_lite_ros.kernels.selftest_products import Check
from cosmos_lite_ros.kernels.shapes import ACTION_ROWS, TOKEN_ROWS, LayerShape
from cosmos_lite_ros.policy.attention import float16_sums
from cosmos_lite_ros.policy.config import NetworkConfig
from cosmos_lite_ros.policy.linears import Linears
from cosmos_lite_ros.policy.tiny_request import TinyRequest, tiny_request

_SHOWN: Final = 3


@dataclass(frozen=True)
class SelfTest:
    """What was found.

    Attributes:
        checks: of single kernels.
        request: the tiny request.
        seconds: that all of it took.
    """

    checks: tuple[Check, ...]
    request: TinyRequest
    seconds: float

    @property
    def failures(self) -> list[str]:
        """One phrase each; empty: everything is as it should be."""
        found = [
            f"{c.name} is off by {c.error:.3g} times what rounding explains"
            for c in self.checks
            if not c.passed
        ]
        if not self.request.passed:
            found.append(
                f"the tiny request is off by {self.request.latent:.3g} in its latent and "
                f"{self.request.rows:.3g} in its rows (relative L2)"
            )
        return found

    def describe(self) -> dict[str, Any]:
        """For status and reports."""
        worst = max(self.checks, key=lambda c: c.error)
        return {
            "passed": not self.failures,
            "kernels": len(self.checks),
            "worst": f"{worst.name}: {worst.error:.2f} of what rounding explains",
            "tiny_request": {"latent": self.request.latent, "rows": self.request.rows},
            "seconds": self.seconds,
        }

    def require(self) -> None:
        """Raise EnvironmentLacksError, in one line, where anything failed."""
        failures = self.failures
        if failures:
            more = len(failures) - _SHOWN
            listed = "; ".join(failures[:_SHOWN]) + (f"; {more} more" if more > 0 else "")
            raise EnvironmentLacksError(
                f"the self-test on {torch.cuda.get_device_name()} failed: {listed}; expected what "
                "the CPU computes: send the file of cosmos-lite-ros doctor --report FILE, or try "
                "fallback:=bf16"
            )


def layer_shape(config: NetworkConfig) -> LayerShape:
    """The shape that kernels see."""
    nano = config.family == "nano"
    return LayerShape(
        hidden=config.hidden,
        kv_heads=config.kv_heads,
        group=config.heads // config.kv_heads,
        head_dim=config.head_dim,
        intermediate=int(config.raw["intermediate_size"]),
        gated=nano,
        twice=nano,
        layers=config.layers,
    )


def self_test(
    family: Family,
    layer: LayerShape,
    scheme: str,
    linears: Linears,
    device: torch.device,
    *,
    attention: str,
    batch: int,
) -> SelfTest:
    """Run it on a CUDA device; takes some seconds, more where kernels are compiled first.

    Args:
        family, layer: of the network that will be loaded.
        scheme: name of the scheme in effect.
        linears: its arithmetic.
        device: where.
        attention: backend in effect.
        batch: guidance branches in one pass.

    Raises:
        EnvironmentLacksError: a kernel that cannot be compiled or launched.
    """
    started = time.perf_counter()
    plan = Plan(
        layer=layer,
        scheme=scheme,
        rows=(batch * TOKEN_ROWS, batch * ACTION_ROWS),
        tokens=TOKEN_ROWS,
        fp8_backend=linears.fp8_backend,
        fast=linears.fast,
        attention=attention,
        float16_sum=float16_sums(device),
    )
    try:
        with torch.inference_mode():
            checks = tuple(run_selftest(plan, device))
            request = tiny_request(family, linears, device, attention=attention, batch=batch)
    except CosmosLiteError:
        raise
    except Exception as error:  # of a compiler, a driver or a library: each raises its own kind
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise EnvironmentLacksError(
            f"a kernel of scheme {scheme} does not run here ({type(error).__name__}: {first}): "
            "send the file of cosmos-lite-ros doctor --report FILE, or try fallback:=bf16"
        ) from error
    torch.cuda.empty_cache()
    return SelfTest(checks, request, time.perf_counter() - started)
