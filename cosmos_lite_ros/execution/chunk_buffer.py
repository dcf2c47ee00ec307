# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The running rows, indexed by tick, and how a new chunk takes their place."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np
import numpy.typing as npt

from cosmos_lite_ros.contract.constants import ROW_PERIOD_S
from cosmos_lite_ros.execution.limiter import Floats, MotionLimits
from cosmos_lite_ros.execution.trajectory import Reference

# Share of the acceleration limit that slowing down before the last row plans with.
_SLOW_DOWN = 0.6
# Slowest deceleration of the progress, rows per tick^2: at most ten rows of slowing down.
_MIN_DECELERATION = 0.05
_BISECTIONS = 24
# Weight of the newer chunk in mode average: what LeRobot's asynchronous inference uses by default.
NEW_SHARE = 0.7


@dataclass(frozen=True, eq=False)
class Rows:
    """Consecutive rows with their origin.

    Attributes:
        positions: float64 [n, joints] rad, what is to be executed.
        requested: float64 [n, joints] rad, the same before the gate clamped anything.
        gripper: float64 [n], raw, 0 open .. 1 closed.
        chunk_ids, chunk_rows: int64 [n], the chunk and the row in it that each row came from.
        flags: int64 [n], what the gate saw at each row.
    """

    positions: Floats
    requested: Floats
    gripper: Floats
    chunk_ids: npt.NDArray[np.int64]
    chunk_rows: npt.NDArray[np.int64]
    flags: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.positions)

    def since(self, row: int) -> Rows:
        """The rows from an index on."""
        return Rows(
            self.positions[row:],
            self.requested[row:],
            self.gripper[row:],
            self.chunk_ids[row:],
            self.chunk_rows[row:],
            self.flags[row:],
        )


class Refusal(Enum):
    """Why a chunk was not taken."""

    FOREIGN = "another epoch"
    EXPIRED = "every row lies in the past"
    OLDER = "its observation is older than that of the running chunk"
    FUTURE = "row 0 lies in the future"


@dataclass(frozen=True)
class Taken:
    """A chunk that was taken, and how many of its rows lay in the past and were dropped."""

    dropped: int


@dataclass(frozen=True, eq=False)
class Point:
    """The row of one tick."""

    requested: Floats
    gripper: float
    chunk_id: int
    row: int
    flags: int


