# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Lifecycle nodes whose transitions may take long, and the main function of every node.

Scheme. ``configure`` and ``activate`` of a ``ManagedNode`` may return a ``Future``. Until it is
done the node stays in the transition state (``configuring``, ``activating``), goes on spinning and
publishing its status, and the answer to ``~/change_state`` is held back; then the caller gets
success or failure. So a lifecycle manager, ``ros2 lifecycle set`` and ``launch_ros`` see ordinary
transitions that take as long as they take, and *active* means ready for the first request.
A ``CosmosLiteError`` is a failure with one line in the log: the node stays where it was. An
impossible transition, or one asked for during another, is answered with failure.

With the parameter ``autostart`` the node configures and activates itself, without a manager. If
that fails, nobody is there to try again, so the process ends with the error's exit code.

``run_node`` spins a single-threaded executor (the multi-threaded one starves subscriptions beside
timers). SIGINT and SIGTERM end the process with exit code 0 within two seconds, whatever other
threads do.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import Any

import rclpy
from lifecycle_msgs.msg import State, Transition
from lifecycle_msgs.srv import ChangeState
from rcl_interfaces.msg import ParameterDescriptor
from rclpy.clock import Clock, ClockType
from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor
from rclpy.lifecycle import LifecycleNode, TransitionCallbackReturn
from rclpy.node import Node
from rclpy.signals import SignalHandlerOptions
from rclpy.timer import Timer
from rclpy.utilities import remove_ros_args

from cosmos_lite_ros.errors import BadInputError, CosmosLiteError
from cosmos_lite_ros.ros.dds import use_shipped_dds_profile
from cosmos_lite_ros.ros.parameters import ParameterError, given_parameters

# From the signal to the end of the process, s. The rest of the two seconds is the interpreter's.
EXIT_DEADLINE_S = 1.5
_POLL_S = 0.05

_SHUTDOWN = {
    State.PRIMARY_STATE_UNCONFIGURED: Transition.TRANSITION_UNCONFIGURED_SHUTDOWN,
    State.PRIMARY_STATE_INACTIVE: Transition.TRANSITION_INACTIVE_SHUTDOWN,
    State.PRIMARY_STATE_ACTIVE: Transition.TRANSITION_ACTIVE_SHUTDOWN,
}


def steady_timer(node: Node, period_s: float, callback: Callable[[], None]) -> Timer:
    """A timer on the steady clock: it goes on when ROS time stands still or jumps."""
    return node.create_timer(period_s, callback, clock=Clock(clock_type=ClockType.STEADY_TIME))


class ExitRequest(Exception):
    """Raised by ``ManagedNode.exit`` inside a callback: the process ends with this code."""

    def __init__(self, code: int, line: str) -> None:
        super().__init__(line)
        self.code = code


