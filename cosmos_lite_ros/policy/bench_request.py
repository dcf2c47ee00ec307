# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""``bench request``: from three host images to actions, beside its peers in the same run.

One call of ``PolicyEngine.act`` a request, with new images, a new state and a new seed each; the
clock includes composing the views, every copy and the wait for the GPU.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt

from cosmos_lite_ros.contract.prompt import state_row
from cosmos_lite_ros.contract.views import arrange_views
from cosmos_lite_ros.errors import BadInputError
from cosmos_lite_ros.policy.bench_common import (
    NEW_INSTRUCTION,
    Card,
    Report,
    Requests,
    Say,
    Target,
    Views,
    ask,
    checkpoint_folder,
    machine,
    on_engine,
    set_tokens,
    settle,
    summary,
    synchronize,
)
from cosmos_lite_ros.policy.bench_peers import bench_peers, bench_reference
from cosmos_lite_ros.policy.engine import PolicyEngine
from cosmos_lite_ros.policy.reference import ReferencePolicy

STAGES = ("compose", "inputs", "encode", "text", "denoise", "answer")
_WARM_UP_CALLS = 5
_SETTLED_CALLS = 20
_DUTY_PERIODS_S = (1.0, 2.0)
_COMPARED = 4


@dataclass(frozen=True)
class RequestOptions:
    """How much is measured.

    Attributes:
        calls: timed calls back to back.
        duty_calls: timed calls at each duty cycle (one request a second, one every two).
        peers: also load diffusers' modules: times beside the engine's, and the actions compared.
        compiled: also compile the stock transformer's blocks.
    """

    calls: int = 50
    duty_calls: int = 10
    peers: bool = True
    compiled: bool = False

    def __post_init__(self) -> None:
        """Refuse what gives no median."""
        if self.calls < 1 or self.duty_calls < 0:
            raise BadInputError(
                f"found {self.calls} calls and {self.duty_calls} duty calls, expected at least 1 "
                "and 0"
            )


def bench_request(target: Target, options: RequestOptions, say: Say) -> Report:
    """Everything; the report's keys are described in docs/performance.md.

    Raises:
        CosmosLiteError: as ``PolicyEngine.load``; an answer that is not finite.
    """
    card = Card(target.find_device())
    with checkpoint_folder(target, say) as folder:
        run = _Run(target, options, folder, card, say)
        try:
            return run.report()
        finally:
            run.engine.close()


