# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""From a ChunkRequest message to a request, or to what is wrong with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from cosmos_lite_ros.contract.constants import CHUNK_ROWS, JOINTS, ROW_PERIOD_S
from cosmos_lite_ros.contract.observation import (
    Observation,
    clean_instruction,
    instruction_hash,
)
from cosmos_lite_ros.contract.stamps import message_stamp_ns
from cosmos_lite_ros.errors import BadInputError

if TYPE_CHECKING:
    from cosmos_lite_ros.msg import ChunkRequest

Rows = npt.NDArray[np.float64]

# At least one row of a chunk is the policy's own.
MAX_ROWS = CHUNK_ROWS - 1


@dataclass(frozen=True, eq=False)
class Prefix:
    """Rows of the running chunk that the answer shall continue.

    Attributes:
        positions: [n, 7] rad, the first one for the tick of ``stamp_ns``.
        firm_rows: how many of them run before the answer comes; the others fade.
        stamp_ns: of the request, ROS time.
    """

    positions: Rows
    firm_rows: int
    stamp_ns: int

    def beside(self, observation: Observation) -> tuple[Rows | None, int]:
        """The rows as a chunk of this observation counts them, and how many of the last ones fade.

        Row 0 of a chunk belongs to the instant of its observation, which is mostly older than the
        request: the rows between run straight from the measured joints to the first given one (they
        lie in the past when the chunk arrives). None when no row is left.
        """
        late = round((self.stamp_ns - observation.stamp_ns) * 1e-9 / ROW_PERIOD_S)
        if not -len(self.positions) < late < MAX_ROWS:
            return None, 0
        measured = np.asarray(observation.joint_positions, np.float64)
        share = (np.arange(max(late, 0)) + 1.0)[:, None] / (late + 1.0)
        before = measured + share * (self.positions[0] - measured)
        rows = np.concatenate((before, self.positions[max(-late, 0) :]))[:MAX_ROWS]
        return rows, max(len(rows) - max(late + self.firm_rows, 0), 0)


@dataclass(frozen=True)
class Request:
    """One request; id and epoch are 0 where the node runs freely."""

    instruction: str
    request_id: int = 0
    epoch: int = 0
    prefix: Prefix | None = None

    def continued(self, observation: Observation) -> tuple[Rows | None, int]:
        """What the chunk of an observation is to continue; see ``Prefix.beside``."""
        return (None, 0) if self.prefix is None else self.prefix.beside(observation)


def read_request(message: ChunkRequest) -> Request:
    """The request of a message.

    Raises:
        BadInputError: an unusable instruction or prefix, in one line.
    """
    text = clean_instruction(message.instruction)
    given = message.instruction_sha256
    if given and given != instruction_hash(text):
        raise BadInputError("instruction_sha256 does not belong to the instruction")
    return Request(
        message.instruction, int(message.request_id), int(message.epoch), _prefix(message)
    )


def _prefix(message: ChunkRequest) -> Prefix | None:
    firm, positions = int(message.prefix_rows), np.array(message.prefix_positions, np.float64)
    if not firm and not positions.size:
        return None
    rows, rest = divmod(positions.size, JOINTS)
    if not 1 <= firm <= MAX_ROWS:
        raise BadInputError(f"prefix_rows is {firm}, expected 1 to {MAX_ROWS}, or 0 and no rows")
    if rest or not firm <= rows <= MAX_ROWS:
        raise BadInputError(
            f"prefix_rows is {firm} and prefix_positions has {positions.size} values, expected "
            f"{firm} to {MAX_ROWS} rows of {JOINTS}"
        )
    if not np.isfinite(positions).all():
        raise BadInputError("prefix_positions holds values that are not finite")
    return Prefix(positions.reshape(rows, JOINTS), firm, message_stamp_ns(message))
