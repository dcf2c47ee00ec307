# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""``make-tiny``: a checkpoint of the real layout and architecture with random weights."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command("make-tiny")
    def make_tiny_command(
        out: Annotated[Path, typer.Option(help="Folder to write.")],
        family: Annotated[str, typer.Option(help="edge or nano.")] = "edge",
        seed: Annotated[int, typer.Option(help="Seed of the random weights.")] = 0,
    ) -> None:
        """Make a tiny checkpoint: real layout and architecture, RANDOM weights."""
        from rich.console import Console

        from cosmos_lite_ros.cli.values import family_of
        from cosmos_lite_ros.policy.checkpoint import inspect
        from cosmos_lite_ros.policy.tiny import make_tiny

        folder = make_tiny(family_of(family), out, seed)
        size = inspect(str(folder)).weight_bytes / 1e6
        Console(highlight=False, soft_wrap=True).print(
            f"{folder}: tiny {family} checkpoint, {size:.1f} MB, random weights: "
            "its actions mean nothing physically"
        )
