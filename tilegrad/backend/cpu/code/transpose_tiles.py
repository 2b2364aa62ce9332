"""Store transposed loads through registers, by squares of vectors.

Loading the elements of a vector one by one is slow; a square of vectors is loaded along memory and transposed. The last
squares overlap those before them, unless the kernel reads what it stores.
"""

from __future__ import annotations

from collections.abc import Sequence

from ....ir import tile as ir
from ..emit import I64, LlvmValue, constant
from .elements import ElementEvaluator
from .nests import LoopNests, transpose_square
from .packing import transposed_expression
from .position import Position, position


def store_transposed(nests: LoopNests, stores: Sequence[ir.Store], twice: bool) -> bool:
    """Emit stores of transposed loads, if they are; return whether. `twice`: elements may be stored more than once."""
    e = nests.e
    t = e.types.of(stores[0].pointer)
    lanes = nests.target.lanes(t.dtype.bytes)
    if len(t.shape) != 2 or t.dtype.bytes < 4 or lanes < 2 or any(extent < lanes for extent in t.shape):
        return False
    even = not any(extent % lanes for extent in t.shape)
    within = lanes if even else 0
    if not (even or twice) or any(s.mask is not None or e.affine.step(s.pointer, lanes=within) != 1 for s in stores):
        return False
    found = [_transposed_loads(e, s.value, t.shape, within) for s in stores]
    loads = {id(x): (x, transposed) for pairs in found if pairs is not None for x, transposed in pairs}
    if not loads or any(pairs is None or any(x.mask is not None for x, _ in pairs) for pairs in found):
        return False
    if any(e.types.of(x).dtype is not t.dtype for x, _ in loads.values()):
        return False
    _store(nests, stores, list(loads.values()), position(lanes=lanes, aligned=even))
    return True


def _transposed_loads(
    e: ElementEvaluator, x: ir.Tile, shape: tuple[int, ...], lanes: int
) -> list[tuple[ir.Load, ir.Load]] | None:
    """Return the loads of an expression with transposed layout, and their transposes; None if one has none."""
    found = []
    for y in e.loads(x):
        if e.types.of(y).shape == shape and e.affine.step(y.pointer, lanes=lanes) not in (0, 1):
            transposed = transposed_expression(e, y) if e.affine.step(y.pointer, -2, lanes=lanes) == 1 else None
            if not isinstance(transposed, ir.Load):
                return None
            found.append((y, transposed))
    return found


def _store(nests: LoopNests, stores: Sequence[ir.Store], loads: list[tuple[ir.Load, ir.Load]], at: Position) -> None:
    e, b, lanes = nests.e, nests.b, at.lanes
    e.begin_nest()
    down, along = e.types.of(stores[0].pointer).shape
    outer = nests.loop("column", 0, along, lanes)
    inner = nests.loop("row", 0, down, lanes)
    column, row = (
        b.intrinsic("smin", loop.index, constant(extent - lanes, I64)) if extent % lanes else loop.index
        for loop, extent in ((outer, along), (inner, down))
    )
    squares = [_transposed_square(nests, transposed, row, column, at) for _, transposed in loads]
    for n in range(lanes):
        place = at.moved(b.op("add", row, constant(n, I64)), column)
        for (load, _), square in zip(loads, squares, strict=True):
            e.assume(load, place, square[n])
        for emit in [nests.prepared_store(s, place) for s in stores]:
            emit()
    b.close_loop(inner)
    b.close_loop(outer)
    e.begin_nest()


def _transposed_square(
    nests: LoopNests, transposed: ir.Load, row: LlvmValue, column: LlvmValue, at: Position
) -> list[LlvmValue]:
    """Rows of a square at a position of a transposed load."""
    e, b = nests.e, nests.b
    places = [at.moved(b.op("add", column, constant(n, I64)), row) for n in range(at.lanes)]
    dtype = e.types.of(transposed).dtype
    return transpose_square(b, [b.splat(e.evaluate(transposed, place, dtype), at.lanes) for place in places])
