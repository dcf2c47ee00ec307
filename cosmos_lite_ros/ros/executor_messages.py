# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Between the executor's types and ROS messages."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from builtin_interfaces.msg import Duration, Time
from trajectory_msgs.msg import JointTrajectory, JointTrajectoryPoint

from cosmos_lite_ros.contract.constants import RATE_HZ
from cosmos_lite_ros.execution.clock import NS
from cosmos_lite_ros.execution.gate import IncomingChunk
from cosmos_lite_ros.execution.limiter import Floats
from cosmos_lite_ros.execution.output import Status
from cosmos_lite_ros.execution.requests import Request
from cosmos_lite_ros.execution.trajectory import Trajectory
from cosmos_lite_ros.msg import ActionChunk, ChunkRequest, ExecutorStatus
from cosmos_lite_ros.ros.convert import doubles, time_ns


def incoming_chunk(message: ActionChunk) -> IncomingChunk:
    """Take a message over as it is: the gate believes nothing of it."""
    return IncomingChunk(
        chunk_id=int(message.chunk_id),
        request_id=int(message.request_id),
        epoch=int(message.epoch),
        joint_names=tuple(message.joint_names),
        rows=int(message.rows),
        row_period_s=float(message.row_period_s),
        positions=np.array(message.positions, np.float64),
        gripper=np.array(message.gripper, np.float64),
        stamp_ns=time_ns(message.header.stamp),
        joint_state_stamp_ns=time_ns(message.joint_state_stamp),
        random_weights=bool(message.random_weights),
    )


def request_message(request: Request, stamp: Time) -> ChunkRequest:
    """The message of a request."""
    message = ChunkRequest()
    message.header.stamp = stamp
    message.request_id = request.request_id
    message.epoch = request.epoch
    message.instruction = request.instruction
    message.instruction_sha256 = request.instruction_sha256
    message.reason = int(request.reason)
    if request.prefix is not None:
        message.prefix_rows = request.prefix.firm_rows
        message.prefix_positions = doubles(request.prefix.positions)
    return message


def trajectory_message(trajectory: Trajectory, joint_names: Sequence[str]) -> JointTrajectory:
    """The message of a trajectory: stamp 0 ("from now on"), point i at (i + 1) / RATE_HZ s."""
    message = JointTrajectory(joint_names=list(joint_names))
    for i, (position, velocity) in enumerate(
        zip(trajectory.positions, trajectory.velocities, strict=True)
    ):
        seconds, nanoseconds = divmod((i + 1) * NS // RATE_HZ, NS)
        message.points.append(
            JointTrajectoryPoint(
                positions=doubles(position),
                velocities=doubles(velocity),
                time_from_start=Duration(sec=seconds, nanosec=nanoseconds),
            )
        )
    return message


def _optional(values: Floats | None) -> Floats:
    return np.empty(0) if values is None else values


def status_message(status: Status, joint_names: Sequence[str], stamp: Time) -> ExecutorStatus:
    """The message of a status."""
    message = ExecutorStatus()
    message.header.stamp = stamp
    message.state = int(status.state)
    message.stop_reason = int(status.stop_reason)
    message.reason = status.reason
    message.tick = status.tick
    message.epoch = status.epoch
    message.chunk_id = status.chunk_id
    message.row = status.row
    message.rows_left = status.rows_left
    message.joint_names = list(joint_names)
    message.commanded = status.commanded is not None
    message.commanded_positions = doubles(_optional(status.commanded))
    message.requested_positions = doubles(_optional(status.requested))
    message.gripper = status.gripper
    message.gate_flags = status.gate_flags
    message.instruction_sha256 = status.instruction_sha256
    message.observation_age_s = status.observation_age_s
    message.lateness_s = status.lateness_s
    message.tracking_error_rad = status.tracking_error_rad
    message.dry_run = status.dry_run
    for name, value in vars(status.counters).items():
        setattr(message, name, value)
    return message
