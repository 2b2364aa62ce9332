"""Pack float32 operands of matrix products into panels, which the innermost loop reads contiguously.

A panel has some rows (of the left operand) or columns (of the right one), one k after another: what a block of the
result needs is contiguous, whatever the layout of the tensor. Operands with the other layout are transposed while they
are packed, by squares in registers. The last panel may be partly padding, which never reaches a result.
"""

from __future__ import annotations

from typing import NamedTuple

from ....ir import tile as ir
from ....ir.dtype import DType, float32, int32
from .. import vectors
from ..costs import MIN_PANEL_PREFETCH_STRIDE_BYTES, PANEL_DEPTH_AT_ONCE, PANEL_PREFETCH_ROWS
from ..emit import I64, Builder, LlvmValue, Type, constant
from .elements import ElementEvaluator
from .memory import StackTile, allocate
from .nests import LoopNests, transpose_square
from .position import Position, position

DIVISIONS = ("floordiv", "mod")
ALIGNMENT_BYTES = 64
"""Alignment of prepacked panels in bytes."""


class Panels(NamedTuple):
    """A packed operand: element (k, i) of the panel that begins at `block` is number block * stride + k * width + i."""

    memory: StackTile
    width: int
    depth: int
    stride: int
    """Distance of panels, which exceeds the depth: a vector may be longer than a panel is wide, and panels should not
    alias.
    """
    pairs: bool = False
    """Whether an element is a pair of 16-bit integers along k."""

    def read(self, e: ElementEvaluator, x: ir.Tile, at: Position) -> LlvmValue:
        """Read elements of an expression over (k, i), along i, in the format of the panels."""
        if not self.pairs:
            return e.evaluate(x, at, self.memory.dtype)
        b, (k, i) = e.b, at.indices
        first = b.op("mul", k, constant(2, I64))
        low, high = (e.evaluate(x, at.moved(b.op("add", first, constant(n, I64)), i), int32) for n in (0, 1))
        return b.op("or", b.op("and", low, constant(0xFFFF, low.type)), b.op("shl", high, constant(16, high.type)))

    def read_along(self, e: ElementEvaluator, x: ir.Tile, at: Position) -> LlvmValue:
        """Read elements of an expression over (i, k), along k, in the format of the panels."""
        b, (i, k), lanes = e.b, at.indices, at.lanes
        if not self.pairs:
            return b.splat(e.evaluate(x, at, self.memory.dtype), lanes)
        first = b.op("mul", k, constant(2, I64))
        places = (at.moved(i, b.op("add", first, constant(n, I64))) for n in (0, lanes))
        one, two = (b.splat(e.evaluate(x, place, int32), lanes) for place in places)
        both = b.shuffle(b.convert("trunc", one, "i16"), b.convert("trunc", two, "i16"), [*range(2 * lanes)])
        return b.pure(f"bitcast {both.type} {both} to {one.type}", one.type, (both,))

    def load(self, b: Builder, block: LlvmValue, inside: int, k: LlvmValue, lanes: int) -> LlvmValue:
        element = self.memory.element
        panel = b.offset(self.memory.address, element, b.op("mul", block, constant(self.stride, I64)))
        row = b.offset(panel, element, b.op("mul", k, constant(self.width, I64)))
        at = b.offset(row, element, constant(inside, I64))
        raw = b.load_invariant(at, Type(element, lanes), self.memory.element_bytes)
        return vectors.from_memory(b, raw, self.memory.dtype)

    def store(
        self, b: Builder, block: LlvmValue, inside: LlvmValue, k: LlvmValue, value: LlvmValue, lanes: int
    ) -> None:
        first = b.op("add", b.op("mul", block, constant(self.stride, I64)), inside)
        place = b.op("add", first, b.op("mul", k, constant(self.width, I64)))
        self.memory.store(b, position([place], lanes), value)


