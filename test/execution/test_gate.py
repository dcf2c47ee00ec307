# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The gate: what of a chunk is believed, and what its policies do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from cosmos_lite_ros.contract.constants import ROW_PERIOD_S
from cosmos_lite_ros.contract.robots import FR3, PANDA
from cosmos_lite_ros.execution.gate import Failed, Gate, GateFlag, IncomingChunk, Passed
from cosmos_lite_ros.execution.settings import CheckPolicies, ExecutorSettings

from .makers import HOME, ramp


def chunk(positions: Any = None, **fields: Any) -> IncomingChunk:
    table = ramp() if positions is None else np.asarray(positions, float)
    values = {
        "chunk_id": 1,
        "request_id": 1,
        "epoch": 1,
        "joint_names": PANDA.joint_names,
        "rows": len(table),
        "row_period_s": ROW_PERIOD_S,
        "positions": table.reshape(-1),
        "gripper": np.zeros(len(table)),
        "stamp_ns": 0,
        "joint_state_stamp_ns": 0,
        "random_weights": False,
        **fields,
    }
    return IncomingChunk(**values)


def gate(**fields: Any) -> Gate:
    return Gate(PANDA, ExecutorSettings(**fields))


def refused(found: object) -> Failed:
    assert isinstance(found, Failed)
    assert "\n" not in found.reason
    return found


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", ["positions", "gripper"])
def test_anything_not_finite_is_refused_first(bad: float, where: str) -> None:
    values = {"positions": ramp().reshape(-1), "gripper": np.zeros(32)}
    values[where][17] = bad
    # Also with everything else wrong: NaN passes every comparison, so it comes before all.
    found = refused(gate().table(chunk(rows=5, **values)))
    assert found.flag is GateFlag.NON_FINITE
    assert not found.stop
    strict = gate(limits=CheckPolicies(finite="stop"))
    assert refused(strict.table(chunk(**values))).stop


@pytest.mark.parametrize(
    ("fields", "flag", "words"),
    [
        ({"rows": 31}, GateFlag.SHAPE, "31 rows, 224 positions and 32 gripper"),
        ({"rows": 0, "positions": np.empty(0), "gripper": np.empty(0)}, GateFlag.SHAPE, "0 rows"),
        ({"gripper": np.zeros(31)}, GateFlag.SHAPE, "31 gripper values"),
        ({"row_period_s": 0.05}, GateFlag.SHAPE, "0.05 s apart"),
        ({"row_period_s": np.nan}, GateFlag.SHAPE, "nan s apart"),
        ({"joint_names": FR3.joint_names}, GateFlag.JOINT_NAMES, "fr3_joint1"),
        ({"joint_names": PANDA.joint_names[:6]}, GateFlag.JOINT_NAMES, "panda_joint7"),
        ({"joint_names": ("panda_joint1",) * 7}, GateFlag.JOINT_NAMES, "expected panda_joint1"),
        ({"random_weights": True}, GateFlag.RANDOM_WEIGHTS, "allow_random_weights"),
    ],
)
def test_unreadable_chunks_are_refused(fields: dict[str, Any], flag: GateFlag, words: str) -> None:
    found = refused(gate().table(replace(chunk(), **fields)))
    assert found.flag is flag
    assert words in found.reason


def test_more_than_32_rows_are_refused() -> None:
    assert refused(gate().table(chunk(ramp(rows=33)))).flag is GateFlag.SHAPE


def test_random_weights_may_preview_or_be_allowed() -> None:
    c = chunk(random_weights=True)
    for fields in ({"dry_run": True}, {"allow_random_weights": True}):
        assert gate(**fields).table(c) == pytest.approx(ramp())


def test_columns_follow_the_joint_names() -> None:
    order = [3, 0, 6, 1, 2, 5, 4]
    names = tuple(PANDA.joint_names[i] for i in order)
    assert gate().table(chunk(ramp()[:, order], joint_names=names)) == pytest.approx(ramp())


