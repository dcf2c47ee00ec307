# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""``doctor``: what this machine has, what it lacks and what to do about it.

It runs where ROS, torch or both are absent. What could crash an interpreter (a cv_bridge built for
another NumPy does) is imported in a process of its own.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from enum import Enum
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

import typer

from cosmos_lite_ros import __version__
from cosmos_lite_ros.errors import BadInputError
from cosmos_lite_ros.policy.profiles import PROFILES, cache_folder

_IMPORT_TIMEOUT_S = 120.0
_GIB = 1 << 30
# The tiny profile, the demo and a bag need about this much.
_DISK_NEEDED = 1 * _GIB
_MEMORY_NEEDED = 3 * _GIB
# Each process of ours maps a 64 MB segment, and so should each camera driver.
_SHARED_MEMORY_WANTED = 512 << 20
_POLICY_EXTRA = "pip install 'cosmos_lite_ros[policy]'"
_ROS_SETUP = "source /opt/ros/$ROS_DISTRO/setup.bash, or in a checkout: make build, . .venv/env.sh"


class State(Enum):
    """How a check went."""

    OK = "ok"
    MISSING = "missing"  # nothing runs without it
    OPTIONAL = "absent"  # only what the last column names needs it


@dataclass(frozen=True)
class Check:
    """One row of the table."""

    name: str
    state: State
    found: str
    remedy: str = ""


@dataclass(frozen=True)
class Package:
    """A Python package to look for, by importing it.

    ``code`` prints what was found on one line; ``remedy`` says what to do where that fails.
    """

    name: str
    code: str
    remedy: str
    needed: bool = True


def _version_code(module: str) -> str:
    return f"import {module}; print(getattr({module}, '__version__', 'installed'))"


def _distribution_code(module: str, distribution: str) -> str:
    return (
        f"import {module}; from importlib.metadata import version; print(version({distribution!r}))"
    )


PACKAGES = (
    Package("numpy", _version_code("numpy"), "pip install cosmos_lite_ros"),
    Package("opencv", _version_code("cv2"), "pip install cosmos_lite_ros"),
    Package("diffusers", _version_code("diffusers"), _POLICY_EXTRA),
    Package("safetensors", _version_code("safetensors"), _POLICY_EXTRA),
    Package("tokenizers", _version_code("tokenizers"), _POLICY_EXTRA),
    Package(
        "rclpy",
        "import os, rclpy; print(os.environ.get('ROS_DISTRO', 'unknown distribution'))",
        _ROS_SETUP,
    ),
    Package(
        "messages built",
        "from cosmos_lite_ros.msg import ActionChunk, ChunkRequest, ExecutorStatus, PolicyStatus; "
        "from rclpy.type_support import check_for_type_support as c; c(ActionChunk); "
        "print('ActionChunk, ChunkRequest, ExecutorStatus, PolicyStatus')",
        "colcon build, then source install/setup.bash; or make build, then . .venv/env.sh",
    ),
    Package(
        "middleware",
        "import rclpy; print(rclpy.get_rmw_implementation_identifier())",
        "install an rmw and set RMW_IMPLEMENTATION (rmw_fastrtps_cpp is what we tune for)",
    ),
    Package(
        "launch_ros",
        "import launch_ros; print('installed')",
        "comes with an installed ROS 2; without it start the executables by hand",
        needed=False,
    ),
    Package(
        "cv_bridge",
        "import cv_bridge; cv_bridge.CvBridge(); print('installed')",
        "only for image_backend:=cv_bridge: apt install ros-$ROS_DISTRO-cv-bridge",
        needed=False,
    ),
    Package(
        "rosbags",
        _distribution_code("rosbags", "rosbags"),
        "for play, replay and demo: pip install 'cosmos_lite_ros[bags]'",
        needed=False,
    ),
    Package(
        "mcap",
        _distribution_code("mcap", "mcap"),
        "for MCAP bags: pip install 'cosmos_lite_ros[bags]'",
        needed=False,
    ),
    Package(
        "matplotlib",
        _version_code("matplotlib"),
        "for plots: pip install 'cosmos_lite_ros[report]'",
        needed=False,
    ),
)

