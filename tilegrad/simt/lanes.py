"""Resident threads of the simulator, and groups of them at the same instruction."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .builtin import WARP

WARP_BARRIER_BITS = 10
"""Low bits of a thread's time: `syncwarp` calls since the last `syncthreads`, which the bits above count."""

Triple = tuple[int, int, int]


class LaunchShape(NamedTuple):
    """A launch configuration: blocks, threads per block, bytes of dynamic shared memory."""

    grid: Triple
    block: Triple
    shared: int

    @property
    def blocks(self) -> int:
        return self.grid[0] * self.grid[1] * self.grid[2]

    @property
    def threads(self) -> int:
        """Threads per block."""
        return self.block[0] * self.block[1] * self.block[2]


def coordinates(linear: int, extents: Triple) -> Triple:
    """Convert a linear number to three coordinates, x fastest.

    >>> coordinates(7, (3, 2, 2))
    (1, 0, 1)
    """
    x, y, _ = extents
    return linear % x, linear // x % y, linear // (x * y)


class Chunk:
    """Blocks resident together; thread `t` is thread `t % threads` of block `blocks[t // threads]`."""

    def __init__(self, shape: LaunchShape, blocks: np.ndarray) -> None:
        self.shape = shape
        self.blocks = blocks
        self.threads = shape.threads
        self.count = len(blocks) * self.threads
        number = np.arange(self.count, dtype=np.int64)
        self.block = number // self.threads
        """Index in `blocks` of each thread's block."""
        self.within = number - self.block * self.threads
        self.warps = -(-self.threads // WARP)
        """Warps per block."""
        self.lane = self.within % WARP
        self.warp = self.block * self.warps + self.within // WARP
        self.unique = (blocks[self.block] * self.threads + self.within).astype(np.int32)
        """Number of each thread, unique in the launch."""
        self.time = np.zeros(self.count, np.int32)
        """Barriers that each thread has passed."""
        self.values: dict[str, Any] = {}
        """Values of variables: an array over all threads, or one number if uniform."""
        self.specials: dict[str, Any] = {}

    def special(self, name: str) -> Any:
        """Return `threadIdx.x` and the like of every thread, or `gridDim.x`, which is uniform."""
        found = self.specials.get(name)
        if found is None:
            vector, _, axis = name.partition(".")
            n = "xyz".index(axis)
            grid, block = self.shape.grid, self.shape.block
            match vector:
                case "gridDim":
                    found = np.int32(grid[n])
                case "blockDim":
                    found = np.int32(block[n])
                case "threadIdx":
                    found = along(self.within, block, n)
                case _:
                    found = along(self.blocks[self.block], grid, n)
            self.specials[name] = found
        return found

    def expected(self, mask: int = 0xFFFF_FFFF) -> np.ndarray:
        """Return the number of existing lanes of each warp that a mask names."""
        named = (mask >> self.lane) & 1
        return np.bincount(self.warp[named.astype(bool)], minlength=len(self.blocks) * self.warps)


def along(linear: np.ndarray, extents: Triple, axis: int) -> Any:
    if extents[axis] == 1:
        return np.int32(0)
    before = int(np.prod(extents[:axis], dtype=np.int64))
    return (linear // before % extents[axis]).astype(np.int32)


class LaneGroup:
    """Threads at one instruction; `index` numbers them in the chunk, None for all."""

    __slots__ = ("_warps", "chunk", "count", "index", "pc")

    def __init__(self, chunk: Chunk, index: np.ndarray | None, pc: int) -> None:
        self.chunk, self.index, self.pc = chunk, index, pc
        self.count = chunk.count if index is None else len(index)
        self._warps: int | None = None

    def of(self, array: Any) -> Any:
        """Select these threads' entries from an array over the chunk."""
        return array if self.index is None or np.ndim(array) == 0 else array[self.index]

    def variable(self, name: str) -> Any:
        value = self.chunk.values[name]
        return value if self.index is None or not isinstance(value, np.ndarray) else value[self.index]

    def assign(self, name: str, value: Any, dtype: np.dtype) -> None:
        values = self.chunk.values
        if self.index is None:
            values[name] = value
            return
        old = values.get(name)
        if not isinstance(old, np.ndarray):
            old = values[name] = np.full(self.chunk.count, 0 if old is None else old, dtype)
        old[self.index] = value

    def wide(self, value: Any) -> np.ndarray:
        """Return one value per thread, broadcasting a uniform value."""
        return value if isinstance(value, np.ndarray) and value.ndim else np.broadcast_to(value, self.count)

    def warps(self) -> int:
        """Count the warps with a thread in the group. Threads are sorted."""
        chunk = self.chunk
        if self.index is None:
            return len(chunk.blocks) * chunk.warps
        if self._warps is None:
            warp = chunk.warp[self.index]
            self._warps = int(np.count_nonzero(warp[1:] != warp[:-1])) + (len(warp) > 0)
        return self._warps

    def part(self, mask: np.ndarray, pc: int | None = None) -> LaneGroup:
        index = np.flatnonzero(mask) if self.index is None else self.index[mask]
        return LaneGroup(self.chunk, index, self.pc if pc is None else pc)

    def numbers(self) -> np.ndarray:
        return np.arange(self.chunk.count) if self.index is None else self.index

    def rows(self, values: np.ndarray) -> np.ndarray:
        """Arrange values by warp, 32 per row, -1 for inactive lanes. Threads are sorted."""
        chunk = self.chunk
        if self.index is None and chunk.threads % WARP == 0:
            return values.reshape(-1, WARP)
        warp = self.of(chunk.warp)
        new = np.ones(len(warp), bool)
        new[1:] = warp[1:] != warp[:-1]
        row = np.cumsum(new) - 1
        made = np.full((int(row[-1]) + 1 if len(row) else 0, WARP), -1, np.int64)
        made[row, self.of(chunk.lane)] = values
        return made
