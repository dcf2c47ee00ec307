# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""One thread that owns the model.

A captured graph or a compiled model called from a second thread can return corrupted output
silently, so everything that touches the model runs here. The thread is a daemon: a process that
is told to end need not wait for a request in hand.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

import torch

T = TypeVar("T")


class Worker:
    """Runs callables one after another, in inference mode, on a thread of its own."""

    def __init__(self, name: str):
        """Start the thread."""
        self._jobs: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = (
            queue.SimpleQueue()
        )
        self._closed = False
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, job: Callable[[], T]) -> Future[T]:
        """Queue a job.

        Raises:
            RuntimeError: the worker is closed.
        """
        future: Future[T] = Future()
        with self._lock:
            if self._closed:
                raise RuntimeError("the engine is closed")
            self._jobs.put((future, job))
        return future

    def close(self, wait_s: float = 5.0) -> None:
        """Cancel what is queued, and wait for the job in hand and the thread's end at most so long.

        An interpreter that ends while the thread is inside torch is aborted by the C++ runtime;
        whoever cannot wait must leave with ``os._exit``.
        """
        self._cancel()
        if threading.current_thread() is not self._thread:
            self._thread.join(wait_s)

    def _cancel(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
            while True:
                try:
                    item = self._jobs.get_nowait()
                except queue.Empty:
                    break
                if item is not None:
                    item[0].cancel()
            self._jobs.put(None)

    def _run(self) -> None:
        with torch.inference_mode():
            while (item := self._jobs.get()) is not None:
                future, job = item
                if not future.set_running_or_notify_cancel():
                    continue
                try:
                    future.set_result(job())
                except BaseException as error:
                    future.set_exception(error)
                del future, job, item
