"""Insert barriers between accesses of different threads to the same memory.

In the tile language a statement completes before the next begins, but the threads of a block run ahead of each other.
What one thread has stored, another may load or store only after a barrier, and vice versa, unless every thread stores
exactly the elements that it alone has loaded or stored before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ....ir import tile as ir
from ....ir.tile_access import PointerBases, accesses, count_assignments, expressions, statements
from ....ir.tile_types import Types
from .layout import SCALAR, RegisterLayout

AccessSite = tuple[ir.Tile, RegisterLayout] | None
"""Pointer and layout of an access; None: anywhere."""
State = dict[str, list[AccessSite]]
LoadsByLocation = dict[tuple[str, ir.Tile], list[tuple[RegisterLayout, frozenset[str]]]]


class HazardTracker:
    """Tracks loads and stores since the last barrier, by parameter."""

    def __init__(self, kernel: ir.Kernel, types: Types, expanded: Callable[[ir.Tile], ir.Tile]) -> None:
        self.types, self.expanded = types, expanded
        found = accesses(kernel, types)
        self.loaded, self.stored = found.loaded, found.stored
        every = list(statements(kernel.body))
        self.single_instance = not any(isinstance(x, ir.ProgramId) for x in expressions(*kernel.body))
        """Whether the kernel has a single instance: it may overwrite what it has read through another parameter."""
        self.bases = PointerBases(kernel, types)
        self.varying = _varying(every)
        self.steps = {s.index: s.step for s in every if isinstance(s, ir.For)}
        self.reading: State = {}
        self.writing: State = {}
        self.loads_by_location: LoadsByLocation = {}
        """Loads by dtype and location regardless of parameter: an in-place update has two parameters."""
        self.aliased: set[str] = set()
        """Parameters that may alias and that other threads store to than those that load."""
        self.threads = 0

    def is_shared(self, parameter: str) -> bool:
        """Return whether loads may read what the kernel stores."""
        return (
            self.single_instance or parameter in self.aliased or (parameter in self.loaded and parameter in self.stored)
        )

    def keys(self, pointer: ir.Tile) -> set[str]:
        """Return the keys of the memories that an access may touch."""
        return {self.types.of(pointer).dtype.name} if self.single_instance else self.bases.of(pointer)

    def may_read_stored(self, pointer: ir.Tile) -> bool:
        """Return whether a load may read what this kernel stores."""
        return self.single_instance or any(self.is_shared(name) for name in self.bases.of(pointer))

    def note_load(self, pointer: ir.Tile, layout: RegisterLayout) -> bool:
        """Record a load; return whether it needs a barrier after stores of other threads."""
        self.loads_by_location.setdefault(self.location_of(pointer), []).append(
            (layout, frozenset(self.bases.of(pointer)))
        )
        if not self.may_read_stored(pointer):
            return False
        place = (self.expanded(pointer), layout)
        needs_barrier = self._conflicts(self.writing, pointer, place, layout is SCALAR)
        self._note(self.reading, pointer, place, needs_barrier)
        return needs_barrier

    def note_store(self, pointer: ir.Tile, layout: RegisterLayout) -> bool:
        """Record a store; return whether it needs a barrier after accesses of other threads."""
        place = (self.expanded(pointer), layout)
        needs_barrier = self._conflicts(self.reading, pointer, place, not layout.shape)
        needs_barrier = self._conflicts(self.writing, pointer, place, False) or needs_barrier
        for other, names in self.loads_by_location.get(self.location_of(pointer), ()):
            if other != layout or other.copy_bits(self.threads) >> 5:  # copies in other warps
                needs_barrier = True
                self.aliased |= names | self.bases.of(pointer)
        self._note(self.writing, pointer, place, needs_barrier)
        return needs_barrier

    def location_of(self, pointer: ir.Tile) -> tuple[str, ir.Tile]:
        """Return a location without its parameter: dtype and offset."""

        def without_name(x: ir.Tile) -> ir.Tile:
            if isinstance(x, ir.Name):
                return ir.Name("") if self.types.variables[x.name].pointer else x
            if isinstance(x, ir.Apply) and self.types.of(x).pointer:
                return ir.Apply(x.fn, tuple([without_name(y) for y in x.args]))
            return x

        return self.types.of(pointer).dtype.name, without_name(self.expanded(pointer))

    def note_atomic(self, pointer: ir.Tile) -> bool:
        """Record an atomic; return whether it needs a barrier after accesses of other threads."""
        needs_barrier = any(self.reading.get(key) or self.writing.get(key) for key in self.keys(pointer))
        self._note(self.writing, pointer, None, needs_barrier)
        return needs_barrier

    def _conflicts(self, state: State, pointer: ir.Tile, place: AccessSite, by_all_threads: bool) -> bool:
        """Return whether another thread may have accessed a location. All threads load scalars; one stores them."""
        before = [p for key in self.keys(pointer) for p in state.get(key, ())]
        if state is self.writing and place is not None and not place[1].shape and not by_all_threads:
            before = [p for p in before if p is None or p[1].shape]  # always stored by the same thread
        return bool(before) if by_all_threads else any(p != place for p in before)

    def _note(self, state: State, pointer: ir.Tile, place: AccessSite, needs_barrier: bool) -> None:
        if needs_barrier:
            self.note_barrier()
            state = self.reading if state is self.reading else self.writing
        for key in self.keys(pointer):
            state.setdefault(key, []).append(place)

    def note_barrier(self) -> None:
        """Record a barrier."""
        self.reading.clear()
        self.writing.clear()
        self.loads_by_location.clear()

    # --- blocks ----------------------------------------------------------------------------------

    def copy(self) -> tuple[Any, Any, Any]:
        """Return a copy of the state."""
        first, second, third = (
            {k: list(v) for k, v in d.items()} for d in (self.reading, self.writing, self.loads_by_location)
        )
        return first, second, third

    def restore(self, state: tuple[Any, Any, Any]) -> None:
        """Restore a state, at the start of another branch."""
        self.reading, self.writing, self.loads_by_location = state

    def merge(self, state: tuple[Any, Any, Any]) -> None:
        """Merge the state of an alternative path: a branch not taken, a loop without iterations."""
        own: Any
        for own, other in zip((self.reading, self.writing, self.loads_by_location), state, strict=True):
            for key, places in other.items():
                own[key] = [*own.get(key, []), *(p for p in places if p not in own.get(key, []))]

    @contextmanager
    def loop_scope(self, loop: ir.Statement) -> Iterator[None]:
        """Assume that every access of a loop may precede an iteration."""
        before = self.copy()
        for x in expressions(loop):
            if isinstance(x, ir.Load) and self.may_read_stored(x.pointer):
                self._note(self.reading, x.pointer, None, False)
        for s in statements((loop,)):
            again = isinstance(s, ir.Store) and (self.may_read_stored(s.pointer) or not self._is_disjoint(s.pointer))
            if isinstance(s, ir.Store | ir.Atomic) and (again or isinstance(s, ir.Atomic)):
                self._note(self.writing, s.pointer, None, False)
        yield
        self.merge(before)

    def _is_disjoint(self, pointer: ir.Tile) -> bool:
        """Return whether a store writes different elements in different iterations, or always by the same threads.

        True if the loop index occurs only in `index + tl.arange(0, n)` with n at most the step (elements of one
        iteration are distinct anyway), or if the address is loop-invariant.
        """
        if not self.types.of(pointer).shape:
            return True  # always stored by the same thread
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
    """Return names whose values may differ between iterations of a loop."""
    found: set[str] = set()
    for s in every:
        if isinstance(s, ir.For | ir.While):
            found |= set(count_assignments((s,)))
    return found
