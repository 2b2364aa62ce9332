"""Run instances of a kernel in turns, where they wait for each other: for a lock, a flag or a ticket."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any

import numpy as np

from ...ir.tile import Atomic, For, If, Kernel, Name, Statement, While
from ...ir.tile_access import roots, statements, walk
from .memory import Fault, Pointer

if TYPE_CHECKING:
    from .tile import Interpreter


def used_atomics(kernel: Kernel) -> frozenset[str]:
    """Return the names of old elements that the kernel reads: by them instances can know of each other."""
    every = list(statements(kernel.body))
    used = {x.name for s in every for x in walk(*roots(s)) if isinstance(x, Name)}
    return frozenset(s.name for s in every if isinstance(s, Atomic) and s.name in used)


def waits(kernel: Kernel) -> bool:
    """Whether instances may wait for each other."""
    loops = [s.body for s in statements(kernel.body) if isinstance(s, While)]
    return any(isinstance(s, Atomic) for body in loops for s in statements(body))


def interleave(first: Interpreter, programs: Sequence[tuple[int, tuple[int, ...]]], names: Mapping[str, Any]) -> None:
    """Run instances that may wait for each other: one goes on until its loop has turned in vain, then the next."""
    ready: deque[tuple[Interpreter, Iterator[Statement]]] = deque()
    for number, program in programs:
        one = copy(first)
        one.begin(number, program, names)
        ready.append((one, steps(one, first.kernel.body)))
    idle, seen = 0, -1
    while ready:
        one, rest = ready.popleft()
        waiting = next(rest, None)
        changes = sum(m.changes for m in first.memories.values())
        idle, seen = 0 if changes != seen or waiting is None else idle + 1, changes
        if waiting is None:
            continue
        ready.append((one, rest))
        if idle > len(ready):
            reason = f"deadlock: this loop waits for a change that no instance makes; {len(ready)} wait in such loops"
            with one.at(waiting):
                raise Fault((), reason)


def steps(run: Interpreter, body: tuple[Statement, ...]) -> Iterator[Statement]:
    """Run statements, and stop at each turn of a `while` that has changed nothing."""
    for statement in body:
        with run.at(statement):
            match statement:
                case While(condition, inner):
                    while run.fresh(condition):
                        before = dict(run.names), sum(m.changes for m in run.memories.values())
                        yield from steps(run, inner)
                        if before[1] == sum(m.changes for m in run.memories.values()) and _alike(before[0], run.names):
                            yield statement
                case For():
                    for index in run.indices(statement):
                        run.names[statement.index] = index
                        yield from steps(run, statement.body)
                case If(condition, then, otherwise):
                    yield from steps(run, then if run.fresh(condition) else otherwise)
                case _:
                    run.statement(statement)


def _alike(x: Mapping[str, Any], y: Mapping[str, Any]) -> bool:
    """Whether names have the same values."""
    return x.keys() == y.keys() and all(a is y[n] or _same_value(a, y[n]) for n, a in x.items())


def _same_value(x: Any, y: Any) -> bool:
    if isinstance(x, Pointer):
        return isinstance(y, Pointer) and x.parameter == y.parameter and np.array_equal(x.offsets, y.offsets)
    return np.asarray(x).tobytes() == np.asarray(y).tobytes()