class ManagedNode(LifecycleNode):  # type: ignore[misc]
    """A lifecycle node with transitions that may take long; see the module for the scheme.

    Override ``configure``, ``activate``, ``deactivate``, ``cleanup`` and ``close``. The constructor
    declares ``autostart``; declare everything else with ``parameters.Parameters``.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.last_error: BaseException | None = None
        self._pending: Future[None] | None = None
        self._reply: Callable[[bool], None] | None = None
        # The caller of ~/change_state whose answer is held back.
        self._hold_next = False
        self._held: Any = None
        service = self._service_change_state
        service.callback = self._on_change_state
        self._send_response = service.send_response
        service.send_response = self._send_or_hold
        given = given_parameters(self).get("autostart", False)
        if not isinstance(given, bool):
            raise ParameterError(f"parameter autostart is {given!r}, expected true or false")
        descriptor = ParameterDescriptor(
            description="configure and activate without a lifecycle manager", read_only=True
        )
        self._autostart: bool = self.declare_parameter("autostart", False, descriptor).value
        # Runs only while there is something to wait for: waking costs a node about a millisecond.
        self._poll = steady_timer(self, _POLL_S, self._on_poll)

    # What a node does. Each may raise CosmosLiteError.

    def configure(self) -> Future[None] | None:
        """Get ready; with a Future, the node is inactive when that is done."""
        return None

    def activate(self) -> Future[None] | None:
        """Start working; with a Future, the node is active when that is done."""
        return None

    def deactivate(self) -> None:
        """Stop working."""

    def cleanup(self) -> None:
        """Undo ``configure``, also one that failed half way."""

    def close(self) -> None:
        """Called once before the process ends, in any state, publishers still working.

        It has about a second; the process ends then in any case.
        """

    # State.

    @property
    def state_label(self) -> str:
        """unconfigured, configuring, inactive, activating, active, ... or finalized."""
        return str(self._state_machine.current_state[1])

    @property
    def is_active(self) -> bool:
        """Whether the node is active."""
        return bool(self._state_machine.current_state[0] == State.PRIMARY_STATE_ACTIVE)

    def exit(self, code: int, line: str) -> None:
        """End the process from within a callback with this exit code.

        ``line`` goes to stderr; empty where it has been logged already.
        """
        raise ExitRequest(code, line)

    # Transitions.

    def start_transition(
        self, transition_id: int, done: Callable[[bool], None] = lambda success: None
    ) -> None:
        """Begin a transition; ``done`` is called with its success, at once or later.

        Only while no other one is running and if it is possible in this state, else it fails.
        """
        possible = {entry[0]: entry[1] for entry in self._state_machine.available_transitions}
        if self._pending is not None or transition_id not in possible:
            self.get_logger().error(
                f"lifecycle transition {transition_id} is not possible while {self.state_label}; "
                f"possible now: {', '.join(sorted(possible.values())) or 'none, wait'}"
            )
            done(False)
            return
        self._reply = done
        self._state_machine.trigger_transition_by_id(transition_id, True)
        try:
            self._pending = self._work(transition_id)
        except Exception as error:
            self._finish(error)
        else:
            if self._pending is None:
                self._finish(None)
            else:
                self._poll.reset()

    def _work(self, transition_id: int) -> Future[None] | None:
        if transition_id == Transition.TRANSITION_CONFIGURE:
            return self.configure()
        if transition_id == Transition.TRANSITION_ACTIVATE:
            return self.activate()
        if transition_id in (
            Transition.TRANSITION_DEACTIVATE,
            Transition.TRANSITION_ACTIVE_SHUTDOWN,
        ):
            self.deactivate()
        if transition_id in (Transition.TRANSITION_CLEANUP, *_SHUTDOWN.values()):
            self.cleanup()
        return None

    def _finish(self, error: BaseException | None) -> None:
        """End the running transition, log one line about an error and answer the caller."""
        self._pending = None
        self.last_error = error
        if error is None:
            outcome = TransitionCallbackReturn.SUCCESS
        else:
            outcome = TransitionCallbackReturn.FAILURE
            label = self.state_label
            if not isinstance(error, CosmosLiteError):
                self.get_logger().debug("".join(traceback.format_exception(error)))
            self.get_logger().error(f"{label} failed: {one_line(error)}")
            if label == "configuring":
                self.cleanup()
        self._state_machine.trigger_transition_by_label(outcome.to_label(), True)
        reply, self._reply = self._reply, None
        if reply is not None:
            reply(error is None)

    def _on_poll(self) -> None:
        if self._pending is not None:
            if self._pending.done():
                pending = self._pending
                error = None if pending.cancelled() else pending.exception()
                self._finish(error)
            return
        if self._autostart:
            self._start_next()
        else:
            self._poll.cancel()

    def _start_next(self) -> None:
        state = self._state_machine.current_state[0]
        if state == State.PRIMARY_STATE_UNCONFIGURED:
            self.start_transition(Transition.TRANSITION_CONFIGURE, self._autostarted)
        elif state == State.PRIMARY_STATE_INACTIVE:
            self.start_transition(Transition.TRANSITION_ACTIVATE, self._autostarted)
        else:
            self._autostart = False

    def _autostarted(self, success: bool) -> None:
        if success:
            return
        self._autostart = False
        error = self.last_error
        code = error.exit_code if isinstance(error, CosmosLiteError) else 1
        self.exit(code, "")

    # ~/change_state, whose answer may be held back.

    def _on_change_state(
        self, request: ChangeState.Request, response: ChangeState.Response
    ) -> ChangeState.Response:
        if self._pending is not None:
            self.get_logger().error(f"change_state refused: the node is {self.state_label}")
            response.success = False
            return response
        wanted = int(request.transition.id)
        if request.transition.label:
            found = [
                entry[0]
                for entry in self._state_machine.available_transitions
                if entry[1] == request.transition.label
            ]
            wanted = int(found[0]) if found else -1
        # A manager that takes part decides from now on.
        self._autostart = False
        answered: list[bool] = []

        def done(success: bool) -> None:
            response.success = success
            if self._held is None:
                answered.append(success)
            else:
                held, self._held = self._held, None
                self._send_response(response, held)

        self.start_transition(wanted, done)
        self._hold_next = not answered
        return response

    def _send_or_hold(self, response: ChangeState.Response, header: Any) -> None:
        if self._hold_next:
            self._hold_next, self._held = False, header
        else:
            self._send_response(response, header)

    # rclpy's own entry points would answer without doing any work.

    def trigger_configure(self) -> None:
        """Begin to configure."""
        self.start_transition(Transition.TRANSITION_CONFIGURE)

    def trigger_activate(self) -> None:
        """Begin to activate."""
        self.start_transition(Transition.TRANSITION_ACTIVATE)

    def trigger_deactivate(self) -> None:
        """Deactivate."""
        self.start_transition(Transition.TRANSITION_DEACTIVATE)

    def trigger_cleanup(self) -> None:
        """Clean up."""
        self.start_transition(Transition.TRANSITION_CLEANUP)

    def shut_down(self) -> None:
        """To ``finalized``, if the present state allows it."""
        transition = _SHUTDOWN.get(self._state_machine.current_state[0])
        if transition is not None:
            self._state_machine.trigger_transition_by_id(transition, True)
            label = TransitionCallbackReturn.SUCCESS.to_label()
            self._state_machine.trigger_transition_by_label(label, True)


def one_line(error: BaseException) -> str:
    """The error as one line for a user."""
    text = " ".join(str(error).split())
    return text if isinstance(error, CosmosLiteError) else f"{type(error).__name__}: {text}"


def _print_error(line: str) -> None:
    print(f"error: {line}", file=sys.stderr, flush=True)


class _Stop:
    """Set by SIGINT and SIGTERM; ends the process by force when that takes too long.

    ``wake`` is called from another thread, so that a main thread that waits handles the signal.
    """

    def __init__(self) -> None:
        self.requested = False
        self.wake: Callable[[], None] = lambda: None
        self._reader, self._writer = socket.socketpair()
        self._writer.setblocking(False)
        self._thread = threading.Thread(target=self._watch, name="exit-watchdog", daemon=True)
        self._thread.start()

    def handle(self, number: int, frame: object) -> None:
        """Signal handler, in the main thread."""
        self.requested = True

    def other_threads(self) -> bool:
        """Whether threads besides the main one and the watchdog are alive."""
        own = (threading.main_thread(), self._thread)
        return any(thread not in own for thread in threading.enumerate())

    def _watch(self) -> None:
        # Woken by the C part of the signal handling, so also while the main thread is in C code.
        self._reader.recv(1)
        with suppress(Exception):  # the executor may be gone already
            self.wake()
        time.sleep(EXIT_DEADLINE_S)
        sys.stderr.flush()
        os._exit(0)

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Handle SIGINT and SIGTERM, also where a shell has set SIGINT to ignored."""
        old = {s: signal.signal(s, self.handle) for s in (signal.SIGINT, signal.SIGTERM)}
        old_fd = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(old_fd)
            for number, handler in old.items():
                signal.signal(number, handler)


