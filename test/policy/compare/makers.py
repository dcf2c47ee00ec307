# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""A network small enough to run a gate on in seconds, and the gate's parts on it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from cosmos_lite_ros.policy import tiny
from cosmos_lite_ros.policy.compare.accepted import accepted_set
from cosmos_lite_ros.policy.compare.gate import Judgement, judge_forwards
from cosmos_lite_ros.policy.compare.measure import ForwardErrors, measure_forwards
from cosmos_lite_ros.policy.compare.outliers import Planting, plant_in_place
from cosmos_lite_ros.policy.compare.requests import frozen_requests
from cosmos_lite_ros.policy.compare.statistics import Criterion, Verdict
from cosmos_lite_ros.policy.compare.subjects import EngineSubject, Recording
from cosmos_lite_ros.policy.engine import EngineSettings
from cosmos_lite_ros.policy.sampler import SamplerSettings, schedule

GUIDANCE = 3.0


def small_checkpoint(family: str, folder: Path, planting: Planting | None = None) -> Path:
    """The tiny checkpoint with one head: a forward takes a tenth of a second."""
    plain = tiny._transformer_config
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            tiny, "_transformer_config", lambda name: {**plain(name), "num_attention_heads": 1}
        )
        made = tiny.make_tiny(family, folder)  # type: ignore[arg-type]
    if planting is not None:
        plant_in_place(made, planting)
    return made


def settings_for(folder: Path, **changes: Any) -> EngineSettings:
    """bfloat16 with the reference's arithmetic."""
    values: dict[str, Any] = {"dtype": "bfloat16", "action_arithmetic": "server", **changes}
    return EngineSettings(checkpoint=str(folder), **values)


@dataclass
class Gate:
    """A recorded reference and the accepted set's errors: what every judgement of T1 needs."""

    folder: Path
    reference: EngineSubject
    recordings: list[Recording]
    accepted: dict[str, ForwardErrors]

    def judge(self, subject: Any) -> Judgement:
        """T1 of whoever it is."""
        return self.judge_errors(self.errors(subject))

    def few(self, count: int = 4) -> Gate:
        """The same with the first requests alone: enough for what is plainly wrong."""
        accepted = {
            name: ForwardErrors(**{key: value[:count] for key, value in vars(errors).items()})
            for name, errors in self.accepted.items()
        }
        return Gate(self.folder, self.reference, self.recordings[:count], accepted)

    def errors(self, subject: Any) -> ForwardErrors:
        return measure_forwards(subject, self.recordings, GUIDANCE)

    def judge_errors(
        self, errors: ForwardErrors, accepted: dict[str, ForwardErrors] | None = None
    ) -> Judgement:
        sampler = self.reference.engine.settings.sampler
        sigmas = [step.sigma for step in schedule(sampler)]
        return judge_forwards(errors, accepted or self.accepted, sigmas)

    def engine(self, **changes: Any) -> EngineSubject:
        """Another engine on the same checkpoint."""
        return EngineSubject.load("candidate", settings_for(self.folder, **changes))


def make_gate(folder: Path, count: int, steps: int = 2, members: int = 2) -> Gate:
    """Load, record and measure.

    Args:
        folder: the checkpoint.
        count: frozen requests.
        steps: denoising steps.
        members: of the accepted set.
    """
    settings = settings_for(folder, sampler=SamplerSettings(steps))
    reference = EngineSubject.load("reference", settings)
    recordings = [reference.record(request) for request in frozen_requests(count)]
    gate = Gate(folder, reference, recordings, {})
    for subject in islice(accepted_set(settings, lambda text: None), members):
        gate.accepted[subject.name] = gate.errors(subject)
        subject.close()
    return gate


def named(judgement: Judgement, ending: str) -> list[Criterion]:
    """The criteria whose name ends so, or is so."""
    found = [c for c in judgement.criteria if c.name.endswith(ending)]
    assert found, [c.name for c in judgement.criteria]
    return found


def verdicts(judgement: Judgement, ending: str) -> set[Verdict]:
    return {c.verdict for c in named(judgement, ending)}
