# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What must hold, as functions that assert it: each is quick, deterministic and can fail.

``planted.py`` names for each bug the check that must catch it.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from cosmos_lite_ros.contract.robots import FR3, PANDA
from cosmos_lite_ros.execution import resample, trajectory
from cosmos_lite_ros.execution.gate import GateFlag, IncomingChunk
from cosmos_lite_ros.execution.gripper import GripperLogic
from cosmos_lite_ros.execution.limiter import Limiter, MotionLimits, MotionState
from cosmos_lite_ros.execution.machine import State, StopReason
from cosmos_lite_ros.execution.requests import Request, RequestReason, RequestTracker
from cosmos_lite_ros.execution.settings import CheckPolicies, ExecutorSettings, GripperSettings
from cosmos_lite_ros.execution.space import SpaceLimits
from cosmos_lite_ros.execution.ticker import Ticker, TickGrid
from cosmos_lite_ros.execution.trajectory import Reference

from .chaos import Chaos, noisy
from .judge import Judge
from .makers import HOME, NS, Bench, ramp, running, steady

# Seeds with which chaos meets every kind of event within a few hundred ticks.
CHAOS_SEEDS = (3, 11, 20, 27)
# Around the home pose, with little room.
BOX = (-0.35, -0.3, 0.2, 0.6, 0.3, 0.9)


def judged(b: Bench) -> None:
    """Everything that the arm was sent was within the limits."""
    judge = Judge(b.settings)
    for ends in b.ends:
        judge.segment(*ends)
    judge.verdict()


def turned(joint: int, radians: float, ticks: int = 60, **settings: Any) -> Bench:
    """The arm asked to turn one joint from home, in 32 rows, once."""
    rows = HOME + np.linspace(0, radians, 32)[:, None] * np.eye(7)[joint]

    def source(b: Bench, request: Request) -> IncomingChunk | None:
        return b.chunk(rows) if request.request_id == 1 else None

    b = Bench(source, **{"max_spike_rad": 10.0, **settings})
    b.arm_up()
    b.tick(ticks)
    return b


def chaos() -> None:
    """Limits, epochs and stops hold whatever happens."""
    for seed, mode in zip(CHAOS_SEEDS, ("async", "sync", "average", "async"), strict=True):
        Chaos(
            seed,
            mode=mode,
            limits=CheckPolicies(spike="clamp"),
            horizon=20,
            max_tracking_error_rad=0.0,
            request_timeout_s=1.0,
            underrun_timeout_s=2.0,
            start_velocity_scale=0.3,
        ).run(90)


def row_of_its_tick() -> None:
    """In async row j of a chunk is commanded at the tick of row 0's instant plus j."""
    t = np.arange(400)[:, None] / 15
    motion = HOME + 0.15 * (np.sin(0.7 * t + np.arange(7)) - np.sin(np.arange(7)))
    latencies = itertools.cycle((3, 9, 5, 12, 4))

    def source(b: Bench, request: Request) -> IncomingChunk:
        tick = b.core.grid.nearest(request.sent_ns)
        b.latency = next(latencies)
        return b.chunk(motion[tick : tick + 32], request)

    b = Bench(
        source,
        mode="async",
        latency=6,
        start_tolerance_rad=10.0,
        max_spike_rad=1.0,
        refill_margin_rows=12,
    )
    b.arm_up()
    b.tick(160)
    for o in b.outputs[60:]:
        assert o.status.commanded is not None, "no underrun"
        assert np.abs(o.status.commanded - motion[o.status.tick]).max() < 1e-8


def rows_to_continue() -> None:
    """In prefix a request holds the rows that are executed until its answer comes."""
    t = np.arange(400)[:, None] / 15
    motion = HOME + 0.15 * (np.sin(0.7 * t + np.arange(7)) - np.sin(np.arange(7)))

    def source(b: Bench, request: Request) -> IncomingChunk:
        # Chunks that disagree by up to 20 mrad.
        tick, off = b.core.grid.nearest(request.sent_ns), 0.01 * (request.request_id % 3)
        return b.chunk(motion[tick : tick + 32] + off, request)

    b = Bench(source, mode="prefix", horizon=16, latency=6, start_tolerance_rad=10.0)
    b.arm_up()
    b.tick(160)
    seen = 0
    for k, output in enumerate(b.outputs[:-10]):
        prefix = None if output.request is None else output.request.prefix
        if prefix is None:
            continue
        seen += 1
        assert prefix.firm_rows == 6
        for i in range(prefix.firm_rows):
            commanded = b.outputs[k + i].status.commanded
            assert commanded is not None
            assert np.abs(prefix.positions[i] - commanded).max() < 1e-6
    assert seen >= 4


