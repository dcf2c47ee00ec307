# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Make a tiny checkpoint: real layout, real architecture, random weights, marked as such.

It is what CPU tests and the demo run. The same code paths as a released policy, a few megabytes;
the actions mean nothing physically.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from torch import Tensor, nn

from cosmos_lite_ros import __version__
from cosmos_lite_ros.contract.prompt import Family, build_prompt
from cosmos_lite_ros.contract.robots import PANDA
from cosmos_lite_ros.errors import BadInputError
from cosmos_lite_ros.policy.checkpoint import MARKER_FILE
from cosmos_lite_ros.policy.layout import LATENT_CHANNELS

_VOCABULARY = 448
_TASKS = (
    "pick up the banana and place it in the bowl",
    "Move the pan forward and use the brush to clean it.",
    "open the drawer, put the cup inside and close it",
)
# Templates of our own with the traits of the released ones: Edge always has a system block.
_TEMPLATES: dict[Family, str] = {
    "edge": (
        "{{- '<|im_start|>system\\n<|im_end|>\\n' }}"
        "{%- for m in messages %}{{- '<|im_start|>' + m.role + '\\n' + m.content"
        " + '<|im_end|>\\n' }}{%- endfor %}"
        "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n<think></think>' }}"
        "{%- endif %}"
    ),
    "nano": (
        "{%- for m in messages %}{{- '<|im_start|>' + m.role + '\\n' + m.content"
        " + '<|im_end|>\\n' }}{%- endfor %}"
        "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
    ),
}
# Positions of Edge's special tokens; 20 keeps its bare name, as in the released tokenizer.
_EDGE_SPECIAL = {0: "<unk>", 1: "<s>", 2: "</s>", 10: "<|im_start|>", 11: "<|im_end|>"}
_EDGE_SPECIAL_COUNT = 32
_NANO_SPECIAL = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
)


def _transformer_config(family: Family) -> dict[str, Any]:
    edge = family == "edge"
    return {
        "_class_name": "Cosmos3OmniTransformer",
        "action_dim": 64,
        "action_gen": True,
        "attention_bias": False,
        "head_dim": 128,
        "hidden_act": "relu2" if edge else "silu",
        "hidden_size": 128,
        "intermediate_size": 96 if edge else 64,
        "latent_channel": LATENT_CHANNELS,
        "latent_patch_size": 2,
        "num_attention_heads": 2,
        "num_embodiment_domains": 32,
        "num_hidden_layers": 2,
        "num_key_value_heads": 1,
        "patch_latent_dim": 192,
        "qk_norm_for_text": not edge,
        "rms_norm_eps": 1e-5 if edge else 1e-6,
        "rope_axes_dim": [24, 20, 20],
        "rope_theta": 1e8 if edge else 5e6,
        "timestep_scale": 0.001,
        "unified_3d_mrope_temporal_modality_margin": 15000,
        "use_und_k_norm_for_gen": edge,
        "vocab_size": _VOCABULARY,
    }


def _vae_config(generator: torch.Generator) -> dict[str, Any]:
    mean = torch.randn(LATENT_CHANNELS, generator=generator) * 0.35
    std = 0.25 + 0.3 * torch.rand(LATENT_CHANNELS, generator=generator)
    return {
        "_class_name": "AutoencoderKLWan",
        "attn_scales": [],
        "base_dim": 8,
        "decoder_base_dim": 4,
        "dim_mult": [1, 2, 2, 2],
        "dropout": 0.0,
        "in_channels": 12,
        "is_residual": True,
        "latents_mean": [round(v, 4) for v in mean.tolist()],
        "latents_std": [round(v, 4) for v in std.tolist()],
        "num_res_blocks": 1,
        "out_channels": 12,
        "patch_size": 2,
        "scale_factor_spatial": 16,
        "scale_factor_temporal": 4,
        "temperal_downsample": [False, True, True],
        "z_dim": LATENT_CHANNELS,
    }


# Scales on top of 1 / sqrt(fan-in) and 1 +- 0.15, chosen so that attention is peaked and
# state, image and text each move the action visibly: a mistake in any of them must show. (With all
# scales 1 attention is nearly uniform over 3000 tokens, and a wrong state changes nothing.)
_SCALES = (
    ("norm_added_q.weight", 3.0),
    ("norm_added_k.weight", 2.0),
    ("norm_q.weight", 2.0),
    ("k_norm_und_for_gen.weight", 1.4),
    ("to_add_out.weight", 8.0),
    ("to_out.weight", 2.2),
    ("action_proj_in.fc.weight", 8.0),
    ("proj_in.weight", 0.7),
    ("embed_tokens.weight", 1.0),
)


def _randomise(module: nn.Module, generator: torch.Generator) -> dict[str, Tensor]:
    """Draw every tensor of a module in name order; bfloat16, as released checkpoints are."""
    tensors = {}
    for name, value in sorted(module.state_dict().items()):
        shape = value.shape
        drawn = torch.randn(shape, generator=generator)
        if "bias" in name:
            drawn = 0.1 * drawn
        elif name.endswith(("gamma", "weight")) and sum(n > 1 for n in shape) <= 1:
            drawn = 1.0 + 0.15 * drawn  # gains of norms
        elif "embed" not in name:
            per_domain = "action_proj" in name
            fan_in = 64 if per_domain else max(1, value[0].numel())
            drawn = drawn * fan_in**-0.5
        scale = next((s for end, s in _SCALES if name.endswith(end)), 1.0)
        tensors[name] = (scale * drawn).to(torch.bfloat16).contiguous()
    return tensors


