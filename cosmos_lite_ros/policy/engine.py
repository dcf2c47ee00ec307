# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The policy engine: one observation in, one action chunk out."""

from __future__ import annotations

import time
from concurrent.futures import Future
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch

from cosmos_lite_ros import __version__
from cosmos_lite_ros.contract.chunk import ActionChunk
from cosmos_lite_ros.contract.constants import JOINTS
from cosmos_lite_ros.contract.observation import COMPOSED, STACKED, Observation
from cosmos_lite_ros.contract.prompt import build_prompt, state_row
from cosmos_lite_ros.errors import BadInputError, EnvironmentLacksError
from cosmos_lite_ros.policy.cards import CardFolder
from cosmos_lite_ros.policy.checkpoint import CheckpointInfo, Progress, inspect
from cosmos_lite_ros.policy.engine_load import Parts, load_parts
from cosmos_lite_ros.policy.noise import NoiseSource
from cosmos_lite_ros.policy.prefix import prefix_table
from cosmos_lite_ros.policy.runner import TextSlot
from cosmos_lite_ros.policy.sampler import SamplerSettings
from cosmos_lite_ros.policy.settings import (
    DTYPES,
    EngineSettings,
    check_settings,
    device_of,
)
from cosmos_lite_ros.policy.text_cache import TextStore
from cosmos_lite_ros.policy.tower import MAX_TEXT
from cosmos_lite_ros.policy.trace import Trace
from cosmos_lite_ros.policy.worker import Worker

if TYPE_CHECKING:
    from cosmos_lite_ros.policy.decoder import VideoDecoder

__all__ = ["EngineSettings", "PolicyEngine", "SamplerSettings"]

# Room for an instruction of any usual length; a longer one gets a larger slot.
_SLOT_TOKENS = 256


