# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""``tune``: a table of kernel configurations for the GPU at hand."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    import torch

_MAX_WORKERS = 12


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("tune")(tune_command)


def tune_command(
    out: Annotated[
        Path | None,
        typer.Option(help="File to write; left out: where this GPU's table is looked for."),
    ] = None,
    device: Annotated[str, typer.Option(help="cuda or cuda:N.")] = "cuda",
    workers: Annotated[int, typer.Option(help="Processes that compile; 0: one a core.")] = 0,
) -> None:
    """Measure the candidates of every quantised product on this GPU; takes some minutes."""
    import torch
    from rich.console import Console

    from cosmos_lite_ros.kernels.tables import save_table, user_table_path
    from cosmos_lite_ros.kernels.tune import tune

    chosen = cuda_device(device)
    if out is None:
        capability = torch.cuda.get_device_capability(chosen)
        out = user_table_path(capability, torch.cuda.get_device_name(chosen))
    progress = Console(stderr=True, highlight=False, soft_wrap=True)

    def say(text: str) -> None:
        progress.print(text, markup=False, style="dim")

    count = workers or min(os.cpu_count() or 1, _MAX_WORKERS)
    with torch.inference_mode():
        table = tune(chosen, say, workers=count)
    save_table(table, out)
    Console(highlight=False, soft_wrap=True).print(
        f"{out}: {len(table.entries)} configurations for {table.architecture}, digest "
        f"{table.digest}; graphs captured with another table answer with other roundings",
        markup=False,
    )


def cuda_device(name: str) -> torch.device:
    """A CUDA device with its index, made the current one.

    Raises:
        BadInputError: no device's name.
        EnvironmentLacksError: a CPU, or no such GPU.
    """
    import torch

    from cosmos_lite_ros.errors import EnvironmentLacksError
    from cosmos_lite_ros.policy.settings import device_of

    device = device_of(name)
    if device.type != "cuda":
        raise EnvironmentLacksError(f"found device {name}, expected a CUDA GPU: kernels run there")
    torch.cuda.set_device(device)
    return torch.device("cuda", torch.cuda.current_device())