def run_node(factory: Callable[[], Node], argv: Sequence[str] | None = None) -> int:
    """Main function of a node: initialise, construct, spin, end cleanly. Returns the exit code.

    ``factory`` constructs the node after rclpy.init. 0 after SIGINT or SIGTERM, also during long
    work in other threads; 2 for bad parameters or arguments; the ``exit_code`` of a
    ``CosmosLiteError`` otherwise. Errors of ours are one line on stderr. A node may have
    ``close()``.

    Args:
        argv: the whole command line with the program's name; None means ``sys.argv``.
    """
    arguments = list(sys.argv if argv is None else argv)
    stop = _Stop()
    with stop.installed():
        code = _run(factory, arguments, stop)
    sys.stdout.flush()
    sys.stderr.flush()
    if stop.requested or stop.other_threads():
        # They may be deep in a computation, which the interpreter would wait for or tear apart.
        os._exit(code)
    return code


def _initialise(arguments: list[str]) -> None:
    use_shipped_dds_profile()
    try:
        rest = remove_ros_args(arguments)[1:]
        rclpy.init(args=arguments, signal_handler_options=SignalHandlerOptions.NO)
    except Exception as error:
        raise BadInputError(f"the ROS arguments cannot be read: {one_line(error)}") from error
    if rest:
        raise BadInputError(
            f"unknown argument {rest[0]!r}: parameters are given as --ros-args -p NAME:=VALUE or "
            "--ros-args --params-file FILE"
        )


def _run(factory: Callable[[], Node], arguments: list[str], stop: _Stop) -> int:
    node: Node | None = None
    try:
        _initialise(arguments)
        node = factory()
        executor = SingleThreadedExecutor()
        executor.add_node(node)
        stop.wake = executor.wake
        # A signal wakes it.
        while not stop.requested:
            executor.spin_once(timeout_sec=0.5)
    except CosmosLiteError as error:
        _print_error(one_line(error))
        return error.exit_code
    except ExitRequest as request:
        if str(request):
            _print_error(str(request))
        return request.code
    except (ExternalShutdownException, KeyboardInterrupt):
        return 0
    except Exception as error:
        traceback.print_exc()
        _print_error(one_line(error))
        return 1
    finally:
        _close(node)
    return 0


def _close(node: Node | None) -> None:
    """Close and destroy the node; nothing here may hide how the node ended."""
    try:
        if node is not None:
            close = getattr(node, "close", None)
            if callable(close):
                close()
            if isinstance(node, ManagedNode):
                node.shut_down()
            node.destroy_node()
        rclpy.try_shutdown()
    except Exception as error:
        _print_error(f"while closing: {one_line(error)}")
