# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""``act``: one request from image files, the chunk as a table and as a .npy file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from cosmos_lite_ros.contract.chunk import ActionChunk


def _print_chunk(chunk: ActionChunk) -> None:
    from rich.console import Console
    from rich.table import Table

    # Fits 80 columns whole: a cut number would be worse than none.
    table = Table(
        title="action chunk: absolute joint positions (rad), gripper 0 open .. 1 closed",
        box=None,
        padding=(0, 1, 0, 0),
    )
    joints = [f"q{joint}" for joint in range(1, chunk.positions.shape[1] + 1)]
    for name in ("row", "t (s)", *joints, "grip"):
        table.add_column(name, justify="right", no_wrap=True)
    for row, (positions, gripper) in enumerate(zip(chunk.positions, chunk.gripper, strict=True)):
        cells = [f"{value:+.3f}" for value in (*positions, gripper)]
        table.add_row(str(row), f"{row * chunk.row_period_s:.3f}", *cells)
    console = Console()
    console.print(table)
    line = (
        f"latency {chunk.latency_s:.3f} s (encode {chunk.encode_s:.3f}, generate "
        f"{chunk.generate_s:.3f}), seed {chunk.seed}, {chunk.steps} steps, guidance "
        f"{chunk.guidance:g}, scheme {chunk.scheme}"
    )
    console.print(line, highlight=False, soft_wrap=True)
    if chunk.random_weights:
        console.print(
            "random weights: these actions mean nothing physically", style="yellow", soft_wrap=True
        )


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command("act")
    def act_command(
        checkpoint: Annotated[str, typer.Option(help="Folder, or Hugging Face id.")],
        wrist: Annotated[Path, typer.Option(help="Wrist image file.")],
        exterior_1: Annotated[Path, typer.Option("--exterior-1", help="Exterior image 1.")],
        exterior_2: Annotated[Path, typer.Option("--exterior-2", help="Exterior image 2.")],
        joints: Annotated[str, typer.Option(help="Measured joints q1,..,q7, rad.")],
        gripper: Annotated[float, typer.Option(help="Measured gripper, 0 open .. 1 closed.")],
        instruction: Annotated[str, typer.Option(help="What the robot shall do.")],
        out: Annotated[Path | None, typer.Option(help="float32 [32, 8] to this .npy.")] = None,
        revision: Annotated[str, typer.Option(help="Commit of a Hugging Face id.")] = "",
        seed: Annotated[int, typer.Option(help="Noise seed.")] = 0,
        steps: Annotated[int, typer.Option(help="Denoising steps, 1 to 8.")] = 2,
        guidance: Annotated[float, typer.Option(help="Guidance scale; 1 = none.")] = 3.0,
        guidance_interval: Annotated[
            tuple[float, float] | None,
            typer.Option("--guidance-interval", help="Guide only where LO < t < HI (0..1000)."),
        ] = None,
        compose: Annotated[str, typer.Option(help="client or server.")] = "client",
        aspect: Annotated[str, typer.Option(help="Other than 16:9: pad, crop, refuse.")] = "pad",
        prompt_format: Annotated[str, typer.Option(help="auto, json or plain.")] = "auto",
        device: Annotated[str, typer.Option(help="cpu, cuda or cuda:N.")] = "cpu",
        dtype: Annotated[str, typer.Option(help="float32 or bfloat16.")] = "float32",
        action_arithmetic: Annotated[str, typer.Option(help="float32 or server.")] = "float32",
    ) -> None:
        """Answer one request from three image files."""
        import numpy as np

        from cosmos_lite_ros.cli import values
        from cosmos_lite_ros.contract.observation import Observation, clean_instruction
        from cosmos_lite_ros.contract.views import arrange_views
        from cosmos_lite_ros.errors import BadInputError
        from cosmos_lite_ros.policy.engine import EngineSettings, PolicyEngine, SamplerSettings

        # Everything cheap is checked before the checkpoint is read.
        sampler = SamplerSettings(steps, guidance, guidance_interval)
        if not 0 <= seed < 2**32:
            raise BadInputError(f"--seed is {seed}, expected 0 to {2**32 - 1}")
        if not 0.0 <= gripper <= 1.0:
            raise BadInputError(f"--gripper is {gripper}, expected 0 (open) to 1 (closed)")
        if out is not None and (out.suffix != ".npy" or not out.parent.is_dir()):
            raise BadInputError(f"--out {out}: expected FILE.npy in an existing folder")
        image = arrange_views(
            values.read_rgb(wrist),
            values.read_rgb(exterior_1),
            values.read_rgb(exterior_2),
            compose=values.compose_of(compose),
            aspect=values.aspect_of(aspect),
        )
        observation = Observation(
            image, values.joints_of(joints), gripper, clean_instruction(instruction)
        )
        settings = EngineSettings(
            checkpoint=checkpoint,
            revision=revision,
            profile="act",
            device=device,
            dtype=dtype,
            action_arithmetic=values.action_arithmetic_of(action_arithmetic),
            prompt_format=values.prompt_format_of(prompt_format),
            sampler=sampler,
        )
        engine = PolicyEngine.load(settings)
        chunk = engine.act(observation, seed=seed)
        engine.close()
        if out is not None:
            np.save(out, chunk.as_array())
        _print_chunk(chunk)
