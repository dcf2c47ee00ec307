# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The policy node: cameras, joint states and an instruction in, action chunks out.

A lifecycle node (see ``lifecycle`` for how long transitions work). *configure* checks the
checkpoint's headers, loads and verifies it; *activate* warms it up; only then is the node active
and answers ``chunk_request``. Callbacks keep the newest message and return; the model runs on the
engine's own thread. ``policy_status`` tells the progress and, for every request that is not
answered, why.

The executor owns the epoch and the instruction: a request is answered for the instruction that it
carries. The topic ``instruction`` serves to compute the text cache ahead, to be echoed in
``policy_status`` (which is what ``cosmos-lite-ros instruct`` waits for) and for ``free_run``.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from sensor_msgs.msg import CompressedImage, Image, JointState
from std_msgs.msg import String
from std_srvs.srv import Trigger

from cosmos_lite_ros.contract.assembler import ObservationAssembler, Skip
from cosmos_lite_ros.contract.chunk import ActionChunk
from cosmos_lite_ros.contract.constants import VIEWS, View
from cosmos_lite_ros.contract.observation import (
    Observation,
    clean_instruction,
)
from cosmos_lite_ros.contract.robots import robot_type
from cosmos_lite_ros.errors import BadInputError
from cosmos_lite_ros.msg import ActionChunk as ActionChunkMsg
from cosmos_lite_ros.msg import ChunkRequest, PolicyStatus
from cosmos_lite_ros.ros import qos
from cosmos_lite_ros.ros.allocator import set_image_allocator
from cosmos_lite_ros.ros.convert import chunk_to_message
from cosmos_lite_ros.ros.diagnostics import PERIOD_S, Diagnostics, Level, status
from cosmos_lite_ros.ros.lifecycle import ManagedNode, one_line, run_node, steady_timer
from cosmos_lite_ros.ros.parameters import Parameters, flatten
from cosmos_lite_ros.ros.policy_intake import Request, read_request
from cosmos_lite_ros.ros.policy_loader import (
    Step,
    assembler_settings,
    in_thread,
    load_engine,
)
from cosmos_lite_ros.ros.policy_requests import (
    BrokenError,
    Functions,
    HungError,
    RequestDesk,
)
from cosmos_lite_ros.ros.policy_settings import PolicySettings
from cosmos_lite_ros.ros.policy_status import (
    Snapshot,
    camera_diagnostic,
    engine_diagnostic,
    status_message,
)

if TYPE_CHECKING:
    from cosmos_lite_ros.policy.engine import PolicyEngine

# How often a request whose observation is not ready is tried again, s.
_PUMP_S = 0.03
_STATUS_S = 0.5
_NO_CLOCK = "waiting for /clock: use_sim_time is true and nobody publishes /clock"


