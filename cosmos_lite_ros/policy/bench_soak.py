# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""``bench soak``: many requests in a row. Nothing may grow, recompile or change."""

from __future__ import annotations

import time
from dataclasses import asdict

import numpy as np

from cosmos_lite_ros.errors import BadInputError
from cosmos_lite_ros.policy.bench_common import (
    NEW_INSTRUCTION,
    Card,
    Report,
    Requests,
    Say,
    Target,
    ask,
    checkpoint_folder,
    machine,
    on_engine,
    set_tokens,
    settle,
    summary,
)
from cosmos_lite_ros.policy.engine import PolicyEngine

# Samples of memory and repeated requests over the whole run.
_SAMPLES = 20
# Pictures in turn: drawing new ones would take longer than a fast request.
_PICTURES = 16
_SEED = 7


def bench_soak(target: Target, requests: int, say: Say) -> Report:
    """Run ``requests`` requests with one change of instruction in the middle.

    Between them the same request is repeated at every sample and compared bit for bit; it and the
    request after it (whose noise could not be foreseen) are not among the times. The slope of each
    kind of memory is a least-squares line through the samples after the change of instruction.

    Raises:
        BadInputError: fewer than 4 requests.
        CosmosLiteError: as ``PolicyEngine.load``; an answer that is not finite.
    """
    if requests < 4:
        raise BadInputError(f"found {requests} requests, expected at least 4")
    card = Card(target.find_device())
    with checkpoint_folder(target, say) as folder:
        say("loading the engine")
        card.reset_peak()
        engine = PolicyEngine.load(target.settings(folder))
        try:
            return _soak(engine, target, requests, card, say)
        finally:
            engine.close()


def _soak(engine: PolicyEngine, target: Target, requests: int, card: Card, say: Say) -> Report:
    instruction, tokens = set_tokens(engine)
    engine.warm_up()
    made = Requests()
    pictures = [made.new() for _ in range(_PICTURES)]
    probe = made.new()
    first_words = instruction
    times: list[float] = []
    samples: list[Report] = []
    answers: set[bytes] = set()
    change = requests // 2
    every = max(2, requests // _SAMPLES)
    captures_after_change = 0
    count = 0
    started = time.perf_counter()

    def sample() -> None:
        answers.add(ask(engine, probe, first_words, _SEED)[1].tobytes())
        settle(engine)
        samples.append(
            {
                "request": count,
                "captures": engine.recompiles,
                **on_engine(engine, card.snapshot),
            }
        )

    ask(engine, probe, instruction)
    settle(engine)
    captures = engine.recompiles
    foreseen = False
    change_ms = 0.0
    while count < requests:
        changing = count == change
        if changing:
            instruction = NEW_INSTRUCTION
        elapsed_ms, _ = ask(engine, pictures[count % _PICTURES], instruction)
        count += 1
        if changing:
            change_ms = elapsed_ms
            settle(engine)
            captures_after_change = engine.recompiles
        elif foreseen:
            times.append(elapsed_ms)
        foreseen = True
        if count % every == 0 or count == requests:
            sample()
            foreseen = False
            say(f"{count} of {requests} requests")
    later = [s for s in samples if s["request"] > change]
    slopes = {
        name: _slope([s["request"] for s in later], [s[name] for s in later])
        for name in ("reserved", "allocated", "card", "host_anonymous")
    }
    return {
        "bench": "soak",
        "machine": machine(card.device),
        "target": asdict(target),
        "effective": engine.effective,
        "tokens": tokens,
        "requests": requests,
        "seconds": time.perf_counter() - started,
        "request": summary(times),
        "request_of_change_ms": change_ms,
        "repeated": len(samples),
        "repeated_bit_equal": len(answers) == 1,
        "captures": {
            "before": captures,
            "after_change": captures_after_change,
            "at_end": engine.recompiles,
        },
        "bytes_per_request": slopes,
        "first_sample": samples[0],
        "last_sample": samples[-1],
        "peak": card.peak(),
        "card_counts_from": card.baseline,
        "samples": samples,
    }


def _slope(x: list[int], y: list[int]) -> float | None:
    """Bytes a request; None from fewer than two samples."""
    if len(set(x)) < 2:
        return None
    return float(np.polyfit(np.asarray(x, float), np.asarray(y, float), 1)[0])
