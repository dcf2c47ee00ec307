# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The flow-matching sampler: noise, schedule, guidance, and UniPC as a table of host constants.

x_sigma = sigma * noise + (1 - sigma) * x0, and the network predicts v = noise - x0. The schedule
is built here, never read from a checkpoint: the released scheduler files describe other ones.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cosmos_lite_ros.errors import BadInputError
from cosmos_lite_ros.policy.layout import ACTION_CHANNELS, ACTION_TOKENS, VIDEO_SHAPE

MAX_STEPS = 8


@dataclass(frozen=True)
class SamplerSettings:
    """How a chunk is sampled; the defaults are the published low-latency setting.

    Attributes:
        steps: denoising steps, 1 to 8.
        guidance: scale g of v = u + g (c - u); 1 runs the conditional branch alone.
        guidance_interval: guide only where lo < t < hi (strict), t = 0..1000; None: always.
        shift: flow shift of the schedule.

    Raises:
        BadInputError: a value out of range.
    """

    steps: int = 2
    guidance: float = 3.0
    guidance_interval: tuple[float, float] | None = None
    shift: float = 5.0

    def __post_init__(self) -> None:
        """Refuse what the sampler cannot do."""
        if not 1 <= self.steps <= MAX_STEPS:
            raise BadInputError(f"steps is {self.steps}, expected 1 to {MAX_STEPS}")
        if not (np.isfinite(self.guidance) and self.guidance >= 0):
            raise BadInputError(f"guidance is {self.guidance}, expected a finite number >= 0")
        if not (np.isfinite(self.shift) and self.shift > 0):
            raise BadInputError(f"shift is {self.shift}, expected a finite number > 0")
        if self.guidance_interval is not None:
            low, high = self.guidance_interval
            if not low < high:
                raise BadInputError(f"guidance_interval is {low} {high}, expected LO < HI")

    def guided(self, timestep: float) -> bool:
        """Whether the unconditional branch is needed at this timestep."""
        if self.guidance == 1.0:
            return False
        if self.guidance_interval is None:
            return True
        low, high = self.guidance_interval
        return low < timestep < high


@dataclass(frozen=True)
class Step:
    """One step: the network runs at ``timestep``, then x moves to the next sigma.

    With m = x0 prediction of this step, p and pp those of the two steps before, x the corrected
    sample of this step and y that of the step before:
    x = corrector . (y, m, p, pp) where there is a corrector, then next = predictor . (x, m, p).
    """

    sigma: float
    timestep: float
    corrector: tuple[float, float, float, float] | None
    predictor: tuple[float, float, float]


def sigmas(steps: int, shift: float) -> npt.NDArray[np.float32]:
    """float32 [steps + 1] noise levels, the last one 0.

    The reference rounds the start of its linspace to float32 first; one ulp of one sigma depends
    on it.
    """
    u = np.linspace(float(np.float32(0.999)), 0.0, steps + 1)[:-1]
    return np.append(shift * u / (1.0 + (shift - 1.0) * u), 0.0).astype(np.float32)


def _log_snr(sigma: float) -> float:
    with np.errstate(divide="ignore"):
        return float(np.log(1.0 - sigma) - np.log(sigma))


