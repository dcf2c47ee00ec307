# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""``bench``: measurements on this machine, beside a baseline of the same run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from cosmos_lite_ros.policy.bench_common import Report, Target

Family = Annotated[str, typer.Option(help="edge or nano.")]
Scheme = Annotated[str, typer.Option(help="float32, bf16, fp8, fp8_fast, int8, int8wo or int4wo.")]
Checkpoint = Annotated[
    str, typer.Option(help="Folder; left out: random weights, made for the occasion.")
]
RandomWeights = Annotated[
    bool, typer.Option("--random-weights", help="Random weights; the default without --checkpoint.")
]
Size = Annotated[str, typer.Option(help="Of random weights: released or tiny.")]
Device = Annotated[str, typer.Option(help="cpu, cuda or cuda:N.")]
Residency = Annotated[
    str, typer.Option(help="Where the text tower lies: gpu, pinned, mmap or none.")
]
Accumulate = Annotated[str, typer.Option(help="With scheme fp8: accurate or fast sums.")]
Attention = Annotated[
    str, typer.Option(help="auto, cudnn, flash, efficient, math, default or int8qk.")
]
Interval = Annotated[
    tuple[float, float] | None,
    typer.Option("--guidance-interval", help="Guide only where LO < t < HI (0..1000)."),
]
JsonFile = Annotated[
    Path | None, typer.Option("--json", help="Write the figures to this file too.")
]


def register(app: typer.Typer) -> None:
    """Add the command group."""
    from cosmos_lite_ros.cli.bench_tick import tick

    bench = typer.Typer(no_args_is_help=True, help="Measure this machine.")
    app.add_typer(bench, name="bench")
    bench.command("observe")(observe)
    bench.command("request")(request)
    bench.command("soak")(soak)
    bench.command("fit")(fit)
    bench.command("kernels")(kernels)
    bench.command("tick")(tick)


def request(
    family: Family,
    scheme: Scheme = "bf16",
    checkpoint: Checkpoint = "",
    random_weights: RandomWeights = False,
    size: Size = "released",
    device: Device = "cuda",
    text_residency: Residency = "pinned",
    accumulate: Accumulate = "accurate",
    attention: Attention = "auto",
    guidance_interval: Interval = None,
    calls: Annotated[int, typer.Option(help="Timed requests back to back.")] = 50,
    duty_calls: Annotated[
        int, typer.Option(help="Timed requests at one a second and at one every two.")
    ] = 10,
    peers: Annotated[
        bool, typer.Option(help="Load diffusers' modules too: their times, actions compared.")
    ] = True,
    compiled: Annotated[
        bool, typer.Option("--compiled", help="Also compile the stock transformer's blocks.")
    ] = False,
    json_file: JsonFile = None,
) -> None:
    """Time image to actions; memory, stages, and the peers in the same run."""
    target = _target(
        family,
        checkpoint,
        random_weights,
        guidance_interval,
        size=size,
        scheme=scheme,
        device=device,
        text_residency=text_residency,
        accumulate=accumulate,
        attention=attention,
    )
    from cosmos_lite_ros.policy.bench_request import RequestOptions, bench_request

    options = RequestOptions(calls, duty_calls, peers, compiled)
    _show(bench_request(target, options, _say), json_file)


def soak(
    family: Family,
    requests: Annotated[int, typer.Option(help="Requests in a row, at least 4.")] = 1000,
    scheme: Scheme = "bf16",
    checkpoint: Checkpoint = "",
    random_weights: RandomWeights = False,
    size: Size = "released",
    device: Device = "cuda",
    text_residency: Residency = "pinned",
    accumulate: Accumulate = "accurate",
    attention: Attention = "auto",
    guidance_interval: Interval = None,
    json_file: JsonFile = None,
) -> None:
    """Many requests in a row: nothing may grow, be captured again or change."""
    target = _target(
        family,
        checkpoint,
        random_weights,
        guidance_interval,
        size=size,
        scheme=scheme,
        device=device,
        text_residency=text_residency,
        accumulate=accumulate,
        attention=attention,
    )
    from cosmos_lite_ros.policy.bench_soak import bench_soak

    _show(bench_soak(target, requests, _say), json_file)


