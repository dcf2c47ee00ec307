# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""T1 and T2: is the candidate as near to the reference as other kernels of the same arithmetic?

What passes for the same arithmetic is measured in the same run (the accepted set), so no limit is
an absolute number. Limits are those of kernel-level changes; arithmetic in fewer bits may exceed
them, and the figures then say by how much. Nothing here predicts how often a task succeeds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cosmos_lite_ros.contract.constants import JOINTS
from cosmos_lite_ros.policy.compare.measure import ChunkErrors, Floats, ForwardErrors
from cosmos_lite_ros.policy.compare.statistics import (
    MIN_REQUESTS,
    Criterion,
    Interval,
    Verdict,
    bootstrap,
    mean_over,
    mean_ratio,
    overall,
    quantile_ratio,
    systematic_share,
)

# Pass: 95th percentile of the relative L2 distance at most twice the accepted.
FORWARD_LIMIT: Final = 2.0
# Pass: mean signed error at most so much of the accepted standard deviation.
BIAS_LIMIT: Final = 0.25
# Pass: mean absolute and largest error of the chunk beside the accepted.
L1_LIMIT: Final = 1.25
LINF_LIMIT: Final = 1.5
# Of real weights only. A spike is a joint that far from the reference, rad.
SPIKE_RAD: Final = 0.5
FLIP_POINTS: Final = 0.01
# Share of steps inside a chunk that are longer than 99.9 % of the accepted set's: twice the share
# that the accepted set has itself.
STEP_QUANTILE: Final = 0.999
STEP_LIMIT: Final = 0.002
NOT_APPLICABLE: Final = "not applicable: random weights"
COLUMNS: Final = (*(f"q{j}" for j in range(1, JOINTS + 1)), "gripper")
_NULL_RUNS: Final = 2000


@dataclass(frozen=True)
class Judgement:
    """What one test found.

    Attributes:
        test: ``T0``, ``T1`` or ``T2``.
        criteria: what was judged or reported.
        details: tables for people: per step, per joint.
        notes: what a reader must know, one line each.
    """

    test: str
    criteria: tuple[Criterion, ...]
    details: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    decided: Verdict | None = None

    @property
    def verdict(self) -> Verdict:
        """The worst of the judged criteria."""
        return self.decided or overall([c.verdict for c in self.criteria if c.judged])


def judge_forwards(
    candidate: ForwardErrors, accepted: Mapping[str, ForwardErrors], sigmas: Sequence[float]
) -> Judgement:
    """T1 against the accepted set.

    Args:
        candidate: its errors.
        accepted: errors of every member by name, on the same requests.
        sigmas: noise level of each step: what a velocity weighs in the command.
    """
    members, notes = _distinct({name: e.action_l2 for name, e in accepted.items()})
    if not members:
        return Judgement("T1", (), {}, tuple(notes), "undecided")
    set_ = [accepted[name] for name in members]
    count, steps, branches = candidate.action_l2.shape
    criteria, per_step = [], []
    for step in range(steps):
        row: dict[str, Any] = {"step": step + 1, "weight": float(sigmas[step])}
        for what, attribute in (("action", "action_l2"), ("video", "video_l2")):
            own = getattr(candidate, attribute)[:, step]
            others = np.concatenate([getattr(e, attribute)[:, step] for e in set_], axis=1)
            figure = quantile_ratio(own, others)
            name = f"{what} rows" if what == "action" else what
            criteria.append(
                Criterion(f"{name}, step {step + 1}: p95 ratio", figure, FORWARD_LIMIT, count)
            )
            row[what] = {
                "relative_l2": [float(own[:, b].mean()) for b in range(branches)],
                "p95": float(np.quantile(own, 0.95)),
                "accepted": float(others.mean()),
                "accepted_p95": float(np.quantile(others, 0.95)),
            }
        row["guided"] = {
            "relative_l2": float(candidate.guided_l2[:, step].mean()),
            "accepted": float(np.mean([e.guided_l2[:, step] for e in set_])),
        }
        per_step.append(row)
    biases, per_joint = _biases(candidate.signed, [e.signed for e in set_])
    criteria += biases
    rows = [e.signed.reshape(count, -1) for e in (candidate, *set_)]
    video = [e.video for e in (candidate, *set_)]
    for name, figure in (("action rows", _systematic(rows)), ("video", _systematic(video))):
        criteria.append(
            Criterion(f"{name}: same error in every request", figure, BIAS_LIMIT, count)
        )
    details = {"steps": per_step, "joints": per_joint}
    return Judgement("T1", tuple(criteria), details, (*notes, *_few(count)))


