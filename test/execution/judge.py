# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Judges what is sent, at 1 kHz, with formulas of its own.

The receiver runs the cubic between points with velocities (a joint trajectory controller does), so
that is what must keep the limits, not the points.
"""

from __future__ import annotations

import math

import numpy as np

from cosmos_lite_ros.contract.robots import RobotType, robot_type
from cosmos_lite_ros.execution.kinematics import posture
from cosmos_lite_ros.execution.settings import ExecutorSettings

from .makers import sample_segment

# 67 instants in 1/15 s.
KILOHERTZ = 68
# What counts as inside: rad, rad/s, rad/s^2, rad/s, m/s, m.
TOLERANCES = {
    "position": 1e-7,
    "velocity": 1e-6,
    "acceleration": 1e-5,
    "envelope": 1e-6,
    "tool speed": 1e-6,
    "workspace": 1e-6,
}


def fr3_velocity_limits(q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """FR3's limits at postures [n, 7], written out as Franka's page has them."""
    rows = (
        (2.62, 0.30, 12.0, 2.75010, -2.75010),
        (2.62, 0.20, 5.17, 1.79180, -1.79180),
        (2.62, 0.20, 7.00, 2.90650, -2.90650),
        (2.62, 0.30, 8.00, -0.1458, -3.0481),
        (5.26, 0.35, 34.0, 2.81010, -2.81010),
        (4.18, 0.35, 11.0, 4.52050, 0.54092),
        (5.26, 0.35, 34.0, 3.01960, -3.01960),
    )
    low, high = np.empty_like(q), np.empty_like(q)
    for i, (top, offset, gain, upper, lower) in enumerate(rows):
        up = -offset + np.sqrt(np.maximum(0.0, gain * (upper - q[:, i])))
        down = offset - np.sqrt(np.maximum(0.0, gain * (q[:, i] - lower)))
        high[:, i] = np.minimum(top, np.maximum(0.0, up))
        low[:, i] = np.maximum(-top, np.minimum(0.0, down))
    return low, high


class Judge:
    """Largest excess over each limit; what begins outside may stay there or come back."""

    def __init__(self, settings: ExecutorSettings) -> None:
        robot: RobotType = robot_type(settings.robot)
        limits = settings.joint_limits.apply(robot)
        self.low, self.high = limits.limits()
        self.velocity = np.array(robot.velocity_max) * settings.velocity_scale
        self.acceleration = np.array(robot.acceleration_max) * settings.acceleration_scale
        self.scale = settings.velocity_scale if robot.name == "fr3" else None
        self.tool = np.array(settings.tool_offset_m)
        self.speed = settings.max_tool_speed_m_s
        box = settings.workspace or (-math.inf,) * 3 + (math.inf,) * 3
        self.box_low, self.box_high = np.array(box[:3]), np.array(box[3:])
        self.box_low[2] = max(self.box_low[2], settings.table_height_m)
        self.boxed = bool(settings.workspace) or math.isfinite(settings.table_height_m)
        self.worst = dict.fromkeys(TOLERANCES, -math.inf)

    def _note(self, what: str, excess: float) -> None:
        assert math.isfinite(excess) or excess < 0, f"{what} is not finite"
        self.worst[what] = max(self.worst[what], excess)

    def segment(
        self, p0: np.ndarray, v0: np.ndarray, p1: np.ndarray, v1: np.ndarray, n: int = KILOHERTZ
    ) -> None:
        """One segment of what is sent."""
        assert np.isfinite([p0, v0, p1, v1]).all(), "not finite"
        p, v, a = sample_segment(p0, v0, p1, v1, n)
        high, low = np.maximum(self.high, p0), np.minimum(self.low, p0)
        self._note("position", float(np.maximum(p - high, low - p).max()))
        self._note("velocity", float((np.abs(v) - self.velocity).max()))
        self._note("acceleration", float((np.abs(a) - self.acceleration).max()))
        if self.scale is not None:
            down, up = fr3_velocity_limits(p)
            excess = np.maximum(v - self.scale * up, self.scale * down - v)
            self._note("envelope", float(excess[np.abs(v) > 1e-9].max(initial=-math.inf)))
        found = posture(p)
        tip = found.flange + found.rotation @ self.tool
        moving = np.einsum("jnk,nj->nk", found.jacobian(tip), v)
        self._note("tool speed", float(np.linalg.norm(moving, axis=1).max()) - self.speed)
        if self.boxed:
            places = np.stack((found.elbow, found.wrist, tip), axis=1)
            top, bottom = np.maximum(self.box_high, places[0]), np.minimum(self.box_low, places[0])
            self._note("workspace", float(np.maximum(places - top, bottom - places).max()))

    def trajectory(self, positions: np.ndarray, velocities: np.ndarray, n: int = 12) -> None:
        """A whole trajectory from its first point on, as a receiver runs that hears no more."""
        assert np.isfinite(positions).all(), "not finite"
        assert not velocities[-1].any(), "it does not end at rest"
        for i in range(len(positions) - 1):
            self.segment(positions[i], velocities[i], positions[i + 1], velocities[i + 1], n)

    def verdict(self) -> None:
        """Assert that nothing was outside."""
        broken = {k: v for k, v in self.worst.items() if v > TOLERANCES[k]}
        assert not broken, f"outside the limits: {broken}"
