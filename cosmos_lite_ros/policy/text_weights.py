# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Where the text tower's weights live, and how they reach the device in the order of their use.

A prompt is computed once, so its tower need not occupy the GPU: it can stay in pinned host memory
or in the file, and pass matrix by matrix through memory that is idle while text is computed.
"""

from __future__ import annotations

import json
import mmap
import os
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from cosmos_lite_ros.errors import CheckpointError, EnvironmentLacksError
from cosmos_lite_ros.policy.checkpoint import Progress, TensorFile

Residency = Literal["gpu", "pinned", "mmap", "none"]
RESIDENCIES: tuple[Residency, ...] = get_args(Residency)
# Gives at least so many bytes on the device as one flat uint8 tensor, or None.
Scratch = Callable[[int], Tensor | None]

# Start of every matrix in a slab, bytes: what vector loads and cuBLAS want at most.
_ALIGNMENT = 256
# Matrices read ahead of the one being copied out of a file.
_READ_AHEAD = 3
# cudaHostRegisterPortable: pinned for every context of the process.
_PORTABLE = 1


@dataclass(frozen=True)
class Matrix:
    """One weight by its name in the checkpoint and its shape."""

    name: str
    shape: tuple[int, ...]

    def nbytes(self, dtype: torch.dtype) -> int:
        """Bytes in a dtype."""
        return torch.Size(self.shape).numel() * dtype.itemsize


def read_header(path: Path) -> tuple[bytes, dict[str, Any]]:
    """Header of a safetensors file: its bytes with the length before it, and its tensors' entries.

    Offsets in the entries count from the end of those bytes.

    Raises:
        CheckpointError: damaged.
    """
    try:
        with path.open("rb") as file:
            length = file.read(8)
            header = file.read(int.from_bytes(length, "little"))
        entries = json.loads(header)
    except (OSError, ValueError, MemoryError, OverflowError) as error:
        raise CheckpointError(
            f"{path} is damaged ({error}): copy or download the shard again"
        ) from error
    entries.pop("__metadata__", None)
    return length + header, entries


class Shards:
    """Tensors of a checkpoint where they lie: files held open and mapped, read on demand.

    Holding the files open keeps the weights those of the load, even if another file takes the name.
    """

    def __init__(self, files: tuple[TensorFile, ...], wanted: Sequence[Matrix]):
        """Open the files that hold the wanted tensors.

        Raises:
            CheckpointError: one is missing, mis-shaped or damaged.
        """
        by_name = {name: file for file in files for name in file.shapes}
        self._handles: dict[Path, Any] = {}
        self._descriptors: dict[Path, int] = {}
        # name -> (file, first byte, bytes)
        self.spans: dict[str, tuple[Path, int, int]] = {}
        headers: dict[Path, tuple[bytes, dict[str, Any]]] = {}
        for matrix in wanted:
            file = by_name.get(matrix.name)
            if file is None:
                raise CheckpointError(
                    f"transformer: {matrix.name} is missing: configuration and weights belong to "
                    "different models, or a file is incomplete"
                )
            if file.shapes[matrix.name] != matrix.shape:
                raise CheckpointError(
                    f"transformer: {matrix.name} is {list(file.shapes[matrix.name])}, its "
                    f"configuration says {list(matrix.shape)}: configuration and weights belong to "
                    "different models"
                )
            path = file.path
            if path not in headers:
                headers[path] = read_header(path)
                try:
                    self._handles[path] = safe_open(path, framework="pt")
                    self._descriptors[path] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                except (SafetensorError, OSError) as error:
                    raise CheckpointError(
                        f"{path} is damaged ({error}): copy or download the shard again"
                    ) from error
            raw, entries = headers[path]
            first, last = entries[matrix.name]["data_offsets"]
            self.spans[matrix.name] = (path, len(raw) + first, last - first)
        self._closer = weakref.finalize(self, _close_all, list(self._descriptors.values()))

    def tensor(self, name: str) -> Tensor:
        """The tensor as a view of the mapped file, in the file's dtype."""
        tensor: Tensor = self._handles[self.spans[name][0]].get_tensor(name)
        return tensor

    def in_file_order(self, matrices: Sequence[Matrix]) -> list[int]:
        """Indices of the matrices, in the order in which a disk gives them fastest."""
        return sorted(range(len(matrices)), key=lambda i: self.spans[matrices[i].name][:2])

    def read_ahead(self, name: str) -> None:
        """Ask the kernel to have the tensor in its page cache soon."""
        path, first, size = self.spans[name]
        with suppress(OSError):  # advice only
            os.posix_fadvise(self._descriptors[path], first, size, os.POSIX_FADV_WILLNEED)

    def close(self) -> None:
        """Close the files."""
        self._handles.clear()
        self._closer()


