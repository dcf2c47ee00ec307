# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What this GPU is, which kernels it would use and whether they are right: a report to send."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Any, get_args

import torch

from cosmos_lite_ros.contract.prompt import Family
from cosmos_lite_ros.kernels.probe import probe
from cosmos_lite_ros.kernels.shapes import RELEASED
from cosmos_lite_ros.kernels.tables import use_table
from cosmos_lite_ros.policy.attention import INT8QK, attention_backend
from cosmos_lite_ros.policy.linears import Linears
from cosmos_lite_ros.policy.selftest import self_test
from cosmos_lite_ros.quantize.schemes import SCHEMES

_NVIDIA_SMI = "name,driver_version,vbios_version,power.limit,clocks.max.sm,memory.total"


def gpu_report(device: torch.device, say: Callable[[str], None]) -> dict[str, Any]:
    """Everything about one CUDA device; a minute or two where kernels have to be compiled.

    What raises is part of the report: nothing here stops at a fault.
    """
    capability = torch.cuda.get_device_capability(device)
    free, total = torch.cuda.mem_get_info(device)
    properties = torch.cuda.get_device_properties(device)
    report: dict[str, Any] = {
        "name": torch.cuda.get_device_name(device),
        "capability": list(capability),
        "multiprocessors": properties.multi_processor_count,
        "free_bytes": free,
        "total_bytes": total,
        "nvidia_smi": _nvidia_smi(),
        "torch_cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),  # type: ignore[no-untyped-call]
        "attention": attention_backend(device),
    }
    say("probing ready-made kernels")
    report["probe"] = _attempt(lambda: asdict(probe(device)))
    report["gemm_table"] = _attempt(lambda: _table(device))
    report["schemes"] = {}
    for name, scheme in SCHEMES.items():
        if not scheme.runs_on(capability):
            report["schemes"][name] = f"refused: {scheme.refusal}"
            continue
        found: dict[str, Any] = {}
        for family in get_args(Family):
            for attention in ("auto", INT8QK):
                say(f"self-test of {name}, {family}, attention {attention}")
                found[f"{family} {attention}"] = _attempt(
                    partial(_tested, family, name, attention, device)
                )
        report["schemes"][name] = found
    return report


def _tested(family: Family, scheme: str, attention: str, device: torch.device) -> dict[str, Any]:
    linears = Linears(SCHEMES[scheme], torch.bfloat16)
    batch = 2 if SCHEMES[scheme].quantises_activations else 1
    test = self_test(
        family, RELEASED[family], scheme, linears, device, attention=attention, batch=batch
    )
    errors = {check.name: check.error for check in test.checks}
    return {
        "passed": not test.failures,
        "errors": errors,
        "tiny_request": asdict(test.request),
    }


def _table(device: torch.device) -> str:
    table = use_table("auto", device)
    return f"{table.source} {table.digest}"


def _attempt(work: Callable[[], Any]) -> Any:
    try:
        return work()
    except Exception as error:  # part of the report
        return {"failed": f"{type(error).__name__}: {error}"}


def _nvidia_smi() -> str:
    command = ["nvidia-smi", f"--query-gpu={_NVIDIA_SMI}", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        return f"does not answer: {type(error).__name__}"
    return done.stdout.strip()
