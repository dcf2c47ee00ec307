# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""``bench request``, ``soak`` and ``fit`` end to end at the tiny size; no times are asserted."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cosmos_lite_ros.contract.prompt import build_prompt
from cosmos_lite_ros.policy.bench_common import (
    INSTRUCTION,
    NEW_INSTRUCTION,
    TEXT_LENGTHS,
    SyntheticTokens,
    Target,
    _instruction_of_length,
)
from cosmos_lite_ros.policy.bench_fit import try_fit
from cosmos_lite_ros.policy.bench_peers import stock_inputs, stock_transformer
from cosmos_lite_ros.policy.bench_request import STAGES
from cosmos_lite_ros.policy.bench_tables import compare, markdown
from cosmos_lite_ros.policy.checkpoint import inspect
from cosmos_lite_ros.policy.layout import ACTION_CHANNELS, ACTION_TOKENS, VIDEO_SHAPE
from cosmos_lite_ros.policy.reference import ReferencePolicy
from cosmos_lite_ros.policy.tokenizer import PromptTokenizer

from .test_act import invoke

TIMES = {"median_ms", "p95_ms", "min_ms", "max_ms", "calls"}
KINDS = {"reserved", "allocated", "card", "host_anonymous"}


def bench(folder: Path, *arguments: object) -> dict[str, Any]:
    file = folder / "report.json"
    assert invoke("bench", *arguments, "--device", "cpu", "--json", file) == 0
    return json.loads(file.read_text())


