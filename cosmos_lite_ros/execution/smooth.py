# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Rows with the noise of low-precision arithmetic, smoothed until an arm can follow them.

A whole chunk is known at once, so smoothing adds no delay: the smoothed rows x of raw rows y are
those that make |x - y|^2 + strength |third differences of x|^2 smallest (Whittaker's method; a
parabola stays as it is). Each joint gets the smallest strength that is enough, mostly none.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cosmos_lite_ros.contract.constants import ROW_PERIOD_S

Floats = npt.NDArray[np.float64]

# Strengths that are tried, from none to one that keeps 1 % of what swings at 3 Hz.
_STRENGTHS = (0.0, 0.5, 2.0, 8.0, 32.0, 128.0)
_ORDER = 3


class Smoother:
    """Smooths rows [n, joints] for joints with acceleration limits [joints], rad/s^2.

    Invariants: rows that the limits allow are returned as they are, bit by bit; no row moves by
    more than ``max_change_rad``.
    """

    def __init__(self, acceleration: Floats, max_change_rad: float) -> None:
        self._acceleration = acceleration
        self._max_change_rad = max_change_rad
        self._filters: dict[int, Floats] = {}

    def __call__(self, rows: Floats) -> Floats:
        """The smoothed rows [n, joints], rad."""
        n = len(rows)
        if self._max_change_rad <= 0 or n <= _ORDER:
            return rows
        asked = needed_acceleration(rows)
        rough = np.flatnonzero(asked > self._acceleration)
        if not len(rough):
            return rows
        filters = self._filters.get(n)
        if filters is None:
            filters = self._filters[n] = _filters(n)
        rows, y = rows.copy(), rows[:, rough]
        x = filters @ y  # [strengths, n, rough]
        asked = np.array([needed_acceleration(one) for one in x])
        change = np.abs(x - y).max(axis=1)
        # The weakest that is enough, else the strongest that changes little.
        enough = (asked <= self._acceleration[rough]) & (change <= self._max_change_rad)
        little = (change <= self._max_change_rad).cumprod(axis=0).sum(axis=0) - 1
        choice = np.where(enough.any(axis=0), enough.argmax(axis=0), little)
        rows[:, rough] = x[choice, :, np.arange(len(rough))].T
        return rows


def needed_acceleration(rows: Floats) -> Floats:
    """Largest acceleration of the cubics through rows with central differences, [joints]."""
    T = ROW_PERIOD_S
    v = np.gradient(rows, axis=0)
    d = np.diff(rows, axis=0)
    a0, a1 = 6 * d - 4 * v[:-1] - 2 * v[1:], -6 * d + 2 * v[:-1] + 4 * v[1:]
    return np.asarray(np.maximum(np.abs(a0), np.abs(a1)).max(axis=0) / (T * T))


def _filters(n: int) -> Floats:
    """The matrices of all strengths for n rows, [strengths, n, n]."""
    third = np.diff(np.eye(n), _ORDER, axis=0)
    rough = third.T @ third
    return np.array([np.linalg.inv(np.eye(n) + s * rough) for s in _STRENGTHS])
