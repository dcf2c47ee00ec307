# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Who answers the frozen requests: the engine in some arithmetic, or the stock network.

The reference's run is recorded: the inputs of every forward and what came out of it. Every other
subject then answers twice: forward by forward from the reference's inputs (teacher-forced), and
the whole request on its own.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cosmos_lite_ros.contract.constants import ACTION_WIDTH, JOINTS
from cosmos_lite_ros.contract.observation import Observation
from cosmos_lite_ros.contract.prompt import build_prompt
from cosmos_lite_ros.policy.compare.requests import FrozenRequest
from cosmos_lite_ros.policy.engine import EngineSettings, PolicyEngine
from cosmos_lite_ros.policy.layout import unpatchify
from cosmos_lite_ros.policy.network import Velocity
from cosmos_lite_ros.policy.reference import ReferencePolicy
from cosmos_lite_ros.policy.runner import TextSlot
from cosmos_lite_ros.policy.sampler import SamplerSettings
from cosmos_lite_ros.policy.tower import Branch, GenerationTower
from cosmos_lite_ros.policy.trace import Trace

Array = npt.NDArray[np.float32]
BRANCHES = ("conditional", "unconditional")


@dataclass(frozen=True, eq=False)
class Velocities:
    """What one forward said, of one guidance branch.

    Attributes:
        action: float32 [32, 8].
        video: [48, 8, 33, 40], on the host in the dtype that it was computed in.
    """

    action: Array
    video: Tensor


@dataclass(frozen=True, eq=False)
class Forward:
    """Inputs of one step's forwards: vision patches [3060, 192] and rows [33, 64], on the host."""

    vision: Tensor
    rows: Tensor
    timestep: float


@dataclass(frozen=True, eq=False)
class Answer:
    """A whole request: chunk float32 [32, 8] as commands (gripper 1 = closed), video, latent."""

    chunk: Array
    video: Array
    latent: Array


@dataclass(frozen=True, eq=False)
class Recording:
    """One request of the reference: each step's inputs, velocities by step and branch, the end."""

    request: FrozenRequest
    forwards: tuple[Forward, ...]
    velocities: tuple[tuple[Velocities, ...], ...]
    answer: Answer


class Subject(Protocol):
    """Somebody who answers."""

    name: str

    def velocities(self, recording: Recording) -> tuple[tuple[Velocities, ...], ...]:
        """By step and branch, from the reference's inputs."""

    def answer(self, request: FrozenRequest, latent: Array | None = None) -> Answer:
        """The whole request, from the same noise.

        Args:
            request: what to answer.
            latent: the encoded picture, float32 [48, 33, 40], for who only stands for a network.
        """

    def close(self) -> None:
        """Give the memory back."""


@dataclass
class _Recorder:
    """Stands before a tower and notes what goes in and out; made for one request."""

    tower: GenerationTower
    inputs: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    found: list[Velocities] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.tower, name)

    def forward(
        self, vision: Tensor, rows: Tensor, time: Tensor, *branches: Branch, **options: Any
    ) -> list[tuple[Tensor | None, Tensor]]:
        found = self.tower.forward(vision, rows, time, *branches, **options)
        self.inputs += [(vision.cpu().clone(), rows.cpu().clone())] * len(branches)
        self.found += [_velocities(*each) for each in found]
        return found


