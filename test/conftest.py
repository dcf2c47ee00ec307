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
