# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Publish an instruction and wait for its echo."""

from __future__ import annotations

import time

import rclpy
from rclpy.exceptions import InvalidNamespaceException
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.validate_namespace import validate_namespace
from std_msgs.msg import String

from cosmos_lite_ros.contract.observation import clean_instruction, instruction_hash
from cosmos_lite_ros.errors import BadInputError, CosmosLiteError
from cosmos_lite_ros.msg import ExecutorStatus, PolicyStatus
from cosmos_lite_ros.ros import qos


class NotHeardError(CosmosLiteError):
    """Nobody echoed the instruction in time."""


def instruct(text: str, *, namespace: str = "", timeout_s: float = 10.0) -> str:
    """Publish an instruction, stay until it is echoed, and say by whom.

    The publisher is transient local, so a node that comes up meanwhile hears it too. An echo is a
    status that arrives after publishing and carries this instruction's hash.

    Raises:
        BadInputError: an empty or over-long instruction, or no valid namespace.
        NotHeardError: no echo within ``timeout_s``.
    """
    instruction = clean_instruction(text)
    absolute = f"/{namespace.strip('/')}"
    try:
        validate_namespace(absolute)
    except InvalidNamespaceException as error:
        raise BadInputError(
            f"namespace {namespace!r} cannot be used, expected letters, digits, _ and /"
        ) from error
    context = rclpy.Context()
    rclpy.init(context=context, args=[])
    try:
        node = Node("instruct", context=context, namespace=absolute)
        return _publish(node, context, instruction, timeout_s)
    finally:
        rclpy.try_shutdown(context=context)


def _publish(node: Node, context: rclpy.Context, instruction: str, timeout_s: float) -> str:
    wanted = instruction_hash(instruction)
    heard: list[str] = []

    def listen(kind: type, topic: str, profile: object) -> None:
        def check(message: PolicyStatus | ExecutorStatus) -> None:
            if message.instruction_sha256 == wanted:
                heard.append(topic)

        node.create_subscription(kind, topic, check, profile)

    executor = SingleThreadedExecutor(context=context)
    executor.add_node(node)
    try:
        publisher = node.create_publisher(String, "instruction", qos.latched())
        publisher.publish(String(data=instruction))
        listen(PolicyStatus, "policy_status", qos.latched())
        listen(ExecutorStatus, "executor_status", qos.status())
        end = time.monotonic() + timeout_s
        while not heard and time.monotonic() < end:
            executor.spin_once(timeout_sec=0.05)
        if heard:
            return heard[0]
        listeners = publisher.get_subscription_count()
        topic = publisher.topic_name
        raise NotHeardError(
            f"no echo of the instruction within {timeout_s:g} s ({listeners} subscriptions on "
            f"{topic}): check that policy or executor is configured, ROS_DOMAIN_ID and --namespace"
        )
    finally:
        executor.shutdown()
        node.destroy_node()
