"""Operands of products, packed for the innermost loop to read straight on.

A panel has some rows (of the left operand) or columns (of the right one), one k after another: what a block of the
result needs lies together, whatever the shape of the tensor it comes from. Operands that lie the other way in
memory are turned while they are packed, the right one by squares in registers.
"""

from __future__ import annotations

from typing import NamedTuple

from ....ir import tile as ir
from ....ir.dtype import DType
from ..emit import I64, Value, constant
from .elements import Elements, Memory
from .nests import Nests

TOGETHER = 8
"""So many k are packed for all panels before the next ones: their lines of memory stay in the first cache."""


class Panels(NamedTuple):
    """A packed operand: element (k, i) of the panel that begins at `block` is number block * stride + k * width + i."""

    memory: Memory
    width: int
    depth: int

    @property
    def stride(self) -> int:
        """One k more than there are: a vector may be longer than a panel is wide, and panels lie in different sets."""
        return self.depth + 1

    def load(self, e: Elements, block: Value, inside: int, k: Value, lanes: int) -> Value:
        b = e.b
        first = b.op("add", b.op("mul", block, constant(self.stride, I64)), constant(inside, I64))
        return e.load(self.memory, [b.op("add", first, b.op("mul", k, constant(self.width, I64)))], lanes)

    def keep(self, e: Elements, block: Value, inside: int, k: Value, value: Value, lanes: int) -> None:
        b = e.b
        first = b.op("add", b.op("mul", block, constant(self.stride, I64)), constant(inside, I64))
        e.keep(self.memory, [b.op("add", first, b.op("mul", k, constant(self.width, I64)))], value, lanes)


