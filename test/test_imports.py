# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""House rules that a program can check: who imports whom, licence headers, file sizes, words."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
PACKAGE = REPOSITORY / "cosmos_lite_ros"
SOURCES = sorted(PACKAGE.rglob("*.py"))

# folder -> folders of this package that it may import. ``errors`` and the package itself: all.
MAY_IMPORT = {
    "contract": set(),
    "execution": {"contract"},
    "kernels": {"contract"},
    "quantize": {"contract", "kernels"},
    "policy": {"contract", "kernels", "quantize"},
    "bags": {"contract", "policy"},
    "sim": {"contract", "policy", "execution"},
    "serve": {"contract", "policy"},
    "ros": {"contract", "execution", "policy", "kernels", "quantize", "bags", "sim", "serve"},
    "cli": {
        "contract",
        "execution",
        "policy",
        "kernels",
        "quantize",
        "bags",
        "sim",
        "serve",
        "ros",
    },
}
# What only some folders may import from outside; ``ros`` and ``cli`` are free, but for ROS itself.
WITHOUT_TORCH = {"contract", "execution"}
TORCH = {"torch", "torchvision", "diffusers", "safetensors", "tokenizers", "transformers", "triton"}
ROS = {
    *(
        "rclpy",
        "launch",
        "launch_ros",
        "cv_bridge",
        "tf2_ros",
        "ament_index_python",
        "rosidl_runtime_py",
    ),
    *("std_msgs", "sensor_msgs", "std_srvs", "trajectory_msgs", "control_msgs", "diagnostic_msgs"),
    *("lifecycle_msgs", "builtin_interfaces", "rcl_interfaces", "nav_msgs", "visualization_msgs"),
    *("rosgraph_msgs", "geometry_msgs", "rosbag2_py"),
}
OUTSIDE_OF_CONTRACT = {"numpy", "cv2", "PIL"}
OUTSIDE_OF_EXECUTION = {"numpy"}

MAX_LINES = 500
LICENCE = (
    "# Copyright 2026 The cosmos_lite_ros authors",
    "# SPDX-License-Identifier: Apache-2.0",
)
# Split, so that this list does not find itself. Nothing in the repository tells how it was made.
FORBIDDEN_WORDS = [
    "/wo" + "rk/",
    "Clau" + "de",
    "Anthro" + "pic",
    "Chat" + "GPT",
    "Co-Authored" + "-By",
    "TO" + "DO",
    "FIX" + "ME",
    "X" + "XX",
]
ISSUE_NUMBER = re.compile(r"\bissue\s+#?\d", re.IGNORECASE)


def folder_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE).parts
    return parts[0] if len(parts) > 1 else ""