def test_positions_outside_are_clamped_flagged_or_refused() -> None:
    table = np.repeat(HOME[None], 6, 0)
    table[3:, 1] = PANDA.position_max[1] + 0.001
    table[:, 1] -= 0.0
    table[2, 1] = table[1, 1] = PANDA.position_max[1] - 0.1
    table[0, 1] = table[1, 1] - 0.1
    passed = gate(velocity_scale=1.0).rows(table, 0, table[0])
    assert isinstance(passed, Passed)
    assert passed.positions[3:, 1] == pytest.approx([PANDA.position_max[1]] * 3)
    assert passed.positions[:3] == pytest.approx(table[:3])
    assert passed.flags.tolist() == [0, 0, 0] + [int(GateFlag.POSITION_LIMIT)] * 3
    for policy, stop in (("reject_chunk", False), ("stop", True)):
        strict = gate(velocity_scale=1.0, limits=CheckPolicies(position=policy))  # type: ignore[arg-type]
        found = refused(strict.rows(table, 0, table[0]))
        assert (found.flag, found.stop) == (GateFlag.POSITION_LIMIT, stop)
        assert "row 3: panda_joint2 is 1.764 rad" in found.reason


def test_steps_beyond_the_velocity_are_flagged() -> None:
    step = 0.6 * PANDA.velocity_max[0] * ROW_PERIOD_S
    passed = gate().rows(ramp(step=step * 0.999, joint=0), 0, HOME)
    assert isinstance(passed, Passed)
    assert not passed.flags.any()
    passed = gate().rows(ramp(step=step * 1.001, joint=0), 0, HOME)
    assert isinstance(passed, Passed)
    assert passed.flags[1:].tolist() == [int(GateFlag.STEP)] * 31
    found = refused(gate(limits=CheckPolicies(step="stop")).rows(ramp(step=0.2, joint=0), 0, HOME))
    assert found.stop
    assert "velocity_scale" in found.reason


def test_only_a_dry_run_does_not_judge_the_jumps_of_random_weights() -> None:
    table = ramp()
    table[10] += 0.5
    dry = gate(dry_run=True)
    assert isinstance(dry.rows(table, 0, HOME, random_weights=True), Passed)
    assert refused(dry.rows(table, 0, HOME)).flag is GateFlag.SPIKE
    real = gate(allow_random_weights=True)
    assert refused(real.rows(table, 0, HOME, random_weights=True)).flag is GateFlag.SPIKE


def test_spikes_between_rows_and_from_the_last_command_are_refused() -> None:
    table = ramp()
    table[9, 5] += 0.31
    found = refused(gate().rows(table, 0, HOME))
    assert found.flag is GateFlag.SPIKE
    assert "row 9: panda_joint6" in found.reason
    # A spike in rows that lie in the past does not matter, and is not the step to the first row.
    assert isinstance(gate().rows(table, 10, table[10]), Passed)
    found = refused(gate().rows(ramp(), 4, HOME + 0.4))
    assert "row 4" in found.reason
    assert isinstance(gate(max_spike_rad=0.5).rows(ramp(), 4, HOME + 0.4), Passed)
    loose = gate(limits=CheckPolicies(spike="clamp")).rows(table, 0, HOME)
    assert isinstance(loose, Passed)
    assert loose.flags[9] & GateFlag.SPIKE


def test_the_worst_policy_decides() -> None:
    table = ramp(step=0.2, joint=0)
    table[5, 0] = 9.0
    policies = CheckPolicies(spike="reject_chunk", position="stop", step="clamp")
    assert refused(gate(limits=policies).rows(table, 0, HOME)).stop


@settings(max_examples=100, deadline=None)
@given(
    positions=arrays(np.float64, st.integers(0, 300), elements=st.floats(width=64)),
    gripper=arrays(np.float64, st.integers(0, 40), elements=st.floats(width=64)),
    n=st.integers(0, 40),
)
def test_whatever_comes_what_passes_is_finite_and_inside(
    positions: np.ndarray, gripper: np.ndarray, n: int
) -> None:
    g = gate(limits=CheckPolicies(spike="clamp"))
    table = g.table(chunk(rows=n, positions=positions, gripper=gripper))
    if isinstance(table, Failed):
        return
    with np.errstate(over="ignore"):
        passed = g.rows(table, 0, HOME)
    assert isinstance(passed, Passed)
    low, high = PANDA.limits()
    assert ((passed.positions >= low) & (passed.positions <= high)).all()
