# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""SCHED_FIFO for the executor's process, where the system permits it, and whether it is in effect.

The whole process gets it, not the tick alone: a thread of normal priority that is preempted while
it holds the interpreter lock, or a lock of the middleware, would keep the tick waiting.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
from dataclasses import dataclass

# Linux 6.12 and later: a thread may ask for a shorter slice, which wakes it sooner. No privilege.
SLICE_NS = 100_000
_SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}


@dataclass(frozen=True)
class Scheduling:
    """What was asked for and what is in effect; ``text`` is one line for people."""

    realtime: bool
    text: str

    @classmethod
    def unasked(cls) -> Scheduling:
        """As a process starts."""
        return cls(False, "SCHED_OTHER")


def _threads() -> list[int]:
    return [int(name) for name in os.listdir("/proc/self/task")]


def schedule(priority: int) -> Scheduling:
    """Give every thread of this process SCHED_FIFO with a priority; 0: do not.

    Where that is not asked for or not permitted, they get a short slice of the usual scheduler.
    Threads that start later inherit from the thread that starts them.
    """
    if priority == 0:
        return Scheduling(False, f"SCHED_OTHER (realtime_priority is 0){_short_slices()}")
    try:
        for thread in _threads():
            try:
                os.sched_setscheduler(thread, os.SCHED_FIFO, os.sched_param(priority))
            except ProcessLookupError:
                continue  # it has ended meanwhile
    except (OSError, AttributeError) as error:
        return Scheduling(
            False,
            f"SCHED_OTHER: SCHED_FIFO is not permitted ({error}); allow rtprio {priority} in "
            f"/etc/security/limits.conf or set realtime_priority to 0{_short_slices()}",
        )
    return Scheduling(True, f"SCHED_FIFO, priority {priority}")


def _short_slices() -> str:
    """Ask for short slices; what is in effect, for the line."""
    number = _SCHED_SETATTR.get(platform.machine())
    if number is None or not hasattr(os, "sched_setscheduler"):
        return ""
    libc = ctypes.CDLL(None, use_errno=True)
    for thread in _threads():
        try:
            nice = os.getpriority(os.PRIO_PROCESS, thread)
        except ProcessLookupError:
            continue
        # struct sched_attr: size, policy, flags, nice, priority, runtime (the slice), ...
        attributes = struct.pack("=IIQiIQQQII", 56, 0, 0, nice, 0, SLICE_NS, 0, 0, 0, 0)
        if libc.syscall(number, thread, attributes, 0) != 0:
            return ""
    return f", slice {SLICE_NS / 1e6:g} ms"
