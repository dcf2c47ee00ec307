# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The declared gripper mapping."""

from __future__ import annotations

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from cosmos_lite_ros.contract.gripper import GripperMapping
from cosmos_lite_ros.errors import BadInputError


@pytest.mark.parametrize(
    ("opened", "closed", "value", "unit"),
    [
        (0.0, 0.8, 0.0, 0.0),  # Robotiq 2F-85, radians
        (0.0, 0.8, 0.8, 1.0),
        (0.0, math.pi / 4, math.pi / 8, 0.5),
        (0.04, 0.0, 0.04, 0.0),  # Franka hand, metres per finger
        (0.04, 0.0, 0.01, 0.75),
        (1.0, 0.0, 0.25, 0.75),  # a fraction in which open is one
        (0.0, 0.8, 0.82, 1.0),  # overshoot is clipped
        (0.0, 0.8, -0.01, 0.0),
        (0.0, 0.8, 255.0, 1.0),
    ],
)
def test_values_of_real_grippers(opened: float, closed: float, value: float, unit: float) -> None:
    assert GripperMapping(opened, closed).to_unit(value) == pytest.approx(unit, abs=1e-12)


def test_the_ends_of_a_command_are_exactly_the_declared_values() -> None:
    mapping = GripperMapping(0.1, 0.8)
    assert mapping.from_unit(0.0) == 0.1
    assert mapping.from_unit(1.0) == 0.8
    assert mapping.from_unit(7.0) == 0.8
    assert mapping.from_unit(-7.0) == 0.1


@given(
    opened=st.floats(-10, 10), closed=st.floats(-10, 10), unit=st.floats(0, 1), more=st.floats(0, 1)
)
def test_there_and_back(opened: float, closed: float, unit: float, more: float) -> None:
    assume(abs(opened - closed) > 1e-3)
    mapping = GripperMapping(opened, closed)
    assert mapping.to_unit(mapping.from_unit(unit)) == pytest.approx(unit, abs=1e-9)
    low, high = sorted((unit, more))
    assert (
        mapping.to_unit(mapping.from_unit(low)) <= mapping.to_unit(mapping.from_unit(high)) + 1e-9
    )


@pytest.mark.parametrize(
    ("value", "suspicious"),
    [(0.0, False), (0.8, False), (0.87, False), (-0.07, False), (0.89, True), (-0.09, True)],
)
def test_more_than_a_tenth_outside_puts_the_mapping_in_doubt(
    value: float, suspicious: bool
) -> None:
    assert GripperMapping(0.0, 0.8).is_suspicious(value) is suspicious
    assert GripperMapping(0.8, 0.0).is_suspicious(0.8 - value) is suspicious


@pytest.mark.parametrize(("opened", "closed"), [(0.5, 0.5), (math.nan, 1.0), (0.0, math.inf)])
def test_a_mapping_that_maps_nothing_is_refused(opened: float, closed: float) -> None:
    with pytest.raises(BadInputError, match="gripper open"):
        GripperMapping(opened, closed)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_refused(value: float) -> None:
    mapping = GripperMapping(0.0, 1.0)
    with pytest.raises(BadInputError, match="not finite"):
        mapping.to_unit(value)
    with pytest.raises(BadInputError, match="not finite"):
        mapping.from_unit(value)
