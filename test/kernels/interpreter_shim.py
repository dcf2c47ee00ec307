# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Triton's CPU interpreter with the arithmetic of a GPU, borrowed from torch.

As shipped it rounds float32 to float8 wrongly, cuts float32 to bfloat16, stores the raw bits of
integers as bfloat16 and multiplies the raw bits of bfloat16. ``install`` replaces conversions,
arithmetic on narrow floats and matrix products, after which kernels whose operations are defined to
the bit agree with torch to the bit. Only for a process with TRITON_INTERPRET=1.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import triton.language as tl
from torch import Tensor
from triton.runtime import interpreter

# Floats that NumPy has no type for; the interpreter keeps their bits in unsigned integers.
NARROW = {
    tl.bfloat16: torch.bfloat16,
    tl.float8e4nv: torch.float8_e4m3fn,
    tl.float8e5: torch.float8_e5m2,
}
# The GPU's conversion to float8 saturates.
FP8_LIMIT = {tl.float8e4nv: 448.0, tl.float8e5: 57344.0}
# Of K, between two roundings of a float16 accumulator: one 8-bit matrix instruction.
FLOAT16_STEP = 32


def widen(data: Any, dtype: Any) -> Any:
    """NumPy values of an array of the interpreter, float32 for narrow floats."""
    if dtype not in NARROW:
        return data
    carrier = np.int16 if dtype == tl.bfloat16 else np.uint8
    bits = np.array(data, copy=True, order="C").view(carrier)
    return torch.from_numpy(bits).view(NARROW[dtype]).float().numpy()


def convert(data: Any, source: Any, target: Any) -> Any:
    """Values of ``source`` as the interpreter keeps ``target``, rounded to nearest even."""
    found = interpreter._get_np_dtype(target)
    if target not in NARROW:
        return widen(data, source).astype(found)
    values = torch.from_numpy(np.array(widen(data, source), copy=True, order="C"))
    if target in FP8_LIMIT:
        values = values.float().clamp(-FP8_LIMIT[target], FP8_LIMIT[target])
    bits: Tensor = values.to(NARROW[target])
    carrier = torch.int16 if target == tl.bfloat16 else torch.uint8
    return bits.view(carrier).numpy().view(found)


def product(a: Any, b: Any, start: Any) -> Any:
    """``a @ b + start`` in ``start``'s type: integers exactly, float32 rounded once."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    if start.dtype != np.float16:
        return (np.matmul(a, b) + start).astype(start.dtype)
    total = start
    for k in range(0, a.shape[-1], FLOAT16_STEP):
        part = np.matmul(a[..., k : k + FLOAT16_STEP], b[..., k : k + FLOAT16_STEP, :])
        total = (part + total).astype(np.float16)
    return total


def install() -> None:
    """Replace the interpreter's functions, for the rest of the process."""
    builder = interpreter.InterpreterBuilder
    handle = interpreter.TensorHandle
    binary, unary = builder.binary_op, builder.unary_op

    def cast(self: Any, x: Any, target: Any) -> Any:
        data = convert(x.data, x.dtype.scalar, target.scalar)
        return handle(data, target.scalar)

    def fp_to_fp(self: Any, x: Any, target: Any, rounding: Any) -> Any:
        if rounding not in (None, interpreter._ir.ROUNDING_MODE.RTNE):
            raise NotImplementedError(f"found rounding {rounding}, expected to nearest even")
        return cast(self, x, target)

    def binary_op(self: Any, a: Any, b: Any, op: Any) -> Any:
        kind = a.dtype.scalar
        if kind not in NARROW:
            return binary(self, a, b, op)
        found = op(widen(a.data, kind), widen(b.data, b.dtype.scalar))
        return handle(found if found.dtype == bool else convert(found, tl.float32, kind), kind)

    def unary_op(self: Any, a: Any, op: Any) -> Any:
        kind = a.dtype.scalar
        if kind not in NARROW:
            return unary(self, a, op)
        return handle(convert(op(widen(a.data, kind)), tl.float32, kind), kind)

    def dot(self: Any, a: Any, b: Any, start: Any, *_: Any) -> Any:
        left, right = widen(a.data, a.dtype.scalar), widen(b.data, b.dtype.scalar)
        return handle(product(left, right, start.data), start.dtype.scalar)

    patch_tensor = interpreter._patch_lang_tensor

    def patch(tensor: Any, scope: Any) -> None:
        patch_tensor(tensor, scope)
        # Triton 3.6 asks NumPy for the integer of an array of one, which NumPy 2.4 refuses.
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    interpreter._patch_lang_tensor = patch
    builder.cast_impl = cast
    builder.create_fp_to_fp = fp_to_fp
    builder.binary_op = binary_op
    builder.unary_op = unary_op
    builder.create_dot = dot
