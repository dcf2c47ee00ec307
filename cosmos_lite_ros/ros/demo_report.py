# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What the demo heard: figures, and a plot of commanded motion, latency and tick lateness."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from cosmos_lite_ros.msg import ExecutorStatus
from cosmos_lite_ros.ros.demo import DemoRecord

STATES = {0: "STOPPED", 1: "EMPTY", 2: "PRIMED", 3: "RUNNING", 4: "UNDERRUN"}
GATE_FLAGS = {
    1: "non-finite",
    2: "shape",
    4: "joint names",
    8: "position limit",
    16: "step",
    32: "spike",
    64: "start",
    128: "random weights",
}


def _percentiles(values: list[float]) -> dict[str, float]:
    if not values:
        return {"p50": float("nan"), "p99": float("nan"), "max": float("nan")}
    array = np.asarray(values)
    return {
        "p50": float(np.percentile(array, 50)),
        "p99": float(np.percentile(array, 99)),
        "max": float(array.max()),
    }


def summarise(record: DemoRecord) -> dict[str, Any]:
    """The figures of the executing part, for JSON and for the table."""
    start, end = record.started_s, record.ended_s
    span = max(end - start, 1e-9)
    chunks = [m for t, m in record.chunks if start <= t <= end]
    ticks = [m for t, m in record.ticks if start <= t <= end]
    commands = [t for t, _ in record.commands if start <= t <= end]
    states = Counter(STATES[m.state] for m in ticks)
    flags = Counter(
        name for m in ticks for bit, name in GATE_FLAGS.items() if int(m.gate_flags) & bit
    )
    last = record.ticks[-1][1] if record.ticks else ExecutorStatus()
    return {
        "seconds": span,
        "chunks": len(chunks),
        "chunk_rate_hz": len(chunks) / span,
        "random_weights": any(m.random_weights for m in chunks),
        "instruction": chunks[-1].instruction if chunks else "",
        "latency_s": _percentiles([m.latency_s for m in chunks]),
        "encode_s": _percentiles([m.encode_s for m in chunks]),
        "generate_s": _percentiles([m.generate_s for m in chunks]),
        "ticks": len(ticks),
        "tick_rate_hz": len(ticks) / span,
        "tick_lateness_s": _percentiles([m.lateness_s for m in ticks]),
        "ticks_skipped": int(last.ticks_late),
        "commands": len(commands),
        "command_rate_hz": len(commands) / span,
        "states": {name: n / max(1, len(ticks)) for name, n in states.items()},
        "gate_ticks": dict(flags),
        "gate_clamped": int(last.gate_clamped),
        "chunks_accepted": int(last.chunks_accepted),
        "chunks_rejected": int(last.chunks_rejected),
        "chunks_expired": int(last.chunks_expired),
        "underruns": int(last.underruns),
    }


def _holds(record: DemoRecord) -> list[tuple[float, float]]:
    """(begin, end) of each stretch of ticks in state UNDERRUN, steady s."""
    holds: list[tuple[float, float]] = []
    begin = None
    for t, message in record.ticks:
        held = message.state == ExecutorStatus.UNDERRUN
        if held and begin is None:
            begin = t
        elif not held and begin is not None:
            holds.append((begin, t))
            begin = None
    return holds


def plot(record: DemoRecord, summary: dict[str, Any], title: str, out: Path) -> None:
    """A PNG: joints commanded, state, chunk arrivals and latency, tick lateness."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    start = record.started_s
    ticks = [(t - start, m) for t, m in record.ticks if len(m.commanded_positions) == 7]
    chunks = [(t - start, m) for t, m in record.chunks if t <= record.ended_s]
    figure, axes = pyplot.subplots(
        3, 1, figsize=(11, 9), height_ratios=(3, 1, 1), layout="constrained", sharex=True
    )
    figure.suptitle(title, fontsize=11)
    times = [t for t, _ in ticks]
    positions = np.array([m.commanded_positions for _, m in ticks]).reshape(-1, 7)
    # No line where no command was sent.
    gaps = np.flatnonzero(np.diff(times) > 0.3) + 1 if times else np.array([], int)
    shown = np.insert(np.array(times), gaps, np.nan)
    for joint in range(7):
        values = np.insert(positions[:, joint], gaps, np.nan)
        axes[0].plot(shown, values, lw=1.2, label=f"joint {joint + 1}")
    for begin, end in _holds(record):
        axes[0].axvspan(begin - start, end - start, color="tab:orange", alpha=0.12, lw=0)
    for t, _ in chunks:
        axes[0].axvline(t, color="0.8", lw=0.8, zorder=0)
    axes[0].set_ylabel("commanded (rad)")
    axes[0].legend(fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    axes[0].set_title(
        "joint commands; grey: a chunk arrived; orange: rows done, coming to rest and waiting",
        fontsize=9,
    )
    arrival = [t for t, _ in chunks]
    axes[1].bar(arrival, [m.encode_s for _, m in chunks], width=0.25, label="encode")
    axes[1].bar(
        arrival,
        [m.generate_s for _, m in chunks],
        width=0.25,
        bottom=[m.encode_s for _, m in chunks],
        label="generate",
    )
    axes[1].set_ylabel("latency (s)")
    axes[1].legend(fontsize=8, loc="upper right")
    axes[2].plot(
        [t - start for t, _ in record.ticks],
        [1e3 * m.lateness_s for _, m in record.ticks],
        lw=0.8,
        color="tab:red",
    )
    late = summary["tick_lateness_s"]
    axes[2].set_ylabel("tick late (ms)")
    axes[2].set_xlabel(
        f"time (s); lateness p50 {1e3 * late['p50']:.2f} ms, p99 {1e3 * late['p99']:.2f} ms"
    )
    axes[2].set_xlim(-2.0, record.ended_s - start + 0.5)
    figure.savefig(out, dpi=110)
    pyplot.close(figure)
