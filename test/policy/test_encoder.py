# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The two-dimensional image encoder against the VAE's own causal convolutions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from cosmos_lite_ros.contract.views import pad_canvas
from cosmos_lite_ros.errors import CheckpointError
from cosmos_lite_ros.policy.checkpoint import CheckpointInfo, inspect
from cosmos_lite_ros.policy.encoder import ImageEncoder2d, encoder_tensors
from cosmos_lite_ros.policy.vae import ImageEncoder

from ..conftest import GOLDEN, Figure

CPU = torch.device("cpu")
Maker = Callable[[str], CheckpointInfo]


def make_image(seed: int = 0) -> np.ndarray:
    """A scene of smooth ramps and hard edges with noise on it, uint8 [540, 640, 3]."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:540, :640]
    scene = np.stack([x * 0.4, y * 0.47, 127 + 100 * np.sin(0.05 * (x + y))], axis=-1)
    scene[100:300, 200:350] = (250, 10, 60)
    return np.clip(scene + rng.normal(0, 12, scene.shape), 0, 255).astype(np.uint8)


# Depths and ratios of widths as in the released VAE.
RELEASED = {"num_res_blocks": 2, "dim_mult": [1, 2, 4, 4]}


@pytest.fixture(scope="module")
def info(tmp_path_factory: pytest.TempPathFactory) -> Maker:
    """Headers of the ``golden`` checkpoint, or of one with a VAE as the ``released`` one."""
    made: dict[str, CheckpointInfo] = {}

    def make(name: str) -> CheckpointInfo:
        if name not in made:
            folder = GOLDEN / "edge" / "checkpoint"
            if name == "released":
                folder = make_variant(RELEASED, tmp_path_factory.mktemp(name) / "edge")
            made[name] = inspect(str(folder))
        return made[name]

    return make


def make_variant(change: dict[str, Any], out: Path) -> Path:
    """A tiny checkpoint with another VAE."""
    from cosmos_lite_ros.policy import tiny

    original = tiny._vae_config
    try:
        tiny._vae_config = lambda generator: {**original(generator), **change}
        return tiny.make_tiny("edge", out)
    finally:
        tiny._vae_config = original


def load(info: CheckpointInfo, dtype: torch.dtype = torch.float32) -> ImageEncoder2d:
    return ImageEncoder2d.load(info, device=CPU, dtype=dtype)


@torch.inference_mode()
def encode(encoder: ImageEncoder2d, image: np.ndarray) -> Tensor:
    return encoder.encode(torch.from_numpy(image)).clone()


def worst(found: Tensor, expected: Tensor) -> float:
    return float((found.double() - expected.double()).abs().max())


@pytest.mark.parametrize("name", ["golden", "released"])
@torch.inference_mode()
def test_conv2d_equals_conv3d(name: str, info: Maker, figure: Figure) -> None:
    image = make_image()
    expected = ImageEncoder.load(info(name), device=CPU, dtype=torch.float32).encode(
        pad_canvas(image)
    )
    found = encode(load(info(name)), image)
    assert found.shape == (48, 33, 40)
    assert found.dtype == torch.float32
    assert float(expected.std()) > 0.3
    error, rms = worst(found, expected), float((found - expected).pow(2).mean().sqrt())
    figure(f"{name}: conv2d - conv3d {error:.1e}, rms {rms:.1e}")
    assert error < 1e-5  # of latents up to 6
    assert rms < 2e-6


@torch.inference_mode()
def test_one_frame_equals_frame_0_of_a_clip(info: Maker) -> None:
    """Later frames do not reach the first latent frame.

    The VAE takes a clip in pieces of 1, 4, 4, .. frames; three pieces stand for the policy's nine.
    """
    image = make_image()
    reference = ImageEncoder.load(info("golden"), device=CPU, dtype=torch.float32)
    canvas = torch.from_numpy(pad_canvas(image)).permute(2, 0, 1).float() / 127.5 - 1.0
    clip = torch.rand(1, 3, 9, *canvas.shape[1:], generator=torch.manual_seed(1)) * 2 - 1
    clip[0, :, 0] = canvas
    mu = reference._model.encode(clip).latent_dist.mode()
    assert mu.shape[2] == 3
    latent = ((mu - reference._mean) * reference._scale)[0, :, :, :33, :40]
    found = encode(load(info("golden")), image)
    assert worst(found, latent[:, 0]) < 1e-5
    assert worst(found, latent[:, 1]) > 0.1


@torch.inference_mode()
def test_bfloat16_is_near_conv3d(info: Maker) -> None:
    image = make_image()
    expected = ImageEncoder.load(info("released"), device=CPU, dtype=torch.bfloat16).encode(
        pad_canvas(image)
    )
    found = encode(load(info("released"), torch.bfloat16), image)
    assert found.dtype == torch.float32
    error = torch.linalg.vector_norm(found - expected) / torch.linalg.vector_norm(expected)
    assert float(error) < 0.05
    # The result carries bfloat16 values.
    assert torch.equal(found, found.to(torch.bfloat16).float())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@torch.inference_mode()
def test_offload_changes_no_bit(dtype: torch.dtype, info: Maker) -> None:
    images = [make_image(seed) for seed in range(2)]
    here = load(info("golden"), dtype)
    expected = [encode(here, image) for image in images]
    away = load(info("golden"), dtype)
    weights = sum(t.numel() for _, t in encoder_tensors(info("golden"))) * dtype.itemsize
    assert weights <= away.nbytes <= weights + 256 * len(list(encoder_tensors(info("golden"))))
    scratch = torch.zeros(away.nbytes + 4096, dtype=torch.uint8)
    away.offload(scratch)
    for image, wanted in zip(images, expected, strict=True):
        scratch.fill_(255)  # whoever else works there leaves rubbish
        assert torch.equal(encode(away, image), wanted)
    assert bool((scratch[away.nbytes :] == 255).all())
    assert not torch.equal(*expected)


def test_a_small_scratch_is_refused(info: Maker) -> None:
    encoder = load(info("golden"))
    with pytest.raises((RuntimeError, ValueError)):
        encoder.offload(torch.zeros(encoder.nbytes - 1, dtype=torch.uint8))


def test_temporal_convolutions_and_the_decoder_are_not_read(info: Maker) -> None:
    names = dict(encoder_tensors(info("golden")))
    assert all(t.dim() <= 4 for t in names.values())
    assert not any("time_conv" in n or n.startswith(("decoder", "post_quant")) for n in names)
    on_disk = {n for f in info("golden").vae_files for n in f.shapes}
    assert any("time_conv" in n for n in on_disk)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"latents_mean": [0.0] * 16}, "latents_mean has 16 values, expected 48"),
        ({"latents_std": None}, "latents_std has 0 values, expected 48"),
        ({"is_residual": False}, "is_residual"),
        ({"patch_size": 1}, "patch_size 2"),
    ],
    ids=str,
)
def test_another_vae_is_refused(change: dict[str, Any], message: str, info: Maker) -> None:
    golden = info("golden")
    other = replace(golden, vae_config={**golden.vae_config, **change})
    with pytest.raises(CheckpointError, match=message):
        load(other)
