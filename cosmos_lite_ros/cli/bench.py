# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""``bench``: measurements on this machine, beside a baseline of the same run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer


def register(app: typer.Typer) -> None:
    """Add the command group."""
    bench = typer.Typer(no_args_is_help=True, help="Measure this machine.")
    app.add_typer(bench, name="bench")
    bench.command("observe")(observe)


def observe(
    runs: Annotated[int, typer.Option(help="Runs of each case, at least 50.")] = 100,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the figures to this file too.")
    ] = None,
) -> None:
    """Time three camera messages to an observation, on one core."""
    import json
    from dataclasses import asdict

    from rich.console import Console

    from cosmos_lite_ros.contract.bench_observe import bench_observe, machine, one_core
    from cosmos_lite_ros.contract.views import pillow_resize
    from cosmos_lite_ros.errors import BadInputError
    from cosmos_lite_ros.ros.allocator import set_image_allocator

    resizes: dict[str, Any] = {"pillow": pillow_resize}
    console = Console(highlight=False)
    try:
        import torch

        from cosmos_lite_ros.policy.resize import torch_resize

        torch.set_num_threads(1)
        resizes["torch"] = torch_resize
    except ImportError:
        console.print("torch is not installed: its resize is not measured")
    set_image_allocator()  # as the nodes do
    with one_core():
        results = bench_observe(resizes, runs)
    console.print(_table(results))
    console.print(f"one core of: {machine()}")
    if json_file is not None:
        report = {"machine": machine(), "cores": 1, "results": [asdict(r) for r in results]}
        try:
            json_file.write_text(json.dumps(report, indent=2) + "\n")
        except OSError as error:
            raise BadInputError(f"cannot write {json_file}: {error.strerror}") from error


def _table(results: list[Any]) -> Any:
    """One line a case: the way itself, what it is measured against, and the aim."""
    from rich.table import Table

    table = Table(title="three camera messages to the 540x640 observation, ms")
    for heading in ("messages", "resize", "median", "p95", "memcpy", "Pillow resize", "aim"):
        table.add_column(heading, justify="left" if heading in ("messages", "resize") else "right")
    for r in results:
        alone = "-" if r.pillow_resize_ms is None else f"{r.pillow_resize_ms:.2f}"
        met = "met" if r.observation_ms <= r.aim_ms else "missed"
        table.add_row(
            r.case,
            r.resize,
            f"{r.observation_ms:.2f}",
            f"{r.observation_p95_ms:.2f}",
            f"{r.memcpy_ms:.2f}",
            alone,
            f"{r.aim_ms:g} ({met})",
        )
    return table
