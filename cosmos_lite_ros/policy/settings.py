# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What to load and how to run it, and what is refused before anything is read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import torch

from cosmos_lite_ros.contract.prompt import PromptFormat
from cosmos_lite_ros.errors import BadInputError, EnvironmentLacksError
from cosmos_lite_ros.policy.attention import ATTENTION
from cosmos_lite_ros.policy.sampler import SamplerSettings
from cosmos_lite_ros.policy.text_weights import RESIDENCIES, Residency
from cosmos_lite_ros.quantize.schemes import SCHEME_NAMES

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
        dtype: ``float32`` (the reference for tests) or ``bfloat16``: of all that no scheme touches.
        scheme: of the generation tower's matrices, one of quantize.schemes; empty: by ``dtype``.
        accumulate: with ``fp8`` on the GPU, ``fast`` lets the matrix units keep fewer bits of the
            sums; ``accurate`` does not.
        fallback: what happens where a kernel does not pass its self-test: ``refuse`` loads nothing,
            ``bf16`` runs in bfloat16 and says so.
        action_arithmetic: in bfloat16, ``float32`` runs action head, guidance and update of the
            action block in float32 from the state that the network saw; ``server`` rounds as the
            reference server does, which adds about 9 mrad rms of noise to the commands.
        prompt_format: ``auto`` picks by family.
        sampler: default sampler settings; a request may bring its own.
        seed, seed_mode: ``fixed`` uses seed for every request, ``advance`` adds one each time.
        text_cache_entries: prompts kept in the LRU.
        text_residency: where the text tower's weights lie: ``gpu``, ``pinned`` host memory,
            ``mmap`` (in the files), ``none`` (prompt cards only). On a CPU the first two are one.
        cards: folder of prompt cards that are read before the tower runs; empty: none.
        attention: SDPA backend: ``auto`` or one of tower.ATTENTION.
        branches_per_pass: guidance branches that go through the tower together, 1 or 2; 0 takes
            what is faster: 2 where activations are quantised on a GPU, else 1.
        graphs: on CUDA, replay captured graphs; False runs the same kernels one by one.
        vae_offload: ``cpu`` keeps encoder and decoder weights in host memory and copies them for
            each use: bit-identical, it saves memory and not time.
        gemm_table: configurations of the matrix products, see kernels.tables: ``auto``,
            ``builtin`` or a file of ``cosmos-lite-ros tune``.
        self_test: on CUDA, test every kernel against its twin before anything is loaded.
        threads: CPU threads of torch for the whole process; None leaves torch's choice.
    """

    checkpoint: str
    revision: str = ""
    profile: str = "tiny"
    device: str = "cpu"
    dtype: str = "float32"
    scheme: str = ""
    accumulate: Literal["fast", "accurate"] = "accurate"
    fallback: Literal["refuse", "bf16"] = "refuse"
    action_arithmetic: Literal["float32", "server"] = "float32"
    prompt_format: PromptFormat = "auto"
    sampler: SamplerSettings = field(default_factory=SamplerSettings)
    seed: int = 0
    seed_mode: Literal["fixed", "advance"] = "fixed"
    text_cache_entries: int = 16
    text_residency: Residency = "pinned"
    cards: str = ""
    attention: str = "auto"
    branches_per_pass: int = 0
    graphs: bool = True
    vae_offload: Literal["none", "cpu"] = "none"
    gemm_table: str = "auto"
    self_test: bool = True
    threads: int | None = None

    @property
    def effective_scheme(self) -> str:
        """The scheme's name; ``float32`` where the dtype is and no scheme is given."""
        return self.scheme or SCHEMES[self.dtype]


def check_settings(settings: EngineSettings) -> None:
    """Refuse settings that no engine has."""
    allowed: dict[str, tuple[str, ...]] = {
        "dtype": tuple(DTYPES),
        "scheme": ("", *SCHEME_NAMES),
        "accumulate": ("fast", "accurate"),
        "fallback": ("refuse", "bf16"),
        "action_arithmetic": ("float32", "server"),
        "prompt_format": ("auto", "json", "plain"),
        "seed_mode": ("fixed", "advance"),
        "text_residency": RESIDENCIES,
        "attention": ATTENTION,
        "vae_offload": ("none", "cpu"),
    }
    for name, values in allowed.items():
        value = getattr(settings, name)
        if value not in values:
            raise BadInputError(f"{name} is {value!r}, expected one of {', '.join(values)}")
    if settings.branches_per_pass not in (0, 1, 2):
        raise BadInputError(
            f"branches_per_pass is {settings.branches_per_pass!r}, expected 1, 2 or 0 (automatic)"
        )
    if settings.scheme == "bf16" and settings.dtype != "bfloat16":
        raise BadInputError(
            f"scheme is 'bf16' and dtype {settings.dtype!r}, expected 'bfloat16': leave one out"
        )


def device_of(name: str) -> torch.device:
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
