# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The text store: what is kept, what is counted, and that eviction harms nobody."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from cosmos_lite_ros.errors import EnvironmentLacksError
from cosmos_lite_ros.policy.cards import CardFolder
from cosmos_lite_ros.policy.checkpoint import inspect
from cosmos_lite_ros.policy.text_cache import TextStore
from cosmos_lite_ros.policy.text_tower import TextKV, TextTower

from ..conftest import GOLDEN, REPOSITORY

CPU = torch.device("cpu")
PROMPTS = [[5, 6, 7], [5, 6, 8], list(range(20, 60))]


def make_tower(family: str = "edge", dtype: torch.dtype = torch.bfloat16) -> TextTower:
    return TextTower(inspect(str(GOLDEN / family / "checkpoint")), CPU, dtype, "mmap")


def digest(kv: TextKV) -> str:
    """SHA-256 of both tensors' bytes."""
    both = torch.stack([kv.keys, kv.values]).view(torch.uint8).numpy()
    return hashlib.sha256(both.tobytes()).hexdigest()


def counts(store: TextStore) -> tuple[int, int, int]:
    return store.hits, store.card_hits, store.misses


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("family", ["edge", "nano"])
def test_cached_equals_recomputed(family: str, dtype: torch.dtype) -> None:
    store = TextStore(make_tower(family, dtype).compute, 4)
    first = [digest(store.get(p)) for p in PROMPTS]
    assert counts(store) == (0, 0, 3)
    assert [digest(store.get(p)) for p in PROMPTS] == first
    assert counts(store) == (3, 0, 3)
    store.clear()
    assert store.nbytes == 0
    # Backwards, by another tower: nothing before a prompt matters.
    other = TextStore(make_tower(family, dtype).compute, 4)
    assert [digest(other.get(p)) for p in reversed(PROMPTS)] == first[::-1]
    assert [digest(store.get(p)) for p in PROMPTS] == first
    assert counts(store) == (3, 0, 6)
    assert len(set(first)) == 3
    store.reset_counters()
    assert counts(store) == (0, 0, 0)


def test_cached_equals_recomputed_in_a_fresh_process() -> None:
    store = TextStore(make_tower().compute, 4)
    store.get(PROMPTS[1])
    store.get(PROMPTS[2])
    code = (
        "import torch; from test.policy.test_text_cache import *;"
        f"torch.set_num_threads({torch.get_num_threads()});"
        "print(digest(make_tower().compute(PROMPTS[2])))"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, cwd=REPOSITORY
    )
    assert run.stdout.strip() == digest(store.get(PROMPTS[2])), run.stderr
    assert store.hits == 1


def test_the_least_used_goes_first() -> None:
    store = TextStore(make_tower().compute, 2)
    a, b, c = PROMPTS
    store.get(a)
    store.get(b)
    store.get(a)
    store.get(c)  # b goes
    store.get(a)
    assert counts(store) == (2, 0, 3)
    store.get(b)
    assert counts(store) == (2, 0, 4)
    assert store.nbytes == sum(kv.nbytes for kv in (store.get(a), store.get(b)))


def test_eviction_of_an_entry_in_use_is_harmless() -> None:
    store = TextStore(make_tower().compute, 1)
    held = store.get(PROMPTS[2])
    before = digest(held)
    for first in range(100, 140):  # forty other prompts pass through one place
        store.get([first, *PROMPTS[2]])
    assert digest(held) == before
    store.clear()
    assert digest(held) == before
    again = store.get(PROMPTS[2])
    assert again is not held
    assert digest(again) == before


def test_a_card_hit_runs_no_tower(tmp_path: Path) -> None:
    tower = make_tower()
    cards = CardFolder(tmp_path, inspect(str(GOLDEN / "edge" / "checkpoint")), torch.bfloat16)
    for prompt in PROMPTS[:2]:
        cards.save(prompt, tower.compute(prompt), "test")
    none = TextTower(inspect(str(GOLDEN / "edge" / "checkpoint")), CPU, torch.bfloat16, "none")
    store = TextStore(none.compute, 4, cards)
    for prompt in PROMPTS[:2]:
        assert digest(store.get(prompt)) == digest(tower.compute(prompt))
    store.get(PROMPTS[0])
    assert counts(store) == (1, 2, 0)
    assert digest(store.make(PROMPTS[1])) == digest(tower.compute(PROMPTS[1]))
    assert counts(store) == (1, 2, 0)
    with pytest.raises(EnvironmentLacksError, match="prewarm"):
        store.get(PROMPTS[2])
    assert digest(store.get(PROMPTS[0])) == digest(tower.compute(PROMPTS[0]))
    # The tower's own results are not written: a robot may hear any number of instructions.
    TextStore(tower.compute, 4, cards).get(PROMPTS[2])
    assert len(list(tmp_path.iterdir())) == 2
