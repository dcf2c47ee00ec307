# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Workspace, table, tool speed and FR3's velocity envelope: in rows, in plans, in what is sent."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cosmos_lite_ros.contract.robots import FR3, PANDA
from cosmos_lite_ros.execution import trajectory
from cosmos_lite_ros.execution.envelope import fr3_envelope
from cosmos_lite_ros.execution.gate import Failed, Gate, GateFlag, Passed
from cosmos_lite_ros.execution.kinematics import NAMES, posture, tool_speed
from cosmos_lite_ros.execution.limiter import Limiter, MotionLimits, MotionState
from cosmos_lite_ros.execution.machine import State, StopReason
from cosmos_lite_ros.execution.settings import CheckPolicies, ExecutorSettings, JointLimits
from cosmos_lite_ros.execution.space import SpaceLimits
from cosmos_lite_ros.execution.trajectory import Reference

from .judge import Judge, fr3_velocity_limits
from .makers import HOME, Bench, ramp
from .test_limiter import garbage

TOOL = np.array([0.0, 0.0, 0.163])
# Around the home pose: elbow (-0.119, 0, 0.637), wrist (0.272, 0, 0.597), tip (0.360, 0, 0.327).
BOX = (-0.35, -0.3, 0.2, 0.6, 0.3, 0.9)
LOW, HIGH = PANDA.limits()


def space(**fields: Any) -> SpaceLimits:
    found = SpaceLimits.of(ExecutorSettings(**fields))
    assert found is not None
    return found


def motion(fields: dict[str, Any], joint: int, radians: float, **bench: Any) -> Bench:
    """The arm asked to turn one joint from home, in 32 rows."""
    rows = HOME + np.linspace(0, radians, 32)[:, None] * np.eye(7)[joint]

    def source(b: Bench, request: Any) -> Any:
        return b.chunk(rows) if request.request_id == 1 else None

    b = Bench(source, **{"max_spike_rad": 10.0, **fields}, **bench)
    b.arm_up()
    b.tick(90)
    judge = Judge(b.settings)
    for ends in b.ends:
        judge.segment(*ends)
    judge.verdict()
    return b


def tip(b: Bench) -> np.ndarray:
    return posture(b.measured[None]).tool(TOOL)[0]


# Settings


def test_nothing_to_limit_is_no_limit() -> None:
    assert SpaceLimits.of(ExecutorSettings(max_tool_speed_m_s=math.inf)) is None
    assert space().max_tool_speed == 0.5
    assert not space().boxed


def test_a_table_is_the_floor_of_the_box() -> None:
    assert space(table_height_m=0.1).boxed
    assert space(table_height_m=0.1).low.tolist() == [-math.inf, -math.inf, 0.1]
    assert space(workspace=BOX, table_height_m=0.1).low[2] == 0.2
    assert space(workspace=BOX, table_height_m=0.3).low[2] == 0.3


# Each of the three points


@pytest.mark.parametrize(
    ("point", "box"),
    [
        ("elbow", (-0.09, -1.0, -1.0, 1.0, 1.0, 2.0)),
        ("wrist", (-1.0, -1.0, -1.0, 1.0, 1.0, 0.58)),
        ("fingertip", (-1.0, -1.0, 0.4, 1.0, 1.0, 2.0)),
    ],
)
def test_each_point_is_looked_at(point: str, box: tuple[float, ...]) -> None:
    limits = space(workspace=box)
    beyond = limits.beyond(HOME[None])[0]
    assert beyond[NAMES.index(point)] > 0.01
    assert f"the {NAMES[int(np.argmax(beyond))]} is 0.0" in limits.describe(beyond)
    gate = Gate(PANDA, ExecutorSettings(workspace=box), limits)
    assert "outside the workspace: move the arm back" in gate.outside(HOME)


