# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What the launch files share. Parameters come from three places, later ones win:

1. ``config/<robot>.yaml``,
2. ``params_file``,
3. launch arguments that were given.

Neither torch nor rclpy is imported: ``ros2 launch`` may run outside the policy's environment. And
launch itself only where an action is made, so that the rest can be used without it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cosmos_lite_ros.contract.robots import robot_type
from cosmos_lite_ros.errors import BadInputError
from cosmos_lite_ros.ros.dds import dds_environment, share_folder

if TYPE_CHECKING:
    from launch import LaunchContext, LaunchDescription
    from launch.actions import LogInfo, SetEnvironmentVariable
    from launch_ros.actions import Node

PACKAGE = "cosmos_lite_ros"


def description(
    arguments: Mapping[str, tuple[str, str]], start: Callable[[LaunchContext], list[Any]]
) -> LaunchDescription:
    """A launch description: arguments (default and description by name), then ``start``."""
    from launch import LaunchDescription
    from launch.actions import DeclareLaunchArgument, OpaqueFunction

    declared = [
        DeclareLaunchArgument(name, default_value=default, description=text)
        for name, (default, text) in arguments.items()
    ]
    functions = [OpaqueFunction(function=dds_profile), OpaqueFunction(function=start)]
    return LaunchDescription([*declared, *functions])


def values_of(context: LaunchContext, arguments: Mapping[str, object]) -> dict[str, str]:
    """The launch arguments as text, by name."""
    from launch.substitutions import LaunchConfiguration

    return {name: LaunchConfiguration(name).perform(context).strip() for name in arguments}


def is_true(values: Mapping[str, str], name: str) -> bool:
    """A switch.

    Raises:
        BadInputError: neither true nor false.
    """
    text = values[name].lower()
    if text not in ("true", "false"):
        raise BadInputError(f"launch argument {name} is {values[name]!r}, expected true or false")
    return text == "true"


def dds_profile(context: LaunchContext) -> list[SetEnvironmentVariable]:
    """Our Fast DDS profile for everything that this launch starts, unless the user has one."""
    from launch.actions import SetEnvironmentVariable

    return [
        SetEnvironmentVariable(name, value)
        for name, value in dds_environment(context.environment).items()
    ]


def parameter_sources(
    values: Mapping[str, str], texts: Sequence[str] = (), switches: Sequence[str] = ()
) -> tuple[list[Path], dict[str, str | bool]]:
    """YAML files and single parameters of a node.

    Args:
        values: launch arguments by name.
        texts: names of arguments that are text parameters; empty ones are left out.
        switches: names of arguments that are switches; empty ones are left out.

    Raises:
        BadInputError: an unknown robot, a file that is not there, or no switch.
    """
    robot = robot_type(values["robot"]).name
    files = [share_folder() / "config" / f"{robot}.yaml"]
    if values["params_file"]:
        files.append(Path(values["params_file"]).expanduser())
    for path in files:
        if not path.is_file():
            raise BadInputError(f"there is no parameter file {path}: check params_file")
    single: dict[str, str | bool] = {name: values[name] for name in texts if values[name]}
    single |= {name: is_true(values, name) for name in switches if values[name]}
    for name in ("autostart", "use_sim_time"):
        single[name] = is_true(values, name)
    return files, single


def node_action(
    executable: str,
    values: Mapping[str, str],
    texts: Sequence[str] = (),
    switches: Sequence[str] = (),
) -> Node:
    """A node of this package; see ``parameter_sources``."""
    from launch_ros.actions import Node
    from launch_ros.parameter_descriptions import ParameterValue

    files, single = parameter_sources(values, texts, switches)
    return Node(
        package=PACKAGE,
        executable=executable,
        namespace=values["namespace"],
        parameters=[
            *(str(path) for path in files),
            # launch_ros reads plain text as YAML, which turns a name like 3407 into a number.
            {name: ParameterValue(value, value_type=type(value)) for name, value in single.items()},
        ],
        arguments=["--ros-args", "--log-level", values["log_level"]],
        output="screen",
        emulate_tty=True,
    )


def rviz_action(values: Mapping[str, str]) -> Any:
    """rviz2 with our view, or one line where it is not installed."""
    from ament_index_python.packages import PackageNotFoundError, get_package_prefix
    from launch.actions import LogInfo
    from launch_ros.actions import Node

    try:
        get_package_prefix("rviz2")
    except PackageNotFoundError:
        return LogInfo(msg="rviz:=true: rviz2 is not installed: apt install ros-$ROS_DISTRO-rviz2")
    return Node(
        package="rviz2",
        executable="rviz2",
        namespace=values["namespace"],
        arguments=["-d", str(share_folder() / "config" / "droid.rviz")],
        output="log",
    )


def not_in_this_version(name: str) -> LogInfo:
    """One line for an argument whose function does not exist yet."""
    from launch.actions import LogInfo

    return LogInfo(msg=f"{name}:=true: not in this version, nothing is started for it")
