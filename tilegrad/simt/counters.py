"""Performance counters of a simulated launch, counted in lockstep as a GPU profiler counts."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from ..tiles.read.source import KernelLocation
from .builtin import WARP

SECTOR_BYTES = 32
"""Size of a sector of global memory, the unit of transfer, in bytes."""
BANKS, BANK_BYTES = 32, 4
"""Number of banks of shared memory, and width of a bank in bytes: a warp reads one word per bank and cycle."""


class LineCounters:
    """The accesses of one source line to one array."""

    def __init__(self, place: KernelLocation, array: str, space: str, how: str) -> None:
        self.place, self.array, self.space, self.how = place, array, space, how
        self.threads = 0
        """Number of accesses by threads."""
        self.requests = 0
        """Number of accesses by warps."""
        self.bytes = 0
        self.transactions = 0
        """Sectors of global memory transferred, or cycles of the shared memory banks."""
        self.least = 0
        """Minimal number of transactions for this many bytes."""

    @property
    def per_request(self) -> float:
        return self.transactions / self.requests if self.requests else 0.0


class Counters:
    """Counters of one launch, including the kernels that it launched."""

    def __init__(self) -> None:
        self.blocks = self.threads = self.warps = self.launches = 0
        self.instructions = 0
        """Statements and accesses executed by warps."""
        self.barriers = 0
        """Block-wide barriers."""
        self.branches = self.divergent = 0
        """Branches executed by warps, and how many of them diverged."""
        self.lines: dict[tuple[str, int, int, str, str], LineCounters] = {}

    # --- what is asked ---------------------------------------------------------------------------

    def _sum(self, space: str, how: str, what: str = "threads") -> int:
        return sum(getattr(line, what) for line in self.lines.values() if line.space == space and line.how == how)

    @property
    def global_loads(self) -> int:
        return self._sum("global", "load")

    @property
    def global_stores(self) -> int:
        return self._sum("global", "store")

    @property
    def global_atomics(self) -> int:
        return self._sum("global", "atomic")

    @property
    def shared_loads(self) -> int:
        return self._sum("shared", "load")

    @property
    def shared_stores(self) -> int:
        return self._sum("shared", "store")

    @property
    def shared_atomics(self) -> int:
        return self._sum("shared", "atomic")

    @property
    def global_bytes(self) -> int:
        return sum(line.bytes for line in self.lines.values() if line.space == "global")

    @property
    def shared_bytes(self) -> int:
        return sum(line.bytes for line in self.lines.values() if line.space == "shared")

    @property
    def transactions(self) -> int:
        """Total sectors of 32 bytes moved between GPU and memory, ignoring caches."""
        return sum(line.transactions for line in self.lines.values() if line.space == "global")

    @property
    def efficiency(self) -> float:
        """Fraction of the transferred bytes that was requested."""
        moved = self.transactions * SECTOR_BYTES
        used = sum(
            min(line.bytes, line.transactions * SECTOR_BYTES) for line in self.lines.values() if line.space == "global"
        )
        return used / moved if moved else 1.0

    @property
    def bank_conflicts(self) -> int:
        """Extra bank cycles caused by conflicts."""
        return sum(line.transactions - line.least for line in self.lines.values() if line.space == "shared")

    @property
    def loads(self) -> dict[str, int]:
        """Thread loads by array."""
        return self._by_array("load")

    @property
    def stores(self) -> dict[str, int]:
        return self._by_array("store")

    def _by_array(self, how: str) -> dict[str, int]:
        found: dict[str, int] = defaultdict(int)
        for line in self.lines.values():
            if line.how == how:
                found[line.array] += line.threads
        return dict(found)

    # --- counting --------------------------------------------------------------------------------

    def add(self, other: Counters) -> None:
        """Add the counters of a kernel that this one launched."""
        for name in ("blocks", "threads", "warps", "instructions", "barriers", "branches", "divergent"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.launches += 1 + other.launches
        for key, line in other.lines.items():
            own = self.lines.setdefault(key, LineCounters(line.place, line.array, line.space, line.how))
            for name in ("threads", "requests", "bytes", "transactions", "least"):
                setattr(own, name, getattr(own, name) + getattr(line, name))

    def line(self, place: KernelLocation, array: str, space: str, how: str) -> LineCounters:
        node = place.node
        key = (place.source.file, place.line, getattr(node, "col_offset", 0), array, how)
        found = self.lines.get(key)
        if found is None:
            found = self.lines[key] = LineCounters(place, array, space, how)
        return found

    def global_access(self, line: LineCounters, rows: np.ndarray, count: int, itemsize: int) -> None:
        """Count an access to global memory; `rows` has the byte address of each lane of each warp, -1 for inactive
        lanes.
        """
        line.threads += count
        line.bytes += count * itemsize
        line.requests += len(rows)
        line.transactions += int(count_distinct(np.where(rows < 0, -1, rows // SECTOR_BYTES)).sum())
        line.least += math.ceil(count * itemsize / SECTOR_BYTES)

    def shared_access(self, line: LineCounters, rows: np.ndarray, count: int, itemsize: int) -> None:
        line.threads += count
        line.bytes += count * itemsize
        line.requests += len(rows)
        if itemsize == 8:  # half a warp at a time
            rows = rows.reshape(-1, WARP // 2)
            rows = rows[(rows >= 0).any(1)]
        line.transactions += int(
            bank_cycles(np.where(rows < 0, -1, rows // max(BANK_BYTES, itemsize)), max(BANK_BYTES, itemsize)).sum()
        )
        line.least += len(rows)

    # --- in print --------------------------------------------------------------------------------

    def table(self) -> Iterator[tuple[str, str]]:
        yield "blocks, threads, warps", f"{self.blocks:,}, {self.threads:,}, {self.warps:,}"
        if self.launches:
            yield "launches by threads", f"{self.launches:,}"
        yield "global loads, stores, atomics", f"{self.global_loads:,}, {self.global_stores:,}, {self.global_atomics:,}"
        yield "global bytes", f"{self.global_bytes:,}"
        yield "global transactions (32 bytes)", f"{self.transactions:,}, {self.efficiency:.0%} of them used"
        yield "shared loads, stores, atomics", f"{self.shared_loads:,}, {self.shared_stores:,}, {self.shared_atomics:,}"
        yield "bank conflicts", f"{self.bank_conflicts:,}"
        yield "branches, divergent", f"{self.branches:,}, {self.divergent:,}"
        yield "barriers", f"{self.barriers:,}"

    def __str__(self) -> str:
        rows = list(self.table())
        width = max(len(name) for name, _ in rows)
        return "\n".join(f"{name:{width}}  {value}" for name, value in rows)

    __repr__ = __str__


def count_distinct(rows: np.ndarray) -> np.ndarray:
    """Count the distinct non-negative numbers in each row.

    >>> count_distinct(np.array([[0, 0, 1, 5], [-1, 3, 3, -1]]))
    array([3, 1])
    """
    if not rows.size:
        return np.zeros(len(rows), np.int64)
    if (rows[:, 1:] < rows[:, :-1]).any():
        rows = np.sort(rows, axis=1)
    new = (rows[:, 1:] != rows[:, :-1]) & (rows[:, 1:] >= 0)
    result: np.ndarray = new.sum(1) + (rows[:, 0] >= 0)
    return result


def bank_cycles(words: np.ndarray, size: int) -> np.ndarray:
    """Return the bank cycles of each row: the largest number of distinct words in one bank.

    >>> bank_cycles(np.array([[0, 1, 2, 3], [0, 32, 64, 0], [7, 7, 7, 7]]), 4)
    array([1, 3, 1])
    """
    if not words.size:
        return np.zeros(len(words), np.int64)
    banks = BANKS * BANK_BYTES // size
    ordered = np.sort(words, axis=1)
    new = ordered >= 0
    new[:, 1:] &= ordered[:, 1:] != ordered[:, :-1]
    row = np.broadcast_to(np.arange(len(words))[:, None], words.shape)
    counts = np.bincount((row * banks + ordered % banks)[new], minlength=len(words) * banks)
    result: np.ndarray = counts.reshape(-1, banks).max(1)
    return result
