"""Cut the recorded values of a loop into equal segments, so that one iteration is planned for all of them.

A loop in Python records the same values at every iteration. Here its period is found, and each segment between two cuts
is described as a structure of its own, which reads what comes before it: equal descriptions have equal plans. Where the
cuts are decides how much is planned, not what is computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, pairwise
from typing import Any, NamedTuple

import numpy as np

from ..ir.graph import TensorType, Value
from .node_groups import Key, edges_of, is_given, traits_of

MIN_VALUES = 1024
"""Values of a structure from which on a period is looked for: it takes as long as planning a tenth of them."""
MIN_SEGMENT_VALUES, MAX_SEGMENT_VALUES = 256, 2048
"""Values of a segment. What crosses a cut is stored: the more values between two cuts, the less of it. Iterations of
more values are planned apart.
"""
MATCHED_VALUES = 12
"""Values in a row whose ops are compared to find the next iteration."""
MIN_SHARED = 4
"""Segments for each different one from which on planning them pays."""


class StructureSegment(NamedTuple):
    """A segment as a structure of its own."""

    key: Key
    numbers: tuple[int, ...]
    """The number of each of its values in the whole structure; those that it reads are among them."""
    views: tuple[int, ...]
    """Those of its values that are views in earlier segments: they cost less to make again than to store."""


def repeated_segments(key: Key, order: Sequence[Value]) -> list[StructureSegment]:
    """Cut a structure into segments most of which are equal; none if its values do not repeat."""
    if len(order) < MIN_VALUES or any(op.external or op.user_defined for op in {type(v) for v in order}):
        return []  # the outputs of one call stay together
    structure = _Edges(key)
    cuts = structure.cuts()
    if len(cuts) <= MIN_SHARED:
        return []
    known: dict[Key, Key] = {}
    segments = []
    for begin, end in pairwise(cuts):
        found = structure.segment(begin, end, order)
        segments.append(found._replace(key=known.setdefault(found.key, found.key)))
    return segments if len(known) * MIN_SHARED <= len(segments) else []


class _Edges:
    """The computed values of a structure, by their places among one another, and their edges."""

    def __init__(self, key: Key) -> None:
        self.key = key
        entries = key[:-1]
        given = [is_given(x) for x in entries]
        self.inputs: list[tuple[int, ...]] = [() if g else edges_of(x) for g, x in zip(given, entries, strict=True)]
        self.computed = np.flatnonzero(~np.array(given))
        """Numbers of the values that are neither in memory nor numbers of the call."""
        self.types: dict[TensorType, TensorType] = {}
        """One of all equal types: they compare faster."""
        numbered: dict[type, int] = {}
        self.ops = np.array([numbered.setdefault(entries[n][0], len(numbered)) for n in self.computed], np.uint64)
        counts = np.array([len(x) for x in self.inputs])
        read = np.fromiter(chain.from_iterable(self.inputs), np.int64, int(counts.sum()))
        last = np.zeros(len(entries), np.int64)
        last[read] = np.repeat(np.arange(len(entries)), counts)  # of several, the last one stays
        self.is_view = [bool(x) and traits_of(entry[0]).is_view for x, entry in zip(self.inputs, entries, strict=True)]
        for view in np.flatnonzero(self.is_view)[::-1].tolist():
            (whole,) = self.inputs[view]
            last[whole], last[view] = max(last[whole], last[view]), 0
        last[list(key[-1])] = len(entries)
        self.last = np.maximum(np.searchsorted(self.computed, last[self.computed]), np.arange(len(self.computed)))
        """The place of the last reader of each, also through views; their number for a wanted value."""

    def cuts(self) -> list[int]:
        """Return the places at which segments begin, and the end of the last one."""
        count = len(self.computed)
        next = self._next_equal()
        beginnings = np.flatnonzero(next)
        width = self._width()
        cuts = [0]
        while cuts[-1] < len(next):
            place = cuts[-1]
            if next[place]:
                cuts.append(int(next[place]))
                continue
            found = np.searchsorted(beginnings, place, "right")
            if found == len(beginnings):
                break
            first = beginnings[found]
            cuts.append(int(first + np.argmin(width[first : next[first]])))
        return [*dict.fromkeys((*cuts, count))]

    def _next_equal(self) -> Any:
        """Return for each place the next one, a segment away, that is followed by equal ops; 0 if there is none."""
        count = max(0, len(self.ops) - MATCHED_VALUES + 1)
        hashes = np.zeros(count, np.uint64)
        for n in range(MATCHED_VALUES):
            hashes = hashes * np.uint64(1_000_003) + self.ops[n : n + count]
        _, same = np.unique(hashes, return_inverse=True)
        by_window = np.sort(same * np.int64(count) + np.arange(count))
        wanted = same * np.int64(count) + np.minimum(np.arange(count) + MIN_SEGMENT_VALUES, count - 1)
        places = np.minimum(np.searchsorted(by_window, wanted), count - 1)
        found = by_window[places]
        away = found % count - np.arange(count)
        is_near = (found // count == same) & (away >= MIN_SEGMENT_VALUES) & (away <= MAX_SEGMENT_VALUES)
        return np.where(is_near, found % count, 0)

    def _width(self) -> Any:
        """Return for each place how many values are stored for the near future if a segment begins there."""
        count = len(self.computed)
        soon = self.last - np.arange(count) <= MAX_SEGMENT_VALUES
        change = np.zeros(count + 2, np.int64)
        np.add.at(change, np.flatnonzero(soon) + 1, 1)
        np.add.at(change, self.last[soon] + 1, -1)
        return np.cumsum(change)

    def segment(self, begin: int, end: int, order: Sequence[Value]) -> StructureSegment:
        """Describe the computed values from one place to another as a structure."""
        key, inputs = self.key, self.inputs
        own: dict[int, int] = {}
        made: list[Any] = []
        again: list[int] = []

        def add(number: int) -> None:
            entry = key[number]
            edges = [own[x] for x in inputs[number]]
            own[number] = len(made)
            made.append((entry[0], entry[1], *edges))

        for number in self.computed[begin:end].tolist():
            for x in inputs[number]:
                if x not in own:
                    views = []
                    while self.is_view[x] and x not in own:
                        views.append(x)
                        (x,) = inputs[x]
                    if x not in own:
                        own[x] = len(made)
                        type = order[x].type
                        made.append(self.types.setdefault(type, type))
                    for view in reversed(views):
                        again.append(len(made))
                        add(view)
            add(number)
        kept = self.computed[begin:end][self.last[begin:end] >= end].tolist()
        return StructureSegment((*made, tuple([own[n] for n in kept])), tuple(own), tuple(again))
