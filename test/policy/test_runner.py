# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Static buffers of a request: text slots, inputs, offload; and the arithmetic of the action."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from torch import Tensor

from cosmos_lite_ros.contract.observation import Observation
from cosmos_lite_ros.contract.views import compose_views
from cosmos_lite_ros.errors import BadInputError
from cosmos_lite_ros.policy.checkpoint import inspect
from cosmos_lite_ros.policy.encoder import ImageEncoder2d
from cosmos_lite_ros.policy.engine import EngineSettings, PolicyEngine, SamplerSettings
from cosmos_lite_ros.policy.layout import ACTION_CHANNELS, ACTION_TOKENS, VISION_TOKENS
from cosmos_lite_ros.policy.runner import Runner, TextSlot
from cosmos_lite_ros.policy.sampler import draw_noise, schedule
from cosmos_lite_ros.policy.tower import PATCH_CHANNELS, GenerationTower
from cosmos_lite_ros.policy.trace import Trace

from ..conftest import GOLDEN, Figure

CPU = torch.device("cpu")
ONE_STEP = SamplerSettings(steps=1, guidance=1.0)
Tiny = Callable[[str], Path]
Maker = Callable[..., Observation]


@pytest.fixture
def engine(tiny_checkpoint: Tiny) -> Iterator[PolicyEngine]:
    made = PolicyEngine.load(EngineSettings(str(tiny_checkpoint("edge")), sampler=ONE_STEP))
    yield made
    made.close()


def fresh_answer(checkpoint: Path, seen: Observation, **settings: Any) -> bytes:
    """The answer of an engine that never saw anything else."""
    engine = PolicyEngine.load(EngineSettings(str(checkpoint), sampler=ONE_STEP, **settings))
    try:
        return engine.act(seen).as_array().tobytes()
    finally:
        engine.close()


def test_slots_keep_nothing_of_the_prompt_before(
    engine: PolicyEngine, tiny_checkpoint: Tiny, make_observation: Maker
) -> None:
    """Long, short, longer than the slot, short: each as if it were the only one."""
    words = "take the red block from the left shelf and then "
    texts = [words * 2 + "stop", "stop", words * 9 + "stop", "stop"]
    capacity = engine._slot.capacity
    found = [engine.act(make_observation(instruction=t)).as_array().tobytes() for t in texts]
    assert engine._slot.capacity > capacity
    for text, answer in zip(texts[:3], found, strict=False):
        seen = make_observation(instruction=text)
        assert fresh_answer(tiny_checkpoint("edge"), seen) == answer, text
    assert found[3] == found[1]
    assert len(set(found)) == 3


def test_a_prompt_beyond_the_arena_is_refused_and_the_engine_goes_on(
    engine: PolicyEngine, make_observation: Maker
) -> None:
    before = engine.act(make_observation()).as_array().tobytes()
    with pytest.raises(BadInputError, match=r"\d+ tokens, at most 1024"):
        engine.act(make_observation(instruction="🦾" * 900))
    assert engine.act(make_observation()).as_array().tobytes() == before


