# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Cosmos 3 DROID policies on a real arm, over ROS 2.

The folders follow a frame's way: ``contract`` (what a request is), ``policy`` (the network),
``execution`` (from chunks to commands) and ``ros`` (the nodes, and the only folder that imports
rclpy). ``bags`` reads and writes recordings without a ROS installation.
"""

import pkgutil

# The messages are generated into a package of the same name, elsewhere on the path: with this,
# ``cosmos_lite_ros.msg`` is found also when this file is imported from the source tree.
__path__ = pkgutil.extend_path(__path__, __name__)

__version__ = "0.1.0"
