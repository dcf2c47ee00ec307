# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Intervals hold what they promise, and verdicts follow from them."""

from __future__ import annotations

import numpy as np
import pytest

from cosmos_lite_ros.policy.compare.statistics import (
    MIN_REQUESTS,
    Criterion,
    Interval,
    bootstrap,
    expanded_tail,
    mean_over,
    mean_ratio,
    overall,
    quantile_ratio,
    student_t,
    systematic_share,
)


# From printed tables of Student's t.
@pytest.mark.parametrize(
    ("probability", "freedom", "expected"),
    [
        (0.975, 1, 12.706),
        (0.975, 2, 4.303),
        (0.975, 3, 3.182),
        (0.975, 7, 2.365),
        (0.975, 63, 1.998),
        (0.995, 10, 3.169),
    ],
)
def test_quantiles_of_students_t(probability: float, freedom: int, expected: float) -> None:
    assert student_t(probability, freedom) == pytest.approx(expected, rel=6e-3)


def test_intervals_of_few_requests_are_wider() -> None:
    assert expanded_tail(1000) == pytest.approx(0.025, rel=0.02)
    # Hesterberg 2015, table of adjusted tails: 0.0031 ... 0.0076 between n = 5 and 10.
    assert 1e-4 < expanded_tail(5) < expanded_tail(10) < 0.014


def test_an_interval_covers_the_truth_as_often_as_it_says() -> None:
    random = np.random.RandomState(3)
    covered, runs, count = 0, 200, 12
    for _ in range(runs):
        values = random.standard_exponential(count)
        found = bootstrap(lambda i, v=values: v[i].mean(axis=1), count)
        covered += found.low <= 1.0 <= found.high
    # A skew sample of twelve: the plain percentile interval covers 0.89 of them.
    assert covered / runs >= 0.90


def test_pairing_removes_what_both_share() -> None:
    random = np.random.RandomState(4)
    difficulty = random.lognormal(0.0, 1.0, (64, 1))
    accepted = difficulty * random.uniform(0.9, 1.1, (64, 2))
    candidate = difficulty * random.uniform(0.9, 1.1, (64, 1))
    paired = mean_ratio(candidate, accepted)
    apart = mean_ratio(candidate, accepted[::-1])
    assert paired.low <= 1.0 <= paired.high
    assert paired.high - paired.low < 0.3 * (apart.high - apart.low)


def test_quantile_ratio_by_hand() -> None:
    accepted = np.arange(1.0, 21.0)[:, None]
    found = quantile_ratio(3.0 * accepted, accepted)
    assert found.value == pytest.approx(3.0)
    assert found.low == pytest.approx(3.0)
    assert found.high == pytest.approx(3.0)


def test_bias_is_the_mean_over_the_spread() -> None:
    values = np.array([0.3, 0.5, 0.4, 0.6])
    found = mean_over(values, 2.0)
    assert found.value == pytest.approx(0.225)
    assert mean_over(-values, 2.0) == found
    crossing = mean_over(np.array([-1.0, 1.0, -1.0, 1.2]), 1.0)
    assert crossing.low == 0.0
    assert crossing.high > 0.5


@pytest.mark.parametrize("share", [0.0, 0.1, 0.25, 1.0])
def test_what_is_the_same_in_every_request_is_found(share: float) -> None:
    random = np.random.RandomState(5)
    noise = random.standard_normal((8, 50_000))
    common = share * random.standard_normal(50_000)
    errors = noise + common
    found = systematic_share(errors @ errors.T, np.full(8, 50_000.0))
    assert found.value == pytest.approx(share, abs=0.02 if share else 0.04)
    assert found.low <= share + 0.01
    assert found.high >= share - 0.01


def test_no_error_at_all_is_zero_and_not_nothing_over_nothing() -> None:
    nothing = np.zeros((6, 1))
    assert mean_ratio(nothing, nothing) == Interval(0.0, 0.0, 0.0)
    assert quantile_ratio(nothing, np.ones((6, 1))) == Interval(0.0, 0.0, 0.0)
    assert systematic_share(np.zeros((6, 6)), np.ones(6)) == Interval(0.0, 0.0, 0.0)
    assert mean_ratio(np.ones((6, 1)), nothing).value == float("inf")


@pytest.mark.parametrize(
    ("figure", "requests", "expected"),
    [
        (Interval(1.0, 0.5, 1.9), 64, "pass"),
        (Interval(1.0, 0.5, 2.0), 64, "pass"),
        (Interval(1.9, 1.5, 2.4), 64, "undecided"),
        (Interval(2.5, 1.9, 3.0), 64, "undecided"),
        (Interval(3.0, 2.1, 4.0), 64, "fail"),
        (Interval(1.0, 0.5, 1.9), MIN_REQUESTS - 1, "undecided"),
        (Interval(9.0, 8.0, 10.0), MIN_REQUESTS - 1, "undecided"),
        (Interval(float("inf"), float("inf"), float("inf")), 64, "fail"),
        (Interval(float("nan"), float("nan"), float("nan")), 1, "fail"),
    ],
)
def test_the_whole_interval_decides(figure: Interval, requests: int, expected: str) -> None:
    assert Criterion("ratio", figure, 2.0, requests).verdict == expected


def test_the_worst_verdict_counts() -> None:
    assert overall(["pass", "pass"]) == "pass"
    assert overall(["pass", "undecided"]) == "undecided"
    assert overall(["undecided", "fail", "pass"]) == "fail"
    assert overall([]) == "undecided"
