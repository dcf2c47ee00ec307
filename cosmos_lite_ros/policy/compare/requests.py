# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The frozen requests that everything is compared on: the same bits on every machine.

Drawn with NumPy's legacy generator, whose stream is guaranteed not to change. The pictures are
synthetic scenes (smooth light, a table, a few boxes, sensor noise), not photographs: enough for
arithmetic, and no statement about any task.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from cosmos_lite_ros.contract.constants import CAMERA_HEIGHT, CAMERA_WIDTH, JOINTS
from cosmos_lite_ros.contract.observation import Observation
from cosmos_lite_ros.contract.robots import PANDA
from cosmos_lite_ros.contract.views import arrange_views
from cosmos_lite_ros.errors import BadInputError

DEFAULT_REQUESTS: Final = 64
MAX_REQUESTS: Final = 4096
# Of different lengths, and no two that follow each other are the same: text that stays from the
# request before must show.
INSTRUCTIONS: Final = (
    "put the cup on the plate",
    "open the drawer, put the cup inside and close it again",
    "pick up the banana",
    "move the pan forward and use the brush to clean it",
    "close the lid of the box on the left",
    "wipe the table with the towel, then hang the towel over the edge of the sink",
    "turn the knob",
)
_STREAM: Final = 20_260
_GRID: Final = (6, 8)
_MAX_TILT_RAD: Final = 0.3


@dataclass(frozen=True, eq=False)
class FrozenRequest:
    """One request: what the robot sees, and the seed of the noise."""

    observation: Observation
    seed: int


def frozen_requests(count: int = DEFAULT_REQUESTS) -> tuple[FrozenRequest, ...]:
    """The first ``count`` of them: a longer list starts with the shorter one.

    Raises:
        BadInputError: fewer than one or more than MAX_REQUESTS.
    """
    check_count(count)
    return tuple(_request(index) for index in range(count))


def check_count(count: int) -> None:
    """Refuse what is no number of requests."""
    if not 1 <= count <= MAX_REQUESTS:
        raise BadInputError(f"found {count} requests, expected 1 to {MAX_REQUESTS}")


def digest(requests: Sequence[FrozenRequest]) -> str:
    """SHA-256 over all that reaches the network, noise seeds included."""
    h = hashlib.sha256()
    for request in requests:
        h.update(request.observation.digest().encode())
        h.update(str(request.seed).encode())
    return h.hexdigest()


def _request(index: int) -> FrozenRequest:
    random = np.random.RandomState(_STREAM + index)
    joints = np.asarray(PANDA.home) + random.uniform(-_MAX_TILT_RAD, _MAX_TILT_RAD, JOINTS)
    observation = Observation(
        arrange_views(*(_scene(random) for _ in range(3))),
        joints,
        float(random.uniform()),
        INSTRUCTIONS[index % len(INSTRUCTIONS)],
    )
    return FrozenRequest(observation, int(random.randint(0, 2**31)))


def _scene(random: np.random.RandomState) -> npt.NDArray[np.uint8]:
    """uint8 [360, 640, 3] RGB."""
    picture = _smooth(random.uniform(0.0, 255.0, (*_GRID, 3)))
    horizon = int(random.randint(CAMERA_HEIGHT // 4, CAMERA_HEIGHT // 2))
    picture[horizon:] = 0.5 * picture[horizon:] + 0.5 * random.uniform(0.0, 255.0, 3)
    for _ in range(random.randint(3, 7)):
        top = int(random.randint(0, CAMERA_HEIGHT - 40))
        left = int(random.randint(0, CAMERA_WIDTH - 40))
        height, width = (int(n) for n in random.randint(20, 160, 2))
        picture[top : top + height, left : left + width] = random.uniform(0.0, 255.0, 3)
    # Noise of four levels, as small integers: quick to draw.
    noise = random.randint(-4, 5, picture.shape, dtype=np.int8)
    return np.clip(np.rint(picture) + noise, 0, 255).astype(np.uint8)


def _smooth(grid: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """[6, 8, 3] to [360, 640, 3], linear between the grid's points."""
    rows = _stretch(grid, CAMERA_HEIGHT)
    return _stretch(rows.transpose(1, 0, 2), CAMERA_WIDTH).transpose(1, 0, 2)


def _stretch(values: npt.NDArray[np.float64], count: int) -> npt.NDArray[np.float64]:
    """Along the first axis; elementwise products and sums only, so the same on every machine."""
    at = np.arange(count) * ((values.shape[0] - 1) / (count - 1))
    low = np.minimum(at.astype(np.int64), values.shape[0] - 2)
    part = (at - low)[:, None, None]
    stretched: npt.NDArray[np.float64] = values[low] * (1.0 - part) + values[low + 1] * part
    return stretched
