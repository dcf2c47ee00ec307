# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What the engine is measured beside, in the same run: diffusers' own modules.

The stock transformer runs both towers in every forward, as the library's pipeline does; the stock
VAE encodes the one frame that matters, or the whole clip of 33 as the pipeline does.
"""

from __future__ import annotations

import copy
import time
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cosmos_lite_ros.contract.constants import CANVAS_HEIGHT, CANVAS_WIDTH, CLIP_FRAMES
from cosmos_lite_ros.contract.views import pad_canvas
from cosmos_lite_ros.policy.bench_common import (
    Report,
    Requests,
    Say,
    settle,
    summary,
    timed_ms,
)
from cosmos_lite_ros.policy.checkpoint import CheckpointInfo, read_tensors
from cosmos_lite_ros.policy.config import DROID_DOMAIN
from cosmos_lite_ros.policy.engine import PolicyEngine
from cosmos_lite_ros.policy.layout import (
    ACTION_CHANNELS,
    ACTION_TOKENS,
    FRAME_TOKENS,
    GENERATION_TOKENS,
    GRID_HEIGHT,
    GRID_WIDTH,
    LATENT_FRAMES,
    VIDEO_SHAPE,
    VISION_TOKENS,
    position_ids,
)
from cosmos_lite_ros.policy.reference import ReferencePolicy
from cosmos_lite_ros.policy.sampler import SamplerSettings, schedule
from cosmos_lite_ros.policy.trace import Trace

_WARM_UP = 2


def stock_transformer(reference: ReferencePolicy, info: CheckpointInfo) -> Any:
    """The library's module whole again: the reference leaves the text tower's last norm out.

    ``lm_head`` stays out, since no forward uses it. Shares its weights with the reference.
    """
    network = reference.network
    model = network._model
    if isinstance(model.norm, torch.nn.Identity):
        norm = copy.deepcopy(model.norm_moe_gen)
        weight = next(t for k, t in read_tensors(info.transformer_files) if k == "norm.weight")
        norm.weight.data.copy_(weight)
        model.norm = norm
        # Its frequencies are no part of a checkpoint: those of the meta device have no values.
        model.rotary_emb = type(model.rotary_emb)(
            head_dim=network.config.head_dim,
            rope_theta=network.config.rope_theta,
            rope_axes_dim=network.config.rope_sections,
        ).to(network.device)
    return model


def stock_inputs(
    token_ids: list[int],
    video: Tensor,
    rows: Tensor,
    timestep: float,
    device: torch.device,
    dtype: torch.dtype,
) -> dict[str, Any]:
    """Arguments of the stock forward for one guidance branch.

    Args:
        token_ids: the branch's text.
        video: [1, 48, 9, 33, 40], frame 0 observed.
        rows: [33, 64], row 0 the state.
        timestep: 0..1000.
        device, dtype: the network's.
    """
    length = len(token_ids)

    def span(start: int, stop: int) -> Tensor:
        return torch.arange(start, stop, device=device)

    def times(count: int) -> Tensor:
        return torch.full((count,), timestep, dtype=torch.float32, device=device)

    vision, action = length, length + VISION_TOKENS
    total = length + GENERATION_TOKENS
    return {
        "input_ids": torch.tensor(token_ids, device=device),
        "text_indexes": span(0, length),
        "position_ids": position_ids(length).to(device),
        "und_len": length,
        "sequence_length": total,
        "vision_tokens": [video.to(device, dtype)],
        "vision_token_shapes": [(LATENT_FRAMES, GRID_HEIGHT, GRID_WIDTH)],
        "vision_sequence_indexes": span(vision, action),
        "vision_mse_loss_indexes": span(vision + FRAME_TOKENS, action),
        "vision_timesteps": times(VISION_TOKENS - FRAME_TOKENS),
        "vision_noisy_frame_indexes": [span(1, LATENT_FRAMES)],
        "action_tokens": [rows.to(device, dtype)],
        "action_token_shapes": [(ACTION_TOKENS, 1, 1)],
        "action_sequence_indexes": span(action, total),
        "action_mse_loss_indexes": span(action + 1, total),
        "action_timesteps": times(ACTION_TOKENS - 1),
        "action_noisy_frame_indexes": [span(1, ACTION_TOKENS)],
        "action_domain_ids": [torch.tensor([DROID_DOMAIN], device=device)],
        "return_dict": False,
    }


@torch.inference_mode()
def bench_peers(
    reference: ReferencePolicy,
    info: CheckpointInfo,
    texts: tuple[list[int], list[int]],
    *,
    calls: int,
    compiled: bool,
    say: Say,
) -> Report:
    """Times of the peers: four forwards (two steps, two branches), one-frame and clip encode.

    Args:
        reference: loaded; its modules are used.
        info: its checkpoint.
        texts: token ids of the prompt and of the unconditional branch.
        calls: timed runs of each.
        compiled: also with ``compile_repeated_blocks``, which takes a minute or more.
        say: told of the progress.
    """
    network = reference.network
    device, dtype = network.device, network.dtype
    model = stock_transformer(reference, info)
    generator = torch.Generator().manual_seed(0)
    video = torch.randn(VIDEO_SHAPE, generator=generator)
    rows = torch.randn(ACTION_TOKENS, ACTION_CHANNELS, generator=generator)
    arguments = [
        stock_inputs(ids, video, rows, step.timestep, device, dtype)
        for step in schedule(SamplerSettings())
        for ids in texts
    ]

    def forwards() -> None:
        for each in arguments:
            model(**each)

    cuda = device.type == "cuda"

    def repeat(run: Any) -> Report:
        for _ in range(_WARM_UP if cuda else 0):
            run()
        return summary([timed_ms(run, device) for _ in range(calls)])

    say("peers: the stock transformer, eager")
    report: Report = {"stock_transformer_4_forwards": repeat(forwards)}
    vae: Any = reference.encoder._model
    # A CPU takes half a minute for the clip even of a tiny VAE.
    for frames in (1, CLIP_FRAMES) if cuda else (1,):
        say(f"peers: stock VAE, {frames} frames")
        clip = torch.randn(1, 3, frames, CANVAS_HEIGHT, CANVAS_WIDTH, generator=generator)
        clip = clip.to(device, dtype)
        report[f"stock_vae_encode_{frames}"] = repeat(lambda clip=clip: vae.encode(clip))
    four = report["stock_transformer_4_forwards"]["median_ms"]
    clip_encode = report.setdefault(f"stock_vae_encode_{CLIP_FRAMES}", None)
    report["stock_pipeline_ms"] = four + clip_encode["median_ms"] if clip_encode else None
    report["one_frame_server_ms"] = four + report["stock_vae_encode_1"]["median_ms"]
    report["stock_transformer_4_forwards_compiled"] = None
    if compiled:
        say("peers: the stock transformer, its blocks compiled")
        started = time.perf_counter()
        # The library's own way; both text lengths are compiled for what they are.
        model.compile_repeated_blocks(dynamic=False)
        forwards()
        compile_s = time.perf_counter() - started
        report["stock_transformer_4_forwards_compiled"] = {
            **repeat(forwards),
            "compile_s": compile_s,
        }
    return report


@torch.inference_mode()
def bench_reference(
    engine: PolicyEngine,
    reference: ReferencePolicy,
    instruction: str,
    *,
    requests: int,
    calls: int,
) -> Report:
    """The engine's answers against the same requests on diffusers' modules, same dtype, eager.

    Both with float32 arithmetic on the action block. Text is computed anew in every request of the
    reference. Velocities are those of the network in the tower's dtype, rows 1..32 x 8.
    """
    made = Requests(seed=17)
    # Same words, same ids: the engine may run on synthetic ones.
    reference._tokenizer = engine._tokenizer
    sums: dict[str, list[float]] = {}

    def note(name: str, value: float) -> None:
        sums.setdefault(name, []).append(value)

    times = []
    for _ in range(requests):
        observation, seed = made.new().observation(instruction), made.seed()
        traced, expected = Trace(), Trace()
        answer = engine.act(observation, seed=seed).as_array()
        whole = engine.act(observation, seed=seed, trace=traced).as_array()
        settle(engine)
        on_host = reference.act(observation, seed=seed, trace=expected)[1:]
        wanted = on_host.copy()
        wanted[:, 7] = 1.0 - on_host[:, 7]
        for step in range(len(expected.velocity_cond)):
            for branch in ("velocity_cond", "velocity_uncond"):
                got, want = (getattr(t, branch)[step] for t in (traced, expected))
                norm = float(np.linalg.norm(want))
                note(f"{branch}_step_{step + 1}_relative_l2", _l2(got - want) / max(norm, 1e-30))
        note("action_rms", float(np.sqrt(np.mean((answer - wanted) ** 2))))
        note("action_max", float(np.abs(answer - wanted).max()))
        note("action_std_of_reference", float(wanted.std()))
        note("pruned_against_whole_max", float(np.abs(answer - whole).max()))
        if traced.latent_frame0 is not None:
            latent = reference.encoder.encode(pad_canvas(observation.composed)).cpu().numpy()
            note("latent_relative_l2", _l2(traced.latent_frame0 - latent) / _l2(latent))
    observation = made.new().observation(instruction)
    device = reference.network.device
    for _ in range(calls):
        times.append(timed_ms(lambda: reference.act(observation, seed=0), device))
    return {
        "requests": requests,
        "differences_mean": {k: float(np.mean(v)) for k, v in sums.items()},
        "differences_max": {k: float(np.max(v)) for k, v in sums.items()},
        "request": summary(times),
    }


def _l2(values: Any) -> float:
    return float(np.linalg.norm(values))
