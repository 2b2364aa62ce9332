"""Map the user's lines to the kernels that compute them."""

from __future__ import annotations

import inspect
import linecache
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..ir.graph import Graph, Value
from ..schedule.group import Group


class FileLine(NamedTuple):
    """A line of a file."""

    file: str
    line: int

    @property
    def text(self) -> str:
        return linecache.getline(self.file, self.line).strip()

    def __str__(self) -> str:
        return f"{Path(self.file).name}:{self.line}"


class LineKernels(NamedTuple):
    """A line with the numbers of the kernels that compute something for it."""

    place: FileLine
    text: str
    kernels: tuple[int, ...]


def kernels_of(graph: Graph, groups: Sequence[Group]) -> dict[Value, list[int]]:
    """Map each value to the kernels that compute it; a recomputed value has several."""
    found: dict[Value, list[int]] = {}
    stored = {v for g in groups for v in g.stored} | set(graph.inputs)
    for n, group in enumerate(groups):
        stack = list(group.stored)
        seen: set[Value] = set()
        while stack:
            v = stack.pop()
            if v not in seen:
                seen.add(v)
                found.setdefault(v, []).append(n)
                stack.extend(x for x in v.inputs if x not in stored)
    return found


def values_of(graph: Graph, groups: Sequence[Group]) -> list[list[Value]]:
    """List the values that each group computes."""
    values: list[list[Value]] = [[] for _ in groups]
    for value, kernels in kernels_of(graph, groups).items():
        for number in kernels:
            values[number].append(value)
    return values


def places_of(graph: Graph, groups: Sequence[Group]) -> list[list[FileLine]]:
    """List the user's lines of each group, in the order of the lines."""
    places: list[set[FileLine]] = [set() for _ in groups]
    for value, kernels in kernels_of(graph, groups).items():
        at = value.location
        if at is not None and value.inputs:
            for number in kernels:
                places[number].add(FileLine(at.file, at.line))
    return [sorted(found) for found in places]


def user_lines(fn: Callable[..., Any] | None, places: Sequence[Sequence[FileLine]]) -> list[LineKernels]:
    """List the source of a function, then other lines that kernels were made for."""
    kernels: dict[FileLine, list[int]] = {}
    for number, found in enumerate(places):
        for place in found:
            kernels.setdefault(place, []).append(number)
    lines = [LineKernels(p, text, tuple(kernels.pop(p, ()))) for p, text in _source(fn)]
    others = [LineKernels(p, linecache.getline(p.file, p.line).rstrip(), tuple(k)) for p, k in sorted(kernels.items())]
    return lines + others


def _source(fn: Callable[..., Any] | None) -> list[tuple[FileLine, str]]:
    if fn is None:
        return []
    fn = inspect.unwrap(fn)  # what `tilegrad.grad` gives stands where its function does
    try:
        texts, first = inspect.getsourcelines(fn)
        file = inspect.getsourcefile(fn) or ""
    except (OSError, TypeError):
        return []
    return [(FileLine(file, first + n), text.rstrip()) for n, text in enumerate(texts)]


def show_lines(lines: Sequence[LineKernels]) -> str:
    """Print the lines with their numbers and their kernels."""
    width = min(96, max((len(line.text) for line in lines), default=0))
    shown: list[str] = []
    file = ""
    for line in lines:
        if line.place.file != file:
            file = line.place.file
            shown.append(Path(file).name)
        text = f"{line.place.line:5}  {line.text:{width}}"
        shown.append((f"{text}  -> {kernel_numbers(line.kernels)}" if line.kernels else text).rstrip())
    return "\n".join(shown)


def kernel_numbers(kernels: Sequence[int]) -> str:
    """Format the numbers of kernels, with ranges.

    >>> kernel_numbers([0]), kernel_numbers([0, 1, 2, 5])
    ('kernel 0', 'kernels 0-2, 5')
    """
    runs: list[list[int]] = []
    for k in kernels:
        if runs and runs[-1][-1] == k - 1:
            runs[-1].append(k)
        else:
            runs.append([k])
    shown = [str(r[0]) if len(r) == 1 else f"{r[0]}-{r[-1]}" for r in runs]
    return f"kernel{'s' if len(kernels) > 1 else ''} {', '.join(shown)}"
