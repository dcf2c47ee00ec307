# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Joint states merged by name, from one publisher or several, with a short history.

Names are looked up in every message: their order may change, a message may hold part of them, and
the gripper may come in a message of its own.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol, TypeVar

from cosmos_lite_ros.contract.stamps import NS_PER_S, TIME_JUMP_NS, StampCheck, message_stamp_ns
from cosmos_lite_ros.errors import BadInputError

_MAX_SAMPLES: Final = 4096  # 2 s at 2 kHz

_T = TypeVar("_T")


class JointStateMessage(Protocol):
    """What is used of a sensor_msgs/JointState (velocity and effort are not)."""

    header: Any
    name: Sequence[str]
    position: Sequence[float]


@dataclass(frozen=True)
class JointSample:
    """The joint state of one instant.

    Attributes:
        positions: rad, in the order of the buffer's ``joint_names``.
        stamp_ns: the oldest stamp among these joints, so that no joint is older than it says.
        arrival_ns: arrival of the message that completed the sample.
        gripper: in the gripper's own unit; NaN where the buffer has no gripper.
        gripper_stamp_ns, gripper_arrival_ns: of the gripper's message.
    """

    positions: tuple[float, ...]
    stamp_ns: int
    arrival_ns: int
    gripper: float = math.nan
    gripper_stamp_ns: int = 0
    gripper_arrival_ns: int = 0


@dataclass
class _Slot:
    """The newest value of one needed joint; not finite until it is known."""

    name: str
    value: float = math.nan
    stamp_ns: int = 0
    arrival_ns: int = 0
    seen: bool = False


