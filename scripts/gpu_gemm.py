#!/usr/bin/env python3
# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Check the quantised matrix products on a CUDA GPU, time them beside their rivals, tune them.

    PYTHONPATH=. python scripts/gpu_gemm.py [check] [selftest] [probe] [bench] [tune] --out DIR

Without a part: check, selftest, probe, bench. Each part prints its table and writes a JSON file of
its name to DIR; ``tune`` writes sm_NN.json there, which belongs into
cosmos_lite_ros/kernels/gemm_tables/ when the package shall have it.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch

from cosmos_lite_ros.kernels import bench, tune
from cosmos_lite_ros.kernels.probe import probe
from cosmos_lite_ros.kernels.selftest import Plan, run_selftest
from cosmos_lite_ros.kernels.shapes import ACTION_ROWS, RELEASED, TOKEN_ROWS
from cosmos_lite_ros.kernels.tables import save_table, use_table

SCHEMES = ("bf16", "fp8", "fp8_fast", "int8", "int8wo", "int4wo")


def say(text: str) -> None:
    print(text, flush=True)


def markdown(title: str, headings: list[str], rows: list[list[str]]) -> str:
    lines = [f"\n**{title}**\n", f"| {' | '.join(headings)} |", "|---" * len(headings) + "|"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def selftests(device: torch.device, families: list[str]) -> dict[str, Any]:
    """Every scheme of the families as a node would test itself, cold and again."""
    found: dict[str, Any] = {}
    for family in families:
        for scheme in SCHEMES:
            rows = (2 * ACTION_ROWS, 2 * TOKEN_ROWS)
            backend = "scaled_mm" if torch.cuda.get_device_capability(device)[0] == 9 else "triton"
            plan = Plan(RELEASED[family], scheme, rows, TOKEN_ROWS, backend, attention="int8qk")
            torch.cuda.reset_peak_memory_stats()
            seconds = []
            for _ in range(2):
                start = time.perf_counter()
                checks = run_selftest(plan, device)
                seconds.append(round(time.perf_counter() - start, 2))
            failed = [c for c in checks if not c.passed]
            peak = torch.cuda.max_memory_allocated() / 1e9
            worst = max(checks, key=lambda c: c.error)
            say(
                f"{family} {scheme}: {len(checks)} checks in {seconds} s, peak {peak:.2f} GB, "
                f"worst {worst.name} {worst.error:.3f}"
            )
            for check in failed:
                say(f"  WRONG {check.name}: {check.error:.3g} of its limit")
            found[f"{family} {scheme}"] = {
                "seconds": seconds,
                "peak_gb": round(peak, 3),
                "errors": {c.name: c.error for c in checks},
                "failed": [c.name for c in failed],
            }
    return found


def main() -> int:
    """Exit code 1 where something is wrong, 3 without a GPU."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=["check", "selftest", "probe", "bench"])
    parser.add_argument("--out", type=Path, default=Path("."))
    parser.add_argument("--families", nargs="+", default=list(RELEASED))
    parser.add_argument("--gemlite", default="default", choices=bench.GEMLITE)
    parser.add_argument("--table", default="auto", help="auto, builtin or a file")
    parser.add_argument("--kernels", nargs="+", default=None, help="of tune")
    parser.add_argument("--workers", type=int, default=min(os.cpu_count() or 1, 12))
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        print("found no CUDA GPU, expected one: the kernels run there", file=sys.stderr)
        return 3
    device = torch.device("cuda", torch.cuda.current_device())
    arguments.out.mkdir(parents=True, exist_ok=True)
    say(f"table: {use_table(arguments.table, device).describe()}")

    def write(name: str, report: Any) -> None:
        (arguments.out / f"gemm_{name}.json").write_text(json.dumps(report, indent=1) + "\n")

    wrong = False
    with torch.inference_mode():
        for part in arguments.parts:
            start = time.perf_counter()
            if part == "check":
                errors = bench.check_kernels(device, arguments.families, say)
                for name, error in errors.items():
                    if not error <= 1:
                        say(f"WRONG {name}: {error:.3g} of its limit")
                        wrong = True
                write(part, errors)
            elif part == "selftest":
                report = selftests(device, arguments.families)
                wrong |= any(each["failed"] for each in report.values())
                write(part, report)
            elif part == "probe":
                found = probe(device).describe()
                say(json.dumps(found))
                write(part, found)
            elif part == "bench":
                report = bench.bench_kernels(
                    device, say, families=arguments.families, gemlite=arguments.gemlite
                )
                say(f"\n{bench.caption(report)}")
                for table in bench.report_tables(report):
                    say(markdown(*table))
                say(f"\n{json.dumps(report['notes'], indent=1)}")
                write(part, report)
            elif part == "tune":
                table = tune.tune(device, say, workers=arguments.workers, kernels=arguments.kernels)
                save_table(table, arguments.out / f"{table.architecture}.json")
            else:
                parser.error(f"found part {part!r}")
            say(f"-- {part}: {time.perf_counter() - start:.0f} s")
    return int(wrong)


if __name__ == "__main__":
    raise SystemExit(main())
