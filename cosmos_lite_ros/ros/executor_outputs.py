# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Where commands go: a trajectory at each tick, or positions resampled to a higher rate.

``dry_run`` changes the topic and nothing else.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from rclpy.publisher import Publisher
from sensor_msgs.msg import JointState
from std_msgs.msg import Float64MultiArray
from trajectory_msgs.msg import JointTrajectory

from cosmos_lite_ros.execution.clock import NS
from cosmos_lite_ros.execution.limiter import Floats
from cosmos_lite_ros.execution.resample import Resampler, Sample
from cosmos_lite_ros.execution.settings import ExecutorSettings
from cosmos_lite_ros.execution.ticker import Arrival
from cosmos_lite_ros.execution.trajectory import Trajectory
from cosmos_lite_ros.ros.convert import doubles
from cosmos_lite_ros.ros.executor_messages import trajectory_message
from cosmos_lite_ros.ros.executor_ticks import MotionClock, TickThread

PREVIEW = "command_preview"
# Message type and topic of each value of the parameter ``output``.
OUTPUTS: dict[str, tuple[type, str]] = {
    "trajectory": (JointTrajectory, "joint_trajectory"),
    "array": (Float64MultiArray, "position_commands"),
    "joint_state": (JointState, "joint_commands"),
}
# Commands lag the plan by this, so that a tick may be that late before the plan of the one before
# has to be followed beyond it.
PLAN_DELAY_NS = 10_000_000
# After a longer time without a command a receiver stands where the last one was, or nearly so.
_GAP_NS = 30_000_000
# The longest that the last commands of a motion may take when the node is deactivated, s.
_COME_TO_REST_S = 1.0
Publish = Callable[[type, str], Publisher]


class Output(Protocol):
    """One way of sending commands."""

    publisher: Publisher

    def start(self) -> None:
        """The node becomes active."""

    def send(self, trajectory: Trajectory, begins_ns: int) -> None:
        """The motion from the beginning of a tick on, ns of the motion clock."""

    def take_held(self) -> Floats | None:
        """Where the receiver stands, rad [joints], after it was left without commands; else None.

        Told once: motion has to begin anew there.
        """

    def take_lateness(self) -> tuple[list[float], int]:
        """Of the commands since the last call: lateness, s; and how many have been skipped ever."""

    def end(self) -> None:
        """The last trajectory has been sent: return when nothing more has to be published."""

    @property
    def error(self) -> BaseException | None:
        """What has ended a thread of it."""


class TrajectoryOutput:
    """A trajectory at each tick; the controller interpolates, and comes to rest without us."""

    error: BaseException | None = None

    def __init__(self, publisher: Publisher, joint_names: Sequence[str]) -> None:
        self.publisher = publisher
        self._joint_names = joint_names

    def start(self) -> None:
        """Nothing to begin."""

    def send(self, trajectory: Trajectory, begins_ns: int) -> None:
        """Publish it."""
        self.publisher.publish(trajectory_message(trajectory, self._joint_names))

    def take_held(self) -> Floats | None:
        """The controller follows what it has."""
        return None

    def take_lateness(self) -> tuple[list[float], int]:
        """Nothing but ticks is published."""
        return [], 0

    def end(self) -> None:
        """Nothing is left."""


class StreamOutput:
    """Positions at ``command_rate_hz``, from a thread of its own.

    The thread publishes while a motion lasts and its last position once more; then it waits for the
    next trajectory.
    """

    def __init__(
        self,
        publisher: Publisher,
        clock: MotionClock,
        rate_hz: int,
        message: Callable[[Sample, int], Any],
    ) -> None:
        self.publisher = publisher
        self._clock = clock
        self._message = message
        self._resampler = Resampler(rate_hz)
        # Held for a few microseconds: trajectory and resting belong together.
        self._lock = threading.Lock()
        self._resting = True
        self._lateness_s: list[float] = []
        self._skipped = 0
        self._published_ns = 0
        self._held: Floats | None = None
        self._thread: TickThread | None = None

    def start(self) -> None:
        """Begin to run."""
        grid = self._resampler.grid(self._clock.read()[0])
        self._thread = TickThread(grid, self._command, clock=self._clock, name="commands")
        self._thread.start()

    def send(self, trajectory: Trajectory, begins_ns: int) -> None:
        """Follow it from its beginning on."""
        with self._lock:
            if self._held is not None:
                # It was made before the tick knew that the receiver stands elsewhere.
                return
            if self._resting:
                self._published_ns = begins_ns
            self._resampler.load(trajectory, begins_ns)
            self._resting = False

    def _command(self, arrival: Arrival, now_ns: int) -> None:
        self._skipped += arrival.skipped
        at_ns = now_ns - arrival.lateness_ns - PLAN_DELAY_NS
        with self._lock:
            if self._resting:
                return
            if at_ns - self._published_ns > _GAP_NS and self._resampler.last is not None:
                # The receiver has come to a stop somewhere: no jump, motion begins anew there.
                self._held, self._resting = self._resampler.last.position, True
                return
            self._published_ns = at_ns
            self._resting = self._resampler.resting(at_ns)
            sample = self._resampler.sample(at_ns)
        if sample is not None:
            self.publisher.publish(self._message(sample, self._clock.read()[1]))
            self._lateness_s.append(arrival.lateness_ns / NS)

    def take_held(self) -> Floats | None:
        """See Output."""
        with self._lock:
            held, self._held = self._held, None
        return held

    def take_lateness(self) -> tuple[list[float], int]:
        """See Output."""
        taken, self._lateness_s = self._lateness_s, []
        return taken, self._skipped

    def end(self) -> None:
        """Let the motion come to rest, and end the thread."""
        deadline_s = time.monotonic() + _COME_TO_REST_S
        while not self._resting and time.monotonic() < deadline_s:
            time.sleep(0.01)
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.end()

    @property
    def error(self) -> BaseException | None:
        """What has ended the thread."""
        return None if self._thread is None else self._thread.error


def array_message(sample: Sample, ros_ns: int) -> Float64MultiArray:
    """Positions in the order of the robot type's joints."""
    return Float64MultiArray(data=doubles(sample.position))


def make_output(
    settings: ExecutorSettings, joint_names: Sequence[str], clock: MotionClock, publish: Publish
) -> Output:
    """The output that the settings ask for."""
    kind, topic = OUTPUTS[settings.output]
    publisher = publish(kind, PREVIEW if settings.dry_run else topic)
    if settings.output == "trajectory":
        return TrajectoryOutput(publisher, joint_names)

    names = list(joint_names)

    def joint_state_message(sample: Sample, ros_ns: int) -> JointState:
        message = JointState(name=names)
        message.position = doubles(sample.position)
        message.velocity = doubles(sample.velocity)
        message.header.stamp.sec, message.header.stamp.nanosec = divmod(ros_ns, NS)
        return message

    make = array_message if settings.output == "array" else joint_state_message
    return StreamOutput(publisher, clock, settings.command_rate_hz, make)
