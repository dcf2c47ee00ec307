#!/usr/bin/env python3
# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Write docs/reference/kernels.md from the tables of the package, their only source.

``--check`` changes nothing and exits with 1 when the file is not current.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from cosmos_lite_ros.kernels.instructions import ARCHITECTURES, INSTRUCTIONS
from cosmos_lite_ros.kernels.tables import built_in

OUT = Path(__file__).resolve().parent.parent / "docs" / "reference" / "kernels.md"
HEAD = """# Kernels

Written by `scripts/make_kernel_docs.py` from the code; a test holds it current, and tests compile
every kernel for every architecture listed here and look for the instruction in what comes out.

## Matrix instructions

The PTX instruction that multiplies; REFUSED: the GPU has no such arithmetic, loading ends with one
line that says so, and nothing is converted on the way. `N` is the tile's width.
"""
MIDDLE = """
The kernels between the products (norms, rotary embedding, activations, quantisation, gathering)
use no matrix instruction and run everywhere. `gemm_fp8` adds every 128 terms in float32;
`gemm_fp8_unpromoted` (`accumulate: fast`) leaves the sum to the matrix unit, which keeps fewer
bits. On sm_90 and sm_100 `torch._scaled_mm` takes the place of both where the start-up probe finds
it present, right and not more than 1.5 times slower; elsewhere it must be 1.5 times faster.

## Configurations

How a product is cut into tiles comes from a table of files, never from trials at run time. A GPU
takes, in this order: the file that the settings name; the file that `cosmos-lite-ros tune` wrote
for this kind of GPU into the cache folder (`~/.cache/cosmos_lite_ros/gemm_tables/`); the package's
table for its architecture, else for the newest older one (below). A shape that is not listed takes
the nearest one: the fewest listed rows that are not fewer, then the smallest
|log2 N/N'| + |log2 K/K'|. Other configurations add in another order: the table's digest is part of
what a report names.
"""


def render() -> str:
    """The whole page."""
    lines = [HEAD, f"| kernel | {' | '.join(ARCHITECTURES)} |", "|---" * 5 + "|"]
    for kernel, found in INSTRUCTIONS.items():
        cells = (", ".join(f"`{n}`" if n[0].islower() else n for n in found[a]) for a in found)
        lines.append(f"| `{kernel}` | {' | '.join(cells)} |")
    lines.append(MIDDLE)
    lines += ["| `kernels/gemm_tables/` | entries | digest | measured on |", "|---|---|---|---|"]
    for table in built_in().values():
        found = table.describe()
        lines.append(
            f"| `{table.source}` | {len(table.entries)} | `{found['digest']}` | "
            f"{found['measured_on']} |"
        )
    return "\n".join(lines) + "\n"


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
