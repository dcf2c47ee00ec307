# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Smoothing of rows: only where it is needed, only as much, and never by more than allowed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cosmos_lite_ros.contract.robots import PANDA
from cosmos_lite_ros.execution.gate import Gate, GateFlag, Passed
from cosmos_lite_ros.execution.settings import ExecutorSettings
from cosmos_lite_ros.execution.smooth import Smoother, needed_acceleration

from .chaos import noisy
from .makers import HOME, sample_segment

ACCELERATION = np.array(PANDA.acceleration_max) * 0.25
T = np.arange(32)[:, None] / 15
WAVE = HOME + 0.2 * np.sin(0.8 * T + np.arange(7))


def test_rows_that_an_arm_can_follow_stay_as_they_are() -> None:
    assert (needed_acceleration(WAVE) < ACCELERATION).all()
    assert Smoother(ACCELERATION, 0.03)(WAVE) is WAVE


def test_the_needed_acceleration_is_that_of_the_cubics() -> None:
    rows = noisy(WAVE, np.random.default_rng(0))
    v = np.gradient(rows, axis=0) * 15
    worst = [
        np.abs(sample_segment(rows[i], v[i], rows[i + 1], v[i + 1])[2]).max(axis=0)
        for i in range(31)
    ]
    assert needed_acceleration(rows) == pytest.approx(np.max(worst, axis=0))


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), rows=st.integers(1, 32), most=st.floats(0.0, 0.1))
def test_no_row_is_moved_further_than_allowed(seed: int, rows: int, most: float) -> None:
    rng = np.random.default_rng(seed)
    raw = WAVE[:rows] + rng.normal(0, 10 ** rng.uniform(-4, 0), (rows, 7))
    before = raw.copy()
    found = Smoother(ACCELERATION, most)(raw)
    assert np.abs(found - raw).max() <= most + 1e-12
    assert (raw == before).all()


def test_noise_of_bfloat16_becomes_something_that_an_arm_can_follow() -> None:
    rng = np.random.default_rng(0)
    smoother = Smoother(ACCELERATION, 0.03)
    error = []
    for _ in range(40):
        wave = HOME + 0.2 * np.sin(0.8 * T + rng.uniform(0, 6, 7))
        raw = noisy(wave, rng)
        assert (needed_acceleration(raw) > ACCELERATION).any()
        found = smoother(raw)
        assert (needed_acceleration(found) <= ACCELERATION).all()
        error.append(found - wave)
    assert np.sqrt(np.mean(np.square(error))) < 0.006


def test_the_gate_says_what_it_smoothed() -> None:
    rows = noisy(WAVE, np.random.default_rng(0))
    found = Gate(PANDA, ExecutorSettings()).rows(rows, 0, rows[0])
    assert isinstance(found, Passed)
    assert (found.flags & GateFlag.SMOOTHED).all()
    assert np.abs(found.positions - rows).max() <= 0.03
    off = Gate(PANDA, ExecutorSettings(max_smoothing_rad=0.0)).rows(rows, 0, rows[0])
    assert isinstance(off, Passed)
    assert not (off.flags & GateFlag.SMOOTHED).any()
    assert (off.positions == rows).all()
