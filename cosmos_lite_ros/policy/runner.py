# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""One request on static buffers: encode, denoise, answer; on CUDA as two captured graphs.

Nothing here waits for the GPU before the answer is there, and nothing is allocated per request. The
CPU runs the same code without graphs. One thread owns a runner (a graph's state is per thread).

The video is kept as patches [3060, 192] through all steps: patches go into the network and come out
of it, and the update is elementwise. The 34th latent row is padding and stays zero.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cosmos_lite_ros.contract.constants import ACTION_WIDTH
from cosmos_lite_ros.contract.observation import COMPOSED, STACKED, Image
from cosmos_lite_ros.policy.encoder import ImageEncoder2d
from cosmos_lite_ros.policy.layout import (
    ACTION_CHANNELS,
    ACTION_TOKENS,
    FRAME_TOKENS,
    LATENT_HEIGHT,
    LATENT_WIDTH,
    VISION_TOKENS,
    unpatchify,
)
from cosmos_lite_ros.policy.prefix import pull, step_weights
from cosmos_lite_ros.policy.sampler import SamplerSettings, Step, UniPC, guide, schedule
from cosmos_lite_ros.policy.tower import PATCH_CHANNELS, Branch, GenerationTower, patch_mask

# Graphs kept: each instruction length and sampler setting needs one.
_MAX_GRAPHS = 6

StepHook = Callable[[Tensor, Tensor, Tensor | None, Step], None]


@dataclass(frozen=True)
class Key:
    """What a captured denoising graph depends on."""

    text: int
    uncond: int
    sampler: SamplerSettings
    preview: bool
    prefix: bool = False


@dataclass(eq=False)
class _Graph:
    graph: torch.cuda.CUDAGraph
    video: Tensor
    rows: Tensor
    # Keeps the rotary tables that the graph reads alive.
    branches: tuple[Branch, Branch | None]


class TextSlot:
    """Static device buffers of one guidance branch's keys and values, filled by copy.

    A graph that captured a cache entry's own tensors would read freed memory after eviction.
    """

    def __init__(self, tower: GenerationTower, capacity: int):
        """Room for ``capacity`` text tokens."""
        c = tower.config
        shape = (c.layers, c.kv_heads, capacity, c.head_dim)
        self.keys = torch.zeros(shape, dtype=tower.dtype, device=tower.device)
        self.values = torch.zeros_like(self.keys)
        self.length = 0

    @property
    def capacity(self) -> int:
        """Text tokens that fit."""
        return int(self.keys.shape[2])

    def fill(self, keys: Tensor, values: Tensor) -> None:
        """Copy a prompt's keys and values [layers, kv_heads, L, head_dim] in."""
        self.length = int(keys.shape[2])
        self.keys[:, :, : self.length].copy_(keys, non_blocking=True)
        self.values[:, :, : self.length].copy_(values, non_blocking=True)

    def branch(self, tower: GenerationTower) -> Branch:
        """The branch that reads these buffers at their present length."""
        return tower.branch(self.keys[:, :, : self.length], self.values[:, :, : self.length])


class Runner:
    """Encoder, tower and the buffers between them."""

    def __init__(
        self,
        encoder: ImageEncoder2d,
        tower: GenerationTower,
        *,
        server_arithmetic: bool = False,
        graphs: bool = True,
    ):
        """``server_arithmetic``: round action head, guidance and update as the reference server."""
        self.encoder = encoder
        self.tower = tower
        self._low = tower.dtype
        self._server = server_arithmetic and tower.dtype != torch.float32
        self.uses_graphs = graphs and tower.device.type == "cuda"
        device = tower.device
        pinned = device.type == "cuda"
        # For each form that an observation's image may have.
        self._host_image = torch.empty(COMPOSED, dtype=torch.uint8, pin_memory=pinned)
        self._host_views = torch.empty(STACKED, dtype=torch.uint8, pin_memory=pinned)
        self._views = torch.zeros(STACKED, dtype=torch.uint8, device=device)
        self._host_state = torch.empty(ACTION_WIDTH, dtype=torch.float32, pin_memory=pinned)
        self._image = torch.zeros(COMPOSED, dtype=torch.uint8, device=device)
        self._state = torch.zeros(ACTION_WIDTH, dtype=torch.float32, device=device)
        # Joints to continue and their weights, so that one graph serves every length of a prefix.
        self._host_prefix = torch.empty(ACTION_TOKENS, ACTION_WIDTH, pin_memory=pinned)
        self._prefix = torch.zeros(ACTION_TOKENS, ACTION_WIDTH, device=device)
        self._noise_vision = torch.zeros(VISION_TOKENS, PATCH_CHANNELS, device=device)
        self._noise_rows = torch.zeros(ACTION_TOKENS, ACTION_CHANNELS, device=device)
        self._clean = torch.zeros(FRAME_TOKENS, PATCH_CHANNELS, device=device)
        self._latent = torch.zeros(48, LATENT_HEIGHT, LATENT_WIDTH, device=device)
        self._mask = patch_mask(device)
        self._answer = torch.empty(
            ACTION_TOKENS, ACTION_CHANNELS, dtype=torch.float32, pin_memory=pinned
        )
        self._times: dict[float, Tensor] = {}
        # By the form of the image: with ``True`` three views.
        self._encode_graphs: dict[bool, torch.cuda.CUDAGraph] = {}
        self._stacked = True
        self._side: torch.cuda.Stream | None = None
        self._pool = torch.cuda.graph_pool_handle() if self.uses_graphs else None
        self._graphs: OrderedDict[Key, _Graph] = OrderedDict()
        self._pending: tuple[Key, tuple[Branch, Branch | None]] | None = None
        self.captures = 0

    def set_noise(self, patches: Tensor, rows: Tensor) -> None:
        """Noise of the next requests: patches [3060, 192] and rows [33, 64] on the host."""
        self._noise_vision.copy_(patches, non_blocking=True)
        self._noise_rows.copy_(rows, non_blocking=True)

    def set_inputs(self, image: Image, state: npt.NDArray[np.float32]) -> None:
        """An observation's image, composed or three views, and the state row float32 [8]."""
        self._host_state.copy_(torch.from_numpy(state))
        self._stacked = isinstance(image, tuple)
        if isinstance(image, tuple):
            for place, view in zip(self._host_views, image, strict=True):
                _copy_pixels(place, view)
        else:
            _copy_pixels(self._host_image, image)

    def set_prefix(self, table: npt.NDArray[np.float32]) -> None:
        """What requests with ``prefix`` continue: [33, 8] of ``prefix.prefix_table``."""
        self._host_prefix.copy_(torch.from_numpy(table))
        self._prefix.copy_(self._host_prefix, non_blocking=True)

    def encode(self) -> None:
        """The set inputs onto the device, and the image to the clean frame's patches."""
        if not self.uses_graphs:
            self._encode()
            return
        if self._stacked not in self._encode_graphs:
            self._encode_graphs[self._stacked] = self._capture(self._encode)
        self._encode_graphs[self._stacked].replay()

    def denoise(
        self,
        text: TextSlot,
        uncond: TextSlot,
        sampler: SamplerSettings,
        *,
        preview: bool = False,
        prefix: bool = False,
        hook: StepHook | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Denoise from the set noise and inputs.

        Args:
            text, uncond: filled slots of the two guidance branches.
            sampler: steps, guidance and interval.
            preview: also finish the video.
            prefix: guide the first rows towards the set prefix.
            hook: called at every step, without graphs: (rows, cond, uncond or None, step).

        Returns:
            video patches [3060, 192] (finished only with ``preview``) and rows [33, 64], float32;
            valid until the next call.
        """
        key = Key(text.length, uncond.length, sampler, preview, prefix)
        found = self._graphs.get(key) if hook is None else None
        if found is None:
            branches = self._branches(text, uncond, sampler)
            if self.uses_graphs and hook is None:
                # Answer now; the graph is captured when nobody waits (same kernels, same bits).
                self._pending = (key, branches)
            return self._denoise(branches, key, hook)
        self._graphs.move_to_end(key)
        found.graph.replay()
        return found.video, found.rows

    def prepare(self, text: TextSlot, uncond: TextSlot, sampler: SamplerSettings) -> None:
        """Capture the graph that requests with these lengths and settings will replay."""
        key = Key(text.length, uncond.length, sampler, False)
        if self.uses_graphs and key not in self._graphs:
            self._pending = (key, self._branches(text, uncond, sampler))
            self.capture_pending()

    def capture_pending(self) -> bool:
        """Capture what the last request ran without a graph; True if there was something."""
        if self._pending is None:
            return False
        (key, branches), self._pending = self._pending, None
        result: list[tuple[Tensor, Tensor]] = []
        graph = self._capture(lambda: result.append(self._denoise(branches, key, None)))
        self._graphs[key] = _Graph(graph, *result[-1], branches)
        while len(self._graphs) > _MAX_GRAPHS:
            self._graphs.popitem(last=False)
        # What the run without a graph had taken is not needed again: the graphs have their pool.
        torch.cuda.empty_cache()
        return True

    def forget_graphs(self) -> None:
        """Drop the denoising graphs: a text slot has moved."""
        self._graphs.clear()
        self._pending = None

    def answer(self, rows: Tensor) -> npt.NDArray[np.float32]:
        """Rows [33, 8] on the host; the only place that waits for the GPU."""
        self._answer.copy_(rows, non_blocking=True)
        if self.tower.device.type == "cuda":
            torch.cuda.current_stream(self.tower.device).synchronize()
        return self._answer[:, :ACTION_WIDTH].numpy().copy()

    def latent_frame0(self) -> npt.NDArray[np.float32]:
        """The observed frame's latent [48, 33, 40] of the last request; a copy."""
        return self._latent.cpu().numpy().copy()

    @staticmethod
    def video_latent(video: Tensor) -> npt.NDArray[np.float32]:
        """Patches [3060, 192] -> float32 [48, 9, 33, 40]."""
        return unpatchify(video)[0].cpu().numpy()

    # -- what is captured -----------------------------------------------------------------------

    def _encode(self) -> None:
        self._state.copy_(self._host_state, non_blocking=True)
        host = self._host_views if self._stacked else self._host_image
        image = self._views if self._stacked else self._image
        image.copy_(host, non_blocking=True)
        latent = self.encoder.encode(image)
        self._latent.copy_(latent)
        self._clean.copy_(_patchify_frame(latent))

    def _branches(
        self, text: TextSlot, uncond: TextSlot, sampler: SamplerSettings
    ) -> tuple[Branch, Branch | None]:
        steps = schedule(sampler)
        for step in steps:
            if step.timestep not in self._times:
                self._times[step.timestep] = self.tower.time_embedding(step.timestep)
        guided = any(sampler.guided(s.timestep) for s in steps)
        return text.branch(self.tower), uncond.branch(self.tower) if guided else None

    def _denoise(
        self, branches: tuple[Branch, Branch | None], key: Key, hook: StepHook | None
    ) -> tuple[Tensor, Tensor]:
        tower, low, sampler = self.tower, self._low, key.sampler
        text, uncond = branches
        vision = self._noise_vision.clone()
        vision[:FRAME_TOKENS] = self._clean
        # The network sees noise and state in its own dtype, so the sampler starts from those.
        rows = self._noise_rows.to(low).float()
        rows[:, ACTION_WIDTH:] = 0.0
        rows[0, :ACTION_WIDTH] = self._state.to(low).float()
        clean_row = rows[0].clone()
        steps = schedule(sampler)
        low_product = low if low != torch.float32 else None
        vision_solver = UniPC(steps, round_product=low_product)
        row_solver = UniPC(steps, round_product=low if self._server else None)
        head = None if self._server else torch.float32
        pulls = step_weights(sampler) if key.prefix else None
        for i, step in enumerate(steps):
            video = key.preview or i + 1 < len(steps)
            time = self._times[step.timestep]
            seen = vision.to(low), rows.to(low)
            guided_step = uncond is not None and sampler.guided(step.timestep)
            wanted = (text, uncond) if uncond is not None and guided_step else (text,)
            # Both branches at once, or one after the other.
            found = [
                velocities
                for j in range(0, len(wanted), tower.batch)
                for velocities in tower.forward(
                    *seen, time, *wanted[j : j + tower.batch], video=video, head_dtype=head
                )
            ]
            moved, acted = found[0]
            un_acted = None
            if guided_step:
                un_moved, un_acted = found[1]
                guided = guide(un_acted, acted, sampler.guidance)
                if moved is not None and un_moved is not None:
                    moved = guide(un_moved, moved, sampler.guidance)
            else:
                guided = acted
            if hook is not None:
                hook(rows, acted, un_acted, step)
            if moved is not None:
                velocity = torch.zeros(VISION_TOKENS, PATCH_CHANNELS, device=vision.device)
                moving = velocity[FRAME_TOKENS:].view(-1, FRAME_TOKENS, PATCH_CHANNELS)
                # What the network says of the padded row is cropped away.
                moving.copy_(moved.view(moving.shape))
                moving *= self._mask
                vision = vision_solver.step(vision, velocity)
                vision[:FRAME_TOKENS] = self._clean
            velocity = torch.zeros(
                ACTION_TOKENS, ACTION_CHANNELS, dtype=guided.dtype, device=rows.device
            )
            velocity[1:, :ACTION_WIDTH] = guided[:, :ACTION_WIDTH]
            # The velocity says where x0 lies from the state that the network saw; the server starts
            # from the unrounded one, and the difference stays in the command.
            rows = rows if self._server else seen[1].float()
            if pulls is not None:
                velocity = pull(rows, velocity, step.sigma, pulls[i], self._prefix)
            rows = row_solver.step(rows, velocity)
            # Clean positions have no velocity; writing them again keeps rounding out of them.
            rows[0] = clean_row
        return vision, rows

    def _capture(self, work: Callable[[], object]) -> torch.cuda.CUDAGraph:
        """Run once outside (libraries allocate their workspaces then), then capture."""
        if self._side is None:
            self._side = torch.cuda.Stream(self.tower.device)  # type: ignore[no-untyped-call]
        # One stream for all captures: cuBLAS keeps a workspace of 32 MB for each that it has seen.
        side = self._side
        side.wait_stream(torch.cuda.current_stream(self.tower.device))
        with torch.cuda.stream(side):
            work()
        torch.cuda.current_stream(self.tower.device).wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        # The noise thread may lock host memory meanwhile, which a global capture would not survive.
        with torch.cuda.graph(
            graph, pool=self._pool, stream=side, capture_error_mode="thread_local"
        ):
            work()
        self.captures += 1
        return graph


def _copy_pixels(place: Tensor, image: npt.NDArray[np.uint8]) -> None:
    """By torch, which copies with several threads; it knows no read-only or flipped arrays."""
    if image.flags.writeable and image.flags.c_contiguous:
        place.copy_(torch.from_numpy(image))
    else:
        np.copyto(place.numpy(), image)


def _patchify_frame(latent: Tensor) -> Tensor:
    """[48, 33, 40] -> [340, 192] with the 34th row zero, patch order as ``layout.patchify``."""
    padded = torch.nn.functional.pad(latent, (0, 0, 0, 1))
    shape = (48, (LATENT_HEIGHT + 1) // 2, 2, LATENT_WIDTH // 2, 2)
    return padded.reshape(shape).permute(1, 3, 2, 4, 0).reshape(FRAME_TOKENS, PATCH_CHANNELS)