def fit(
    family: Family,
    free_gb: Annotated[float, typer.Option(help="Free on the card, GB of 1e9 bytes.")],
    requests: Annotated[int, typer.Option(help="Requests before the new instruction.")] = 50,
    scheme: Scheme = "bf16",
    checkpoint: Checkpoint = "",
    random_weights: RandomWeights = False,
    size: Size = "released",
    device: Device = "cuda",
    text_residency: Residency = "pinned",
    accumulate: Accumulate = "accurate",
    attention: Attention = "auto",
    guidance_interval: Interval = None,
    json_file: JsonFile = None,
) -> None:
    """Prove that a policy fits: another process holds the rest of the card."""
    target = _target(
        family,
        checkpoint,
        random_weights,
        guidance_interval,
        size=size,
        scheme=scheme,
        device=device,
        text_residency=text_residency,
        accumulate=accumulate,
        attention=attention,
    )
    from cosmos_lite_ros.policy.bench_fit import bench_fit

    report = bench_fit(target, round(free_gb * 1e9), requests, _say)
    _show(report, json_file)
    if not report["passed"]:
        raise typer.Exit(1)


def kernels(
    family: Annotated[str, typer.Option(help="edge or nano; left out: the products of both.")] = "",
    device: Device = "cuda",
    gemlite: Annotated[
        str,
        typer.Option(help="Where installed: off, default, or fast, max: tuned, takes minutes."),
    ] = "default",
    table: Annotated[
        str, typer.Option(help="Table of configurations: auto, builtin or a file.")
    ] = "auto",
    json_file: JsonFile = None,
) -> None:
    """Time the quantised products in captured graphs, beside bf16 and what is ready-made."""
    import torch
    from rich.console import Console
    from rich.table import Table

    from cosmos_lite_ros.cli.tune import cuda_device
    from cosmos_lite_ros.cli.values import family_of
    from cosmos_lite_ros.kernels import bench as kernel_bench
    from cosmos_lite_ros.kernels.shapes import RELEASED
    from cosmos_lite_ros.kernels.tables import use_table

    chosen = cuda_device(device)
    families = (family_of(family),) if family else tuple(RELEASED)
    use_table(table, chosen)
    with torch.inference_mode():
        report = kernel_bench.bench_kernels(chosen, _say, families=families, gemlite=gemlite)
    _write(report, json_file)
    console = Console(highlight=False)
    console.print(kernel_bench.caption(report), markup=False, soft_wrap=True)
    for title, headings, rows in kernel_bench.report_tables(report):
        shown = Table(title=title)
        for i, heading in enumerate(headings):
            shown.add_column(heading, justify="right" if i else "left")
        for row in rows:
            shown.add_row(*row)
        console.print(shown)
    for name, note in report["notes"].items():
        console.print(f"{name}: {note}", markup=False, soft_wrap=True)


def _target(
    family: str,
    checkpoint: str,
    random_weights: bool,
    interval: tuple[float, float] | None,
    **fields: Any,
) -> Target:
    from cosmos_lite_ros.cli.values import family_of
    from cosmos_lite_ros.errors import BadInputError
    from cosmos_lite_ros.policy.bench_common import Target

    if checkpoint and random_weights:
        raise BadInputError("found --checkpoint and --random-weights, expected one of them")
    return Target(family_of(family), checkpoint, guidance_interval=interval, **fields)


def _say(text: str) -> None:
    from rich.console import Console

    Console(stderr=True, highlight=False, soft_wrap=True).print(text, markup=False, style="dim")


def _show(report: Report, json_file: Path | None) -> None:
    """Tables on the terminal, figures in the file."""
    from rich.console import Console
    from rich.table import Table

    from cosmos_lite_ros.policy.bench_tables import caption, tables

    _write(report, json_file)
    console = Console(highlight=False)
    console.print(caption(report), markup=False, soft_wrap=True)
    for each in tables(report):
        table = Table(title=each.title)
        for i, heading in enumerate(each.headings):
            table.add_column(heading, justify="right" if i else "left")
        for row in each.rows:
            table.add_row(*row)
        console.print(table)


def _write(report: dict[str, Any], json_file: Path | None) -> None:
    import json

    from cosmos_lite_ros.errors import BadInputError

    if json_file is None:
        return
    try:
        json_file.write_text(json.dumps(report, indent=2) + "\n")
    except OSError as error:
        raise BadInputError(f"cannot write {json_file}: {error.strerror}") from error


def observe(
    runs: Annotated[int, typer.Option(help="Runs of each case, at least 50.")] = 100,
    json_file: JsonFile = None,
) -> None:
    """Time three camera messages to an observation, on one core."""
    from dataclasses import asdict

    from rich.console import Console

    from cosmos_lite_ros.contract.bench_observe import bench_observe, machine, one_core
    from cosmos_lite_ros.contract.views import pillow_resize
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
    results_of = [asdict(r) for r in results]
    _write({"machine": machine(), "cores": 1, "results": results_of}, json_file)


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
