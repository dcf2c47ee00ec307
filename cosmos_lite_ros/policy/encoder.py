# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The image encoder as two-dimensional convolutions: one frame through the Wan 2.2 VAE.

The VAE is causal in time and pads the past with zeros, so for a single frame only the last temporal
tap of each convolution sees anything: each conv3d is exactly a conv2d with a third of the weights,
and the temporal down-sampling convolutions never run. Channels-last throughout.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from cosmos_lite_ros.contract.constants import CANVAS_HEIGHT, CANVAS_WIDTH
from cosmos_lite_ros.errors import CheckpointError
from cosmos_lite_ros.kernels.canvas import PATCH, canvas_patches
from cosmos_lite_ros.kernels.residual_add import residual_add
from cosmos_lite_ros.kernels.rms_silu import rms_silu
from cosmos_lite_ros.policy.checkpoint import CheckpointInfo, Progress, read_tensors
from cosmos_lite_ros.policy.layout import LATENT_CHANNELS, LATENT_HEIGHT, LATENT_WIDTH

_ALIGN = 256
_CHANNELS = 16
_DOWN_PREFIX = "encoder.down_blocks."


def encoder_tensors(info: CheckpointInfo) -> Iterator[tuple[str, Tensor]]:
    """(name, tensor) of the encoder's part of the VAE; conv3d weights cut to their last tap."""
    for name, tensor in read_tensors(info.vae_files):
        used = name.startswith(("encoder.", "quant_conv.")) and ".time_conv." not in name
        if used:
            yield name, tensor[:, :, -1] if tensor.dim() == 5 else tensor


