# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""``pip install .``: the Python package, and in a ROS 2 environment its messages and starters too.

``colcon build`` does not use this file: it runs CMakeLists.txt. So does this file where a ROS 2
environment is active: it installs into a staging folder and packs what lies there.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import Distribution, find_packages, setup
from setuptools.command.build_py import build_py

HERE = Path(__file__).resolve().parent
NAME = "cosmos_lite_ros"
STAGE = HERE / "build" / "pip_stage"

# Pinned to ranges in which the golden requests were reproduced.
CORE = [
    "numpy>=1.26,<3",
    "opencv-python>=4.6,<6",
    "pillow>=10,<14",
    "pyyaml>=6,<7",
    "typer>=0.12,<1",
    "rich>=13,<16",
]
EXTRAS = {
    "policy": [
        "torch>=2.11,<2.15",
        "diffusers>=0.42.1,<0.43",
        "safetensors>=0.5,<1",
        "tokenizers>=0.21,<0.24",
        "jinja2>=3.1,<4",
        "huggingface_hub>=0.34,<2",
    ],
    "triton": ["triton>=3.6,<4"],
    "flash-attn": ["flash-attn>=2.7,<3"],
    "cosmos-framework": ["cosmos-framework"],
    "bags": ["rosbags>=0.10,<0.12", "mcap>=1.2,<2", "zstandard>=0.22,<1", "lz4>=4.3,<5"],
    "report": ["matplotlib>=3.8,<4"],
    "test": [
        "pytest>=8,<10",
        "pytest-timeout>=2.3,<3",
        "pytest-xdist>=3.6,<4",
        "hypothesis>=6.100,<7",
        "ruff>=0.17,<0.18",
        "mypy>=2.4,<3",
    ],
}


def ros_environment() -> bool:
    """Whether an ament environment with message generators is active."""
    prefixes = os.environ.get("AMENT_PREFIX_PATH", "").split(os.pathsep)
    return any((Path(p) / "share" / "rosidl_default_generators").is_dir() for p in prefixes if p)


def run_cmake() -> None:
    """Build and install into STAGE with the CMakeLists.txt that colcon uses."""
    shutil.rmtree(STAGE, ignore_errors=True)
    build = HERE / "build" / "pip_cmake"
    shutil.rmtree(build, ignore_errors=True)
    environment = dict(os.environ)
    # pip's isolated build environment hides the ROS Python packages that the generators need.
    for key in ("PYTHONPATH", "PATH"):
        parts = [
            p for p in environment.get(key, "").split(os.pathsep) if "pip-build-env-" not in p and p
        ]
        environment[key] = os.pathsep.join(parts)
    environment["CMAKE_BUILD_PARALLEL_LEVEL"] = str(os.cpu_count() or 1)
    prefix = os.pathsep.join([str(STAGE), *environment.get("CMAKE_PREFIX_PATH", "").split(":")])
    configure = ["cmake", "-S", str(HERE), "-B", str(build), f"-DCMAKE_INSTALL_PREFIX={STAGE}"]
    configure += [f"-DPython3_EXECUTABLE={sys.executable}", "-DCMAKE_INSTALL_RPATH=$ORIGIN"]
    for command in (
        configure,
        ["cmake", "--build", str(build)],
        ["cmake", "--install", str(build)],
    ):
        subprocess.run(command, check=True, env={**environment, "CMAKE_PREFIX_PATH": prefix})


class BuildWithMessages(build_py):
    """build_py that adds the generated messages."""

    def run(self) -> None:
        """Copy the sources, then the generated Python packages over them."""
        super().run()
        if not ros_environment():
            print(f"{NAME}: no ROS 2 environment is active: packing the Python part only")
            return
        for generated in sorted(STAGE.glob("l*/python3*/*-packages/" + NAME)):
            ignore = shutil.ignore_patterns("__pycache__", "*.c")
            target = Path(self.build_lib) / NAME
            shutil.copytree(generated, target, dirs_exist_ok=True, ignore=ignore)


class PlatformDistribution(Distribution):
    """A wheel with compiled messages belongs to one platform and one Python."""

    def has_ext_modules(self) -> bool:
        """Tell setuptools about the binaries that build_py copies."""
        return ros_environment()


def data_files() -> list[tuple[str, list[str]]]:
    """Everything of STAGE outside the Python package, or resources and config alone."""
    found: dict[str, list[str]] = {}
    if ros_environment():
        run_cmake()
        for path in sorted(STAGE.rglob("*")):
            relative = path.relative_to(STAGE)
            # Scripts below bin/ come from entry_points.
            skip = relative.parts[0] == "bin" or re.match(r"(local/)?lib/python3", str(relative))
            if path.is_file() and not skip:
                found.setdefault(str(relative.parent), []).append(str(path.relative_to(HERE)))
    else:
        share = f"share/{NAME}"
        found["share/ament_index/resource_index/packages"] = [f"resource/{NAME}"]
        found[share] = ["package.xml"]
        for folder in ("launch", "config", "msg"):
            found[f"{share}/{folder}"] = [
                str(p.relative_to(HERE)) for p in sorted((HERE / folder).iterdir()) if p.is_file()
            ]
    return sorted(found.items())


version = re.search(r'__version__ = "([^"]+)"', (HERE / NAME / "__init__.py").read_text())
assert version is not None

setup(
    name=NAME,
    version=version.group(1),
    description="Cosmos 3 DROID policies on a real arm, over ROS 2",
    license="Apache-2.0",
    python_requires=">=3.11,<3.14",
    packages=find_packages(include=[NAME, f"{NAME}.*"]),
    package_data={NAME: ["py.typed", "kernels/gemm_tables/*.json", "policy/*.json"]},
    data_files=data_files(),
    install_requires=CORE,
    extras_require=EXTRAS,
    entry_points={"console_scripts": ["cosmos-lite-ros = cosmos_lite_ros.cli.main:main"]},
    cmdclass={"build_py": BuildWithMessages},
    distclass=PlatformDistribution,
    zip_safe=False,
)