def test_request_end_to_end(
    tmp_path: Path, tiny_checkpoint: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    report = bench(
        tmp_path,
        *("request", "--family", "edge", "--scheme", "bf16", "--calls", 1, "--duty-calls", 0),
        *("--checkpoint", tiny_checkpoint("edge")),
    )
    shown = capsys.readouterr().out
    assert "image to actions" in shown
    assert "random weights" in shown
    assert set(report) == {
        *("bench", "machine", "target", "options", "effective", "tokens", "load_s", "warm_up_s"),
        *("request", "request_unforeseen_seed", "request_fixed_seed", "first_after_ready"),
        *("stages", "duty_cycle", "new_instruction", "captures", "sameness", "memory"),
        *("card_counts_from", "reference", "peers"),
    }
    assert report["tokens"] == {
        "tokens": "synthetic",
        "instruction": INSTRUCTION,
        "text": 141,
        "unconditional": 12,
    }
    assert set(report["request"]) == TIMES
    assert report["request"]["calls"] == 1
    assert set(report["stages"]) == {f"{name}_ms" for name in STAGES}
    assert set(report["duty_cycle"]) == {"1", "2"}
    assert report["new_instruction"]["text_tower_runs"] == 1
    assert report["sameness"]["repeated_bit_equal"] is True
    assert set(report["memory"]["steady"]) == KINDS
    assert report["memory"]["steady"]["host_anonymous"] > 0
    assert report["effective"]["seed_mode"] == "advance"
    # The same mathematics on diffusers' modules, and no more than bfloat16's rounding apart.
    differences = report["reference"]["differences_max"]
    assert 0 < differences["velocity_cond_step_1_relative_l2"] < 0.02
    assert 0 < differences["velocity_uncond_step_2_relative_l2"] < 0.02
    assert differences["latent_relative_l2"] < 0.03
    assert differences["action_rms"] < 0.05 < differences["action_std_of_reference"]
    assert set(report["peers"]["stock_transformer_4_forwards"]) == TIMES
    assert report["peers"]["stock_vae_encode_33"] is None
    text = markdown(report)
    assert text.count("| this engine, image to actions |") == 1
    assert "| edge, bf16 |" in compare([report]).markdown()


def test_soak_end_to_end(tmp_path: Path, tiny_checkpoint: Callable[[str], Path]) -> None:
    report = bench(
        tmp_path,
        *("soak", "--family", "nano", "--requests", 4, "--checkpoint", tiny_checkpoint("nano")),
    )
    assert set(report) == {
        *("bench", "machine", "target", "effective", "tokens", "requests", "seconds", "request"),
        *("request_of_change_ms", "repeated", "repeated_bit_equal", "captures"),
        *("bytes_per_request", "first_sample", "last_sample", "peak", "card_counts_from"),
        "samples",
    }
    assert report["repeated_bit_equal"] is True
    assert report["repeated"] == len(report["samples"]) == 2
    assert report["request"]["calls"] == 2
    assert set(report["bytes_per_request"]) == KINDS
    assert report["tokens"]["text"] == 95
    assert "| repeated request bit-equal, 2 times | yes |" in markdown(report)


def test_fit_answers_and_says_how_it_went(tiny_checkpoint: Callable[[str], Path]) -> None:
    folder = tiny_checkpoint("edge")
    target = Target("edge", str(folder), device="cpu")
    found = try_fit(target, folder, 1)
    assert found["request"]["calls"] == 1
    report = {
        "bench": "fit",
        "target": {"family": "edge", "scheme": "bf16"},
        "free": 45e8,
        "free_wanted": 45e8,
        "ballast": 1e11,
    }
    assert "| result | passed |" in markdown({**report, **found, "passed": True, "error": None})
    failed = markdown({**report, "passed": False, "error": "out of memory"})
    assert "FAILED: out of memory" in failed


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("fit", "--family", "edge", "--free-gb", 4.5, "--device", "cpu"), 2, "expected cuda"),
        (("request", "--family", "mini", "--device", "cpu"), 2, "expected edge or nano"),
        (("request", "--family", "edge", "--scheme", "int3"), 2, "expected one of float32, bf16"),
        (("request", "--family", "edge", "--calls", 0), 2, "expected at least 1"),
        (("soak", "--family", "edge", "--requests", 3, "--device", "cpu"), 2, "at least 4"),
        (
            ("soak", "--family", "edge", "--checkpoint", "/", "--random-weights"),
            2,
            "expected one of them",
        ),
    ],
)
def test_refusals_are_one_line(
    arguments: tuple[object, ...], code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke("bench", *arguments) == code
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_missing_gpu_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke("bench", "request", "--family", "edge") == 3
    assert "0 CUDA GPUs found" in capsys.readouterr().err


def test_a_checkpoint_of_the_other_family_is_refused(
    tiny_checkpoint: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tiny_checkpoint("nano")
    arguments = ("--family", "edge", "--checkpoint", folder, "--device", "cpu")
    assert invoke("bench", "request", *arguments) == 2
    assert "is an nano checkpoint" in capsys.readouterr().err


@pytest.mark.parametrize("family", ["edge", "nano"])
def test_synthetic_tokens(family: Any) -> None:
    tokens = SyntheticTokens(family, 448)
    usual = tokens.encode(build_prompt(INSTRUCTION, family))
    assert (len(usual), len(tokens.encode(""))) == TEXT_LENGTHS[family]
    assert usual == SyntheticTokens(family, 448).encode(build_prompt(INSTRUCTION, family))
    assert 0 <= min(usual) <= max(usual) < 448
    other = tokens.encode(build_prompt(NEW_INSTRUCTION, family))
    assert len(other) > len(usual)
    assert other[: len(usual)] != usual


def test_a_real_tokenizer_is_padded_to_the_usual_length(
    tiny_checkpoint: Callable[[str], Path],
) -> None:
    folder = tiny_checkpoint("nano")
    tokenizer = PromptTokenizer(folder / "text_tokenizer", "nano", 448)
    bare = len(tokenizer.encode(build_prompt(INSTRUCTION, "nano")))
    one_more = len(tokenizer.encode(build_prompt(INSTRUCTION + " now", "nano")))
    found = _instruction_of_length(tokenizer, "nano", one_more)
    assert one_more > bare
    assert found == INSTRUCTION + " now"


@pytest.mark.parametrize("family", ["edge", "nano"])
def test_the_stock_transformer_does_the_same_work(
    family: str, tiny_checkpoint: Callable[[str], Path]
) -> None:
    """What is timed as a peer gives the velocities of the reference."""
    folder = tiny_checkpoint(family)
    reference = ReferencePolicy(str(folder))
    generator = torch.Generator().manual_seed(0)
    video = torch.randn(VIDEO_SHAPE, generator=generator)
    rows = torch.randn(ACTION_TOKENS, ACTION_CHANNELS, generator=generator)
    ids = list(range(40, 60))
    with torch.inference_mode():
        model = stock_transformer(reference, inspect(str(folder)))
        arguments = stock_inputs(ids, video, rows, 833.0, torch.device("cpu"), torch.float32)
        moved, _, acted = model(**arguments)
        expected = reference.network.forward(video, rows, 833.0, reference.network.text_cache(ids))
    np.testing.assert_allclose(moved[0][:, :, 1:], expected.video, atol=2e-5)
    np.testing.assert_allclose(acted[0][1:], expected.action, atol=2e-5)
