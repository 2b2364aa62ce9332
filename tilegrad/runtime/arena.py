"""Plan the memory of temporaries: buffers whose lifetimes do not overlap share memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ..ir.size import Dim, Size

ALIGNMENT = 64
"""Bytes: a line of a cache, and the widest vector."""


class Lifetime(NamedTuple):
    """The steps from the one that writes a buffer to the last that reads it, both included."""

    name: str
    bytes: Dim
    first: int
    last: int


def plan_arena(lifetimes: Sequence[Lifetime]) -> tuple[Mapping[str, Dim], Dim]:
    """Return the offsets of buffers in one arena, and the size of the arena.

    >>> offsets, arena = plan_arena([Lifetime("a", 64, 0, 1), Lifetime("b", 128, 1, 2), Lifetime("c", 64, 2, 3)])
    >>> dict(offsets), arena
    ({'b': 0, 'a': 128, 'c': 128}, 192)
    """
    if any(isinstance(life.bytes, Size) for life in lifetimes):
        return _plan_slots(lifetimes)
    return _plan_best_fit(lifetimes)


def _plan_best_fit(lifetimes: Sequence[Lifetime]) -> tuple[dict[str, Dim], int]:
    """Place the largest buffers first, each into the tightest gap between those of overlapping lifetimes."""
    placed: list[tuple[int, int, Lifetime]] = []
    offsets: dict[str, Dim] = {}
    arena = 0
    for life in sorted(lifetimes, key=lambda life: (-_rounded(life.bytes), life.first)):
        need = _rounded(life.bytes)
        overlapping = sorted((a, b) for a, b, other in placed if other.first <= life.last and life.first <= other.last)
        best, best_gap, end = None, None, 0
        for a, b in overlapping:
            gap = a - end
            if gap >= need and (best_gap is None or gap < best_gap):
                best, best_gap = end, gap
            end = max(end, b)
        offset = end if best is None else best
        placed.append((offset, offset + need, life))
        offsets[life.name] = offset
        arena = max(arena, offset + need)
    return offsets, arena


def _rounded(bytes: Dim) -> int:
    assert type(bytes) is int
    return -(-bytes // ALIGNMENT) * ALIGNMENT


def _plan_slots(lifetimes: Sequence[Lifetime]) -> tuple[dict[str, Dim], Dim]:
    """Share slots between buffers of equal size, where sizes are dynamic."""
    slots: list[tuple[Dim, int, Dim]] = []  # its bytes, the last step of who is in it, its offset
    offsets: dict[str, Dim] = {}
    arena: Dim = 0
    for life in sorted(lifetimes, key=lambda life: life.first):
        need = _padded(life.bytes)
        for n, (bytes, last, offset) in enumerate(slots):
            if bytes == need and last < life.first:
                slots[n] = (bytes, life.last, offset)
                offsets[life.name] = offset
                break
        else:
            slots.append((need, life.last, arena))
            offsets[life.name] = arena
            arena = arena + need
    return offsets, arena


def _padded(bytes: Dim) -> Dim:
    """Round a size up to a multiple of the alignment, for every value of dynamic sizes."""
    if not isinstance(bytes, Size):
        return _rounded(bytes)
    return Size({names: -(-c // ALIGNMENT) * ALIGNMENT for names, c in bytes.terms.items()})
