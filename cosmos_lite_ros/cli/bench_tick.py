# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""``bench tick``: lateness of the executor beside a bare loop, with every core busy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer


def tick(
    minutes: Annotated[float, typer.Option(help="Measuring time of each rate.", min=0.05)] = 5.0,
    rates: Annotated[
        list[int] | None,
        typer.Option("--rate", help="Hz; repeatable. 15: ticks; others: resampled commands."),
    ] = None,
    priority: Annotated[
        int, typer.Option(help="SCHED_FIFO priority of executor and bare loop; 0: none.", min=0)
    ] = 20,
    domain: Annotated[int, typer.Option(help="ROS domain, 0 to 101.", min=0, max=101)] = 88,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the figures to this file too.")
    ] = None,
) -> None:
    """Time the executor's ticks beside a bare loop while a policy keeps every core busy."""
    from rich.console import Console

    from cosmos_lite_ros.cli.bench import _say, _write
    from cosmos_lite_ros.contract.constants import RATE_HZ
    from cosmos_lite_ros.errors import BadInputError
    from cosmos_lite_ros.execution.resample import check_rate
    from cosmos_lite_ros.ros.bench_tick import TickOptions, bench_tick

    rates_hz = tuple(rates or (RATE_HZ, 250))
    for rate_hz in rates_hz:
        check_rate(rate_hz)
    if priority > 98:
        raise BadInputError(f"--priority is {priority}, expected 0 to 98")
    report = bench_tick(TickOptions(minutes, rates_hz, priority, domain), _say)
    _write(report, json_file)
    console = Console(highlight=False)
    console.print(_table(report))
    for run in report["runs"]:
        console.print(_caption(run), markup=False, soft_wrap=True)
        for failure in run["failures"]:
            console.print(f"missed: {failure}", markup=False, soft_wrap=True)
    console.print(f"{report['cores']} cores of: {report['machine']}", soft_wrap=True)
    if not report["passed"]:
        raise typer.Exit(1)


def _caption(run: dict[str, Any]) -> str:
    load = run["load"]
    policy = f"a tiny policy ({load['requests']} requests)" if load["policy"] else "no policy"
    return (
        f"{run['rate_hz']} Hz: {run['scheduling']}; load: {policy} and matrix products, "
        f"{load['cores_busy']:.2f} cores of processor time; everything together kept "
        f"{run['busy_cores']:.2f} cores busy"
    )


def _table(report: dict[str, Any]) -> Any:
    from rich.table import Table

    table = Table(title=f"lateness behind absolute deadlines, ms, {report['minutes']:g} min each")
    for heading in ("loop", "Hz", "count", "p50", "p95", "p99", "max", "missed"):
        table.add_column(heading, justify="left" if heading == "loop" else "right")
    for run in report["runs"]:
        for name in ("executor", "bare"):
            row = run[name]
            times = (f"{row[f'{key}_ms']:.2f}" for key in ("p50", "p95", "p99", "max"))
            table.add_row(name, str(run["rate_hz"]), str(row["count"]), *times, str(row["missed"]))
    return table