@pytest.mark.parametrize(
    ("joint", "radians", "box"),
    [
        # Backwards: the elbow goes first.
        (1, -0.4, (-0.2, -1.0, -1.0, 1.0, 1.0, 2.0)),
        # Up: the wrist.
        (3, 0.5, (-1.0, -1.0, -1.0, 1.0, 1.0, 0.7)),
        # Forwards and down: the fingertip.
        (1, 0.4, (-1.0, -1.0, 0.25, 1.0, 1.0, 2.0)),
        # Round the base: all three, the fingertip first.
        (0, 0.8, (-1.0, -1.0, -1.0, 1.0, 0.2, 2.0)),
    ],
)
def test_the_arm_stops_at_the_box_and_never_leaves_it(
    joint: int, radians: float, box: tuple[float, ...]
) -> None:
    free = motion({}, joint, radians)
    limits = space(workspace=box)
    assert limits.beyond(free.measured[None]).max() > 0.02
    held = motion({"workspace": box, "limits": CheckPolicies(workspace="clamp")}, joint, radians)
    assert limits.beyond(held.measured[None]).max() == 0.0
    places = posture(held.measured[None]).places(TOOL)[0]
    gap = np.minimum(places - limits.low, limits.high - places).min()
    assert 0.0 <= gap < 0.004, "it comes near the wall"


@pytest.mark.parametrize("policy", ["reject_chunk", "stop"])
def test_a_row_outside_may_be_refused_or_stop(policy: Any) -> None:
    box = (-1.0, -1.0, 0.25, 1.0, 1.0, 2.0)
    b = motion({"workspace": box, "limits": CheckPolicies(workspace=policy)}, 1, 0.6)
    assert b.core.counters.commands_sent == 0
    assert b.core.counters.chunks_rejected == 1
    flags = [o.status.gate_flags for o in b.outputs if o.status.gate_flags]
    assert flags == [GateFlag.WORKSPACE]
    if policy == "stop":
        assert b.core.machine.stop_reason is StopReason.GATE
        assert "the fingertip is 0.00" in b.core.machine.text


def test_the_arm_slides_along_the_table() -> None:
    """Rows that go a centimetre under the table while they move sideways, as a low grasp does."""
    at_home = posture(HOME[None]).tool(TOOL)[0]
    rows = np.repeat(HOME[None], 32, axis=0)
    rows[:, 0] += np.linspace(0, 0.3, 32)
    rows[:, 1] += np.linspace(0, 0.05, 32)
    deep = posture(rows).tool(TOOL)[:, 2]
    table = float(deep[-1]) + 0.01
    assert table < at_home[2] - 0.005
    b = Bench(lambda b, r: b.chunk(rows) if r.request_id == 1 else None, table_height_m=table)
    b.arm_up()
    b.run_until(lambda: b.state is State.UNDERRUN)
    b.tick(10)
    wanted = posture(rows[-1:]).tool(TOOL)[0]
    assert tip(b)[:2] == pytest.approx(wanted[:2], abs=2e-3)
    assert table <= tip(b)[2] < table + 3e-3
    assert any(o.status.gate_flags & GateFlag.WORKSPACE for o in b.outputs)


def test_rows_far_outside_are_rejected_although_clamped() -> None:
    settings = ExecutorSettings(workspace=(-1.0, -1.0, 0.25, 1.0, 1.0, 2.0), max_spike_rad=9.0)
    gate = Gate(PANDA, settings, SpaceLimits.of(settings))
    rows = HOME + np.linspace(0, 1.4, 32)[:, None] * np.eye(7)[1]
    found = gate.rows(rows, 0, HOME)
    assert isinstance(found, Failed)
    assert found.flag is GateFlag.WORKSPACE
    assert "too far to clamp it" in found.reason


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_rows_moved_inside_are_inside_and_others_stay(seed: int) -> None:
    rng = np.random.default_rng(seed)
    limits = space(workspace=BOX)
    rows = HOME + np.cumsum(rng.normal(0, 0.03, (32, 7)), axis=0)
    rows = np.clip(rows, LOW, HIGH)
    beyond = limits.beyond(rows).max(axis=1)
    moved = limits.moved_inside(rows, LOW, HIGH)
    assert ((moved >= LOW) & (moved <= HIGH)).all()
    near = beyond < 0.05
    assert limits.beyond(moved)[near].max() == 0.0
    places = posture(rows).places(TOOL)
    well = ((places > limits.low + 2e-3) & (places < limits.high - 2e-3)).all(axis=(1, 2))
    assert (moved[well] == rows[well]).all()


