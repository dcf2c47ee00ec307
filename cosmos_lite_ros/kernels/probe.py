# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""At start: which ready-made kernels this machine has, whether they are right, and which to use.

The rule, so that two starts agree although no two measurements do:

- float8 products: ``torch._scaled_mm`` with row-wise scales is preferred on sm_90 and sm_100, the
  Triton kernel elsewhere (sm_89: the former was reported 3 to 4 times slower than a good kernel).
  What is missing or wrong is never used. The preferred one gives way only where the other is more
  than 1.5 times faster, far outside the spread of repeated measurements (a few per cent).
- attention: flash-attn is used where it is installed, right and more than 1.2 times faster than
  torch's attention with the backend that the tower uses.

Close to one of these ratios, fix the choice in the settings.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import functional

from cosmos_lite_ros.kernels.gemm_fp8 import gemm_fp8_twin, linear_fp8
from cosmos_lite_ros.kernels.shapes import RELEASED, TOKEN_ROWS
from cosmos_lite_ros.kernels.tables import KERNELS, architecture_of
from cosmos_lite_ros.kernels.trial import arguments, microseconds

FP8_MARGIN: Final = 1.5
ATTENTION_MARGIN: Final = 1.2
_PREFER_SCALED_MM: Final = ((9, 0), (10, 0))
_CALLS: Final = 10
_REPLAYS: Final = 5
# Of both products' outputs, bfloat16: a rounding and the sums' own errors.
_PRODUCT_LIMIT: Final = 0.02
# bfloat16 attention against float32: its probabilities and its output are rounded.
_ATTENTION_LIMIT: Final = 0.02
# Keys of the text behind those of the generation tokens.
_TEXT: Final = 128


@dataclass(frozen=True)
class Choice:
    """One answer.

    Attributes:
        name: what to use: ``scaled_mm``, ``triton`` or ``refused``; ``flash_attn`` or ``sdpa``.
        reason: one sentence.
        microseconds: of one call each, measured now; what could not be measured is missing.
    """

    name: str
    reason: str
    microseconds: dict[str, float]


@dataclass(frozen=True)
class Probe:
    """Everything that was looked at.

    Attributes:
        fp8: which float8 product.
        attention: which attention.
    """

    fp8: Choice
    attention: Choice

    def describe(self) -> dict[str, Any]:
        """To be reported."""
        return asdict(self)


def probe(device: torch.device) -> Probe:
    """Look at a device; on a CPU nothing is measured."""
    return Probe(probe_fp8(device), probe_attention(device))


def probe_fp8(device: torch.device) -> Choice:
    """Which float8 product to use on a device."""
    if device.type != "cuda":
        return Choice("triton", "a CPU runs the torch twin", {})
    capability = torch.cuda.get_device_capability(device)
    architecture = architecture_of(capability)
    if capability < KERNELS["gemm_fp8"]:
        return Choice("refused", f"{architecture} has no float8 arithmetic", {})
    given = arguments("gemm_fp8", TOKEN_ROWS, *RELEASED["edge"].matrix("up"), device, None)
    found: dict[str, float] = {}
    faults: dict[str, str] = {}
    for backend in ("triton", "scaled_mm"):
        fault = _usable(partial(_product_fault, backend, given))
        if fault:
            faults[backend] = fault
        else:
            found[backend] = _time(partial(_product, backend, given))
    return choose_fp8(capability, found, faults)


def choose_fp8(
    capability: tuple[int, int], took: dict[str, float], faults: dict[str, str]
) -> Choice:
    """The rule for float8 products.

    Args:
        capability: of the GPU.
        took: microseconds of one call of what works.
        faults: why the rest does not.
    """
    preferred = "scaled_mm" if capability in _PREFER_SCALED_MM else "triton"
    other = "triton" if preferred == "scaled_mm" else "scaled_mm"
    architecture = architecture_of(capability)
    if not took:
        return Choice("refused", "; ".join(f"{k}: {v}" for k, v in sorted(faults.items())), {})
    if preferred not in took:
        return Choice(other, f"{preferred}: {faults[preferred]}", took)
    if other not in took:
        return Choice(preferred, f"preferred on {architecture}; {other}: {faults[other]}", took)
    ratio = took[preferred] / took[other]
    if ratio > FP8_MARGIN:
        reason = f"{ratio:.1f} times faster than {preferred}, which {architecture} prefers"
        return Choice(other, reason, took)
    return Choice(preferred, f"preferred on {architecture}", took)


