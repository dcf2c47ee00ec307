# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Which configuration a matrix product runs with: tables of files, nothing is tried at run time.

A table belongs to one architecture and lists configurations by kernel and shape. One table an
architecture comes with the package (``gemm_tables/``); ``cosmos-lite-ros tune`` writes one for the
GPU at hand, which is found in the cache folder when this GPU is used again.

A shape that is not listed takes the configuration of the nearest one: of the kernel's entries those
with the fewest ``rows`` that are not fewer than the shape's (the most rows where all are fewer);
among these the smallest |log2 N/N'| + |log2 K/K'|; among equals the first. An architecture without
a table takes the one of the newest older architecture, and before the oldest the oldest's.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from cosmos_lite_ros.errors import BadInputError, EnvironmentLacksError

FORMAT: Final = 1
FOLDER: Final = Path(__file__).resolve().parent / "gemm_tables"
# Keys of the tables, and the oldest compute capability that has their arithmetic. ``gemm_fp8`` adds
# every 128 terms in float32, ``gemm_fp8_unpromoted`` leaves the sum to the matrix unit,
# ``gemm_int8_blocked`` has activation scales for 128 columns.
KERNELS: Final[dict[str, tuple[int, int]]] = {
    "gemm_fp8": (8, 9),
    "gemm_fp8_unpromoted": (8, 9),
    "gemm_fp8_fast": (8, 9),
    "gemm_int8": (8, 0),
    "gemm_int8_blocked": (8, 0),
    "gemm_int8wo": (8, 0),
    "gemm_int4wo": (8, 0),
}
# Kernels whose scales or accumulators fix a width: columns of one loop step, of one product.
_FIXED_STEP: Final = {"gemm_int8_blocked": 128, "gemm_int4wo": 128}
_FIXED_PRODUCT: Final = {"gemm_fp8_fast": 64}
_MAX_BYTES: Final = 4_000_000


@dataclass(frozen=True)
class GemmConfig:
    """How one matrix product is cut up.

    Attributes:
        block_m, block_n: rows and columns of the output that one program computes.
        block_k: columns of both inputs in one step of its loop.
        split: products that a step is cut into.
        group_m: tiles that follow each other downwards.
        num_warps: of 32 threads.
        num_stages: depth of the software pipeline.
    """

    block_m: int
    block_n: int
    block_k: int
    split: int
    group_m: int
    num_warps: int
    num_stages: int

    def constants(self) -> dict[str, int]:
        """The kernel's compile-time arguments."""
        return {
            "BLOCK_M": self.block_m,
            "BLOCK_N": self.block_n,
            "BLOCK_K": self.block_k,
            "SPLIT": self.split,
            "GROUP_M": self.group_m,
        }

    def options(self) -> dict[str, int]:
        """The launch's options."""
        return {"num_warps": self.num_warps, "num_stages": self.num_stages}


@dataclass(frozen=True)
class Entry:
    """One measured or chosen configuration.

    Attributes:
        kernel: one of ``KERNELS``.
        rows, columns, depth: M, N and K of the shape.
        config: what it runs with.
        microseconds: of one call when it was measured, 0 where it was not.
    """

    kernel: str
    rows: int
    columns: int
    depth: int
    config: GemmConfig
    microseconds: float = 0.0


