# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Settings: safe defaults, and one line for everything that cannot work."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from cosmos_lite_ros.contract.robots import PANDA
from cosmos_lite_ros.errors import BadInputError
from cosmos_lite_ros.execution.settings import (
    CheckPolicies,
    ExecutorSettings,
    GripperSettings,
    JointLimits,
)


def test_defaults_are_safe() -> None:
    defaults = ExecutorSettings()
    assert defaults.require_enable
    assert defaults.require_preflight
    assert not defaults.allow_unwatched_output
    assert not defaults.allow_random_weights
    assert not defaults.dry_run
    assert defaults.tracking_limit_rad == 0.15
    assert ExecutorSettings(max_tracking_error_rad=0.0).tracking_limit_rad == math.inf
    assert ExecutorSettings(dry_run=True).tracking_limit_rad == math.inf
    assert CheckPolicies().finite == "reject_chunk"


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (lambda: ExecutorSettings(blend_rows=5, horizon=4), "blend_rows is 5 and horizon is 4"),
        (lambda: ExecutorSettings(command_rate_hz=-250), "command_rate_hz is -250, expected 15 to"),
        (lambda: ExecutorSettings(horizon=33), "horizon is 33, expected 1 to 32"),
        (lambda: ExecutorSettings(velocity_scale=-0.5), "velocity_scale is -0.5, expected 0.001"),
        (lambda: ExecutorSettings(velocity_scale=math.nan), "velocity_scale is nan"),
        (lambda: ExecutorSettings(max_tool_speed_m_s=0.0), "max_tool_speed_m_s is 0, expected at"),
        (lambda: ExecutorSettings(tool_offset_m=(0.0, 0.1)), "tool_offset_m has 2 values"),
        (lambda: ExecutorSettings(home_rad=(0.0,) * 6), "home_rad has 6 values, expected 0 or 7"),
        (lambda: ExecutorSettings(home_rad=(0.0,) * 7), "home_rad of panda_joint4 is 0, expected"),
        (lambda: ExecutorSettings(workspace=(0.0,) * 5), "workspace has 5 values, expected 0 or 6"),
        (
            lambda: ExecutorSettings(workspace=(0.2, -0.5, 0.0, 0.8, -0.6, 1.0)),
            "workspace has y_min -0.5 and y_max -0.6, expected min < max",
        ),
        (
            lambda: ExecutorSettings(workspace=(0.2, -0.5, 0.0, 0.8, 0.6, 1.0), table_height_m=1.0),
            "table_height_m is 1 and workspace has z_max 1",
        ),
        (
            lambda: ExecutorSettings(output="joint_state"),
            "set allow_unwatched_output to true, or output to trajectory",
        ),
        (
            lambda: GripperSettings(open_below=0.6, close_above=0.6),
            "expected open_below < close_above",
        ),
        (
            lambda: GripperSettings(open=0.8, closed=0.8),
            "gripper.open is 0.8 and gripper.closed is 0.8, expected two different positions",
        ),
        (
            lambda: ExecutorSettings(mode="prefix"),
            "horizon is 32 and mode is prefix, expected at most 32 less the latency in rows",
        ),
        (
            lambda: GripperSettings(action_type="parallel_gripper_command", joint=""),
            "gripper.joint is empty, expected the joint",
        ),
        (lambda: GripperSettings(min_dwell_s=-1.0), "gripper.min_dwell_s is -1, expected 0 to 60"),
        (
            lambda: JointLimits(("panda_joint1",), (1.0,), (-1.0,)),
            "joint_limits of panda_joint1 are 1 to -1 rad, expected position_min_rad <",
        ),
        (
            lambda: JointLimits(("panda_joint1",), (), (1.0,)),
            "joint_limits.position_min_rad has 0 values, expected 1, one for each",
        ),
        (
            lambda: JointLimits(("panda_joint1",) * 2, (0.0,) * 2, (1.0,) * 2),
            "joint_limits.joints names a joint twice",
        ),
        (
            lambda: ExecutorSettings(joint_limits=JointLimits(("panda_joint8",), (0.0,), (1.0,))),
            "joint_limits.joints names 'panda_joint8', expected joints of panda: panda_joint1,",
        ),
        (
            lambda: ExecutorSettings(joint_limits=JointLimits(("panda_joint1",), (-3.0,), (1.0,))),
            "joint_limits of panda_joint1 are -3 to 1 rad, expected limits within the data sheet's",
        ),
    ],
)
def test_settings_that_cannot_work_are_refused_with_one_line(
    make: Callable[[], object], line: str
) -> None:
    with pytest.raises(BadInputError) as error:
        make()
    assert line in str(error.value)
    assert "\n" not in str(error.value)


def test_joint_limits_tighten_the_robot_type() -> None:
    limits = JointLimits(("panda_joint4", "panda_joint1"), (-2.0, -1.0), (-0.5, 1.5))
    robot = ExecutorSettings(
        joint_limits=limits, home_rad=(0.0,) * 3 + (-1.0,) + (0.5,) * 3
    ).robot_type
    assert robot.position_min == (-1.0, *PANDA.position_min[1:3], -2.0, *PANDA.position_min[4:])
    assert robot.position_max == (1.5, *PANDA.position_max[1:3], -0.5, *PANDA.position_max[4:])
    # The type's own home lies outside of these limits.
    with pytest.raises(BadInputError, match=r"home_rad of panda_joint4 is -2\.513"):
        ExecutorSettings(joint_limits=limits)
