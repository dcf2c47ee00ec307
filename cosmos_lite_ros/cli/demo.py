# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""``demo``: a recording through ROS 2 into a policy, chunks executed at 15 Hz."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console


def _print_summary(console: Console, summary: dict[str, Any], notes: list[str]) -> None:
    from rich.table import Table

    def ms(key: str) -> str:
        return " / ".join(f"{1e3 * summary[key][k]:.1f}" for k in ("p50", "p99", "max"))

    states = ", ".join(f"{name} {100 * share:.0f} %" for name, share in summary["states"].items())
    gate = ", ".join(f"{name} {n}" for name, n in sorted(summary["gate_ticks"].items()))
    rows = [
        ("instruction", summary["instruction"]),
        ("chunks", f"{summary['chunks']} ({summary['chunk_rate_hz']:.2f} Hz)"),
        (
            "of these",
            f"accepted {summary['chunks_accepted']}, rejected {summary['chunks_rejected']}, "
            f"expired {summary['chunks_expired']}",
        ),
        ("latency p50 / p99 / max (ms)", ms("latency_s")),
        ("  encode", ms("encode_s")),
        ("  generate", ms("generate_s")),
        ("commands", f"{summary['commands']} ({summary['command_rate_hz']:.2f} Hz)"),
        ("tick lateness p50 / p99 / max (ms)", ms("tick_lateness_s")),
        ("ticks skipped", str(summary["ticks_skipped"])),
        ("underruns other than sync's own waits", str(summary["underruns"])),
        ("states", states),
        ("the gate saw (ticks)", gate or "nothing"),
        ("the gate changed (ticks)", str(summary["gate_clamped"])),
    ]
    table = Table(title=f"demo: {summary['seconds']:.0f} s of executing", show_header=False)
    for name, value in rows:
        table.add_row(name, value)
    console.print(table)
    for note in notes:
        console.print(note, style="yellow", highlight=False, soft_wrap=True)


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command("demo")
    def demo_command(
        out: Annotated[Path, typer.Option(help="Folder for bag, logs, summary and plot.")],
        clip: Annotated[Path | None, typer.Option(help="Folder with the three videos.")] = None,
        seconds: Annotated[float, typer.Option(help="Time of executing, s.")] = 25.0,
        mode: Annotated[str, typer.Option(help="sync or async.")] = "sync",
        domain: Annotated[int, typer.Option(help="ROS domain, 0 to 101.")] = 87,
    ) -> None:
        """A recording flows through ROS 2 topics into a policy; chunks are executed at 15 Hz."""
        import json
        import shutil
        import time

        from rich.console import Console

        from cosmos_lite_ros.cli.values import choice
        from cosmos_lite_ros.errors import BadInputError, CosmosLiteError, EnvironmentLacksError

        try:
            from cosmos_lite_ros.ros.demo import EXECUTOR, DemoSettings, run_demo
            from cosmos_lite_ros.ros.demo_report import plot, summarise
        except ImportError as error:
            raise EnvironmentLacksError(
                f"ROS 2 or the built messages are missing ({error}): run make demo, or source a "
                "workspace"
            ) from error
        from cosmos_lite_ros.bags.demo import make_demo_bag
        from cosmos_lite_ros.policy.profiles import tiny_checkpoint

        choice("--mode", mode, ("sync", "async"))
        if not 0 <= domain <= 101 or not 2.0 <= seconds <= 3600.0:
            raise BadInputError("expected --domain 0 to 101 and --seconds 2 to 3600")
        console = Console(highlight=False, soft_wrap=True)
        began = time.monotonic()

        def say(text: str) -> None:
            console.print(f"[dim]{time.monotonic() - began:5.1f} s[/dim]  {text}")

        out.mkdir(parents=True, exist_ok=True)
        bag_folder = out / "bag"
        shutil.rmtree(bag_folder, ignore_errors=True)
        say("making the bag")
        bag = make_demo_bag(bag_folder, clip=clip, seconds=min(27.0, seconds + 5.0))
        say("making a tiny checkpoint: real architecture, random weights")
        settings = DemoSettings(bag_folder, tiny_checkpoint(), out, domain, seconds, mode)
        record, codes = run_demo(settings, say)
        summary = summarise(record)
        summary["recording"] = list(bag.notes)
        summary["exit_codes"] = codes
        notes = [
            *bag.notes,
            "the arm in the recording does not follow the commands",
            "so the executor runs with " + ", ".join(f"{k}={v}" for k, v in EXECUTOR.items()),
            "random weights: the motion means nothing physically, and the gate has much to do",
        ]
        _print_summary(console, summary, notes)
        (out / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
        pictures = (
            "generated" if any("image" in topic for topic in bag.labels.synthetic) else "real"
        )
        title = (
            f"demo, {mode}: {pictures} pictures, synthetic joint states, tiny checkpoint with "
            "random weights"
        )
        plot(record, summary, title, out / "demo.png")
        console.print(f"{out / 'demo.png'}, {out / 'summary.json'}, {bag_folder}")
        if summary["chunks"] == 0 or summary["commands"] == 0:
            raise CosmosLiteError("no chunk was executed: see the logs in the folder above")
        if any(codes.values()):
            raise CosmosLiteError(f"a process did not end cleanly: exit codes {codes}")