def panels(e: Elements, dtype: DType, width: int, depth: int, extent: int, hint: str) -> Panels:
    return Panels(e.allocate(dtype, (-(-extent // width) * width * (depth + 1),), hint), width, depth)


def pack(nests: Nests, to: Panels, x: ir.Tile, extent: int, lanes: int) -> None:
    """Packs an expression over (k, i). A vector may be longer than a panel is wide: the next k follows."""
    e, b, dtype = nests.e, nests.b, to.memory.dtype

    def vectors(k: Value, block: Value, left: int | None) -> None:
        for inside in range(0, to.width if left is None else min(left, to.width), lanes):
            e.active = None if left is None or left - inside >= lanes else left - inside
            value = e.of(x, [k, b.op("add", block, constant(inside, I64))], lanes, dtype)
            e.active = None
            to.keep(e, block, inside, k, value, lanes)

    def panel(first: Value, count: int, block: Value, left: int | None) -> None:
        for n in range(count):
            e.memo = {}
            vectors(b.op("add", first, constant(n, I64)), block, left)

    def row(first: Value, count: int) -> None:
        """Some k of all panels."""
        if safe:
            loop = nests.loop("panel", 0, safe, to.width)
            panel(first, count, loop.index, None)
            b.close_loop(loop)
        for block in range(safe, extent, to.width):
            panel(first, count, constant(block, I64), extent - block)

    wide = -(-to.width // lanes) * lanes
    safe = max(0, (extent - wide) // to.width + 1) * to.width
    count = 1 if wide == to.width else TOGETHER
    whole = to.depth // count * count
    if whole:
        loop = nests.loop("k", 0, whole, count)
        row(loop.index, count)
        b.close_loop(loop)
    if whole < to.depth:
        row(constant(whole, I64), to.depth - whole)


def pack_turned(nests: Nests, to: Panels, x: ir.Tile, extent: int, lanes: int) -> None:
    """Packs an expression over (i, k) that lies along k: squares of vectors are turned in registers."""
    e, b, dtype = nests.e, nests.b, to.memory.dtype
    deep = to.depth // lanes * lanes
    full = extent // to.width * to.width
    if deep and full:
        outer = nests.loop("panel", 0, full, to.width)
        inner = nests.loop("k", 0, deep, lanes)
        for inside in range(0, to.width, lanes):
            places = [b.op("add", outer.index, constant(inside + n, I64)) for n in range(lanes)]
            rows = [e.of(x, [place, inner.index], lanes, dtype) for place in places]
            for n, row in enumerate(_turned(nests, rows)):
                to.keep(e, outer.index, inside, b.op("add", inner.index, constant(n, I64)), row, lanes)
        b.close_loop(inner)
        b.close_loop(outer)
    for start, stop, first in ((0, full, deep), (full, extent, 0)):  # what is left of k, and of the panels
        for inside in range(to.width if first < to.depth else 0):
            if start + inside < stop:
                outer = nests.loop("panel", start, stop - inside, to.width)
                inner = nests.loop("k", first, to.depth, 1)
                value = e.of(x, [b.op("add", outer.index, constant(inside, I64)), inner.index], 0, dtype)
                to.keep(e, outer.index, inside, inner.index, value, 0)
                b.close_loop(inner)
                b.close_loop(outer)


def _turned(nests: Nests, rows: list[Value]) -> list[Value]:
    """The columns of a square of vectors, by shuffles of pairs."""
    lanes = len(rows)
    step = 1
    while step < lanes:
        made = list(rows)
        for first in range(lanes):
            if first & step:
                continue
            x, y = rows[first], rows[first + step]
            low = [n if not n & step else lanes + (n - step) for n in range(lanes)]
            high = [(n + step) if not n & step else lanes + n for n in range(lanes)]
            made[first], made[first + step] = nests.b.shuffle(x, y, low), nests.b.shuffle(x, y, high)
        rows = made
        step *= 2
    return rows


def defined(e: Elements, x: ir.Tile) -> ir.Tile:
    """What a name stands for, if it stands for an expression."""
    while isinstance(x, ir.Name) and x.name in e.lazy:
        x = e.lazy[x.name]
    return x


def across(e: Elements, x: ir.Tile) -> ir.Tile | None:
    """An operand with its axes exchanged, if it lies in memory that way."""
    shape = e.types.of(x).shape
    loads = [y for y in _below(e, x) if isinstance(y, ir.Load) and e.types.of(y).shape == shape]
    if not loads or any(e.step(y.pointer) == 1 or e.step(y.pointer, -2) != 1 for y in loads):
        return None
    return _exchanged(e, x)


def _below(e: Elements, x: ir.Tile) -> list[ir.Tile]:
    """The expressions below one, through names that stand for expressions; not those inside addresses."""
    found: list[ir.Tile] = []
    stack = [x]
    while stack:
        x = defined(e, stack.pop())
        found.append(x)
        if not isinstance(x, ir.Load):
            stack.extend(ir.parts(x))
    return found


def _exchanged(e: Elements, x: ir.Tile) -> ir.Tile | None:
    """An expression of two axes with its axes exchanged."""
    if isinstance(x, ir.Literal) or len(e.types.of(x).shape) < 2:
        return None if not isinstance(x, ir.Literal) and e.types.of(x).shape else x
    x = defined(e, x)
    match x:
        case ir.Load(pointer, mask, other):
            parts = [pointer, mask, other]
            made = [None if p is None else _exchanged(e, p) for p in parts]
            if any(p is not None and m is None for p, m in zip(parts, made, strict=True)):
                return None
            return ir.Load(made[0], made[1], made[2])  # type: ignore[arg-type]
        case ir.Apply(fn, args):
            turned = [_exchanged(e, a) for a in args]
            return None if any(a is None for a in turned) else ir.Apply(fn, tuple(turned))  # type: ignore[arg-type]
        case ir.Cast(y, dtype):
            inner = _exchanged(e, y)
            return None if inner is None else ir.Cast(inner, dtype)
        case ir.Expand(y, axes) if len(axes) == 1:
            return ir.Expand(y, (1 - axes[0],))
        case ir.BroadcastTo(y, (m, n)):
            inner = _exchanged(e, y)
            return None if inner is None else ir.BroadcastTo(inner, (n, m))
        case ir.Full((m, n), value, dtype):
            return ir.Full((n, m), value, dtype)
    return None
