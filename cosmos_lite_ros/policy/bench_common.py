# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What the benches of the engine share: requests, clocks, memory by three definitions.

Everything that touches CUDA while an engine is open runs on the engine's own thread: behind an
answer that thread may be capturing a graph, which a call from another thread can spoil.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from cosmos_lite_ros import __version__
from cosmos_lite_ros.contract.bench_observe import machine as cpu_name
from cosmos_lite_ros.contract.constants import CAMERA_HEIGHT, CAMERA_WIDTH, JOINTS
from cosmos_lite_ros.contract.observation import Observation
from cosmos_lite_ros.contract.prompt import Family, build_prompt
from cosmos_lite_ros.contract.views import arrange_views
from cosmos_lite_ros.errors import BadInputError, CosmosLiteError
from cosmos_lite_ros.policy import tiny
from cosmos_lite_ros.policy.checkpoint import inspect
from cosmos_lite_ros.policy.engine import EngineSettings, PolicyEngine
from cosmos_lite_ros.policy.process import host_anonymous_bytes
from cosmos_lite_ros.policy.random_checkpoint import make_random
from cosmos_lite_ros.policy.sampler import SamplerSettings
from cosmos_lite_ros.policy.settings import device_of
from cosmos_lite_ros.policy.tokenizer import PromptTokenizer
from cosmos_lite_ros.quantize.schemes import SCHEME_NAMES

T = TypeVar("T")
Report = dict[str, Any]
Say = Callable[[str], None]

SCHEMES: Final = ("float32", *SCHEME_NAMES)
SIZES: Final = ("released", "tiny")
# Tokens of a usual prompt and of the unconditional one, in the released tokenizers.
TEXT_LENGTHS: Final[dict[Family, tuple[int, int]]] = {"edge": (141, 12), "nano": (95, 10)}
INSTRUCTION: Final = "put the cup on the plate"
NEW_INSTRUCTION: Final = "open the drawer, put the cup inside and close it again"
_CHARACTERS_PER_TOKEN: Final = 4
_PADDING_WORDS: Final = 80


@dataclass(frozen=True)
class Target:
    """What is benched.

    Attributes:
        family: edge or nano; checked against the checkpoint's.
        checkpoint: folder; empty: random weights, made for the occasion.
        size: of random weights, ``released`` or ``tiny``.
        scheme: one of quantize.schemes, or float32.
        device: cpu, cuda or cuda:N.
        text_residency: where the text tower's weights lie.
        accumulate, attention, branches_per_pass: as ``EngineSettings`` has them.
        guidance_interval: low and high timestep of guidance; None guides every step.
    """

    family: Family
    checkpoint: str = ""
    size: str = "released"
    scheme: str = "bf16"
    device: str = "cuda"
    text_residency: Any = "pinned"
    accumulate: Any = "accurate"
    attention: str = "auto"
    branches_per_pass: int = 0
    guidance_interval: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be benched."""
        for name, allowed in (
            ("family", tuple(TEXT_LENGTHS)),
            ("size", SIZES),
            ("scheme", SCHEMES),
        ):
            if getattr(self, name) not in allowed:
                raise BadInputError(
                    f"{name} is {getattr(self, name)!r}, expected one of {', '.join(allowed)}"
                )

    def find_device(self) -> torch.device:
        """The device, without making a CUDA context.

        Raises:
            BadInputError: neither cpu nor cuda.
            EnvironmentLacksError: no such GPU.
        """
        return device_of(self.device)

    def settings(self, folder: Path, **changes: Any) -> EngineSettings:
        """The engine's settings: the published sampler, advancing seeds."""
        values: dict[str, Any] = {
            "checkpoint": str(folder),
            "profile": "bench",
            "device": self.device,
            "dtype": "float32" if self.scheme == "float32" else "bfloat16",
            "scheme": "" if self.scheme == "float32" else self.scheme,
            "accumulate": self.accumulate,
            "attention": self.attention,
            "branches_per_pass": self.branches_per_pass,
            "sampler": SamplerSettings(guidance_interval=self.guidance_interval),
            "seed_mode": "advance",
            "text_residency": self.text_residency,
            **changes,
        }
        return EngineSettings(**values)