def judge_chunks(
    candidate: ChunkErrors,
    accepted: Mapping[str, ChunkErrors],
    reference: Floats,
    *,
    random_weights: bool,
) -> Judgement:
    """T2 against the accepted set.

    Args:
        candidate, accepted: errors of the chunks, on the same requests.
        reference: [n, 32, 8], the reference's chunks.
        random_weights: nothing in rad is said, and what needs a trained policy is not judged.
    """
    members, notes = _distinct({name: e.signed for name, e in accepted.items()})
    if not members:
        return Judgement("T2", (), {}, tuple(notes), "undecided")
    set_ = [accepted[name] for name in members]
    count = len(candidate.signed)
    own, others = np.abs(candidate.signed), [np.abs(e.signed) for e in set_]
    l1 = mean_ratio(_l1([own]), _l1(others))
    linf = quantile_ratio(_linf([own]), _linf(others))
    criteria = [
        Criterion("chunk: L1 ratio", l1, L1_LIMIT, count),
        Criterion("chunk: Linf p95 ratio", linf, LINF_LIMIT, count),
        Criterion(
            "predicted video: relative L2 ratio",
            mean_ratio(candidate.video_l2[:, None], np.stack([e.video_l2 for e in set_], axis=1)),
            L1_LIMIT,
            count,
            judged=False,
        ),
    ]
    if not random_weights:
        criteria += _physical(candidate, set_, reference)
    joints = []
    for j, name in enumerate(COLUMNS):
        figure = mean_ratio(_l1([own[..., j]]), _l1([o[..., j] for o in others]))
        joints.append(
            {"joint": name, "l1_ratio": figure.value, "low": figure.low}
            | {"high": figure.high}
            | _radians(own[..., j], others, j, random_weights)
        )
    details = {
        "joints": joints,
        "picture_relative_l2": float(candidate.latent_l2.mean()),
        "physical": NOT_APPLICABLE if random_weights else "judged",
        "false_alarms": false_alarms(set_),
    }
    return Judgement("T2", tuple(criteria), details, (*notes, *_few(count)))


def false_alarms(accepted: Sequence[ChunkErrors]) -> float:
    """Share of runs of this size in which T2's figures would pass a limit with nothing wrong.

    Runs are drawn from the accepted set itself: one member stands for the candidate, another for
    the accepted set, each on its own draw of the requests. Of the figures, not of their intervals.
    """
    random = np.random.RandomState(11)
    count = len(accepted[0].signed)
    l1 = _l1([np.abs(e.signed) for e in accepted])
    linf = _linf([np.abs(e.signed) for e in accepted])
    size = (_NULL_RUNS, count)
    rows = [random.randint(0, count, size) for _ in range(2)]
    columns = [random.randint(0, len(accepted), size) for _ in range(2)]
    means = [l1[r, c].mean(axis=1) for r, c in zip(rows, columns, strict=True)]
    tails = [np.quantile(linf[r, c], 0.95, axis=1) for r, c in zip(rows, columns, strict=True)]
    alarm = (means[0] > L1_LIMIT * means[1]) | (tails[0] > LINF_LIMIT * tails[1])
    return float(alarm.mean())


def _distinct(errors: Mapping[str, Floats]) -> tuple[list[str], list[str]]:
    """Members that differ from the reference, and a note on each that does not."""
    kept = [name for name, values in errors.items() if np.any(values != 0.0)]
    notes = [
        f"{name} gives the reference's bits: it is no second opinion and is not counted"
        for name in errors
        if name not in kept
    ]
    if not kept:
        notes.append("nothing in the accepted set differs from the reference: no limit is known")
    return kept, notes


def _few(count: int) -> list[str]:
    if count >= MIN_REQUESTS:
        return []
    return [f"{count} requests, at least {MIN_REQUESTS} are needed for a verdict"]


