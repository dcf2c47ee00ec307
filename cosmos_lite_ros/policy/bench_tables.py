# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Reports of the benches as tables: the same rows for a terminal and for a page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from cosmos_lite_ros.policy.bench_common import Report

_RANDOM = "random weights: timings and memory, nothing else"


@dataclass(frozen=True)
class Table:
    """One table; the first column is text, the others numbers."""

    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def markdown(self) -> str:
        """As a page holds it."""
        lines = [f"**{self.title}**", "", f"| {' | '.join(self.headings)} |"]
        lines.append("|---|" + (len(self.headings) - 1) * "---:|")
        lines += [f"| {' | '.join(row)} |" for row in self.rows]
        return "\n".join(lines)


def tables(report: Report) -> list[Table]:
    """The tables of one report."""
    kinds: dict[str, Callable[[Report], list[Table]]] = {
        "request": _request,
        "soak": _soak,
        "fit": _fit,
    }
    return kinds[report["bench"]](report)


def caption(report: Report) -> str:
    """One line: on what, with what."""
    m, e, t = (report.get(k) or {} for k in ("machine", "effective", "target"))
    parts = [m.get("gpu") or m.get("cpu") or "machine unknown"]
    parts += [f"torch {m['torch']}"] if "torch" in m else []
    parts += [f"triton {m['triton']}"] if m.get("gpu") and m.get("triton") else []
    parts.append(f"{t['family']}, {t['scheme']}")
    if e:
        parts.append(f"attention {e['attention']}, graphs {'on' if e['graphs'] else 'off'}")
        parts.append(f"text_residency {e['text_residency']}")
        parts += [_RANDOM] if e["random_weights"] else []
    tokens = report.get("tokens")
    if tokens:
        parts.append(f"text {tokens['text']}/{tokens['unconditional']} tokens ({tokens['tokens']})")
    return "; ".join(parts)


def markdown(report: Report) -> str:
    """Caption and tables."""
    return "\n\n".join([caption(report), *(t.markdown() for t in tables(report))])


def _ms(value: Any) -> str:
    return "-" if value is None else f"{value:.1f}"


def _gb(value: Any) -> str:
    return "-" if value is None else f"{value / 1e9:.2f}"


def _yes(value: Any) -> str:
    return "-" if value is None else "yes" if value else "NO"


def _times(name: str, found: Report | None) -> tuple[str, ...]:
    if not found or not found["calls"]:
        return (name, "-", "-", "-", "0")
    numbers = (_ms(found[k]) for k in ("median_ms", "p95_ms", "max_ms"))
    return (name, *numbers, str(found["calls"]))


def _single(name: str, value: Any) -> tuple[str, ...]:
    return (name, _ms(value), "", "", "" if value is None else "1")


_TIMES = ("ms", "median", "p95", "max", "calls")


def _request(r: Report) -> list[Table]:
    first, changed = r["first_after_ready"], r["new_instruction"]
    rows = [
        _times("image to actions, back to back, seeds advance", r["request"]),
        *(
            _times(f"one request every {period} s", found)
            for period, found in r["duty_cycle"].items()
        ),
        _times("a seed that nobody foresaw", r["request_unforeseen_seed"]),
        _times("the same seed every time", r["request_fixed_seed"]),
        _times("without graphs", r["sameness"]["without_graphs"]),
        _single("first request after ready", first["first_ms"]),
        _single("second request after ready", first["second_ms"]),
        _single("new instruction", changed["request_ms"]),
        _single("the request after it", changed["following_ms"]),
        _single("back to a known instruction", changed["known_again_ms"]),
        _single("load", 1e3 * r["load_s"]),
        _single("warm-up", 1e3 * r["warm_up_s"]),
        _single("capture of the sampler's graph", r["captures"]["denoise_capture_ms"]),
    ]
    stages = tuple((name.removesuffix("_ms"), _ms(value)) for name, value in r["stages"].items())
    total = sum(r["stages"].values())
    return [
        Table("Latency", _TIMES, tuple(rows)),
        Table("Stages, each waited for", ("stage", "ms"), (*stages, ("sum", _ms(total)))),
        _memory(r),
        *_checks(r),
        *_peers(r),
    ]


def _memory(r: Report) -> Table:
    memory = r["memory"]
    names = ("before_load", "load_peak", "loaded", "warmed_up", "after_back_to_back", "steady")
    kinds = ("reserved", "allocated", "card", "host_anonymous")
    rows = [
        (name.replace("_", " "), *(_gb(memory[name].get(kind)) for kind in kinds))
        for name in (*names, "run_peak")
    ]
    title = (
        f"Memory, GB of 1e9 bytes; steady is after {memory['requests_before_steady']} requests; "
        f"card counts from {r['card_counts_from']}"
    )
    return Table(title, ("phase", "reserved", "allocated", "card", "host anonymous"), tuple(rows))