class JointStateBuffer:
    """Merges JointState messages; not locked: one thread, or a lock around it.

    Args:
        joint_names: the joints wanted, in the wanted order.
        gripper_joint: the gripper's joint, or None where there is none.
        history_s: how far back ``nearest`` can look, s.

    Attributes:
        counts: ``received``, ``ignored`` (no positions), ``foreign`` (no joint of ours),
            ``rejected`` (a name twice, or another number of positions than names),
            ``not_finite`` (in a joint of ours), ``bad_stamp``, ``time_jump``.
        last_problem: one line on the last message that was rejected or not finite.
        stamp_problem: what was wrong with the last message's stamp, or an empty string.

    Raises:
        BadInputError: no joint, or the same joint twice.
    """

    def __init__(
        self, joint_names: Sequence[str], gripper_joint: str | None = None, history_s: float = 2.0
    ) -> None:
        names = [*joint_names, *([] if gripper_joint is None else [gripper_joint])]
        if not joint_names or len(set(names)) != len(names) or not all(names):
            raise BadInputError(f"joint names {names} must be given and differ from each other")
        self._slots = [_Slot(name) for name in names]
        self._index = {name: i for i, name in enumerate(names)}
        self._arm = len(joint_names)
        self._history_ns = int(history_s * NS_PER_S)
        self._checks: dict[tuple[int, ...], StampCheck] = {}
        self._samples: deque[JointSample] = deque(maxlen=_MAX_SAMPLES)
        # (arrival ns, stamp ns, value) of the gripper, whose messages have a rate of their own.
        self._gripper: deque[tuple[int, int, float]] = deque(maxlen=_MAX_SAMPLES)
        self._newest_arrival_ns = 0
        self.counts: Counter[str] = Counter()
        self.last_problem = ""
        self.stamp_problem = ""

    def reset(self) -> None:
        """Forget every value, as after a jump of time; counters stay."""
        self._slots = [_Slot(slot.name) for slot in self._slots]
        self._samples.clear()
        self._gripper.clear()
        self._checks.clear()
        self._newest_arrival_ns = 0

    def push(self, message: JointStateMessage, arrival_ns: int) -> bool:
        """Take a message; True where it held a joint of ours and was taken.

        Never raises: a message that cannot be used is counted, and changes nothing. A position
        that is not finite makes its joint not ready, until a finite one comes.
        """
        self.counts["received"] += 1
        if arrival_ns < self._newest_arrival_ns - TIME_JUMP_NS:
            self.counts["time_jump"] += 1
            self.reset()
        self._newest_arrival_ns = max(arrival_ns, self._newest_arrival_ns)
        names, positions = message.name, message.position
        if len(positions) == 0:
            self.counts["ignored"] += 1
            return False
        if len(names) != len(positions) or len(set(names)) != len(names):
            self.counts["rejected"] += 1
            self.last_problem = self._describe_rejected(names, len(positions))
            return False
        taken = [
            (self._index[n], p) for n, p in zip(names, positions, strict=True) if n in self._index
        ]
        if not taken:
            self.counts["foreign"] += 1
            return False
        joints = tuple(sorted(i for i, _ in taken))
        stamp_ns = self._stamp(message, arrival_ns, joints)
        for i, position in taken:
            slot = self._slots[i]
            slot.value, slot.stamp_ns, slot.arrival_ns = float(position), stamp_ns, arrival_ns
            slot.seen = True
        if not all(math.isfinite(position) for _, position in taken):
            self.counts["not_finite"] += 1
            broken = [self._slots[i].name for i, position in taken if not math.isfinite(position)]
            self.last_problem = f"joint state of {', '.join(broken)} is not finite"
        self._remember(joints, arrival_ns)
        return True

    def nearest(self, arrival_ns: int) -> JointSample | None:
        """The sample that arrived nearest to that time, or None while ``not_ready``."""
        if self.not_ready():
            return None
        arm = _nearest(self._samples, arrival_ns, lambda sample: sample.arrival_ns)
        if not self._gripper:
            return arm
        at, stamp_ns, value = _nearest(self._gripper, arrival_ns, lambda gripper: gripper[0])
        return replace(arm, gripper=value, gripper_stamp_ns=stamp_ns, gripper_arrival_ns=at)

    def newest(self) -> JointSample | None:
        """The last sample, or None while ``not_ready``."""
        return self.nearest(self._newest_arrival_ns)

    def not_ready(self) -> str:
        """Why there is no state (joints missing or not finite), or an empty string."""
        missing = [slot.name for slot in self._slots if not slot.seen]
        if missing:
            return f"no joint state yet of {', '.join(missing)}"
        broken = [slot.name for slot in self._slots if not math.isfinite(slot.value)]
        if broken:
            return f"joint state of {', '.join(broken)} is not finite"
        return ""

    def oldest_joint(self, *, gripper: bool) -> tuple[str, int, int]:
        """Name, stamp ns and arrival ns of the joint that is oldest by either (arm or gripper)."""
        slots = self._slots[self._arm :] if gripper else self._slots[: self._arm]
        slot = min(slots, key=lambda s: min(s.stamp_ns, s.arrival_ns))
        return slot.name, slot.stamp_ns, slot.arrival_ns

    @property
    def has_gripper(self) -> bool:
        """Whether a gripper joint is wanted."""
        return len(self._slots) > self._arm

    def _stamp(self, message: JointStateMessage, arrival_ns: int, joints: tuple[int, ...]) -> int:
        """The stamp to use. Each set of joints is a source: publishers do not share a clock."""
        stamp_ns = message_stamp_ns(message)
        check = self._checks.setdefault(joints, StampCheck())
        self.stamp_problem = check.judge(stamp_ns, arrival_ns)
        if self.stamp_problem:
            self.counts["bad_stamp"] += 1
            return arrival_ns
        return stamp_ns

    def _remember(self, joints: tuple[int, ...], arrival_ns: int) -> None:
        """Add what the last message completed to the histories; joints are sorted indices."""
        if joints[0] < self._arm:
            arm = self._slots[: self._arm]
            values = tuple(slot.value for slot in arm)
            if all(map(math.isfinite, values)):
                stamp_ns = min(slot.stamp_ns for slot in arm)
                self._samples.append(JointSample(values, stamp_ns, arrival_ns))
            else:
                self._samples.clear()
        if joints[-1] >= self._arm:
            gripper = self._slots[self._arm]
            if math.isfinite(gripper.value):
                self._gripper.append((arrival_ns, gripper.stamp_ns, gripper.value))
            else:
                self._gripper.clear()
        limit = arrival_ns - self._history_ns
        while len(self._samples) > 1 and self._samples[0].arrival_ns < limit:
            self._samples.popleft()
        while len(self._gripper) > 1 and self._gripper[0][0] < limit:
            self._gripper.popleft()

    def _describe_rejected(self, names: Sequence[str], positions: int) -> str:
        twice = [name for name, count in Counter(names).items() if count > 1]
        if twice:
            return f"joint state names {', '.join(sorted(twice))} more than once: message rejected"
        return f"joint state has {len(names)} names and {positions} positions: message rejected"


def _nearest(items: deque[_T], arrival_ns: int, arrival: Callable[[_T], int]) -> _T:
    """The item that arrived nearest, of equals the newest; sought from the newest backwards."""
    best = items[-1]
    least = abs(arrival(best) - arrival_ns)
    for item in reversed(items):
        apart = abs(arrival(item) - arrival_ns)
        if apart > least:
            break
        if apart < least:
            best, least = item, apart
    return best
