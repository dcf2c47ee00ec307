# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Text keys and values by prompt: computed once, kept in an LRU, counted."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from cosmos_lite_ros.policy.cards import CardFolder
from cosmos_lite_ros.policy.text_tower import TextKV


class TextStore:
    """The newest prompts' keys and values in host memory; the engine copies them to the device.

    The key is the prompt's token ids: one store belongs to one loaded checkpoint in one dtype, and
    nothing of image, state, noise or step enters, since the text tower sees none of it. Results are
    shared and must not be written to; one that has left the store stays valid for its holder. Not
    thread-safe.

    Attributes:
        hits: answered from memory.
        card_hits: read from a prompt card.
        misses: asked of the text tower. Every ``get`` counts as one of the three.
    """

    def __init__(
        self,
        compute: Callable[[list[int]], TextKV],
        entries: int,
        cards: CardFolder | None = None,
        *,
        pin: bool = False,
    ):
        """Empty.

        Args:
            compute: the text tower, on whatever device.
            entries: most prompts kept, at least 1.
            cards: asked before the tower; never written to.
            pin: keep them in page-locked memory, for a CUDA device.
        """
        self._compute = compute
        self._entries = max(1, entries)
        self._cards = cards
        self._pin = pin
        self._kept: OrderedDict[tuple[int, ...], TextKV] = OrderedDict()
        self.hits = 0
        self.card_hits = 0
        self.misses = 0

    @property
    def nbytes(self) -> int:
        """Host memory of all kept prompts, bytes."""
        return sum(kv.nbytes for kv in self._kept.values())

    def get(self, token_ids: list[int]) -> TextKV:
        """Keys and values of a prompt: from memory, from its card, or from the tower.

        Raises:
            EnvironmentLacksError: neither kept nor on a card, and there is no tower.
        """
        key = tuple(token_ids)
        found = self._kept.get(key)
        if found is not None:
            self.hits += 1
            self._kept.move_to_end(key)
            return found
        found = self._card(token_ids)
        if found is not None:
            self.card_hits += 1
        else:
            self.misses += 1
            found = self._run(token_ids)
        self._kept[key] = found
        while len(self._kept) > self._entries:
            self._kept.popitem(last=False)
        return found

    def settle(self) -> None:
        """Move what a tower on a GPU has just computed to host memory: when nobody waits."""
        for key, kv in self._kept.items():
            self._kept[key] = kv.on_host(pin=self._pin)

    def make(self, token_ids: list[int]) -> TextKV:
        """As ``get``, from its card or the tower; neither kept nor counted."""
        return self._card(token_ids) or self._run(token_ids)

    def clear(self) -> None:
        """Forget every prompt; the counters stay."""
        self._kept.clear()

    def reset_counters(self) -> None:
        """Start counting anew."""
        self.hits = self.card_hits = self.misses = 0

    def _card(self, token_ids: list[int]) -> TextKV | None:
        return None if self._cards is None else self._cards.load(token_ids, pin=self._pin)

    def _run(self, token_ids: list[int]) -> TextKV:
        return self._compute(token_ids)