@dataclass(frozen=True)
class Table:
    """The configurations of one architecture.

    Attributes:
        architecture: as in ``sm_90``.
        measured_on: GPU, torch and Triton of the measurement; empty: compiled, never run.
        entries: in the file's order.
        source: file name of a table of the package, or path of the user's.
    """

    architecture: str
    measured_on: str
    entries: tuple[Entry, ...]
    source: str = ""

    @property
    def digest(self) -> str:
        """12 hexadecimal digits of what decides the arithmetic's order; not of times."""
        listed = [(e.kernel, e.rows, e.columns, e.depth, asdict(e.config)) for e in self.entries]
        text = json.dumps([FORMAT, self.architecture, listed], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def describe(self) -> dict[str, str]:
        """What is in effect, to be reported."""
        return {
            "architecture": self.architecture,
            "source": self.source,
            "digest": self.digest,
            "measured_on": self.measured_on or "never run: chosen by compiling",
        }

    def find(self, kernel: str, rows: int, columns: int, depth: int) -> GemmConfig | None:
        """The nearest configuration, by the rule above; None where the kernel is not listed."""
        listed = [e for e in self.entries if e.kernel == kernel]
        if not listed:
            return None
        enough = [e.rows for e in listed if e.rows >= rows]
        wanted = min(enough) if enough else max(e.rows for e in listed)

        def distance(entry: Entry) -> float:
            wide, deep = entry.columns / columns, entry.depth / depth
            # Rounded, so that equal distances are equal.
            return round(abs(math.log2(wide)) + abs(math.log2(deep)), 9)

        return min((e for e in listed if e.rows == wanted), key=distance).config


def architecture_of(capability: tuple[int, int]) -> str:
    """``sm_89`` of (8, 9)."""
    return f"sm_{capability[0]}{capability[1]}"


def number_of(architecture: str) -> int:
    """89 of ``sm_89``.

    Raises:
        BadInputError: another text.
    """
    found = re.fullmatch(r"sm_(\d{2,3})", architecture)
    if found is None:
        raise BadInputError(f"architecture is {architecture!r}, expected one like sm_90")
    return int(found[1])


@cache
def built_in() -> dict[str, Table]:
    """The package's tables by architecture, oldest first."""
    found = [load_table(path) for path in FOLDER.glob("sm_*.json")]
    found.sort(key=lambda table: number_of(table.architecture))
    return {table.architecture: table for table in found}


def table_for(capability: tuple[int, int]) -> Table:
    """The package's table for a compute capability."""
    number = capability[0] * 10 + capability[1]
    tables = list(built_in().values())
    older = [t for t in tables if number_of(t.architecture) <= number]
    return older[-1] if older else tables[0]


def table_folder() -> Path:
    """Where ``tune`` writes and a GPU's own table is looked for, below the cache folder."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "cosmos_lite_ros" / "gemm_tables"


def user_table_path(capability: tuple[int, int], gpu: str) -> Path:
    """The file of one kind of GPU."""
    name = re.sub(r"[^a-z0-9]+", "-", gpu.lower()).strip("-")
    return table_folder() / f"{architecture_of(capability)}-{name}.json"


# The table in effect, by device index: set before a device's first product, else found by itself.
_IN_EFFECT: dict[int, Table] = {}


def use_table(source: str | Path, device: torch.device) -> Table:
    """Choose the table of a CUDA device for this process; ``active_table`` then returns it.

    Args:
        source: ``auto``: the table of this GPU in the cache folder where there is one, else the
            package's; ``builtin``: the package's; else a file.
        device: a CUDA device.

    Raises:
        BadInputError: an unusable file, or one for another architecture.
    """
    capability = torch.cuda.get_device_capability(device)
    own = user_table_path(capability, torch.cuda.get_device_name(device))
    if source == "builtin" or (source == "auto" and not own.is_file()):
        table = table_for(capability)
    else:
        table = load_table(own if source == "auto" else Path(source))
        if table.architecture != architecture_of(capability):
            raise BadInputError(
                f"{table.source} is for {table.architecture}, this GPU is "
                f"{architecture_of(capability)}: run cosmos-lite-ros tune"
            )
    _IN_EFFECT[_index(device)] = table
    return table


def active_table(device: torch.device) -> Table:
    """The table in effect on a CUDA device; ``auto`` where nothing was chosen."""
    table = _IN_EFFECT.get(_index(device))
    return use_table("auto", device) if table is None else table


def gemm_config(kernel: str, out: Tensor, depth: int) -> GemmConfig:
    """What a product that fills ``out`` [M, N] on a CUDA device, K deep, runs with.

    Raises:
        EnvironmentLacksError: the GPU has no such arithmetic.
    """
    rows, columns = out.shape
    capability = torch.cuda.get_device_capability(out.device)
    check_capability(kernel, capability)
    found = active_table(out.device).find(kernel, rows, columns, depth)
    if found is None:
        # A table of the user's with fewer kernels than this version has.
        found = table_for(capability).find(kernel, rows, columns, depth)
    if found is None:
        raise EnvironmentLacksError(f"no table has a configuration of {kernel}: reinstall")
    return found


def check_capability(kernel: str, capability: tuple[int, int]) -> None:
    """Raise EnvironmentLacksError where a GPU lacks a kernel's arithmetic."""
    least = KERNELS[kernel]
    if capability < least:
        instead = "use scheme int8" if capability >= (8, 0) else "use device cpu"
        raise EnvironmentLacksError(
            f"found a GPU of {architecture_of(capability)}, {kernel} needs "
            f"{architecture_of(least)} or newer: {instead}"
        )


def load_table(path: Path) -> Table:
    """Read and check a table.

    Raises:
        BadInputError: not readable, not such a file, or a configuration that cannot be.
    """
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise BadInputError(f"{path}: found more than {_MAX_BYTES} bytes, expected a table")
        raw = json.loads(path.read_text())
    except OSError as error:
        raise BadInputError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise BadInputError(f"{path}: found no JSON, expected a table of tune's") from error
    try:
        if raw["format"] != FORMAT:
            raise BadInputError(
                f"{path}: found format {raw['format']!r}, expected {FORMAT}: run "
                "cosmos-lite-ros tune again"
            )
        number_of(raw["architecture"])
        entries = tuple(_entry(each) for each in raw["entries"])
        table = Table(
            raw["architecture"],
            str(raw["measured_on"]),
            entries,
            path.name if path.parent == FOLDER else str(path),
        )
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, BadInputError):
            raise BadInputError(f"{path}: {error}") from error
        raise BadInputError(
            f"{path}: found {error!r}, expected a table of tune's: run it again"
        ) from error
    if not entries:
        raise BadInputError(f"{path}: found no entries, expected a table of tune's")
    return table


