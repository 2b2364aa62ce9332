"""Arrays of a simulated launch: storage, indexing, and names for messages."""

from __future__ import annotations

from typing import Any

import numpy as np

from .happens_before import RaceTracker
from .lanes import Chunk, LaneGroup
from .races import Shadow
from .thread_ir import Array


class ArrayStorage:
    """Storage of an array: one per launch (global), per block (shared) or per thread (local)."""

    def __init__(self, array: Array, data: np.ndarray, size: int, name: str = "", first_byte: int = 0) -> None:
        self.array = array
        self.name = name or array.name
        self.data = data
        self.size = size
        """Number of elements that a thread may access."""
        self.shape = array.shape or (size,)
        self.space = {"dynamic": "shared"}.get(array.space, array.space)
        self.itemsize = data.itemsize
        self.first_byte = first_byte
        self.shadow: Shadow | None = None
        self.filled: np.ndarray | None = None
        """Mask of the elements of a local array that were written."""

    def positions(self, lanes: LaneGroup, index: list[Any]) -> Any:
        """Flatten checked indices to positions within an array."""
        linear: Any = index[0]
        for i, extent in zip(index[1:], self.shape[1:], strict=True):
            linear = linear * np.int64(extent) + i
        return linear

    def outside(self, index: list[Any]) -> tuple[int, Any] | None:
        """Return the first axis with an index out of bounds, and a mask of these indices."""
        for axis, (i, extent) in enumerate(zip(index, self.shape, strict=True)):
            if np.min(i) < 0 or np.max(i) >= extent:
                return axis, (i < 0) | (i >= extent)
        return None

    def located(self, lanes: LaneGroup, linear: Any) -> np.ndarray:
        """Offset positions to each thread's copy in `data`."""
        match self.space:
            case "global":
                return lanes.wide(linear)
            case "shared":
                return lanes.of(lanes.chunk.block) * self.size + linear  # type: ignore[no-any-return]
            case _:
                return lanes.numbers() * self.size + linear  # type: ignore[no-any-return]

    def element(self, position: int) -> str:
        """Format an element as its kernel would write it.

        >>> from ..ir.dtype import float32
        >>> ArrayStorage(Array("tile", float32, "shared", (4, 8)), np.zeros(32), 32).element(12)
        'tile[1, 4]'
        """
        index = np.unravel_index(position % self.size, self.shape)
        return f"{self.name}[{', '.join(str(int(i)) for i in index)}]"

    def __str__(self) -> str:
        extents = " x ".join(map(str, self.shape))
        where = {"global": "", "shared": " in shared memory", "local": " of the thread's own"}[self.space]
        return f"{self.name}, which has {extents} element{'s' * (self.size != 1)} of {self.array.dtype.name}{where}"


def shared_layout(arrays: tuple[Array, ...], dynamic_bytes: int) -> tuple[dict[int, tuple[int, int]], int]:
    """Lay out shared memory: elements and first byte of each array, and the static bytes per block."""
    found: dict[int, tuple[int, int]] = {}
    at = 0
    for array in arrays:
        if array.space == "shared":
            at = -(-at // array.dtype.bytes) * array.dtype.bytes
            count = int(np.prod(array.shape, dtype=np.int64))
            found[id(array)] = (count, at)
            at += count * array.dtype.bytes
    start = -(-at // 16) * 16
    for array in arrays:
        if array.space == "dynamic":
            found[id(array)] = (dynamic_bytes // array.dtype.bytes, start)
    return found, at


def resident_storage(arrays: tuple[Array, ...], chunk: Chunk, watch: RaceTracker) -> dict[int, ArrayStorage]:
    """Allocate shared and local memory for the resident blocks."""
    found: dict[int, ArrayStorage] = {}
    layout, _ = shared_layout(arrays, chunk.shape.shared)
    for array in arrays:
        if array.space == "local":
            size = int(np.prod(array.shape, dtype=np.int64))
            made = ArrayStorage(array, np.zeros(size * chunk.count, array.dtype.numpy), size)
            made.filled = np.zeros(size * chunk.count, bool)
        else:
            size, start = layout[id(array)]
            made = ArrayStorage(array, np.zeros(size * len(chunk.blocks), array.dtype.numpy), size, "", start)
            made.shadow = watch.shadow((array,), size * len(chunk.blocks), True)
        found[id(array)] = made
    return found
