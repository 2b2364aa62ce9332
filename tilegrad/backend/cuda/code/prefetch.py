"""Prefetch the loads of the next loop iteration.

In a loop that reduces rows, all threads meet at several barriers per iteration, and no loads are in flight meanwhile.
So each thread copies its elements of the next rows asynchronously to its own part of shared memory; since no other
thread reads them, no barrier is needed. Where shared memory does not suffice, they are prefetched to the L2 cache.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ....ir import tile as ir
from ....ir.tile_access import walk
from .dot_helpers import COPIES, SHARED
from .functions import MEMORY
from .layout import Layout

if TYPE_CHECKING:
    from .lower import Lowering

FEW_BLOCKS = 512
"""Threads of a block from which on a multiprocessor holds too few blocks to hide latency."""
PIECE = 16
"""Bytes of one asynchronous copy."""
MOST = 160 * 1024
"""Bytes of shared memory for two iterations. Three are prefetched where a block is alone on its multiprocessor anyway:
with two, no copy is in flight between the arrival of an iteration's elements and the next request.
"""

ALONE = 4
"""A block is alone on its multiprocessor if this many iterations (two for each of two blocks) do not fit."""


class Wanted(NamedTuple):
    """A prefetched load: variable, layout, and address as a function of the loop index."""

    name: str
    layout: Layout
    pointer: ir.Tile
    offset: int = -1
    """Offset of its pieces in the memory of an iteration; -1: none."""


class Ahead:
    """Writes the prefetches of a loop."""

    def __init__(self, low: Lowering, loop: ir.For, stop: str) -> None:
        self.low, self.loop, self.stop = low, loop, stop
        self.wanted = _wanted(low, loop)
        self.bytes, self.turns = 0, 2
        """Bytes of the elements of an iteration, and the number of iterations in shared memory."""
        copies = int(low.architecture.strip("sm_af")) >= 80 and not low.products.dots
        if copies and all(_in_pieces(low, w) for w in self.wanted):
            placed = []
            for w in self.wanted:
                placed.append(w._replace(offset=self.bytes))
                self.bytes += _count(w.layout) * low.threads * PIECE
            if 2 * self.bytes <= min(MOST, low.most_shared - 8192):
                self.wanted = placed
                alone = ALONE * self.bytes > low.most_shared
                self.turns = 3 if alone and 3 * self.bytes <= low.most_shared - 8192 else 2
            else:
                self.bytes = 0

    def begin(self) -> None:
        """Prefetch the first iterations, before the loop."""
        if not self.bytes or not self.wanted:
            return
        low = self.low
        low.products.texts |= dict.fromkeys([SHARED, COPIES])
        low.memory.held, low.memory.apart = max(low.memory.held, self.turns * self.bytes), True
        self.turn, self.here = low.names.fresh("turn_"), low.names.fresh("here_")
        low.out.add(f"int {self.turn} = 0;")
        for n in range(self.turns - 1):
            self._ask(self._later(self.loop.start, n), str(n))

    def next(self) -> None:
        """Start an iteration: wait for its elements, and prefetch those of a later one."""
        if not self.wanted:
            return
        low, place, last = self.low, "", self.turns - 1
        if self.bytes:
            place = turn = self.turn
            low.out.add(f"wait_for_copies<{last - 1}>();")
            low.out.add(f"const unsigned char* const {self.here} = held + {turn} * {self.bytes} + thread * {PIECE};")
            if last == 1:
                low.out.add(f"{turn} ^= 1;")
            else:
                place = low.names.fresh("free_")
                low.out.add(f"const int {place} = {turn} == 0 ? {last} : {turn} - 1;")
                low.out.add(f"{turn} = {turn} == {last} ? 0 : {turn} + 1;")
        self._ask(self._later(ir.Name(self.loop.index), last), place)
        if self.bytes:
            low.fetched |= {w.name: self._place(w) for w in self.wanted}

    def _later(self, index: ir.Tile, turns: int) -> ir.Tile:
        """Return the loop index some iterations later."""
        step = self.loop.step
        if turns > 1:
            step = (
                ir.Literal(turns * step.value)
                if isinstance(step, ir.Literal)
                else ir.Apply("mul", (step, ir.Literal(turns)))
            )
        if turns == 0 or index == ir.Literal(0):
            return step if turns else index
        return ir.Apply("add", (index, step))

    def _ask(self, index: ir.Tile, place: str) -> None:
        """Prefetch the elements of an iteration, if the loop reaches it."""
        low = self.low
        low.elements.take_position(index)
        at = low.elements.of(index, (), low.types.variables[self.loop.index].dtype)
        with low.out.block(f"if ({at.within(8)} < {self.stop})"):
            self._copy(index, place)
        if self.bytes:
            low.out.add("commit_copies();")

    def end(self) -> None:
        for w in self.wanted:
            self.low.fetched.pop(w.name, None)

    def _copy(self, index: ir.Tile, place: str) -> None:
        low = self.low
        for w in self.wanted:
            pointer = _replaced(w.pointer, self.loop.index, index)
            low.elements.take_position(pointer)
            with low.over(w.layout, without={(w.layout.vector, 0)}):
                view, conditions = low.positions(w.layout)
                conditions = [*low.owners(w.layout), *conditions]
                guard = f"if ({' && '.join(conditions)}) " if conditions else ""
                there = low.elements.of(pointer, view, low.types.of(pointer).dtype)
                if not self.bytes:
                    low.out.add(f"{guard}ask_for({there});")
                    continue
                own = f"{place} * {self.bytes} + {w.offset} + {self._piece(w)} + thread * {PIECE}"
                low.out.add(f"{guard}copy_16(address_of(held + {own}), {there});")

    def _piece(self, w: Wanted) -> str:
        return self.low.flat(w.layout, self.low.threads * PIECE, {(w.layout.vector, 0)})

    def _place(self, w: Wanted) -> str:
        """Return the shared-memory address of the current vector."""
        type = MEMORY[self.low.types.of(w.pointer).dtype.name]
        return f"reinterpret_cast<const {type}*>({self.here} + {w.offset} + {self._piece(w)})"


def _wanted(low: Lowering, loop: ir.For) -> list[Wanted]:
    """Return the loads of a loop that can be prefetched, if its iterations wait for reductions."""
    reduces = (s.value for s in loop.body if isinstance(s, ir.Assign) and isinstance(s.value, ir.Reduce))
    if low.threads < FEW_BLOCKS or not any(low.types.of(reduce.x).shape for reduce in reduces):
        return []
    found = []
    for s in loop.body:
        if isinstance(s, ir.Assign) and isinstance(s.value, ir.Load) and s.value.mask is None:
            pointer = low.expanded(s.value.pointer)
            if _goes_on(low, loop, pointer) and _is_vector(low, s.name, pointer):
                found.append(Wanted(s.name, low.plan.of_name(s.name), pointer))
    return found


def _in_pieces(low: Lowering, w: Wanted) -> bool:
    """Return whether vectors are aligned pieces of 16 bytes."""
    bytes = low.types.of(w.pointer).dtype.bytes
    pattern = low.patterns.of(w.pointer, w.layout.vector, w.layout.width)
    return w.layout.width * bytes == PIECE and pattern.multiple * bytes >= PIECE


def _count(layout: Layout) -> int:
    """Return the number of vectors of a thread."""
    count = 1
    for axis, place in layout.registers():
        if (axis, place) != (layout.vector, 0):
            count *= layout.axes[axis][place].extent
    return count


def _goes_on(low: Lowering, loop: ir.For, pointer: ir.Tile) -> bool:
    """Return whether an address depends only on the loop index and on values known before the loop."""
    names = {x.name for x in walk(pointer) if isinstance(x, ir.Name)}
    known = set().union(*low.scopes)
    return loop.index in names and names <= known | {loop.index} and not low.guard.matters(pointer)


def _is_vector(low: Lowering, name: str, pointer: ir.Tile) -> bool:
    layout = low.plan.of_name(name)
    return layout.vector >= 0 and low.patterns.of(pointer, layout.vector, layout.width).step == 1


def _replaced(x: ir.Tile, name: str, by: ir.Tile) -> ir.Tile:
    """Replace a name in an expression."""
    if isinstance(x, ir.Name):
        return by if x.name == name else x
    changed = {}
    for field in x.children:
        value = x.__dict__[field]
        if isinstance(value, tuple):
            changed[field] = tuple([_replaced(v, name, by) for v in value])
        elif value is not None:
            changed[field] = _replaced(value, name, by)  # type: ignore[assignment]
    return x.replaced(**changed) if changed else x
