# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The policy: checkpoint, text cache, generation tower, sampler and engine. Torch, no ROS."""
