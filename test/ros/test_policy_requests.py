# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Which request is worked on, and what becomes of the others."""

from __future__ import annotations

import math
from concurrent.futures import Future

import numpy as np
import pytest

from cosmos_lite_ros.contract.assembler import Skip
from cosmos_lite_ros.contract.chunk import ActionChunk
from cosmos_lite_ros.contract.observation import Observation
from cosmos_lite_ros.ros.policy_intake import Request
from cosmos_lite_ros.ros.policy_requests import (
    BrokenError,
    Functions,
    HungError,
    RequestDesk,
)

TIMEOUT_S = 2.0
NOT_READY = Skip("no_image", "wrist: no image yet")


class OutOfMemoryError(RuntimeError):
    """Named like torch's."""


class Bench:
    """A desk with an engine that answers when told, and a clock that goes when told."""

    def __init__(self, max_errors: int = 2) -> None:
        self.now_s = 100.0
        self.ready = True
        self.submitted: list[str] = []
        self.futures: list[Future[ActionChunk]] = []
        self.published: list[tuple[Request, ActionChunk]] = []
        self.lines: list[str] = []
        self.wakes = 0
        self.desk = RequestDesk(
            Functions(
                assemble=self._assemble,
                submit=self._submit,
                publish=lambda request, chunk: self.published.append((request, chunk)),
                log=self.lines.append,
                wake=self._wake,
                clock=lambda: self.now_s,
            ),
            timeout_s=TIMEOUT_S,
            max_consecutive_errors=max_errors,
        )

    def _wake(self) -> None:
        self.wakes += 1

    def _assemble(self, instruction: str) -> Observation | Skip:
        if not self.ready:
            return NOT_READY
        self.now_s += 0.01  # composing takes its time
        return Observation(np.zeros((540, 640, 3), np.uint8), np.zeros(7), 0.0, instruction)

    def _submit(self, request: Request, observation: Observation) -> Future[ActionChunk]:
        future: Future[ActionChunk] = Future()
        future.set_running_or_notify_cancel()
        self.submitted.append(observation.instruction)
        self.futures.append(future)
        return future

    def answer(self, after_s: float = 0.5) -> None:
        """The engine finishes."""
        self.now_s += after_s
        self.futures[-1].set_result(
            ActionChunk(
                positions=np.zeros((32, 7)),
                gripper=np.zeros(32, np.float32),
                instruction=self.submitted[-1],
                stamp_ns=0,
                joint_state_stamp_ns=0,
                image_stamps_ns=(0, 0, 0),
                measured_positions=np.zeros(7),
                measured_gripper=0.0,
                seed=0,
                steps=1,
                guidance=1.0,
                profile="tiny",
                scheme="float32",
                checkpoint="",
                revision="",
                random_weights=True,
                latency_s=after_s,
                encode_s=0.1,
                generate_s=after_s - 0.1,
            )
        )
        self.desk.pump()

    def fail(self, error: BaseException) -> None:
        """The engine raises."""
        self.futures[-1].set_exception(error)
        self.desk.pump()


def test_a_request_is_answered_with_the_whole_latency() -> None:
    bench = Bench()
    assert all(math.isnan(value) for value in bench.desk.latencies_s())
    bench.desk.offer(Request("a", 1, 7))
    assert bench.desk.busy
    bench.answer(0.5)
    assert bench.wakes == 1
    ((request, chunk),) = bench.published
    assert request == Request("a", 1, 7)
    assert chunk.latency_s == pytest.approx(0.51)
    assert chunk.encode_s == pytest.approx(0.11)
    assert bench.desk.latencies_s() == pytest.approx((0.51, 0.51, 0.51))
    assert (bench.desk.answered, bench.desk.skipped, bench.desk.busy) == (1, 0, False)


def test_the_newest_of_those_that_wait_is_next() -> None:
    bench = Bench()
    for number in (1, 2, 3):
        bench.desk.offer(Request(f"task {number}", number))
    bench.answer()
    bench.answer()
    assert [request.request_id for request, _ in bench.published] == [1, 3]
    assert bench.desk.skipped == 1
    assert bench.desk.last_skip_reason == "request 2 was replaced by request 3"


