# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Everything that an engine holds, loaded: the text tower beside the self-test and the network.

The text tower's weights go to host memory, the rest to the device: neither waits for the other.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from cosmos_lite_ros.policy.arithmetic import Arithmetic, choose
from cosmos_lite_ros.policy.checkpoint import CheckpointInfo, Progress
from cosmos_lite_ros.policy.encoder import ImageEncoder2d
from cosmos_lite_ros.policy.memory import check_memory
from cosmos_lite_ros.policy.runner import Runner
from cosmos_lite_ros.policy.settings import DTYPES, EngineSettings
from cosmos_lite_ros.policy.strict import check_tensors
from cosmos_lite_ros.policy.text_tower import TextTower
from cosmos_lite_ros.policy.tokenizer import PromptTokenizer
from cosmos_lite_ros.policy.tower import GenerationTower


@dataclass(frozen=True, eq=False)
class Parts:
    """What ``load_parts`` gives."""

    runner: Runner
    text: TextTower
    tokenizer: PromptTokenizer
    arithmetic: Arithmetic


def load_parts(
    settings: EngineSettings,
    info: CheckpointInfo,
    device: torch.device,
    progress: Progress | None = None,
) -> Parts:
    """Prove the arithmetic, check the memory, load; on the engine's thread.

    Raises:
        CheckpointError: foreign or damaged files.
        EnvironmentLacksError: too little memory, a GPU that fails, or a package is missing.
    """
    took = _Phases()
    if device.type == "cuda":
        # Of this thread: kernels are launched on the current device.
        torch.cuda.set_device(device)
        torch.cuda.empty_cache()
    others = torch.cuda.memory_reserved(device) if device.type == "cuda" else 0
    check_tensors(info)
    took.end("headers")
    text = _TextBeside(settings, info, device)
    try:
        arithmetic = choose(settings, info, device)
        took.end("self_test")
        check_memory(
            info,
            device,
            DTYPES[settings.dtype],
            text_on_gpu=settings.text_residency == "gpu",
            scheme=arithmetic.linears.scheme,
            batch=arithmetic.batch,
            vae_offload=settings.vae_offload == "cpu",
            others=others,
        )
        tokenizer = PromptTokenizer(
            info.tokenizer_folder, info.config.family, info.config.vocab_size
        )
        runner = _load_runner(settings, info, device, arithmetic, progress)
        took.end("network")
        tower = text.finish(runner.tower.arena.block, _part(progress, 0.8, 1.0))
        took.end("text")
    except BaseException:
        text.stop()
        raise
    arithmetic.found["load_s"] = took.seconds
    return Parts(runner, tower, tokenizer, arithmetic)


def _load_runner(
    settings: EngineSettings,
    info: CheckpointInfo,
    device: torch.device,
    arithmetic: Arithmetic,
    progress: Progress | None,
) -> Runner:
    place: dict[str, Any] = {"device": device, "dtype": DTYPES[settings.dtype]}
    offload = settings.vae_offload == "cpu"
    encoder = ImageEncoder2d.load(info, **place, progress=_part(progress, 0.0, 0.1))
    tower = GenerationTower.load(
        info,
        **place,
        linears=arithmetic.linears,
        attention=arithmetic.attention,
        batch=arithmetic.batch,
        min_arena_bytes=encoder.nbytes if offload else 0,
        progress=_part(progress, 0.1, 0.8),
    )
    if offload:
        encoder.offload(tower.arena.block)
    return Runner(
        encoder,
        tower,
        server_arithmetic=settings.action_arithmetic == "server",
        graphs=settings.graphs,
    )


class _Stopped(Exception):
    """Nobody wants the text tower any more."""


class _TextBeside:
    """The text tower, on a thread of its own where it goes to host memory."""

    def __init__(self, settings: EngineSettings, info: CheckpointInfo, device: torch.device):
        self._settings = settings
        self._info = info
        self._device = device
        self._stopped = threading.Event()
        # The activations' memory, known later: it is idle while a prompt is computed.
        self._scratch: Tensor | None = None
        self._future: Future[TextTower] | None = None
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="text-tower")
        if settings.text_residency in ("pinned", "mmap"):
            self._future = self._pool.submit(self._load, self._check)

    def finish(self, scratch: Tensor, progress: Progress | None) -> TextTower:
        """The loaded tower."""
        self._scratch = scratch
        try:
            if self._future is None:
                return self._load(progress)
            if progress is not None:
                progress(0.5, "waiting for the text tower")
            return self._future.result()
        finally:
            self._pool.shutdown()

    def stop(self) -> None:
        """After a failure: leave the thread where it is in its files."""
        self._stopped.set()
        self._pool.shutdown()

    def _check(self, fraction: float, step: str) -> None:
        if self._stopped.is_set():
            raise _Stopped

    def _load(self, progress: Progress | None) -> TextTower:
        if self._device.type == "cuda":
            torch.cuda.set_device(self._device)
        with torch.inference_mode():
            return TextTower(
                self._info,
                self._device,
                DTYPES[self._settings.dtype],
                self._settings.text_residency,
                scratch=self._lend if self._device.type == "cuda" else None,
                progress=progress,
            )

    def _lend(self, nbytes: int) -> Tensor:
        if self._scratch is None:
            raise AssertionError(f"a prompt before the network: {nbytes} bytes wanted")
        return self._scratch


class _Phases:
    """Seconds of the phases of loading."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._started = time.perf_counter()

    def end(self, phase: str) -> None:
        """The phase in hand is over."""
        now = time.perf_counter()
        self.seconds[phase], self._started = round(now - self._started, 2), now


def _part(progress: Progress | None, start: float, end: float) -> Progress | None:
    if progress is None:
        return None
    return lambda fraction, step: progress(start + fraction * (end - start), step)