class PolicyNode(ManagedNode):
    """See the module."""

    def __init__(self) -> None:
        super().__init__("policy")
        self.settings = Parameters(self, PolicySettings).settings
        self._requested = json.dumps(flatten(self.settings))
        self._effective = "{}"
        self._step = Step()
        self._warming = False
        self._engine: PolicyEngine | None = None
        self._assembler: ObservationAssembler | None = None
        self._desk: RequestDesk | None = None
        self._instruction = ""
        # The instruction whose text cache has been asked for.
        self._prefetched = ""
        self._chunks = 0
        self._qos_problems: dict[str, str] = {}
        self._said: set[str] = set()
        self._last_key: tuple[object, ...] = ()
        self._inputs: list[Any] = []
        self._diagnostics = Diagnostics(self)
        self._status = self.create_publisher(PolicyStatus, "policy_status", qos.latched())
        self._chunk = self.create_publisher(
            ActionChunkMsg,
            "action_chunk",
            qos.exchange(),
            event_callbacks=qos.publisher_events("action_chunk", self._on_qos("action_chunk")),
        )
        for profile_of in (qos.plain, qos.latched):
            self.create_subscription(String, "instruction", self._on_instruction, profile_of())
        self.create_service(Trigger, "~/describe", self._on_describe)
        self.create_service(Trigger, "~/flush_text_cache", self._on_flush)
        # The engine's thread wakes the node when a chunk is done.
        self._done = self.create_guard_condition(self._pump)
        steady_timer(self, _PUMP_S, self._pump)
        steady_timer(self, _STATUS_S, self._publish_status)
        steady_timer(self, PERIOD_S, self._publish_diagnostics)
        self._publish_status()

    # Lifecycle.

    def configure(self) -> Future[None]:
        """Subscribe, and load the engine on a thread."""
        self.last_error = None
        self._assembler = ObservationAssembler(assembler_settings(self.settings))
        self._desk = RequestDesk(
            Functions(
                assemble=self._assemble,
                submit=self._submit,
                publish=self._publish_chunk,
                log=lambda line: self.get_logger().error(line),
                wake=self._done.trigger,
            ),
            timeout_s=self.settings.request_timeout_s,
            max_consecutive_errors=self.settings.max_consecutive_errors,
        )
        self._subscribe()
        return in_thread(self._load, "policy-loader")

    def _load(self) -> None:
        self._engine = load_engine(self.settings, self._report)
        self._effective = json.dumps(self._engine.effective, default=str)
        self._report(1.0, "loaded, not active")
        self.get_logger().info(f"requested {self._requested}")
        self.get_logger().info(f"effective {self._effective}")
        for note in self._engine.notes:
            self.get_logger().warning(note)

    def _report(self, progress: float, name: str) -> None:
        # One assignment, so the node's thread reads either the old step or the new one.
        self._step = Step(progress, name)

    def activate(self) -> Future[None]:
        """Warm the engine up on a thread."""
        if self._engine is None or self._desk is None:
            raise BadInputError("the policy is not loaded: configure first")
        self._desk.recover()
        self._prefetched = ""
        self._warming = True
        self._report(0.0, "warming up")
        engine = self._engine

        def work() -> None:
            try:
                engine.warm_up()
                self._report(1.0, "")
                self.get_logger().info(
                    "warmed up"
                    + (
                        ": random weights, the actions mean nothing physically"
                        if engine.random_weights
                        else ""
                    )
                )
            except BaseException:
                self._report(1.0, "loaded, not active")
                raise
            finally:
                self._warming = False

        return in_thread(work, "policy-warm-up")

    def deactivate(self) -> None:
        """Answer no more requests."""
        if self._desk is not None:
            self._desk.drop("the policy was deactivated")
        self._report(1.0, "loaded, not active")

    def cleanup(self) -> None:
        """Unload the engine and drop the subscriptions."""
        for subscription in self._inputs:
            self.destroy_subscription(subscription)
        self._inputs.clear()
        if self._engine is not None:
            self._engine.close()
        self._engine = self._assembler = self._desk = None
        self._qos_problems.clear()
        self._effective = "{}"
        self._step = Step()

    def close(self) -> None:
        """The engine's thread is left behind: it may be deep in a computation."""
        if self._engine is not None:
            self._engine.close(wait_s=0.3)

    # Inputs.

    def _subscribe(self) -> None:
        compressed = self.settings.image_transport == "compressed"
        for view in VIEWS:
            topic = f"{view}/image/compressed" if compressed else f"{view}/image"
            self._listen(
                CompressedImage if compressed else Image,
                topic,
                self._image_callback(view, compressed),
                qos.image(),
            )
        for topic in ("joint_states", "gripper/joint_states"):
            self._listen(JointState, topic, self._on_joint_state, qos.joint_states())
        self._listen(ChunkRequest, "chunk_request", self._on_request, qos.exchange())

    def _listen(self, kind: Any, topic: str, callback: Callable[[Any], None], profile: Any) -> None:
        events = qos.subscription_events(topic, self._on_qos(topic))
        self._inputs.append(
            self.create_subscription(kind, topic, callback, profile, event_callbacks=events)
        )

    def _image_callback(self, view: View, compressed: bool) -> Callable[[Any], None]:
        def keep(message: Any) -> None:
            if self._assembler is None:
                return
            push = self._assembler.push_compressed if compressed else self._assembler.push_image
            push(view, message, self._now_ns())

        return keep

    def _on_joint_state(self, message: JointState) -> None:
        if self._assembler is not None:
            self._assembler.push_joint_state(message, self._now_ns())

    def _on_instruction(self, message: String) -> None:
        """From either subscription: a transient-local publisher is heard by both."""
        try:
            text = clean_instruction(message.data)
        except BadInputError as error:
            self._say(f"instruction refused: {error}")
            return
        if text == self._instruction:
            return
        self._instruction = text
        self.get_logger().info(f"instruction: {text}")
        self._pump()

    def _use_instruction(self, engine: PolicyEngine, desk: RequestDesk) -> None:
        self._prefetched = self._instruction
        if self.settings.free_run:
            desk.free_instruction = self._instruction

        def report(future: Future[None]) -> None:
            error = None if future.cancelled() else future.exception()
            if error is not None:
                self.get_logger().error(f"text cache: {one_line(error)}")

        engine.prefetch(self._instruction).add_done_callback(report)

    def _on_request(self, message: ChunkRequest) -> None:
        if self._desk is None:
            return
        try:
            if not self.is_active:
                raise BadInputError(f"the policy is {self.state_label}, not active")
            request = read_request(message)
        except BadInputError as error:
            self._desk.refuse(f"request {message.request_id} refused: {error}")
            return
        self._guarded(lambda desk: desk.offer(request))

    # Work.

    def _now_ns(self) -> int:
        return int(self.get_clock().now().nanoseconds)

    def _no_clock(self) -> bool:
        clock = self.get_clock()
        return bool(clock.ros_time_is_active) and self._now_ns() == 0

    def _assemble(self, instruction: str) -> Observation | Skip:
        assert self._assembler is not None
        if self._no_clock():
            return Skip("joint_state", _NO_CLOCK)
        return self._assembler.assemble(instruction, self._now_ns())

    def _submit(self, request: Request, observation: Observation) -> Future[ActionChunk]:
        assert self._engine is not None
        rows, fade = request.continued(observation)
        if request.prefix is not None and rows is None:
            self._say("the rows to continue lie beside the chunk (clocks?): it is not guided")
        return self._engine.submit(observation, prefix=rows, prefix_fade_rows=fade)

    def _publish_chunk(self, request: Request, chunk: ActionChunk) -> None:
        self._chunks += 1
        self._chunk.publish(
            chunk_to_message(
                chunk,
                robot_type(self.settings.robot).joint_names,
                chunk_id=self._chunks,
                request_id=request.request_id,
                epoch=request.epoch,
            )
        )

    def _pump(self) -> None:
        if self.is_active and self._engine is not None and self._desk is not None:
            if self._prefetched != self._instruction:
                self._use_instruction(self._engine, self._desk)
            self._guarded(RequestDesk.pump)
        if self._key() != self._last_key:
            self._publish_status()

    def _guarded(self, work: Callable[[RequestDesk], None]) -> None:
        """Run work on the desk; what makes this process useless ends it."""
        if self._desk is None:
            return
        try:
            work(self._desk)
        except (HungError, BrokenError) as error:
            self.get_logger().fatal(str(error))
            self.exit(1, "")

    # Outputs for people.

    def _state(self) -> int:
        if self._desk is not None and self._desk.error:
            return int(PolicyStatus.ERROR)
        if self._warming:
            return int(PolicyStatus.WARMING)
        if self.is_active and self._desk is not None:
            return int(PolicyStatus.BUSY if self._desk.busy else PolicyStatus.READY)
        return int(PolicyStatus.ERROR if self.last_error is not None else PolicyStatus.LOADING)

    def _skip_reason(self) -> str:
        if self._desk is None:
            return ""
        if self.settings.free_run and self.is_active and not self._instruction:
            return "free_run waits for an instruction"
        return self._desk.waiting_reason or self._desk.last_skip_reason

    def _error(self) -> str:
        if self._desk is not None and self._desk.error:
            return self._desk.error
        return one_line(self.last_error) if self.last_error is not None else ""

    def _key(self) -> tuple[object, ...]:
        """What is published at once when it changes."""
        step = self._step
        return (
            self._state(),
            step.name,
            round(step.progress, 1),
            self._instruction,
            self._skip_reason(),
            self._error(),
        )

    def _snapshot(self) -> Snapshot:
        engine, desk = self._engine, self._desk
        if desk is None:
            return Snapshot(
                self._state(),
                self._step,
                self._requested,
                self._effective,
                self._instruction,
                error=self._error(),
            )
        cameras = self._assembler.camera_status(self._now_ns()) if self._assembler else {}
        return Snapshot(
            state=self._state(),
            step=self._step,
            requested=self._requested,
            effective=self._effective,
            instruction=self._instruction,
            latencies_s=desk.latencies_s(),
            answered=desk.answered,
            skipped=desk.skipped,
            skip_reason=self._skip_reason(),
            cameras=cameras,
            gpu_reserved_bytes=_gpu_reserved_bytes() if engine is not None else 0,
            recompiles=engine.recompiles if engine is not None else 0,
            text_cache=engine.text_cache_stats() if engine is not None else (0, 0),
            random_weights=engine is not None and engine.random_weights,
            error=self._error(),
        )

    def _publish_status(self) -> None:
        self._last_key = self._key()
        message = status_message(self._snapshot())
        message.header.stamp = self.get_clock().now().to_msg()
        self._status.publish(message)
        for line in self._assembler.take_notices() if self._assembler is not None else []:
            self.get_logger().warning(line)

    def _publish_diagnostics(self) -> None:
        snapshot = self._snapshot()
        found = [engine_diagnostic(snapshot)]
        if self._assembler is not None:
            found += [
                camera_diagnostic(
                    view,
                    snapshot.cameras.get(view),
                    problem=self._camera_problem(view),
                    max_age_s=self.settings.max_image_age_s,
                    raw=self.settings.image_transport == "raw",
                )
                for view in VIEWS
            ]
            counts = self._assembler.counters()
            found.append(status("observations", Level.OK, "", counts))
        others = self.count_publishers("action_chunk") - 1
        if others > 0:
            line = f"action_chunk has {others + 1} publishers, expected 1: stop the other policy"
            self._say(line)
            found.append(status("topics", Level.ERROR, line))
        for topic, problem in self._qos_problems.items():
            found.append(status(f"topic {topic}", Level.ERROR, problem))
        if self._no_clock():
            self._say(_NO_CLOCK)
            found.append(status("clock", Level.ERROR, _NO_CLOCK))
        self._diagnostics.publish(found)

    def _camera_problem(self, view: View) -> str:
        prefix = f"{view}/"
        return next((p for t, p in self._qos_problems.items() if t.startswith(prefix)), "")

    def _on_qos(self, topic: str) -> Callable[[str], None]:
        def report(line: str) -> None:
            self._qos_problems[topic] = line
            self._say(line)

        return report

    def _say(self, line: str) -> None:
        """Log a line once."""
        if line not in self._said and len(self._said) < 256:
            self._said.add(line)
            self.get_logger().error(line)

    # Services.

    def _on_describe(
        self, request: Trigger.Request, response: Trigger.Response
    ) -> Trigger.Response:
        response.success = True
        response.message = json.dumps(
            {
                "state": self.state_label,
                "requested": json.loads(self._requested),
                "effective": json.loads(self._effective),
            }
        )
        return response

    def _on_flush(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        if self._engine is None:
            response.message = "nothing is loaded"
            return response
        # It waits for the request in hand, which a callback must not.
        flush = self._engine.flush_text_cache
        threading.Thread(target=flush, name="flush-text-cache", daemon=True).start()
        response.success = True
        response.message = "the text cache is flushed after the request in hand"
        return response


def _gpu_reserved_bytes() -> int:
    """Memory that torch's allocator has reserved on the GPU, bytes; 0 without one."""
    import torch

    initialised: bool = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    return int(torch.cuda.memory_reserved()) if initialised else 0


def main(argv: list[str] | None = None) -> int:
    """Entry point of the executable ``policy``."""
    set_image_allocator()
    return run_node(PolicyNode, argv)


if __name__ == "__main__":
    sys.exit(main())
