# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Recordings: read, write, make the demo bag, replay. No ROS installation is needed."""
