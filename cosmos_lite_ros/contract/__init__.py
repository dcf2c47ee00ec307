# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What a Cosmos 3 DROID policy request is, exactly, and what it answers.

One ``Observation`` and one ``ActionChunk`` serve the live node, the bag reader and every other
source. NumPy, OpenCV and Pillow only: neither torch nor ROS is imported here.
"""