def test_a_broken_fill_does_not_leave_another_prompts_keys(
    engine: PolicyEngine, make_observation: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = make_observation()
    before = engine.act(seen).as_array().tobytes()
    plain = TextSlot.fill

    def broken(slot: TextSlot, keys: Tensor, values: Tensor) -> None:
        plain(slot, keys, torch.zeros_like(values))
        raise RuntimeError("broken half-way")

    with monkeypatch.context() as patch:
        patch.setattr(TextSlot, "fill", broken)
        with pytest.raises(RuntimeError, match="half-way"):
            engine.act(make_observation(instruction="open the drawer"))
    assert engine.act(seen).as_array().tobytes() == before


def test_results_are_copies(engine: PolicyEngine, make_observation: Maker) -> None:
    trace = Trace()
    image = make_observation().image.copy()
    first = engine.act(make_observation(image=image), trace=trace, preview=True)
    kept = [
        np.copy(a)
        for a in (first.as_array(), trace.latent_frame0, trace.video_latent, trace.model_action)
    ]
    image[:] = 0  # the caller's again
    engine.act(make_observation(4, gripper=0.9), seed=8, preview=True)
    now = (first.as_array(), trace.latent_frame0, trace.video_latent, trace.model_action)
    for before, after in zip(kept, now, strict=True):
        np.testing.assert_array_equal(after, before)


def test_encoder_offload_changes_no_bit(tiny_checkpoint: Tiny, make_observation: Maker) -> None:
    folder = tiny_checkpoint("nano")
    engine = PolicyEngine.load(
        EngineSettings(str(folder), sampler=ONE_STEP, vae_offload="cpu", dtype="bfloat16")
    )
    try:
        # Between two requests the tower works where the encoder's weights lay.
        found = [engine.act(make_observation(s)).as_array().tobytes() for s in range(2)]
    finally:
        engine.close()
    for s in range(2):
        assert fresh_answer(folder, make_observation(s), dtype="bfloat16") == found[s]


def test_warm_up_draws_the_noise_of_the_first_request(
    tiny_checkpoint: Tiny, make_observation: Maker
) -> None:
    for mode in ("fixed", "advance"):
        settings = EngineSettings(
            str(tiny_checkpoint("edge")), sampler=ONE_STEP, seed=77, seed_mode=mode
        )
        engine = PolicyEngine.load(settings)
        engine.warm_up()
        ready = engine._noise.ready
        chunks = [engine.act(make_observation()) for _ in range(3)]
        engine.close()
        assert engine._noise.ready == ready + 3, mode
        assert chunks[0].seed == 77
        assert chunks[2].seed == (79 if mode == "advance" else 77)


# -- the action block ---------------------------------------------------------------------------

JOINTS = slice(0, 7)
BIAS = torch.linspace(-0.4, 0.6, 8).to(torch.bfloat16)


def smooth_chunk(seed: int) -> Tensor:
    """float64 [32, 8]: joints in gentle motion (rad), the gripper closing, model space."""
    rng = np.random.default_rng(seed)
    t = np.linspace(0.0, 1.0, 32)[:, None]
    joints = rng.uniform(-1.5, 1.5, 7) + rng.uniform(-0.6, 0.6, 7) * t
    joints = joints + rng.uniform(-0.15, 0.15, 7) * np.sin(6.0 * t + rng.uniform(0.0, 6.0, 7))
    gripper = 1.0 / (1.0 + np.exp(20.0 * (t - 0.5)))
    return torch.from_numpy(np.concatenate([joints, gripper], axis=1))


class PerfectTower(GenerationTower):
    """A tower whose guided velocity leads exactly to a known chunk; head and dtype are real.

    Every hidden state is bfloat16, as a network's is: the wanted value is the sum of three of its
    channels, which float32 resolves to 1e-7. So whatever error remains is made after it: by the
    action head, guidance and update.
    """

    chunk: Tensor
    between: Tensor  # cond - uncond
    noise: Tensor
    sigmas: list[float]
    meaning: Literal["noise - x0", "(x - x0) / sigma"]
    guidance: float

    def forward(
        self, vision: Tensor, rows: Tensor, time: Tensor, branch: Any, **options: Any
    ) -> Any:
        """As the plain one; the network sees ``rows`` in bfloat16."""
        assert rows.dtype == torch.bfloat16
        sigma = self.sigmas[int(time[0])]
        seen = rows[1:, :8].double()
        if self.meaning == "noise - x0":
            velocity = self.noise - self.chunk
        else:
            velocity = (seen - self.chunk) / sigma
        # u + g (c - u) = velocity with c - u = between.
        velocity = velocity + (1.0 - self.guidance) * self.between
        if branch.length == 2:
            velocity = velocity - self.between
        rest = velocity - BIAS.double()
        hidden = torch.zeros(32, self.config.hidden, dtype=torch.bfloat16)
        for part in range(3):
            hidden[:, part : 24 + part : 3] = rest.to(torch.bfloat16)
            rest = rest - hidden[:, part : 24 + part : 3].double()
        moved = torch.zeros(VISION_TOKENS - 340, PATCH_CHANNELS, dtype=torch.bfloat16)
        dtype = options["head_dtype"] or self.dtype
        return [(moved if options["video"] else None, self.action_velocity(hidden, dtype))]


def make_perfect() -> PerfectTower:
    """Bookkeeping: the time embedding carries the step's number, the slots' lengths the branch."""
    tower = PerfectTower.load(
        inspect(str(GOLDEN / "edge" / "checkpoint")), device=CPU, dtype=torch.bfloat16
    )
    weight = torch.zeros(tower.config.hidden, ACTION_CHANNELS, dtype=torch.bfloat16)
    for column in range(8):
        weight[3 * column : 3 * column + 3, column] = 1.0
    bias = torch.zeros(ACTION_CHANNELS, dtype=torch.bfloat16)
    bias[:8] = BIAS
    tower.heads = replace(tower.heads, action_out=weight, action_out_bias=bias)
    return tower


def chunk_errors(meaning: Any, *, server: bool, seeds: int = 12) -> np.ndarray:
    """Errors [seeds, 32, 7] of the joints, rad, at 2 steps and guidance 3."""
    sampler = SamplerSettings(2, 3.0)
    tower = make_perfect()
    encoder = ImageEncoder2d.load(
        inspect(str(GOLDEN / "edge" / "checkpoint")), device=CPU, dtype=torch.bfloat16
    )
    runner = Runner(encoder, tower, server_arithmetic=server)
    text, uncond = TextSlot(tower, 3), TextSlot(tower, 2)
    text.length, uncond.length = 3, 2
    tower.meaning, tower.guidance = meaning, sampler.guidance
    steps = schedule(sampler)
    tower.sigmas = [step.sigma for step in steps]
    errors = []
    for seed in range(seeds):
        tower.chunk, tower.between = smooth_chunk(seed), 0.1 * smooth_chunk(seed + 100)
        noise = torch.from_numpy(draw_noise(seed)[1])
        tower.noise = noise[1:, :8].to(torch.bfloat16).double()
        runner.set_noise(torch.zeros(VISION_TOKENS, PATCH_CHANNELS), noise)
        for number, step in enumerate(steps):
            embedding = torch.full((tower.config.hidden,), number, dtype=torch.bfloat16)
            runner._times[step.timestep] = embedding
        with torch.inference_mode():
            _, rows = runner.denoise(text, uncond, sampler)
        assert rows.shape == (ACTION_TOKENS, ACTION_CHANNELS)
        errors.append((rows[1:, :8].double() - tower.chunk)[:, JOINTS].numpy())
    return np.array(errors)


def test_a_perfect_chunk_stays_perfect_in_float32_arithmetic(
    figure: Figure,
) -> None:
    """Two readings of a perfect velocity: that of the noise drawn, that of the state seen.

    The network sees the state rounded to bfloat16 (1.4 mrad rms at the second step), so the second
    is the one that it can give.
    """
    rms: dict[tuple[str, bool], float] = {}
    for meaning in ("noise - x0", "(x - x0) / sigma"):
        for server in (True, False):
            errors = 1e3 * np.abs(chunk_errors(meaning, server=server))
            rms[meaning, server] = float(np.sqrt(np.mean(errors**2)))
            figure(
                f"v = {meaning}, {'server' if server else 'float32'} arithmetic: "
                f"{rms[meaning, server]:.2f} mrad rms, {np.quantile(errors, 0.99):.1f} p99",
            )
    drawn, seen = "noise - x0", "(x - x0) / sigma"
    assert rms[seen, False] < 0.1
    assert rms[drawn, False] < 1.6
    assert 7.0 < rms[seen, True] < 12.0
    assert 7.0 < rms[drawn, True] < 12.0


def test_stacked_views_are_composed_as_the_host_composes_them(
    engine: PolicyEngine, make_observation: Maker
) -> None:
    rng = np.random.default_rng(0)
    views = rng.integers(0, 256, (3, 360, 640, 3), np.uint8)
    stacked, composed = (make_observation(image=i) for i in (tuple(views), compose_views(*views)))
    assert stacked.digest() == composed.digest()
    assert engine.act(stacked).as_array().tobytes() == engine.act(composed).as_array().tobytes()


@pytest.mark.parametrize("writable", [True, False])
def test_flipped_and_sliced_pictures_are_what_they_show(
    engine: PolicyEngine, make_observation: Maker, writable: bool
) -> None:
    rng = np.random.default_rng(1)
    big = rng.integers(0, 256, (3, 720, 1280, 3), np.uint8)
    views = big[:, ::-2, ::2, ::-1]
    views.flags.writeable = writable
    found = engine.act(make_observation(image=tuple(views)))
    plain = engine.act(make_observation(image=tuple(np.ascontiguousarray(v) for v in views)))
    assert found.as_array().tobytes() == plain.as_array().tobytes()


def test_a_state_beyond_float32_is_refused(make_observation: Maker) -> None:
    with pytest.raises(BadInputError, match="finite"):
        make_observation(joint_positions=np.full(7, 1e39))
    with pytest.raises(BadInputError, match="finite"):
        make_observation(gripper=1e39)
    with pytest.raises(BadInputError, match="holds NoneType"):
        make_observation(image=(None, None, None))
