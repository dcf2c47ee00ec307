# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""``quantize`` and ``verify``: checkpoints quantised ahead of time, and whether they are whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    import torch


def device_of(name: str) -> torch.device:
    """cpu or cuda.

    Raises:
        EnvironmentLacksError: cuda, and there is no GPU.
    """
    import torch

    from cosmos_lite_ros.cli.values import choice
    from cosmos_lite_ros.errors import EnvironmentLacksError

    device = torch.device(choice("--device", name, ("cpu", "cuda")))
    if device.type == "cuda" and not torch.cuda.is_available():
        raise EnvironmentLacksError("--device cuda asked for, no CUDA GPU found: try --device cpu")
    return device


def size_text(nbytes: int) -> str:
    """Bytes for people."""
    return f"{nbytes / 1e9:.2f} GB" if nbytes >= 1e8 else f"{nbytes / 1e6:.1f} MB"


@contextmanager
def progress_bar() -> Iterator[Callable[[float, str], None]]:
    """A bar on stderr, where that is a terminal: call it with a fraction and a step's name."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(transient=True, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("reading headers", total=1.0)

        def show(fraction: float, step: str) -> None:
            bar.update(task, completed=fraction, description=step)

        yield show


def register(app: typer.Typer) -> None:
    """Add the commands."""

    @app.command("quantize")
    def quantize_command(
        checkpoint: Annotated[str, typer.Argument(help="Folder, or Hugging Face id.")],
        scheme: Annotated[str, typer.Option(help="fp8, fp8_fast, int8, int8wo or int4wo.")],
        out: Annotated[Path, typer.Option(help="Folder to write; it must not exist.")],
        revision: Annotated[str, typer.Option(help="Commit of a Hugging Face id.")] = "",
        device: Annotated[str, typer.Option(help="cpu or cuda: where it is computed.")] = "cpu",
    ) -> None:
        """Write a checkpoint with the generation tower's matrices quantised."""
        import time

        from rich.console import Console

        from cosmos_lite_ros.policy.artifact import quantise_checkpoint

        place = device_of(device)
        started = time.monotonic()
        with progress_bar() as show:
            manifest = quantise_checkpoint(
                checkpoint, scheme, out, revision=revision, device=place, progress=show
            )
        spent_s = time.monotonic() - started
        console = Console(highlight=False, soft_wrap=True)
        read = sum(entry.size for entry in manifest.source_files.values())
        console.print(
            f"{out}: {manifest.family} in {manifest.scheme}, {size_text(manifest.nbytes)} from "
            f"{size_text(read)}, {len(manifest.left_out)} tensors left out that no request reads, "
            f"{spent_s:.0f} s",
            markup=False,
        )
        if manifest.random_weights:
            console.print("random weights: its actions mean nothing physically")

    @app.command("verify")
    def verify_command(
        folder: Annotated[Path, typer.Argument(help="Folder that quantize has written.")],
    ) -> None:
        """Compare every byte of a quantised checkpoint with its manifest."""
        from rich.console import Console

        from cosmos_lite_ros.quantize.manifest import read_manifest
        from cosmos_lite_ros.quantize.verify import verify

        with progress_bar() as show:
            problems = verify(folder, show)
        console = Console(highlight=False, soft_wrap=True)
        for problem in problems:
            console.print(problem, markup=False)
        if problems:
            console.print(f"{folder}: {len(problems)} problems", markup=False)
            raise typer.Exit(1)
        manifest = read_manifest(folder)
        console.print(
            f"{folder}: {manifest.family} in {manifest.scheme}, {len(manifest.files)} files, "
            f"{size_text(manifest.nbytes)}, all as they were written",
            markup=False,
        )