def _checks(r: Report) -> list[Table]:
    same, captures = r["sameness"], r["captures"]
    rows = [
        ("the same request thrice, bit-equal", _yes(same["repeated_bit_equal"])),
        ("graph against un-graphed, bit-equal", _yes(same["graph_bit_equal"])),
        ("graph against un-graphed, largest difference", str(same["graph_max_difference"])),
        (
            "first request after ready / median",
            f"{r['first_after_ready']['first_over_median']:.3f}",
        ),
        ("captures before / after", f"{captures['before']} / {captures['after']}"),
    ]
    found = [Table("Checks", ("check", "result"), tuple(rows))]
    reference = r["reference"]
    if reference:
        mean, most = reference["differences_mean"], reference["differences_max"]
        differences = tuple(
            (name.replace("_", " "), f"{mean[name]:.2e}", f"{most[name]:.2e}") for name in mean
        )
        title = f"Against diffusers' modules, same dtype, eager; {reference['requests']} requests"
        found.append(Table(title, ("difference", "mean", "max"), differences))
    return found


def _peers(r: Report) -> list[Table]:
    peers = r["peers"]
    if not peers:
        return []
    rows = [
        _times("stock transformer, 4 forwards, eager", peers["stock_transformer_4_forwards"]),
        _times(
            "stock transformer, 4 forwards, blocks compiled",
            peers["stock_transformer_4_forwards_compiled"],
        ),
        _times("stock VAE encode, 1 frame", peers["stock_vae_encode_1"]),
        _times("stock VAE encode, 33 frames", peers["stock_vae_encode_33"]),
        _single("so: a server that encodes one frame", peers["one_frame_server_ms"]),
        _single("so: stock pipeline", peers["stock_pipeline_ms"]),
        _times("reference request on diffusers' modules", r["reference"]["request"]),
        _times("this engine, image to actions", r["request"]),
    ]
    return [Table("Peers in the same run", _TIMES, tuple(rows))]


def _soak(r: Report) -> list[Table]:
    captures = r["captures"]
    rows: list[tuple[str, str]] = [
        ("requests", str(r["requests"])),
        *((f"latency {k}, ms", _ms(r["request"][f"{k}_ms"])) for k in ("median", "p95", "max")),
        ("request with the change of instruction, ms", _ms(r["request_of_change_ms"])),
        (f"repeated request bit-equal, {r['repeated']} times", _yes(r["repeated_bit_equal"])),
        (
            "captures before / after the change / at the end",
            " / ".join(str(captures[k]) for k in ("before", "after_change", "at_end")),
        ),
        *(
            (f"{name.replace('_', ' ')}, bytes a request", _number(slope))
            for name, slope in r["bytes_per_request"].items()
        ),
        *(
            (f"{k.replace('_', ' ')} at the first / last sample, GB", _pair(r, k))
            for k in ("reserved", "card", "host_anonymous")
        ),
    ]
    return [Table("Soak", ("", "value"), tuple(rows))]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _pair(r: Report, kind: str) -> str:
    return f"{r['first_sample'][kind] / 1e9:.3f} / {r['last_sample'][kind] / 1e9:.3f}"


def _fit(r: Report) -> list[Table]:
    rows: list[tuple[str, str]] = [
        ("free on the card, GB (wanted)", f"{r['free'] / 1e9:.3f} ({r['free_wanted'] / 1e9:.3f})"),
        ("held by the ballast process, GB", _gb(r["ballast"])),
        ("result", "passed" if r["passed"] else f"FAILED: {r['error']}"),
    ]
    if r["passed"]:
        rows += [
            ("requests", str(r["request"]["calls"])),
            ("median, ms", _ms(r["request"]["median_ms"])),
            ("new instruction, ms", _ms(r["new_instruction_ms"])),
            ("the request after it, ms", _ms(r["following_ms"])),
            ("load peak reserved, GB", _gb(r["load_peak"]["reserved"])),
            ("peak reserved, GB", _gb(r["peak"]["reserved"])),
            ("card at the end, GB", _gb(r["memory"]["card"])),
        ]
    return [Table("Fit", ("", "value"), tuple(rows))]


def compare(reports: Sequence[Report]) -> Table:
    """The headline of several ``bench request`` reports."""
    rows = [
        (
            f"{r['target']['family']}, {r['target']['scheme']}",
            _ms(r["request"]["median_ms"]),
            _ms(r["duty_cycle"].get("2", {}).get("median_ms")),
            _gb(r["memory"]["steady"]["reserved"]),
            _gb(r["memory"]["load_peak"]["reserved"]),
            _gb(r["memory"]["steady"]["card"]),
            _ms((r["peers"] or {}).get("one_frame_server_ms")),
            _ms((r["peers"] or {}).get("stock_pipeline_ms")),
        )
        for r in reports
    ]
    headings = (
        *("policy", "back to back, ms", "every 2 s, ms", "steady reserved, GB"),
        *("load peak, GB", "card, GB", "one-frame server, ms", "stock pipeline, ms"),
    )
    return Table("Image to actions", headings, tuple(rows))
