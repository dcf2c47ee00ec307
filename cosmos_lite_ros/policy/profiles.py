# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Profiles: which checkpoint, on which device, in which arithmetic, by one name."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from cosmos_lite_ros import __version__
from cosmos_lite_ros.errors import BadInputError
from cosmos_lite_ros.quantize.schemes import SCHEMES

ProfileName = Literal[
    "edge_rtx4090",
    "edge_interval",
    "edge_a10g",
    "edge_a10g_int8",
    "nano_rtx4090",
    "nano_bf16",
    "nano_a10g",
    "tiny",
]
PROFILE_NAMES: tuple[ProfileName, ...] = get_args(ProfileName)

# The revisions of the published measurements. Edge's generator weights were replaced on
# 2026-08-25: a newer revision is another policy.
EDGE = "nvidia/Cosmos3-Edge-Policy-DROID"
EDGE_REVISION = "3ea407af3e156c0af3b4bb6edd85842cc9a58777"
NANO = "nvidia/Cosmos3-Nano-Policy-DROID"
NANO_REVISION = "6706d7680581c255ff61e0f3bb49d90eac55c79e"


@dataclass(frozen=True)
class Profile:
    """One profile: everything about a policy's place and arithmetic that a parameter may override.

    Attributes:
        checkpoint: Hugging Face id; empty for ``tiny``, which makes its own.
        revision: pinned commit of that id.
        device: ``cpu`` or ``cuda``.
        dtype: ``float32`` or ``bfloat16``: of all that the scheme leaves alone.
        family: ``edge`` or ``nano``.
        scheme: of quantize.schemes; empty: ``dtype`` throughout.
        gpu: the GPU that it is for; empty: none.
        gpu_bytes: what must be free on the GPU, by policy.memory (a test holds it current).
        summary: one line for people.
        accumulate, attention, text_residency, vae_offload: as in the engine's settings.
        guidance_interval: guide only where lo < t < hi; empty: always. Steps, guidance and shift
            are the published 2, 3 and 5 everywhere.
    """

    name: ProfileName
    checkpoint: str
    revision: str
    device: str
    dtype: Literal["float32", "bfloat16"]
    family: Literal["edge", "nano"]
    scheme: str
    gpu: str
    gpu_bytes: int
    summary: str
    accumulate: Literal["fast", "accurate"] = "accurate"
    attention: str = "auto"
    text_residency: Literal["gpu", "pinned", "mmap", "none"] = "pinned"
    vae_offload: Literal["none", "cpu"] = "none"
    guidance_interval: tuple[float, float] | tuple[()] = ()

    @property
    def effective_scheme(self) -> str:
        """The scheme's name, ``float32`` where nothing is in fewer bits than that."""
        return self.scheme or ("bf16" if self.dtype == "bfloat16" else "float32")


def _edge(name: ProfileName, scheme: str, gpu: str, need: int, text: str, **more: Any) -> Profile:
    source = (EDGE, EDGE_REVISION, "cuda", "bfloat16", "edge")
    return Profile(name, *source, scheme, gpu, need, text, **more)  # type: ignore[arg-type]


def _nano(name: ProfileName, scheme: str, gpu: str, need: int, text: str) -> Profile:
    source = (NANO, NANO_REVISION, "cuda", "bfloat16", "nano")
    return Profile(name, *source, scheme, gpu, need, text)  # type: ignore[arg-type]


_ADA = "RTX 4090, or any GPU with float8 arithmetic"
_A10G = "A10G, or any Ampere GPU and newer"

PROFILES: dict[str, Profile] = {
    profile.name: profile
    for profile in (
        _edge("edge_rtx4090", "fp8", _ADA, 2_180_000_000, "Edge in float8"),
        _edge(
            "edge_interval",
            "fp8",
            _ADA,
            2_180_000_000,
            "Edge in float8, guided in the first step only: 3 network evaluations instead of 4",
            guidance_interval=(960.0, 1001.0),
        ),
        _edge(
            "edge_a10g",
            "int8wo",
            _A10G,
            1_940_000_000,
            "Edge with int8 weights and the image encoder in host memory: saves memory, not time",
            vae_offload="cpu",
        ),
        _edge("edge_a10g_int8", "int8", _A10G, 2_180_000_000, "Edge in int8 arithmetic"),
        _nano("nano_rtx4090", "fp8", _ADA, 8_020_000_000, "Nano in float8"),
        _nano("nano_bf16", "bf16", "a GPU with 16 GB", 14_760_000_000, "Nano in bfloat16"),
        _nano("nano_a10g", "int8", _A10G, 8_020_000_000, "Nano in int8 arithmetic"),
        Profile(
            "tiny",
            "",
            "",
            "cpu",
            "float32",
            "edge",
            "",
            "",
            0,
            "random weights on a CPU: everything runs, the actions mean nothing",
        ),
    )
}


def profiles_that_run(capability: tuple[int, int], family: str = "") -> list[str]:
    """Names of the profiles whose arithmetic a GPU of this compute capability has."""
    return [
        p.name
        for p in PROFILES.values()
        if p.device == "cuda"
        and (not family or p.family == family)
        and SCHEMES[p.effective_scheme].runs_on(capability)
    ]


def profile(name: str) -> Profile:
    """The profile of that name.

    Raises:
        BadInputError: no such profile.
    """
    try:
        return PROFILES[name]
    except KeyError:
        known = ", ".join(PROFILES)
        raise BadInputError(f"profile is {name!r}, expected one of {known}") from None


def cache_folder() -> Path:
    """Where this package keeps what it can make again: $XDG_CACHE_HOME or ~/.cache."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "cosmos_lite_ros"


def tiny_checkpoint(family: Literal["edge", "nano"] = "edge") -> Path:
    """The tiny checkpoint of the ``tiny`` profile, made in the cache folder where absent.

    Several processes may ask at once: each makes its own and the first one to finish stays.
    """
    from cosmos_lite_ros.policy import tiny

    # The maker is part of the name: another one may make another layout.
    maker = hashlib.sha256(Path(tiny.__file__).read_bytes()).hexdigest()[:8]
    folder = cache_folder() / f"tiny-{family}-{__version__}-{maker}"
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".making-") as scratch:
        made = tiny.make_tiny(family, Path(scratch) / family)
        try:
            made.rename(folder)
        except OSError:
            if not folder.is_dir():
                raise
            shutil.rmtree(made)
    return folder
