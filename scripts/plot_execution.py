#!/usr/bin/env python3
# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Draw docs/images/motion_*.png: the executor's core on an injected clock, nothing of it faked.

Needs matplotlib (the extra ``report``). plot_cell.py beside it has core, arm and policy. ``--out``
writes elsewhere.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from plot_cell import HOME, Cell, once

from cosmos_lite_ros.contract.constants import CHUNK_ROWS, RATE_HZ, ROW_PERIOD_S
from cosmos_lite_ros.contract.robots import robot_type
from cosmos_lite_ros.execution.envelope import fr3_envelope
from cosmos_lite_ros.execution.kinematics import posture
from cosmos_lite_ros.execution.machine import State

OUT = Path(__file__).resolve().parent.parent / "docs" / "images"
BLUE, ORANGE, GREEN, RED, GREY = "#0072b2", "#e69f00", "#009e73", "#d55e00", "#777777"


def modes() -> plt.Figure:
    """What each mode makes of chunks that disagree: every other one lies 40 mrad further."""
    figure, axes = plt.subplots(
        2, 4, figsize=(16, 6), sharex="col", sharey="row", height_ratios=(2, 1)
    )
    calls = [0]

    def wave(t: np.ndarray) -> np.ndarray:
        return 0.35 * (1 - np.cos(0.45 * np.maximum(t, 0.0)))

    def timed(tick: int) -> np.ndarray:
        calls[0] += 1
        t = (tick + np.arange(CHUNK_ROWS))[:, None] * ROW_PERIOD_S - 0.3
        further = 0.04 if calls[0] > 3 and calls[0] % 2 == 0 else 0.0
        return HOME + (wave(t) + further) * np.eye(7)[1]

    def in_turn(tick: int) -> np.ndarray:
        # The motion waits while the policy thinks, so the next chunk goes on where it stands.
        n = calls[0]
        calls[0] += 1
        t = (n * CHUNK_ROWS + np.arange(CHUNK_ROWS))[:, None] * ROW_PERIOD_S
        return HOME + (wave(t) + 0.04 * (n % 2)) * np.eye(7)[1]

    titles = {
        "sync": "sync: hold, then row 0 at once",
        "async": "async: cross-fade over 4 rows",
        "average": "average: 0.3 old + 0.7 new",
        "prefix": "prefix: each chunk continues the one before",
    }
    for column, (mode, title) in enumerate(titles.items()):
        calls[0] = 0
        more = {"horizon": 16} if mode == "prefix" else {}
        rows = in_turn if mode == "sync" else timed
        cell = Cell(rows, 5, mode=mode, blend_rows=4, **more).run(92)
        t, p, v, _ = cell.curves
        top, bottom = axes[:, column]
        for chunk_id in cell.chunks:
            at, chunk = cell.rows_in_time(chunk_id)
            color = (ORANGE, GREEN)[chunk_id % 2]
            top.plot(at, chunk[:, 1] - HOME[1], ".", color=color, ms=4)
        top.plot([], [], ".", color=ORANGE, label="rows of a chunk")
        top.plot([], [], ".", color=GREEN, label="rows of the next")
        top.plot(t, p[:, 1] - HOME[1], color=BLUE, lw=1.6, label="sent")
        bottom.plot(t, v[:, 1], color=BLUE, lw=1.2)
        top.set_title(title)
        bottom.set_xlabel("time (s)")
        for axis in (top, bottom):
            axis.set_xlim(1.5, 5.6)
            axis.grid(alpha=0.3)
    axes[0, 0].set_ylim(0.0, 0.72)
    axes[1, 0].set_ylim(-0.1, 0.5)
    axes[0, 0].set_ylabel("joint 2 from home (rad)")
    axes[1, 0].set_ylabel("velocity (rad/s)")
    axes[0, 0].legend(loc="upper left", fontsize=8)
    return figure


