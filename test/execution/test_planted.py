# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Every check passes as the code is, and fails under the bug that it is there for."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .planted import PLANTED, Planted

CHECKS = sorted({bug.caught_by for bug in PLANTED}, key=lambda check: check.__name__)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_code_passes(check: Callable[[], None]) -> None:
    check()


@pytest.mark.parametrize("bug", PLANTED, ids=lambda bug: bug.name)
def test_a_planted_bug_is_caught(bug: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    bug.plant(monkeypatch)
    # Only what a check asserts counts: a crash of a badly planted bug would prove nothing.
    with pytest.raises(AssertionError):
        bug.caught_by()


def test_the_list_has_what_executors_get_wrong() -> None:
    names = {bug.name for bug in PLANTED}
    assert len(names) == len(PLANTED) >= 30
    assert names >= {
        "drop_by_estimate",
        "no_epoch",
        "zeros_on_underrun",
        "clip_before_finite",
        "naive_clamp",
        "resume_without_preflight",
    }
