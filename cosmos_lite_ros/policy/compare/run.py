# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""One comparison: prepare the checkpoint, record the reference, measure everybody, judge."""

from __future__ import annotations

import gc
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import torch

from cosmos_lite_ros.contract.prompt import Family
from cosmos_lite_ros.errors import BadInputError
from cosmos_lite_ros.kernels.tables import active_table
from cosmos_lite_ros.policy.bench_common import machine
from cosmos_lite_ros.policy.checkpoint import inspect
from cosmos_lite_ros.policy.compare.accepted import accepted_set
from cosmos_lite_ros.policy.compare.gate import (
    NOT_APPLICABLE,
    Judgement,
    judge_chunks,
    judge_forwards,
)
from cosmos_lite_ros.policy.compare.measure import (
    ChunkErrors,
    ForwardErrors,
    measure_chunks,
    measure_forwards,
    reference_chunks,
)
from cosmos_lite_ros.policy.compare.null_floor import (
    Digests,
    digests,
    judge_null_floor,
    other_process,
)
from cosmos_lite_ros.policy.compare.outliers import Planting, plant, plant_in_place, planted_in
from cosmos_lite_ros.policy.compare.requests import (
    DEFAULT_REQUESTS,
    FrozenRequest,
    check_count,
    digest,
    frozen_requests,
)
from cosmos_lite_ros.policy.compare.statistics import Criterion, overall
from cosmos_lite_ros.policy.compare.subjects import EngineSubject, Recording
from cosmos_lite_ros.policy.engine import EngineSettings
from cosmos_lite_ros.policy.random_checkpoint import make_random
from cosmos_lite_ros.policy.sampler import SamplerSettings, schedule
from cosmos_lite_ros.policy.settings import check_settings, device_of
from cosmos_lite_ros.policy.tiny import make_tiny

Report = dict[str, Any]
Say = Callable[[str], None]
OUTLIERS: Final = ("auto", "planted", "none")
TESTS: Final = ("T0", "T1", "T2")
LIMITS_NOTE: Final = (
    "the limits are those of a change of kernels in the same arithmetic; fewer bits may exceed "
    "them and still drive an arm: that is for a closed loop to show, no figure here is a success "
    "rate"
)


@dataclass(frozen=True)
class Candidate:
    """What is compared with the reference; fields as ``EngineSettings`` has them."""

    scheme: str
    attention: str = "auto"
    accumulate: Any = "accurate"
    branches_per_pass: int = 0
    action_arithmetic: Any = "server"

    @property
    def name(self) -> str:
        """The scheme, and whatever is not as it usually is."""
        usual = Candidate(self.scheme)
        more = [
            f"{field} {value}"
            for field, value in asdict(self).items()
            if value != getattr(usual, field)
        ]
        return ", ".join([self.scheme, *more])


@dataclass(frozen=True)
class Comparison:
    """What to compare.

    Attributes:
        checkpoint: folder or Hugging Face id, not quantised.
        candidates: one report each, against one run of the reference.
        revision: commit of a Hugging Face id.
        requests: how many of the frozen requests.
        device: cpu, cuda or cuda:N.
        outliers: ``planted`` into a copy of the checkpoint; ``auto``: where its weights are random.
        planting: how.
        sampler: of all.
        text_residency: of the engines.
        tests: which of T0, T1, T2.
        own: the checkpoint was made for this comparison and may be changed.
    """

    checkpoint: str
    candidates: tuple[Candidate, ...]
    revision: str = ""
    requests: int = DEFAULT_REQUESTS
    device: str = "cpu"
    outliers: str = "auto"
    planting: Planting = field(default_factory=Planting)
    sampler: SamplerSettings = field(default_factory=SamplerSettings)
    text_residency: Any = "pinned"
    tests: tuple[str, ...] = TESTS
    own: bool = False

    def __post_init__(self) -> None:
        """Refuse what cannot be compared, before anything is loaded."""
        if not self.candidates:
            raise BadInputError("found no candidate, expected at least one scheme")
        if self.outliers not in OUTLIERS:
            raise BadInputError(
                f"outliers is {self.outliers!r}, expected one of {', '.join(OUTLIERS)}"
            )
        check_count(self.requests)
        for test in self.tests:
            if test not in TESTS:
                raise BadInputError(f"test is {test!r}, expected some of {', '.join(TESTS)}")
        for candidate in self.candidates:
            check_settings(self.settings(self.checkpoint, candidate))

    def settings(self, folder: str, candidate: Candidate | None = None) -> EngineSettings:
        """Of the candidate's engine, or of the reference's."""
        values = asdict(candidate or Candidate("bf16"))
        return EngineSettings(
            checkpoint=folder,
            profile="compare",
            device=self.device,
            dtype="bfloat16",
            sampler=self.sampler,
            text_residency=self.text_residency,
            **values,
        )