def save_table(table: Table, path: Path) -> None:
    """Write a table, one entry a line.

    Raises:
        BadInputError: the file cannot be written.
    """
    lines = [
        json.dumps(
            {
                "kernel": e.kernel,
                "shape": [e.rows, e.columns, e.depth],
                "config": list(asdict(e.config).values()),
                "us": e.microseconds,
            }
        )
        for e in table.entries
    ]
    head = json.dumps(
        {"format": FORMAT, "architecture": table.architecture, "measured_on": table.measured_on}
    )
    text = head[:-1] + ', "entries": [\n' + ",\n".join(lines) + "\n]}\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_suffix(".new")
        beside.write_text(text)
        beside.replace(path)
    except OSError as error:
        raise BadInputError(f"cannot write {path}: {error.strerror}") from error


def check_config(kernel: str, config: GemmConfig) -> None:
    """Raise BadInputError for a configuration that the kernel cannot have."""
    for name, value in asdict(config).items():
        power = value & (value - 1) == 0
        if not 1 <= value <= 512 or not (power or name == "num_stages"):
            raise BadInputError(f"{kernel}: {name} is {value}, expected a power of two up to 512")
    product = config.block_k // config.split
    if min(config.block_m, config.block_n) < 16 or product < 32:
        raise BadInputError(
            f"{kernel}: found {config.block_m} x {config.block_n} x {product}, expected at least "
            "16 x 16 x 32"
        )
    for fixed, found in ((_FIXED_STEP, config.block_k), (_FIXED_PRODUCT, product)):
        if fixed.get(kernel, found) != found:
            raise BadInputError(f"{kernel}: found a step of {found}, expected {fixed[kernel]}")


def _entry(raw: dict[str, Any]) -> Entry:
    if raw["kernel"] not in KERNELS:
        raise BadInputError(f"found kernel {raw['kernel']!r}, expected one of {', '.join(KERNELS)}")
    rows, columns, depth = (_count(n) for n in raw["shape"])
    config = GemmConfig(*(_count(n) for n in raw["config"]))
    check_config(raw["kernel"], config)
    return Entry(raw["kernel"], rows, columns, depth, config, float(raw["us"]))


def _count(value: Any) -> int:
    if type(value) is not int or value < 1:
        raise BadInputError(f"found {value!r}, expected a number above 0")
    return value


def _index(device: torch.device) -> int:
    return torch.cuda.current_device() if device.index is None else device.index
