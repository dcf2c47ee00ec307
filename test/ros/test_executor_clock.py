# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Ticks that follow ROS time, and the slow way home."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

rclpy = pytest.importorskip("rclpy")

from builtin_interfaces.msg import Time  # noqa: E402
from rosgraph_msgs.msg import Clock  # noqa: E402
from std_msgs.msg import String  # noqa: E402

from cosmos_lite_ros.contract.robots import PANDA  # noqa: E402
from cosmos_lite_ros.execution.clock import NS  # noqa: E402
from cosmos_lite_ros.ros.executor_ticks import RosClock  # noqa: E402

from .executor_watch import CELL, NODE, PATIENT, S, Watch, transient  # noqa: E402
from .harness import NodeProcess, probe  # noqa: E402

pytestmark = pytest.mark.ros


def test_the_clock_of_motion_never_goes_back() -> None:
    ros_ns = [0]
    clock = RosClock(lambda: ros_ns[0])
    begun, _ = clock.read()

    def at(now_ns: int) -> tuple[int, int]:
        """Passed on the clock of motion, and ROS time against it, since the first ROS time."""
        ros_ns[0] = now_ns
        motion_ns, read_ns = clock.read()
        assert read_ns == now_ns
        return motion_ns - begun, now_ns - (motion_ns - begun)

    # Awaited: it stands still. Then it goes with ROS time, whatever that starts from.
    assert at(0)[0] == 0
    assert at(50 * NS) == (0, 50 * NS)
    assert at(50 * NS + 7) == (7, 50 * NS)
    assert at(50 * NS + 7) == (7, 50 * NS)
    assert at(51 * NS) == (NS, 50 * NS)
    # Jumps show in the offset, not in the clock: back, and ahead.
    assert at(20 * NS) == (NS, 19 * NS)
    assert at(20 * NS + 5) == (NS + 5, 19 * NS)
    assert at(40 * NS) == (NS + 5, 39 * NS - 5)
    assert at(40 * NS + 3) == (NS + 8, 39 * NS - 5)


def test_waiting_ends_when_told_although_time_stands_still() -> None:
    clock = RosClock(lambda: 5 * NS)
    ended = threading.Event()
    threading.Timer(0.05, ended.set).start()
    now_ns, _ = clock.read()
    assert clock.wait_until(now_ns + NS, ended) == now_ns


def test_ticks_follow_ros_time(tmp_path: Path) -> None:
    parameters: dict[str, object] = {"autostart": True, "use_sim_time": True, "tick_clock": "ros"}
    with probe(129) as p, NodeProcess(NODE, tmp_path / "log", 129, parameters=parameters):
        w = Watch(p)
        clock = p.publisher("/clock", Clock)
        p.wait_state("executor", "active")
        w.until(lambda: clock.get_subscription_count() > 0, what="a subscription of /clock")
        now_ns = [100 * NS]

        def say(messages: int) -> None:
            """Lock-step: one row period of ROS time, and its tick."""
            for _ in range(messages):
                heard = len(w.statuses)
                now_ns[0] += NS // 15 + 1
                message = Clock()
                message.clock.sec, message.clock.nanosec = divmod(now_ns[0], NS)
                clock.publish(message)
                w.until(lambda heard=heard: len(w.statuses) > heard, 5.0, "a tick")

        # The first message is where ROS time begins; nothing has passed yet.
        clock.publish(Clock(clock=Time(sec=100)))
        p.spin(0.3)
        assert not w.statuses
        say(60)
        ticks = [s.tick for s in w.statuses]
        assert ticks == list(range(ticks[0], ticks[0] + 60))
        stamps = [s.header.stamp.sec + s.header.stamp.nanosec * 1e-9 for s in w.statuses]
        assert np.allclose(np.diff(stamps), 1 / 15, atol=1e-6)
        # It stands still, and so do they.
        epoch = w.status.epoch
        p.spin(0.5)
        assert len(w.statuses) == 60
        # It jumps back: a new epoch, and ticks go on from where they were.
        now_ns[0] = 10 * NS
        clock.publish(Clock(clock=Time(sec=10)))
        p.spin(0.3)
        say(5)
        assert w.status.epoch == epoch + 1
        assert [s.tick for s in w.statuses] == list(range(ticks[0], ticks[0] + 65))
        assert w.status.header.stamp.sec == 10


def test_home_is_slow_and_ends_stopped(tmp_path: Path) -> None:
    home = np.array(PANDA.home) + 0.05
    parameters: dict[str, object] = {**PATIENT, "autostart": True, "home_rad": home.tolist()}
    with (
        probe(130) as p,
        NodeProcess(NODE, tmp_path / "log", 130, parameters=parameters),
        NodeProcess(CELL, tmp_path / "cell", 130, arguments=("--arm", "/", "--source", "/:smooth")),
    ):
        w = Watch(p)
        kept = transient(p, "instruction", String, String(data="stay"))
        w.until(lambda: w.call("preflight").success, 20.0, what="a pass")
        answers = []

        def homing() -> bool:
            # Right after a pass it may not be known yet whether the arm stands still.
            answers.append(w.call("home"))
            assert answers[-1].success or answers[-1].message.endswith("try again")
            return bool(answers[-1].success)

        w.until(homing, 10.0, what="home to be accepted")
        assert "~/stop ends it" in answers[-1].message

        def arrived() -> bool:
            # The status of before the motion says STOPPED too.
            there = w.commands and np.allclose(w.commands[-1].points[-1].positions, home, atol=1e-3)
            return bool(there) and w.status.state == S.STOPPED

        w.until(arrived, 30.0, what="home")
        slow = 0.1 * np.array(PANDA.velocity_max)
        speeds = np.abs([q.velocities for c in w.commands for q in c.points])
        assert (speeds <= slow + 1e-6).all()
        assert all(s.row == -1 for s in w.statuses)
        assert w.status.requests_sent == 0
        assert kept is not None