def compare(comparison: Comparison, say: Say) -> Report:
    """Run it.

    Raises:
        CosmosLiteError: whatever keeps it from being run.
    """
    device = device_of(comparison.device)
    with _checkpoint(comparison, say) as (folder, report):
        requests = frozen_requests(comparison.requests)
        reference = comparison.settings(folder)
        floors: dict[EngineSettings, Digests] = {}
        say("loading the reference")
        subject = EngineSubject.load("reference", reference)
        effective = subject.engine.effective
        recordings = _record(subject, requests, say)
        if "T0" in comparison.tests:
            floors[reference] = digests(subject.engine)
        _drop(subject, device)
        judge = _Judge(comparison, recordings, report["random_weights"], say)
        judge.measure_accepted(reference, device)
        found = []
        for candidate in comparison.candidates:
            settings = comparison.settings(folder, candidate)
            say(f"loading {candidate.name}")
            subject = EngineSubject.load(candidate.name, settings)
            tests = judge.measure(subject)
            if "T0" in comparison.tests and settings not in floors:
                floors[settings] = digests(subject.engine)
            found.append((candidate, settings, subject.engine.effective, tests))
            _drop(subject, device)
        floor = _null_floors(floors, say)
    return {
        **report,
        "requests": len(requests),
        "requests_digest": digest(requests),
        "machine": machine(device),
        "gemm_table": _table_digest(device),
        "reference": {"scheme": "bf16", "action_arithmetic": "server", "effective": effective}
        | {"T0": _judged(floor[reference]) if floor else None},
        "accepted": judge.accepted_summary(),
        "candidates": [
            _candidate_report(candidate, engine, ([floor[settings]] if floor else []) + tests)
            for candidate, settings, engine, tests in found
        ],
        "note": LIMITS_NOTE,
    }


def _null_floors(
    floors: dict[EngineSettings, Digests], say: Say
) -> dict[EngineSettings, Judgement]:
    """T0 of each engine, asked again in another process."""
    if not floors:
        return {}
    say("asking again in another process")
    there = other_process(list(floors))
    return {
        settings: judge_null_floor(here, answer)
        for (settings, here), answer in zip(floors.items(), there, strict=True)
    }


class _Judge:
    """The recordings, and the accepted set's errors on them."""

    def __init__(
        self,
        comparison: Comparison,
        recordings: Sequence[Recording],
        random_weights: bool,
        say: Say,
    ):
        self._comparison = comparison
        self._recordings = recordings
        self._random = random_weights
        self._say = say
        self._forwards: dict[str, ForwardErrors] = {}
        self._chunks: dict[str, ChunkErrors] = {}

    def measure_accepted(self, reference: EngineSettings, device: torch.device) -> None:
        """Every member, one after the other."""
        if not {"T1", "T2"} & set(self._comparison.tests):
            return
        for subject in accepted_set(reference, self._say):
            forwards, chunks = self._errors(subject)
            if forwards is not None:
                self._forwards[subject.name] = forwards
            if chunks is not None:
                self._chunks[subject.name] = chunks
            _drop(subject, device)

    def measure(self, subject: Any) -> list[Judgement]:
        """T1 and T2 of a candidate."""
        forwards, chunks = self._errors(subject)
        judged = []
        if forwards is not None:
            sigmas = [step.sigma for step in schedule(self._comparison.sampler)]
            judged.append(judge_forwards(forwards, self._forwards, sigmas))
        if chunks is not None:
            reference = reference_chunks(self._recordings)
            judged.append(
                judge_chunks(chunks, self._chunks, reference, random_weights=self._random)
            )
        return judged

    def _errors(self, subject: Any) -> tuple[ForwardErrors | None, ChunkErrors | None]:
        c = self._comparison
        forwards = chunks = None
        if "T1" in c.tests:
            guidance = c.sampler.guidance
            forwards = measure_forwards(subject, self._recordings, guidance, self._say)
        if "T2" in c.tests:
            chunks = measure_chunks(subject, self._recordings, self._say)
        return forwards, chunks

    def accepted_summary(self) -> list[Report]:
        """Each member's mean distances from the reference."""
        names = dict.fromkeys([*self._forwards, *self._chunks])
        found = []
        for name in names:
            row: Report = {"name": name}
            if name in self._forwards:
                row["action_l2"] = float(self._forwards[name].action_l2.mean())
                row["video_l2"] = float(self._forwards[name].video_l2.mean())
            if name in self._chunks:
                error = abs(self._chunks[name].signed)
                row["chunk_l1"] = NOT_APPLICABLE if self._random else float(error.mean())
                row["chunk_max"] = NOT_APPLICABLE if self._random else float(error.max())
            found.append(row)
        return found


