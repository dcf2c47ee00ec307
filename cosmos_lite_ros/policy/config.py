# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The network's configuration, and which family it belongs to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cosmos_lite_ros.contract.prompt import Family
from cosmos_lite_ros.errors import CheckpointError

# Embodiment domain of DROID among the checkpoint's domains.
DROID_DOMAIN = 8


@dataclass(frozen=True)
class NetworkConfig:
    """What the request path needs to know of transformer/config.json.

    ``raw`` is the whole file, for the model class.
    """

    family: Family
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab_size: int
    rms_norm_eps: float
    rope_theta: float
    rope_sections: tuple[int, int, int]
    timestep_scale: float
    domains: int
    raw: dict[str, Any]


# What each family's configuration must say; a file that says otherwise is another model's, or is
# incomplete, and would load and give rubbish.
_FAMILY: dict[Family, dict[str, Any]] = {
    "edge": {
        "hidden_act": "relu2",
        "qk_norm_for_text": False,
        "use_und_k_norm_for_gen": True,
        "rms_norm_eps": 1e-5,
        "rope_theta": 1e8,
    },
    "nano": {
        "hidden_act": "silu",
        "qk_norm_for_text": True,
        "use_und_k_norm_for_gen": False,
        "rms_norm_eps": 1e-6,
        "rope_theta": 5e6,
    },
}
# Defaults of the model class for keys that a file may leave out.
_DEFAULTS: dict[str, Any] = {
    "qk_norm_for_text": True,
    "use_und_k_norm_for_gen": False,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "rope_theta": 5e6,
    "timestep_scale": 0.001,
    "head_dim": 128,
    "num_embodiment_domains": 32,
}
_COMMON: dict[str, Any] = {
    "action_gen": True,
    "action_dim": 64,
    "latent_channel": 48,
    "latent_patch_size": 2,
    "patch_latent_dim": 192,
    "unified_3d_mrope_temporal_modality_margin": 15000,
    "attention_bias": False,
}
_CLASS_NAME = "Cosmos3OmniTransformer"
# Layers and hidden size of the released policies; anything else was never released.
RELEASED_SIZES: dict[Family, tuple[int, int]] = {"edge": (28, 2048), "nano": (36, 4096)}


def parse_config(raw: dict[str, Any], where: str) -> NetworkConfig:
    """Check transformer/config.json and find the family.

    Raises:
        CheckpointError: an unknown family, an incomplete file, or no action head.
    """
    merged = {**_DEFAULTS, **raw}
    name = raw.get("_class_name", _CLASS_NAME)
    if name != _CLASS_NAME:
        raise CheckpointError(
            f"{where}: _class_name is {name!r}, expected {_CLASS_NAME!r}: this is another model"
        )
    activation = merged["hidden_act"]
    families = [f for f, keys in _FAMILY.items() if keys["hidden_act"] == activation]
    if not families:
        raise CheckpointError(
            f"{where}: hidden_act is {activation!r}, expected 'relu2' (Edge) or 'silu' (Nano): "
            "this is not a Cosmos 3 policy"
        )
    family = families[0]
    for key, expected in {**_FAMILY[family], **_COMMON}.items():
        if merged.get(key) != expected:
            raise CheckpointError(
                f"{where}: {key} is {merged.get(key)!r}, a {family} policy has {expected!r}: the "
                "file is incomplete or belongs to another model"
            )
    sections = merged.get("rope_axes_dim") or (merged.get("rope_scaling") or {}).get(
        "mrope_section", [24, 20, 20]
    )
    try:
        config = NetworkConfig(
            family=family,
            layers=int(merged["num_hidden_layers"]),
            hidden=int(merged["hidden_size"]),
            heads=int(merged["num_attention_heads"]),
            kv_heads=int(merged["num_key_value_heads"]),
            head_dim=int(merged["head_dim"]),
            vocab_size=int(merged["vocab_size"]),
            rms_norm_eps=float(merged["rms_norm_eps"]),
            rope_theta=float(merged["rope_theta"]),
            rope_sections=(int(sections[0]), int(sections[1]), int(sections[2])),
            timestep_scale=float(merged["timestep_scale"]),
            domains=int(merged["num_embodiment_domains"]),
            raw=raw,
        )
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"{where}: {error} is missing or wrong: the file is incomplete"
        ) from error
    if config.domains <= DROID_DOMAIN:
        raise CheckpointError(
            f"{where}: {config.domains} embodiment domains, DROID is id {DROID_DOMAIN}: this "
            "checkpoint has no DROID action head"
        )
    return config