def schedule(settings: SamplerSettings) -> tuple[Step, ...]:
    """UniPC of order 2 (B2(h), x0 prediction, lower order at the end) as linear combinations.

    Source: Zhao et al., UniPC, 2023, with the B2 variant. The last step goes to sigma 0, where the
    update is the x0 prediction itself.
    """
    levels = [float(s) for s in sigmas(settings.steps, settings.shift)]
    lam = [_log_snr(s) for s in levels[:-1]]
    steps: list[Step] = []
    order_before = 0
    for i, sigma in enumerate(levels[:-1]):
        corrector = None
        if i > 0:
            h = lam[i] - lam[i - 1]
            phi = np.expm1(-h)
            alpha = 1.0 - sigma
            keep, base = sigma / levels[i - 1], -alpha * phi
            if order_before == 1:
                # base * (p + (m - p) / 2)
                corrector = (keep, 0.5 * base, 0.5 * base, 0.0)
            else:
                r = (lam[i - 2] - lam[i - 1]) / h
                phi_2 = phi / -h - 1.0
                phi_3 = phi_2 / -h - 0.5
                matrix = np.array([[1.0, 1.0], [r, 1.0]])
                rho = np.linalg.solve(matrix, np.array([phi_2 / phi, 2.0 * phi_3 / phi]))
                # base * (p + rho_0 (pp - p) / r + rho_1 (m - p))
                older = float(rho[0]) / r
                newer = float(rho[1])
                corrector = (keep, base * newer, base * (1.0 - older - newer), base * older)
        order = min(2, i + 1, settings.steps - i)
        if levels[i + 1] == 0.0:
            predictor = (0.0, 1.0, 0.0)
        else:
            h = lam[i + 1] - lam[i]
            alpha = 1.0 - levels[i + 1]
            base = -alpha * float(np.expm1(-h))
            keep = levels[i + 1] / sigma
            if order == 1:
                predictor = (keep, base, 0.0)
            else:
                r = (lam[i - 1] - lam[i]) / h
                # base * (m + (p - m) / (2 r))
                predictor = (keep, base * (1.0 - 0.5 / r), base * 0.5 / r)
        timestep = float(int(np.float32(1000.0) * np.float32(sigma)))
        steps.append(Step(sigma, timestep, _floats(corrector), predictor))
        order_before = order
    return tuple(steps)


def _floats(
    values: tuple[float, float, float, float] | None,
) -> tuple[float, float, float, float] | None:
    if values is None:
        return None
    a, b, c, d = (float(v) for v in values)
    return a, b, c, d


class UniPC:
    """The running state of one sampled tensor.

    ``step`` takes the velocity at the current step and returns the sample of the next one. Pure
    elementwise float32: one object for the video, one for the actions.
    """

    def __init__(self, steps: tuple[Step, ...], *, round_product: torch.dtype | None = None):
        """``round_product``: round sigma * v to this dtype, as the reference's server does."""
        self._steps = steps
        self._round = round_product
        self._index = 0
        self._sample: Tensor | None = None
        self._x0: list[Tensor] = []

    def step(self, x: Tensor, velocity: Tensor) -> Tensor:
        """x and velocity of one shape, x float32; returns float32."""
        step = self._steps[self._index]
        product = step.sigma * velocity.float()
        if self._round is not None:
            product = product.to(self._round).float()
        x0 = x - product
        if step.corrector is not None:
            assert self._sample is not None
            keep, now, before, older = step.corrector
            x = keep * self._sample + now * x0 + before * self._x0[-1]
            if older != 0.0:
                x = x + older * self._x0[-2]
        keep, now, before = step.predictor
        self._sample = x
        nxt = x0 if (keep, now, before) == (0.0, 1.0, 0.0) else keep * x + now * x0
        if before != 0.0:
            nxt = nxt + before * self._x0[-1]
        self._x0 = [*self._x0[-1:], x0]
        self._index += 1
        return nxt


def draw_noise(seed: int) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Video noise [1, 48, 9, 33, 40] and action noise [33, 64], each from a fresh generator.

    RandomState is the reference's generator: the same seed gives the same chunk. 9 to 35 ms.

    Raises:
        BadInputError: a seed outside 0 .. 2**32 - 1.
    """
    if not 0 <= seed < 2**32:
        raise BadInputError(f"seed is {seed}, expected 0 to {2**32 - 1}")
    video = np.random.RandomState(seed).standard_normal(VIDEO_SHAPE).astype(np.float32)
    shape = (ACTION_TOKENS, ACTION_CHANNELS)
    action = np.random.RandomState(seed).standard_normal(shape).astype(np.float32)
    return video, action


def guide(uncond: Tensor, cond: Tensor, scale: float) -> Tensor:
    """u + g (c - u) in the tensors' own dtype: three roundings in bfloat16, as the reference."""
    return uncond + scale * (cond - uncond)
