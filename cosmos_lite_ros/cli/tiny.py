# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""``make-tiny``: a checkpoint of the real layout and architecture with random weights."""

from __future__ import annotations

import typer


def register(app: typer.Typer) -> None:
    """Add the command."""
    del app
