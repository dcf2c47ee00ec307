#!/usr/bin/env python3
# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Time a new instruction on a CUDA GPU for each residency of the text tower; prints one table.

Each time is one prompt that was never seen: the tower (or a card's file), the copy into the store
in host memory and the copy into device buffers, until the GPU is done. Beside it the bytes that
pass from host to device and the measured copy bandwidth, which is the floor of pinned and mmap.
"""

from __future__ import annotations

import argparse
import gc
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from cosmos_lite_ros.policy.cards import CardFolder
from cosmos_lite_ros.policy.checkpoint import CheckpointInfo, inspect
from cosmos_lite_ros.policy.text_cache import TextStore
from cosmos_lite_ros.policy.text_tower import TextKV, TextTower, empty_kv, text_matrices

CUDA = torch.device("cuda")
# Tokens of a usual prompt.
LENGTHS = {"edge": 141, "nano": 95}


def prompt(info: CheckpointInfo, seed: int) -> list[int]:
    """Random token ids of the usual length."""
    generator = torch.Generator().manual_seed(seed)
    size = (LENGTHS[info.config.family],)
    return torch.randint(0, info.config.vocab_size, size, generator=generator).tolist()


def seconds(run: Callable[[], Any]) -> float:
    """Wall clock until the GPU is done."""
    torch.cuda.synchronize()
    started = time.perf_counter()
    run()
    torch.cuda.synchronize()
    return time.perf_counter() - started


def bandwidth(megabytes: int = 512) -> float:
    """Copy bandwidth from pinned host memory to the device, GB/s."""
    host = torch.empty(megabytes * 2**20, dtype=torch.uint8, pin_memory=True)
    device = torch.empty_like(host, device=CUDA)
    times = [seconds(lambda: device.copy_(host, non_blocking=True)) for _ in range(7)]
    return host.nbytes / statistics.median(times[1:]) / 1e9


def drop_page_cache(info: CheckpointInfo) -> None:
    """Forget the files' pages; pages that somebody has mapped would stay."""
    gc.collect()
    for file in info.transformer_files:
        with file.path.open("rb") as opened:
            os.fsync(opened.fileno())
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def disk_bytes() -> int:
    """Bytes that this process has had read from a disk so far."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("read_bytes")))


class Bench:
    """One checkpoint, one arena that a request would lend, one set of device buffers."""

    def __init__(self, info: CheckpointInfo, runs: int):
        self.info = info
        self.runs = runs
        self.dtype = torch.bfloat16
        sizes = [m.nbytes(self.dtype) for m in text_matrices(info)]
        self.weight_bytes = sum(sizes)
        self.arena = torch.empty(2 * max(sizes) + 1024, dtype=torch.uint8, device=CUDA)
        self.buffers = empty_kv(info, LENGTHS[info.config.family], self.dtype, CUDA)
        self.seed = 0
        self.first: TextKV | None = None

    def tower(self, residency: Any) -> TextTower:
        return TextTower(self.info, CUDA, self.dtype, residency, lambda nbytes: self.arena)

    def new(self, store: TextStore) -> float:
        """Seconds of one new instruction."""
        self.seed += 1
        ids = prompt(self.info, self.seed)

        def run() -> None:
            found = store.get(ids)
            self.buffers.keys.copy_(found.keys, non_blocking=True)
            self.buffers.values.copy_(found.values, non_blocking=True)

        return seconds(run)

    def same(self, tower: TextTower) -> str:
        """Whether this residency gives the bits of the first one."""
        found = tower.compute(prompt(self.info, 0)).on_host()
        if self.first is None:
            self.first = found
        equal = torch.equal(found.keys, self.first.keys)
        return "yes" if equal and torch.equal(found.values, self.first.values) else "NO"

    def row(self, name: str, times: list[float], copied: float, more: str) -> str:
        median = statistics.median(times[1:] or times)
        rate = f"{copied / median / 1e9:.1f}" if copied else "-"
        return (
            f"| {name} | {1e3 * times[0]:.1f} | {1e3 * median:.1f} | {1e3 * max(times):.1f} | "
            f"{rate} | {more} |"
        )

    def residency(self, name: Any) -> str:
        before = torch.cuda.memory_reserved()
        torch.cuda.synchronize()
        started = time.perf_counter()
        tower = self.tower(name)
        torch.cuda.synchronize()
        load = time.perf_counter() - started
        store = TextStore(tower.compute, 4, pin=True)
        times = [self.new(store) for _ in range(self.runs)]
        prompts = [prompt(self.info, seed) for seed in range(5)]
        alone = [seconds(partial(tower.compute, ids)) for ids in prompts]
        more = (
            f"{tower.device_bytes / 1e9:.2f} | {tower.host_bytes / 1e9:.2f} | "
            f"{(torch.cuda.memory_reserved() - before) / 1e9:+.2f} | {load:.1f} | "
            f"{1e3 * statistics.median(alone):.1f} | {self.same(tower)}"
        )
        tower.close()
        del tower, store
        gc.collect()
        torch.cuda.empty_cache()
        copied = 0.0 if name == "gpu" else self.weight_bytes
        return self.row("mmap, warm" if name == "mmap" else name, times, copied, more)

    def cold(self) -> str:
        times, read = [], []
        for _ in range(3):
            drop_page_cache(self.info)
            before = disk_bytes()
            tower = self.tower("mmap")
            times.append(self.new(TextStore(tower.compute, 4, pin=True)))
            read.append(disk_bytes() - before)
            tower.close()
            del tower
        note = f"{min(read) / 1e9:.2f} GB read from the disk each time"
        return self.row("mmap, cold", times, self.weight_bytes, f"{note} | | | | |")

    def cards(self) -> str:
        tower = self.tower("mmap")
        with tempfile.TemporaryDirectory() as scratch:
            folder = CardFolder(Path(scratch), self.info, self.dtype)
            size = 0
            for seed in range(self.seed + 1, self.seed + 1 + self.runs):
                ids = prompt(self.info, seed)
                size = folder.save(ids, tower.compute(ids), "gpu_text").stat().st_size
            tower.close()
            none = self.tower("none")
            store = TextStore(none.compute, 4, folder, pin=True)
            times = [self.new(store) for _ in range(self.runs)]
            assert (store.card_hits, store.misses) == (self.runs, 0)
        return self.row("card", times, 0.0, f"{size / 1e6:.1f} MB a card | | | | |")


def main() -> None:
    """Print everything as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="full-size checkpoint with random weights")
    parser.add_argument("--runs", type=int, default=12)
    arguments = parser.parse_args()
    info = inspect(str(arguments.folder))
    bench = Bench(info, arguments.runs)
    family = info.config.family
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, {family}, bfloat16, ")
    print(
        f"{LENGTHS[family]} tokens, text tower {bench.weight_bytes / 1e9:.2f} GB, host to device "
        f"{bandwidth():.1f} GB/s\n"
    )
    columns = ["text_residency", "first ms", "median ms", "max ms", "GB/s", "on the GPU, GB"]
    columns += ["on the host, GB", "reserved, GB", "load s", "tower alone, ms", "same bits"]
    print(f"| {' | '.join(columns)} |\n|{len(columns) * '---|'}")
    for name in ("gpu", "pinned", "mmap"):
        print(bench.residency(name), flush=True)
    print(bench.cold(), flush=True)
    print(bench.cards(), flush=True)


if __name__ == "__main__":
    main()
