"""Scans: running sums, products and extremes along an axis, kept as a tile."""

from __future__ import annotations

from .. import vectors
from .accumulate import Accumulator
from .elements import Address, Elements, Frame, Position
from ..emit import I64, constant
from ..linear import ZERO, Linear, term
from .placing import common_lanes
from .roots import Root


def scan(frame: Frame, root: Root, prefix: Position, depth: int) -> None:
    """Scans over the first axis that is left. Other axes are loops, the last of them runs in the lanes."""
    b, extents = frame.builder, root.domain[depth:]
    loops, middle = [], []
    for extent in extents[1:-1]:
        loop = b.open_loop("middle", constant(0, I64), constant(extent, I64), constant(1, I64), guarded=False)
        loops.append(loop)
        middle.append(term(loop.index))
    if len(extents) == 1:
        _walk(frame, root, prefix, [], extents[0], 0)
    else:
        lanes = common_lanes(frame, [root])
        full = extents[-1] // lanes * lanes if lanes > 1 else 0
        for start, stop, step in ((0, full, lanes), (full, extents[-1], 1)):
            if start == stop:
                continue
            columns = b.open_loop("column", constant(start, I64), constant(stop, I64), constant(step, I64), guarded=False)
            column = term(columns.index)._replace(lane=1 if step > 1 else 0)
            _walk(frame, root, prefix, [*middle, column], extents[0], step if step > 1 else 0)
            b.close_loop(columns)
    for loop in reversed(loops):
        b.close_loop(loop)
    assert root.slot is not None
    frame.results[root.node] = root.slot


def _walk(frame: Frame, root: Root, prefix: Position, rest: list[Linear], extent: int, lanes: int) -> None:
    """Down the axis, with what came before in registers."""
    b = frame.builder
    accumulator = Accumulator.of(root.node)
    state = accumulator.start(b, lanes)
    carried = [(f"so_far{n}", v) for n, v in enumerate(state)]
    loop = b.open_loop("along", constant(0, I64), constant(extent, I64), constant(1, I64), carried, guarded=False)
    elements = Elements(frame, lanes)
    row = term(loop.index) if extent > 1 else ZERO
    at = (*prefix, row, *rest)
    state = accumulator.take(elements, tuple(loop.carried), root.node.args[0], at, row)
    assert root.slot is not None
    where = Address(root.slot.pointer, root.slot.offset(b, at), None, "")
    value = state[1] if accumulator.has_place else vectors.cast(b, state[0], accumulator.wide, root.node.dtype)
    if accumulator.has_place:
        value = vectors.cast(b, value, accumulator.result_dtype, root.node.dtype)
    elements.write(where, value, root.node.dtype)
    b.close_loop(loop, state)
