# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The one action chunk type: the policy's answer, with its provenance."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from cosmos_lite_ros.contract.constants import ROW_PERIOD_S


@dataclass(frozen=True, eq=False)
class ActionChunk:
    """Rows of absolute joint commands; row j is meant for stamp_ns + j * row_period_s.

    Attributes:
        positions: float64 [rows, 7] rad, absolute; not clipped, limited or thresholded.
        gripper: float32 [rows], 0 open .. 1 closed, raw.
        stamp_ns: the instant of row 0, ns of ROS time.
        row_period_s: time between rows, s.
        measured_positions: float64 [7] rad, the state that the network saw.
        measured_gripper: 0 open .. 1 closed.
        latency_s, encode_s, generate_s: whole request and its parts, s.
        predicted_video_latent: float32 [48, 9, 33, 40] where asked for, else None.
    """

    positions: npt.NDArray[np.float64]
    gripper: npt.NDArray[np.float32]
    instruction: str
    stamp_ns: int
    joint_state_stamp_ns: int
    image_stamps_ns: tuple[int, int, int]
    measured_positions: npt.NDArray[np.float64]
    measured_gripper: float
    seed: int
    steps: int
    guidance: float
    profile: str
    scheme: str
    checkpoint: str
    revision: str
    random_weights: bool
    latency_s: float
    encode_s: float
    generate_s: float
    row_period_s: float = ROW_PERIOD_S
    guidance_interval: tuple[float, float] | None = None
    predicted_video_latent: npt.NDArray[np.float32] | None = field(default=None, repr=False)

    @property
    def rows(self) -> int:
        """Number of rows (32 for the released policies)."""
        return int(self.positions.shape[0])

    def as_array(self) -> npt.NDArray[np.float32]:
        """float32 [rows, 8]: seven joint positions (rad) and the gripper, as the network says."""
        return np.concatenate([self.positions, self.gripper[:, None]], axis=1).astype(np.float32)
