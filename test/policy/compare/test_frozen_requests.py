# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The frozen requests: the same bits everywhere, today and later."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from cosmos_lite_ros.contract.observation import STACKED
from cosmos_lite_ros.contract.robots import PANDA
from cosmos_lite_ros.errors import BadInputError
from cosmos_lite_ros.policy.compare.requests import (
    DEFAULT_REQUESTS,
    INSTRUCTIONS,
    digest,
    frozen_requests,
)

# Of the first four. Another value means that figures of before and after cannot be compared.
DIGEST = "3bca9d134877"


def test_they_are_frozen() -> None:
    assert digest(frozen_requests(4)).startswith(DIGEST)
    assert digest(frozen_requests(3)) != digest(frozen_requests(4))


def test_a_longer_list_starts_with_the_shorter_one() -> None:
    short, long = frozen_requests(2), frozen_requests(5)
    assert digest(long[:2]) == digest(short)


def test_each_is_a_valid_request_of_its_own() -> None:
    requests = frozen_requests(DEFAULT_REQUESTS // 4)
    assert len({r.seed for r in requests}) == len(requests)
    assert len({r.observation.digest() for r in requests}) == len(requests)
    for request in requests:
        seen = request.observation
        views = np.stack(seen.image)
        assert views.shape == STACKED
        # Neither flat nor noise: light that changes across the picture, and texture.
        assert all(20.0 < view.std() < 110.0 for view in views)
        rows = views.astype(np.float64)
        assert np.abs(np.diff(rows, axis=2)).mean() < 10.0
        lower, upper = PANDA.limits()
        assert np.all((lower < seen.joint_positions) & (seen.joint_positions < upper))
        assert 0.0 <= seen.gripper <= 1.0


def test_text_that_stays_from_the_request_before_must_show() -> None:
    instructions = [r.observation.instruction for r in frozen_requests(2 * len(INSTRUCTIONS))]
    assert all(a != b for a, b in pairwise(instructions))
    assert len({len(text.split()) for text in INSTRUCTIONS}) >= 5


@pytest.mark.parametrize("count", [0, -1, 4097])
def test_a_number_that_makes_no_sense_is_refused(count: int) -> None:
    with pytest.raises(BadInputError, match=f"found {count} requests"):
        frozen_requests(count)
