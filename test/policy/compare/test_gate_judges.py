# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""T1 and T2 on made-up errors, where what is right is known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cosmos_lite_ros.policy.compare.gate import (
    COLUMNS,
    NOT_APPLICABLE,
    false_alarms,
    judge_chunks,
    judge_forwards,
)
from cosmos_lite_ros.policy.compare.measure import ChunkErrors, ForwardErrors

from .makers import named, verdicts

COUNT = 64
SIGMAS = (1.0, 0.833)


def forwards(seed: int, *, count: int = COUNT, factor: float = 1.0, bias: Any = 0.0) -> Any:
    """Errors of rounding: independent in every row and request, plus a bias."""
    random = np.random.RandomState(seed)
    signed = factor * 0.01 * random.standard_normal((count, 2, 2, 32, 8)) + bias
    lengths = np.linalg.norm(signed, axis=(3, 4)) / 16.0
    video = (factor * 0.01 * random.standard_normal((count, 2000))).astype(np.float32)
    return ForwardErrors(lengths, lengths.copy(), lengths.mean(axis=2), signed, video)


def chunks(
    seed: int, *, count: int = COUNT, factor: float = 1.0, chunk: Any = None, signed: Any = None
) -> ChunkErrors:
    random = np.random.RandomState(seed)
    if signed is None:
        signed = factor * 0.02 * random.standard_normal((count, 32, 8))
    if chunk is None:
        chunk = smooth(count) + signed
    return ChunkErrors(chunk, signed, np.full(count, 0.01), np.zeros(count))


def smooth(count: int = COUNT) -> Any:
    """Chunks that move evenly; the gripper open in half of them."""
    ramp = np.linspace(0.0, 0.5, 32)[None, :, None] * np.ones((count, 1, 8))
    ramp[..., 7] = (np.arange(count) % 2)[:, None]
    return ramp


ACCEPTED_FORWARDS = {"a": forwards(1), "b": forwards(2)}
ACCEPTED_CHUNKS = {"a": chunks(1), "b": chunks(2)}


def test_t1_passes_another_draw_of_the_same_rounding() -> None:
    judgement = judge_forwards(forwards(3), ACCEPTED_FORWARDS, SIGMAS)
    assert judgement.verdict == "pass"
    assert len(judgement.criteria) == 2 * 2 + 8 + 2
    steps = judgement.details["steps"]
    assert [s["weight"] for s in steps] == list(SIGMAS)
    assert steps[0]["action"]["accepted"] == pytest.approx(0.01, rel=0.02)
    assert [j["joint"] for j in judgement.details["joints"]] == list(COLUMNS)


@pytest.mark.parametrize(("factor", "expected"), [(1.8, "pass"), (2.0, "undecided"), (2.3, "fail")])
def test_t1_judges_the_distance(factor: float, expected: str) -> None:
    judgement = judge_forwards(forwards(3, factor=factor), ACCEPTED_FORWARDS, SIGMAS)
    found = verdicts(judgement, "p95 ratio")
    assert expected in found
    assert named(judgement, "video, step 1: p95 ratio")[0].figure.value == pytest.approx(
        factor, rel=0.03
    )


def test_t1_judges_the_bias_of_each_joint() -> None:
    bias = np.zeros(8)
    bias[3] = 0.004  # 0.4 of the accepted standard deviation
    judgement = judge_forwards(forwards(3, bias=bias), ACCEPTED_FORWARDS, SIGMAS)
    assert verdicts(judgement, "p95 ratio") == {"pass"}
    assert verdicts(judgement, "bias of q4") == {"fail"}
    assert all(verdicts(judgement, f"bias of {c}") == {"pass"} for c in COLUMNS if c != "q4")
    row = judgement.details["joints"][3]
    assert row["bias"] == pytest.approx(0.4, abs=0.02)
    assert row["by_step"] == pytest.approx([0.4, 0.4], abs=0.03)
    assert judgement.verdict == "fail"


def test_t1_finds_an_error_that_comes_back_with_alternating_signs() -> None:
    """No joint is biased, and yet the same row is wrong by the same amount in every request."""
    signs = np.where(np.arange(32) % 2, 1.0, -1.0)[:, None]
    judgement = judge_forwards(forwards(3, bias=0.004 * signs), ACCEPTED_FORWARDS, SIGMAS)
    assert all(verdicts(judgement, f"bias of {c}") == {"pass"} for c in COLUMNS)
    assert verdicts(judgement, "action rows: same error in every request") == {"fail"}


