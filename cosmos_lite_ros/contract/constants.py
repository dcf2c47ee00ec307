# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The numbers of the released DROID policies (read off NVIDIA's public policy server, August 2026).

Nothing in a checkpoint's files states them, so the package carries them.
"""

from __future__ import annotations

from typing import Final, Literal, get_args

View = Literal["wrist", "exterior_1", "exterior_2"]
VIEWS: Final[tuple[View, ...]] = get_args(View)

RATE_HZ: Final = 15
ROW_PERIOD_S: Final = 1.0 / RATE_HZ
CHUNK_ROWS: Final = 32
JOINTS: Final = 7
ACTION_WIDTH: Final = 8  # 7 joints and the gripper

# One camera as the policy's client sends it, and the three composed: wrist on top, the exteriors
# at half size below.
CAMERA_HEIGHT: Final = 360
CAMERA_WIDTH: Final = 640
COMPOSED_HEIGHT: Final = 540
COMPOSED_WIDTH: Final = 640
# The network's canvas: the composed image at the top left, the rest filled by reflection.
CANVAS_HEIGHT: Final = 544
CANVAS_WIDTH: Final = 736

CLIP_FRAMES: Final = 33  # the observed frame and one for each row
