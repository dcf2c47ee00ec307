# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""``prewarm`` as a user runs it, and its cards as an engine reads them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from cosmos_lite_ros.cli.prewarm import read_instructions
from cosmos_lite_ros.contract.prompt import build_prompt
from cosmos_lite_ros.errors import BadInputError
from cosmos_lite_ros.policy.cards import CardFolder
from cosmos_lite_ros.policy.checkpoint import inspect
from cosmos_lite_ros.policy.text_cache import TextStore
from cosmos_lite_ros.policy.text_tower import TextTower
from cosmos_lite_ros.policy.tokenizer import PromptTokenizer

from ..conftest import GOLDEN
from .test_act import invoke, run

FILE = "# of the kitchen\npick up the [red] banana\n\n  put the cup on the plate \r\n"
TEXTS = ["pick up the [red] banana", "put the cup on the plate"]
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def make_arguments(folder: Path, family: str = "edge", text: str = FILE) -> list[object]:
    file = folder / "instructions.txt"
    file.write_text(text)
    return [
        *("prewarm", "--checkpoint", GOLDEN / family / "checkpoint"),
        *("--instructions", file, "--cards", folder / "cards"),
    ]


@pytest.mark.parametrize(
    ("family", "dtype", "prompt_format"),
    [("edge", "bfloat16", "auto"), ("nano", "float32", "auto"), ("nano", "bfloat16", "json")],
)
def test_an_engine_without_a_tower_finds_the_cards(
    family: str,
    dtype: str,
    prompt_format: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = make_arguments(tmp_path, family)
    options = ["--dtype", dtype, "--prompt-format", prompt_format]
    assert invoke(*arguments, *options) == 0
    shown = capsys.readouterr().out
    assert shown.count(" made ") == 3
    assert all(text in shown for text in (*TEXTS, "(unconditional)", str(tmp_path / "cards")))
    info = inspect(str(GOLDEN / family / "checkpoint"))
    cpu = torch.device("cpu")
    cards = CardFolder(tmp_path / "cards", info, DTYPES[dtype])
    store = TextStore(TextTower(info, cpu, DTYPES[dtype], "none").compute, 8, cards)
    tower = TextTower(info, cpu, DTYPES[dtype])
    tokenizer = PromptTokenizer(info.tokenizer_folder, info.config.family, info.config.vocab_size)
    for text in ("", *TEXTS):
        ids = tokenizer.encode(build_prompt(text, info.config.family, prompt_format))
        found, computed = store.get(ids), tower.compute(ids)
        assert torch.equal(found.keys, computed.keys)
        assert torch.equal(found.values, computed.values)
    assert (store.hits, store.card_hits, store.misses) == (0, 3, 0)


def test_only_what_is_missing_is_made(tmp_path: Path) -> None:
    first = run(*make_arguments(tmp_path))
    assert first.returncode == 0, first.stderr
    assert first.stdout.count(" made ") == 3
    made = {p: p.stat().st_mtime_ns for p in (tmp_path / "cards").iterdir()}
    damaged = next(iter(made))
    damaged.write_bytes(damaged.read_bytes()[:-1])
    second = run(*make_arguments(tmp_path, text=FILE + "open the drawer\n"))
    assert second.returncode == 0, second.stderr
    assert second.stdout.count(" made ") == 2
    assert second.stdout.count("already there") == 2
    after = {p: p.stat().st_mtime_ns for p in (tmp_path / "cards").iterdir()}
    assert len(after) == 4
    assert {p for p in made if after[p] != made[p]} == {damaged}


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        (["--instructions", "nowhere.txt"], 2, "nowhere.txt cannot be read"),
        (["--dtype", "float16"], 2, "--dtype is 'float16'"),
        (["--device", "tpu"], 2, "expected cpu or cuda"),
        (["--prompt-format", "xml"], 2, "expected auto, json or plain"),
        (["--checkpoint", "/nonexistent/checkpoint"], 2, "neither a folder"),
        (["--cards", __file__], 2, "expected a folder for prompt cards"),
    ],
)
def test_bad_input_is_one_line(
    options: list[str],
    code: int,
    says: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert invoke(*make_arguments(tmp_path), *options) == code
    error = capsys.readouterr().err
    assert says in error
    assert len(error.strip().splitlines()) == 1
    assert not (tmp_path / "cards").exists()


@pytest.mark.skipif(torch.cuda.is_available(), reason="a CUDA GPU is here")
def test_no_gpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(*make_arguments(tmp_path), "--device", "cuda") == 3
    assert "try --device cpu" in capsys.readouterr().err


def test_instruction_files(tmp_path: Path) -> None:
    file = tmp_path / "instructions.txt"
    file.write_text("\ufeffput #3 there\n # no\nput #3 there\na\u2028b\n", encoding="utf-8")
    assert read_instructions(file) == ["put #3 there", "a\u2028b"]
    file.write_text("good\n" + 1001 * "x")
    with pytest.raises(BadInputError, match="line 2: the instruction has 1001 characters"):
        read_instructions(file)
    file.write_text("# nothing\n\n")
    with pytest.raises(BadInputError, match="holds no instruction"):
        read_instructions(file)
    file.write_bytes(b"caf\xe9\n")
    with pytest.raises(BadInputError, match="cannot be read as UTF-8"):
        read_instructions(file)
