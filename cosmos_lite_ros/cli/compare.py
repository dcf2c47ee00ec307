# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""``compare``: the quality gate, one arithmetic beside the reference's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from cosmos_lite_ros.policy.compare.tables import Table

LEVELS = ("request",)


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command("compare")
    def compare_command(
        candidate: Annotated[
            list[str], typer.Option(help="Scheme to judge; repeatable: one run, one reference.")
        ],
        level: Annotated[str, typer.Option(help="request: same pictures, same noise.")] = "request",
        reference: Annotated[str, typer.Option(help="bf16, the only reference.")] = "bf16",
        checkpoint: Annotated[str, typer.Option(help="Folder, or Hugging Face id.")] = "",
        tiny: Annotated[
            str, typer.Option(help="edge or nano: a tiny checkpoint made for the occasion.")
        ] = "",
        released: Annotated[
            str, typer.Option(help="edge or nano: one of the released sizes, random weights.")
        ] = "",
        revision: Annotated[str, typer.Option(help="Commit of a Hugging Face id.")] = "",
        requests: Annotated[
            int, typer.Option(help="Frozen requests; fewer than 64 decide less.")
        ] = 64,
        device: Annotated[str, typer.Option(help="cpu, cuda or cuda:N.")] = "cpu",
        outliers: Annotated[
            str, typer.Option(help="auto (where weights are random), planted or none.")
        ] = "auto",
        mlp_outliers: Annotated[
            float, typer.Option(help="Also planted: factor of rows of up; 1 plants none.")
        ] = 1.0,
        residual: Annotated[
            float,
            typer.Option(help="Also planted: factor of the residual stream; 0.00390625 shows eps."),
        ] = 1.0,
        test: Annotated[
            list[str] | None, typer.Option(help="T0, T1 or T2, repeatable; all without it.")
        ] = None,
        attention: Annotated[str, typer.Option(help="The candidates' attention.")] = "auto",
        accumulate: Annotated[str, typer.Option(help="Of fp8: accurate or fast.")] = "accurate",
        branches_per_pass: Annotated[
            int, typer.Option(help="Of the candidates: 1, 2 or 0 (what is faster).")
        ] = 0,
        action_arithmetic: Annotated[
            str, typer.Option(help="Of the candidates' action rows: server or float32.")
        ] = "server",
        steps: Annotated[int, typer.Option(help="Denoising steps, 1 to 8.")] = 2,
        text_residency: Annotated[
            str, typer.Option(help="Where the text tower lies: gpu, pinned or mmap.")
        ] = "pinned",
        details: Annotated[
            bool, typer.Option("--details", help="Every figure of several candidates too.")
        ] = False,
        json_file: Annotated[
            Path | None, typer.Option("--json", help="Write all figures to this file too.")
        ] = None,
    ) -> None:
        """Judge an arithmetic by its velocities and chunks beside bf16's: pass, fail, undecided.

        Exit code 0 where every candidate passes, 1 where one fails or is undecided.
        """
        from cosmos_lite_ros.cli import values
        from cosmos_lite_ros.errors import BadInputError
        from cosmos_lite_ros.policy.compare import run
        from cosmos_lite_ros.policy.compare.outliers import Planting
        from cosmos_lite_ros.policy.engine import SamplerSettings

        if level not in LEVELS:
            raise BadInputError(f"--level is {level!r}, expected {', '.join(LEVELS)}")
        if reference != "bf16":
            raise BadInputError(f"--reference is {reference!r}, expected bf16")
        sources = (checkpoint, tiny, released)
        if sum(map(bool, sources)) != 1:
            raise BadInputError("expected exactly one of --checkpoint, --tiny and --released")
        family = None if checkpoint else values.family_of(tiny or released)
        if json_file is not None and not json_file.parent.is_dir():
            raise BadInputError(f"--json {json_file}: expected a file in an existing folder")
        comparison = run.Comparison(
            "".join(sources),
            tuple(
                run.Candidate(name, attention, accumulate, branches_per_pass, action_arithmetic)
                for name in candidate
            ),
            revision=revision,
            requests=requests,
            device=device,
            outliers=outliers,
            planting=Planting(mlp=mlp_outliers, residual=residual),
            sampler=SamplerSettings(steps),
            text_residency=text_residency,
            tests=tuple(test) if test else run.TESTS,
            own=family is not None,
        )
        if family is None:
            report = run.compare(comparison, _say)
        else:
            with run.made_checkpoint(family, "tiny" if tiny else "released", _say) as folder:
                report = run.compare(replace(comparison, checkpoint=folder), _say)
        _write(report, json_file)
        _show(report, details or len(report["candidates"]) == 1)
        if any(c["verdict"] != "pass" for c in report["candidates"]):
            raise typer.Exit(1)


def _say(text: str) -> None:
    from rich.console import Console

    Console(stderr=True, highlight=False, soft_wrap=True).print(text, markup=False, style="dim")


def _write(report: dict[str, Any], json_file: Path | None) -> None:
    import json

    from cosmos_lite_ros.errors import BadInputError

    if json_file is None:
        return
    try:
        json_file.write_text(json.dumps(report, indent=2) + "\n")
    except OSError as error:
        raise BadInputError(f"cannot write {json_file}: {error.strerror}") from error


def _show(report: dict[str, Any], details: bool) -> None:
    from rich.console import Console

    from cosmos_lite_ros.policy.compare import tables

    console = Console(highlight=False)
    for line in tables.caption(report):
        console.print(line, markup=False, soft_wrap=True)
    for candidate in report["candidates"]:
        for each in tables.details(candidate) if details else []:
            console.print(_table(each))
        for test in ("T1", "T2"):
            for note in candidate.get(test, {}).get("notes", []):
                console.print(f"{test}: {note}", markup=False, soft_wrap=True)
    console.print(_table(tables.summary(report)))
    for candidate in report["candidates"]:
        console.print(f"{candidate['name']}: {candidate['verdict']}", markup=False, soft_wrap=True)


def _table(found: Table) -> Any:
    from rich.table import Table as RichTable

    table = RichTable(title=found.title, box=None, padding=(0, 1, 0, 0))
    for i, heading in enumerate(found.headings):
        # A name may be folded, a figure may not.
        side: Any = {"justify": "right", "no_wrap": True} if i else {"min_width": 14}
        table.add_column(heading, overflow="fold", **side)
    for row in found.rows:
        table.add_row(*row)
    return table
