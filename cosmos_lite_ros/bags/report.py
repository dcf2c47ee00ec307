# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What a replay leaves behind: ``actions.npz`` (repeatable to the bit) and ``report.json``."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, Final

import numpy as np

from cosmos_lite_ros.bags.replay import ReplayRequest, ReplayResult
from cosmos_lite_ros.errors import BadInputError

ACTIONS: Final = "actions.npz"
REPORT: Final = "report.json"


def check_out(folder: Path) -> None:
    """Refuse a folder that holds results already.

    Raises:
        BadInputError: it does, or it is a file.
    """
    if folder.is_file():
        raise BadInputError(f"{folder} is a file, expected a folder: choose another --out")
    for name in (ACTIONS, REPORT):
        if (folder / name).exists():
            raise BadInputError(f"{folder / name} exists already: choose another --out")


def write(result: ReplayResult, folder: Path) -> None:
    """Write both files.

    ``actions.npz`` holds, for n chunks: ``actions`` float32 [n, 32, 8] (rad; gripper 0 open .. 1
    closed), ``stamps_ns`` int64 [n] (the instant of row 0), ``request_ns`` int64 [n], ``seeds``
    uint64 [n] and ``measured`` float64 [n, 8] (the state that the network saw).

    Raises:
        BadInputError: see ``check_out``; or the folder cannot be written.
    """
    check_out(folder)
    chunks = result.chunks
    measured = [[*c.measured_positions.tolist(), c.measured_gripper] for c in chunks]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        np.savez(
            folder / ACTIONS,
            actions=result.actions(),
            stamps_ns=np.array([c.stamp_ns for c in chunks], np.int64),
            request_ns=np.array([r.at_ns for r in result.requests if r.chunk], np.int64),
            seeds=np.array([c.seed for c in chunks], np.uint64),
            measured=np.array(measured, np.float64).reshape(-1, 8),
        )
        text = json.dumps(as_json(result), indent=1, allow_nan=False)
        (folder / REPORT).write_text(text + "\n")
    except OSError as error:
        raise BadInputError(
            f"{folder} cannot be written ({error.strerror}): choose another --out"
        ) from error


def latency_summary(result: ReplayResult) -> dict[str, float]:
    """Median, 95th percentile and worst latency of the chunks, s; empty without any."""
    values = [chunk.latency_s for chunk in result.chunks]
    if not values:
        return {}
    return {
        "p50": float(np.percentile(values, 50)),
        "p95": float(np.percentile(values, 95)),
        "max": float(max(values)),
    }


def skip_reasons(result: ReplayResult) -> dict[str, int]:
    """How often each kind of skip occurred."""
    kinds = [r.skip.kind for r in result.requests if r.skip is not None]
    return {kind: kinds.count(kind) for kind in sorted(set(kinds))}


def as_json(result: ReplayResult) -> dict[str, Any]:
    """The report as JSON values; infinite and undefined numbers become null."""
    content = {
        "bag": result.bag,
        "duration_s": result.duration_s,
        "topics": {
            "images": dict(result.inputs.images),
            "joint_states": list(result.inputs.joint_states),
            "instruction": result.inputs.instruction,
        },
        "synthetic_topics": dict(result.labels.synthetic),
        "source": result.labels.source,
        "random_weights": result.random_weights,
        "policy": {key: _plain(value) for key, value in result.effective.items()},
        "totals": {
            "requests": len(result.requests),
            "chunks": len(result.chunks),
            "skipped": skip_reasons(result),
            "latency_s": latency_summary(result),
            "counters": result.counters,
        },
        "notes": list(result.notes),
        "requests": [_request(request) for request in result.requests],
    }
    finite = _finite(content)
    assert isinstance(finite, dict)
    return finite


def _request(request: ReplayRequest) -> dict[str, Any]:
    chunk = request.chunk
    content: dict[str, Any] = {
        "bag_s": request.bag_s,
        "request_ns": request.at_ns,
        "instruction": request.instruction,
        "cameras": {
            view: {
                "header_age_s": status.header_age_s,
                "arrival_age_s": status.arrival_age_s,
                "rate_hz": status.rate_hz,
                "stamp_problem": status.stamp_problem,
            }
            for view, status in request.cameras.items()
        },
    }
    if request.skip is not None:
        content["skipped"] = {"kind": request.skip.kind, "reason": request.skip.reason}
    if chunk is not None:
        content |= {
            "observation_sha256": request.digest,
            "stamp_ns": chunk.stamp_ns,
            "joint_state_age_s": (request.at_ns - chunk.joint_state_stamp_ns) / 1e9,
            "seed": chunk.seed,
            "latency_s": chunk.latency_s,
            "encode_s": chunk.encode_s,
            "generate_s": chunk.generate_s,
        }
    return content


def _plain(value: object) -> Any:
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
