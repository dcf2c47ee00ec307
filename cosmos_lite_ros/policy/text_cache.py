# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Text keys and values by prompt: computed once, kept in an LRU, counted."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from cosmos_lite_ros.policy.network import TextCache


class TextCacheLRU:
    """The newest prompts' text caches.

    The key is the prompt's token ids: one object belongs to one loaded checkpoint in one dtype, and
    nothing of image, state, noise or step enters, since the text tower sees none of it.
    """

    def __init__(self, compute: Callable[[list[int]], TextCache], entries: int):
        """``compute`` runs the text tower; at most ``entries`` prompts are kept."""
        self._compute = compute
        self._entries = max(1, entries)
        self._kept: OrderedDict[tuple[int, ...], TextCache] = OrderedDict()
        self.hits = 0
        self.misses = 0

    def get(self, token_ids: list[int]) -> TextCache:
        """The cache of this prompt, computed if it is not kept."""
        key = tuple(token_ids)
        found = self._kept.get(key)
        if found is not None:
            self.hits += 1
            self._kept.move_to_end(key)
            return found
        self.misses += 1
        computed = self._compute(token_ids)
        self._kept[key] = computed
        while len(self._kept) > self._entries:
            self._kept.popitem(last=False)
        return computed

    def clear(self) -> None:
        """Forget every prompt; the counters stay."""
        self._kept.clear()
