# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Robot types: joint names, limits and home of the arms that DROID was recorded with.

The policies answer with joint angles of a Panda-like arm, so other kinematics are refused. Limits
are the manufacturer's data sheets (Franka Emika Panda; Franka Research 3), unscaled.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cosmos_lite_ros.contract.constants import JOINTS
from cosmos_lite_ros.errors import BadInputError

# DROID's resting pose, rad.
_HOME = (0.0, -math.pi / 5, 0.0, -4 * math.pi / 5, 0.0, 3 * math.pi / 5, 0.0)


@dataclass(frozen=True)
class RobotType:
    """One arm. Positions rad, velocities rad/s, accelerations rad/s^2, jerks rad/s^3."""

    name: str
    joint_names: tuple[str, ...]
    position_min: tuple[float, ...]
    position_max: tuple[float, ...]
    velocity_max: tuple[float, ...]
    acceleration_max: tuple[float, ...]
    jerk_max: tuple[float, ...]
    home: tuple[float, ...] = _HOME

    def limits(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Lower and upper position limits, float64 [7] rad each."""
        return np.array(self.position_min), np.array(self.position_max)


def _joints(prefix: str) -> tuple[str, ...]:
    return tuple(f"{prefix}_joint{i}" for i in range(1, JOINTS + 1))


PANDA = RobotType(
    name="panda",
    joint_names=_joints("panda"),
    position_min=(-2.8973, -1.7628, -2.8973, -3.0718, -2.8973, -0.0175, -2.8973),
    position_max=(2.8973, 1.7628, 2.8973, -0.0698, 2.8973, 3.7525, 2.8973),
    velocity_max=(2.175, 2.175, 2.175, 2.175, 2.61, 2.61, 2.61),
    acceleration_max=(15.0, 7.5, 10.0, 12.5, 15.0, 20.0, 20.0),
    jerk_max=(7500.0, 3750.0, 5000.0, 6250.0, 7500.0, 10000.0, 10000.0),
)

# velocity_max holds away from the stops; FR3's own limit shrinks towards them.
FR3 = RobotType(
    name="fr3",
    joint_names=_joints("fr3"),
    position_min=(-2.7437, -1.7837, -2.9007, -3.0421, -2.8065, 0.5445, -3.0159),
    position_max=(2.7437, 1.7837, 2.9007, -0.1518, 2.8065, 4.5169, 3.0159),
    velocity_max=(2.62, 2.62, 2.62, 2.62, 5.26, 4.18, 5.26),
    acceleration_max=(10.0,) * JOINTS,
    jerk_max=(5000.0,) * JOINTS,
)

ROBOTS = {robot.name: robot for robot in (PANDA, FR3)}


def robot_type(name: str) -> RobotType:
    """The robot type of that name.

    Raises:
        BadInputError: another kinematic: the policy's joint angles would mean nothing on it.
    """
    try:
        return ROBOTS[name]
    except KeyError:
        known = ", ".join(sorted(ROBOTS))
        raise BadInputError(
            f"robot type {name!r} is unknown, expected one of {known}: the policy answers with "
            "joint angles of these arms only"
        ) from None