@contextmanager
def checkpoint_folder(target: Target, say: Say) -> Iterator[Path]:
    """The checkpoint, or one with random weights that is deleted afterwards.

    Raises:
        CheckpointError: an unusable folder.
        BadInputError: a checkpoint of the other family.
    """
    if target.checkpoint:
        info = inspect(target.checkpoint)
        if info.config.family != target.family:
            raise BadInputError(
                f"{target.checkpoint} is an {info.config.family} checkpoint, --family is "
                f"{target.family}: name its family"
            )
        yield info.folder
        return
    with tempfile.TemporaryDirectory(prefix="cosmos_lite_ros_") as scratch:
        out = Path(scratch) / target.family
        say(f"making a {target.size} {target.family} checkpoint with random weights in {scratch}")
        if target.size == "tiny":
            yield tiny.make_tiny(target.family, out)
        else:
            yield make_random(target.family, out)


class SyntheticTokens:
    """Stands in for the tokenizer of a random checkpoint: a released prompt's number of tokens.

    Ids are drawn over the whole vocabulary from the prompt's own text, so that equal prompts are
    equal; another instruction is as much longer or shorter as its text.
    """

    def __init__(self, family: Family, vocab_size: int):
        """``vocab_size`` rows of the embedding."""
        self._text, self._uncond = TEXT_LENGTHS[family]
        self._usual = len(build_prompt(INSTRUCTION, family))
        self._vocab_size = vocab_size

    def encode(self, prompt: str) -> list[int]:
        """Token ids."""
        length = self._uncond
        if prompt:
            more = (len(prompt) - self._usual) // _CHARACTERS_PER_TOKEN
            length = max(2, self._text + more)
        rng = np.random.default_rng(zlib.crc32(prompt.encode()))
        return [int(i) for i in rng.integers(0, self._vocab_size, length)]


def set_tokens(engine: PolicyEngine) -> tuple[str, Report]:
    """The instruction to bench with, and what is to be said of its length.

    Random weights get synthetic tokens; a real checkpoint an instruction that its own tokenizer
    turns into the usual number, padded with words, or comes nearest to it.
    """
    family = engine.info.config.family
    wanted = TEXT_LENGTHS[family]
    instruction, kind = INSTRUCTION, "synthetic"
    if engine.random_weights:
        stand_in: Any = SyntheticTokens(family, engine.info.config.vocab_size)
        engine._tokenizer = stand_in
    else:
        instruction, kind = (
            _instruction_of_length(engine._tokenizer, family, wanted[0]),
            "tokenizer",
        )
    return instruction, {
        "tokens": kind,
        "instruction": instruction,
        "text": len(engine._tokenizer.encode(build_prompt(instruction, family))),
        "unconditional": len(engine._tokenizer.encode("")),
    }


def _instruction_of_length(tokenizer: PromptTokenizer, family: Family, length: int) -> str:
    candidates = [INSTRUCTION + n * " now" for n in range(_PADDING_WORDS)]
    counts = [len(tokenizer.encode(build_prompt(c, family))) for c in candidates]
    return min(zip(candidates, counts, strict=True), key=lambda pair: abs(pair[1] - length))[0]


@dataclass(frozen=True, eq=False)
class Views:
    """What one request is made of, before anything of ours has touched it."""

    images: tuple[npt.NDArray[np.uint8], ...]
    joint_positions: npt.NDArray[np.float64]
    gripper: float

    def observation(self, instruction: str) -> Observation:
        """Arranged as a node arranges it; the engine composes."""
        return Observation(
            arrange_views(*self.images), self.joint_positions, self.gripper, instruction
        )


class Requests:
    """New images and a new state for each request."""

    def __init__(self, seed: int = 0):
        """``seed`` of the pictures."""
        self._rng = np.random.default_rng(seed)

    def new(self) -> Views:
        """Three uint8 [360, 640, 3] arrays that nobody has seen, and a state."""
        rng = self._rng
        shape = (CAMERA_HEIGHT, CAMERA_WIDTH, 3)
        images = tuple(rng.integers(0, 256, shape, dtype=np.uint8) for _ in range(3))
        return Views(images, rng.uniform(-0.5, 0.5, JOINTS), float(rng.uniform()))

    def seed(self) -> int:
        """A noise seed that nobody can foresee."""
        return int(self._rng.integers(0, 2**32))


