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
from .packing import subexpressions, transposed_expression


def store_transposed(nests: LoopNests, stores: Sequence[ir.Store], twice: bool) -> bool:
    """Emit stores of transposed loads, if they are; return whether. `twice`: elements may be stored more than once."""
    e = nests.e
    t = e.types.of(stores[0].pointer)
    lanes = nests.target.lanes(t.dtype.bytes)
    if len(t.shape) != 2 or t.dtype.bytes < 4 or lanes < 2 or any(extent < lanes for extent in t.shape):
        return False
    even = not any(extent % lanes for extent in t.shape)
    within = lanes if even else 0
    if not (even or twice) or any(s.mask is not None or e.step(s.pointer, lanes=within) != 1 for s in stores):
        return False
    found = [_transposed_loads(e, s.value, t.shape, within) for s in stores]
    loads = {id(x): (x, turned) for pairs in found if pairs is not None for x, turned in pairs}
    if not loads or any(pairs is None or any(x.mask is not None for x, _ in pairs) for pairs in found):
        return False
    if any(e.types.of(x).dtype is not t.dtype for x, _ in loads.values()):
        return False
    with e.vectors_begin_evenly(even):
        _store(nests, stores, list(loads.values()), lanes)
    return True


def _transposed_loads(
    e: ElementEvaluator, x: ir.Tile, shape: tuple[int, ...], lanes: int
) -> list[tuple[ir.Load, ir.Load]] | None:
    """The loads of an expression with transposed layout, and their transposes; None if one has none."""
    found = []
    for y in subexpressions(e, x):
        if isinstance(y, ir.Load) and e.types.of(y).shape == shape and e.step(y.pointer, lanes=lanes) not in (0, 1):
            turned = transposed_expression(e, y) if e.step(y.pointer, -2, lanes=lanes) == 1 else None
            if not isinstance(turned, ir.Load):
                return None
            found.append((y, turned))
    return found


def _store(nests: LoopNests, stores: Sequence[ir.Store], loads: list[tuple[ir.Load, ir.Load]], lanes: int) -> None:
    e, b = nests.e, nests.b
    e.begin()
    down, along = e.types.of(stores[0].pointer).shape
    outer = nests.loop("column", 0, along, lanes)
    inner = nests.loop("row", 0, down, lanes)
    column, row = (
        b.intrinsic("smin", loop.index, constant(extent - lanes, I64)) if extent % lanes else loop.index
        for loop, extent in ((outer, along), (inner, down))
    )
    squares = [_transposed_square(nests, turned, row, column, lanes) for _, turned in loads]
    for n in range(lanes):
        at = [b.op("add", row, constant(n, I64)), column]
        for (load, _), square in zip(loads, squares, strict=True):
            e.memo[(id(load), lanes, *[i.text for i in at])] = square[n]
        for finish in [nests.stored(s, at, lanes) for s in stores]:
            finish()
    b.close_loop(inner)
    b.close_loop(outer)
    e.begin()


def _transposed_square(
    nests: LoopNests, turned: ir.Load, row: LlvmValue, column: LlvmValue, lanes: int
) -> list[LlvmValue]:
    """Rows of a square at a position of a transposed load."""
    e, b = nests.e, nests.b
    places = [b.op("add", column, constant(n, I64)) for n in range(lanes)]
    dtype = e.types.of(turned).dtype
    return transpose_square(nests, [b.splat(e.of(turned, [place, row], lanes, dtype), lanes) for place in places])
