# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""``bench observe``: from three camera messages to an observation, on one core.

The assembler itself is timed, from the pushed messages on; beside it, in the same run, a memcpy of
the same bytes and Pillow's resize of the same pictures, so that the figures mean something on
another machine.
"""

from __future__ import annotations

import array
import os
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import cv2
import numpy as np
from PIL import Image

from cosmos_lite_ros.contract.assembler import AssemblerSettings, ObservationAssembler, Skip
from cosmos_lite_ros.contract.constants import CAMERA_HEIGHT, CAMERA_WIDTH, VIEWS
from cosmos_lite_ros.contract.gripper import GripperMapping
from cosmos_lite_ros.contract.robots import PANDA
from cosmos_lite_ros.contract.stamps import NS_PER_S
from cosmos_lite_ros.contract.views import Resize
from cosmos_lite_ros.errors import BadInputError

MIN_RUNS: Final = 50
_WARM_UP_RUNS: Final = 5
# Different pictures in turn: a camera that repeats itself is refused.
_PICTURES: Final = 4
_START_NS: Final = 1_000 * NS_PER_S
_FRAME_NS: Final = NS_PER_S // 15


@dataclass(frozen=True)
class Case:
    """One camera setting: three messages of it, and the time aimed at, ms."""

    name: str
    height: int
    width: int
    encoding: str
    channels: int
    aim_ms: float


CASES: Final = (
    Case("3 x 640x360 rgb8", 360, 640, "rgb8", 3, 5.0),
    Case("3 x 1280x720 bgra8", 720, 1280, "bgra8", 4, 20.0),
)


@dataclass(frozen=True)
class Result:
    """Times of one case with one resize filter, ms.

    Attributes:
        observation_ms, observation_p95_ms: median and 95th percentile, messages to Observation.
        memcpy_ms: median of copying the three messages' bytes.
        pillow_resize_ms: median of Pillow's resize of the three pictures, already RGB, to 640x360;
            None where they have that size.
    """

    case: str
    resize: str
    runs: int
    observation_ms: float
    observation_p95_ms: float
    memcpy_ms: float
    pillow_resize_ms: float | None
    aim_ms: float


def bench_observe(resizes: dict[str, Resize], runs: int) -> list[Result]:
    """Measure every case with every resize filter that matters to it.

    Raises:
        BadInputError: fewer than MIN_RUNS runs.
    """
    if runs < MIN_RUNS:
        raise BadInputError(f"found {runs} runs, expected at least {MIN_RUNS} for a median")
    results = []
    for case in CASES:
        small = (case.height, case.width) == (CAMERA_HEIGHT, CAMERA_WIDTH)
        for name, resize in list(resizes.items())[: 1 if small else None]:
            results.append(_measure(case, "none" if small else name, resize, runs))
    return results


@contextmanager
def one_core() -> Iterator[None]:
    """This process on one core, OpenCV on one thread; restored afterwards."""
    threads = cv2.getNumThreads()
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
    try:
        cv2.setNumThreads(1)
        if cores is not None:
            os.sched_setaffinity(0, {min(cores)})
        yield
    finally:
        cv2.setNumThreads(threads)
        if cores is not None:
            os.sched_setaffinity(0, cores)


def machine() -> str:
    """The processor's name."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _measure(case: Case, resize_name: str, resize: Resize, runs: int) -> Result:
    rng = np.random.default_rng(0)
    shape = (case.height, case.width, case.channels)
    pictures = [rng.integers(0, 256, shape, np.uint8) for _ in range(_PICTURES)]
    buffers = [array.array("B", picture.tobytes()) for picture in pictures]
    assembler = ObservationAssembler(
        AssemblerSettings(PANDA.joint_names, "gripper", GripperMapping(0.0, 1.0), resize=resize)
    )
    names = [*PANDA.joint_names, "gripper"]
    now_ns = _START_NS

    def observe() -> None:
        nonlocal now_ns
        now_ns += _FRAME_NS
        header = _header(now_ns)
        joints = SimpleNamespace(header=header, name=names, position=[0.0] * len(names))
        assembler.push_joint_state(joints, now_ns)
        turn = now_ns // _FRAME_NS
        for i, view in enumerate(VIEWS):
            buffer = buffers[(turn + i) % _PICTURES]
            assembler.push_image(view, _message(case, header, buffer), now_ns)
        result = assembler.assemble("bench", now_ns)
        if isinstance(result, Skip):
            raise RuntimeError(f"the benchmark's own messages were skipped: {result.reason}")

    colours = [Image.fromarray(np.ascontiguousarray(p[..., :3])) for p in pictures[: len(VIEWS)]]
    size = (CAMERA_WIDTH, CAMERA_HEIGHT)

    def copy() -> None:
        for picture in pictures[: len(VIEWS)]:
            picture.copy()

    def pillow() -> None:
        for colour in colours:
            colour.resize(size, Image.Resampling.BILINEAR)

    observation = _times_ms(observe, runs)
    resized = None if colours[0].size == size else float(np.median(_times_ms(pillow, runs)))
    return Result(
        case=case.name,
        resize=resize_name,
        runs=runs,
        observation_ms=float(np.median(observation)),
        observation_p95_ms=float(np.percentile(observation, 95)),
        memcpy_ms=float(np.median(_times_ms(copy, runs))),
        pillow_resize_ms=resized,
        aim_ms=case.aim_ms,
    )


def _times_ms(function: Callable[[], None], runs: int) -> list[float]:
    for _ in range(_WARM_UP_RUNS):
        function()
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        function()
        times.append((time.perf_counter() - start) * 1e3)
    return times


def _header(stamp_ns: int) -> Any:
    return SimpleNamespace(
        stamp=SimpleNamespace(sec=stamp_ns // NS_PER_S, nanosec=stamp_ns % NS_PER_S)
    )


def _message(case: Case, header: Any, data: array.array[int]) -> Any:
    return SimpleNamespace(
        header=header,
        height=case.height,
        width=case.width,
        encoding=case.encoding,
        is_bigendian=0,
        step=case.width * case.channels,
        data=data,
    )
