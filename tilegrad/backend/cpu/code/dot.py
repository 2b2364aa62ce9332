"""Products of tiles: blocks of the result held in registers while k runs.

A block is some rows by two vectors, as many as leave registers for the operands. The left operand is read number
by number wherever it lies. The right one is read by vectors: it is packed first (rows of a large matrix lie in a
page each), by squares transposed in registers where it lies along the other axis; for a few rows from where it lies.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from ....ir import tile as ir
from .. import vectors
from ..emit import I64, Type, Value, constant
from .elements import At, Memory
from .nests import Nests


UNROLLED = 4
"""Turns of the innermost loop that are written out."""

Line: TypeAlias = Callable[[Value], Value]
"""Gives the element of a row at some k."""


def dot(nests: Nests, out: Memory, x: ir.Tile, y: ir.Tile, accumulator: ir.Tile | None) -> None:
    """out = x @ y + accumulator."""
    _Dot(nests, out, x, y).write(accumulator)


class _Dot:
    def __init__(self, nests: Nests, out: Memory, x: ir.Tile, y: ir.Tile) -> None:
        self.nests, self.e, self.b, self.out = nests, nests.e, nests.b, out
        self.dtype = out.dtype
        self.lanes = nests.target.lanes(self.dtype.bytes)
        self.m, self.n = out.shape
        self.k = self.e.types.of(x).shape[1]
        self.rows = max(1, (nests.target.registers - 4) // 2)
        self.left = x if self._is_plain(x) or self.n <= self.lanes else self._packed(x, (self.m, self.k), "left")
        along = self.m <= 2 * self.rows and self._is_plain(y) and self._step(y) == 1 and self.n % self.lanes == 0
        self.right = y if along else self._packed_right(y)

    def _defined(self, x: ir.Tile) -> ir.Tile:
        while isinstance(x, ir.Name) and x.name in self.e.lazy:
            x = self.e.lazy[x.name]
        return x

    def _is_plain(self, x: ir.Tile) -> bool:
        """Whether elements come from memory as they are."""
        x = self._defined(x)
        return isinstance(x, ir.Load) and x.mask is None and self.e.types.of(x).dtype is self.dtype

    def _step(self, x: ir.Tile, axis: int = -1) -> int | None:
        x = self._defined(x)
        return self.e.step(x.pointer, axis) if isinstance(x, ir.Load) else None

    def _packed(self, x: ir.Tile, shape: tuple[int, int], hint: str) -> Memory:
        memory = self.e.allocate(self.dtype, shape, hint)
        self.nests.keep(memory, self._converted(x))
        return memory

    def _converted(self, x: ir.Tile) -> ir.Tile:
        return x if self.e.types.of(x).dtype is self.dtype else ir.Cast(x, self.dtype)

    def _packed_right(self, y: ir.Tile) -> Memory:
        """The right operand row by row."""
        shape = (self.k, self.n)
        loads = [x for x in _below(self, y) if isinstance(x, ir.Load) and self.e.types.of(x).shape == shape]
        across = [x for x in loads if self.e.step(x.pointer) != 1 and self.e.step(x.pointer, -2) == 1]
        turned = Turned(self).of(self._converted(y)) if across and len(across) == len(loads) else None
        if turned is None:
            return self._packed(y, shape, "right")
        memory = self.e.allocate(self.dtype, shape, "right")
        self._transpose(memory, turned)
        return memory

    def _transpose(self, memory: Memory, turned: ir.Tile) -> None:
        """Packs an operand that lies along k: squares of vectors are turned in registers."""
        lanes, e, b = self.lanes, self.e, self.b
        square_k, square_n = self.k // lanes * lanes, self.n // lanes * lanes
        if square_k and square_n:
            outer = self.nests.loop("n", 0, square_n, lanes)
            inner = self.nests.loop("k", 0, square_k, lanes)
            rows = [
                e.of(turned, [b.op("add", outer.index, constant(r, I64)), inner.index], lanes, self.dtype)
                for r in range(lanes)
            ]
            for r, row in enumerate(_turned(self, rows)):
                e.keep(memory, [b.op("add", inner.index, constant(r, I64)), outer.index], row, lanes)
            b.close_loop(inner)
            b.close_loop(outer)
        self._transpose_rest(memory, turned, 0, square_n, square_k, self.k)
        self._transpose_rest(memory, turned, square_n, self.n, 0, self.k)

    def _transpose_rest(self, memory: Memory, turned: ir.Tile, n0: int, n1: int, k0: int, k1: int) -> None:
        if n0 == n1 or k0 == k1:
            return
        outer = self.nests.loop("n", n0, n1, 1)
        inner = self.nests.loop("k", k0, k1, 1)
        self.e.keep(memory, [inner.index, outer.index], self.e.of(turned, [outer.index, inner.index], 0, self.dtype), 0)
        self.b.close_loop(inner)
        self.b.close_loop(outer)

    def write(self, accumulator: ir.Tile | None) -> None:
        """The blocks of the result, rows of blocks inside columns of blocks: a column of y stays in the cache."""
        if accumulator is not None and not self._accumulates_here(accumulator):
            self.nests.keep(self.out, accumulator)
        fresh = accumulator is None
        full = self.n // (2 * self.lanes) * 2 * self.lanes
        if full:
            loop = self.nests.loop("n", 0, full, 2 * self.lanes)
            self._columns(loop.index, 2, None, fresh)
            self.b.close_loop(loop)
        for start in range(full, self.n, self.lanes):
            left = self.n - start
            self._columns(constant(start, I64), 1, left if left < self.lanes else None, fresh)

    def _accumulates_here(self, accumulator: ir.Tile) -> bool:
        return isinstance(accumulator, ir.Name) and self.e.memory.get(accumulator.name) == self.out

    def _columns(self, column: Value, wide: int, active: int | None, fresh: bool) -> None:
        done = self.m // self.rows * self.rows
        if done:
            loop = self.nests.loop("m", 0, done, self.rows)
            self._block(loop.index, self.rows, column, wide, active, fresh)
            self.b.close_loop(loop)
        if done < self.m:
            self._block(constant(done, I64), self.m - done, column, wide, active, fresh)

    def _block(self, row: Value, rows: int, column: Value, wide: int, active: int | None, fresh: bool) -> None:
        b, e = self.b, self.e
        e.begin()
        places: list[At] = [
            [b.op("add", row, constant(r, I64)), b.op("add", column, constant(v * self.lanes, I64))]
            for r in range(rows)
            for v in range(wide)
        ]
        zero = constant(0.0 if self.dtype.is_float else 0, vectors.lanes_type(self.dtype, self.lanes))
        sums = [zero if fresh else e.load(self.out, at, self.lanes) for at in places]
        lines = [self._line(b.op("add", row, constant(r, I64))) for r in range(rows)]
        columns = [b.op("add", column, constant(v * self.lanes, I64)) for v in range(wide)]
        together = self.k // UNROLLED * UNROLLED
        if together:
            loop = self.nests.loop("k", 0, together, UNROLLED, [(f"c{n}", x) for n, x in enumerate(sums)])
            sums = list(loop.carried)
            for u in range(UNROLLED):
                sums = self._step_on(lines, columns, b.op("add", loop.index, constant(u, I64)), sums)
            sums = list(b.close_loop(loop, sums))
        for u in range(together, self.k):
            e.memo = {}
            sums = self._step_on(lines, columns, constant(u, I64), sums)
        results = sums
        e.begin()
        e.active = active
        for at, value in zip(places, results, strict=True):
            e.keep(self.out, at, value, self.lanes)
        e.active = None

    def _step_on(self, lines: list[Line], columns: list[Value], k: Value, sums: list[Value]) -> list[Value]:
        """The sums with what one k adds to them."""
        ys = [self._right(k, column) for column in columns]
        added = []
        for r, line in enumerate(lines):
            x = self.b.splat(line(k), self.lanes)
            added += [self._added(x, y, sums[r * len(ys) + v]) for v, y in enumerate(ys)]
        return added

    def _line(self, row: Value) -> Line:
        """How the elements of a row of the left operand are read."""
        e, b = self.e, self.b
        if isinstance(self.left, Memory):
            memory = self.left
            return lambda k: e.load(memory, [row, k], 0)
        x, step = self._defined(self.left), self._step(self.left)
        if not isinstance(x, ir.Load) or step is None or not self._is_plain(x):
            converted = self._converted(self.left)
            return lambda k: e.of(converted, [row, k], 0, self.dtype)
        first = e.of(x.pointer, [row, constant(0, I64)], 0, self.dtype)
        element = Type(vectors.memory_element(self.dtype))

        def read(k: Value) -> Value:
            at = b.offset(first, element.element, b.op("mul", k, constant(step, I64)) if step != 1 else k)
            return vectors.from_memory(b, e.once(at, element, self.dtype.bytes), self.dtype)

        return read

    def _right(self, k: Value, column: Value) -> Value:
        if isinstance(self.right, Memory):
            return self.e.load(self.right, [k, column], self.lanes)
        return self.e.of(self.right, [k, column], self.lanes, self.dtype)

    def _added(self, x: Value, y: Value, total: Value) -> Value:
        if self.dtype.is_float:
            return self.b.intrinsic("fma", x, y, total)
        return self.b.op("add", self.b.op("mul", x, y), total)


def _below(dot: _Dot, x: ir.Tile) -> list[ir.Tile]:
    """The expressions below one, through names that stand for expressions; not those inside addresses."""
    found: list[ir.Tile] = []
    stack = [x]
    while stack:
        x = dot._defined(stack.pop())
        found.append(x)
        if not isinstance(x, ir.Load):
            stack.extend(ir.parts(x))
    return found


class Turned:
    """An expression of two axes with its axes exchanged."""

    def __init__(self, dot: _Dot) -> None:
        self.dot, self.e = dot, dot.e

    def of(self, x: ir.Tile) -> ir.Tile | None:
        if isinstance(x, ir.Literal) or len(self.e.types.of(x).shape) < 2:
            return None if not isinstance(x, ir.Literal) and self.e.types.of(x).shape else x
        x = self.dot._defined(x)
        match x:
            case ir.Load(pointer, mask, other):
                parts = [pointer, mask, other]
                made = [None if p is None else self.of(p) for p in parts]
                if any(p is not None and m is None for p, m in zip(parts, made, strict=True)):
                    return None
                return ir.Load(made[0], made[1], made[2])  # type: ignore[arg-type]
            case ir.Apply(fn, args):
                turned = [self.of(a) for a in args]
                return None if any(a is None for a in turned) else ir.Apply(fn, tuple(turned))  # type: ignore[arg-type]
            case ir.Cast(y, dtype):
                inner = self.of(y)
                return None if inner is None else ir.Cast(inner, dtype)
            case ir.Expand(y, axes) if len(axes) == 1:
                return ir.Expand(y, (1 - axes[0],))
            case ir.BroadcastTo(y, (m, n)):
                inner = self.of(y)
                return None if inner is None else ir.BroadcastTo(inner, (n, m))
            case ir.Full((m, n), value, dtype):
                return ir.Full((n, m), value, dtype)
        return None


def _turned(dot: _Dot, rows: list[Value]) -> list[Value]:
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
            made[first], made[first + step] = dot.b.shuffle(x, y, low), dot.b.shuffle(x, y, high)
        rows = made
        step *= 2
    return rows
