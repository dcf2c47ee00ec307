# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What runs beside the executor in ``bench tick``, each in a process of its own.

``load`` keeps every core busy: a tiny policy answers one request after the other where torch is
installed, and one thread a core multiplies matrices, which holds no interpreter lock. ``bare`` is
the loop that the executor is measured against: absolute deadlines on the steady clock, nothing
else. Each ends with one line of JSON.

    python -m cosmos_lite_ros.ros.bench_tick_load load
    python -m cosmos_lite_ros.ros.bench_tick_load bare --rate 15 --seconds 60
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from cosmos_lite_ros.execution.clock import NS
from cosmos_lite_ros.execution.ticker import Ticker, TickGrid
from cosmos_lite_ros.ros.executor_scheduling import schedule

_MATRIX = 384


def bare(rate_hz: int, seconds: float, priority: int) -> dict[str, object]:
    """Lateness of a loop that does nothing, s, and how many ticks it missed."""
    gc.disable()
    scheduling = schedule(priority)
    start_ns = time.monotonic_ns()
    ticker = Ticker(TickGrid(start_ns, rate_hz), 1)
    end_ns = start_ns + int(seconds * NS)
    lateness_s: list[float] = []
    missed = 0
    now_ns = start_ns
    while now_ns < end_ns:
        while (left_ns := ticker.deadline_ns - now_ns) > 0:
            time.sleep(left_ns / NS)
            now_ns = time.monotonic_ns()
        arrival = ticker.arrive(now_ns)
        if arrival is not None:
            lateness_s.append(arrival.lateness_ns / NS)
            missed += arrival.skipped
        now_ns = time.monotonic_ns()
    return {"lateness_s": lateness_s, "missed": missed, "realtime": scheduling.realtime}


def _multiply(ended: threading.Event) -> None:
    matrix = np.random.default_rng(0).standard_normal((_MATRIX, _MATRIX)).astype(np.float32)
    out = np.empty_like(matrix)
    while not ended.is_set():
        np.matmul(matrix, matrix, out=out)


def _tiny_policy(folder: Path) -> Callable[[], object] | None:
    """One request of a tiny policy; None where torch is not installed."""
    try:
        import torch  # noqa: F401
    except ImportError:
        return None
    from cosmos_lite_ros.contract.observation import Observation
    from cosmos_lite_ros.policy.engine import PolicyEngine
    from cosmos_lite_ros.policy.settings import EngineSettings
    from cosmos_lite_ros.policy.tiny import make_tiny

    checkpoint = make_tiny("edge", folder / "tiny")
    engine = PolicyEngine.load(EngineSettings(checkpoint=str(checkpoint)))
    observation = Observation(np.zeros((540, 640, 3), np.uint8), np.zeros(7), 0.0, "bench")
    return lambda: engine.act(observation)


def load() -> dict[str, object]:
    """Keep every core busy until SIGTERM; processor time over wall time, and requests answered."""
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda number, frame: ended.set())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with tempfile.TemporaryDirectory() as folder:
        policy = _tiny_policy(Path(folder))
        threads = [
            threading.Thread(target=_multiply, args=(ended,), daemon=True)
            for _ in range(len(os.sched_getaffinity(0)))
        ]
        for thread in threads:
            thread.start()
        print("ready", flush=True)
        begun, cpu = time.monotonic(), time.process_time()
        requests = 0
        while not ended.is_set():
            if policy is None:
                time.sleep(0.1)
                continue
            policy()
            requests += 1
        cores = (time.process_time() - cpu) / (time.monotonic() - begun)
        for thread in threads:
            thread.join(1.0)
    return {"cores_busy": cores, "requests": requests, "policy": policy is not None}


def main() -> int:
    """Run what the arguments ask for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("load", "bare"))
    parser.add_argument("--rate", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--priority", type=int, default=0)
    arguments = parser.parse_args()
    if arguments.what == "load":
        print(json.dumps(load()), flush=True)
    else:
        print(json.dumps(bare(arguments.rate, arguments.seconds, arguments.priority)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
