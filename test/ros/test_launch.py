# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The launch files: their arguments and parameters everywhere, themselves where launch_ros is."""

from __future__ import annotations

import ast
import importlib.util
import signal
import sys
import textwrap
from pathlib import Path

import pytest

pytest.importorskip("rclpy")

from cosmos_lite_ros.errors import BadInputError
from cosmos_lite_ros.ros.launching import is_true, parameter_sources

from .harness import NodeProcess, probe

pytestmark = pytest.mark.ros

ROOT = Path(__file__).resolve().parents[2]
LAUNCH = ROOT / "launch"
FILES = {
    "droid": (
        "namespace robot profile checkpoint params_file use_sim_time dry_run autostart policy "
        "executor monitor rviz record log_level"
    ),
    "policy": "namespace robot profile checkpoint params_file use_sim_time autostart log_level",
    "executor": "namespace robot params_file use_sim_time dry_run autostart log_level",
}


def arguments_of(name: str) -> dict[str, tuple[str, str]]:
    """ARGUMENTS of a launch file, without running it."""
    tree = ast.parse((LAUNCH / f"{name}.launch.py").read_text())
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "ARGUMENTS":
            found: dict[str, tuple[str, str]] = ast.literal_eval(node.value)
            return found
    raise AssertionError(f"{name}.launch.py has no ARGUMENTS")


def test_all_launch_files_are_covered() -> None:
    assert sorted(p.name for p in LAUNCH.glob("*.py")) == sorted(f"{n}.launch.py" for n in FILES)


@pytest.mark.parametrize("name", FILES)
def test_arguments_have_the_agreed_names_and_a_description(name: str) -> None:
    found = arguments_of(name)
    assert list(found) == FILES[name].split()
    assert all(description for _, description in found.values())
    defaults = {key: default for key, (default, _) in found.items()}
    assert defaults["robot"] == "panda"
    assert defaults["autostart"] == "true"
    assert defaults["use_sim_time"] == "false"
    # Given only when the user gives it, so that params_file may say it.
    assert all(defaults.get(key, "") == "" for key in ("profile", "checkpoint", "dry_run"))
    if name == "droid":
        assert (defaults["policy"], defaults["executor"]) == ("true", "true")
        assert {defaults[key] for key in ("monitor", "rviz", "record")} == {"false"}
    source = (LAUNCH / f"{name}.launch.py").read_text()
    compile(source, name, "exec")
    assert "def generate_launch_description():" in source


def values(**changed: str) -> dict[str, str]:
    return {name: default for name, (default, _) in arguments_of("droid").items()} | changed


def test_parameters_come_from_the_robot_the_file_and_the_arguments(tmp_path: Path) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text("/**:\n  ros__parameters: {profile: tiny}\n")
    files, single = parameter_sources(values(), ("profile", "checkpoint"), ("dry_run",))
    assert [path.name for path in files] == ["panda.yaml"]
    assert single == {"autostart": True, "use_sim_time": False}
    files, single = parameter_sources(
        values(robot="fr3", params_file=str(mine), profile="tiny", dry_run="True"),
        ("profile", "checkpoint"),
        ("dry_run",),
    )
    assert [path.name for path in files] == ["fr3.yaml", "mine.yaml"]
    assert single == {
        "profile": "tiny",
        "dry_run": True,
        "autostart": True,
        "use_sim_time": False,
    }


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"robot": "ur5"}, "robot type 'ur5' is unknown, expected one of fr3, panda"),
        ({"params_file": "/nowhere.yaml"}, "there is no parameter file /nowhere.yaml"),
        ({"dry_run": "yes"}, "launch argument dry_run is 'yes', expected true or false"),
    ],
)
def test_wrong_arguments_are_one_line(changed: dict[str, str], expected: str) -> None:
    with pytest.raises(BadInputError, match=expected):
        parameter_sources(values(**changed), (), ("dry_run",))


def test_switches() -> None:
    assert is_true({"policy": "True"}, "policy")
    assert not is_true({"policy": "false"}, "policy")
    with pytest.raises(BadInputError, match="launch argument policy is '1'"):
        is_true({"policy": "1"}, "policy")


@pytest.mark.parametrize(("node", "switches"), [("policy", ()), ("executor", ("dry_run",))])
def test_the_nodes_take_what_the_launch_files_give(
    tmp_path: Path, node: str, switches: tuple[str, ...]
) -> None:
    given = values(robot="fr3", autostart="false", dry_run="true", profile="tiny")
    texts = ("profile", "checkpoint") if node == "policy" else ()
    files, single = parameter_sources(given, texts, switches)
    arguments = ["--ros-args", "--log-level", "info", "--ros-args", "-r", "__ns:=/lab"]
    for path in files:
        arguments += ["--params-file", str(path)]
    for name, value in single.items():
        arguments += ["-p", f"{name}:={str(value).lower()}"]
    module = f"cosmos_lite_ros.ros.{node}_node"
    with (
        NodeProcess(module, tmp_path / "log", 90, arguments=tuple(arguments)) as process,
        probe(90) as user,
    ):
        assert user.lifecycle_state(f"/lab/{node}") == "unconfigured", process.output()
        process.signal(signal.SIGINT)
        assert process.wait(3.0) == 0


# What ``ros2 launch`` does, without ros2cli.
PROGRAM = textwrap.dedent(
    """
    import sys
    from launch import LaunchDescription, LaunchService
    from launch.actions import IncludeLaunchDescription
    from launch.launch_description_sources import PythonLaunchDescriptionSource

    arguments = [text.split(":=", 1) for text in sys.argv[2:]]
    source = PythonLaunchDescriptionSource(sys.argv[1])
    service = LaunchService(argv=sys.argv[2:])
    service.include_launch_description(
        LaunchDescription([IncludeLaunchDescription(source, launch_arguments=arguments)])
    )
    sys.exit(service.run())
    """
)


@pytest.mark.skipif(
    importlib.util.find_spec("launch_ros") is None,
    reason="launch_ros is not installed (no wheel on PyPI)",
)
def test_droid_launch_starts_both_nodes_and_ends_cleanly(tmp_path: Path) -> None:
    program = tmp_path / "run.py"
    program.write_text(PROGRAM)
    arguments = ("namespace:=lab", "profile:=tiny", "dry_run:=true", "monitor:=true")
    with (
        NodeProcess(
            "",
            tmp_path / "log",
            91,
            program=(sys.executable, str(program), str(LAUNCH / "droid.launch.py")),
            arguments=arguments,
            environment={"XDG_CACHE_HOME": str(tmp_path), "ROS_LOG_DIR": str(tmp_path)},
        ) as process,
        probe(91) as user,
    ):
        user.wait_state("/lab/executor", "active", 30.0)
        user.wait_state("/lab/policy", "active", 60.0)
        assert "monitor:=true: not in this version" in process.output()
        process.signal(signal.SIGINT)
        process.wait(10.0)
        assert process.output().count("process has finished cleanly") == 2, process.output()
