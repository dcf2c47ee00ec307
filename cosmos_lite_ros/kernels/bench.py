# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
# Triton and gemlite carry no type information.
# mypy: disable-error-code="import-untyped, import-not-found"
"""Matrix products in captured graphs of 20 calls, each beside what could stand in its place.

Weights go round more memory than any L2, as they do in a request. Activations are quantised before,
as ours are by the kernel that makes them; gemlite quantises inside its call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor

from cosmos_lite_ros.errors import BadInputError, EnvironmentLacksError
from cosmos_lite_ros.kernels.gemm_fp8 import linear_fp8
from cosmos_lite_ros.kernels.selftest_products import check_product
from cosmos_lite_ros.kernels.shapes import ACTION_ROWS, RELEASED, ROLES, TOKEN_ROWS
from cosmos_lite_ros.kernels.tables import active_table, architecture_of
from cosmos_lite_ros.kernels.trial import argument_sets, launcher, microseconds, random_weights
from cosmos_lite_ros.kernels.tune import ROLES_OF, supported

Report = dict[str, Any]
Say = Callable[[str], None]
Work = Callable[[], None]
CALLS: Final = 20
REPLAYS: Final = 3
# Of one guidance branch, and of both in one pass; forwards of a request with these.
FORWARDS: Final = {TOKEN_ROWS: 4, 2 * TOKEN_ROWS: 2}
CHECK_ROWS: Final = (ACTION_ROWS, 2 * ACTION_ROWS, TOKEN_ROWS, 2 * TOKEN_ROWS)
GEMLITE: Final = ("off", "default", "fast", "max")
BASELINE: Final = "bf16 torch.mm"
TRAP: Final = "_weight_int8pack_mm"
# Weights of one shape: enough to go round any L2, 7 at most.
_POOL: Final = 320_000_000
_SETS: Final = 7
_QUICK_MATRIX: Final = "qkv"


def check_kernels(device: torch.device, families: Iterable[str], say: Say) -> dict[str, float]:
    """Every product's error at its real shapes, 1 being the most that roundings explain.

    ``scaled_mm`` is among them; what it cannot do is said and left out.
    """
    found: dict[str, float] = {}
    for kernel in _available(device):
        shapes = {
            (rows, *RELEASED[family].matrix(role))
            for family in families
            for role in ROLES_OF[kernel]
            for rows in CHECK_ROWS
        }
        for shape in sorted(shapes):
            check = check_product(kernel, shape, device)
            found[check.name] = check.error
            if kernel in ("gemm_fp8", "gemm_fp8_unpromoted"):
                name = f"scaled_mm {check.name}"
                try:
                    found[name] = check_product(kernel, shape, device, "scaled_mm").error
                except RuntimeError as error:
                    say(f"{name}: {_line(error)}")
        worst = max(found[name] for name in found if name.split()[-2] == kernel)
        say(f"{kernel}: {len(shapes)} shapes, worst error {worst:.3f} of its limit")
    return found


def bench_kernels(
    device: torch.device,
    say: Say,
    *,
    families: Iterable[str] = tuple(RELEASED),
    rows: Iterable[int] = tuple(FORWARDS),
    gemlite: str = "default",
) -> Report:
    """Times of all products and their rivals.

    Args:
        device: a CUDA device.
        say: told of the progress.
        families: edge, nano.
        rows: numbers of rows, of ``FORWARDS``.
        gemlite: off; default (its own choice of configurations); fast or max (its autotuning, which
            takes minutes). Nothing happens where it is not installed.

    Raises:
        EnvironmentLacksError: no CUDA GPU.
        BadInputError: an unknown family, number of rows or setting of gemlite.
    """
    if device.type != "cuda":
        raise EnvironmentLacksError(f"found device {device}, expected a CUDA GPU")
    families, rows = tuple(families), tuple(rows)
    for name, given, known in (
        ("families", families, tuple(RELEASED)),
        ("rows", rows, tuple(FORWARDS)),
        ("gemlite", (gemlite,), GEMLITE),
    ):
        for value in given:
            if value not in known:
                expected = ", ".join(str(k) for k in known)
                raise BadInputError(f"{name}: found {value!r}, expected one of {expected}")
    measured: list[Report] = []
    notes: dict[str, str] = {}
    for family in families:
        for role in ROLES:
            for count in rows:
                shape = (count, *RELEASED[family].matrix(role))
                took: dict[str, float] = {}
                for name, work, calls in _contenders(device, role, shape, gemlite, notes):
                    try:
                        took[name] = round(microseconds(work, calls, REPLAYS), 2)
                    except Exception as error:  # a rival that this GPU or torch lacks
                        notes.setdefault(name, _line(error))
                measured.append({"family": family, "role": role, "shape": shape, "us": took})
                best = min(took, key=lambda name: took[name])
                say(f"{family} {role} {shape}: {best} {took[best]:.0f} us")
    return {
        "bench": "kernels",
        "machine": machine(device),
        "calls": CALLS,
        "table": active_table(device).describe(),
        "products": measured,
        "requests_ms": _requests(measured),
        "notes": notes,
    }


def machine(device: torch.device) -> Report:
    """What was measured on."""
    import triton

    return {
        "gpu": torch.cuda.get_device_name(device),
        "architecture": architecture_of(torch.cuda.get_device_capability(device)),
        "torch": torch.__version__,
        "triton": triton.__version__,
    }


def report_tables(report: Report) -> list[tuple[str, list[str], list[list[str]]]]:
    """Title, headings and rows of each table of a report."""
    found = []
    for family in dict.fromkeys(p["family"] for p in report["products"]):
        products = [p for p in report["products"] if p["family"] == family]
        names = list(dict.fromkeys(n for p in products for n in p["us"]))
        headings = ["us (TFLOP/s)", *(f"{p['role']} {p['shape'][0]}" for p in products)]
        lines = [[name, *(_cell(p, name) for p in products)] for name in names]
        found.append((f"{family}: one product", headings, lines))
    headings = ["ms of all products", *report["requests_ms"]]
    names = list(dict.fromkeys(n for each in report["requests_ms"].values() for n in each))
    lines = []
    for name in names:
        totals = (each.get(name) for each in report["requests_ms"].values())
        lines.append([name, *("-" if t is None else f"{t:.1f}" for t in totals)])
    found.append(("one request", headings, lines))
    return found


def caption(report: Report) -> str:
    """One line: on what, with what."""
    m, t = report["machine"], report["table"]
    return (
        f"{m['gpu']}; torch {m['torch']}; triton {m['triton']}; table {t['source']} {t['digest']} "
        f"({t['measured_on']}); graphs of {report['calls']} calls"
    )


def _cell(product: Report, name: str) -> str:
    took = product["us"].get(name)
    if took is None:
        return "-"
    m, n, k = product["shape"]
    return f"{took:.0f} ({2e-6 * m * n * k / took:.0f})"


def _requests(measured: list[Report]) -> dict[str, dict[str, float]]:
    """Milliseconds of all products of one request, by family and rows, of complete schemes.

    int8 and int4wo are mixed: the MLP's second product is block-scaled, attention's are int8wo.
    """
    found: dict[str, dict[str, float]] = {}
    for family in dict.fromkeys(p["family"] for p in measured):
        for rows in dict.fromkeys(p["shape"][0] for p in measured):
            by_role = {
                p["role"]: p["us"]
                for p in measured
                if p["family"] == family and p["shape"][0] == rows
            }
            names = dict.fromkeys(n for us in by_role.values() for n in us)
            totals = {}
            for name in names:
                times = [us.get(name, us.get(_INSTEAD.get(name, ""))) for us in by_role.values()]
                if name in _PARTS or len(times) < len(ROLES) or None in times:
                    continue
                layers = RELEASED[family].layers * FORWARDS[rows]
                totals[name] = round(sum(t for t in times if t) * layers / 1e3, 2)
            found[f"{family} {rows}"] = totals
    return found


# What takes a scheme's place for the matrices that it has another kernel for, and those kernels.
_INSTEAD: Final = {"gemm_int8": "gemm_int8_blocked", "gemm_int4wo": "gemm_int8wo"}
_PARTS: Final = ("gemm_int8_blocked", TRAP)


def _available(device: torch.device) -> list[str]:
    return supported(architecture_of(torch.cuda.get_device_capability(device)))


def _contenders(
    device: torch.device,
    role: str,
    shape: tuple[int, int, int],
    gemlite: str,
    notes: dict[str, str],
) -> Iterator[tuple[str, Work, int]]:
    """Name, work of some calls and their number, of everything that computes such a product."""
    rows, columns, depth = shape
    count = columns * depth
    sets = max(min(_POOL // count, _SETS), 1)

    def rounds(run: Callable[..., Any], given: list[tuple[Any, ...]], calls: int = CALLS) -> Work:
        def work() -> None:
            for i in range(calls):
                run(*given[i % len(given)])

        return work

    generator = torch.Generator(device).manual_seed(rows + count)
    x = torch.randn((rows, depth), generator=generator, device=device).bfloat16()
    out = torch.empty((rows, columns), dtype=torch.bfloat16, device=device)
    plain = [_bfloat16(columns, depth, generator, device) for _ in range(sets)]
    yield BASELINE, rounds(_mm, [(x, w, out) for w in plain]), CALLS
    weight = plain[0]
    del plain
    for kernel in _available(device):
        if role not in ROLES_OF[kernel]:
            continue
        given = argument_sets(kernel, shape, random_weights(kernel, sets * count, device), sets)
        yield kernel, rounds(launcher(kernel), given), CALLS
        if kernel in ("gemm_fp8", "gemm_fp8_unpromoted"):
            fast = kernel != "gemm_fp8"
            run = partial(linear_fp8, fast=fast, backend="scaled_mm")
            yield f"scaled_mm {'fast' if fast else 'accurate'}", rounds(run, given), CALLS
        if kernel == "gemm_int8wo" and role == _QUICK_MATRIX and rows == TOKEN_ROWS:
            # What Inductor makes of an int8 weight with a bfloat16 scale; seconds at these sizes.
            trap = [(x, w, scale.bfloat16()) for _, w, scale, _ in given[:1]]
            yield TRAP, rounds(torch._weight_int8pack_mm, trap, 1), 1
    if gemlite != "off":
        for name, module in _gemlite(weight, device, gemlite, notes):
            yield name, rounds(module, [(x,)]), CALLS


def _bfloat16(columns: int, depth: int, generator: torch.Generator, device: torch.device) -> Tensor:
    drawn = torch.empty((columns, depth), dtype=torch.bfloat16, device=device)
    return drawn.normal_(generator=generator)


def _mm(x: Tensor, weight: Tensor, out: Tensor) -> None:
    torch.mm(x, weight.T, out=out)


def _gemlite(
    weight: Tensor, device: torch.device, tuning: str, notes: dict[str, str]
) -> Iterator[tuple[str, Callable[[Tensor], Tensor]]]:
    """gemlite's layers of the same weight; its first call may tune for minutes."""
    try:
        import gemlite
        from gemlite import helper

        if tuning != "default":
            gemlite.set_autotune(tuning)
    except Exception as error:  # not installed, or made for another torch
        notes["gemlite"] = _line(error)
        return
    kinds = {"int8wo": "A16W8_INT8", "int8": "A8W8_int8_dynamic"}
    if torch.cuda.get_device_capability(device) >= (8, 9):
        kinds["fp8"] = "A8W8_fp8_dynamic"
    for name, kind in kinds.items():
        title = f"gemlite {name}"
        try:
            maker = getattr(helper, kind)(device=str(device), dtype=torch.bfloat16)
            yield title, maker.from_weights(weight.clone())
        except Exception as error:  # whatever a foreign library raises is an answer
            notes[title] = _line(error)


def _line(error: Exception) -> str:
    return " ".join([f"{type(error).__name__}:", *str(error).splitlines()[:1]])
