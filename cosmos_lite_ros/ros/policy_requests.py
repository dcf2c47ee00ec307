# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Which request the policy works on next, and what became of the others.

One request is outstanding. A newer one replaces an older one that waits; one that is being computed
is finished and answered, since the executor judges its epoch. A request whose observation is not
ready is tried again until it times out, so one that comes a moment before the first image is
answered. Whatever is not answered is counted and has a reason. No ROS here: time, observation,
engine and answer are given as functions.
"""

from __future__ import annotations

import dataclasses
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass

import numpy as np

from cosmos_lite_ros.contract.assembler import Skip
from cosmos_lite_ros.contract.chunk import ActionChunk
from cosmos_lite_ros.contract.observation import Observation
from cosmos_lite_ros.ros.policy_intake import Request

# Requests whose latencies make up the statistic.
LATENCY_WINDOW = 200


@dataclass(frozen=True)
class Functions:
    """What the desk works with.

    Attributes:
        assemble: instruction -> observation, or why there is none.
        submit: request and its observation -> future chunk.
        publish: answer a request.
        log: one line about something that went wrong.
        wake: called from any thread when ``pump`` should run.
        clock: steady seconds.
    """

    assemble: Callable[[str], Observation | Skip]
    submit: Callable[[Request, Observation], Future[ActionChunk]]
    publish: Callable[[Request, ActionChunk], None]
    log: Callable[[str], None]
    wake: Callable[[], None]
    clock: Callable[[], float] = time.monotonic


@dataclass(frozen=True)
class _InHand:
    request: Request
    future: Future[ActionChunk]
    started_s: float
    compose_s: float


class HungError(Exception):
    """The computation in hand takes too long: the process cannot be trusted any more."""


class BrokenError(Exception):
    """The device reports an error that stays: every later computation would fail too."""


class RequestDesk:
    """Owns the requests; every method runs on the node's thread.

    Attributes:
        answered, skipped: counts; failed computations count as skipped.
        last_skip_reason: why the last one that was not answered was not.
        waiting_reason: why there is no observation yet for the one that waits.
        error: set when too many computations in a row failed; nothing is computed then.
    """

    def __init__(
        self, functions: Functions, *, timeout_s: float, max_consecutive_errors: int
    ) -> None:
        self._do = functions
        self._timeout_s = timeout_s
        self._max_errors = max_consecutive_errors
        self._waiting: Request | None = None
        self._since_s = 0.0
        self._in_hand: _InHand | None = None
        self._consecutive_errors = 0
        self._latencies_s: deque[float] = deque(maxlen=LATENCY_WINDOW)
        # What to work on when no request waits (free_run).
        self.free_instruction: str | None = None
        self.answered = 0
        self.skipped = 0
        self.last_skip_reason = ""
        self.waiting_reason = ""
        self.error = ""

    @property
    def busy(self) -> bool:
        """Whether a chunk is being computed."""
        return self._in_hand is not None

    def latencies_s(self) -> tuple[float, float, float]:
        """p50, p95 and maximum over the last requests, s; NaN before the first."""
        if not self._latencies_s:
            return (float("nan"),) * 3
        values = np.array(self._latencies_s)
        p50, p95 = np.percentile(values, (50, 95))
        return float(p50), float(p95), float(values.max())

    def offer(self, request: Request) -> None:
        """Take a request; it replaces one that waits."""
        if self._waiting is not None:
            self._skip(
                f"request {self._waiting.request_id} was replaced by request {request.request_id}"
            )
        self._waiting, self._since_s = request, self._do.clock()
        self.pump()

    def refuse(self, reason: str) -> None:
        """Count a request that cannot be answered."""
        self._skip(reason)
        self._do.log(reason)

    def drop(self, reason: str) -> None:
        """Forget the waiting request and the answer in hand."""
        self.waiting_reason = ""
        if self._waiting is not None:
            self._skip(reason)
            self._waiting = None
        if self._in_hand is not None:
            self._skip(reason)
            self._in_hand = None

    def recover(self) -> None:
        """Leave the error state."""
        self._consecutive_errors, self.error = 0, ""

    def pump(self) -> None:
        """Finish what is done, then start what can be started.

        Raises:
            HungError: the computation in hand is older than the time limit.
            BrokenError: the device's error stays.
        """
        if self._in_hand is not None:
            if self._in_hand.future.done():
                self._finish(self._in_hand)
            elif self._do.clock() - self._in_hand.started_s > self._timeout_s:
                raise HungError(
                    f"a computation has taken more than {self._timeout_s:g} s: the process ends "
                    "(request_timeout_s, if this machine is that slow)"
                )
        if self._in_hand is None:
            self._start()

    def _start(self) -> None:
        request, free = self._waiting, False
        if request is None:
            if not self.free_instruction:
                return
            request, free = Request(self.free_instruction), True
        if self.error:
            if not free:
                self._waiting = None
                self._skip(f"state ERROR: {self.error}")
            return
        started_s = self._do.clock()
        observation = self._do.assemble(request.instruction)
        if isinstance(observation, Skip):
            self.waiting_reason = observation.reason
            if not free and self._do.clock() - self._since_s > self._timeout_s:
                self._waiting = None
                self._skip(observation.reason)
                self._do.log(f"request {request.request_id} not answered: {observation.reason}")
            return
        self.waiting_reason = ""
        if not free:
            self._waiting = None
        compose_s = self._do.clock() - started_s
        future = self._do.submit(request, observation)
        self._in_hand = _InHand(request, future, started_s, compose_s)
        future.add_done_callback(lambda _: self._do.wake())

    def _finish(self, done: _InHand) -> None:
        self._in_hand = None
        if done.future.cancelled():
            self._skip("the computation was cancelled")
            return
        error = done.future.exception()
        if error is not None:
            self._failed(error)
            return
        self._consecutive_errors = 0
        latency_s = self._do.clock() - done.started_s
        self._latencies_s.append(latency_s)
        self.answered += 1
        chunk = done.future.result()
        chunk = dataclasses.replace(
            chunk, latency_s=latency_s, encode_s=chunk.encode_s + done.compose_s
        )
        self._do.publish(done.request, chunk)

    def _failed(self, error: BaseException) -> None:
        line = f"{type(error).__name__}: {' '.join(str(error).split())}"
        if _stays(error):
            raise BrokenError(f"the GPU reports an error that stays, the process ends: {line}")
        self._consecutive_errors += 1
        self._skip(line)
        self._do.log(f"no chunk: {line}")
        if self._consecutive_errors >= self._max_errors:
            self.error = f"{self._consecutive_errors} chunks in a row failed, the last with {line}"
            self._do.log(f"{self.error}: deactivate and activate to try again")

    def _skip(self, reason: str) -> None:
        self.skipped += 1
        self.last_skip_reason, self.waiting_reason = reason, ""


def _stays(error: BaseException) -> bool:
    """Whether a CUDA error leaves the context unusable (running out of memory does not)."""
    if type(error).__name__ == "OutOfMemoryError":
        return False
    return type(error).__name__ == "AcceleratorError" or "CUDA error" in str(error)