def limits() -> plt.Figure:
    """Each limit at work."""
    figure, axes = plt.subplots(2, 3, figsize=(13, 7))
    joint = np.eye(7)[1]

    # Velocity and acceleration: a step of one joint.
    step = np.repeat((HOME + 1.1 * np.eye(7)[0])[None], CHUNK_ROWS, axis=0)
    free = {"max_spike_rad": 9.0, "max_tool_speed_m_s": math.inf, "start_tolerance_rad": 9.0}
    cell = Cell(once(step), 1, velocity_scale=0.3, **free).run(40)
    t, p, v, a = cell.curves
    cap, able = cell.core.limits.velocity[0], cell.core.limits.acceleration[0]
    axis = axes[0, 0]
    axis.plot(t, v[:, 0], color=BLUE, label="velocity (rad/s)")
    axis.plot(t, a[:, 0], color=GREEN, lw=1, label="acceleration (rad/s²)")
    for value, color in ((cap, BLUE), (able, GREEN), (-able, GREEN)):
        axis.axhline(value, color=color, ls="--", lw=0.8)
    axis.set_title("velocity and acceleration: a step of joint 1")
    axis.legend(fontsize=8)

    # Position: rows that race to a limit.
    high = cell.core.limits.position_max[3]
    rows = HOME + np.linspace(0.08, 2.8, CHUNK_ROWS)[:, None] * np.eye(7)[3]
    cell = Cell(once(rows), 1, **free).run(60)
    t, p, v, _ = cell.curves
    axis = axes[0, 1]
    axis.plot(cell.rows_in_time()[0], rows[:, 3], ".", color=ORANGE, ms=4, label="rows")
    axis.plot(t, p[:, 3], color=BLUE, label="sent")
    axis.axhline(high, color=RED, ls="--", lw=1, label="position limit")
    axis.set_ylim(-2.7, 0.4)
    axis.set_ylabel("joint 4 (rad)")
    axis.set_title("position: braked in time")
    axis.legend(fontsize=8)

    # Tool speed.
    axis = axes[0, 2]
    sweep = HOME + np.linspace(0.03, 1.3, CHUNK_ROWS)[:, None] * np.eye(7)[0]
    for cap_m_s, color in ((math.inf, GREY), (0.2, BLUE)):
        cell = Cell(once(sweep), 1, max_tool_speed_m_s=cap_m_s).run(60)
        name = "no cap" if math.isinf(cap_m_s) else f"max_tool_speed_m_s = {cap_m_s:g}"
        axis.plot(cell.t, cell.tool()[1], color=color, label=name)
    axis.axhline(0.2, color=RED, ls="--", lw=1)
    axis.set_ylabel("fingertip (m/s)")
    axis.set_title("tool speed")
    axis.legend(fontsize=8)

    # Table.
    down = HOME + np.r_[np.linspace(0, 0.3, 16), np.linspace(0.3, 0.0, 16)][:, None] * joint
    down += np.linspace(0, 0.4, CHUNK_ROWS)[:, None] * np.eye(7)[0]
    axis = axes[1, 0]
    table = 0.26
    cell = Cell(once(down), 1, table_height_m=table).run(55)
    tip = cell.tool()[0]
    asked = posture(down).tool(np.array(cell.settings.tool_offset_m))
    axis.plot(asked[:, 1], asked[:, 2], ".", color=ORANGE, ms=4, label="rows")
    axis.plot(tip[:, 1], tip[:, 2], color=BLUE, label="sent")
    axis.axhline(table, color=RED, ls="--", lw=1, label="table_height_m")
    axis.set_xlabel("fingertip y (m)")
    axis.set_ylabel("fingertip z (m)")
    axis.set_title("workspace: slides along the table")
    axis.legend(fontsize=8)

    # FR3's envelope in the plane of position and velocity.
    axis = axes[1, 1]
    low, high_all = robot_type("fr3").limits()
    q = np.linspace(low[0], high_all[0], 400)
    at = np.repeat(((low + high_all) / 2)[None], 400, axis=0)
    at[:, 0] = q
    axis.plot(
        q,
        fr3_envelope(1.0).limits(at)[1][:, 0],
        color=RED,
        ls="--",
        lw=1,
        label="FR3's envelope (scale 1)",
    )
    for scales, color in (((1.0, 1.0), BLUE), ((0.6, 0.25), GREEN)):
        rows = HOME + np.linspace(0.2, 6.5, CHUNK_ROWS)[:, None] * np.eye(7)[0]
        scaled = {"velocity_scale": scales[0], "acceleration_scale": scales[1]}
        cell = Cell(once(rows), 1, robot="fr3", **scaled, **free).run(75)
        _, p, v, _ = cell.curves
        axis.plot(
            p[:, 0], v[:, 0], color=color, label=f"sent, scales {scales[0]:g} and {scales[1]:g}"
        )
    axis.set_xlim(-0.1, 2.85)
    axis.set_ylim(-0.1, 2.8)
    axis.set_xlabel("joint 1 (rad)")
    axis.set_ylabel("velocity (rad/s)")
    axis.set_title("FR3's velocity envelope")
    axis.legend(fontsize=8, loc="lower left")

    # Start ramp.
    axis = axes[1, 2]
    away = HOME + 0.18 * joint
    rows = away + 0.1 * (1 - np.cos(1.2 * np.arange(CHUNK_ROWS)[:, None] * ROW_PERIOD_S)) * joint
    cell = Cell(once(rows), 1).run(60)
    t, p, v, _ = cell.curves
    axis.plot(t, p[:, 1] - HOME[1], color=BLUE, label="sent")
    axis.axhline(0.18, color=ORANGE, ls=":", lw=1.2, label="first row")
    axis.plot(t, v[:, 1], color=GREEN, lw=1, label="velocity (rad/s)")
    slow = 0.1 * robot_type("panda").velocity_max[1]
    axis.axhline(slow, color=GREEN, ls="--", lw=0.8, label="start speed")
    axis.set_title("start guard: a slow way to a far first row")
    axis.set_xlabel("time (s)")
    axis.legend(fontsize=8)
    for axis in axes.flat:
        axis.grid(alpha=0.3)
    for axis in axes[0]:
        axis.set_xlabel("time (s)")
    return figure