def row_0_at_arrival() -> None:
    """In sync nothing is dropped: row 0 is for the tick of arrival."""
    b = Bench(steady, latency=9, horizon=8)
    b.arm_up()
    b.tick(60)
    rows = [(o.status.chunk_id, o.status.row) for o in b.outputs if o.status.row >= 0]
    first = {}
    for chunk_id, row in rows:
        first.setdefault(chunk_id, row)
    assert len(first) >= 2
    assert set(first.values()) == {0}


def late_chunks_expire() -> None:
    """A chunk whose rows all lie in the past moves nothing."""
    b = Bench(steady, latency=40, mode="async")
    b.arm_up()
    b.tick(60)
    assert b.core.counters.chunks_expired >= 1
    assert b.core.counters.commands_sent == 0


def underrun_keeps_the_command() -> None:
    """Out of rows the last command is held: not zeros, not the arm, which sags."""
    b = running(mode="async", latency=2)
    b.source = None
    b.run_until(lambda: b.state is State.UNDERRUN)
    last = b.core._buffer.position
    assert last is not None
    b.tick(12)
    b.arm = False
    for _ in range(20):
        b.measured = b.measured - 0.002
        b.tick()
        sent = b.outputs[-1].trajectory
        if sent is not None:
            assert np.abs(sent.positions - last).max() < 0.02
    assert b.core._motion.position is not None
    assert np.abs(b.core._motion.position - last).max() < 1e-4


def not_finite_moves_nothing() -> None:
    """NaN and infinities are refused before anything could clip them."""
    for bad in (math.nan, math.inf, -math.inf):

        def source(b: Bench, request: Request, bad: float = bad) -> IncomingChunk:
            table = ramp(b.measured)
            table[5, 3] = bad
            return b.chunk(table)

        b = Bench(source, max_spike_rad=100.0)
        b.arm_up()
        b.tick(12)
        assert b.core.counters.chunks_rejected >= 1
        assert b.core.counters.commands_sent == 0


def preflight_first() -> None:
    """Nothing resumes without a preflight of this session."""
    b = Bench(steady, require_preflight=True)
    b.tick(2)
    assert not b.core.resume(b.now_ns, b.ros_ns).success
    assert b.core.preflight(b.now_ns, b.ros_ns).success
    assert b.core.resume(b.now_ns, b.ros_ns).success
    b.core.disarm(b.now_ns)
    assert not b.core.resume(b.now_ns, b.ros_ns).success


def old_rows_are_gone() -> None:
    """After a stop and a resume only a new chunk moves the arm."""
    b = running(latency=8)
    b.core.offer_emergency_stop(True, b.now_ns)
    b.tick(12)
    b.core.offer_emergency_stop(False, b.now_ns)
    assert b.core.resume(b.now_ns, b.ros_ns).success
    for _ in range(6):
        b.tick()
        assert b.outputs[-1].trajectory is None
        assert b.status.rows_left == 0
    b.run_until(lambda: b.status.row >= 0)
    assert b.status.chunk_id == 2


def stops_stay() -> None:
    """A release of the emergency stop, or enable held again, starts nothing."""
    b = Bench(steady, require_enable=True)
    b.core.interlocks.enable(True, b.now_ns)
    b.arm_up()
    for _ in range(8):
        b.core.interlocks.enable(True, b.now_ns)
        b.tick()
    assert b.state is State.RUNNING
    b.core.interlocks.enable(False, b.now_ns)
    b.tick()
    assert b.core.machine.stop_reason is StopReason.ENABLE_LOST
    for _ in range(20):
        b.core.interlocks.enable(True, b.now_ns)
        b.tick()
        assert b.state is State.STOPPED
    assert not b.velocity.any()
    judged(b)


def limits_are_not_passed() -> None:
    """Rows that race to a position limit end at it, braked in time."""
    low, high = PANDA.limits()
    for joint, end in ((0, high), (3, high), (5, low)):
        b = turned(joint, float(end[joint] - HOME[joint]) * 1.2, 70, max_tool_speed_m_s=math.inf)
        judged(b)
        assert abs(float(b.measured[joint] - end[joint])) < 0.01