def test_limits_of_a_joint_may_be_tighter_than_the_data_sheets() -> None:
    tight = JointLimits(("panda_joint1",), (-0.3,), (0.3,))
    b = motion({"joint_limits": tight}, 0, 0.6)
    assert b.measured[0] == pytest.approx(0.3, abs=1e-3)
    assert any(o.status.gate_flags & GateFlag.POSITION_LIMIT for o in b.outputs)


# Tool speed


def test_the_fingertip_keeps_its_speed_limit() -> None:
    free = motion({"max_tool_speed_m_s": math.inf}, 0, 1.5)
    p, v = (np.concatenate([s[i] for s in free.segments]) for i in (0, 1))
    assert tool_speed(posture(p), v, TOOL).max() > 0.25
    slow = motion({"max_tool_speed_m_s": 0.2}, 0, 1.5)
    p, v = (np.concatenate([s[i] for s in slow.segments]) for i in (0, 1))
    fastest = tool_speed(posture(p), v, TOOL).max()
    assert 0.19 < fastest <= 0.2
    assert slow.measured == pytest.approx(free.measured, abs=1e-3)
    assert any(o.status.gate_flags & GateFlag.TOOL_SPEED for o in slow.outputs)


@pytest.mark.parametrize("policy", ["reject_chunk", "stop"])
def test_rows_too_fast_for_the_tool_may_be_refused(policy: Any) -> None:
    settings = ExecutorSettings(
        limits=CheckPolicies(tool_speed=policy), max_tool_speed_m_s=0.2, max_spike_rad=9.0
    )
    gate = Gate(PANDA, settings, SpaceLimits.of(settings))
    found = gate.rows(ramp(HOME, 0.05, joint=0), 0, HOME)
    assert isinstance(found, Failed)
    assert found.stop is (policy == "stop")
    assert "the fingertip moves at 0.27 m/s, expected at most max_tool_speed_m_s" in found.reason
    assert isinstance(gate.rows(ramp(HOME, 0.02, joint=0), 0, HOME), Passed)


# Plans


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    kind=st.sampled_from(["white", "bang", "spikes", "walk"]),
    scales=st.sampled_from([(0.6, 0.25), (1.0, 1.0), (0.2, 0.05)]),
    speed=st.sampled_from([0.1, 0.5, math.inf]),
    fr3=st.booleans(),
)
def test_any_plan_stays_inside_and_so_does_braking_from_any_of_its_states(
    seed: int, kind: str, scales: tuple[float, float], speed: float, fr3: bool
) -> None:
    rng = np.random.default_rng(seed)
    chosen = ExecutorSettings(
        robot="fr3" if fr3 else "panda",
        velocity_scale=scales[0],
        acceleration_scale=scales[1],
        max_tool_speed_m_s=speed,
        workspace=BOX,
    )
    limiter = Limiter(MotionLimits.of(FR3 if fr3 else PANDA, *scales), space=SpaceLimits.of(chosen))
    judge = Judge(chosen)
    rows = garbage(rng, kind, 20)
    if kind == "bang":
        rows = np.clip(rows, -3, 3)
    speeds = np.gradient(rows, axis=0) * 15
    state = MotionState.rest(HOME)
    for i in range(12):
        sent = trajectory.follow(limiter, state, Reference(rows[i : i + 8], speeds[i : i + 8]))
        points = [state, *(sent.state_after(n) for n in range(1, 9))]
        for a, b in itertools.pairwise(points):
            judge.segment(a.position, a.velocity, b.position, b.velocity, 23)
        # The operator may stop it at any of them (after a late tick, at a later one).
        braking = points[int(rng.integers(1, 8))]
        while not braking.at_rest:
            after = limiter.brake(braking)
            judge.segment(braking.position, braking.velocity, after.position, after.velocity, 23)
            braking = after
        judge.verdict()
        state = points[1]


