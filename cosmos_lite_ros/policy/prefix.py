# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Guidance of a chunk's first rows towards rows that are given (experimental, mode ``prefix``).

After each guided velocity the clean estimate x0 = x - sigma v of the joints is compared with the
given rows y, and the velocity is corrected:

    v <- v - w W (y - x0),  w = min((t^2 + (1 - t)^2) / (t (1 - t)), 1 / dt)

with t = 1 - sigma, dt the step's length in t, and W the weight of the row: 1, and towards the end
of the given rows c (e^c - 1) / (e - 1) with c falling from 1 to 0. w and W are those of real-time
chunking (Black et al., Real-Time Execution of Action Chunking Flow Policies, 2025) with two
differences: the correction is not led back through the network (no gradient is computed; x0 is
taken to follow x one to one), and w is clipped to 1 / dt, not to 5. A step adds dt w W (y - x0) to
the sample, so beyond 1 / dt it overshoots: with two steps at shift 5, whose bounds are 6.0 and 1.2,
a weight of 5 in the last step moves the rows by 4.2 times the distance. At the bound the last
step, where dt = sigma, gives x0 + W (y - x0): a cross-fade of outputs. What guidance adds to that
is what the network makes of the corrected rows in the steps before.

Only joints are guided, the gripper never.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import numpy.typing as npt
from torch import Tensor

from cosmos_lite_ros.contract.constants import ACTION_WIDTH, CHUNK_ROWS, JOINTS
from cosmos_lite_ros.errors import BadInputError
from cosmos_lite_ros.policy.layout import ACTION_TOKENS
from cosmos_lite_ros.policy.sampler import SamplerSettings, sigmas

# One row at least is the policy's own.
MAX_PREFIX_ROWS = CHUNK_ROWS - 1


def prefix_table(rows: npt.NDArray[np.floating], fade_rows: int = 0) -> npt.NDArray[np.float32]:
    """Rows and their weights W as the sampler reads them.

    Args:
        rows: [n, 7] rad, what the chunk's first n rows are to continue, n up to 31.
        fade_rows: how many of the last of them fade.

    Returns:
        float32 [33, 8]: the joints of each row of the network (row 0 is the state), and the weight.

    Raises:
        BadInputError: another shape, or a value that is not finite.
    """
    rows = np.asarray(rows)
    if rows.ndim != 2 or rows.shape[1] != JOINTS or not 1 <= len(rows) <= MAX_PREFIX_ROWS:
        raise BadInputError(
            f"the prefix has shape {list(rows.shape)}, expected 1 to {MAX_PREFIX_ROWS} rows of "
            f"{JOINTS} joints"
        )
    if not np.isfinite(rows).all():
        raise BadInputError("the prefix holds values that are not finite, expected joints in rad")
    n = len(rows)
    if not 0 <= fade_rows <= n:
        raise BadInputError(f"{fade_rows} rows of the prefix fade, expected 0 to its {n} rows")
    c = np.minimum((n - np.arange(n)) / (fade_rows + 1), 1.0)
    table = np.zeros((ACTION_TOKENS, ACTION_WIDTH), np.float32)
    table[1 : n + 1, :JOINTS] = rows
    table[1 : n + 1, JOINTS] = c * np.expm1(c) / np.expm1(1.0)
    return table


def step_weights(sampler: SamplerSettings) -> tuple[float, ...]:
    """The weight w of each step."""
    levels = [float(s) for s in sigmas(sampler.steps, sampler.shift)]
    found = []
    for sigma, after in itertools.pairwise(levels):
        t = 1.0 - sigma
        published = (t * t + sigma * sigma) / (t * sigma) if t > 0 else math.inf
        found.append(min(published, 1.0 / (sigma - after)))
    return tuple(found)


def pull(x: Tensor, velocity: Tensor, sigma: float, weight: float, table: Tensor) -> Tensor:
    """The corrected velocity, float32.

    Args:
        x: sample that the step starts from, float32 [33, 64].
        velocity: of the network, [33, 64].
        sigma, weight: of the step.
        table: of ``prefix_table``.
    """
    corrected = velocity.float().clone()
    x0 = x[:, :JOINTS] - sigma * corrected[:, :JOINTS]
    corrected[:, :JOINTS] -= weight * table[:, JOINTS:] * (table[:, :JOINTS] - x0)
    return corrected
