# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""FR3's joint velocity limits, which shrink towards the position limits.

Source: "Limits for Franka Research 3" of the Franka Control Interface documentation, as in
libfranka's ``computeUpperLimitsJointVelocity`` and ``computeLowerLimitsJointVelocity``. For each
joint the limit towards its upper end is::

    min(v_max, max(0, -offset + sqrt(gain * (upper - q))))

and the one towards its lower end the same with ``q - lower``, negative. The robot aborts a motion
that exceeds them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

_OFFSET = (0.30, 0.20, 0.20, 0.30, 0.35, 0.35, 0.35)
_GAIN = (12.0, 5.17, 7.0, 8.0, 34.0, 11.0, 34.0)
_UPPER = (2.7501, 1.7918, 2.9065, -0.1458, 2.8101, 4.5205, 3.0196)
_LOWER = (-2.7501, -1.7918, -2.9065, -3.0481, -2.8101, 0.54092, -3.0196)
_V_MAX = (2.62, 2.62, 2.62, 2.62, 5.26, 4.18, 5.26)
# Distance that commands keep from the envelope, rad/s; libfranka's own limiter keeps 1e-3.
_MARGIN = 2e-3


@dataclass(frozen=True, eq=False)
class Envelope:
    """An envelope, scaled; arrays [joints]: rad/s, rad/s^2, rad, rad."""

    offset: Floats
    gain: Floats
    upper: Floats
    lower: Floats
    v_max: Floats
    scale: float = 1.0

    def limits(self, position: Floats) -> tuple[Floats, Floats]:
        """Lowest and highest velocity at positions [..., joints], rad/s."""
        down = self._towards(position - self.lower)
        return -down, self._towards(self.upper - position)

    def _towards(self, distance: Floats) -> Floats:
        free = np.sqrt(np.maximum(self.gain * distance, 0.0)) - self.offset
        return np.asarray(self.scale * np.minimum(np.maximum(free, 0.0), self.v_max))

    def allows(self, position: Floats, slowest: Floats, fastest: Floats) -> npt.NDArray[np.bool_]:
        """Whether joints may have velocities within ``slowest`` .. ``fastest`` at positions.

        Rest is always allowed, and so is motion away from an end.
        """
        low, high = self.limits(position)
        up = fastest <= np.maximum(high - _MARGIN, 0.0)
        return np.asarray(up & (slowest >= np.minimum(low + _MARGIN, 0.0)))

    def can_brake(self, stop: Floats, velocity: Floats, braking: Floats) -> npt.NDArray[np.bool_]:
        """Whether slowing down from ``velocity`` with ``braking`` > 0 to rest at ``stop`` stays
        inside.

        On the way the distance to the end is D + v^2 / (2 braking), D being that at rest, so the
        bound is a quadratic of v that must not be negative between 0 and the velocity.
        """
        end = np.where(velocity > 0, self.upper - stop, stop - self.lower)
        v, s = np.abs(velocity), self.scale
        fixed = self.offset + _MARGIN / s
        a = self.gain / (2 * braking) - 1 / (s * s)
        b = -2 * fixed / s
        c = self.gain * end - fixed * fixed
        vertex = np.minimum(np.where(a > 0, -b / (2 * np.where(a > 0, a, 1.0)), v), v)
        lowest = np.minimum(c, np.minimum(c + v * (b + a * v), c + vertex * (b + a * vertex)))
        return np.asarray((v == 0) | (lowest >= 0))


def fr3_envelope(scale: float = 1.0) -> Envelope:
    """FR3's envelope times ``scale``."""
    return Envelope(
        np.array(_OFFSET),
        np.array(_GAIN),
        np.array(_UPPER),
        np.array(_LOWER),
        np.array(_V_MAX),
        scale,
    )
