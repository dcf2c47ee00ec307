# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""T0: bits repeat, here and in another process; what does not repeat fails."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest

from cosmos_lite_ros.errors import CosmosLiteError
from cosmos_lite_ros.policy.compare.null_floor import (
    VARIANTS,
    Digests,
    digests,
    judge_null_floor,
    other_process,
    settings_of,
)
from cosmos_lite_ros.policy.engine import EngineSettings, PolicyEngine, SamplerSettings

from .makers import settings_for, small_checkpoint

RIGHT: Digests = {variant: ["a", "b", "a", "b"] for variant in VARIANTS}
THERE: Digests = {variant: ["a", "b"] for variant in VARIANTS}


def test_an_engine_gives_the_same_bits_again_and_in_another_process(tmp_path: Path) -> None:
    folder = small_checkpoint("edge", tmp_path / "edge")
    settings = settings_for(folder, scheme="int8wo", sampler=SamplerSettings(1, 3.0))
    engine = PolicyEngine.load(settings)
    try:
        here = digests(engine)
    finally:
        engine.close()
    (there,) = other_process([settings], timeout_s=120.0)
    judgement = judge_null_floor(here, there)
    assert judgement.verdict == "pass"
    checks = judgement.details["checks"]
    assert [(c["variant"], c["equal"]) for c in checks] == [
        (variant, True) for variant in VARIANTS for _ in range(2)
    ]
    # Two requests of two instructions, and each variant has bits of its own.
    assert len({*here["control"], *here["preview"]}) == 4


@pytest.mark.parametrize("place", range(4))
@pytest.mark.parametrize("variant", VARIANTS)
def test_one_answer_with_other_bits_fails(variant: str, place: int) -> None:
    wrong = {**RIGHT, variant: [*RIGHT[variant][:place], "c", *RIGHT[variant][place + 1 :]]}
    assert judge_null_floor(wrong, THERE).verdict == "fail"
    assert judge_null_floor(RIGHT, THERE).verdict == "pass"


def test_another_process_with_other_bits_fails() -> None:
    other = {**THERE, "preview": ["a", "d"]}
    judgement = judge_null_floor(RIGHT, other)
    assert judgement.verdict == "fail"
    assert [c["equal"] for c in judgement.details["checks"]] == [True, True, True, False]


def test_without_another_process_it_is_undecided() -> None:
    judgement = judge_null_floor(RIGHT, None)
    assert judgement.verdict == "undecided"
    assert judgement.notes == ("no other process was asked",)


def test_settings_survive_the_way_to_the_other_process() -> None:
    settings = EngineSettings(
        "folder", scheme="fp8", sampler=SamplerSettings(3, 2.0, (400.0, 1001.0))
    )
    values = asdict(settings)
    values["sampler"]["guidance_interval"] = [400.0, 1001.0]  # as JSON has it
    assert settings_of(values) == settings


def test_a_process_that_fails_is_reported_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(CosmosLiteError, match="the other process of T0 ended with 1 and said:"):
        other_process([settings_for(tmp_path / "nothing")], timeout_s=60.0)
