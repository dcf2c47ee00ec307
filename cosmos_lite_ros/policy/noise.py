# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The sampler's noise: kept while the seed stays, drawn ahead where the next seed is foreseeable.

Drawing takes 9 to 35 ms of NumPy, more than a tenth of a fast request: with advancing seeds the
next one is drawn on a thread of its own right after a request.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress

import torch
from torch import Tensor

from cosmos_lite_ros.policy.layout import patchify
from cosmos_lite_ros.policy.sampler import draw_noise

# Video noise as patches [3060, 192] and action noise [33, 64], float32 on the host.
Noise = tuple[Tensor, Tensor]
_SEEDS = 2**32


class NoiseSource:
    """Noise by seed; used by one thread."""

    def __init__(self, *, pin: bool = False) -> None:
        """``pin``: in page-locked memory, for a CUDA device."""
        self._pin = pin
        self._seed: int | None = None
        self._noise: Noise | None = None
        self._ahead: tuple[int, Future[Noise]] | None = None
        self._advancing = False
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="noise")
        self.ready = 0  # how often nothing had to be drawn in the request

    def get(self, seed: int) -> tuple[Noise, bool]:
        """The noise of a seed, and whether it differs from that of the last call.

        Raises:
            BadInputError: a seed outside 0 .. 2**32 - 1.
        """
        if self._noise is not None and seed == self._seed:
            self.ready += 1
            self._advancing = False
            return self._noise, False
        if self._ahead is not None and self._ahead[0] == seed and not self._ahead[1].cancelled():
            self.ready += 1
            noise = self._ahead[1].result()
        else:
            noise = self._draw(seed)
        self._advancing = self._seed is not None and seed == (self._seed + 1) % _SEEDS
        self._seed, self._noise, self._ahead = seed, noise, None
        return noise, True

    def prefetch(self, *, advancing: bool = False) -> None:
        """After a request: draw the following seed where seeds advance (said, or just seen)."""
        if self._seed is None or not (advancing or self._advancing):
            return
        following = (self._seed + 1) % _SEEDS
        if self._ahead is None or self._ahead[0] != following:
            # Closed while a request is in hand: that one still ends well.
            with suppress(RuntimeError):
                self._ahead = (following, self._pool.submit(self._draw, following))

    def close(self) -> None:
        """No more prefetching."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _draw(self, seed: int) -> Noise:
        video, rows = draw_noise(seed)
        patches = patchify(torch.from_numpy(video)).contiguous()
        both = patches, torch.from_numpy(rows)
        return (both[0].pin_memory(), both[1].pin_memory()) if self._pin else both
