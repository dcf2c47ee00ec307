# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The entry point: one Typer application, each command in a module of its own.

Exit codes: 0 ok, 1 a check failed, 2 bad usage or input, 3 the environment lacks something.
Commands import what they need inside, so that ``--help`` does not load torch.
"""

from __future__ import annotations

import importlib
import sys

import typer
from rich.console import Console

from cosmos_lite_ros import __version__
from cosmos_lite_ros.errors import CosmosLiteError

app = typer.Typer(
    name="cosmos-lite-ros",
    help="Cosmos 3 DROID policies on a real arm, over ROS 2.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

# Which extra brings a package that a command may lack.
_EXTRA_OF = {
    **dict.fromkeys(
        ("torch", "diffusers", "safetensors", "tokenizers", "jinja2", "huggingface_hub"), "policy"
    ),
    **dict.fromkeys(("rosbags", "mcap", "zstandard", "lz4"), "bags"),
    "matplotlib": "report",
}
# Each module has register(app: typer.Typer) -> None.
_COMMAND_MODULES = (
    "tiny",
    "act",
    "bags",
    "bench",
    "compare",
    "demo",
    "doctor",
    "instruct",
    "prewarm",
    "quantize",
    "tune",
)


def _version(show: bool) -> None:
    if show:
        print(f"cosmos-lite-ros {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version and exit."
    ),
) -> None:
    """Global options."""


for _name in _COMMAND_MODULES:
    importlib.import_module(f"cosmos_lite_ros.cli.{_name}").register(app)


def main() -> int:
    """Run the command line; one line on stderr for every error of ours."""
    try:
        app(standalone_mode=True)
    except CosmosLiteError as error:
        Console(stderr=True, highlight=False, soft_wrap=True).print(f"error: {error}", markup=False)
        return error.exit_code
    except ModuleNotFoundError as error:
        extra = _EXTRA_OF.get((error.name or "").split(".")[0])
        if extra is None:
            raise
        console = Console(stderr=True, highlight=False, soft_wrap=True)
        console.print(
            f"error: {error.name} is not installed: pip install the extra [{extra}] of this "
            f"package, for example from its checkout: pip install '.[{extra}]'",
            markup=False,
        )
        return 3
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
