# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""One block of device memory for all activations of a forward."""

from __future__ import annotations

import torch
from torch import Tensor

ALIGN = 256


class Arena:
    """One block of memory, handed out again from its start by every forward."""

    def __init__(self, nbytes: int, device: torch.device):
        """Allocate once."""
        self.block = torch.empty(nbytes, dtype=torch.uint8, device=device)
        self._used = 0

    def take(self, *shape: int, dtype: torch.dtype) -> Tensor:
        """The next tensor; contents are whatever was there."""
        count = 1
        for n in shape:
            count *= n
        nbytes = count * dtype.itemsize
        start = self._used
        self._used = start + -(-nbytes // ALIGN) * ALIGN
        if self._used > self.block.numel():
            raise AssertionError(f"arena of {self.block.numel()} bytes, {self._used} needed")
        return self.block[start : start + nbytes].view(dtype).view(shape)

    def reset(self, mark: int = 0) -> None:
        """Hand out from ``mark`` again."""
        self._used = mark

    @property
    def mark(self) -> int:
        """Where the next tensor starts."""
        return self._used
