# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The policy engine: one observation in, one action chunk out."""

from __future__ import annotations

import time
from concurrent.futures import Future
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from cosmos_lite_ros import __version__
from cosmos_lite_ros.contract.chunk import ActionChunk
from cosmos_lite_ros.contract.constants import ACTION_WIDTH, COMPOSED_HEIGHT, COMPOSED_WIDTH, JOINTS
from cosmos_lite_ros.contract.observation import Observation
from cosmos_lite_ros.contract.prompt import PromptFormat, build_prompt, state_row
from cosmos_lite_ros.contract.views import pad_canvas
from cosmos_lite_ros.errors import BadInputError, EnvironmentLacksError
from cosmos_lite_ros.policy.checkpoint import CheckpointInfo, Progress, inspect
from cosmos_lite_ros.policy.layout import ACTION_CHANNELS, VIDEO_SHAPE
from cosmos_lite_ros.policy.network import PolicyNetwork, TextCache, Velocity
from cosmos_lite_ros.policy.sampler import SamplerSettings, UniPC, draw_noise, guide, schedule
from cosmos_lite_ros.policy.text_cache import TextCacheLRU
from cosmos_lite_ros.policy.tokenizer import PromptTokenizer
from cosmos_lite_ros.policy.trace import Trace
from cosmos_lite_ros.policy.vae import ImageEncoder
from cosmos_lite_ros.policy.worker import Worker

__all__ = ["EngineSettings", "PolicyEngine", "SamplerSettings"]

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
SCHEMES = {"float32": "float32", "bfloat16": "bf16"}


@dataclass(frozen=True)
class EngineSettings:
    """What to load and how to run it.

    Attributes:
        checkpoint: folder (diffusers layout) or Hugging Face id.
        revision: commit of a Hugging Face id, 40 hexadecimal digits.
        profile: name that chunks carry as provenance.
        device: ``cpu``, ``cuda`` or ``cuda:N``.
        dtype: ``float32`` (the reference for tests) or ``bfloat16``.
        action_arithmetic: in bfloat16, ``float32`` runs action head, guidance and update of the
            action block in float32 from the state that the network saw; ``server`` rounds as the
            reference server does, which adds about 9 mrad rms of noise to the commands.
        prompt_format: ``auto`` picks by family.
        sampler: default sampler settings; a request may bring its own.
        seed, seed_mode: ``fixed`` uses seed for every request, ``advance`` adds one each time.
        text_cache_entries: prompts kept in the LRU.
        threads: CPU threads of torch for the whole process; None leaves torch's choice.
    """

    checkpoint: str
    revision: str = ""
    profile: str = "tiny"
    device: str = "cpu"
    dtype: str = "float32"
    action_arithmetic: Literal["float32", "server"] = "float32"
    prompt_format: PromptFormat = "auto"
    sampler: SamplerSettings = field(default_factory=SamplerSettings)
    seed: int = 0
    seed_mode: Literal["fixed", "advance"] = "fixed"
    text_cache_entries: int = 16
    threads: int | None = None