def ask(
    engine: PolicyEngine, views: Views, instruction: str, seed: int | None = None
) -> tuple[float, npt.NDArray[np.float32]]:
    """One request: (ms of the wall clock, float32 [32, 8] on the host).

    The clock runs from three host images to the array: composing, copies and the wait for the GPU
    included.
    """
    started = time.perf_counter()
    rows = engine.act(views.observation(instruction), seed=seed).as_array()
    elapsed_ms = 1e3 * (time.perf_counter() - started)
    if rows.shape != (32, 8) or rows.dtype != np.float32 or not np.isfinite(rows).all():
        raise CosmosLiteError(
            f"the engine's answer is {rows.dtype} {list(rows.shape)}, finite: "
            f"{bool(np.isfinite(rows).all())}; expected finite float32 [32, 8]"
        )
    return elapsed_ms, rows


def on_engine(engine: PolicyEngine, job: Callable[[], T]) -> T:
    """Run on the engine's thread, behind everything that is queued there."""
    return engine._worker.submit(job).result()


def settle(engine: PolicyEngine) -> None:
    """Wait until nothing is queued: no graph is being captured any more, and the GPU is idle."""
    on_engine(engine, lambda: synchronize(engine._runner.tower.device))


def synchronize(device: torch.device) -> None:
    """Wait for the GPU, if there is one."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def timed_ms(run: Callable[[], Any], device: torch.device) -> float:
    """Wall clock of one run until the GPU is done, ms."""
    synchronize(device)
    started = time.perf_counter()
    run()
    synchronize(device)
    return 1e3 * (time.perf_counter() - started)


def summary(times_ms: Sequence[float]) -> Report:
    """Median, 95th percentile, extremes and number of calls; Nones where nothing was measured."""
    if not times_ms:
        names = ("median_ms", "p95_ms", "min_ms", "max_ms")
        return {**dict.fromkeys(names), "calls": 0}
    return {
        "median_ms": float(np.median(times_ms)),
        "p95_ms": float(np.percentile(times_ms, 95)),
        "min_ms": float(min(times_ms)),
        "max_ms": float(max(times_ms)),
        "calls": len(times_ms),
    }


class Card:
    """Memory of this process by each definition; make it before anything else touches CUDA.

    ``card`` is the device's free memory before this process had a CUDA context, less the free
    memory now: it counts context and modules, and whatever another process takes meanwhile. Where
    nvidia-smi is missing or there was a context already, it counts from the first context on.
    """

    def __init__(self, device: torch.device):
        """Read the free memory."""
        self.device = device
        self.baseline = "none"
        self._free = 0
        if device.type != "cuda":
            return
        there = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
        before = None if there else _free_before_context(device.index or 0)
        self.baseline = "after the context" if before is None else "before the context"
        # Makes the context in any case: statistics can be read and reset from here on.
        now = torch.cuda.mem_get_info(device)[0]
        self._free = now if before is None else before

    def snapshot(self) -> dict[str, int]:
        """Bytes: reserved and allocated by torch, card, anonymous host memory."""
        host = {"host_anonymous": host_anonymous_bytes()}
        if self.device.type != "cuda":
            return {"reserved": 0, "allocated": 0, "card": 0, **host}
        return {
            "reserved": torch.cuda.memory_reserved(self.device),
            "allocated": torch.cuda.memory_allocated(self.device),
            "card": self._free - torch.cuda.mem_get_info(self.device)[0],
            **host,
        }

    def reset_peak(self) -> None:
        """Start watching for peaks."""
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(self.device)

    def peak(self) -> dict[str, int]:
        """Most bytes reserved and allocated since ``reset_peak``."""
        if self.device.type != "cuda":
            return {"reserved": 0, "allocated": 0}
        return {
            "reserved": torch.cuda.max_memory_reserved(self.device),
            "allocated": torch.cuda.max_memory_allocated(self.device),
        }


def _free_before_context(index: int) -> int | None:
    """Free bytes as nvidia-smi tells, in its steps of 1 MiB: reading it makes no context."""
    visible = [v for v in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if v.strip()]
    name = visible[index].strip() if index < len(visible) else str(index)
    command = ["nvidia-smi", "-i", name, "--query-gpu=memory.free"]
    try:
        done = subprocess.run(
            [*command, "--format=csv,noheader,nounits"],
            capture_output=True,
            text=True,
            timeout=20,
            check=True,
        )
        return int(done.stdout.split()[0]) * 2**20
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return None


def machine(device: torch.device) -> Report:
    """What it ran on."""
    found: Report = {
        "gpu": None,
        "cpu": cpu_name(),
        "cores": os.cpu_count(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "triton": _version("triton"),
        "diffusers": _version("diffusers"),
        "version": __version__,
    }
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        found["gpu"] = properties.name
        found["gpu_memory"] = properties.total_memory
    return found


def _version(package: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return None