def test_waiting_for_an_observation() -> None:
    bench = Bench()
    bench.ready = False
    bench.desk.offer(Request("a", 1))
    assert bench.desk.waiting_reason == NOT_READY.reason
    assert (bench.desk.skipped, bench.desk.busy) == (0, False)
    bench.now_s += 0.9 * TIMEOUT_S
    bench.desk.pump()
    bench.ready = True
    bench.desk.pump()
    bench.answer()
    assert [request.request_id for request, _ in bench.published] == [1]
    assert (bench.desk.waiting_reason, bench.desk.skipped) == ("", 0)


def test_a_request_that_waits_too_long_is_dropped_with_the_reason() -> None:
    bench = Bench()
    bench.ready = False
    bench.desk.offer(Request("a", 1))
    bench.now_s += 1.1 * TIMEOUT_S
    bench.desk.pump()
    assert bench.desk.skipped == 1
    assert bench.desk.last_skip_reason == NOT_READY.reason
    assert bench.lines == ["request 1 not answered: wrist: no image yet"]
    bench.ready = True
    bench.desk.pump()
    assert bench.submitted == []


def test_errors_are_counted_and_too_many_are_a_state() -> None:
    bench = Bench(max_errors=2)
    for number in (1, 2):
        bench.desk.offer(Request("a", number))
        bench.fail(OutOfMemoryError("CUDA out of memory.\nTried to allocate"))
    assert bench.published == []
    assert bench.desk.skipped == 2
    assert "2 chunks in a row failed, the last with OutOfMemoryError" in bench.desk.error
    assert all("\n" not in line for line in bench.lines)
    bench.desk.offer(Request("a", 3))
    assert len(bench.submitted) == 2, "nothing is computed in this state"
    assert bench.desk.last_skip_reason.startswith("state ERROR: 2 chunks")
    bench.desk.recover()
    bench.desk.offer(Request("a", 4))
    bench.answer()
    assert [request.request_id for request, _ in bench.published] == [4]


def test_a_chunk_between_two_errors_starts_the_count_again() -> None:
    bench = Bench(max_errors=2)
    for number in range(3):
        bench.desk.offer(Request("a", number))
        bench.fail(ValueError("no"))
        bench.desk.offer(Request("a", number))
        bench.answer()
    assert bench.desk.error == ""
    assert (bench.desk.answered, bench.desk.skipped) == (3, 3)


def test_a_computation_without_end_and_a_broken_device_are_not_survived() -> None:
    bench = Bench()
    bench.desk.offer(Request("a", 1))
    bench.now_s += 0.9 * TIMEOUT_S
    bench.desk.pump()
    bench.now_s += 0.2 * TIMEOUT_S
    with pytest.raises(HungError, match="more than 2 s"):
        bench.desk.pump()
    bench = Bench()
    bench.desk.offer(Request("a", 1))
    with pytest.raises(BrokenError, match="an illegal memory access"):
        bench.fail(RuntimeError("CUDA error: an illegal memory access was encountered"))


def test_dropping_forgets_what_waits_and_what_is_in_hand() -> None:
    bench = Bench()
    bench.desk.offer(Request("a", 1))
    bench.desk.offer(Request("b", 2))
    bench.desk.drop("the policy was deactivated")
    assert bench.desk.skipped == 2
    bench.answer()
    assert bench.published == []
    assert bench.submitted == ["a"]


def test_running_freely_gives_way_to_requests() -> None:
    bench = Bench()
    bench.desk.free_instruction = "free"
    bench.desk.pump()
    bench.desk.offer(Request("asked", 5, 6))
    bench.answer()
    bench.answer()
    bench.answer()
    assert [(r.instruction, r.request_id) for r, _ in bench.published] == [
        ("free", 0),
        ("asked", 5),
        ("free", 0),
    ]
    bench.ready = False
    bench.answer()
    bench.now_s += 10 * TIMEOUT_S
    bench.desk.pump()
    assert bench.desk.waiting_reason == NOT_READY.reason
    assert bench.desk.skipped == 0, "only requests are counted"
