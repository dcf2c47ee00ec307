# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Loading and warming the policy engine on a thread, with progress, while the node spins."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cosmos_lite_ros.contract.gripper import GripperMapping
from cosmos_lite_ros.contract.robots import robot_type
from cosmos_lite_ros.errors import EnvironmentLacksError
from cosmos_lite_ros.policy.profiles import Profile, profile, tiny_checkpoint
from cosmos_lite_ros.quantize.manifest import MANIFEST_FILE
from cosmos_lite_ros.ros.policy_settings import PolicySettings

if TYPE_CHECKING:
    from cosmos_lite_ros.contract.assembler import AssemblerSettings
    from cosmos_lite_ros.policy.engine import EngineSettings, PolicyEngine


@dataclass(frozen=True)
class Step:
    """What the loader is doing: a fraction 0..1 and its name."""

    progress: float = 0.0
    name: str = "not configured"


def in_thread(work: Callable[[], None], name: str) -> Future[None]:
    """Run on a daemon thread of its own."""
    future: Future[None] = Future()

    def run() -> None:
        try:
            work()
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(None)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future


def engine_settings(settings: PolicySettings, checkpoint: str) -> EngineSettings:
    """The engine's settings: the profile's, with what the parameters say on top."""
    from cosmos_lite_ros.policy.cards import default_folder
    from cosmos_lite_ros.policy.engine import EngineSettings, SamplerSettings

    chosen = profile(settings.profile)
    interval = settings.guidance_interval or chosen.guidance_interval
    scheme: str = settings.scheme
    dtype = "float32" if scheme == "float32" else "bfloat16"
    if scheme == "auto":
        stored = (Path(checkpoint).expanduser() / MANIFEST_FILE).is_file()
        scheme, dtype = "" if stored else chosen.scheme, chosen.dtype

    def of(asked: str, profiles: str) -> Any:
        return profiles if asked == "auto" else asked

    return EngineSettings(
        checkpoint=checkpoint,
        revision=revision_of(settings, chosen),
        profile=settings.profile,
        device=chosen.device if settings.device == "auto" else settings.device,
        dtype=dtype,
        scheme="" if scheme == "float32" else scheme,
        accumulate=of(settings.accumulate, chosen.accumulate),
        fallback=settings.fallback,
        action_arithmetic=settings.action_arithmetic,
        prompt_format=settings.prompt_format,
        sampler=SamplerSettings(
            steps=settings.steps,
            guidance=settings.guidance,
            guidance_interval=(interval[0], interval[1]) if interval else None,
            shift=settings.shift,
        ),
        seed=settings.seed,
        seed_mode=settings.seed_mode,
        text_cache_entries=settings.text_cache_entries,
        text_residency=of(settings.text_residency, chosen.text_residency),
        cards=str(default_folder()) if settings.cards == "auto" else settings.cards,
        attention=of(settings.attention, chosen.attention),
        vae_offload=of(settings.vae_offload, chosen.vae_offload),
        threads=settings.threads or None,
    )


def revision_of(settings: PolicySettings, chosen: Profile) -> str:
    """The revision: as given, else the profile's if its own checkpoint is used."""
    if settings.revision:
        return settings.revision
    return chosen.revision if settings.checkpoint in ("", chosen.checkpoint) else ""


def load_engine(settings: PolicySettings, report: Callable[[float, str], None]) -> PolicyEngine:
    """Load what the settings ask for; blocks.

    Raises:
        CheckpointError, BadInputError, EnvironmentLacksError: one line each.
    """
    report(0.0, "importing torch")
    try:
        from cosmos_lite_ros.policy.engine import PolicyEngine

        chosen = profile(settings.profile)
        checkpoint = settings.checkpoint or chosen.checkpoint
        if not checkpoint:
            report(0.0, "making the tiny checkpoint")
            checkpoint = str(tiny_checkpoint(chosen.family))
        return PolicyEngine.load(engine_settings(settings, checkpoint), report)
    except ImportError as error:
        raise EnvironmentLacksError(
            f"{error}: pip install 'cosmos_lite_ros[policy]', in the environment that runs the node"
        ) from error


def assembler_settings(settings: PolicySettings) -> AssemblerSettings:
    """How observations are made.

    Raises:
        EnvironmentLacksError: cv_bridge is asked for and is not installed.
    """
    from cosmos_lite_ros.contract.assembler import AssemblerSettings
    from cosmos_lite_ros.contract.constants import VIEWS
    from cosmos_lite_ros.contract.images import ImageMessage, Pixels, decode_image
    from cosmos_lite_ros.policy.resize import torch_resize

    decode: Callable[[ImageMessage], Pixels] = decode_image
    if settings.image_backend == "cv_bridge":
        from cosmos_lite_ros.ros.bridge import cv_bridge_decoder

        decode = cv_bridge_decoder()
    gripper = settings.gripper
    return AssemblerSettings(
        joint_names=robot_type(settings.robot).joint_names,
        gripper_joint=gripper.joint,
        gripper=GripperMapping(gripper.open, gripper.closed),
        compose=settings.compose,
        aspect=settings.aspect,
        observation_anchor=settings.observation_anchor,
        max_image_age_s=settings.max_image_age_s,
        frozen_image_s=settings.frozen_image_s,
        max_camera_skew_s=settings.max_camera_skew_s,
        max_joint_state_age_s=settings.max_joint_state_age_s,
        max_gripper_age_s=settings.max_gripper_age_s,
        camera_latency_s={view: settings.cameras.of(view).latency_s for view in VIEWS},
        decode_image=decode,
        # Pillow's filter in a third of the time; replay uses it too.
        resize=torch_resize,
    )
