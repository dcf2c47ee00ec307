# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Figures with intervals from few requests, and what they decide.

The bootstrap is paired: requests are drawn again with replacement, and candidate and accepted set
always keep the same requests. Intervals are percentile intervals, expanded for small samples as
Hesterberg (The American Statistician, 2015) describes: the percentiles of a normal deviate of
sqrt(n / (n - 1)) times Student's t.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

Verdict = Literal["pass", "fail", "undecided"]
Floats = npt.NDArray[np.float64]
Index = npt.NDArray[np.int64]

CONFIDENCE: Final = 0.95
RESAMPLES: Final = 2000
# With fewer requests an interval says nothing.
MIN_REQUESTS: Final = 4
_SEED: Final = 7
# Draws evaluated at once: bounds the memory.
_AT_ONCE: Final = 200


@dataclass(frozen=True)
class Interval:
    """A figure and its confidence interval."""

    value: float
    low: float
    high: float


def bootstrap(
    statistic: Callable[[Index], Floats], count: int, *, confidence: float = CONFIDENCE
) -> Interval:
    """The statistic of all requests, and its interval.

    Args:
        statistic: int64 [draws, count] of request numbers -> float64 [draws].
        count: number of requests.
        confidence: of the two-sided interval.
    """
    value = float(statistic(np.arange(count)[None])[0])
    if count < 2 or not np.isfinite(value):
        return Interval(value, value, value)
    draws = np.random.RandomState(_SEED).randint(0, count, (RESAMPLES, count))
    parts = [statistic(draws[i : i + _AT_ONCE]) for i in range(0, RESAMPLES, _AT_ONCE)]
    found = np.concatenate(parts)
    tail = expanded_tail(count, confidence)
    # A draw that says nothing (see ``systematic_share``) is left out.
    low, high = np.nanquantile(found, [tail, 1.0 - tail])
    # An interval that a skew sample leaves beside its own figure would decide nonsense.
    return Interval(value, min(float(low), value), max(float(high), value))


def expanded_tail(count: int, confidence: float = CONFIDENCE) -> float:
    """Share of draws beyond each end of the interval, for so many requests."""
    deviate = student_t(0.5 + confidence / 2.0, count - 1) * (count / (count - 1)) ** 0.5
    return NormalDist().cdf(-deviate)


def student_t(probability: float, freedom: int) -> float:
    """Quantile of Student's t, by the Cornish-Fisher series (Abramowitz and Stegun 26.7.5).

    Within 0.6 % for 3 degrees of freedom at 97.5 %, closer for more; exact for 1 and 2.
    """
    if freedom == 1:
        return float(np.tan(np.pi * (probability - 0.5)))
    if freedom == 2:
        x = 2.0 * probability - 1.0
        return float(x * np.sqrt(2.0 / (1.0 - x * x)))
    z = NormalDist().inv_cdf(probability)
    n = float(freedom)
    terms = (
        (z**3 + z) / (4 * n),
        (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n**2),
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * n**3),
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / (92160 * n**4),
    )
    return z + sum(terms)


def ratio(top: Floats, bottom: Floats) -> Floats:
    """top / bottom; nothing over nothing is 0 (no difference), something over nothing infinite."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(top == 0.0, 0.0, top / bottom)


def quantile_ratio(candidate: Floats, accepted: Floats, quantile: float = 0.95) -> Interval:
    """Ratio of the quantiles of two samples [requests, values of each request]."""

    def statistic(index: Index) -> Floats:
        top, bottom = (
            np.quantile(values[index].reshape(len(index), -1), quantile, axis=1)
            for values in (candidate, accepted)
        )
        return ratio(top, bottom)

    return bootstrap(statistic, len(candidate))


def mean_ratio(candidate: Floats, accepted: Floats) -> Interval:
    """Ratio of the means of two samples [requests, values of each request]."""
    top, bottom = candidate.mean(axis=1), accepted.mean(axis=1)
    return bootstrap(lambda i: ratio(top[i].mean(axis=1), bottom[i].mean(axis=1)), len(candidate))


def mean_over(candidate: Floats, scale: float) -> Interval:
    """|Mean of a sample [requests]| over a scale; its interval is that of the signed mean."""
    signed = bootstrap(
        lambda i: ratio(candidate[i].mean(axis=1), np.asarray(scale)), len(candidate)
    )
    low, high = sorted((abs(signed.low), abs(signed.high)))
    crosses = signed.low <= 0.0 <= signed.high
    return Interval(abs(signed.value), 0.0 if crosses else low, high)


def systematic_share(products: Floats, accepted: Floats) -> Interval:
    """How much of an error is the same in every request, beside the accepted error.

    The products of the errors of *different* requests average to the square of their common part:
    what differs from request to request averages out, without bias.

    Args:
        products: [requests, requests], scalar products of the candidate's error vectors.
        accepted: [requests], mean square length of the accepted error vectors.

    Returns:
        Length of the common part over the root mean square length of the accepted errors.
    """
    count = len(products)
    own = np.diag(products)

    def statistic(index: Index) -> Floats:
        times = np.stack([np.bincount(row, minlength=count) for row in index]).astype(np.float64)
        squares = times**2
        pairs = count**2 - squares.sum(axis=1)
        common = np.einsum("bi,ij,bj->b", times, products, times) - squares @ own
        with np.errstate(divide="ignore", invalid="ignore"):
            # One request drawn every time has no pairs and says nothing.
            mean = np.where(pairs > 0, common / np.maximum(pairs, 1.0), np.nan)
        scale = (times @ accepted) / count
        return np.sqrt(ratio(np.maximum(mean, 0.0), scale))

    if count < 2:
        return Interval(0.0, 0.0, float("inf"))
    return bootstrap(statistic, count)


@dataclass(frozen=True)
class Criterion:
    """One figure, its limit and what follows.

    Attributes:
        name: what it is of.
        figure: value and interval.
        limit: pass at or below it.
        requests: how many it was made of.
        judged: False where the figure is reported and decides nothing.
    """

    name: str
    figure: Interval
    limit: float
    requests: int
    judged: bool = True

    @property
    def verdict(self) -> Verdict:
        """By the whole interval; a figure that is not a number fails."""
        if np.isnan(self.figure.value):
            return "fail"
        if self.requests < MIN_REQUESTS:
            return "undecided"
        if self.figure.low > self.limit:
            return "fail"
        return "pass" if self.figure.high <= self.limit else "undecided"


def overall(verdicts: list[Verdict]) -> Verdict:
    """The worst of them; nothing judged is undecided."""
    if "fail" in verdicts:
        return "fail"
    return "undecided" if "undecided" in verdicts or not verdicts else "pass"