class PolicyEngine:
    """A loaded policy. Every method may be called from any thread.

    The model runs on one dedicated thread; ``act`` waits for it, ``submit`` does not.
    """

    def __init__(
        self,
        settings: EngineSettings,
        info: CheckpointInfo,
        parts: Parts,
        worker: Worker,
    ):
        """Use ``load``."""
        self.settings = settings
        self.info = info
        self._runner = runner = parts.runner
        self._tower = tower = parts.text
        self._tokenizer = parts.tokenizer
        self._worker = worker
        self._arithmetic = parts.arithmetic
        dtype = DTYPES[settings.dtype]
        self._pin = runner.tower.device.type == "cuda"
        cards = CardFolder(Path(settings.cards), info, dtype) if settings.cards else None
        self._texts = TextStore(tower.compute, settings.text_cache_entries, cards, pin=self._pin)
        self._slot = TextSlot(runner.tower, _SLOT_TOKENS)
        self._slot_ids: tuple[int, ...] = ()
        self._uncond: TextSlot | None = None
        self._noise = NoiseSource(pin=self._pin)
        self._requests = 0
        self._warm_captures = 0
        self._decoder: VideoDecoder | None = None
        self._tokens_of: tuple[str, list[int]] = ("", [])

    @classmethod
    def load(cls, settings: EngineSettings, progress: Progress | None = None) -> PolicyEngine:
        """Check the headers and the free memory, then stream onto the device; blocks.

        Args:
            settings: what to load.
            progress: called with a fraction 0..1 and the name of the step in hand.

        Raises:
            CheckpointError: incomplete, foreign or damaged files.
            BadInputError: a setting out of range.
            EnvironmentLacksError: no such device, too little memory, or a package is missing.
        """
        check_settings(settings)
        device = device_of(settings.device)
        if settings.threads is not None:
            torch.set_num_threads(settings.threads)
        info = inspect(settings.checkpoint, settings.revision)
        worker = Worker("policy-engine")

        try:
            parts = worker.submit(lambda: load_parts(settings, info, device, progress)).result()
            return cls(settings, info, parts, worker)
        except ImportError as error:
            worker.close()
            raise EnvironmentLacksError(
                f"{error}: pip install 'cosmos_lite_ros[policy]'"
            ) from error
        except BaseException:
            worker.close()
            raise

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
            "graphs": self._runner.uses_graphs,
            "family": self.info.config.family,
            **self._arithmetic.effective,
            "random_weights": self.random_weights,
            "checkpoint_folder": str(self.info.folder),
            "torch": torch.__version__,
            "version": __version__,
        }

    @property
    def notes(self) -> tuple[str, ...]:
        """What runs otherwise than it was asked for, one line each."""
        return self._arithmetic.notes

    @property
    def _prompt_format(self) -> str:
        if self.settings.prompt_format != "auto":
            return self.settings.prompt_format
        return "json" if self.info.config.family == "edge" else "plain"

    def text_cache_stats(self) -> tuple[int, int]:
        """(hits, misses) since loading; the unconditional prompt is not counted.

        A prompt card counts as a hit: the text tower did not run.
        """
        return self._texts.hits + self._texts.card_hits, self._texts.misses

    @property
    def recompiles(self) -> int:
        """Graphs captured since warm-up: one for each new text length or sampler setting."""
        return self._runner.captures - self._warm_captures

    def flush_text_cache(self) -> None:
        """Forget every prompt, after the request in hand."""
        self._worker.submit(self._texts.clear).result()

    def prefetch(self, instruction: str) -> Future[None]:
        """Get ready for an instruction before it is asked for: its text, and on CUDA its graph."""

        def run() -> None:
            slots = self._fill_slots(instruction)
            self._runner.prepare(*slots, self.settings.sampler)
            self._texts.settle()

        return self._worker.submit(run)

    def warm_up(self) -> None:
        """One full request on a grey image, so that the first real one is like any other.

        Leaves nothing behind: the text cache and its counters start anew.
        """
        view, composed = np.full(STACKED[1:], 127, np.uint8), np.full(COMPOSED, 127, np.uint8)

        def run() -> None:
            # Both forms of an image have their graph; the second run replays the sampler's.
            for image in ((view, view, view), composed)[: 2 if self._runner.uses_graphs else 1]:
                observation = Observation(image, np.zeros(JOINTS), 0.0, "warm up")
                # The first request's seed: its noise is drawn here.
                self._run(observation, self.settings.sampler, self.settings.seed % 2**32, False)
                self._runner.capture_pending()
            self._texts.clear()
            self._texts.reset_counters()
            self._warm_captures = self._runner.captures

        self._worker.submit(run).result()

    def act(
        self,
        observation: Observation,
        *,
        sampler: SamplerSettings | None = None,
        seed: int | None = None,
        preview: bool = False,
        trace: Trace | None = None,
        prefix: npt.NDArray[np.floating] | None = None,
        prefix_fade_rows: int = 0,
    ) -> ActionChunk:
        """One request.

        Args:
            observation: what the robot sees, knows and shall do.
            sampler: other settings than the engine's, for this request.
            seed: another noise seed, 0 .. 2**32 - 1.
            preview: also return the predicted video latent.
            trace: filled with every intermediate value, for comparisons.
            prefix: [n, 7] rad, n up to 31: guide the first n rows to continue these (experimental).
            prefix_fade_rows: how many of the last of them guide less and less.

        Returns:
            32 rows of 7 joint positions (rad, absolute) and gripper (0 open .. 1 closed).

        Raises:
            BadInputError: a seed out of range, an instruction of too many tokens, or a prefix of
                another shape or with values that are not finite.
        """
        return self.submit(
            observation,
            sampler=sampler,
            seed=seed,
            preview=preview,
            trace=trace,
            prefix=prefix,
            prefix_fade_rows=prefix_fade_rows,
        ).result()

    def submit(
        self,
        observation: Observation,
        *,
        sampler: SamplerSettings | None = None,
        seed: int | None = None,
        preview: bool = False,
        trace: Trace | None = None,
        prefix: npt.NDArray[np.floating] | None = None,
        prefix_fade_rows: int = 0,
    ) -> Future[ActionChunk]:
        """As ``act``, without waiting."""
        chosen = sampler or self.settings.sampler
        table = None if prefix is None else prefix_table(prefix, prefix_fade_rows)
        future = self._worker.submit(
            lambda: self._run(observation, chosen, seed, preview, trace, table)
        )
        # Behind the answer, before the next request: what nobody waits for.
        self._worker.submit(self._after)
        return future

    def decode_video(self, latent: npt.NDArray[np.float32]) -> npt.NDArray[np.uint8]:
        """The predicted video of a chunk, uint8 [33, 528, 640, 3] RGB; loads the decoder once.

        Args:
            latent: ``ActionChunk.predicted_video_latent`` of a request with ``preview``.

        Raises:
            BadInputError: another shape.
        """

        def run() -> npt.NDArray[np.uint8]:
            if self._decoder is None:
                from cosmos_lite_ros.policy.decoder import VideoDecoder

                self._decoder = VideoDecoder(
                    self.info,
                    self._runner.tower.device,
                    DTYPES[self.settings.dtype],
                    offload=self.settings.vae_offload == "cpu",
                )
            return self._decoder.decode(latent)

        return self._worker.submit(run).result()

    def close(self, wait_s: float = 5.0) -> None:
        """Cancel what is queued and let the thread end; further calls raise RuntimeError.

        Args:
            wait_s: longest wait for the request in hand.
        """
        self._worker.close(wait_s)
        self._noise.close()

    # -- on the engine's thread -----------------------------------------------------------------

    def _after(self) -> None:
        self._runner.capture_pending()
        self._texts.settle()

    def _tokens(self, instruction: str) -> list[int]:
        if self._tokens_of[0] != instruction:
            family = self.info.config.family
            prompt = build_prompt(instruction, family, self.settings.prompt_format)
            ids = self._tokenizer.encode(prompt)
            if len(ids) > MAX_TEXT:
                raise BadInputError(
                    f"the instruction makes a prompt of {len(ids)} tokens, at most {MAX_TEXT} are "
                    "possible: shorten it"
                )
            self._tokens_of = (instruction, ids)
        return self._tokens_of[1]

    def _fill_slots(self, instruction: str) -> tuple[TextSlot, TextSlot]:
        """The prompt's keys and values in the static buffers, copied only when they change."""
        tower = self._runner.tower
        if self._uncond is None:
            empty = self._texts.make(self._tokenizer.encode(""))
            self._uncond = TextSlot(tower, empty.length)
            self._uncond.fill(empty.keys, empty.values)
        ids = self._tokens(instruction)
        text = self._texts.get(ids)
        if tuple(ids) != self._slot_ids:
            self._slot_ids = ()
            if text.length > self._slot.capacity:
                self._runner.forget_graphs()
                self._slot = TextSlot(tower, 2 * text.length)
            self._slot.fill(text.keys, text.values)
            self._slot_ids = tuple(ids)
        return self._slot, self._uncond

    def _run(
        self,
        observation: Observation,
        sampler: SamplerSettings,
        seed: int | None,
        preview: bool,
        trace: Trace | None = None,
        table: npt.NDArray[np.float32] | None = None,
    ) -> ActionChunk:
        runner = self._runner
        started = time.perf_counter()
        if seed is None:
            advance = self._requests if self.settings.seed_mode == "advance" else 0
            seed = (self.settings.seed + advance) % 2**32
            self._requests += 1
        noise, changed = self._noise.get(seed)
        if changed:
            runner.set_noise(*noise)
        state = state_row(observation.joint_positions, observation.gripper)
        clock = _Clock(runner.tower.device)
        runner.set_inputs(observation.image, state)
        runner.encode()
        clock.split()
        slots = self._fill_slots(observation.instruction)
        if table is not None:
            runner.set_prefix(table)
        video, rows = runner.denoise(
            *slots,
            sampler,
            preview=preview or trace is not None,
            prefix=table is not None,
            hook=trace.add_step if trace is not None else None,
        )
        # Everything is launched: the next noise is drawn while the GPU works on this request.
        self._noise.prefetch(advancing=self.settings.seed_mode == "advance")
        answer = runner.answer(rows)
        done = time.perf_counter()
        encode_s = clock.elapsed_s()
        predicted = runner.video_latent(video) if preview or trace is not None else None
        if trace is not None:
            trace.latent_frame0 = runner.latent_frame0()
            trace.token_ids = self._tokens(observation.instruction)
            trace.uncond_token_ids = self._tokenizer.encode("")
            trace.model_action = answer
            trace.video_latent = predicted
        result = answer[1:]
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
            scheme=self._arithmetic.scheme,
            checkpoint=self.settings.checkpoint,
            revision=self.settings.revision,
            random_weights=self.random_weights,
            latency_s=done - started,
            encode_s=encode_s,
            generate_s=done - started - encode_s,
            predicted_video_latent=predicted if preview else None,
        )


class _Clock:
    """Time from construction to ``split``: of the GPU's work on CUDA, of the wall on a CPU."""

    def __init__(self, device: torch.device):
        self._events: list[torch.cuda.Event] = []
        self._times: list[float] = []
        self._cuda = device.type == "cuda"
        self.split()

    def split(self) -> None:
        if self._cuda:
            event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            event.record()
            self._events.append(event)
        else:
            self._times.append(time.perf_counter())

    def elapsed_s(self) -> float:
        """After the answer is there: nothing is waited for."""
        if self._cuda:
            return 1e-3 * float(self._events[0].elapsed_time(self._events[1]))
        return self._times[1] - self._times[0]
