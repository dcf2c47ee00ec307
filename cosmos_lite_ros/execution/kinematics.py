# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Where the arm is: forward kinematics of the Panda and of the FR3, many postures at once.

Both arms have the same Denavit-Hartenberg parameters (Craig's convention), from the manufacturer's
"Robot and interface specifications" (Franka Control Interface documentation). Every twist is a
multiple of a quarter turn, so a link is one rotation about z and an exchange of axes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

# Of each joint: a (m, along the x axis before), twist (quarter turns about that x), d (m, along z).
DH = (
    (0.0, 0, 0.333),
    (0.0, -1, 0.0),
    (0.0, 1, 0.316),
    (0.0825, 1, 0.0),
    (-0.0825, -1, 0.384),
    (0.0, 1, 0.0),
    (0.088, 1, 0.0),
)
# From the last joint's frame to the flange, along z, m.
FLANGE_M = 0.107
# Which joint's frame has its origin at the elbow (joint 4's axis) and at the wrist's centre (where
# the axes of joints 5 and 6 meet).
_ELBOW, _WRIST = 3, 5
NAMES = ("elbow", "wrist", "fingertip")


@dataclass(frozen=True, eq=False)
class Posture:
    """Frames of ``n`` postures in the base's frame, float64, m.

    Attributes:
        axes: [7, n, 3] the joints' axes of rotation.
        origins: [7, n, 3] origins of the joints' frames.
        rotation: [n, 3, 3] of the flange; its columns are the axes x, y, z.
        flange: [n, 3] its position.
    """

    axes: Floats
    origins: Floats
    rotation: Floats
    flange: Floats

    @property
    def elbow(self) -> Floats:
        """The elbow, [n, 3]."""
        return np.asarray(self.origins[_ELBOW])

    @property
    def wrist(self) -> Floats:
        """The wrist's centre, [n, 3]."""
        return np.asarray(self.origins[_WRIST])

    def tool(self, offset: Floats) -> Floats:
        """A point given in the flange's frame, [n, 3]."""
        return np.asarray(self.flange + self.rotation @ offset)

    def places(self, tool_offset: Floats) -> Floats:
        """Elbow, wrist and fingertip: [n, 3, 3], points in the order of NAMES."""
        return np.stack((self.elbow, self.wrist, self.tool(tool_offset)), axis=1)

    def jacobian(self, point: Floats, joints: int = 7) -> Floats:
        """How a point [n, 3], moved by the first ``joints`` joints, moves: [joints, n, 3] m/rad."""
        axes, arms = self.axes[:joints], point - self.origins[:joints]
        return np.asarray(
            axes[..., (1, 2, 0)] * arms[..., (2, 0, 1)]
            - axes[..., (2, 0, 1)] * arms[..., (1, 2, 0)]
        )


# Joints that move each of NAMES: the frame's own joint turns about its origin.
MOVED_BY = (_ELBOW, _WRIST, 7)


def posture(joints: Floats) -> Posture:
    """Forward kinematics of joint positions [n, 7], rad."""
    n = len(joints)
    turn = np.exp(-1j * joints)
    # x + i y of the frame as one complex vector: turning about z is one product.
    plane = np.zeros((n, 3), complex)
    plane[:, 0], plane[:, 1] = 1, 1j
    z = np.zeros((n, 3))
    z[:, 2] = 1
    origin = np.zeros((n, 3))
    axes, origins = np.empty((7, n, 3)), np.empty((7, n, 3))
    for i, (a, twist, d) in enumerate(DH):
        if a:
            origin = origin + a * plane.real
        if twist:
            y = plane.imag
            plane, z = plane.real + (twist * 1j) * z, -twist * y
        if d:
            origin = origin + d * z
        plane = plane * turn[:, i : i + 1]
        axes[i], origins[i] = z, origin
    rotation = np.stack((plane.real, plane.imag, z), axis=2)
    return Posture(axes, origins, rotation, origin + FLANGE_M * z)


def tool_speed(found: Posture, velocities: Floats, tool_offset: Floats) -> Floats:
    """Speed of the fingertip, [n] m/s, at joint velocities [n, 7] rad/s."""
    columns = found.jacobian(found.tool(tool_offset))
    moving = np.einsum("jnk,nj->nk", columns, velocities)
    return np.asarray(np.sqrt(np.square(moving).sum(axis=1)))
