# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""``instruct``: tell the robot what to do, and wait until somebody has heard it."""

from __future__ import annotations

from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command("instruct")
    def instruct_command(
        text: Annotated[str, typer.Argument(help="What the robot shall do.")],
        namespace: Annotated[str, typer.Option(help="Namespace of the robot.")] = "",
        timeout_s: Annotated[
            float, typer.Option("--timeout", min=0.1, help="How long to wait for the echo, s.")
        ] = 10.0,
    ) -> None:
        """Publish an instruction and wait for its echo; nothing moves by it alone.

        Exit code 0 when policy_status or executor_status echoes it, 1 when nobody does in time.
        """
        from rich.console import Console

        from cosmos_lite_ros.errors import EnvironmentLacksError

        try:
            from cosmos_lite_ros.ros.instruct import instruct
        except ImportError as error:
            raise EnvironmentLacksError(
                f"{error}: source the ROS 2 environment and the workspace first "
                "(cosmos-lite-ros doctor says more)"
            ) from error
        heard = instruct(text, namespace=namespace, timeout_s=timeout_s)
        Console().print(f"heard by {heard}", markup=False, highlight=False)
