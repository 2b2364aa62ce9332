"""What the next turn of a loop will load, asked for at the beginning of this one.

In a loop that reduces rows, all threads wait for each other several times in a turn, and nothing is under way
meanwhile. Each thread then has its elements of the next rows copied to a place of its own in shared memory; as nobody
else reads them there, no barrier is needed. Where there is no room, they are at least on their way to the second
cache. (Two such blocks on a multiprocessor, with 64 registers a thread, took 1.7 times as long.)
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
"""From so many threads on, blocks are too few to do something while one waits: in rows of 8192 layer_norm's gradient
takes 224 us in place of 261 on an H200. In rows of 1024, blocks have 128 threads, and asking would cost a tenth."""
PIECE = 16
"""Bytes that a thread has copied at a time."""
MOST = 160 * 1024
"""Bytes of shared memory for two turns. There are places for three where a block is alone on its multiprocessor anyway:
with two, nothing is under way from when a turn's elements are there until the next ones are asked for."""

ALONE = 4
"""So many turns do not fit if a block is alone: two of each of two blocks."""


class Wanted(NamedTuple):
    """What a turn loads: a variable, its layout, and the address with the index of the loop in it."""

    name: str
    layout: Layout
    pointer: ir.Tile
    offset: int = -1
    """Where its pieces are in the memory of a turn; -1: nowhere."""


class Ahead:
    """The loads of a loop that are made a turn ahead."""

    def __init__(self, low: Lowering, loop: ir.For, stop: str) -> None:
        self.low, self.loop, self.stop = low, loop, stop
        self.wanted = _wanted(low, loop)
        self.bytes, self.turns = 0, 2
        """Of the elements of a turn; and how many turns have a place."""
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
        """Before the loop: the elements of its first turns."""
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
        """At the beginning of a turn: takes what was copied for it, and asks for what a later one needs."""
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
        """The index some turns later."""
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
        """Has the elements of a turn copied to a place, if the loop comes there."""
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
        """Where a thread finds the vector at hand."""
        type = MEMORY[self.low.types.of(w.pointer).dtype.name]
        return f"reinterpret_cast<const {type}*>({self.here} + {w.offset} + {self._piece(w)})"


def _wanted(low: Lowering, loop: ir.For) -> list[Wanted]:
    """What the loop loads that can be asked for ahead, if its turns wait for reductions."""
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
    """Whether its vectors are pieces of 16 bytes, wherever they lie."""
    bytes = low.types.of(w.pointer).dtype.bytes
    pattern = low.patterns.of(w.pointer, w.layout.vector, w.layout.width)
    return w.layout.width * bytes == PIECE and pattern.multiple * bytes >= PIECE


def _count(layout: Layout) -> int:
    """How many vectors a thread has."""
    count = 1
    for axis, place in layout.registers():
        if (axis, place) != (layout.vector, 0):
            count *= layout.axes[axis][place].extent
    return count


def _goes_on(low: Lowering, loop: ir.For, pointer: ir.Tile) -> bool:
    """Whether an address follows from the index of the loop and from what is known before it."""
    names = {x.name for x in walk(pointer) if isinstance(x, ir.Name)}
    known = set().union(*low.scopes)
    return loop.index in names and names <= known | {loop.index} and not low.guard.matters(pointer)


def _is_vector(low: Lowering, name: str, pointer: ir.Tile) -> bool:
    layout = low.plan.of_name(name)
    return layout.vector >= 0 and low.patterns.of(pointer, layout.vector, layout.width).step == 1


def _replaced(x: ir.Tile, name: str, by: ir.Tile) -> ir.Tile:
    """An expression with something else in place of a name."""
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