class ImageEncoder2d:
    """The VAE's encoder on one device in one dtype; ``encode`` can be captured in a CUDA graph."""

    def __init__(
        self,
        weights: dict[str, Tensor],
        config: dict[str, Any],
        device: torch.device,
        dtype: torch.dtype,
    ):
        """Use ``load``."""
        self._w = weights
        self._device = device
        self._dtype = dtype
        self._slab: Tensor | None = None
        self._scratch: Tensor | None = None
        self._multipliers = list(config["dim_mult"])
        self._temporal = list(config["temperal_downsample"])
        shape = (LATENT_CHANNELS, 1, 1)
        mean = torch.tensor(config["latents_mean"], dtype=torch.float32, device=device)
        std = torch.tensor(config["latents_std"], dtype=torch.float32, device=device)
        # In bfloat16 the reference normalises in bfloat16 too, with a reciprocal of that dtype.
        self._mean = mean.view(shape).to(dtype)
        self._scale = 1.0 / std.view(shape).to(dtype)

    @classmethod
    def load(
        cls,
        info: CheckpointInfo,
        *,
        device: torch.device,
        dtype: torch.dtype,
        progress: Progress | None = None,
    ) -> ImageEncoder2d:
        """Read the encoder's tensors one after the other; keys were checked with the headers.

        Raises:
            CheckpointError: a VAE of another geometry.
        """
        config = info.vae_config
        for key in ("latents_mean", "latents_std"):
            if len(config.get(key) or ()) != LATENT_CHANNELS:
                raise CheckpointError(
                    f"vae/config.json: {key} has {len(config.get(key) or ())} values, expected "
                    f"{LATENT_CHANNELS}: this is not the Wan 2.2 VAE"
                )
        if not config.get("is_residual") or config.get("patch_size") != PATCH:
            raise CheckpointError(
                "vae/config.json: expected is_residual true and patch_size 2: this is not the "
                "Wan 2.2 VAE"
            )
        weights: dict[str, Tensor] = {}
        for name, tensor in encoder_tensors(info):
            if name == "encoder.conv_in.weight" and device.type == "cuda":
                tensor = functional.pad(tensor, (0, 0, 0, 0, 0, -tensor.shape[1] % _CHANNELS))
            if name.endswith(".weight"):
                moved = torch.empty(
                    tensor.shape, dtype=dtype, device=device, memory_format=torch.channels_last
                )
                moved.copy_(tensor)
            else:
                moved = tensor.flatten().to(device=device, dtype=dtype)
            weights[name] = moved
            if progress is not None:
                progress(0.5, "loading the image encoder")
        return cls(weights, config, device, dtype)

    @property
    def nbytes(self) -> int:
        """Bytes of the weights, each rounded up to 256."""
        return sum(-(-w.nbytes // _ALIGN) * _ALIGN for w in self._w.values())

    def offload(self, scratch: Tensor) -> None:
        """Move the weights to host memory; every ``encode`` copies them into ``scratch`` first.

        Args:
            scratch: flat uint8 on the device, idle whenever ``encode`` runs, ``nbytes`` or more.
        """
        starts, total = {}, 0
        for name, weight in self._w.items():
            starts[name] = total
            total += -(-weight.nbytes // _ALIGN) * _ALIGN
        pinned = self._device.type == "cuda"
        self._slab = torch.empty(total, dtype=torch.uint8, pin_memory=pinned)
        self._scratch = scratch[:total]
        views = {}
        for name, weight in self._w.items():
            # Raw bytes in the weight's own (channels-last) order.
            storage = weight.untyped_storage()
            flat = torch.empty(0, dtype=torch.uint8, device=weight.device).set_(storage)
            begin = weight.storage_offset() * weight.itemsize
            end = starts[name] + weight.nbytes
            self._slab[starts[name] : end].copy_(flat[begin : begin + weight.nbytes])
            home = self._scratch[starts[name] : end].view(weight.dtype)
            views[name] = home.as_strided(weight.shape, weight.stride())
        self._w = views

    def encode(self, image: Tensor) -> Tensor:
        """The observed frame's latent, float32 [48, 33, 40], normalised and cropped.

        Args:
            image: uint8 RGB on the device, composed [540, 640, 3] or three views [3, 360, 640, 3].
        """
        if self._slab is not None and self._scratch is not None:
            self._scratch.copy_(self._slab, non_blocking=True)
        height, width = CANVAS_HEIGHT // PATCH, CANVAS_WIDTH // PATCH
        # On a GPU four more than 12, zeros: matrix units want multiples of 8.
        channels = self._w["encoder.conv_in.weight"].shape[1]
        rows = torch.empty(height * width, channels, dtype=self._dtype, device=image.device)
        canvas_patches(image, rows, height=CANVAS_HEIGHT, width=CANVAS_WIDTH)
        x = rows.view(1, height, width, channels).permute(0, 3, 1, 2)
        x = self._conv("encoder.conv_in", x, padding=1)
        blocks = len(self._multipliers)
        for block in range(blocks):
            x = self._down(block, x, last=block == blocks - 1)
        x = self._residual("encoder.mid_block.resnets.0", x)
        x = self._attention("encoder.mid_block.attentions.0", x)
        x = self._residual("encoder.mid_block.resnets.1", x)
        x = self._norm("encoder.norm_out", x)
        x = self._conv("encoder.conv_out", x, padding=1)
        mu = self._conv("quant_conv", x)[0, :LATENT_CHANNELS]
        latent = (mu - self._mean) * self._scale
        return latent[:, :LATENT_HEIGHT, :LATENT_WIDTH].float()

    def _conv(
        self, name: str, x: Tensor, *, stride: int = 1, padding: int = 0, bias: bool = True
    ) -> Tensor:
        """bias: False leaves it to the kernel that follows: torch adds it in a pass of its own."""
        w = self._w
        added = w[f"{name}.bias"] if bias else None
        return functional.conv2d(x, w[f"{name}.weight"], added, stride, padding)

    def _norm(self, name: str, x: Tensor, *, bias: str = "", silu: bool = True) -> Tensor:
        """bias: name of the convolution whose bias x lacks; its memory then takes the result."""
        rows = _rows(x)
        out = rows if bias else torch.empty_like(rows)
        added = self._w[f"{bias}.bias"] if bias else None
        rms_silu(rows, self._w[f"{name}.gamma"], out, bias=added, silu=silu)
        return _image(out, x)

    def _residual(self, name: str, x: Tensor) -> Tensor:
        first, second, shortcut = f"{name}.conv1", f"{name}.conv2", f"{name}.conv_shortcut"
        h = self._conv(first, self._norm(f"{name}.norm1", x), padding=1, bias=False)
        h = self._norm(f"{name}.norm2", h, bias=first)
        h = self._conv(second, h, padding=1, bias=False)
        around = self._conv(shortcut, x) if f"{shortcut}.weight" in self._w else x
        rows = _rows(h)
        residual_add(rows, self._w[f"{second}.bias"], _rows(around), rows)
        return _image(rows, h)

    def _down(self, block: int, x: Tensor, *, last: bool) -> Tensor:
        name = f"{_DOWN_PREFIX}{block}"
        count = sum(k.startswith(name) and k.endswith(".conv1.weight") for k in self._w)
        final = f"{name}.resnets.{count - 1}.conv2" if last else f"{name}.downsampler.resample.1"
        time = 2 if not last and self._temporal[block] else 1
        # The small shortcut first, so that what entered need not be kept.
        channels = self._w[f"{final}.weight"].shape[0]
        around = _average(x, channels, time=time, space=1 if last else 2)
        for i in range(count):
            x = self._residual(f"{name}.resnets.{i}", x)
        if not last:
            x = self._conv(final, functional.pad(x, (0, 1, 0, 1)), stride=2)
        return x + around

    def _attention(self, name: str, x: Tensor) -> Tensor:
        _, c, h, w = x.shape
        qkv = self._conv(f"{name}.to_qkv", self._norm(f"{name}.norm", x, silu=False))
        q, k, v = qkv.permute(0, 2, 3, 1).reshape(1, 1, h * w, 3 * c).chunk(3, dim=-1)
        out = functional.scaled_dot_product_attention(q, k, v)
        out = out.reshape(1, h, w, c).permute(0, 3, 1, 2)
        return x + self._conv(f"{name}.proj", out)


def _rows(x: Tensor) -> Tensor:
    """[1, C, h, w], channels last, as its pixels [h * w, C]."""
    return x.permute(0, 2, 3, 1).reshape(-1, x.shape[1])


def _image(rows: Tensor, like: Tensor) -> Tensor:
    """Pixels back in the shape of ``like``."""
    _, c, h, w = like.shape
    return rows.view(1, h, w, c).permute(0, 3, 1, 2)


def _average(x: Tensor, channels: int, *, time: int, space: int) -> Tensor:
    """The shortcut of a down block: pixels go to channels, groups of channels are averaged.

    With a temporal factor of 2 the missing earlier frame is zeros, as the reference pads.
    """
    _, c, h, w = x.shape
    x = x.view(1, c, h // space, space, w // space, space).permute(0, 1, 3, 5, 2, 4)
    x = x.reshape(c, 1, space * space, h // space, w // space)
    if time == 2:
        x = torch.cat([torch.zeros_like(x), x], dim=1)
    x = x.reshape(channels, c * time * space * space // channels, h // space, w // space)
    averaged = x.mean(dim=1)
    return averaged[None].contiguous(memory_format=torch.channels_last)