def between_the_points() -> None:
    """Limits hold within segments, where a cubic bulges, not at their ends only."""
    limiter = Limiter(MotionLimits.of(PANDA, 0.6, 0.25))
    judge = Judge(ExecutorSettings(max_tool_speed_m_s=math.inf))
    rng = np.random.default_rng(0)
    top = limiter.limits.velocity
    for _ in range(60):
        state = MotionState(HOME.copy(), rng.choice([-1.0, 0.5, 1.0], 7) * top * 0.9)
        goal = MotionState(state.position + state.velocity / 15, rng.choice([-1, 1], 7) * top)
        after = limiter.step(state, goal, 20)
        judge.segment(state.position, state.velocity, after.position, after.velocity)
    judge.verdict()


def workspace_at_three_points() -> None:
    """Elbow, wrist and fingertip each stop at the box."""
    for joint, radians, box in (
        (1, -0.4, (-0.2, -1.0, -1.0, 1.0, 1.0, 2.0)),
        (3, 0.5, (-1.0, -1.0, -1.0, 1.0, 1.0, 0.7)),
        (1, 0.4, (-1.0, -1.0, 0.25, 1.0, 1.0, 2.0)),
    ):
        b = turned(joint, radians, workspace=box)
        judged(b)
        assert np.abs(b.measured - HOME).max() > 0.1


def tool_speed() -> None:
    """The fingertip keeps its speed limit."""
    judged(turned(0, 1.2, max_tool_speed_m_s=0.2))


def braking_in_space() -> None:
    """From any state of a plan the arm can be braked inside the box and slow enough."""
    settings = ExecutorSettings(workspace=BOX, max_tool_speed_m_s=0.3)
    limiter = Limiter(MotionLimits.of(PANDA, 0.6, 0.25), space=SpaceLimits.of(settings))
    judge = Judge(settings)
    for seed in range(6):
        rng = np.random.default_rng(seed)
        rows = HOME + np.cumsum(rng.normal(0, 0.06, (24, 7)), axis=0)
        speeds = np.gradient(rows, axis=0) * 15
        state = MotionState.rest(HOME)
        for i in range(16):
            sent = trajectory.follow(limiter, state, Reference(rows[i : i + 8], speeds[i : i + 8]))
            state = sent.state_after(1)
            braking = state
            while not braking.at_rest:
                after = limiter.brake(braking)
                judge.segment(
                    braking.position, braking.velocity, after.position, after.velocity, 23
                )
                braking = after
    judge.verdict()


def envelope() -> None:
    """FR3 slows down towards its ends as it must."""
    low, high = FR3.limits()
    limits = MotionLimits.of(FR3, 1.0, 1.0)
    judge = Judge(
        ExecutorSettings(
            robot="fr3", velocity_scale=1.0, acceleration_scale=1.0, max_tool_speed_m_s=math.inf
        )
    )
    state = MotionState.rest((low + high) / 2)
    for _ in range(40):
        after = Limiter(limits).step(state, MotionState(high + 1.0, np.zeros(7)), 20)
        judge.segment(state.position, state.velocity, after.position, after.velocity)
        state = after
    judge.verdict()