class _Run:
    """One engine, and what has been measured of it so far."""

    def __init__(
        self, target: Target, options: RequestOptions, folder: Path, card: Card, say: Say
    ) -> None:
        self.target = target
        self.options = options
        self.folder = folder
        self.card = card
        self.say = say
        self.made = Requests()
        self.requests = 0
        say("loading the engine")
        card.reset_peak()
        self.memory: Report = {"before_load": card.snapshot()}
        started = time.perf_counter()
        self.engine = PolicyEngine.load(target.settings(folder))
        self.settle()
        self.load_s = time.perf_counter() - started
        self.memory["load_peak"] = card.peak()
        self.memory["loaded"] = self.snapshot()
        self.instruction, self.tokens = set_tokens(self.engine)

    @property
    def few(self) -> int:
        """Calls of the smaller measurements."""
        return min(self.options.calls, _SETTLED_CALLS)

    def settle(self) -> None:
        settle(self.engine)

    def snapshot(self) -> Report:
        return on_engine(self.engine, self.card.snapshot)

    def ask(
        self, seed: int | None = None, instruction: str = "", views: Views | None = None
    ) -> float:
        """One request on new images; ms."""
        self.requests += 1
        views = views or self.made.new()
        return ask(self.engine, views, instruction or self.instruction, seed)[0]

    def report(self) -> Report:
        """Measure in the order in which nothing spoils what comes after."""
        engine, say = self.engine, self.say
        started = time.perf_counter()
        engine.warm_up()
        self.settle()
        warm_up_s = time.perf_counter() - started
        self.memory["warmed_up"] = self.snapshot()
        # As the policy node does when an instruction arrives.
        engine.prefetch(self.instruction).result()
        first_ms, second_ms = self.ask(), self.ask()
        self.settle()
        captures_before = engine.recompiles
        say(f"{self.options.calls} requests back to back")
        latency = self.back_to_back(self.options.calls)
        self.memory["after_back_to_back"] = self.snapshot()
        foreseen = summary(latency)
        say("other seeds, stages")
        unforeseen, fixed = self.other_seeds()
        stages = self.stages()
        duty = {f"{period:g}": self.duty(period) for period in _DUTY_PERIODS_S}
        say("a new instruction")
        changed = self.new_instruction()
        while self.card.device.type == "cuda" and self.requests < 100:
            self.ask()
        self.settle()
        self.memory["steady"] = self.snapshot()
        self.memory["requests_before_steady"] = self.requests
        self.memory["run_peak"] = self.card.peak()
        captures_after = engine.recompiles
        same = self.sameness()
        report: Report = {
            "bench": "request",
            "machine": machine(self.card.device),
            "target": asdict(self.target),
            "options": asdict(self.options),
            "effective": engine.effective,
            "tokens": self.tokens,
            "load_s": self.load_s,
            "warm_up_s": warm_up_s,
            "request": foreseen,
            "request_unforeseen_seed": unforeseen,
            "request_fixed_seed": fixed,
            "first_after_ready": {
                "first_ms": first_ms,
                "second_ms": second_ms,
                "first_over_median": first_ms / foreseen["median_ms"],
            },
            "stages": stages,
            "duty_cycle": duty,
            "new_instruction": changed,
            "captures": {
                "before": captures_before,
                "after": captures_after,
                "denoise_capture_ms": self.capture_ms(),
            },
            "sameness": same,
            "card_counts_from": self.card.baseline,
            "memory": self.memory,
            "reference": None,
            "peers": None,
        }
        if self.options.peers:
            report.update(self.peers())
        return report

    def back_to_back(self, calls: int, seed: Callable[[], int] | None = None) -> list[float]:
        """Requests without a pause: their pictures are drawn before."""
        warm_up = _WARM_UP_CALLS if self.card.device.type == "cuda" else 0
        pictures = [self.made.new() for _ in range(warm_up + calls)]
        times = [self.ask(seed() if seed else None, views=views) for views in pictures]
        return times[warm_up:]

    def other_seeds(self) -> tuple[Report, Report]:
        """A seed that nobody foresees, so that noise is drawn in the request; one seed for all."""
        engine, settings = self.engine, self.engine.settings
        # Without it the noise of a following seed that never comes would be drawn meanwhile.
        engine.settings = replace(settings, seed_mode="fixed")
        try:
            unforeseen = summary(self.back_to_back(self.few, self.made.seed))
            fixed = summary(self.back_to_back(self.few, lambda: settings.seed))
        finally:
            engine.settings = settings
        self.ask()
        return unforeseen, fixed

    def duty(self, period_s: float) -> Report:
        """One request each period, at absolute instants."""
        times: list[float] = []
        if not self.options.duty_calls:
            return summary(times)
        self.say(f"one request every {period_s:g} s")
        self.ask()
        self.settle()
        start = time.perf_counter()
        for i in range(self.options.duty_calls):
            time.sleep(max(0.0, start + i * period_s - time.perf_counter()))
            times.append(self.ask())
        return summary(times)

    def stages(self) -> Report:
        """Medians by stage; each is waited for, so their sum is somewhat more than a request."""
        runs = [self._staged(self.made.new()) for _ in range(self.few)]
        self.requests += self.few
        medians = {n: float(np.median([r[i] for r in runs])) for i, n in enumerate(STAGES)}
        return {f"{name}_ms": value for name, value in medians.items()}

    def _staged(self, views: Views) -> list[float]:
        engine, runner = self.engine, self.engine._runner
        device = runner.tower.device

        def run() -> list[float]:
            synchronize(device)
            marks = [time.perf_counter()]

            def mark() -> None:
                synchronize(device)
                marks.append(time.perf_counter())

            image = arrange_views(*views.images)
            mark()
            seed = (engine.settings.seed + engine._requests) % 2**32
            engine._requests += 1
            noise, changed = engine._noise.get(seed)
            if changed:
                runner.set_noise(*noise)
            runner.set_inputs(image, state_row(views.joint_positions, views.gripper))
            mark()
            runner.encode()
            mark()
            slots = engine._fill_slots(self.instruction)
            mark()
            _, rows = runner.denoise(*slots, engine.settings.sampler)
            mark()
            runner.answer(rows)
            mark()
            return [1e3 * (b - a) for a, b in pairwise(marks)]

        times = on_engine(engine, run)
        on_engine(engine, engine._after)
        return times

    def new_instruction(self) -> Report:
        """An instruction of another length: its request, and the two that follow."""
        before = self.ask()
        _, misses = self.engine.text_cache_stats()
        times = [self.ask(instruction=NEW_INSTRUCTION)]
        # Its graph is captured now, while nobody waits.
        started = time.perf_counter()
        self.settle()
        settled_ms = 1e3 * (time.perf_counter() - started)
        times += [self.ask(instruction=NEW_INSTRUCTION) for _ in range(2)]
        back = [self.ask() for _ in range(2)]
        return {
            "request_before_ms": before,
            "request_ms": times[0],
            "background_ms": settled_ms,
            "following_ms": times[1],
            "second_following_ms": times[2],
            "known_again_ms": back[0],
            "text_tower_runs": self.engine.text_cache_stats()[1] - misses,
        }

    def capture_ms(self) -> float | None:
        """Time to capture the sampler's graph, its one run outside included; None without."""
        engine, runner = self.engine, self.engine._runner
        if not runner.uses_graphs:
            return None
        observation = self.made.new().observation(self.instruction)

        def run() -> float:
            runner.forget_graphs()
            engine._run(observation, engine.settings.sampler, 0, False)
            synchronize(runner.tower.device)
            started = time.perf_counter()
            runner.capture_pending()
            synchronize(runner.tower.device)
            return 1e3 * (time.perf_counter() - started)

        return on_engine(engine, run)

    def sameness(self) -> Report:
        """One request thrice, others between; and without graphs. Bits, and what that costs."""
        views, seed = self.made.new(), 12345

        def answer() -> npt.NDArray[np.float32]:
            return ask(self.engine, views, self.instruction, seed)[1]

        first = answer()
        self.ask()
        again = answer()
        self.ask(instruction=NEW_INSTRUCTION)
        third = answer()
        runner = self.engine._runner
        found: Report = {
            "repeated_bit_equal": first.tobytes() == again.tobytes() == third.tobytes(),
            "graph_bit_equal": None,
            "graph_max_difference": None,
            "without_graphs": None,
        }
        if runner.uses_graphs:
            graphs = runner._graphs

            def switch(on: bool) -> None:
                runner.uses_graphs = on
                runner._graphs = graphs if on else OrderedDict()

            on_engine(self.engine, lambda: switch(False))
            plain = answer()
            found["without_graphs"] = summary(self.back_to_back(self.few))
            on_engine(self.engine, lambda: switch(True))
            found["graph_bit_equal"] = plain.tobytes() == first.tobytes()
            found["graph_max_difference"] = float(np.abs(plain - first).max())
        return found

    def peers(self) -> Report:
        """Diffusers' modules in the same run; afterwards the engine's memory is not alone."""
        self.settle()
        self.say("loading the reference")
        dtype = self.engine._runner.tower.dtype
        reference = ReferencePolicy(str(self.folder), device=self.target.device, dtype=dtype)
        self.say("actions against the reference")
        cuda = self.card.device.type == "cuda"
        report: Report = {}
        report["reference"] = bench_reference(
            self.engine,
            reference,
            self.instruction,
            requests=_COMPARED if cuda else 1,
            calls=min(self.few, 10) if cuda else 1,
        )
        self.settle()
        tokenizer = self.engine._tokenizer
        texts = self.engine._tokens(self.instruction), tokenizer.encode("")
        report["peers"] = bench_peers(
            reference,
            self.engine.info,
            texts,
            calls=min(self.few, 10) if cuda else 1,
            compiled=self.options.compiled,
            say=self.say,
        )
        return report