def test_an_arm_outside_the_box_may_come_back() -> None:
    out = HOME + 0.35 * np.eye(7)[1]
    box = (-1.0, -1.0, 0.25, 1.0, 1.0, 2.0)
    limits = space(workspace=box)
    assert limits.beyond(out[None]).max() > 0.02
    limiter = Limiter(MotionLimits.of(PANDA, 0.6, 0.25), space=limits)
    state, depth = MotionState.rest(out), limits.beyond(out[None]).max()
    for _ in range(60):
        sent = trajectory.follow(limiter, state, Reference.hold(HOME, 8))
        state = sent.state_after(1)
        now = limits.beyond(state.position[None]).max()
        assert now <= depth + 1e-9
        depth = now
    assert state.position == pytest.approx(HOME, abs=1e-4)
    # Further out it does not go.
    state = MotionState.rest(out)
    sent = trajectory.follow(limiter, state, Reference.hold(out + 0.2 * np.eye(7)[1], 8))
    assert np.abs(sent.positions - out).max() < 1e-3


# FR3's envelope


def test_the_envelope_is_the_published_one() -> None:
    low, high = FR3.limits()
    q = np.random.default_rng(0).uniform(low - 0.02, high + 0.02, (300, 7))
    down, up = fr3_envelope().limits(q)
    expected = fr3_velocity_limits(q)
    assert down == pytest.approx(expected[0])
    assert up == pytest.approx(expected[1])
    # Away from the ends it is the data sheet's velocity, and at the ends nothing is left.
    middle = fr3_envelope().limits((low + high) / 2)
    assert middle[1] == pytest.approx(FR3.velocity_max)
    assert fr3_envelope(0.5).limits(high)[1] == pytest.approx(0.0, abs=0.01)
    at = np.array([2.7, 0.0, 0.0, -1.0, 0.0, 2.0, 0.0])
    assert fr3_envelope().limits(at)[1][0] == pytest.approx(math.sqrt(12 * 0.0501) - 0.3)
    assert fr3_envelope(0.5).limits(at)[1][0] == pytest.approx((math.sqrt(12 * 0.0501) - 0.3) / 2)


@pytest.mark.parametrize("scales", [(1.0, 1.0), (0.6, 0.25), (1.0, 0.3)])
def test_an_end_is_approached_as_fast_as_the_envelope_allows(scales: tuple[float, float]) -> None:
    limits = MotionLimits.of(FR3, *scales)
    limiter = Limiter(limits)
    low, high = FR3.limits()
    for goal, end in ((1e3, high), (-1e3, low)):
        judge = Judge(
            ExecutorSettings(
                robot="fr3",
                velocity_scale=scales[0],
                acceleration_scale=scales[1],
                max_tool_speed_m_s=math.inf,
            )
        )
        state, fastest = MotionState.rest((low + high) / 2), np.zeros(7)
        for _ in range(150):
            reached = limiter.step(state, MotionState(np.full(7, goal), np.zeros(7)), 60)
            judge.segment(state.position, state.velocity, reached.position, reached.velocity)
            state = reached
            fastest = np.maximum(fastest, np.abs(state.velocity))
        judge.verdict()
        # It is the envelope that holds at the end, some milliradians before the position limit.
        assert np.abs(state.position - end).max() < 0.02
        assert state.at_rest or np.abs(state.velocity).max() < 0.02
        assert (fastest > 0.4 * limits.velocity).all()


def test_an_fr3_at_its_end_can_leave_it() -> None:
    limiter = Limiter(MotionLimits.of(FR3, 0.6, 0.25))
    _, high = FR3.limits()
    state = MotionState.rest(high)
    for _ in range(60):
        state = limiter.step(state, MotionState.rest(high - 0.2), 7)
    assert state.position == pytest.approx(high - 0.2, abs=1e-3)