def noise() -> plt.Figure:
    """Rows with the noise of bfloat16 arithmetic, with and without smoothing."""
    figure, axes = plt.subplots(2, 2, figsize=(12, 6), sharex=True, sharey="row")
    for column, most in enumerate((0.0, 0.03)):
        rng = np.random.default_rng(2)

        def rows(tick: int, rng: np.random.Generator = rng) -> np.ndarray:
            t = (tick + np.arange(CHUNK_ROWS))[:, None] * ROW_PERIOD_S
            clean = HOME + 0.25 * (1 - np.cos(0.8 * np.maximum(t - 0.3, 0))) * np.eye(7)[1]
            return clean + rng.normal(0, 0.009, clean.shape)

        cell = Cell(rows, 5, mode="async", max_smoothing_rad=most).run(75)
        t, p, _, a = cell.curves
        asked = [
            (k + 1, o.status.requested[1])
            for k, o in enumerate(cell.outputs)
            if o.status.requested is not None
        ]
        at, values = (np.array(x) for x in zip(*asked, strict=True))
        axes[0, column].plot(
            at * ROW_PERIOD_S, values - HOME[1], ".", color=ORANGE, ms=5, label="rows"
        )
        axes[0, column].plot(t, p[:, 1] - HOME[1], color=BLUE, label="sent")
        axes[1, column].plot(t, a[:, 1], color=BLUE, lw=1)
        for sign in (-1, 1):
            axes[1, column].axhline(
                sign * cell.core.limits.acceleration[1], color=RED, ls="--", lw=1
            )
        axes[0, column].set_title(f"max_smoothing_rad = {most:g}")
        axes[1, column].set_xlabel("time (s)")
        for axis in axes[:, column]:
            axis.set_xlim(1.5, 4.5)
            axis.grid(alpha=0.3)
    axes[0, 0].set_ylabel("joint 2 from home (rad)")
    axes[1, 0].set_ylabel("acceleration (rad/s²)")
    axes[0, 1].legend(fontsize=8)
    return figure