def _close_all(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


class PinnedSlab:
    """Page-locked host memory of exactly the size asked for.

    torch's own pinned allocator rounds every block up to a power of two.
    """

    def __init__(self, nbytes: int):
        """Map and register.

        Raises:
            EnvironmentLacksError: the driver refuses to lock so much memory.
        """
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        self._memory = mmap.mmap(-1, max(1, nbytes), flags=flags)
        self.data = torch.frombuffer(self._memory, dtype=torch.uint8)
        register = _runtime().cudaHostRegister
        code = int(register(self.data.data_ptr(), self.data.nbytes, _PORTABLE))
        if code != 0:
            raise EnvironmentLacksError(
                f"cannot lock {self.data.nbytes / 1e9:.1f} GB of host memory for the text tower "
                f"(CUDA error {code}): free memory, raise ulimit -l, or set text_residency to mmap"
            )
        self._release = weakref.finalize(self, _unregister, self.data.data_ptr())

    def close(self) -> None:
        """Unlock; no copy from here may be under way."""
        self._release()


def _unregister(pointer: int) -> None:
    _runtime().cudaHostUnregister(pointer)


def _runtime() -> Any:
    return torch.cuda.cudart()  # type: ignore[no-untyped-call]


def _events(count: int) -> list[torch.cuda.Event]:
    return [torch.cuda.Event() for _ in range(count)]  # type: ignore[no-untyped-call]


def aligned(nbytes: int) -> int:
    """Rounded up to the alignment of a slab."""
    return -(-nbytes // _ALIGNMENT) * _ALIGNMENT


class ResidentWeights:
    """All matrices in one slab, in the engine's dtype: on the device, or pinned on the host."""

    def __init__(
        self,
        shards: Shards,
        matrices: Sequence[Matrix],
        dtype: torch.dtype,
        device: torch.device,
        *,
        pinned: bool = False,
        progress: Progress | None = None,
    ):
        """Read every matrix; peak memory is the slab (mapped pages apart).

        Raises:
            EnvironmentLacksError: see PinnedSlab.
        """
        starts, total = [], 0
        for matrix in matrices:
            starts.append(total)
            total += aligned(matrix.nbytes(dtype))
        self._pinned = PinnedSlab(total) if pinned else None
        if self._pinned is not None:
            slab = self._pinned.data
        else:
            slab = torch.empty(total, dtype=torch.uint8, device=device)
        self.nbytes = total
        self.tensors = [
            slab[start : start + m.nbytes(dtype)].view(dtype).view(m.shape)
            for start, m in zip(starts, matrices, strict=True)
        ]
        for done, i in enumerate(shards.in_file_order(matrices), 1):
            self.tensors[i].copy_(shards.tensor(matrices[i].name))
            if progress is not None:
                progress(done / len(matrices), "loading the text tower")

    def matrices(self) -> Iterator[Tensor]:
        """Every matrix in the order of use."""
        yield from self.tensors

    def host(self, index: int) -> Tensor:
        """One matrix where it is."""
        return self.tensors[index]

    def close(self) -> None:
        """Give the memory back."""
        self.tensors = []
        if self._pinned is not None:
            self._pinned.close()


class MappedWeights:
    """Matrices read from the files at every use; on CUDA by way of two pinned buffers."""

    def __init__(
        self, shards: Shards, matrices: Sequence[Matrix], dtype: torch.dtype, *, pinned: bool
    ):
        """Nothing is read yet."""
        self._shards = shards
        self._plan = list(matrices)
        self._dtype = dtype
        self._slab: PinnedSlab | None = None
        self._count = 0
        if pinned:
            half = aligned(max(m.nbytes(dtype) for m in matrices))
            self._slab = PinnedSlab(2 * half)
            self._halves = (self._slab.data[:half], self._slab.data[half:])
            self._copied = _events(2)

    @property
    def nbytes(self) -> int:
        """Host memory held, bytes; pages of the files are the kernel's."""
        return 0 if self._slab is None else self._slab.data.nbytes

    def matrices(self) -> Iterator[Tensor]:
        """Every matrix in the order of use and in the engine's dtype, on the host."""
        for i in range(len(self._plan)):
            yield self.host(i).to(self._dtype)

    def host(self, index: int) -> Tensor:
        """One matrix on the host: mapped, or pinned until the second call after this one.

        With pinned buffers the caller enqueues its copy on the current stream before it calls
        again.
        """
        if index == 0:
            for matrix in self._plan[:_READ_AHEAD]:
                self._shards.read_ahead(matrix.name)
        if index + _READ_AHEAD < len(self._plan):
            self._shards.read_ahead(self._plan[index + _READ_AHEAD].name)
        matrix = self._plan[index]
        mapped = self._shards.tensor(matrix.name)
        if self._slab is None:
            return mapped
        here = self._count % 2
        self._copied[1 - here].record()  # the previous call's copy is enqueued by now
        self._copied[here].synchronize()
        self._count += 1
        staged = self._halves[here][: matrix.nbytes(self._dtype)].view(self._dtype)
        staged = staged.view(matrix.shape)
        staged.copy_(mapped)
        return staged

    def close(self) -> None:
        """Give the memory back."""
        if self._slab is not None:
            self._slab.close()


@dataclass(frozen=True)
class Place:
    """Where a matrix goes in the scratch memory, and whose use must be over before."""

    start: int
    after: int


def ring_places(sizes: Sequence[int], capacity: int) -> list[Place]:
    """Places of blocks that are used one after the other and pass through ``capacity`` bytes.

    ``after`` is the index of the last earlier block at the same bytes, -1 if there is none. Every
    size is at most ``capacity``.
    """
    places: list[Place] = []
    head = 0
    for i, size in enumerate(sizes):
        start = 0 if head + size > capacity else head
        head = start + size
        after = next(
            (
                j
                for j in range(i - 1, -1, -1)
                if places[j].start < head and start < places[j].start + sizes[j]
            ),
            -1,
        )
        places.append(Place(start, after))
    return places


class StreamedWeights:
    """Matrices copied from the host through scratch memory, ahead of their use.

    On CUDA the copies run on a stream of their own: it waits until the scratch bytes are used up,
    the computing stream waits until a matrix has arrived, and the host waits for neither.
    """

    def __init__(
        self,
        source: ResidentWeights | MappedWeights,
        matrices: Sequence[Matrix],
        dtype: torch.dtype,
        device: torch.device,
        scratch: Scratch | None,
    ):
        """``scratch`` is asked anew for every prompt; None takes a buffer for its duration."""
        self._source = source
        self._plan = list(matrices)
        self._dtype = dtype
        self._device = device
        self._scratch = scratch
        self._sizes = [aligned(m.nbytes(dtype)) for m in matrices]
        self._places: dict[int, list[Place]] = {}
        self._cuda = device.type == "cuda"
        if self._cuda:
            self._copying = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
            self._arrived = _events(len(self._plan))
            self._used = _events(len(self._plan))

    @property
    def nbytes(self) -> int:
        """Host memory held, bytes."""
        return self._source.nbytes

    def _memory(self) -> Tensor:
        """Scratch memory, cut to start at an aligned address."""
        largest = max(self._sizes)
        wanted = 2 * largest + _ALIGNMENT
        memory = None if self._scratch is None else self._scratch(wanted)
        if memory is None:
            memory = torch.empty(wanted, dtype=torch.uint8, device=self._device)
        memory = memory[-memory.data_ptr() % _ALIGNMENT :]
        if memory.dtype != torch.uint8 or memory.ndim != 1 or memory.numel() < largest:
            raise ValueError(
                f"scratch memory is {memory.dtype} {list(memory.shape)}, expected flat uint8 of at "
                f"least {largest + _ALIGNMENT} bytes"
            )
        return memory

    def matrices(self) -> Iterator[Tensor]:
        """Every matrix in the order of use; valid until the next one is asked for."""
        memory = self._memory()
        capacity = memory.numel()
        if capacity not in self._places:
            self._places = {capacity: ring_places(self._sizes, capacity)}
        places = self._places[capacity]
        if self._cuda:
            computing = torch.cuda.current_stream(self._device)
            self._copying.wait_stream(computing)  # whoever used the scratch memory before
        issued = 0
        try:
            for i, matrix in enumerate(self._plan):
                while issued < len(places) and places[issued].after < i:
                    self._copy(issued, places[issued], memory)
                    issued += 1
                if self._cuda:
                    computing.wait_event(self._arrived[i])
                yield self._view(memory, places[i], matrix)
                if self._cuda:
                    self._used[i].record(computing)
        finally:
            if self._cuda:
                computing.wait_stream(self._copying)

    def _view(self, memory: Tensor, place: Place, matrix: Matrix) -> Tensor:
        size = matrix.nbytes(self._dtype)
        return memory[place.start : place.start + size].view(self._dtype).view(matrix.shape)

    def _copy(self, index: int, place: Place, memory: Tensor) -> None:
        target = self._view(memory, place, self._plan[index])
        if not self._cuda:
            target.copy_(self._source.host(index))
            return
        with torch.cuda.stream(self._copying):
            if place.after >= 0:
                self._copying.wait_event(self._used[place.after])
            target.copy_(self._source.host(index), non_blocking=True)
            self._arrived[index].record(self._copying)

    def close(self) -> None:
        """Give the host memory back."""
        if self._cuda:
            self._copying.synchronize()
        self._source.close()
