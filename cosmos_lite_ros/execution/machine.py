# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The states of the executor; what each publishes is in ExecutorStatus.msg."""

from __future__ import annotations

from enum import IntEnum


class State(IntEnum):
    """The values of ExecutorStatus.state."""

    STOPPED = 0
    EMPTY = 1
    PRIMED = 2
    RUNNING = 3
    UNDERRUN = 4


class StopReason(IntEnum):
    """The values of ExecutorStatus.stop_reason."""

    NONE = 0
    NOT_ARMED = 1
    OPERATOR = 2
    EMERGENCY_STOP = 3
    ENABLE_LOST = 4
    UNDERRUN_TIMEOUT = 5
    TRACKING_ERROR = 6
    CONTROLLER_LOST = 7
    JOINT_STATE_STALE = 8
    GATE = 9
    POLICY_ERRORS = 10
    CLOCK_JUMP = 11
    SHUTDOWN = 12


# Besides STOPPED, which every state may go to, and which ``resume`` and ``lead`` alone leave.
_MOVES = {
    State.EMPTY: {State.PRIMED},
    State.PRIMED: {State.RUNNING, State.EMPTY},
    State.RUNNING: {State.UNDERRUN},
    State.UNDERRUN: {State.RUNNING},
    State.STOPPED: set(),
}
# A person's reason replaces an automatic one; no automatic one replaces another.
_BY_A_PERSON = {StopReason.OPERATOR, StopReason.EMERGENCY_STOP, StopReason.SHUTDOWN}


class StateMachine:
    """State, latched reason, and the one line that explains them.

    Invariants: it begins in STOPPED(NOT_ARMED); ``stop_reason`` is NONE in every state but STOPPED;
    only ``resume`` and ``lead`` leave STOPPED.
    """

    def __init__(self, now_ns: int) -> None:
        self.state = State.STOPPED
        self.stop_reason = StopReason.NOT_ARMED
        self.text = "not armed: call ~/resume"
        self.since_ns = now_ns

    @property
    def stopped(self) -> bool:
        """Whether the state is STOPPED."""
        return self.state is State.STOPPED

    def stop(self, reason: StopReason, text: str, now_ns: int) -> bool:
        """Latch STOPPED; True if that changed state or reason."""
        if self.stopped and (reason not in _BY_A_PERSON or reason is self.stop_reason):
            return False
        self.state, self.stop_reason = State.STOPPED, reason
        self.text, self.since_ns = text, now_ns
        return True

    def resume(self, now_ns: int) -> None:
        """STOPPED to EMPTY.

        Raises:
            ValueError: not stopped.
        """
        if not self.stopped:
            raise ValueError(f"resume while {self.state.name}")
        self.state, self.stop_reason = State.EMPTY, StopReason.NONE
        self.text, self.since_ns = "", now_ns

    def lead(self, now_ns: int) -> None:
        """STOPPED to RUNNING: a motion that an operator has asked for and that needs no rows.

        Raises:
            ValueError: not stopped.
        """
        self.resume(now_ns)
        self.state = State.RUNNING

    def go(self, state: State, text: str, now_ns: int) -> None:
        """Any other move.

        Raises:
            ValueError: a move that does not exist.
        """
        if state not in _MOVES[self.state]:
            raise ValueError(f"no way from {self.state.name} to {state.name}")
        self.state, self.text, self.since_ns = state, text, now_ns