class EngineSubject:
    """An engine: what a robot would run."""

    def __init__(self, name: str, engine: PolicyEngine):
        """Owns the engine from now on."""
        self.name = name
        self.engine = engine

    @classmethod
    def load(cls, name: str, settings: EngineSettings) -> EngineSubject:
        """Load the engine; raises what it raises."""
        return cls(name, PolicyEngine.load(settings))

    def record(self, request: FrozenRequest) -> Recording:
        """Answer with the video, step by step without graphs, and note everything."""
        engine, trace = self.engine, Trace()
        runner = engine._runner
        recorder = _Recorder(runner.tower)
        stand_in: Any = recorder
        runner.tower = stand_in
        try:
            engine.act(request.observation, seed=request.seed, trace=trace)
        finally:
            runner.tower = recorder.tower
        branches = len(recorder.found) // len(trace.timesteps)
        steps = range(len(trace.timesteps))
        return Recording(
            request,
            tuple(Forward(*recorder.inputs[i * branches], trace.timesteps[i]) for i in steps),
            tuple(tuple(recorder.found[i * branches : (i + 1) * branches]) for i in steps),
            _answer(trace),
        )

    def velocities(self, recording: Recording) -> tuple[tuple[Velocities, ...], ...]:
        """With the engine's own text, time embedding, kernels and number of branches in a pass."""
        return self.engine._worker.submit(lambda: self._forwards(recording)).result()

    def _forwards(self, recording: Recording) -> tuple[tuple[Velocities, ...], ...]:
        engine = self.engine
        runner, tower = engine._runner, engine._runner.tower
        slots: tuple[TextSlot, TextSlot] = engine._fill_slots(
            recording.request.observation.instruction
        )
        branches = [b for b in runner._branches(*slots, engine.settings.sampler) if b is not None]
        head = None if runner._server else torch.float32
        steps = []
        for forward in recording.forwards:
            vision, rows = (t.to(tower.device, tower.dtype) for t in (forward.vision, forward.rows))
            time = runner._times[forward.timestep]
            steps.append(
                tuple(
                    _velocities(*each)
                    for i in range(0, len(branches), tower.batch)
                    for each in tower.forward(
                        vision, rows, time, *branches[i : i + tower.batch], head_dtype=head
                    )
                )
            )
        return tuple(steps)

    def answer(self, request: FrozenRequest, latent: Array | None = None) -> Answer:
        """As a node asks for it, and once more with the video; encodes the picture itself."""
        trace = Trace()
        self.engine.act(request.observation, seed=request.seed, trace=trace)
        whole = _answer(trace)
        control = self.engine.act(request.observation, seed=request.seed)
        return Answer(control.as_array(), whole.video, whole.latent)

    def close(self) -> None:
        """End the engine's thread and give the memory back."""
        self.engine.close()


class _GivenLatent:
    """Stands in for an encoder: the network is compared, and not the encoder."""

    def __init__(self, latent: Tensor):
        self._latent = latent

    def encode(self, canvas: Any) -> Tensor:
        return self._latent


class StockSubject:
    """diffusers' own modules on the same requests: what passes for the same arithmetic."""

    def __init__(
        self,
        name: str,
        policy: ReferencePolicy,
        *,
        sampler: SamplerSettings | None = None,
        kernels: AbstractContextManager[Any] | None = None,
    ):
        """Every answer is given inside ``kernels``, which may choose other ones."""
        self.name = name
        self._policy = policy
        self._sampler = sampler or SamplerSettings()
        self._kernels = kernels or nullcontext()

    @torch.inference_mode()
    def velocities(self, recording: Recording) -> tuple[tuple[Velocities, ...], ...]:
        """Every forward of the stock network on the reference's inputs."""
        network = self._policy.network
        with self._kernels:
            texts = self._texts(recording.request.observation, len(recording.velocities[0]))
            return tuple(
                tuple(
                    _stock_velocities(
                        network.forward(
                            unpatchify(f.vision.to(network.device)),
                            f.rows.to(network.device),
                            f.timestep,
                            text,
                        )
                    )
                    for text in texts
                )
                for f in recording.forwards
            )

    def _texts(self, observation: Observation, branches: int) -> list[Any]:
        policy = self._policy
        prompt = build_prompt(observation.instruction, policy._family, policy._format)
        texts = [policy.network.text_cache(policy._tokenizer.encode(p)) for p in (prompt, "")]
        return texts[:branches]

    def answer(self, request: FrozenRequest, latent: Array | None = None) -> Answer:
        """The reference policy's loop, on the latent where it is given."""
        trace, policy = Trace(), self._policy
        encoder: Any = policy.encoder
        if latent is not None:
            given: Any = _GivenLatent(torch.from_numpy(latent).to(policy.network.device))
            policy.encoder = given
        try:
            with self._kernels:
                policy.act(request.observation, self._sampler, request.seed, trace)
        finally:
            policy.encoder = encoder
        return _answer(trace)

    def close(self) -> None:
        """Drop the modules."""
        del self._policy


def _velocities(moved: Tensor | None, acted: Tensor) -> Velocities:
    assert moved is not None
    return Velocities(
        acted[:, :ACTION_WIDTH].float().cpu().numpy().copy(), unpatchify(moved)[0].cpu().clone()
    )


def _stock_velocities(velocity: Velocity) -> Velocities:
    return Velocities(
        velocity.action[:, :ACTION_WIDTH].float().cpu().numpy().copy(),
        velocity.video[0].cpu().clone(),
    )


def _answer(trace: Trace) -> Answer:
    assert trace.model_action is not None
    assert trace.video_latent is not None
    assert trace.latent_frame0 is not None
    chunk = trace.model_action[1:].copy()
    # As the engine turns the network's 1 = open over.
    chunk[:, JOINTS] = np.float32(1.0) - chunk[:, JOINTS]
    return Answer(chunk, trace.video_latent, trace.latent_frame0)