class PolicyEngine:
    """A loaded policy. Every method may be called from any thread.

    The model runs on one dedicated thread; ``act`` waits for it, ``submit`` does not.
    """

    def __init__(
        self,
        settings: EngineSettings,
        info: CheckpointInfo,
        network: PolicyNetwork,
        encoder: ImageEncoder,
        tokenizer: PromptTokenizer,
        worker: Worker,
    ):
        """Use ``load``."""
        self.settings = settings
        self.info = info
        self._network = network
        self._encoder = encoder
        self._tokenizer = tokenizer
        self._worker = worker
        self._texts = TextCacheLRU(network.text_cache, settings.text_cache_entries)
        self._unconditional: TextCache | None = None
        self._noise: tuple[int, Tensor, Tensor] | None = None
        self._requests = 0

    @classmethod
    def load(cls, settings: EngineSettings, progress: Progress | None = None) -> PolicyEngine:
        """Check the headers, then load onto the device; blocks.

        Args:
            settings: what to load.
            progress: called with a fraction 0..1 and the name of the step in hand.

        Raises:
            CheckpointError: incomplete, foreign or damaged files.
            BadInputError: a setting out of range.
            EnvironmentLacksError: no such device, or a package is missing.
        """
        if settings.dtype not in DTYPES:
            raise BadInputError(f"dtype is {settings.dtype!r}, expected one of {', '.join(DTYPES)}")
        if settings.action_arithmetic not in ("float32", "server"):
            raise BadInputError(
                f"action_arithmetic is {settings.action_arithmetic!r}, expected float32 or server"
            )
        if settings.prompt_format not in ("auto", "json", "plain"):
            raise BadInputError(
                f"prompt_format is {settings.prompt_format!r}, expected auto, json or plain"
            )
        device = _device(settings.device)
        if settings.threads is not None:
            torch.set_num_threads(settings.threads)
        info = inspect(settings.checkpoint, settings.revision)
        worker = Worker("policy-engine")

        def load() -> tuple[PolicyNetwork, ImageEncoder, PromptTokenizer]:
            tokenizer = PromptTokenizer(
                info.tokenizer_folder, info.config.family, info.config.vocab_size
            )
            place: dict[str, Any] = {"device": device, "dtype": DTYPES[settings.dtype]}
            encoder = ImageEncoder.load(info, **place, progress=_part(progress, 0.0, 0.1))
            network = PolicyNetwork.load(info, **place, progress=_part(progress, 0.1, 1.0))
            return network, encoder, tokenizer

        try:
            network, encoder, tokenizer = worker.submit(load).result()
        except ImportError as error:
            worker.close()
            raise EnvironmentLacksError(
                f"{error}: pip install 'cosmos_lite_ros[policy]'"
            ) from error
        except BaseException:
            worker.close()
            raise
        return cls(settings, info, network, encoder, tokenizer, worker)

    @property
    def random_weights(self) -> bool:
        """Whether the actions mean nothing physically."""
        return self.info.random_weights

    @property
    def effective(self) -> dict[str, object]:
        """What is in effect, for status, logs and reports."""
        return {
            **{k: v for k, v in asdict(self.settings).items() if k != "sampler"},
            **{f"sampler_{k}": v for k, v in asdict(self.settings.sampler).items()},
            "prompt_format": self._prompt_format,
            "family": self.info.config.family,
            "scheme": SCHEMES[self.settings.dtype],
            "random_weights": self.random_weights,
            "checkpoint_folder": str(self.info.folder),
            "torch": torch.__version__,
            "version": __version__,
        }

    @property
    def _prompt_format(self) -> str:
        if self.settings.prompt_format != "auto":
            return self.settings.prompt_format
        return "json" if self.info.config.family == "edge" else "plain"

    def text_cache_stats(self) -> tuple[int, int]:
        """(hits, misses) since loading; the unconditional prompt is not counted."""
        return self._texts.hits, self._texts.misses

    def flush_text_cache(self) -> None:
        """Forget every prompt, after the request in hand."""
        self._worker.submit(self._texts.clear).result()

    def prefetch(self, instruction: str) -> Future[None]:
        """Compute the text cache of an instruction before it is asked for."""

        def run() -> None:
            self._text(instruction)

        return self._worker.submit(run)

    def warm_up(self) -> None:
        """One full request on a grey image, so that the first real one is like any other.

        Leaves nothing behind: the text cache and its counters start anew.
        """
        composed = np.full((COMPOSED_HEIGHT, COMPOSED_WIDTH, 3), 127, np.uint8)
        observation = Observation(composed, np.zeros(JOINTS), 0.0, "warm up")

        def run() -> None:
            self._run(observation, self.settings.sampler, 0, False)
            self._texts.clear()
            self._texts.hits = self._texts.misses = 0

        self._worker.submit(run).result()

    def act(
        self,
        observation: Observation,
        *,
        sampler: SamplerSettings | None = None,
        seed: int | None = None,
        preview: bool = False,
        trace: Trace | None = None,
    ) -> ActionChunk:
        """One request.

        Args:
            observation: what the robot sees, knows and shall do.
            sampler: other settings than the engine's, for this request.
            seed: another noise seed, 0 .. 2**32 - 1.
            preview: also return the predicted video latent.
            trace: filled with every intermediate value, for comparisons.

        Returns:
            32 rows of 7 joint positions (rad, absolute) and gripper (0 open .. 1 closed).

        Raises:
            BadInputError: a seed out of range.
        """
        return self.submit(
            observation, sampler=sampler, seed=seed, preview=preview, trace=trace
        ).result()

    def submit(
        self,
        observation: Observation,
        *,
        sampler: SamplerSettings | None = None,
        seed: int | None = None,
        preview: bool = False,
        trace: Trace | None = None,
    ) -> Future[ActionChunk]:
        """As ``act``, without waiting."""
        chosen = sampler or self.settings.sampler
        return self._worker.submit(lambda: self._run(observation, chosen, seed, preview, trace))

    def close(self) -> None:
        """Cancel what is queued and let the thread end; further calls raise RuntimeError."""
        self._worker.close()

    # -- on the engine's thread -----------------------------------------------------------------

    def _tokens(self, instruction: str) -> list[int]:
        family = self.info.config.family
        prompt = build_prompt(instruction, family, self.settings.prompt_format)
        return self._tokenizer.encode(prompt)

    def _text(self, instruction: str) -> TextCache:
        return self._texts.get(self._tokens(instruction))

    def _uncond(self) -> TextCache:
        if self._unconditional is None:
            self._unconditional = self._network.text_cache(self._tokenizer.encode(""))
        return self._unconditional

    def _draw(self, seed: int) -> tuple[Tensor, Tensor]:
        if self._noise is None or self._noise[0] != seed:
            video, action = draw_noise(seed)
            device = self._network.device
            self._noise = (
                seed,
                torch.from_numpy(video).to(device),
                torch.from_numpy(action).to(device),
            )
        return self._noise[1], self._noise[2]

    def _run(
        self,
        observation: Observation,
        sampler: SamplerSettings,
        seed: int | None,
        preview: bool,
        trace: Trace | None = None,
    ) -> ActionChunk:
        started = time.perf_counter()
        if seed is None:
            advance = self._requests if self.settings.seed_mode == "advance" else 0
            seed = (self.settings.seed + advance) % 2**32
            self._requests += 1
        noise = self._draw(seed)
        latent = self._encoder.encode(pad_canvas(observation.image))
        encoded = time.perf_counter()
        text = self._text(observation.instruction)
        state = state_row(observation.joint_positions, observation.gripper)
        video, rows = self._sample(latent, state, noise, text, sampler, trace)
        result = rows[1:, :ACTION_WIDTH].cpu().numpy().astype(np.float32)
        predicted = video[0].cpu().numpy() if preview or trace is not None else None
        if trace is not None:
            trace.latent_frame0 = latent.cpu().numpy()
            trace.token_ids = self._tokens(observation.instruction)
            trace.uncond_token_ids = self._tokenizer.encode("")
            trace.model_action = rows[:, :ACTION_WIDTH].cpu().numpy()
            trace.video_latent = predicted
        done = time.perf_counter()
        return ActionChunk(
            positions=result[:, :JOINTS].astype(np.float64),
            # The network says 1 = open; every interface of this package says 1 = closed.
            gripper=np.float32(1.0) - result[:, JOINTS],
            instruction=observation.instruction,
            stamp_ns=observation.stamp_ns,
            joint_state_stamp_ns=observation.joint_state_stamp_ns,
            image_stamps_ns=observation.image_stamps_ns,
            measured_positions=observation.joint_positions,
            measured_gripper=observation.gripper,
            seed=seed,
            steps=sampler.steps,
            guidance=sampler.guidance,
            guidance_interval=sampler.guidance_interval,
            profile=self.settings.profile,
            scheme=SCHEMES[self.settings.dtype],
            checkpoint=self.settings.checkpoint,
            revision=self.settings.revision,
            random_weights=self.random_weights,
            latency_s=done - started,
            encode_s=encoded - started,
            generate_s=done - encoded,
            predicted_video_latent=predicted if preview else None,
        )

    def _sample(
        self,
        latent: Tensor,
        state: np.ndarray[Any, np.dtype[np.float32]],
        noise: tuple[Tensor, Tensor],
        text: TextCache,
        sampler: SamplerSettings,
        trace: Trace | None,
    ) -> tuple[Tensor, Tensor]:
        """Denoise; returns float32 video [1, 48, 9, 33, 40] and actions [33, 64]."""
        network = self._network
        low = network.dtype
        server = low != torch.float32 and self.settings.action_arithmetic == "server"
        video = noise[0].clone()
        video[0, :, 0] = latent
        # The network sees noise and state in its own dtype, so the sampler starts from those.
        rows = noise[1].to(low).float()
        rows[:, ACTION_WIDTH:] = 0.0
        rows[0, :ACTION_WIDTH] = torch.from_numpy(state).to(rows.device).to(low).float()
        clean_row = rows[0].clone()
        steps = schedule(sampler)
        video_solver = UniPC(steps, round_product=low if low != torch.float32 else None)
        row_solver = UniPC(steps, round_product=low if server else None)
        head = None if server else torch.float32
        for step in steps:
            cond = network.forward(video, rows, step.timestep, text, action_head=head)
            uncond = None
            velocity = cond
            if sampler.guided(step.timestep):
                uncond = network.forward(
                    video, rows, step.timestep, self._uncond(), action_head=head
                )
                velocity = Velocity(
                    guide(uncond.video, cond.video, sampler.guidance),
                    guide(uncond.action, cond.action, sampler.guidance),
                )
            if trace is not None:
                trace.add_step(rows, cond.action, uncond.action if uncond else None, step)
            video = video_solver.step(video, _whole_video(velocity.video))
            rows = row_solver.step(rows, _whole_rows(velocity.action))
            # Clean positions have no velocity; writing them again keeps rounding out of them.
            video[0, :, 0] = latent
            rows[0] = clean_row
        return video, rows