def _biases(own: Floats, others: Sequence[Floats]) -> tuple[list[Criterion], list[dict[str, Any]]]:
    """Per joint: |mean signed error| over the accepted errors' standard deviation.

    Judged over all steps and branches; each step is reported.
    """
    criteria, table = [], []
    count, steps = own.shape[:2]
    stacked = np.stack(others)
    for j, name in enumerate(COLUMNS):
        spread = float(stacked[..., j].std())
        means = own[..., j].mean(axis=(1, 2, 3))
        figure = mean_over(means, spread)
        criteria.append(Criterion(f"bias of {name}", figure, BIAS_LIMIT, count))
        by_step = [
            _share(own[:, s, ..., j].mean(), stacked[:, :, s, ..., j].std()) for s in range(steps)
        ]
        table.append(
            {"joint": name, "bias": figure.value, "low": figure.low, "high": figure.high}
            | {"by_step": by_step}
        )
    return criteria, table


def _systematic(errors: Sequence[npt.NDArray[np.floating[Any]]]) -> Interval:
    """Of the first [n, values]; the others are the accepted set's."""
    own, *others = errors
    lengths = [np.einsum("ij,ij->i", o, o, dtype=np.float64) for o in others]
    products = (own @ own.T).astype(np.float64)
    return systematic_share(products, np.mean(lengths, axis=0, dtype=np.float64))


def _share(mean: float, spread: float) -> float:
    return 0.0 if mean == 0.0 else float(abs(mean) / spread) if spread else float("inf")


def _l1(errors: Sequence[Floats]) -> Floats:
    """[n, members]: mean absolute error of each request."""
    return np.stack([e.reshape(len(e), -1).mean(axis=1) for e in errors], axis=1)


def _linf(errors: Sequence[Floats]) -> Floats:
    """[n, members]: largest absolute error of each request."""
    return np.stack([e.reshape(len(e), -1).max(axis=1) for e in errors], axis=1)


def _radians(own: Floats, others: Sequence[Floats], j: int, random_weights: bool) -> dict[str, Any]:
    if random_weights:
        return {"mean_abs": NOT_APPLICABLE, "p95_max": NOT_APPLICABLE}
    return {
        "mean_abs": float(own.mean()),
        "p95_max": float(np.quantile(own.reshape(len(own), -1).max(axis=1), 0.95)),
        "accepted_mean_abs": float(np.mean([o[..., j].mean() for o in others])),
    }


def _physical(
    candidate: ChunkErrors, accepted: Sequence[ChunkErrors], reference: Floats
) -> list[Criterion]:
    """Spikes, gripper flips and steps inside the chunk: of a trained policy only."""
    count = len(reference)

    def spikes(errors: Floats) -> Floats:
        found = (np.abs(errors[..., :JOINTS]) > SPIKE_RAD).reshape(count, -1)
        return _each(found)

    closed = reference[..., JOINTS] > 0.5

    def flips(chunk: Floats) -> Floats:
        found = (chunk[..., JOINTS] > 0.5) != closed
        return _each(found)

    def lengths(chunk: Floats) -> Floats:
        return np.abs(np.diff(chunk[..., :JOINTS], axis=1)).reshape(count, -1)

    longest = np.quantile([lengths(e.chunk) for e in accepted], STEP_QUANTILE)
    beyond = _each(lengths(candidate.chunk) > longest)
    own_spikes, own_flips = spikes(candidate.signed), flips(candidate.chunk)
    more_spikes = own_spikes - np.mean([spikes(e.signed) for e in accepted], axis=0)
    more_flips = own_flips - np.mean([flips(e.chunk) for e in accepted], axis=0)
    return [
        Criterion(name, _mean(values), limit, count)
        for name, values, limit in (
            (f"spikes above {SPIKE_RAD} rad: share beyond the accepted", more_spikes, 0.0),
            ("gripper flips: share beyond the accepted", more_flips, FLIP_POINTS),
            ("steps longer than the accepted p99.9: share", beyond, STEP_LIMIT),
        )
    ]


def _each(found: npt.NDArray[np.bool_]) -> Floats:
    shares: Floats = found.mean(axis=1, dtype=np.float64)
    return shares


def _mean(values: Floats) -> Interval:
    return bootstrap(lambda index: values[index].mean(axis=1), len(values))
