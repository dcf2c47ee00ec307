# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""``prewarm``: prompt cards of known instructions, so that they never touch the text tower."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    import torch

    from cosmos_lite_ros.policy.checkpoint import CheckpointInfo
    from cosmos_lite_ros.policy.text_tower import TextTower


def read_instructions(path: Path) -> list[str]:
    """Instructions of a file, one per line, each once; empty lines and # lines are left out.

    Raises:
        BadInputError: no such file, not UTF-8, nothing in it, or an instruction that is too long.
    """
    from cosmos_lite_ros.contract.observation import clean_instruction
    from cosmos_lite_ros.errors import BadInputError

    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInputError(f"{path} cannot be read as UTF-8 text: {error}") from error
    found: dict[str, None] = {}
    for number, line in enumerate(lines, 1):
        if line.strip() and not line.lstrip().startswith("#"):
            try:
                found[clean_instruction(line)] = None
            except BadInputError as error:
                raise BadInputError(f"{path} line {number}: {error}") from error
    if not found:
        raise BadInputError(f"{path} holds no instruction, expected one per line")
    return list(found)


def _device(name: str) -> torch.device:
    import torch

    from cosmos_lite_ros.cli.values import choice
    from cosmos_lite_ros.errors import EnvironmentLacksError

    device = torch.device(choice("--device", name, ("cpu", "cuda")))
    if device.type == "cuda" and not torch.cuda.is_available():
        raise EnvironmentLacksError("--device cuda asked for, no CUDA GPU found: try --device cpu")
    return device


def _tower(info: CheckpointInfo, device: torch.device, dtype: torch.dtype) -> TextTower:
    """On the GPU where it fits with room to spare, else streamed from the file."""
    import torch

    from cosmos_lite_ros.policy.text_tower import TextTower, text_matrices

    if device.type == "cuda":
        needed = sum(matrix.nbytes(dtype) for matrix in text_matrices(info))
        if needed + 2**30 < torch.cuda.mem_get_info()[0]:
            return TextTower(info, device, dtype, "gpu", embedding_on_device=False)
    return TextTower(info, device, dtype, "mmap")


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command("prewarm")
    def prewarm_command(
        checkpoint: Annotated[str, typer.Option(help="Folder, or Hugging Face id.")],
        instructions: Annotated[
            Path, typer.Option(help="Text file, one instruction per line; # starts a comment line.")
        ],
        revision: Annotated[str, typer.Option(help="Commit of a Hugging Face id.")] = "",
        dtype: Annotated[str, typer.Option(help="bfloat16 or float32.")] = "bfloat16",
        device: Annotated[str, typer.Option(help="cpu or cuda; best the one that serves.")] = "cpu",
        prompt_format: Annotated[str, typer.Option(help="auto, json or plain.")] = "auto",
        cards: Annotated[
            Path | None, typer.Option(help="Folder of the cards; default: in the cache folder.")
        ] = None,
    ) -> None:
        """Compute the prompt cards of instructions and of the unconditional prompt."""
        import platform
        import time

        import torch
        from rich.console import Console
        from rich.markup import escape
        from rich.table import Table

        from cosmos_lite_ros.cli import values
        from cosmos_lite_ros.contract.prompt import build_prompt
        from cosmos_lite_ros.policy.cards import CardFolder, default_folder
        from cosmos_lite_ros.policy.checkpoint import inspect
        from cosmos_lite_ros.policy.tokenizer import PromptTokenizer

        # Everything cheap is checked before the checkpoint is read.
        formatted = values.prompt_format_of(prompt_format)
        kind = {"bfloat16": torch.bfloat16, "float32": torch.float32}[
            values.choice("--dtype", dtype, ("bfloat16", "float32"))
        ]
        place = _device(device)
        texts = read_instructions(instructions)
        info = inspect(checkpoint, revision)
        family = info.config.family
        tokenizer = PromptTokenizer(info.tokenizer_folder, family, info.config.vocab_size)
        folder = CardFolder(cards or default_folder(), info, kind)
        made_on = torch.cuda.get_device_name() if place.type == "cuda" else platform.machine()
        made_on += f", torch {torch.__version__}"
        tower: TextTower | None = None
        table = Table(title=f"prompt cards of {checkpoint} in {dtype}")
        table.add_column("instruction", overflow="fold")
        for heading in ("tokens", "MB", "ms"):
            table.add_column(heading, justify="right")
        table.add_column("card")
        for text in ["", *texts]:
            ids = tokenizer.encode(build_prompt(text, family, formatted))
            started = time.perf_counter()
            kv = folder.load(ids)
            state = "already there"
            if kv is None:
                if tower is None:
                    tower = _tower(info, place, kind)
                    started = time.perf_counter()
                kv = tower.compute(ids).on_host()
                state = "made"
            spent_ms = 1e3 * (time.perf_counter() - started)
            if state == "made":
                folder.save(ids, kv, made_on)
            # Instructions are the user's text, never markup.
            table.add_row(
                escape(text) if text else "(unconditional)",
                str(len(ids)),
                f"{kv.nbytes / 1e6:.1f}",
                f"{spent_ms:.1f}",
                state,
            )
        console = Console(highlight=False)
        console.print(table)
        console.print(f"cards are in {folder.path}", soft_wrap=True, markup=False)
        if info.random_weights:
            console.print("random weights: actions from these cards mean nothing physically")
