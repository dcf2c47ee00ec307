# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Limits in the base's frame: a box for fingertip, wrist and elbow, and a speed for the fingertip.

They are of points, not of bodies: the links have a radius, which a box has to leave room for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cosmos_lite_ros.contract.constants import RATE_HZ
from cosmos_lite_ros.execution.kinematics import MOVED_BY, NAMES, posture, tool_speed
from cosmos_lite_ros.execution.settings import ExecutorSettings

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

# Plans keep inside by so much: what lies between two samples of a plan deviates by less.
_MARGIN_M = 1e-3
_SPEED_SHARE = 0.98
# Rows are moved back inside by a little more, so that plans along them are not held back.
_ROW_MARGIN_M = 1.5e-3
# Further out than this is no motion that a box should shape, m.
REACH_M = 0.1
_ITERATIONS, _STRIDE_M = 12, 0.02
_DAMPING = 1e-4


@dataclass(frozen=True, eq=False)
class Allowance:
    """What a plan that begins in one state may do: points [3, 3] m, speed m/s."""

    low: Floats
    high: Floats
    speed: float


@dataclass(frozen=True, eq=False)
class SpaceLimits:
    """``low`` and ``high`` [3] m (infinite where there is no limit), ``tool_offset`` [3] m."""

    low: Floats
    high: Floats
    tool_offset: Floats
    max_tool_speed: float

    @classmethod
    def of(cls, settings: ExecutorSettings) -> SpaceLimits | None:
        """As the settings say; None when they limit nothing."""
        low, high = np.full(3, -math.inf), np.full(3, math.inf)
        if settings.workspace:
            low, high = np.array(settings.workspace[:3]), np.array(settings.workspace[3:])
        low[2] = max(low[2], settings.table_height_m)
        limits = cls(low, high, np.array(settings.tool_offset_m), settings.max_tool_speed_m_s)
        free = not limits.boxed and math.isinf(limits.max_tool_speed)
        return None if free else limits

    @property
    def boxed(self) -> bool:
        """Whether there is a box or a table."""
        return bool(np.isfinite(self.low).any() or np.isfinite(self.high).any())

    # Plans.

    def allowance(self, position: Floats, velocity: Floats) -> Allowance:
        """What a plan from a state may do.

        From outside it may stay or come back, not go further; the same holds for the speed.
        """
        found = posture(position[None])
        places = found.places(self.tool_offset)[0]
        speed = float(tool_speed(found, velocity[None], self.tool_offset)[0])
        return Allowance(
            np.minimum(self.low + _MARGIN_M, places),
            np.maximum(self.high - _MARGIN_M, places),
            max(self.max_tool_speed * _SPEED_SHARE, speed),
        )

    def broken(self, allowance: Allowance, positions: Floats, velocities: Floats) -> Bools:
        """At which of the samples [n, 7] (rad, rad/s) an allowance is exceeded, [n]."""
        found = posture(positions)
        over = np.zeros(len(positions), np.bool_)
        if math.isfinite(allowance.speed):
            over |= tool_speed(found, velocities, self.tool_offset) > allowance.speed * (1 + 1e-9)
        if self.boxed:
            places = found.places(self.tool_offset)
            out = (places < allowance.low - 1e-9) | (places > allowance.high + 1e-9)
            over |= out.any(axis=(1, 2))
        return over

    # Rows and measured arms.

    def beyond(self, positions: Floats) -> Floats:
        """How far each of NAMES is outside the box at positions [n, 7], [n, 3] m; 0 inside."""
        places = posture(positions).places(self.tool_offset)
        out = np.maximum(self.low - places, places - self.high)
        return np.asarray(np.maximum(out, 0.0).max(axis=2))

    def tool_speeds(self, rows: Floats) -> Floats:
        """Mean speed of the fingertip from each row to the next, [n - 1] m/s."""
        tool = posture(rows).tool(self.tool_offset)
        return np.asarray(np.sqrt(np.square(np.diff(tool, axis=0)).sum(axis=1)) * RATE_HZ)

    def moved_inside(self, rows: Floats, low: Floats, high: Floats) -> Floats:
        """Rows [n, 7] with the points that lie outside moved to the box, along its faces unmoved.

        By damped least squares on the joints, within the position limits ``low`` and ``high`` [7].
        A row that cannot be moved inside is returned as far as that went.
        """
        rows = rows.copy()
        for _ in range(_ITERATIONS):
            found = posture(rows)
            places = found.places(self.tool_offset)
            inside = np.clip(places, self.low + _ROW_MARGIN_M, self.high - _ROW_MARGIN_M)
            out = np.abs(inside - places).max(axis=2) > 1e-5
            if not out.any():
                break
            for i, joints in enumerate(MOVED_BY):
                which = np.flatnonzero(out[:, i])
                if not len(which):
                    continue
                columns = found.jacobian(places[:, i], joints)[:, which].transpose(1, 2, 0)
                square = columns @ columns.transpose(0, 2, 1) + _DAMPING * np.eye(3)
                pull = np.clip((inside - places)[which, i], -_STRIDE_M, _STRIDE_M)[..., None]
                pull = np.linalg.solve(square, pull)
                rows[which, :joints] += (columns.transpose(0, 2, 1) @ pull)[..., 0]
            rows = np.clip(rows, low, high)
        return rows

    def describe(self, beyond: Floats) -> str:
        """Which point is how far outside, from ``beyond`` of one posture [3]."""
        i = int(np.argmax(beyond))
        return f"the {NAMES[i]} is {beyond[i]:.3f} m outside the workspace"
