"""Find which steps must wait for which: the order of steps that share memory which one of them writes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .places import Span


def dependences(steps: Sequence[tuple[Sequence[Span], Sequence[Span]]]) -> list[list[int]]:
    """Return for each step, given what it reads and writes, the steps that it must wait for, transitively reduced.

    >>> x, y, z = [Span(0, n, n + 8) for n in (0, 8, 16)]
    >>> dependences([((), (x,)), ((x,), (y,)), ((x,), (z,)), ((y, z), (x,))])
    [[], [0], [0], [2, 1]]
    """
    history: dict[int, list[tuple[Span, int, bool]]] = {}
    reached: list[int] = []
    found: list[list[int]] = []
    for number, (reads, writes) in enumerate(steps):
        before = 0
        for span, is_written in [(s, False) for s in reads] + [(s, True) for s in writes]:
            entries = history.setdefault(span.datum, [])
            for other, at, wrote in entries:
                if at != number and (is_written or wrote) and span.meets(other):
                    before |= 1 << at
            if is_written:
                entries[:] = [e for e in entries if e[0].begin < span.begin or span.end < e[0].end]
            entries.append((span, number, is_written))
        found.append(_transitive_reduction(before, reached))
        reached.append(before | _union(reached[n] for n in found[-1]))
    return found


def _transitive_reduction(before: int, reached: Sequence[int]) -> list[int]:
    """Return the steps of a bit set on which no other of them depends."""
    nearest: list[int] = []
    while before:
        last = before.bit_length() - 1
        nearest.append(last)
        before &= ~(reached[last] | 1 << last)
    return nearest


def _union(sets: Iterable[int]) -> int:
    total = 0
    for bits in sets:
        total |= bits
    return total
