"""What the next turn of a loop will load, asked for at the beginning of this one.

In a loop that reduces rows, all threads wait for each other several times in a turn, and nothing is under way
meanwhile. The next rows are then on their way to the second cache. (Two such blocks on a multiprocessor, with 64
registers a thread, took 1.7 times as long.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....ir import tile as ir
from ....ir.tile_access import walk

if TYPE_CHECKING:
    from .lower import Lowering

FEW_BLOCKS = 512
"""From so many threads on, blocks are too few to do something while one waits: layer_norm's gradient takes a tenth less
time in rows of 8192. In rows of 1024, blocks have 128 threads, and it would take a tenth more."""


def ask_ahead(low: Lowering, loop: ir.For, stop: str) -> None:
    """Asks for the elements of the next turn, if this one waits for reductions."""
    reduces = (s.value for s in loop.body if isinstance(s, ir.Assign) and isinstance(s.value, ir.Reduce))
    if low.threads < FEW_BLOCKS or not any(low.types.of(reduce.x).shape for reduce in reduces):
        return
    following = ir.Apply("add", (ir.Name(loop.index), loop.step))
    found = []
    for s in loop.body:
        if isinstance(s, ir.Assign) and isinstance(s.value, ir.Load) and s.value.mask is None:
            pointer = low.expanded(s.value.pointer)
            if _goes_on(low, loop, pointer) and _is_vector(low, s.name, pointer):
                found.append((low.plan.of_name(s.name), _replaced(pointer, loop.index, following)))
    if not found:
        return
    low.elements.take_position(following)
    with low.out.block(f"if ({low.elements.of(following, (), low.types.variables[loop.index].dtype)} < {stop})"):
        for layout, pointer in found:
            low.elements.take_position(pointer)
            with low.over(layout, without={(layout.vector, 0)}):
                view, conditions = low.positions(layout)
                conditions = [*low.owners(layout), *conditions]
                guard = f"if ({' && '.join(conditions)}) " if conditions else ""
                low.out.add(f"{guard}ask_for({low.elements.of(pointer, view, low.types.of(pointer).dtype)});")


def _goes_on(low: Lowering, loop: ir.For, pointer: ir.Tile) -> bool:
    """Whether an address follows from the index of the loop and from what is known before it."""
    names = {x.name for x in walk(pointer) if isinstance(x, ir.Name)}
    known = set().union(*low.scopes)
    return loop.index in names and names <= known | {loop.index} and not low.guard.matters(pointer)


def _is_vector(low: Lowering, name: str, pointer: ir.Tile) -> bool:
    layout = low.plan.of_name(name)
    low.patterns.width = layout.width
    return layout.vector >= 0 and low.patterns.of(pointer, layout.vector).step == 1


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
