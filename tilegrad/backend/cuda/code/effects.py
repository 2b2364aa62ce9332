"""Atomics and prints, element by element.

A scalar atomic, or one whose old value is used, synchronises instances: the block's earlier stores become visible
before it, and stores of others after it.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING

from ....ir import tile as ir
from ....ir.dtype import bool_, int32, int64
from .elements import RegisterTile, View, element_view
from .foreign_registers import unavailable_names
from .functions import AND, TYPES, Text, call, cast
from .layout import RegisterLayout

if TYPE_CHECKING:
    from .lower import CudaLowering

UPDATES = {
    "add": "Add",
    "max": "Maximum",
    "min": "Minimum",
    "and": "And",
    "or": "Or",
    "xor": "Xor",
    "xchg": "Replace",
}
"""Names in the prelude of the functions of ATOMICS."""


def atomic(low: CudaLowering, x: ir.Atomic) -> None:
    """Write an atomic: the owners of elements update memory, and every holder of an element gets the old value."""
    t = low.types.of(x.pointer)
    layout = low.plan.of_value(x.pointer) or low.plan.of_access(x.pointer)
    reads = [ir.Store(x.pointer, y, x.mask) for y in (x.value, x.expected) if y is not None]
    low.barrier_if(low.hazards.note_atomic(x.pointer))
    low.share_tiles(sorted(unavailable_names(low, reads, layout)))
    ordered = bool(x.name) or not t.shape
    if ordered:
        low.out.add("__threadfence();")
        low.barrier()
    old = low.names.fresh(f"{low.names.of(x.name)}_old") if x.name else ""
    if x.name:
        low.out.add(f"{TYPES[t.dtype.name]} {old}{''.join(f'[{n}]' for n in layout.extents())};")
    with low.over(layout, scope=True) as at:
        view, conditions = low.positions(layout)
        conditions = [*low.owners(layout), *conditions]
        if x.mask is not None:
            conditions.append(_current(low, x.mask, view, layout, ir.Literal(True)).within(AND))
        place = f"&{low.elements.memory(x.pointer, element_view(view, layout) if t.shape else ())}"
        values = [_current(low, y, view, layout, x.pointer) for y in (x.expected, x.value) if y is not None]
        update = "compare_and_swap" if x.fn == "cas" else f"Atomic<{UPDATES[x.fn]}>::of"
        text = call(update, place, *[Text(f"{TYPES[t.dtype.name]}({value})") for value in values])
        if x.name:
            low.out.add(f"{old}{at} = {TYPES[t.dtype.name]}(0);")
        guard = f"if ({' && '.join(conditions)}) " if conditions else ""
        low.out.add(f"{guard}{f'{old}{at} = ' if x.name else ''}{text};")
    low.share_tiles([])
    if x.name:
        _share_old_values(low, old, layout, TYPES[t.dtype.name])
        _assign_old_values(low, x.name, old, layout)
    if ordered:
        low.out.add("__threadfence();")


def _current(low: CudaLowering, y: ir.Tile, view: View, layout: RegisterLayout, like: ir.Tile) -> Text:
    """Evaluate an operand at the current element."""
    dtype = bool_ if isinstance(like, ir.Literal) else low.types.of(like).dtype
    made = low.elements.part(y, element_view(view, layout), layout.shape, dtype)
    return cast(made, low.elements.dtype(y, dtype), dtype)


def _share_old_values(low: CudaLowering, old: str, layout: RegisterLayout, type: str) -> None:
    """Send the old values from the owners to the other holders of the same elements."""
    bits = layout.copy_bits(low.threads)
    if not bits:
        low.barrier()
        return
    parts = low.shared_array(type, math.prod(layout.extents()) * low.threads * low.bytes_of(type))
    with low.over(layout) as at:
        low.out.add(f"{parts}[{low.flat(layout, low.threads)} + thread] = {old}{at};")
    low.barrier()
    with low.over(layout) as at:
        low.out.add(f"{old}{at} = {parts}[{low.flat(layout, low.threads)} + (thread & ~{bits})];")


def _assign_old_values(low: CudaLowering, name: str, old: str, layout: RegisterLayout) -> None:
    """Assign the old values to the variable."""
    t = low.types.variables[name]
    if not t.shape:
        low.assign(name, t, old)
    elif low.is_declared(name):
        with low.over(layout) as at:
            low.out.add(f"{low.names.of(name)}{at} = {old}{at};")
    else:
        low.elements.register_tiles[name] = RegisterTile(old, layout)
        low.scopes[-1].add(name)
        low.names.called[name] = old


def print_values(low: CudaLowering, x: ir.Print) -> None:
    """Print a line for each element, with printf."""
    program = "pid (%d, %d, %d)"
    ids = ["program_0", "program_1", "program_2"]
    for value in x.values or (ir.Literal(0),):
        layout = low.plan.of_operand(value) if low.elements.shape(value) else low.plan.default_layout(())
        low.share_tiles(sorted(unavailable_names(low, [ir.Assign("_", value)], layout)))
        with low.over(layout, scope=True):
            view, conditions = low.positions(layout)
            conditions = [*low.owners(layout), *conditions]
            dtype = int32 if isinstance(value, ir.Literal) else low.types.of(value).dtype
            view = element_view(view, layout)
            places = [str(low.elements.position(axis)) for axis in view]
            shown = low.elements.part(value, view, layout.shape, dtype)
            index = f" idx ({', '.join(['%d'] * len(places))})"
            number = f"double({shown})" if dtype.is_float else str(cast(shown, dtype, int64))
            form = f"{program}{index} {x.text.replace('%', '%%')}: {'%g' if dtype.is_float else '%lld'}\n"
            if not x.values:
                form, places, number = f"{program} {x.text.replace('%', '%%')}\n", [], ""
            given = ", ".join([json.dumps(form), *ids, *places, *([number] if number else [])])
            guard = f"if ({' && '.join(conditions)}) " if conditions else ""
            low.out.add(f"{guard}printf({given});")
        low.share_tiles([])
