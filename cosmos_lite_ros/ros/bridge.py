# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""``image_backend: cv_bridge``: raw images through cv_bridge, where it is installed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cosmos_lite_ros.contract.images import ACCEPTED_ENCODINGS, ImageMessage, Pixels
from cosmos_lite_ros.errors import EnvironmentLacksError, ImageError


def cv_bridge_decoder() -> Callable[[ImageMessage], Pixels]:
    """A decoder with cv_bridge: sensor_msgs/Image -> uint8 [h, w, 3] RGB.

    It takes the encodings that our own decoder takes: cv_bridge would squash 16 bits to 8 without a
    word.

    Raises:
        EnvironmentLacksError: cv_bridge cannot be imported.
    """
    try:
        from cv_bridge import CvBridge, CvBridgeError
    except Exception as error:
        # Built against another NumPy it fails with more than ImportError.
        raise EnvironmentLacksError(
            f"image_backend is cv_bridge, which cannot be imported ({error}): install "
            "ros-$ROS_DISTRO-cv-bridge, or use image_backend:=opencv"
        ) from error
    bridge = CvBridge()

    def decode(message: ImageMessage) -> Pixels:
        if message.encoding not in ACCEPTED_ENCODINGS:
            raise ImageError(
                f"encoding {message.encoding!r} is not taken, expected one of "
                f"{', '.join(ACCEPTED_ENCODINGS)}"
            )
        try:
            return np.ascontiguousarray(bridge.imgmsg_to_cv2(message, "rgb8"), np.uint8)
        except CvBridgeError as error:
            raise ImageError(f"cv_bridge cannot decode {message.encoding}: {error}") from error

    return decode