def imports_of(path: Path) -> list[tuple[int, str]]:
    """Line and dotted name of every import in a file, those inside functions too."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: a relative import"
            module = node.module or ""
            found.append((node.lineno, module))
            if module == "cosmos_lite_ros":
                found += [(node.lineno, f"{module}.{alias.name}") for alias in node.names]
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute | ast.Name)
            and getattr(node.func, "attr", getattr(node.func, "id", ""))
            in ("import_module", "__import__")
            and node.args
            and isinstance(node.args[0], ast.Constant)
        ):
            found.append((node.lineno, str(node.args[0].value)))
    return found


def forbidden_imports(path: Path) -> list[str]:
    """Each import of a file that breaks the rules, as ``line: reason``."""
    folder = folder_of(path)
    broken = []
    for line, name in imports_of(path):
        top, *rest = name.split(".")
        if top == "cosmos_lite_ros":
            target = rest[0] if rest else ""
            if target in ("msg", "srv", "action"):
                if folder != "ros":
                    broken.append(f"{line}: {name}: only ros/ uses messages")
            elif target in MAY_IMPORT and folder and target != folder:
                if target not in MAY_IMPORT[folder]:
                    broken.append(f"{line}: {folder} imports {target}")
            elif target in MAY_IMPORT and not folder:
                broken.append(f"{line}: a top-level module imports {target}")
        elif top in ROS and folder != "ros":
            broken.append(f"{line}: {name}: only ros/ imports ROS")
        elif top in TORCH and (folder in WITHOUT_TORCH or not folder):
            broken.append(f"{line}: {folder} imports {top}")
        elif top in sys.stdlib_module_names:
            continue
        elif folder == "contract" and top not in OUTSIDE_OF_CONTRACT:
            broken.append(f"{line}: contract imports {top}")
        elif folder == "execution" and top not in OUTSIDE_OF_EXECUTION:
            broken.append(f"{line}: execution imports {top}")
    return broken


def test_every_folder_has_its_rule() -> None:
    folders = {folder_of(path) for path in SOURCES} - {""}
    assert folders <= MAY_IMPORT.keys()


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_point_one_way(path: Path) -> None:
    assert forbidden_imports(path) == []


@pytest.mark.parametrize(
    ("folder", "line"),
    [
        ("contract", "import torch"),
        ("contract", "from scipy import signal"),
        ("contract", "from cosmos_lite_ros.policy import engine"),
        ("contract", "from cosmos_lite_ros import policy"),
        ("execution", "import cv2"),
        ("execution", "def f():\n    import torch"),
        ("execution", "import cosmos_lite_ros.policy.engine"),
        ("policy", "from cosmos_lite_ros.ros import qos"),
        ("policy", "import rclpy"),
        ("bags", "from sensor_msgs.msg import Image"),
        ("bags", "from cosmos_lite_ros.msg import ActionChunk"),
        ("bags", "from cosmos_lite_ros.cli import main"),
        ("cli", "import rclpy"),
        ("policy", "import importlib\nimportlib.import_module('rclpy')"),
    ],
)
def test_the_rule_finds_what_it_forbids(
    folder: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "PACKAGE", tmp_path)
    file = tmp_path / folder / "module.py"
    file.parent.mkdir()
    file.write_text(line + "\n")
    assert len(forbidden_imports(file)) >= 1


def test_the_command_line_starts_without_torch_or_ros() -> None:
    code = (
        "import sys, cosmos_lite_ros.cli.main, cosmos_lite_ros.contract.assembler;"
        "print(sorted({'torch', 'rclpy', 'diffusers', 'rosbags'} & set(sys.modules)))"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=REPOSITORY
    )
    assert run.stdout.strip() == "[]", run.stderr


def repository_files() -> list[Path]:
    """Every file that git knows or would add; all sources where there is no git."""
    try:
        listed = subprocess.run(
            ["git", "ls-files", "-co", "--exclude-standard"],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
            cwd=REPOSITORY,
        ).stdout.splitlines()
    except (OSError, subprocess.SubprocessError):
        return [*SOURCES, *sorted((REPOSITORY / "test").rglob("*.py"))]
    return [path for name in listed if (path := REPOSITORY / name).is_file()]


def text_of(path: Path) -> str | None:
    try:
        return path.read_text()
    except UnicodeDecodeError:
        return None


def test_files_are_short_and_licensed() -> None:
    long, bare = [], []
    for path in repository_files():
        if path.suffix not in (".py", ".msg", ".sh", ".cmake"):
            continue
        lines = path.read_text().splitlines()
        if len(lines) > MAX_LINES:
            long.append(f"{path.relative_to(REPOSITORY)}: {len(lines)}")
        start = lines[1:3] if lines and lines[0].startswith("#!") else lines[:2]
        if path.suffix == ".py" and lines and tuple(start) != LICENCE:
            bare.append(str(path.relative_to(REPOSITORY)))
    assert long == []
    assert bare == []


def test_no_word_tells_how_it_was_made() -> None:
    found = []
    for path in repository_files():
        text = None if "golden" in path.parts or path.name == "LICENSE" else text_of(path)
        for word in FORBIDDEN_WORDS if text else ():
            if word.lower() in text.lower():
                found.append(f"{path.relative_to(REPOSITORY)}: {word}")
        if text and ISSUE_NUMBER.search(text):
            found.append(f"{path.relative_to(REPOSITORY)}: an issue number")
    assert found == []
