# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Shared makers of tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
GOLDEN = Path(__file__).resolve().parent / "golden"
SHARED = REPOSITORY.parent / "shared"


# What a test has measured, for the summary at the end.
Figure = Callable[[str], None]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With several workers a file's tests stay on one: they share what their fixtures made."""
    if config.pluginmanager.hasplugin("xdist"):
        for item in items:
            item.add_marker(pytest.mark.xdist_group(str(item.path)))


@pytest.fixture
def figure(record_property: Callable[[str, object], None]) -> Figure:
    """Say a measured figure: it appears in the summary, whoever ran the test."""
    return lambda text: record_property("figure", text)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """The figures of all tests that passed or failed."""
    lines = [
        f"{report.nodeid.rpartition('::')[2]}: {text}"
        for outcome in ("passed", "failed")
        for report in terminalreporter.stats.get(outcome, [])
        if report.when == "call"
        for name, text in report.user_properties
        if name == "figure"
    ]
    if lines:
        terminalreporter.section("figures")
        for line in lines:
            terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def tiny_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Path of a tiny checkpoint of a family, made once a session."""
    made: dict[str, Path] = {}

    def make(family: str = "edge") -> Path:
        if family not in made:
            from cosmos_lite_ros.policy.tiny import make_tiny

            made[family] = make_tiny(family, tmp_path_factory.mktemp("tiny") / family)
        return made[family]

    return make


@pytest.fixture
def make_observation() -> Callable[..., Any]:
    """A valid observation by seed; keyword arguments replace fields."""

    def make(seed: int = 0, **fields: Any) -> Any:
        from cosmos_lite_ros.contract.observation import Observation

        rng = np.random.default_rng(seed)
        values = {
            "image": rng.integers(0, 256, (540, 640, 3), dtype=np.uint8),
            "joint_positions": rng.uniform(-0.5, 0.5, 7),
            "gripper": 0.25,
            "instruction": "put the cup on the plate",
            **fields,
        }
        return Observation(**values)

    return make