def probe_attention(device: torch.device) -> Choice:
    """Whether to use flash-attn instead of torch's attention on a device."""
    if device.type != "cuda":
        return Choice("sdpa", "flash-attn needs a CUDA GPU", {})
    try:
        function: Callable[..., Tensor] = importlib.import_module("flash_attn").flash_attn_func
    except Exception as error:  # an extension of another torch raises what it likes
        return Choice("sdpa", f"flash-attn cannot be imported: {_line(error)}", {})
    layer = RELEASED["edge"]
    generator = torch.Generator(device).manual_seed(0)

    def heads(tokens: int) -> Tensor:
        shape = (layer.kv_heads, tokens, layer.head_dim)
        return torch.randn(shape, generator=generator, device=device).bfloat16()

    q, k, v = heads(TOKEN_ROWS * layer.group), heads(TOKEN_ROWS + _TEXT), heads(TOKEN_ROWS + _TEXT)

    def flash() -> Tensor:
        # [batch, tokens, heads, channels], as views.
        return function(*(t.transpose(0, 1)[None] for t in (q, k, v)))[0].transpose(0, 1)

    def plain() -> Tensor:
        with _sdpa(device):
            return functional.scaled_dot_product_attention(q[None], k[None], v[None])[0]

    def fault() -> str:
        rows = slice(0, 64)
        wide = (q[:, rows].float() @ k.float().mT / layer.head_dim**0.5).softmax(-1) @ v.float()
        return _too_far(flash()[:, rows].float(), wide, _ATTENTION_LIMIT)

    found = _usable(fault)
    if found:
        return Choice("sdpa", f"flash-attn: {found}", {})
    return choose_attention({"flash_attn": _time(flash), "sdpa": _time(plain)})


def choose_attention(took: dict[str, float]) -> Choice:
    """The rule for attention, from the microseconds of one call of both."""
    ratio = took["sdpa"] / took["flash_attn"]
    name = "flash_attn" if ratio > ATTENTION_MARGIN else "sdpa"
    return Choice(name, f"flash-attn is {ratio:.2f} times as fast as torch's attention", took)


def _sdpa(device: torch.device) -> AbstractContextManager[None]:
    if device.type != "cuda":
        return nullcontext()
    from torch.nn.attention import SDPBackend, sdpa_kernel

    newer = torch.cuda.get_device_capability(device)[0] >= 9
    chosen = SDPBackend.CUDNN_ATTENTION if newer else SDPBackend.FLASH_ATTENTION
    return sdpa_kernel(chosen)


def _product(backend: str, given: tuple[Tensor, ...]) -> None:
    a, a_scale, b, b_scale, out = given
    linear_fp8(a, a_scale, b, b_scale, out, fast=False, backend=backend)  # type: ignore[arg-type]


def _product_fault(backend: str, given: tuple[Tensor, ...]) -> str:
    """What is wrong with a backend's product; empty: nothing."""
    a, a_scale, b, b_scale, out = given
    rows = torch.tensor([0, 1, a.shape[0] // 2, a.shape[0] - 1], device=a.device)
    broken = a_scale.clone()
    broken[-2] = torch.nan
    out.fill_(torch.nan)
    _product(backend, (a, broken, b, b_scale, out))
    exact = torch.empty((len(rows), b.shape[0]), dtype=torch.float32, device=a.device)
    gemm_fp8_twin(_rows_of(a, rows), broken[rows], b, b_scale, exact)
    fault = _too_far(out[rows].float(), exact, _PRODUCT_LIMIT)
    nans = out.isnan().any(1)
    if not fault and (int(nans.sum()) != 1 or not bool(out[-2].isnan().all())):
        fault = "a NaN among the scales does not make exactly its row NaN"
    return fault


def _rows_of(tensor: Tensor, rows: Tensor) -> Tensor:
    """Rows of a float8 tensor, which not every torch can index."""
    return tensor.view(torch.uint8)[rows].view(tensor.dtype)


def _too_far(found: Tensor, exact: Tensor, limit: float) -> str:
    error = float((found - exact).abs().max() / exact.abs().max())
    return "" if error <= limit else f"off by {error:.3g} of the largest value"


def _usable(fault: Callable[[], str]) -> str:
    """The fault, or why the call fails; empty: neither."""
    try:
        return fault()
    except Exception as error:  # whatever a foreign kernel raises is an answer
        return _line(error)


def _time(work: Callable[[], Any]) -> float:
    def calls() -> None:
        for _ in range(_CALLS):
            work()

    return microseconds(calls, _CALLS, _REPLAYS)


def _line(error: Exception) -> str:
    text = str(error).strip()
    return f"{type(error).__name__}: {text.splitlines()[0]}" if text else type(error).__name__
