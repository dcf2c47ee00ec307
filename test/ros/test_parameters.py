# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Parameters from a settings dataclass: exact names, strict values, one line for each mistake."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest

rclpy = pytest.importorskip("rclpy")

from rclpy.node import Node  # noqa: E402
from rclpy.parameter import Parameter  # noqa: E402

from cosmos_lite_ros.errors import BadInputError  # noqa: E402
from cosmos_lite_ros.ros.parameters import (  # noqa: E402
    ParameterError,
    Parameters,
    build,
    flatten,
    specs,
)
from cosmos_lite_ros.ros.policy_settings import PolicySettings  # noqa: E402

pytestmark = pytest.mark.ros


@dataclass(frozen=True)
class Inner:
    above: float = field(default=0.6, metadata={"unit": "0..1", "range": (0.0, 1.0)})


@dataclass(frozen=True)
class Middle:
    wrist: Inner = field(default_factory=lambda: Inner(above=0.25))
    other: Inner = field(default_factory=Inner)


@dataclass(frozen=True)
class Settings:
    mode: Literal["sync", "async"] = field(default="sync", metadata={"description": "how"})
    count: int = field(default=3, metadata={"range": (1, 8), "read_only": False})
    big: float = field(default=0.0, metadata={"range": (0.0, math.inf), "read_only": False})
    on: bool = False
    name: str = "x"
    pair: tuple[float, ...] = field(default=(), metadata={"length": (0, 2)})
    names: tuple[str, ...] = ("a",)
    middle: Middle = field(default_factory=Middle)

    def __post_init__(self) -> None:
        if self.mode == "async" and self.count == 8:
            raise BadInputError("async cannot count to 8")


@contextmanager
def node_with(*arguments: str) -> Iterator[Node]:
    """A node of a context of its own with these --ros-args."""
    context = rclpy.Context()
    rclpy.init(context=context, domain_id=81, args=["--ros-args", *arguments])
    node = Node("thing", context=context)
    try:
        yield node
    finally:
        node.destroy_node()
        rclpy.try_shutdown(context=context)


def given(**values: str) -> list[str]:
    arguments: list[str] = []
    for name, value in values.items():
        arguments += ["-p", f"{name.replace('__', '.')}:={value}"]
    return arguments


def test_defaults_are_those_of_the_dataclass_also_where_an_outer_one_differs() -> None:
    with node_with() as node:
        assert Parameters(node, Settings).settings == Settings()
        assert node.get_parameter("middle.wrist.above").value == 0.25
        assert node.get_parameter("middle.other.above").value == 0.6
        assert list(node.get_parameter("names").value) == ["a"]


def test_values_reach_the_dataclass_in_its_own_types() -> None:
    arguments = given(mode="async", count="2", on="true", pair="[960, 1001]", names="[q, r]")
    with node_with(*arguments, "-p", "middle.wrist.above:=1") as node:
        settings = Parameters(node, Settings).settings
    assert settings == Settings(
        mode="async",
        count=2,
        on=True,
        pair=(960.0, 1001.0),
        names=("q", "r"),
        middle=Middle(wrist=Inner(1.0)),
    )
    assert all(isinstance(value, float) for value in settings.pair)


