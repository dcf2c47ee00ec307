# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The policy node alone, for instance on the GPU PC.

ros2 launch cosmos_lite_ros policy.launch.py
"""

from cosmos_lite_ros.ros.launching import description, node_action, values_of

# name: (default, description). An empty default leaves the value to params_file and the node.
ARGUMENTS = {
    "namespace": ("", "namespace of the node; topics are relative to it"),
    "robot": ("panda", "panda or fr3"),
    "profile": ("", "edge_rtx4090 (the node's default) or another; tiny: no GPU"),
    "checkpoint": ("", "folder or Hugging Face id; empty: the profile's"),
    "params_file": ("", "YAML with more parameters; see config/ in the package's share folder"),
    "use_sim_time": ("false", "follow /clock"),
    "autostart": ("true", "configure and activate without a lifecycle manager"),
    "log_level": ("info", "debug, info, warn, error or fatal"),
}


def start(context):
    """The node, with what the arguments say."""
    values = values_of(context, ARGUMENTS)
    return [node_action("policy", values, texts=("profile", "checkpoint"))]


def generate_launch_description():
    """Called by ros2 launch."""
    return description(ARGUMENTS, start)
