# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""A DROID cell: the policy and the executor, as two processes.

ros2 launch cosmos_lite_ros droid.launch.py                  the Edge policy on a CUDA GPU
ros2 launch cosmos_lite_ros droid.launch.py profile:=tiny    the same without one, random weights

Nothing moves before somebody calls the executor's ~/resume.
"""

from cosmos_lite_ros.ros.launching import (
    description,
    is_true,
    node_action,
    not_in_this_version,
    rviz_action,
    values_of,
)

# name: (default, description). An empty default leaves the value to params_file and the node.
ARGUMENTS = {
    "namespace": ("", "namespace of all nodes; topics are relative to it"),
    "robot": ("panda", "panda or fr3"),
    "profile": ("", "edge_rtx4090 (the node's default) or another; tiny: no GPU"),
    "checkpoint": ("", "folder or Hugging Face id; empty: the profile's"),
    "params_file": ("", "YAML with more parameters; see config/ in the package's share folder"),
    "use_sim_time": ("false", "follow /clock"),
    "dry_run": ("", "true: publish command_preview instead of joint_trajectory"),
    "autostart": ("true", "configure and activate without a lifecycle manager"),
    "policy": ("true", "start the policy node"),
    "executor": ("true", "start the executor node"),
    "monitor": ("false", "start the monitor (not in this version)"),
    "rviz": ("false", "start rviz with our view, where rviz2 is installed"),
    "record": ("false", "record a bag (not in this version)"),
    "log_level": ("info", "debug, info, warn, error or fatal"),
}


def start(context):
    """The nodes, with what the arguments say."""
    values = values_of(context, ARGUMENTS)
    actions = []
    if is_true(values, "policy"):
        actions.append(node_action("policy", values, texts=("profile", "checkpoint")))
    if is_true(values, "executor"):
        actions.append(node_action("executor", values, switches=("dry_run",)))
    if is_true(values, "rviz"):
        actions.append(rviz_action(values))
    actions += [
        not_in_this_version(name) for name in ("monitor", "record") if is_true(values, name)
    ]
    return actions


def generate_launch_description():
    """Called by ros2 launch."""
    return description(ARGUMENTS, start)