def test_yaml_for_every_node_and_for_one(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(
        "/**:\n  ros__parameters:\n    count: 5\n    pair: []\n    middle: {other: {above: 0}}\n"
        "/**/thing:\n  ros__parameters: {name: mine}\n"
        "/**/another:\n  ros__parameters: {unheard_of: 1}\n"
    )
    with node_with("--params-file", str(path), "-r", "__ns:=/left/arm") as node:
        settings = Parameters(node, Settings).settings
    assert settings == Settings(count=5, name="mine", middle=Middle(other=Inner(0.0)))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["cuont:=3"], "unknown parameter 'cuont' (did you mean 'count'?) of node /thing"),
        (["middle.above:=0.5"], "unknown parameter 'middle.above'"),
        (["zzzzzz:=1", "cuont:=3"], "'cuont' (did you mean 'count'?), 'zzzzzz' of node"),
        (["count:=9"], "parameter count is 9, expected 1 to 8"),
        (["count:=2.5"], "parameter count is 2.5, expected a whole number"),
        (["count:=true"], "parameter count is True, expected a whole number"),
        (["big:=-1"], "parameter big is -1.0, expected at least 0"),
        (["big:=.nan"], "parameter big is nan, expected at least 0"),
        (["big:=fast"], "parameter big is 'fast', expected a number"),
        (["mode:=turbo"], "parameter mode is 'turbo', expected one of sync, async"),
        (["name:=3407"], "parameter name is 3407, expected a text (put it in quotes)"),
        (["on:=1"], "parameter on is 1, expected true or false"),
        (["pair:=[1.0]"], "parameter pair is [1.0], expected 0 or 2 values"),
        (["pair:=3"], "parameter pair is 3, expected a list of float"),
        (["middle.wrist.above:=1.5"], "parameter middle.wrist.above is 1.5, expected 0 to 1"),
        (["mode:=async", "count:=8"], "async cannot count to 8"),
    ],
)
def test_mistakes_are_one_line(arguments: list[str], expected: str) -> None:
    flat = [part for argument in arguments for part in ("-p", argument)]
    with node_with(*flat) as node, pytest.raises(BadInputError) as caught:
        Parameters(node, Settings)
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2


def test_parameters_declared_before_are_known() -> None:
    with node_with("-p", "extra:=2", "-p", "use_sim_time:=false") as node:
        node.declare_parameter("extra", 1)
        assert Parameters(node, Settings).settings == Settings()


def test_setting_while_running_is_all_or_nothing() -> None:
    seen: list[Settings] = []
    with node_with("-p", "mode:=async") as node:
        parameters = Parameters(node, Settings, on_change=seen.append)

        def put(**values: Any) -> list[str]:
            changes = [Parameter(name, value=value) for name, value in values.items()]
            result = node.set_parameters_atomically(changes)
            return [] if result.successful else [result.reason]

        assert put(count=4, big=2.0) == []
        assert seen == [Settings(mode="async", count=4, big=2.0)]
        assert put(count=8) == ["async cannot count to 8"]
        assert put(big=1.0, count=99) != []
        assert put(name="y") != [], "read-only"
        assert parameters.settings == Settings(mode="async", count=4, big=2.0)
        assert node.get_parameter("big").value == 2.0
        assert len(seen) == 1


def test_descriptors_tell_type_unit_range_and_choices() -> None:
    with node_with() as node:
        Parameters(node, Settings)
        above = node.describe_parameter("middle.wrist.above")
        mode = node.describe_parameter("mode")
        count = node.describe_parameter("count")
    assert above.description.endswith("[0..1]")
    assert (above.floating_point_range[0].from_value, above.floating_point_range[0].to_value) == (
        0.0,
        1.0,
    )
    assert mode.additional_constraints == "one of sync, async"
    assert mode.read_only
    assert (count.integer_range[0].from_value, count.integer_range[0].to_value) == (1, 8)
    assert not count.read_only


def test_flatten_and_build_are_inverse() -> None:
    settings = dataclasses.replace(PolicySettings(), steps=4, guidance_interval=(960.0, 1001.0))
    assert build(PolicySettings, flatten(settings)) == settings
    assert set(flatten(settings)) == set(specs(PolicySettings))


def test_every_policy_parameter_is_described() -> None:
    found = specs(PolicySettings)
    assert [name for name, spec in found.items() if not spec.description] == []
    assert found["cameras.wrist.latency_s"].description.endswith("[s]")
    for bad in ({"guidance_interval": (5.0, 5.0)}, {"gripper.open": 0.8}, {"gripper.joint": ""}):
        with pytest.raises(BadInputError):
            build(PolicySettings, bad)


def test_a_mistake_in_the_program_is_a_type_error() -> None:
    @dataclass(frozen=True)
    class Wrong:
        value: float = field(default=1.0, metadata={"rnage": (0, 1)})

    @dataclass(frozen=True)
    class Outside:
        value: float = field(default=2.0, metadata={"range": (0, 1)})

    with pytest.raises(TypeError, match="unknown metadata"):
        specs(Wrong)
    with pytest.raises(ParameterError, match="expected 0 to 1"):
        specs(Outside)