@contextmanager
def made_checkpoint(family: Family, size: str, say: Say) -> Iterator[str]:
    """Random weights, ``tiny`` or of the ``released`` sizes; deleted afterwards."""
    with tempfile.TemporaryDirectory(prefix="cosmos_lite_ros_") as scratch:
        say(f"making a {size} {family} checkpoint with random weights in {scratch}")
        make = make_tiny if size == "tiny" else make_random
        yield str(make(family, Path(scratch) / family))


@contextmanager
def _checkpoint(comparison: Comparison, say: Say) -> Iterator[tuple[str, Report]]:
    """The folder that everybody loads, and what is to be said of it."""
    info = inspect(comparison.checkpoint, comparison.revision)
    if info.scheme is not None:
        raise BadInputError(
            f"{comparison.checkpoint} is quantised as {info.scheme}, expected the checkpoint that "
            "it was made of: the reference needs its weights"
        )
    report: Report = {
        "level": "request",
        "checkpoint": comparison.checkpoint,
        "revision": comparison.revision,
        "family": info.config.family,
        "random_weights": info.random_weights,
        "planted": None,
    }
    report["planted"] = planted_in(info.folder)
    there = report["planted"] is not None
    wanted = info.random_weights if comparison.outliers == "auto" else True
    if comparison.outliers == "none" or there or not wanted:
        yield str(info.folder), report
        return
    report["planted"] = comparison.planting.describe()
    if comparison.own:
        say("planting outliers")
        plant_in_place(info.folder, comparison.planting)
        yield str(info.folder), report
        return
    say("planting outliers into a copy of the checkpoint")
    with tempfile.TemporaryDirectory(prefix="cosmos_lite_ros_") as scratch:
        folder = plant(info.folder, Path(scratch) / "planted", comparison.planting)
        yield str(folder), report


def _record(subject: EngineSubject, requests: Sequence[FrozenRequest], say: Say) -> list[Recording]:
    recordings = []
    for i, request in enumerate(requests):
        recordings.append(subject.record(request))
        say(f"reference: request {i + 1} of {len(requests)}")
    return recordings


def _drop(subject: Any, device: torch.device) -> None:
    """Give its memory back before the next one is loaded."""
    subject.close()
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def _candidate_report(candidate: Candidate, effective: Report, tests: list[Judgement]) -> Report:
    judged = {judgement.test: _judged(judgement) for judgement in tests}
    return {
        "name": candidate.name,
        **asdict(candidate),
        "effective": effective,
        **judged,
        "verdict": overall([judgement.verdict for judgement in tests]),
    }


def _judged(judgement: Judgement) -> Report:
    return {
        "verdict": judgement.verdict,
        "criteria": [_criterion(c) for c in judgement.criteria],
        **judgement.details,
        "notes": list(judgement.notes),
    }


def _criterion(criterion: Criterion) -> Report:
    return {
        "name": criterion.name,
        **asdict(criterion.figure),
        "limit": criterion.limit,
        "verdict": criterion.verdict if criterion.judged else "reported",
    }


def _table_digest(device: torch.device) -> str | None:
    return active_table(device).digest if device.type == "cuda" else None