def _whole_video(moving: Tensor) -> Tensor:
    """Frames 1..8 -> all nine, frame 0 without velocity."""
    whole = torch.zeros(VIDEO_SHAPE, dtype=moving.dtype, device=moving.device)
    whole[:, :, 1:] = moving
    return whole


def _whole_rows(moving: Tensor) -> Tensor:
    """Rows 1..32 -> [33, 64]; row 0 and columns beyond the action have no velocity."""
    whole = torch.zeros(
        moving.shape[0] + 1, ACTION_CHANNELS, dtype=moving.dtype, device=moving.device
    )
    whole[1:, :ACTION_WIDTH] = moving[:, :ACTION_WIDTH]
    return whole


def _device(name: str) -> torch.device:
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise BadInputError(f"device is {name!r}, expected cpu, cuda or cuda:N") from error
    if device.type not in ("cpu", "cuda"):
        raise BadInputError(f"device is {name!r}, expected cpu, cuda or cuda:N")
    if device.type == "cuda":
        count = torch.cuda.device_count()
        if (device.index or 0) >= count:
            raise EnvironmentLacksError(
                f"device {name} asked for, {count} CUDA GPUs found: try device:=cpu or "
                "profile:=tiny"
            )
    return device


def _part(progress: Progress | None, start: float, end: float) -> Progress | None:
    if progress is None:
        return None
    return lambda fraction, step: progress(start + fraction * (end - start), step)
