# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Requests with rows to continue: what is refused, and which rows of the chunk they become."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cosmos_lite_ros.contract.observation import Observation
from cosmos_lite_ros.errors import BadInputError
from cosmos_lite_ros.ros.policy_intake import read_request

NS = 1_000_000_000
AT_S = 1_700_000_000
ROWS = 0.5 + 0.01 * np.arange(5)[:, None] * np.ones(7)


def message(rows: int = 3, positions: Any = ROWS, **fields: Any) -> Any:
    """Shaped like ChunkRequest."""
    stamp = SimpleNamespace(sec=AT_S, nanosec=0)
    values = {
        "header": SimpleNamespace(stamp=stamp),
        "request_id": 4,
        "epoch": 9,
        "instruction": "go",
        "instruction_sha256": "",
        "prefix_rows": rows,
        "prefix_positions": np.ravel(positions),
        **fields,
    }
    return SimpleNamespace(**values)


def observation(rows_ago: float) -> Observation:
    stamp = AT_S * NS - int(rows_ago * NS / 15)
    return Observation(
        np.zeros((540, 640, 3), np.uint8), np.full(7, 0.2), 0.0, "go", stamp_ns=stamp
    )


def test_without_rows() -> None:
    request = read_request(message(0, []))
    assert (request.instruction, request.request_id, request.epoch) == ("go", 4, 9)
    assert request.continued(observation(1)) == (None, 0)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"rows": 0}, "prefix_rows is 0, expected 1 to 31, or 0 and no rows"),
        ({"rows": 32, "positions": np.zeros((32, 7))}, "prefix_rows is 32, expected 1 to 31"),
        ({"rows": 3, "positions": []}, "prefix_positions has 0 values, expected 3 to 31 rows of 7"),
        ({"rows": 6}, "prefix_rows is 6 and prefix_positions has 35 values"),
        ({"positions": np.zeros(36)}, "36 values, expected 3 to 31 rows of 7"),
        ({"positions": np.zeros((5, 8))}, "40 values"),
        ({"positions": np.zeros((32, 7))}, "224 values"),
        ({"positions": np.where(ROWS > 0.53, np.nan, ROWS)}, "not finite"),
        ({"positions": np.where(ROWS > 0.53, np.inf, ROWS)}, "not finite"),
        ({"instruction": "  "}, "the instruction is empty"),
        ({"instruction_sha256": "0" * 64}, "does not belong"),
    ],
)
def test_what_cannot_be_continued_is_refused(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInputError) as error:
        read_request(message(**fields))
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_rows_are_counted_from_the_observation() -> None:
    request = read_request(message())
    # Taken at the tick of the request: as they are, the last two fade.
    rows, fade = request.continued(observation(0.4))
    np.testing.assert_array_equal(rows, ROWS)
    assert fade == 2
    # Two ticks older: the rows between lead from the measured 0.2 rad to the first.
    rows, fade = request.continued(observation(2.3))
    assert rows is not None
    np.testing.assert_allclose(rows[:2], [[0.3] * 7, [0.4] * 7])
    np.testing.assert_array_equal(rows[2:], ROWS)
    assert fade == 2
    # Newer than the request, which had to wait for it: the first row is over.
    rows, fade = request.continued(observation(-1.0))
    np.testing.assert_array_equal(rows, ROWS[1:])
    assert fade == 2
    rows, fade = request.continued(observation(-4.0))
    np.testing.assert_array_equal(rows, ROWS[4:])
    assert fade == 1


def test_rows_beside_the_chunk_are_none_of_it() -> None:
    request = read_request(message())
    for rows_ago in (-5.0, -1e6, 31.0, 1e6):
        assert request.continued(observation(rows_ago)) == (None, 0)
    # At the end of the chunk as many as fit, all firm.
    rows, fade = request.continued(observation(28.6))
    assert rows is not None
    assert (rows.shape, fade) == ((31, 7), 0)
    np.testing.assert_array_equal(rows[-2:], ROWS[:2])
