# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Between the contract's types and ROS messages.

Arrays go through ``array.array``: assigning an ndarray makes rclpy look at every element (334 ms
for an image instead of 0.2).
"""

from __future__ import annotations

import array

import numpy as np
import numpy.typing as npt
from builtin_interfaces.msg import Time

from cosmos_lite_ros.contract.chunk import ActionChunk
from cosmos_lite_ros.contract.constants import JOINTS
from cosmos_lite_ros.contract.observation import instruction_hash
from cosmos_lite_ros.errors import BadInputError
from cosmos_lite_ros.msg import ActionChunk as ActionChunkMsg

_NS = 1_000_000_000
# builtin_interfaces/Time holds int32 seconds.
_MAX_STAMP_NS = (1 << 31) * _NS - 1


def time_message(stamp_ns: int) -> Time:
    """Nanoseconds to builtin_interfaces/Time.

    Raises:
        BadInputError: outside 0 .. 2^31 s, which the message cannot hold.
    """
    if not 0 <= stamp_ns <= _MAX_STAMP_NS:
        raise BadInputError(f"time is {stamp_ns} ns, expected 0 to {_MAX_STAMP_NS}")
    seconds, nanoseconds = divmod(stamp_ns, _NS)
    return Time(sec=seconds, nanosec=nanoseconds)


def time_ns(stamp: Time) -> int:
    """builtin_interfaces/Time to nanoseconds."""
    return int(stamp.sec) * _NS + int(stamp.nanosec)


def doubles(values: npt.ArrayLike) -> array.array[float]:
    """Values as what a float64[] field takes without a look at each element."""
    return array.array("d", np.ascontiguousarray(values, np.float64).tobytes())


def floats(values: npt.ArrayLike) -> array.array[float]:
    """The same for float32[]."""
    return array.array("f", np.ascontiguousarray(values, np.float32).tobytes())


def octets(values: npt.NDArray[np.uint8] | bytes | memoryview) -> array.array[int]:
    """The same for uint8[], such as an image's data."""
    data = values.tobytes() if isinstance(values, np.ndarray) else bytes(values)
    return array.array("B", data)


def chunk_to_message(
    chunk: ActionChunk,
    joint_names: tuple[str, ...],
    *,
    chunk_id: int,
    request_id: int = 0,
    epoch: int = 0,
    latency_s: float | None = None,
) -> ActionChunkMsg:
    """The message of a chunk.

    Args:
        chunk: what the policy answered.
        joint_names: of the columns of the positions, in order.
        chunk_id: number of this chunk in this process.
        request_id: echo of the request; 0 without one.
        epoch: echo of the request; 0 without one.
        latency_s: from taking the observation, where that is more than the engine saw.
    """
    message = ActionChunkMsg()
    message.header.stamp = time_message(chunk.stamp_ns)
    message.chunk_id = chunk_id
    message.request_id = request_id
    message.epoch = epoch
    message.joint_names = list(joint_names)
    message.rows = chunk.rows
    message.row_period_s = chunk.row_period_s
    message.positions = doubles(chunk.positions)
    message.gripper = floats(chunk.gripper)
    (
        message.wrist_image_stamp,
        message.exterior_1_image_stamp,
        message.exterior_2_image_stamp,
    ) = (time_message(stamp) for stamp in chunk.image_stamps_ns)
    message.joint_state_stamp = time_message(chunk.joint_state_stamp_ns)
    message.measured_positions = np.asarray(chunk.measured_positions, np.float64)
    message.measured_gripper = float(chunk.measured_gripper)
    message.instruction = chunk.instruction
    message.instruction_sha256 = instruction_hash(chunk.instruction)
    message.seed = chunk.seed
    message.steps = chunk.steps
    message.guidance = float(chunk.guidance)
    message.profile = chunk.profile
    message.scheme = chunk.scheme
    message.checkpoint = chunk.checkpoint
    message.revision = chunk.revision
    message.random_weights = chunk.random_weights
    message.latency_s = float(chunk.latency_s if latency_s is None else latency_s)
    message.encode_s = float(chunk.encode_s)
    message.generate_s = float(chunk.generate_s)
    return message


def chunk_from_message(message: ActionChunkMsg) -> ActionChunk:
    """The chunk of a message; NaN and out-of-range values pass, since judging them is the gate's.

    Raises:
        BadInputError: the arrays do not have the announced number of rows.
    """
    rows = int(message.rows)
    positions = np.array(message.positions, np.float64)
    gripper = np.array(message.gripper, np.float32)
    if positions.size != rows * JOINTS or gripper.size != rows:
        raise BadInputError(
            f"chunk {message.chunk_id} says {rows} rows but holds {positions.size} positions and "
            f"{gripper.size} gripper values, expected {rows * JOINTS} and {rows}"
        )
    return ActionChunk(
        positions=positions.reshape(rows, JOINTS),
        gripper=gripper,
        instruction=message.instruction,
        stamp_ns=time_ns(message.header.stamp),
        joint_state_stamp_ns=time_ns(message.joint_state_stamp),
        image_stamps_ns=(
            time_ns(message.wrist_image_stamp),
            time_ns(message.exterior_1_image_stamp),
            time_ns(message.exterior_2_image_stamp),
        ),
        measured_positions=np.array(message.measured_positions, np.float64),
        measured_gripper=float(message.measured_gripper),
        seed=int(message.seed),
        steps=int(message.steps),
        guidance=float(message.guidance),
        profile=message.profile,
        scheme=message.scheme,
        checkpoint=message.checkpoint,
        revision=message.revision,
        random_weights=bool(message.random_weights),
        latency_s=float(message.latency_s),
        encode_s=float(message.encode_s),
        generate_s=float(message.generate_s),
        row_period_s=float(message.row_period_s),
    )
