#!/usr/bin/env python3
# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Write docs/reference/parameters.md from the settings dataclasses, their only source.

``--check`` changes nothing and exits with 1 when the file is not current.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import sys
import typing
from pathlib import Path
from typing import Any

from cosmos_lite_ros.execution.settings import ExecutorSettings
from cosmos_lite_ros.ros.policy_settings import PolicySettings

OUT = Path(__file__).resolve().parent.parent / "docs" / "reference" / "parameters.md"
HEAD = """# Parameters

Written by `scripts/make_parameter_docs.py` from the code; a test holds it current. Every parameter
is declared with a description, type and range (`ros2 param describe` shows them); an unknown name,
a wrong type or a value out of range ends the process with one line and exit code 2 before anything
runs. All are fixed when the process starts, except where a table says so. YAML files are keyed
`/**` (every node) or `/**/policy`, `/**/executor` (see `config/`). What was asked for and what is
in effect are logged, published in `policy_status` and answered by `~/describe`.

Both nodes also have `autostart` (bool, false): configure and activate without a lifecycle manager.
"""


def _number(value: float) -> str:
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return str(int(value)) if value == int(value) else f"{value:g}"


def _default(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"' if value == "" else value
    if isinstance(value, tuple):
        return "[" + ", ".join(map(_default, value)) + "]"
    return _number(float(value)) if isinstance(value, float) else str(value)


def _rows(cls: type, instance: Any, prefix: str = "") -> list[str]:
    hints = typing.get_type_hints(cls)
    rows = []
    for field in dataclasses.fields(cls):
        value, name = getattr(instance, field.name), prefix + field.name
        if dataclasses.is_dataclass(value):
            rows += _rows(type(value), value, f"{name}.")
            continue
        meta = field.metadata
        choices = meta.get("choices") or (
            typing.get_args(hints[field.name])
            if typing.get_origin(hints[field.name]) is typing.Literal
            else ()
        )
        allowed = ", ".join(str(c) for c in choices)
        if not allowed and "range" in meta:
            low, high = meta["range"]
            allowed = f"{_number(low)} .. {_number(high)}"
        unit = meta.get("unit", "")
        text = meta.get("description", "") + (
            "" if meta.get("read_only", True) else " (changeable)"
        )
        rows.append(f"| `{name}` | `{_default(value)}` | {unit} | {allowed} | {text} |")
    return rows


def render() -> str:
    """The whole page."""
    parts = [HEAD]
    for title, cls in (("policy", PolicySettings), ("executor", ExecutorSettings)):
        parts.append(f"\n## {title}\n\n| parameter | default | unit | allowed | meaning |")
        parts.append("|---|---|---|---|---|")
        parts += _rows(cls, cls())
    return "\n".join(parts) + "\n"


def main() -> int:
    """Write, or check."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    text = render()
    if parser.parse_args().check:
        return 0 if OUT.is_file() and OUT.read_text() == text else 1
    OUT.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