def late_ticks_skip() -> None:
    """A late tick is skipped, never made up for."""
    ticker = Ticker(TickGrid(0))
    assert ticker.arrive(0) is not None
    late = ticker.arrive(5 * NS // 15 + 1000)
    assert late is not None
    assert (late.tick, late.skipped) == (5, 4)
    assert ticker.arrive(5 * NS // 15 + 2000) is None


def skipped_ticks_are_counted_in() -> None:
    """After skipped ticks the receiver is further along what it was sent."""
    b = running(mode="async")
    for skip in (2, 1, 3, 0, 2):
        b.skip = skip
        b.tick(2)
    judged(b)


def far_rows_are_approached_slowly() -> None:
    """The start guard: a first row far from the arm is led to, at the start speed."""
    b = Bench(lambda b, r: b.chunk(ramp(HOME + 0.2)))
    b.arm_up()
    b.tick(15)
    assert b.status.gate_flags & GateFlag.START
    slow = 0.1 * np.array(PANDA.velocity_max)
    assert b.velocity.any()
    assert all((np.abs(s[1]) <= slow + 1e-9).all() for s in b.segments)


def instructions_begin_epochs() -> None:
    """A new instruction ends the rows of the old one."""
    b = running(mode="async", latency=6)
    epoch = b.core.epoch
    b.core.offer_instruction("something else", b.now_ns)
    b.tick()
    assert b.core.epoch > epoch
    assert b.status.row == -1
    b.tick(3)
    assert not b.velocity.any()


def clock_jumps_begin_epochs() -> None:
    """A jump of ROS time clears the buffer."""
    b = running(mode="async")
    epoch = b.core.epoch
    b.ros_offset_ns -= 3 * NS
    b.tick()
    assert b.core.epoch > epoch
    assert b.status.row == -1


def lost_robots_stop() -> None:
    """An arm that does not follow, nobody listening, a driver that is not ready: STOPPED."""
    b = running(arm=False)
    b.tick(25)
    assert b.core.machine.stop_reason is StopReason.TRACKING_ERROR
    b = running()
    b.followed = False
    b.tick()
    assert b.core.machine.stop_reason is StopReason.CONTROLLER_LOST
    b = running()
    b.core.interlocks.robot_ready(True, b.now_ns)
    b.tick(10)
    assert b.core.machine.stop_reason is StopReason.CONTROLLER_LOST


def moving_arms_are_left_alone() -> None:
    """A second executor does not take over an arm that still moves."""
    b = running()
    b.restart()
    b.core.offer_instruction("wipe the table", b.now_ns)
    b.tick(2)
    assert not b.core.resume(b.now_ns, b.ros_ns).success
    b.tick(20)
    judged(b)


def gripper_is_decided() -> None:
    """Hysteresis and dwell."""
    gripper = GripperLogic(GripperSettings(min_dwell_s=0.5))
    assert gripper.update(0.55, 0) is None
    assert gripper.update(0.61, NS) == 1.0
    assert [gripper.update(g, 2 * NS) for g in (0.55, 0.45, 0.41)] == [None] * 3
    assert gripper.update(0.39, 2 * NS) == 0.0
    assert gripper.update(0.9, 2 * NS + NS // 3) is None
    assert gripper.update(0.9, 2 * NS + NS // 2) == 1.0


def one_request_at_a_time() -> None:
    """No second request while one is outstanding."""
    b = Bench(None, request_timeout_s=1.0)
    b.arm_up()
    b.tick(14)
    assert len(b.requests) == 1


def warm_up_is_not_measured() -> None:
    """The first answer enters no statistic."""
    tracker = RequestTracker(100.0)
    now = 0
    for latency_s in (30.0, 0.3, 0.3):
        tracker.send(1, RequestReason.FIRST, "x", "", now)
        now += int(latency_s * NS)
        tracker.answered(now)
    assert tracker.latency().max_s < 0.31


def noise_is_executed() -> None:
    """A smooth chunk with the noise of bfloat16 is followed, not rejected."""
    rng = np.random.default_rng(0)
    t = np.arange(32)[:, None] / 15

    def source(b: Bench, request: Request) -> IncomingChunk:
        return b.chunk(noisy(b.measured + 0.15 * (1 - np.cos(0.9 * t)), rng))

    b = Bench(source, latency=2)
    b.arm_up()
    b.tick(60)
    assert b.core.counters.chunks_rejected == 0
    assert b.core.counters.commands_sent > 40
    judged(b)


def samples_lie_on_the_cubic() -> None:
    """What is resampled keeps velocity and acceleration limits, too."""
    limiter = Limiter(MotionLimits.of(PANDA, 0.6, 0.25))
    t = np.arange(1, 9)[:, None] / 15
    reference = Reference(HOME + 0.5 * t * t, t + np.zeros(7))
    sent = trajectory.follow(limiter, MotionState.rest(HOME), reference)
    resampler = resample.Resampler(500)
    resampler.load(sent, 0)
    samples = [resampler.sample(i * NS // 500) for i in range(200)]
    p = np.array([s.position for s in samples if s is not None])
    a = np.diff(p, n=2, axis=0) * 500 * 500
    assert (np.abs(a) <= limiter.limits.acceleration + 1e-3).all()


def chunks_are_not_changed() -> None:
    """A chunk is input: nothing here writes into it."""
    kept: list[tuple[IncomingChunk, np.ndarray]] = []

    def source(b: Bench, request: Request) -> IncomingChunk:
        chunk = b.chunk(noisy(ramp(b.measured, 0.03), np.random.default_rng(1)))
        kept.append((chunk, chunk.positions.copy()))
        return chunk

    b = Bench(source, mode="average", table_height_m=0.32)
    b.arm_up()
    b.tick(30)
    assert kept
    assert all((chunk.positions == before).all() for chunk, before in kept)