class ChunkBuffer:
    """Rows by tick. ``advance`` moves to the next tick; ``reference`` looks ahead.

    Invariants (``check`` asserts them):
      - every row belongs to the buffer's epoch; ``clear`` leaves none;
      - progress never goes back, never passes the last row, and is a whole row per tick until it
        slows down for the last one;
      - in ``async`` and ``average``, row j of a chunk whose row 0 belongs to tick k0 is the row of
        tick k0 + j: of a chunk taken at tick k exactly k - k0 rows are dropped, by ticks, never by
        estimates;
      - in ``sync`` row 0 belongs to the tick at which motion begins and nothing is dropped;
      - joints cross-fade, in ``average`` over the whole overlap; the gripper does not;
      - the last row is reached with velocity zero unless a newer chunk comes first.
    """

    def __init__(
        self, limits: MotionLimits, blend_rows: int, epoch: int, *, new_share: float = 1.0
    ) -> None:
        """``new_share``: weight of the newer chunk where two overlap; NEW_SHARE in ``average``."""
        self._limits = limits
        self._blend_rows = blend_rows
        self._new_share = new_share
        self.epoch = epoch
        self.clear(epoch)

    def clear(self, epoch: int) -> None:
        """Drop every row and begin an epoch.

        Raises:
            ValueError: the epoch does not grow.
        """
        if epoch < self.epoch:
            raise ValueError(f"epoch {epoch} after {self.epoch}: epochs only grow")
        self.epoch = epoch
        self._rows: Rows | None = None
        # The row before index 0, for the central difference there.
        self._before: Floats | None = None
        self._progress = 0.0
        self._rate = 1.0
        self._deceleration = 1.0
        self._tick: int | None = None
        self._row0_ns: int | None = None

    def drop_finished(self) -> None:
        """Forget rows that have all been given out: the next chunk begins, it is not spliced."""
        if self.finished:
            self._rows = self._before = self._tick = None

    # Taking chunks.

    def offer(
        self,
        rows: Rows,
        *,
        epoch: int,
        tick: int,
        row0_tick: int | None,
        row0_ns: int,
        hold: Floats,
    ) -> Taken | Refusal:
        """Take a chunk at a tick, before that tick's row has been looked up.

        Args:
            rows: all its rows that may be executed (the horizon).
            row0_tick: the tick of row 0's instant; None in ``sync``: row 0 is for the next tick
                that is looked up.
            row0_ns: row 0's instant, for the order of chunks.
            hold: the last command, where motion begins if no row is running.
        """
        if epoch != self.epoch:
            return Refusal.FOREIGN
        drop = 0 if row0_tick is None else tick - row0_tick
        if drop >= len(rows):
            return Refusal.EXPIRED
        if drop < 0:
            return Refusal.FUTURE
        if self._row0_ns is not None and row0_ns < self._row0_ns:
            return Refusal.OLDER
        live = rows.since(drop)
        if row0_tick is None:
            self._set(live, hold, None)
        elif self._rows is None:
            self._set(live, hold, tick - 1)
        else:
            self._splice(live, tick)
        self._row0_ns = row0_ns
        return Taken(drop)

    def upcoming(self, hold: Floats) -> Floats:
        """What the tick after the last one looked up would be given, rad [joints]."""
        if self._rows is None:
            return hold
        return self._at(min(self._progress + 1, self._last))[0]

    def _splice(self, new: Rows, tick: int) -> None:
        """Cross-fade from what is running, which was last looked up at the tick before."""
        ahead = 1 if self._tick is None else tick - self._tick
        before = self._at(self._progress)[0]
        progress = self._progress
        for _ in range(max(ahead - 1, 0)):
            progress, _rate = self._next(progress, self._rate)
            before = self._at(progress)[0]
        weight = self._weights(len(new), math.floor(self._last - progress))[:, None]
        mixed = int((weight < 1).sum())
        if mixed:
            last = self._last
            old = np.array([self._at(min(progress + 1 + i, last))[0] for i in range(mixed)])
            positions, requested = new.positions.copy(), new.requested.copy()
            positions[:mixed] += (1 - weight[:mixed]) * (old - positions[:mixed])
            requested[:mixed] += (1 - weight[:mixed]) * (old - requested[:mixed])
            new = replace(new, positions=positions, requested=requested)
        self._set(new, before, tick - 1)

    def _weights(self, rows: int, overlap: int) -> Floats:
        """Weight of each of the new rows, of which the first ``overlap`` have an old one.

        It grows over ``blend_rows`` rows to ``new_share``, and to 1 over the last ``blend_rows``
        rows of the overlap, so that neither end of it is a step.
        """
        i, fade = np.arange(rows), self._blend_rows + 1
        share = self._new_share
        leaving = np.clip((i - overlap + fade) / fade, 0.0, 1.0)
        return np.minimum((i + 1) / fade, share + (1 - share) * leaving)

    def _set(self, rows: Rows, before: Floats, tick: int | None) -> None:
        """Run these rows; the first one is for tick + 1, or for the next tick looked up."""
        self._rows, self._before = rows, before
        # Slow motion needs no slowing down, fast motion needs several rows of it.
        tail = rows.positions[-8:]
        speed = np.abs(np.diff(tail, axis=0)).max(axis=0, initial=0.0) / ROW_PERIOD_S
        speed = np.minimum(speed, self._limits.velocity)
        able = _SLOW_DOWN * self._limits.acceleration * ROW_PERIOD_S
        ratio = float(np.min(able / np.maximum(speed, able)))
        self._deceleration = max(ratio, _MIN_DECELERATION)
        self._progress, self._rate = -1.0, 1.0
        self._tick = tick

    def pin(self, tick: int) -> None:
        """The row that was looked up last is for ``tick`` (the arm was led to it meanwhile)."""
        self._tick = tick

    # Looking up.

    @property
    def empty(self) -> bool:
        """Whether there are no rows at all."""
        return self._rows is None

    @property
    def finished(self) -> bool:
        """Whether the last row has been given out with velocity zero."""
        return self._rows is None or (self._progress >= self._last and self._rate == 0.0)

    @property
    def rows_left(self) -> int:
        """Rows that have not been given out."""
        return 0 if self._rows is None else self._last - math.floor(self._progress)

    @property
    def position(self) -> Floats | None:
        """The row that was looked up last, rad [joints]; None when empty."""
        return None if self._rows is None else self._at(self._progress)[0]

    @property
    def _last(self) -> int:
        return 0 if self._rows is None else len(self._rows) - 1

    def advance(self, tick: int) -> Point | None:
        """The row of a tick; None when there is none left. Skipped ticks skip rows."""
        if self._rows is None:
            return None
        steps = 1 if self._tick is None else max(tick - self._tick, 0)
        self._tick = tick
        if self.finished:
            return None
        for _ in range(steps):
            self._progress, self._rate = self._next(self._progress, self._rate)
        return self.point

    @property
    def point(self) -> Point | None:
        """The row that ``advance`` gave out last, or the first one."""
        rows = self._rows
        if rows is None:
            return None
        i = min(max(math.ceil(self._progress), 0), self._last)
        return Point(
            self._at(self._progress, requested=True)[0],
            float(rows.gripper[i]),
            int(rows.chunk_ids[i]),
            int(rows.chunk_rows[i]),
            int(rows.flags[i]),
        )

    def reference(self, points: int) -> Reference:
        """The row that ``advance`` gave out last and those after it, with velocities."""
        positions, velocities = [], []
        progress, rate = self._progress, self._rate
        for _ in range(points):
            position, velocity = self._at(progress)
            positions.append(position)
            velocities.append(velocity * rate)
            progress, rate = self._next(progress, rate)
        return Reference(np.array(positions), np.array(velocities))

    def ahead(self, rows: int) -> Floats:
        """The row that ``advance`` gave out last and those after it, at most ``rows``, up to the
        last one: float64 [n, joints] rad."""
        if self._rows is None:
            return np.empty((0, len(self._limits.velocity)))
        return self.reference(min(rows, self.rows_left + 1)).positions

    def _next(self, progress: float, rate: float) -> tuple[float, float]:
        """Progress (rows) and its rate (rows per tick) one tick later: 1, but at rest at the end.

        The largest rate up to 1 from which the progress can still stop at the last row.
        """
        last = float(self._last)
        if progress + (rate + 1.0) / 2 <= last and self._may_run(
            last - progress - (rate + 1.0) / 2, 1.0
        ):
            return progress + (rate + 1.0) / 2, 1.0
        low, high = 0.0, 1.0
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2
            left = last - progress - (rate + middle) / 2
            if left >= 0 and self._may_run(left, middle):
                low = middle
            else:
                high = middle
        reached = progress + (rate + low) / 2
        # Less than a thousandth of a row, which no robot can tell, is the end.
        if last - reached < 1e-3:
            return last, 0.0
        return reached, low

    def _may_run(self, left: float, rate: float) -> bool:
        """Whether slowing down from a rate within whole ticks takes at most ``left`` rows."""
        ticks = math.ceil(rate / self._deceleration - 1e-9)
        return rate * ticks / 2 <= left + 1e-9

    def _at(self, progress: float, requested: bool = False) -> tuple[Floats, Floats]:
        """Position (rad) and velocity (rad/s) at a progress, by cubic interpolation of the rows."""
        rows, before = self._rows, self._before
        assert rows is not None
        assert before is not None
        table = rows.requested if requested else rows.positions
        last = len(table) - 1

        def row(i: int) -> Floats:
            return before if i < 0 else table[min(i, last)]

        i = math.floor(progress)
        u = progress - i
        p0, p1 = row(i), row(i + 1)
        m0, m1 = (p1 - row(i - 1)) / 2, (row(i + 2) - p0) / 2
        if u == 0.0:
            return np.array(p0), m0 / ROW_PERIOD_S
        d = p1 - p0
        position = p0 + u * (m0 + u * ((3 * d - 2 * m0 - m1) + u * (m0 + m1 - 2 * d)))
        slope = m0 + u * (2 * (3 * d - 2 * m0 - m1) + 3 * u * (m0 + m1 - 2 * d))
        return position, slope / ROW_PERIOD_S

    def check(self) -> None:
        """Assert the invariants that can be read off the present state."""
        assert 0.0 <= self._rate <= 1.0
        if self._rows is None:
            assert self._before is None
            return
        assert -1.0 <= self._progress <= self._last
        lengths = {len(getattr(self._rows, f)) for f in self._rows.__dataclass_fields__}
        assert lengths == {len(self._rows.positions)}
        assert np.isfinite(self._rows.positions).all()
