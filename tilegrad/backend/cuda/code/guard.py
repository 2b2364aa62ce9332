"""Barriers for memory that a kernel reads or writes more than once.

In the tile language a statement is done before the next one begins; threads of a block run ahead of each other. What
one thread has stored another one may load or store only after a barrier, and the other way round, unless every thread
stores exactly what it alone has loaded or stored before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ....ir import tile as ir
from ....ir.tile_access import accesses, roots, statements, walk
from ....ir.tile_types import Types
from .layout import NUMBER, Layout

Place = tuple[ir.Tile, Layout] | None
"""Where something is accessed, and by whom; None: somewhere."""
State = dict[str, list[Place]]
Seen = dict[tuple[str, ir.Tile], list[tuple[Layout, frozenset[str]]]]


class Guard:
    """What has been loaded and stored since the last barrier, by parameter."""

    def __init__(
        self, kernel: ir.Kernel, types: Types, body: Sequence[ir.Statement], expanded: Callable[[ir.Tile], ir.Tile]
    ) -> None:
        self.types, self.expanded = types, expanded
        found = accesses(kernel.replaced(body=tuple(body)), types)
        self.loaded, self.stored = found.loaded, found.stored
        every = list(statements(tuple(body)))
        self.alone = not any(isinstance(x, ir.ProgramId) for s in statements(kernel.body) for x in _expressions(s))
        """A kernel of one instance may overwrite what it has read, under another parameter's name."""
        self.bases: dict[str, set[str]] = {p.name: {p.name} for p in kernel.parameters if p.pointer}
        moved = [s for s in every if isinstance(s, ir.Assign) and types.variables[s.name].pointer]
        for _ in moved:
            for assign in moved:
                self.bases.setdefault(assign.name, set()).update(self._bases(assign.value))
        self.varying = _varying(every)
        self.steps = {s.index: s.step for s in every if isinstance(s, ir.For)}
        self.reading: State = {}
        self.writing: State = {}
        self.seen: Seen = {}
        """By dtype and place: who has loaded there, through whatever parameter. An update in place has two."""
        self.updated: set[str] = set()
        """Parameters that may be one memory, which other threads store in than those that load."""
        self.threads = 0

    def _bases(self, pointer: ir.Tile) -> set[str]:
        names = [x.name for x in walk(pointer) if isinstance(x, ir.Name) and self.types.variables[x.name].pointer]
        return set().union(*(self.bases.get(name, set()) for name in names))

    def is_shared(self, parameter: str) -> bool:
        """Whether what is stored may be what is loaded."""
        return self.alone or parameter in self.updated or (parameter in self.loaded and parameter in self.stored)

    def keys(self, pointer: ir.Tile) -> set[str]:
        """The memories that an access may go to."""
        return {self.types.of(pointer).dtype.name} if self.alone else self._bases(pointer)

    def matters(self, pointer: ir.Tile) -> bool:
        """Whether what is loaded here may have been stored by this kernel."""
        return self.alone or any(self.is_shared(name) for name in self._bases(pointer))

    def loading(self, pointer: ir.Tile, layout: Layout) -> bool:
        """Notes a load; whether it must wait for what others have stored."""
        self.seen.setdefault(self.anonymous(pointer), []).append((layout, frozenset(self._bases(pointer))))
        if not self.matters(pointer):
            return False
        place = (self.expanded(pointer), layout)
        waits = self._differs(self.writing, pointer, place, layout is NUMBER)
        self._note(self.reading, pointer, place, waits)
        return waits

    def storing(self, pointer: ir.Tile, layout: Layout) -> bool:
        """Notes a store; whether it must wait for what others have loaded or stored."""
        place = (self.expanded(pointer), layout)
        waits = self._differs(self.reading, pointer, place, not layout.shape)
        waits = self._differs(self.writing, pointer, place, False) or waits
        for other, names in self.seen.get(self.anonymous(pointer), ()):
            if other != layout or other.copies(self.threads) >> 5:  # others than the lanes of a warp
                waits = True
                self.updated |= names | self._bases(pointer)
        self._note(self.writing, pointer, place, waits)
        return waits

    def anonymous(self, pointer: ir.Tile) -> tuple[str, ir.Tile]:
        """A place in some memory of a dtype."""

        def without_name(x: ir.Tile) -> ir.Tile:
            if isinstance(x, ir.Name):
                return ir.Name("") if self.types.variables[x.name].pointer else x
            if isinstance(x, ir.Apply) and self.types.of(x).pointer:
                return ir.Apply(x.fn, tuple([without_name(y) for y in x.args]))
            return x

        return self.types.of(pointer).dtype.name, without_name(self.expanded(pointer))

    def changing(self, pointer: ir.Tile) -> bool:
        """Notes an atomic; whether it must wait for what others have loaded or stored."""
        waits = any(self.reading.get(key) or self.writing.get(key) for key in self.keys(pointer))
        self._note(self.writing, pointer, None, waits)
        return waits

    def _differs(self, state: State, pointer: ir.Tile, place: Place, everybody: bool) -> bool:
        """Whether another thread may have been at a place; numbers are loaded by all threads, and stored by one."""
        before = [p for key in self.keys(pointer) for p in state.get(key, ())]
        if state is self.writing and place is not None and not place[1].shape and not everybody:
            before = [p for p in before if p is None or p[1].shape]  # the same thread has stored them
        return bool(before) if everybody else any(p != place for p in before)

    def _note(self, state: State, pointer: ir.Tile, place: Place, waits: bool) -> None:
        if waits:
            self.met()
            state = self.reading if state is self.reading else self.writing
        for key in self.keys(pointer):
            state.setdefault(key, []).append(place)

    def met(self) -> None:
        """There was a barrier."""
        self.reading.clear()
        self.writing.clear()
        self.seen.clear()

    # --- blocks ----------------------------------------------------------------------------------

    def copy(self) -> tuple[Any, Any, Any]:
        """The state as it is now."""
        first, second, third = ({k: list(v) for k, v in d.items()} for d in (self.reading, self.writing, self.seen))
        return first, second, third

    def restore(self, state: tuple[Any, Any, Any]) -> None:
        """Goes back to a state: another branch begins."""
        self.reading, self.writing, self.seen = state

    def merge(self, state: tuple[Any, Any, Any]) -> None:
        """Either this is so, or that: a branch that was not taken, a loop without turns."""
        mine: Any
        for mine, other in zip((self.reading, self.writing, self.seen), state, strict=True):
            for key, places in other.items():
                mine[key] = [*mine.get(key, []), *(p for p in places if p not in mine.get(key, []))]

    @contextmanager
    def repeated(self, loop: ir.Statement) -> Iterator[None]:
        """A loop: all that its turns do may have been done before a turn begins."""
        before = self.copy()
        for s in statements((loop,)):
            for x in _expressions(s):
                if isinstance(x, ir.Load) and self.matters(x.pointer):
                    self._note(self.reading, x.pointer, None, False)
            again = isinstance(s, ir.Store) and (self.matters(s.pointer) or not self._is_disjoint(s.pointer))
            if isinstance(s, ir.Store | ir.Atomic) and (again or isinstance(s, ir.Atomic)):
                self._note(self.writing, s.pointer, None, False)
        yield
        self.merge(before)

    def _is_disjoint(self, pointer: ir.Tile) -> bool:
        """Whether a store in different turns of a loop surely writes different elements, or by the same threads.

        So it is if the index of a loop is only found in `index + tl.arange(0, n)`, n at most the loop's step (within
        one turn, no two elements go to one place), or if nothing in the address changes.
        """
        if not self.types.of(pointer).shape:
            return True  # always the same thread
        waiting, seen = [self.expanded(pointer)], set[int]()
        while waiting:
            x = waiting.pop()
            if id(x) in seen:
                continue
            seen.add(id(x))
            match x:
                case ir.Apply("add", (ir.Name(index), ir.Arange(0, n))) | ir.Apply(
                    "add", (ir.Arange(0, n), ir.Name(index))
                ):
                    step = self.steps.get(index)
                    if isinstance(step, ir.Literal) and step.value >= n:
                        continue
                case ir.Name(name) if name in self.varying:
                    return False
            waiting += ir.parts(x)
        return True


def _varying(every: Sequence[ir.Statement]) -> set[str]:
    """Names that have another value in another turn of a loop (or may have)."""
    found: set[str] = set()
    for s in every:
        if isinstance(s, ir.For | ir.While):
            found |= {s.index} if isinstance(s, ir.For) else set()
            found |= {inner.name for inner in statements(s.body) if isinstance(inner, ir.Assign)}
            found |= {inner.index for inner in statements(s.body) if isinstance(inner, ir.For)}
    return found


def _expressions(statement: ir.Statement) -> list[ir.Tile]:
    return list(walk(*roots(statement)))
