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
from typing import Literal, get_args

from cosmos_lite_ros import __version__
from cosmos_lite_ros.errors import BadInputError

ProfileName = Literal["edge_rtx4090", "nano_bf16", "tiny"]
PROFILE_NAMES: tuple[ProfileName, ...] = get_args(ProfileName)

# The revisions of the published measurements. Edge's generator weights were replaced on
# 2026-08-25: a newer revision is another policy.
EDGE = "nvidia/Cosmos3-Edge-Policy-DROID"
EDGE_REVISION = "3ea407af3e156c0af3b4bb6edd85842cc9a58777"
NANO = "nvidia/Cosmos3-Nano-Policy-DROID"
NANO_REVISION = "6706d7680581c255ff61e0f3bb49d90eac55c79e"


@dataclass(frozen=True)
class Profile:
    """One profile.

    Attributes:
        checkpoint: Hugging Face id; empty for ``tiny``, which makes its own.
        revision: pinned commit of that id.
        device: ``cpu`` or ``cuda``.
        dtype: ``float32`` or ``bfloat16``.
        family: ``edge`` or ``nano``.
        summary: one line for people.
    """

    name: ProfileName
    checkpoint: str
    revision: str
    device: str
    dtype: Literal["float32", "bfloat16"]
    family: Literal["edge", "nano"]
    summary: str


PROFILES: dict[str, Profile] = {
    profile.name: profile
    for profile in (
        Profile(
            "edge_rtx4090",
            EDGE,
            EDGE_REVISION,
            "cuda",
            "bfloat16",
            "edge",
            "Edge in bfloat16 on a CUDA GPU",
        ),
        Profile(
            "nano_bf16",
            NANO,
            NANO_REVISION,
            "cuda",
            "bfloat16",
            "nano",
            "Nano in bfloat16 on a large CUDA GPU (about 33 GB)",
        ),
        Profile(
            "tiny",
            "",
            "",
            "cpu",
            "float32",
            "edge",
            "random weights on a CPU: everything runs, the actions mean nothing",
        ),
    )
}


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
