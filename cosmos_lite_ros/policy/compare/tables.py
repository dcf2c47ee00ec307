# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""A comparison's report as lines and tables of text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cosmos_lite_ros.policy.compare.gate import NOT_APPLICABLE
from cosmos_lite_ros.policy.compare.requests import DEFAULT_REQUESTS

Report = dict[str, Any]
FEW_REQUESTS = (
    "on larger networks, with nothing wrong, 13 to 17 % of runs of 16 requests had a T2 figure "
    "beyond its limit, 2.7 % of 64"
)


@dataclass(frozen=True)
class Table:
    """Headings and rows; the first column is a name, the others are figures."""

    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def caption(report: Report) -> list[str]:
    """What was compared with what, and what a reader must know."""
    machine = report["machine"]
    where = machine["gpu"] or machine["cpu"]
    revision = f" at {report['revision'][:12]}" if report["revision"] else ""
    lines = [
        f"{report['family']} {report['checkpoint']}{revision}, {report['requests']} frozen "
        f"requests ({report['requests_digest'][:12]}), reference bf16 with server arithmetic",
        f"{where}, torch {machine['torch']}"
        + (f", table {report['gemm_table']}" if report["gemm_table"] else ""),
    ]
    if report["planted"]:
        p = report["planted"]
        lines.append(
            f"planted on {p['channels']} channels of each layer, function preserved: norm gains x "
            f"{p['norm']:g}" + (f", rows of up x {p['mlp']:g}" if p["mlp"] != 1.0 else "")
        )
        if p["residual"] != 1.0:
            lines.append(f"residual stream x {p['residual']:g}: preserved but for the epsilon")
    elif report["random_weights"]:
        lines.append("no outliers planted: random weights without them rank precisions backwards")
    if report["random_weights"]:
        lines.append(f"radians, spikes, flips, steps inside the chunk: {NOT_APPLICABLE}")
    for member in report["accepted"]:
        if "action_l2" in member:
            lines.append(
                f"accepted: {member['name']}, velocity differs by {member['action_l2']:.5f} "
                f"(action rows), {member['video_l2']:.5f} (video)"
            )
    alarms = [
        c["T2"]["false_alarms"] for c in report["candidates"] if "false_alarms" in c.get("T2", {})
    ]
    if alarms:
        lines.append(
            f"with nothing wrong, {100 * alarms[0]:.1f} % of runs of {report['requests']} requests "
            "would put a T2 figure beyond its limit, as this accepted set tells (a verdict needs "
            "the whole interval there)"
        )
    if alarms and report["requests"] < DEFAULT_REQUESTS:
        lines.append(f"fewer than {DEFAULT_REQUESTS} requests: {FEW_REQUESTS}")
    return [*lines, report["note"]]


def summary(report: Report) -> Table:
    """One line a candidate: T1 as the mean over branches, ratios to the accepted set."""
    rows = []
    for candidate in report["candidates"]:
        steps = candidate.get("T1", {}).get("steps", [])
        cells = [f"{np.mean(step['action']['relative_l2']):.4f}" for step in steps[:2]]
        cells += ["-"] * (2 - len(cells))
        cells.append(f"{steps[0]['video']['relative_l2'][0]:.4f}" if steps else "-")
        cells.append(_worst(candidate, "T1", "p95 ratio"))
        rows.append(
            (
                candidate["name"],
                *cells,
                _worst(candidate, "T2", "L1 ratio"),
                _worst(candidate, "T2", "Linf p95 ratio"),
                *(_verdict(candidate, test) for test in ("T0", "T1", "T2")),
            )
        )
    # Fits 80 columns with the longest verdicts.
    headings = (
        *("candidate", "step 1", "step 2", "video", "p95 x", "L1 x", "Linf x"),
        *("T0", "T1", "T2"),
    )
    title = "relative L2 of the velocity; x: times the accepted set's (T1 p95, T2 chunk)"
    return Table(title, headings, tuple(rows))


def details(candidate: Report) -> list[Table]:
    """Everything that was judged of one candidate, and what each joint and step gave."""
    found = []
    name = candidate["name"]
    for test in ("T1", "T2"):
        # Those of single joints are in the table of the joints.
        criteria = [
            c
            for c in candidate.get(test, {}).get("criteria", [])
            if not c["name"].startswith("bias of ")
        ]
        if criteria:
            rows = tuple(
                (c["name"], f"{c['value']:.3f}", _interval(c), f"{c['limit']:g}", c["verdict"])
                for c in criteria
            )
            headings = (f"{test} of {name}", "figure", "95 % interval", "limit", "verdict")
            found.append(Table(f"{test} of {name}", headings, rows))
    if steps := candidate.get("T1", {}).get("steps"):
        found.append(_step_table(name, steps))
    joints = [candidate.get(test, {}).get("joints", []) for test in ("T1", "T2")]
    if any(joints):
        found.append(_joint_table(candidate, *joints))
    return found


def _interval(values: Report) -> str:
    return f"{values['low']:.3f} .. {values['high']:.3f}"


def _step_table(name: str, steps: list[Report]) -> Table:
    rows = []
    for step in steps:
        for what in ("action", "video"):
            by_branch = " / ".join(f"{v:.5f}" for v in step[what]["relative_l2"])
            rows.append(
                (
                    f"step {step['step']} (weight {step['weight']:.3f}), {what}",
                    by_branch,
                    f"{step[what]['p95']:.5f}",
                    f"{step[what]['accepted']:.5f}",
                    f"{step[what]['accepted_p95']:.5f}",
                )
            )
        guided = step["guided"]
        rows.append(
            (
                f"step {step['step']}, action guided",
                f"{guided['relative_l2']:.5f}",
                "",
                f"{guided['accepted']:.5f}",
                "",
            )
        )
    headings = ("velocity, relative L2", "text / no text", "p95", "accepted", "accepted p95")
    return Table(f"one forward of {name}", headings, tuple(rows))


def _joint_table(candidate: Report, first: list[Report], second: list[Report]) -> Table:
    """One line a joint: the bias of T1 with its verdict, the chunk's error of T2."""
    verdicts = {
        c["name"].removeprefix("bias of "): c["verdict"]
        for c in candidate.get("T1", {}).get("criteria", [])
    }
    radians = bool(second) and isinstance(second[0]["mean_abs"], float)
    rows: list[tuple[str, ...]] = []
    for i, row in enumerate(first or second):
        cells = [row["joint"]]
        if first:
            by_step = " / ".join(f"{v:.3f}" for v in row["by_step"])
            cells += [f"{row['bias']:.3f}", _interval(row), by_step, verdicts[row["joint"]]]
        if second:
            cells += [f"{second[i]['l1_ratio']:.3f}", _interval(second[i])]
        if radians:
            cells.append(f"{second[i]['mean_abs']:.5f}")
        rows.append(tuple(cells))
    headings = ["joint"]
    headings += ["bias / std", "95 % interval", "by step", "T1"] if first else []
    headings += ["chunk L1 x", "95 % interval"] if second else []
    headings += ["mean error"] if radians else []
    return Table(f"joints of {candidate['name']}", tuple(headings), tuple(rows))


def _worst(candidate: Report, test: str, ending: str) -> str:
    """The largest of the judged figures whose name ends so."""
    found = [
        c["value"]
        for c in candidate.get(test, {}).get("criteria", [])
        if c["name"].endswith(ending) and c["verdict"] != "reported"
    ]
    return f"{max(found):.2f}" if found else "-"


def _verdict(candidate: Report, test: str) -> str:
    return str(candidate[test]["verdict"]) if test in candidate else "-"