def allocate_panels(
    b: Builder, dtype: DType, width: int, depth: int, extent: int, lanes: int, hint: str, pairs: bool = False
) -> Panels:
    stride = _stride(width, depth, lanes)
    return Panels(allocate(b, dtype, (-(-extent // width) * width * stride,), hint), width, depth, stride, pairs)


def panels_at(place: LlvmValue, width: int, depth: int, extent: int, lanes: int) -> Panels:
    """Float32 panels at an address."""
    stride = _stride(width, depth, lanes)
    return Panels(StackTile(place, float32, (-(-extent // width) * width * stride,)), width, depth, stride)


def panel_bytes(shape: tuple[int, ...], right: bool, width: int, lanes: int) -> int:
    """Bytes of an operand in panels."""
    extent, depth = reversed(shape) if right else shape
    bytes = -(-extent // width) * width * _stride(width, depth, lanes) * float32.bytes
    return -(-bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


def _stride(width: int, depth: int, lanes: int) -> int:
    return depth + max(1, -(-lanes // width) - 1)


def pack_operand(nests: LoopNests, x: ir.Tile, right: bool, width: int, place: LlvmValue) -> None:
    """Pack an operand into panels at an address: over (i, k) if it is a left one, over (k, i) if it is a right one."""
    e, lanes = nests.e, nests.target.lanes(float32.bytes)
    shape = e.types.of(x).shape
    extent, depth = reversed(shape) if right else shape
    made = panels_at(place, width, depth, extent, lanes)
    transposed = transposed_operand(e, x)
    e.begin_nest()
    if right is (transposed is None):
        pack(nests, made, x if transposed is None else transposed, extent, lanes)
    else:
        pack_transposed(nests, made, x if transposed is None else transposed, extent, lanes)
    e.begin_nest()


def pack(nests: LoopNests, to: Panels, x: ir.Tile, extent: int, lanes: int) -> None:
    """Pack an expression over (k, i). A vector may be longer than a panel is wide: the next k overwrites the excess.

    Plain loads are packed row by row; expressions that compute indices, panel by panel, so that what depends on its
    columns is computed once.
    """
    b, aligned = nests.b, to.width % lanes == 0
    wide = -(-to.width // lanes) * lanes
    safe = max(0, (extent - wide) // to.width + 1) * to.width
    if safe and _is_contiguous(nests.e, x, lanes if aligned else 0):
        count = next(n for n in (PANEL_DEPTH_AT_ONCE, 4, 2, 1) if to.depth % n == 0) if wide > to.width else 1
        outer = nests.loop("k", 0, to.depth, count)
        inner = nests.loop("panel", 0, safe, to.width)
        for n in range(count):
            at = position((outer.index, inner.index), lanes, aligned=aligned)
            ahead = b.op("add", outer.index, constant(n + PANEL_PREFETCH_ROWS, I64))
            ahead = b.op("mul", ahead, constant(2, I64)) if to.pairs else ahead
            _prefetch(nests, x, at.moved(ahead, inner.index, lanes=0))
            _pack_row(nests, to, x, at.moved(b.op("add", outer.index, constant(n, I64)), inner.index), to.width)
        b.close_loop(inner)
        b.close_loop(outer)
    elif safe:
        tabulate(nests, x, 0)
        outer = nests.loop("panel", 0, safe, to.width)
        inner = nests.loop("k", 0, to.depth, 1)
        _pack_row(nests, to, x, position((inner.index, outer.index), lanes, aligned=aligned), to.width)
        b.close_loop(inner)
        b.close_loop(outer)
    for block in range(safe, extent, to.width):
        loop = nests.loop("k", 0, to.depth, 1)
        at = position((loop.index, constant(block, I64)), lanes, aligned=aligned)
        _pack_row(nests, to, x, at, min(to.width, extent - block))
        b.close_loop(loop)


def _prefetch(nests: LoopNests, x: ir.Tile, at: Position) -> None:
    """Prefetch rows that are too far apart for the hardware prefetcher."""
    e, x = nests.e, nests.e.definition(x)
    if isinstance(x, ir.Load):
        stride = e.affine.step(x.pointer, -2) or 0
        if stride * e.types.of(x).dtype.bytes >= MIN_PANEL_PREFETCH_STRIDE_BYTES:
            e.b.prefetch(e.evaluate(x.pointer, at, int32), 1)


def _pack_row(nests: LoopNests, to: Panels, x: ir.Tile, at: Position, count: int) -> None:
    """Pack one k of a panel with `count` columns."""
    b, (k, block), lanes = nests.b, at.indices, at.lanes
    for inside in range(0, count, lanes):
        active = count - inside if block.is_constant and count - inside < lanes else None
        place = at.moved(k, b.op("add", block, constant(inside, I64)))._replace(active=active)
        to.store(b, block, constant(inside, I64), k, to.read(nests.e, x, place), lanes)


def tabulate(nests: LoopNests, x: ir.Tile, axis: int) -> None:
    """Store index expressions of one axis that divide in tables: they are evaluated again for each panel."""
    e = nests.e
    for y in _one_axis_indices(e, x, axis):
        divides = any(isinstance(z, ir.Apply) and z.fn in DIVISIONS for z in e.subexpressions(y))
        if divides and id(y) not in e.computed:
            t = e.types.of(y)
            memory = allocate(e.b, t.dtype, t.shape, "table")
            nests.store_tile(memory, y)
            e.computed[id(y)] = memory


def _one_axis_indices(e: ElementEvaluator, x: ir.Tile, axis: int) -> list[ir.Tile]:
    """Integer expressions of one axis inside an expression of two."""
    found = []
    for y in e.subexpressions(x):
        match y:
            case ir.ExpandDims(z, (other,)) if other == 1 - axis and e.types.of(z).dtype is int32:
                found.append(z)
    return found


def _is_contiguous(e: ElementEvaluator, x: ir.Tile, lanes: int) -> bool:
    """Whether an expression only loads contiguous memory."""
    loads = e.loads(x)
    return all(y.mask is None and e.affine.step(y.pointer, lanes=lanes) in (0, 1) for y in loads)


def pack_transposed(nests: LoopNests, to: Panels, x: ir.Tile, extent: int, lanes: int) -> None:
    """Pack an expression over (i, k) that is contiguous along k: transpose squares of vectors in registers.

    The last square along k overlaps the one before it; rows past the end repeat the last one.
    """
    e, b = nests.e, nests.b
    tabulate(nests, x, 1)
    panel = nests.loop("panel", 0, extent, to.width)
    along = nests.loop("k", 0, to.depth, lanes)
    k = along.index
    if to.depth % lanes:
        k = b.intrinsic("smin", k, constant(max(0, to.depth - lanes), I64))
    for square in reversed(range(0, to.width, lanes)):  # excess past the panel is overwritten by the first square
        first = b.op("add", panel.index, constant(square, I64))
        places = [b.op("add", first, constant(n, I64)) for n in range(lanes)]
        if extent % to.width or to.width % lanes:
            places = [b.intrinsic("smin", place, constant(extent - 1, I64)) for place in places]
        at = position((), lanes, active=to.depth if to.depth < lanes else None, aligned=to.depth % lanes == 0)
        rows = [to.read_along(e, x, at.moved(place, k)) for place in places]
        for n, row in enumerate(transpose_square(b, rows)[: to.depth]):
            to.store(b, panel.index, constant(square, I64), b.op("add", k, constant(n, I64)), row, lanes)
    for loop in (along, panel):
        b.close_loop(loop)


def transposed_operand(e: ElementEvaluator, x: ir.Tile, lanes: int = 0) -> ir.Tile | None:
    """Transpose the expression of an operand whose memory has the other layout; `lanes`: within aligned vectors."""
    shape = e.types.of(x).shape
    loads = [y for y in e.loads(x) if e.types.of(y).shape == shape]
    if not loads or any(e.affine.step(y.pointer) == 1 or e.affine.step(y.pointer, -2, lanes=lanes) != 1 for y in loads):
        return None
    return transposed_expression(e, x)


def transposed_expression(
    e: ElementEvaluator, x: ir.Tile, made: dict[int, ir.Tile | None] | None = None
) -> ir.Tile | None:
    """Transpose an expression of two axes; `made` memoises shared subexpressions."""
    if isinstance(x, ir.Literal) or len(e.types.of(x).shape) < 2:
        return None if not isinstance(x, ir.Literal) and e.types.of(x).shape else x
    made = {} if made is None else made
    x = e.definition(x)
    if id(x) not in made:
        made[id(x)] = _transposed(e, x, made)
    return made[id(x)]


def _transposed(e: ElementEvaluator, x: ir.Tile, made: dict[int, ir.Tile | None]) -> ir.Tile | None:
    match x:
        case ir.Load(pointer, mask, other):
            transposed = [None if p is None else transposed_expression(e, p, made) for p in (pointer, mask, other)]
            if any(p is not None and t is None for p, t in zip((pointer, mask, other), transposed, strict=True)):
                return None
            return ir.Load(transposed[0], transposed[1], transposed[2])  # type: ignore[arg-type]
        case ir.Apply(fn, args):
            transposed = [transposed_expression(e, a, made) for a in args]
            return None if any(a is None for a in transposed) else ir.Apply(fn, tuple(transposed))  # type: ignore[arg-type]
        case ir.Cast(y, dtype):
            inner = transposed_expression(e, y, made)
            return None if inner is None else ir.Cast(inner, dtype)
        case ir.ExpandDims(y, axes) if len(axes) == 1:
            return ir.ExpandDims(y, (1 - axes[0],))
        case ir.BroadcastTo(y, (m, n)):
            inner = transposed_expression(e, y, made)
            return None if inner is None else ir.BroadcastTo(inner, (n, m))
        case ir.Full((m, n), value, dtype):
            return ir.Full((n, m), value, dtype)
    return None