def _centre(tensors: dict[str, Tensor]) -> None:
    """Let the action head's bias say DROID's home pose and a half-open gripper.

    The actions stay noise, but around a pose that a Panda can take, so that a demo's motion is not
    pinned to a joint limit.
    """
    bias = tensors["action_proj_out.bias.weight"].float()
    home = torch.tensor([*PANDA.home, 0.5])
    bias[:, : home.numel()] -= home  # x0 = x - sigma * v
    tensors["action_proj_out.bias.weight"] = bias.to(torch.bfloat16)


def _tokenizer(family: Family) -> tuple[Tokenizer, dict[str, Any]]:
    """A byte-level BPE of 448 tokens, trained on the prompts themselves."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special: list[str] = []
    if family == "edge":
        special = [_EDGE_SPECIAL.get(i, f"<SPECIAL_{i}>") for i in range(_EDGE_SPECIAL_COUNT)]
    else:
        tokenizer.normalizer = normalizers.NFC()
    reserved = 0 if special else len(_NANO_SPECIAL)
    trainer = trainers.BpeTrainer(
        vocab_size=_VOCABULARY - reserved,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([build_prompt(t, family) for t in _TASKS], trainer)
    config: dict[str, Any] = {
        "eos_token": "<|im_end|>",
        "pad_token": "<unk>",
        "tokenizer_class": "PreTrainedTokenizerFast",
    }
    if family == "edge":
        config["bos_token"] = "<s>"  # exists, and is not prepended
    else:
        tokenizer.add_special_tokens(list(_NANO_SPECIAL))
        config["pad_token"] = "<|endoftext|>"
    return tokenizer, config


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def _save(folder: Path, tensors: dict[str, Tensor], shards: int) -> None:
    """One file, or shards with an index, in diffusers' names."""
    stem = "diffusion_pytorch_model"
    if shards == 1:
        save_file(tensors, folder / f"{stem}.safetensors", metadata={"format": "pt"})
        return
    names = sorted(tensors)
    cut = [names[i::shards] for i in range(shards)]
    weight_map = {}
    for i, keys in enumerate(cut, 1):
        file = f"{stem}-{i:05d}-of-{shards:05d}.safetensors"
        save_file({k: tensors[k] for k in keys}, folder / file, metadata={"format": "pt"})
        weight_map.update(dict.fromkeys(keys, file))
    total = sum(t.nbytes for t in tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}
    _write_json(folder / f"{stem}.safetensors.index.json", index)


def _fill(folder: Path, family: Family, seed: int) -> None:
    from diffusers import AutoencoderKLWan, Cosmos3OmniTransformer

    generator = torch.Generator().manual_seed(seed)
    for part in ("transformer", "vae", "text_tokenizer", "scheduler"):
        (folder / part).mkdir()
    config = _transformer_config(family)
    with torch.device("meta"):
        model = Cosmos3OmniTransformer(**{k: v for k, v in config.items() if k[0] != "_"})
    # Edge is released as one file and Nano in shards.
    shards = 1 if family == "edge" else 2
    tensors = _randomise(model, generator)
    _centre(tensors)
    _save(folder / "transformer", tensors, shards)
    _write_json(folder / "transformer" / "config.json", config)
    vae_config = _vae_config(generator)
    with torch.device("meta"):
        vae = AutoencoderKLWan(**{k: v for k, v in vae_config.items() if k[0] != "_"})
    _save(folder / "vae", _randomise(vae, generator), 1)
    _write_json(folder / "vae" / "config.json", vae_config)
    tokenizer, tokenizer_config = _tokenizer(family)
    tokenizer.save(str(folder / "text_tokenizer" / "tokenizer.json"))
    _write_json(folder / "text_tokenizer" / "tokenizer_config.json", tokenizer_config)
    template = folder / "text_tokenizer" / "chat_template.jinja"
    template.write_text(_TEMPLATES[family], encoding="utf-8")
    # As the released files: another schedule than the policy's, which must not be read.
    scheduler = {"_class_name": "UniPCMultistepScheduler", "flow_shift": 3.0}
    if family == "nano":
        scheduler.update(flow_shift=1.0, use_karras_sigmas=True, sigma_max=200.0)
    _write_json(folder / "scheduler" / "scheduler_config.json", scheduler)
    index = {
        "_class_name": "Cosmos3OmniPipeline",
        "scheduler": ["diffusers", "UniPCMultistepScheduler"],
        "text_tokenizer": ["transformers", "PreTrainedTokenizerFast"],
        "transformer": ["diffusers", "Cosmos3OmniTransformer"],
        "vae": ["diffusers", "AutoencoderKLWan"],
    }
    _write_json(folder / "model_index.json", index)
    marker = {"random_weights": True, "family": family, "seed": seed, "made_by": __version__}
    _write_json(folder / MARKER_FILE, marker)


def make_tiny(family: Family, out: Path, seed: int = 0) -> Path:
    """Write a tiny checkpoint to ``out``; the same family and seed give the same bytes.

    The folder appears whole or not at all. An earlier tiny checkpoint there is replaced.

    Raises:
        BadInputError: an unknown family, or ``out`` holds something else.
    """
    if family not in ("edge", "nano"):
        raise BadInputError(f"family is {family!r}, expected edge or nano")
    if (
        out.exists()
        and not (out / MARKER_FILE).is_file()
        and (not out.is_dir() or any(out.iterdir()))
    ):
        raise BadInputError(f"{out} exists and is not a tiny checkpoint: choose another folder")
    out.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    try:
        _fill(beside, family, seed)
        beside.chmod(0o755)
        if out.exists():
            shutil.rmtree(out)
        beside.rename(out)
    except BaseException:
        shutil.rmtree(beside, ignore_errors=True)
        raise
    return out
