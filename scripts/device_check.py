#!/usr/bin/env python3
# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Check and time the engine on a CUDA GPU; prints one table.

Golden requests in float32 and bfloat16, cached against recomputed text, and a full-size Edge
network with random weights (timings and memory only). The printed table of a run is kept in
docs/reference/device_check.md.
"""

from __future__ import annotations

import argparse
import io
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from cosmos_lite_ros.contract.observation import Observation
from cosmos_lite_ros.contract.views import arrange_views
from cosmos_lite_ros.policy.engine import EngineSettings, PolicyEngine, SamplerSettings
from cosmos_lite_ros.policy.random_checkpoint import make_random
from cosmos_lite_ros.policy.trace import Trace

GOLDEN = Path(__file__).resolve().parent.parent / "test" / "golden"


def golden_row(family: str, dtype: str, arithmetic: Any) -> str:
    """One golden request on the GPU against the reference's float32 values."""
    with np.load(GOLDEN / family / "cases" / "P1.npz", allow_pickle=False) as case:
        keys = ("wrist_png", "exterior_1_png", "exterior_2_png")
        views = [np.asarray(Image.open(io.BytesIO(case[k].tobytes()))) for k in keys]
        observation = Observation(
            arrange_views(*views),
            case["joints"].astype(np.float64),
            float(case["gripper"]),
            str(case["task"]),
        )
        expected = {k: case[k] for k in ("action", "velocity_cond", "latent_frame0")}
    settings = EngineSettings(
        str(GOLDEN / family / "checkpoint"),
        device="cuda",
        dtype=dtype,
        action_arithmetic=arithmetic,
    )
    engine = PolicyEngine.load(settings)
    trace = Trace()
    engine.act(observation, seed=0, trace=trace)  # traced: unpruned, without graphs
    chunk = engine.act(observation, seed=0)
    other = Observation(observation.image, observation.joint_positions, 0.5, "something else")
    engine.act(other, seed=1)
    again = engine.act(observation, seed=0)
    engine.flush_text_cache()
    recomputed = engine.act(observation, seed=0)
    engine.close()
    same = {c.as_array().tobytes() for c in (chunk, again, recomputed)}
    error = np.abs(chunk.as_array() - expected["action"])
    velocity = trace.velocity_cond[0] - expected["velocity_cond"][0]
    relative = np.linalg.norm(velocity) / np.linalg.norm(expected["velocity_cond"][0])
    latent = np.abs(trace.latent_frame0 - expected["latent_frame0"]).max()
    return (
        f"| {family} | {dtype} | {arithmetic} | {error.max():.1e} | {relative:.1e} | "
        f"{latent:.1e} | {'yes' if len(same) == 1 else 'NO'} |"
    )


def full_size_rows() -> list[str]:
    """Load time, memory and latency of the full-size Edge network."""
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = make_random("edge", Path(scratch) / "edge")
        torch.cuda.reset_peak_memory_stats()
        started = time.perf_counter()
        engine = PolicyEngine.load(EngineSettings(str(folder), device="cuda", dtype="bfloat16"))
        loaded = time.perf_counter() - started
        load_peak = torch.cuda.max_memory_reserved() / 1e9
        started = time.perf_counter()
        engine.warm_up()
        warmed = time.perf_counter() - started
    rng = np.random.default_rng(0)
    image = rng.integers(0, 256, (540, 640, 3), dtype=np.uint8)

    def request(text: str = "put the cup on the plate", **sampler: Any) -> Any:
        observation = Observation(image, rng.uniform(-0.5, 0.5, 7), 0.2, text)
        return engine.act(observation, sampler=SamplerSettings(**sampler))

    for label, sampler in (
        ("2 steps, guidance 3", {}),
        ("2 steps, interval 960 1001", {"guidance_interval": (960.0, 1001.0)}),
        ("2 steps, guidance 1", {"guidance": 1.0}),
        ("4 steps, guidance 3", {"steps": 4}),
    ):
        request(**sampler)
        chunks = [request(**sampler) for _ in range(20)]
        for chunk in chunks:
            assert np.isfinite(chunk.as_array()).all()
        total = [1e3 * c.latency_s for c in chunks]
        encode = statistics.median(1e3 * c.encode_s for c in chunks)
        rows.append(
            f"| {label} | {statistics.median(total):.1f} | {encode:.1f} | {max(total):.1f} |"
        )
    fresh = 1e3 * request("an instruction never heard before").latency_s
    rows.append(f"| 2 steps, guidance 3, new instruction (one request) | {fresh:.1f} | | |")
    rows.append("")
    rows.append(
        f"load {loaded:.1f} s, warm-up {warmed:.1f} s, peak while loading {load_peak:.2f} GB, "
        f"reserved after {torch.cuda.memory_reserved() / 1e9:.2f} GB, "
        f"peak allocated {torch.cuda.max_memory_allocated() / 1e9:.2f} GB"
    )
    engine.close()
    return rows


def main() -> None:
    """Print everything as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--skip-full", action="store_true", help="golden requests only")
    arguments = parser.parse_args()
    # The golden comparison is float32: TF32 must be off.
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    name = torch.cuda.get_device_name()
    print(f"{name}, torch {torch.__version__}\n")
    print("Golden request P1 on the GPU against the reference's float32 values:\n")
    print(
        "| family | dtype | action arithmetic | action max | velocity rel. L2 | latent max |",
        end="",
    )
    print(" cached = recomputed, bit for bit |\n|---|---|---|---|---|---|---|")
    for family in ("edge", "nano"):
        print(golden_row(family, "float32", "float32"))
        for arithmetic in ("server", "float32"):
            print(golden_row(family, "bfloat16", arithmetic), flush=True)
    if not arguments.skip_full:
        print("\nEdge at full size, random weights, bfloat16, back to back, 20 requests:\n")
        print("| request | median ms | of these encode | max |\n|---|---|---|---|")
        for row in full_size_rows():
            print(row, flush=True)


if __name__ == "__main__":
    main()