_TORCH_CODE = """
import json, torch
found = {"version": torch.__version__, "gpus": []}
if torch.cuda.is_available():
    for i in range(torch.cuda.device_count()):
        free, total = torch.cuda.mem_get_info(i)
        major, minor = torch.cuda.get_device_capability(i)
        found["gpus"].append([torch.cuda.get_device_name(i), major, minor, free, total])
print(json.dumps(found))
"""


def run_python(code: str) -> tuple[bool, str]:
    """Run code in an interpreter of its own: whether it succeeded, and its last line."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    try:
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            timeout=_IMPORT_TIMEOUT_S,
            env=environment,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return False, f"no answer within {_IMPORT_TIMEOUT_S:g} s"
    lines = (done.stdout if done.returncode == 0 else done.stderr).strip().splitlines()
    if done.returncode < 0:
        return False, f"the interpreter was killed by signal {-done.returncode}"
    return done.returncode == 0, lines[-1] if lines else "no output"


def check_python() -> Check:
    """The interpreter; pip has seen to its version."""
    return Check("Python", State.OK, f"{platform.python_version()} at {sys.executable}")


def check_package(package: Package) -> Check:
    """One package."""
    good, text = run_python(package.code)
    if good:
        return Check(package.name, State.OK, text)
    state = State.MISSING if package.needed else State.OPTIONAL
    return Check(package.name, state, text, package.remedy)


def check_torch() -> list[Check]:
    """torch and the GPUs that it sees."""
    good, text = run_python(_TORCH_CODE)
    if not good:
        return [
            Check("torch", State.MISSING, text, _POLICY_EXTRA),
            Check("GPU", State.OPTIONAL, "unknown without torch", "install torch first"),
        ]
    found = json.loads(text)
    checks = [Check("torch", State.OK, found["version"])]
    for name, major, minor, free, total in found["gpus"]:
        line = f"{name}, sm_{major}{minor}, {free / _GIB:.1f} of {total / _GIB:.1f} GiB free"
        checks.append(Check("GPU", State.OK, line))
    if not found["gpus"]:
        remedy = "the released policies need a CUDA GPU; profile:=tiny runs without one"
        checks.append(Check("GPU", State.OPTIONAL, "no CUDA GPU", remedy))
    return checks


def existing_parent(path: Path) -> Path:
    """The nearest folder above that exists."""
    while not path.exists():
        path = path.parent
    return path


def check_disk() -> Check:
    """Free space where tiny checkpoints and downloads go."""
    folder = existing_parent(cache_folder())
    free = shutil.disk_usage(folder).free
    line = f"{free / _GIB:.1f} GiB free at {folder}"
    if free >= _DISK_NEEDED:
        return Check("disk", State.OK, line)
    return Check("disk", State.MISSING, line, "free 1 GiB, or set XDG_CACHE_HOME to another disk")


def check_memory() -> Check:
    """Memory that can be had without swapping."""
    try:
        text = Path("/proc/meminfo").read_text()
        fields = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
        available = int(fields["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return Check("memory", State.OPTIONAL, "unknown on this system", "have 3 GiB free")
    line = f"{available / _GIB:.1f} GiB available"
    if available >= _MEMORY_NEEDED:
        return Check("memory", State.OK, line)
    return Check("memory", State.MISSING, line, "close something: 3 GiB are needed")


def check_shared_memory() -> Check:
    """Room for image messages between processes."""
    folder = Path("/dev/shm")
    if not folder.is_dir():
        return Check("shared memory", State.OPTIONAL, "no /dev/shm", "messages go over UDP")
    total = shutil.disk_usage(folder).total
    line = f"{total / _GIB:.2f} GiB at {folder}"
    if total >= _SHARED_MEMORY_WANTED:
        return Check("shared memory", State.OK, line)
    remedy = "too small for images of several processes: docker run --shm-size=1g"
    return Check("shared memory", State.OPTIONAL, line, remedy)


def hub_cache() -> Path:
    """Where huggingface_hub keeps its downloads."""
    if explicit := os.environ.get("HF_HUB_CACHE"):
        return Path(explicit)
    home = os.environ.get("HF_HOME")
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return (Path(home) if home else Path(base) / "huggingface") / "hub"


def check_checkpoints() -> list[Check]:
    """The pinned revisions of the released policies."""
    checks = []
    wanted = {(p.checkpoint, p.revision): p.family for p in PROFILES.values() if p.checkpoint}
    for (checkpoint, revision), family in wanted.items():
        name = f"checkpoint of {family.title()}"
        folder = hub_cache() / f"models--{checkpoint.replace('/', '--')}"
        snapshot = folder / "snapshots" / revision
        if snapshot.is_dir():
            checks.append(Check(name, State.OK, str(snapshot)))
        else:
            remedy = f"hf download {checkpoint} --revision {revision}"
            checks.append(Check(name, State.OPTIONAL, "not in the local cache", remedy))
    return checks


def run_checks() -> list[Check]:
    """Every check, in the order of the table."""
    with ThreadPoolExecutor(max_workers=4) as pool:
        torch = pool.submit(check_torch)
        packages = list(pool.map(check_package, PACKAGES))
    machine = [check_disk(), check_memory(), check_shared_memory()]
    return [check_python(), *torch.result(), *packages, *machine, *check_checkpoints()]


def write_report(path: Path, checks: list[Check], say: Callable[[str], None]) -> None:
    """What somebody else needs to understand this machine; home folders are written as ``~``.

    Raises:
        BadInputError: a file that cannot be written.
    """
    found: dict[str, Any] = {
        "package": __version__,
        "platform": platform.platform(),
        "python": sys.version,
        "processor": platform.processor() or platform.machine(),
        "checks": [{**asdict(check), "state": check.state.value} for check in checks],
        "packages": _versions(),
        "gpus": [],
    }
    try:
        import torch

        from cosmos_lite_ros.policy.gpu_report import gpu_report
    except ImportError as error:
        found["gpus"] = f"torch is not usable: {error}"
    else:
        for index in range(torch.cuda.device_count()):
            torch.cuda.set_device(index)
            found["gpus"].append(gpu_report(torch.device("cuda", index), say))
    text = json.dumps(found, indent=1).replace(str(Path.home()), "~")
    try:
        path.write_text(text + "\n")
    except OSError as error:
        raise BadInputError(f"cannot write {path}: {error.strerror}") from error


def _versions() -> dict[str, str]:
    """Of everything installed that this package works with."""
    names = ("torch", "triton", "diffusers", "safetensors", "tokenizers", "numpy", "flash-attn")
    found = {}
    for name in (*names, "opencv-python", "pillow", "huggingface-hub", "rosbags", "mcap"):
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def _print(checks: list[Check]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    if not console.is_terminal:
        console = Console(width=240)  # a file or a pipe has no edge to fold at
    table = Table()
    for column in ("what", "state", "found", "what to do"):
        table.add_column(column, overflow="fold")
    style = {State.OK: "green", State.MISSING: "bold red", State.OPTIONAL: "yellow"}
    for check in checks:
        state = Text(check.state.value, style=style[check.state])
        # Text, since an error message may hold square brackets.
        table.add_row(check.name, state, Text(check.found), Text(check.remedy))
    console.print(table)
    missing = [check.name for check in checks if check.state is State.MISSING]
    if missing:
        line = f"missing: {', '.join(missing)}; see the last column"
    else:
        line = "everything that profile:=tiny and the demo need is here"
    console.print(line, markup=False, highlight=False)


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command("doctor")
    def doctor_command(
        report: Annotated[
            Path | None,
            typer.Option(
                help="Also write a JSON file that you can send: the table, versions, and every "
                "kernel's self-test on the GPU."
            ),
        ] = None,
    ) -> None:
        """Say what this machine has, what it lacks and what to do; exit code 3 if it lacks much."""
        from rich.console import Console

        with Console(stderr=True).status("looking") as status:
            checks = run_checks()
            if report is not None:
                write_report(report, checks, status.update)
        _print(checks)
        if any(check.state is State.MISSING for check in checks):
            raise typer.Exit(3)