def stops() -> plt.Figure:
    """A stop in full motion, and the end of the rows."""
    figure, axes = plt.subplots(1, 2, figsize=(12, 4))
    rows = HOME + np.linspace(0.02, 1.1, CHUNK_ROWS)[:, None] * np.array(
        [1, 0.6, -0.8, 0.7, 1, 0.5, 1.2]
    )
    cell = Cell(once(rows), 1, max_tool_speed_m_s=math.inf).run(22)
    now = cell.core.grid.deadline_ns(22) - 1000
    cell.core.offer_emergency_stop(True, now)
    stopped_at = 22 * ROW_PERIOD_S
    for _ in range(14):
        cell.tick()
    t, _, v, _ = cell.curves
    for i in range(7):
        axes[0].plot(t, v[:, i], lw=1.2, label=f"joint {i + 1}")
    axes[0].axvline(stopped_at, color=RED, lw=1)
    axes[0].text(stopped_at + 0.02, -0.5, "emergency_stop", color=RED, fontsize=8)
    bound = float((np.abs(v).max(axis=0) / cell.core.limits.acceleration).max())
    axes[0].set_title(f"stop: at rest within v/a = {bound:.2f} s, rounded up to ticks")
    axes[0].set_ylabel("velocity (rad/s)")
    axes[0].legend(fontsize=7, ncol=2, loc="upper right")
    rows = HOME + (0.012 * np.arange(1, 19))[:, None] * np.eye(7)[1]
    cell = Cell(once(rows), 1, mode="async", underrun_timeout_s=2.0).run(68)
    t, p, _, _ = cell.curves
    at = cell.rows_in_time()[0]
    axes[1].plot(at, rows[:, 1] - HOME[1], ".", color=ORANGE, ms=5, label="rows")
    axes[1].plot(t, p[:, 1] - HOME[1], color=BLUE, label="sent")
    marks = {State.RUNNING: "RUNNING", State.UNDERRUN: "UNDERRUN", State.STOPPED: "STOPPED"}
    before = None
    for k, output in enumerate(cell.outputs):
        state = output.status.state
        if state is not before and state in marks and k > 4:
            axes[1].axvline(k * ROW_PERIOD_S, color=GREY, lw=0.8, ls=":")
            axes[1].text(k * ROW_PERIOD_S + 0.02, 0.01, marks[state], fontsize=8, rotation=90)
        before = state
    axes[1].set_title("underrun: rows end, the command is kept, then STOPPED")
    axes[1].set_ylabel("joint 2 from home (rad)")
    axes[1].legend(fontsize=8, loc="lower right")
    for axis in axes:
        axis.grid(alpha=0.3)
        axis.set_xlabel("time (s)")
    return figure


def latency() -> plt.Figure:
    """Share of time in motion against the policy's latency."""
    figure, axis = plt.subplots(figsize=(8, 4.5))
    calls = [0]

    def share(mode: str, horizon: int, ticks: int) -> float:
        def rows(tick: int) -> np.ndarray:
            begin = calls[0] * horizon if mode == "sync" else tick
            calls[0] += 1
            t = (begin + np.arange(CHUNK_ROWS))[:, None] * ROW_PERIOD_S
            return HOME + 0.3 * np.sin(0.5 * t + np.arange(7)) - 0.3 * np.sin(np.arange(7))

        calls[0] = 0
        cell = Cell(
            rows,
            ticks,
            mode=mode,
            horizon=horizon,
            start_tolerance_rad=9.0,
            max_spike_rad=9.0,
            request_timeout_s=10.0,
            underrun_timeout_s=10.0,
        )
        cell.run(60 + 20 * ticks)
        _, _, v, _ = cell.curves
        late = v[len(v) // 3 :]
        return float((np.abs(late).max(axis=1) > 1e-3).mean())

    seconds = np.linspace(0.0, 2.0, 200)
    ticks = np.array([1, 2, 3, 5, 8, 10, 12, 15, 18, 22, 26, 30])
    for mode, horizon, color, mark in (
        ("async", 32, GREEN, "o"),
        ("sync", 32, BLUE, "s"),
        ("sync", 8, ORANGE, "^"),
    ):
        label = f"{mode}, {horizon} rows"
        if mode == "sync":
            axis.plot(seconds, 100 * horizon / (horizon + seconds * RATE_HZ), color=color, lw=0.8)
        found = [100 * share(mode, horizon, int(k)) for k in ticks]
        axis.plot(ticks * ROW_PERIOD_S, found, mark, color=color, ms=5, label=label)
    for at, name in ((0.331, "Edge"), (0.958, "Nano")):
        axis.axvline(at, color=GREY, ls=":", lw=1)
        axis.text(at + 0.01, 8, f"{name}, {1000 * at:.0f} ms", fontsize=8, color=GREY)
    axis.set_ylim(0, 104)
    axis.set_xlim(0, 2.05)
    axis.set_xlabel("latency of the policy (s)")
    axis.set_ylabel("time in motion (%)")
    axis.set_title("latency against moving time (lines: rows / (rows + latency))")
    axis.legend(fontsize=8, loc="upper right")
    axis.grid(alpha=0.3)
    return figure


FIGURES = {"modes": modes, "limits": limits, "noise": noise, "stops": stops, "latency": latency}


def main() -> None:
    """Draw the figures that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="FIGURE", help=", ".join(FIGURES))
    parser.add_argument("--out", type=Path, default=OUT)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name in arguments.names or FIGURES:
        figure = FIGURES[name]()
        figure.tight_layout()
        figure.savefig(arguments.out / f"motion_{name}.png", dpi=90)
        plt.close(figure)


if __name__ == "__main__":
    main()
