# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The two lists of dependencies: what rosdep resolves, and what comes from PyPI."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from xml.etree import ElementTree

import cosmos_lite_ros

REPOSITORY = Path(__file__).resolve().parent.parent

# Keys that rosdep resolves on Ubuntu 24.04 for Jazzy: packages of the distribution, and keys of
# rosdep's python.yaml. One that is not here must be looked up before it is added.
ROSDEP_KEYS = {
    *("ament_cmake", "ament_cmake_python", "ament_cmake_pytest", "ament_index_python"),
    *("rosidl_default_generators", "rosidl_default_runtime", "rosidl_runtime_py"),
    *("builtin_interfaces", "std_msgs", "std_srvs", "sensor_msgs", "trajectory_msgs", "nav_msgs"),
    *("control_msgs", "diagnostic_msgs", "lifecycle_msgs", "rcl_interfaces", "geometry_msgs"),
    *("visualization_msgs", "rosgraph_msgs", "rclpy", "cv_bridge", "tf2_ros"),
    *("launch", "launch_ros", "launch_testing", "launch_testing_ros", "ros2launch"),
    *("controller_manager", "joint_trajectory_controller", "robot_state_publisher", "rviz2"),
    *("python3-numpy", "python3-opencv", "python3-pil", "python3-yaml", "python3-pytest"),
    *("python3-websockets", "python3-msgpack", "python3-rich", "python3-typer", "python3-venv"),
}
DEPENDENCY_TAGS = {
    *("depend", "build_depend", "build_export_depend", "buildtool_depend", "exec_depend"),
    *("test_depend", "doc_depend", "buildtool_export_depend"),
}
PYPI_ONLY = {"torch", "triton", "diffusers", "flash-attn", "cosmos-framework"}


def package_xml() -> ElementTree.Element:
    return ElementTree.parse(REPOSITORY / "package.xml").getroot()


def ros_keys() -> list[str]:
    return [e.text or "" for e in package_xml() if e.tag in DEPENDENCY_TAGS]


def setup_value(name: str) -> object:
    """A constant of setup.py, read without running it."""
    for node in ast.parse((REPOSITORY / "setup.py").read_text()).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == name:
            return ast.literal_eval(node.value)
    raise AssertionError(f"setup.py has no {name}")


def distribution(requirement: str) -> str:
    found = re.match(r"[A-Za-z0-9_.-]+", requirement)
    assert found is not None, requirement
    return found[0].lower().replace("_", "-")


def extras() -> dict[str, list[str]]:
    value = setup_value("EXTRAS")
    assert isinstance(value, dict)
    return {name: [distribution(r) for r in requirements] for name, requirements in value.items()}


def core() -> list[str]:
    value = setup_value("CORE")
    assert isinstance(value, list)
    return [distribution(requirement) for requirement in value]


def test_package_xml_holds_only_keys_that_rosdep_knows() -> None:
    assert sorted(set(ros_keys()) - ROSDEP_KEYS) == []
    assert len(set(ros_keys())) == len(ros_keys())


def test_package_xml_holds_what_the_nodes_need() -> None:
    needed = {"rclpy", "sensor_msgs", "trajectory_msgs", "control_msgs", "cv_bridge", "launch_ros"}
    assert needed | {"python3-numpy", "python3-opencv"} <= set(ros_keys())


def test_what_comes_from_pypi_is_in_the_extras() -> None:
    everything = {name for names in extras().values() for name in names}
    assert everything >= PYPI_ONLY
    assert set(core()).isdisjoint(PYPI_ONLY)


def test_neither_list_holds_what_the_other_brings() -> None:
    everything = {*core(), *(name for names in extras().values() for name in names)}
    keys = {key.replace("_", "-") for key in ros_keys()}
    assert sorted(everything & keys) == []
    for name in PYPI_ONLY:
        assert not [key for key in ros_keys() if name in key.replace("_", "-")]


def test_every_requirement_has_a_range() -> None:
    extra, always = setup_value("EXTRAS"), setup_value("CORE")
    assert isinstance(extra, dict)
    assert isinstance(always, list)
    requirements = [*always, *(r for listed in extra.values() for r in listed)]
    # Named only so that it is known where it belongs: nothing here imports it.
    open_ended = [r for r in requirements if ">=" not in r or "<" not in r]
    assert open_ended == ["cosmos-framework"]


def test_the_version_is_the_same_everywhere() -> None:
    assert package_xml().findtext("version") == cosmos_lite_ros.__version__
    assert re.fullmatch(r"\d+\.\d+\.\d+", cosmos_lite_ros.__version__)
    assert package_xml().findtext("name") == "cosmos_lite_ros"
    assert package_xml().findtext("license") == "Apache-2.0"
