# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The two gripper actions of control_msgs, where that package is not installed.

They are generated from the lists of fields below with the generators that make this package's own
messages, into ``build/``, once; so a real action server answers in the tests.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .harness import ROOT

FIELDS = {
    "msg/GripperCommand.msg": "float64 position\nfloat64 max_effort\n",
    "action/GripperCommand.action": (
        "GripperCommand command\n---\n"
        "float64 position\nfloat64 effort\nbool stalled\nbool reached_goal\n---\n"
        "float64 position\nfloat64 effort\nbool stalled\nbool reached_goal\n"
    ),
    "action/ParallelGripperCommand.action": (
        "sensor_msgs/JointState command\n---\n"
        "sensor_msgs/JointState state\nbool stalled\nbool reached_goal\n---\n"
        "sensor_msgs/JointState state\n"
    ),
}
CMAKE = f"""cmake_minimum_required(VERSION 3.22)
project(control_msgs)
find_package(ament_cmake REQUIRED)
find_package(sensor_msgs REQUIRED)
find_package(action_msgs REQUIRED)
find_package(rosidl_default_generators REQUIRED)
rosidl_generate_interfaces(${{PROJECT_NAME}} {" ".join(FIELDS)}
  DEPENDENCIES sensor_msgs action_msgs)
ament_package()
"""
PACKAGE = """<package format="3">
  <name>control_msgs</name><version>0.0.0</version><description>For tests.</description>
  <maintainer email="maintainers@cosmos-lite-ros.invalid">cosmos_lite_ros authors</maintainer>
  <license>Apache-2.0</license>
  <buildtool_depend>ament_cmake</buildtool_depend>
  <buildtool_depend>rosidl_default_generators</buildtool_depend>
  <depend>sensor_msgs</depend><depend>action_msgs</depend>
  <member_of_group>rosidl_interface_packages</member_of_group>
</package>
"""


def control_msgs_environment() -> dict[str, str]:
    """Variables with which a process finds control_msgs; none where it is installed."""
    if importlib.util.find_spec("control_msgs") is not None:
        return {}
    if importlib.util.find_spec("rosidl_generator_py") is None or shutil.which("cmake") is None:
        pytest.skip("control_msgs is not installed and there are no generators to make it")
    prefix = _build()
    site = f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
    return {
        "PYTHONPATH": _before("PYTHONPATH", str(ROOT), str(prefix / site)),
        "LD_LIBRARY_PATH": _before("LD_LIBRARY_PATH", str(prefix / "lib")),
        "AMENT_PREFIX_PATH": _before("AMENT_PREFIX_PATH", str(prefix)),
    }


def _before(name: str, *folders: str) -> str:
    return os.pathsep.join([*folders, *filter(None, [os.environ.get(name)])])


def _build() -> Path:
    """The prefix that it is installed in."""
    what = repr((FIELDS, CMAKE, PACKAGE, sys.version_info[:2], os.environ.get("AMENT_PREFIX_PATH")))
    folder = ROOT / "build" / f"test_control_msgs_{hashlib.sha256(what.encode()).hexdigest()[:12]}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "COLCON_IGNORE").touch()
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "done").exists():
            _generate(folder)
            (folder / "done").touch()
    return folder / "install"


def _generate(folder: Path) -> None:
    source, build = folder / "source", folder / "build"
    for name, text in {**FIELDS, "CMakeLists.txt": CMAKE, "package.xml": PACKAGE}.items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(text)
    flags = ("-DCMAKE_C_FLAGS=-O0", "-DCMAKE_CXX_FLAGS=-O0", "-DBUILD_TESTING=OFF")
    prefix = f"-DCMAKE_INSTALL_PREFIX={folder / 'install'}"
    jobs = str(len(os.sched_getaffinity(0)))
    for command in (
        ["cmake", "-S", source, "-B", build, prefix, *flags],
        ["cmake", "--build", build, "--target", "install", "-j", jobs],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=400)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
