# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The accepted set: other ways through the same network in the same arithmetic.

On a GPU the library's own transformer, eager and compiled, and the engine with another attention
backend. On a CPU, where torch has one fast attention kernel and compiling takes minutes, the
library's modules, and the same with matrix products and attention in float32 rounded once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from cosmos_lite_ros.policy.attention import attention_backend
from cosmos_lite_ros.policy.bench_peers import stock_inputs, stock_transformer
from cosmos_lite_ros.policy.checkpoint import inspect
from cosmos_lite_ros.policy.compare.subjects import EngineSubject, StockSubject, Subject
from cosmos_lite_ros.policy.layout import ACTION_CHANNELS, ACTION_TOKENS, VIDEO_SHAPE
from cosmos_lite_ros.policy.network import Velocity
from cosmos_lite_ros.policy.reference import ReferencePolicy
from cosmos_lite_ros.policy.settings import EngineSettings, device_of

Say = Callable[[str], None]


class RoundedOnce(TorchFunctionMode):
    """Matrix products and attention in float32, their results rounded once to the input's dtype.

    Another order and another precision of the sums than torch's bfloat16 kernels have.
    """

    _WIDENED = (functional.linear, functional.scaled_dot_product_attention)

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Called for every torch function inside the mode."""
        options = kwargs or {}
        if func in self._WIDENED and args[0].dtype == torch.bfloat16:
            wide = (a.float() if isinstance(a, Tensor) else a for a in args)
            return func(*wide, **options).to(torch.bfloat16)
        return func(*args, **options)


class StockNetwork:
    """``PolicyNetwork``'s interface on the library's whole transformer: text in every forward."""

    def __init__(self, policy: ReferencePolicy, checkpoint: str):
        """Shares the policy's modules."""
        network = policy.network
        self.device, self.dtype, self.config = network.device, network.dtype, network.config
        self.model = stock_transformer(policy, inspect(checkpoint))

    def text_cache(self, token_ids: list[int]) -> list[int]:
        """Nothing is cached."""
        return token_ids

    def forward(
        self, video: Tensor, action: Tensor, timestep: float, text: list[int], **_: Any
    ) -> Velocity:
        """One evaluation, the action head in the network's dtype."""
        arguments = stock_inputs(text, video, action, timestep, self.device, self.dtype)
        moved, _, acted = self.model(**arguments)
        # Clean positions come first.
        return Velocity(moved[0][:, :, 1:], acted[0][1:])


def accepted_set(reference: EngineSettings, say: Say) -> Iterator[Subject]:
    """One member after the other; each must be closed before the next is asked for.

    Args:
        reference: settings of the reference.
        say: told what is being loaded.
    """
    device = device_of(reference.device)
    say("loading the library's transformer")
    policy = ReferencePolicy(
        reference.checkpoint,
        device=reference.device,
        dtype=torch.bfloat16,
        server_arithmetic=True,
        prompt_format=reference.prompt_format,
    )
    options: dict[str, Any] = {"sampler": reference.sampler}
    if device.type != "cuda":
        yield StockSubject("stock modules", policy, **options)
        yield StockSubject(
            "stock modules, float32 products", policy, kernels=RoundedOnce(), **options
        )
        return
    network: Any = StockNetwork(policy, reference.checkpoint)
    policy.network = network
    yield StockSubject("stock transformer, eager", policy, **options)
    say("compiling the library's transformer")
    if problem := compile_blocks(network):
        say(f"the library's transformer cannot be compiled here: {problem}")
    else:
        yield StockSubject("stock transformer, compiled", policy, **options)
    del policy, network
    other = other_backend(attention_backend(device, reference.attention))
    say(f"loading the engine with {other} attention")
    yield EngineSubject.load(f"engine, {other} attention", replace(reference, attention=other))


@torch.inference_mode()
def compile_blocks(network: StockNetwork) -> str:
    """Compile the blocks for any text length and try them; why it cannot be done, or nothing."""
    generator = torch.Generator().manual_seed(0)
    video = torch.randn(VIDEO_SHAPE, generator=generator).to(network.device)
    rows = torch.randn(ACTION_TOKENS, ACTION_CHANNELS, generator=generator).to(network.device)
    try:
        # Lengths differ from request to request: compiled once, not for each.
        network.model.compile_repeated_blocks(dynamic=True)
        for length in (2, 3):
            network.forward(video, rows, 833.0, list(range(length)))
    except Exception as error:  # no compiler, no Triton, an operation that it does not know
        return f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"
    return ""


def other_backend(name: str) -> str:
    """An attention backend of torch that is not the reference's."""
    return "flash" if name != "flash" else "efficient"