def test_few_requests_decide_nothing() -> None:
    accepted = {"a": forwards(1, count=3)}
    judgement = judge_forwards(forwards(3, count=3), accepted, SIGMAS)
    assert judgement.verdict == "undecided"
    assert judgement.notes == ("3 requests, at least 4 are needed for a verdict",)


def test_a_member_with_the_references_bits_is_no_second_opinion() -> None:
    same = ForwardErrors(*(np.zeros_like(v) for v in vars(ACCEPTED_FORWARDS["a"]).values()))
    judgement = judge_forwards(forwards(3), {"same": same, **ACCEPTED_FORWARDS}, SIGMAS)
    alone = judge_forwards(forwards(3), ACCEPTED_FORWARDS, SIGMAS)
    assert [c.figure for c in judgement.criteria] == [c.figure for c in alone.criteria]
    assert "same gives the reference's bits" in judgement.notes[0]
    nothing = judge_forwards(forwards(3), {"same": same}, SIGMAS)
    assert nothing.verdict == "undecided"
    assert "no limit is known" in nothing.notes[-1]


@pytest.mark.parametrize(
    ("factor", "expected"), [(1.0, "pass"), (1.15, "pass"), (1.25, "undecided"), (1.4, "fail")]
)
def test_t2_judges_the_chunk(factor: float, expected: str) -> None:
    judgement = judge_chunks(
        chunks(3, factor=factor), ACCEPTED_CHUNKS, smooth(), random_weights=True
    )
    assert judgement.verdict == expected
    assert named(judgement, "chunk: L1 ratio")[0].figure.value == pytest.approx(factor, rel=0.02)


def test_t2_judges_the_largest_error() -> None:
    signed = 0.02 * np.random.RandomState(3).standard_normal((COUNT, 32, 8))
    signed[::4, 5, 2] = 0.15  # one entry of every fourth chunk
    judgement = judge_chunks(
        chunks(0, signed=signed), ACCEPTED_CHUNKS, smooth(), random_weights=True
    )
    assert verdicts(judgement, "L1 ratio") == {"pass"}
    assert verdicts(judgement, "Linf p95 ratio") == {"fail"}


def test_random_weights_say_nothing_in_radians() -> None:
    judgement = judge_chunks(chunks(3), ACCEPTED_CHUNKS, smooth(), random_weights=True)
    assert judgement.details["physical"] == NOT_APPLICABLE
    assert all(row["mean_abs"] == NOT_APPLICABLE for row in judgement.details["joints"])
    assert not [c for c in judgement.criteria if "rad" in c.name or "flips" in c.name]


def test_trained_weights_are_judged_by_spikes_flips_and_steps() -> None:
    judgement = judge_chunks(chunks(3), ACCEPTED_CHUNKS, smooth(), random_weights=False)
    assert judgement.verdict == "pass"
    assert judgement.details["joints"][0]["mean_abs"] == pytest.approx(0.016, rel=0.1)
    for name in ("spikes above 0.5 rad: share beyond the accepted", "gripper flips: share"):
        assert any(c.name.startswith(name) for c in judgement.criteria)


def test_a_spike_a_flip_and_a_jump_are_found() -> None:
    plain = chunks(3)
    for place, amount, name in (
        ((slice(None), 10, 2), 0.6, "spikes above 0.5 rad"),
        ((slice(None), slice(0, 3), 7), 1.0, "gripper flips"),
        ((slice(None), slice(9, None), 4), 0.3, "steps longer than the accepted p99.9"),
    ):
        signed = plain.signed.copy()
        # The gripper is turned over; a joint is moved.
        signed[place] += amount if name != "gripper flips" else 1.0 - 2.0 * smooth()[place]
        wrong = chunks(3, signed=signed)
        judgement = judge_chunks(wrong, ACCEPTED_CHUNKS, smooth(), random_weights=False)
        found = {c.name: c.verdict for c in judgement.criteria if c.name.startswith(name)}
        assert list(found.values()) == ["fail"], name


def test_false_alarms_grow_with_fewer_requests() -> None:
    def rate(count: int) -> float:
        random = np.random.RandomState(9)
        # Chunks differ in how far rounding carries them, as those of real requests do.
        size = random.lognormal(0.0, 0.4, (2, count, 1, 1))
        signed = 0.02 * size * random.standard_normal((2, count, 32, 8))
        return false_alarms([chunks(0, count=count, signed=s) for s in signed])

    few, many = rate(16), rate(256)
    assert 0.02 < few < 0.4
    assert many < 0.2 * few
