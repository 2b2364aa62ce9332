"""Emit loop nests over tiles: stores, and tiles on the stack."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

from ....ir import tile as ir
from ....ir.dtype import DType, bool_
from .. import vectors
from ..emit import I64, Builder, LlvmValue, OpenLoop, constant
from ..target import Target
from .elements import ElementEvaluator
from .low_precision_forms import LowPrecisionForm, low_precision_form
from .memory import StackTile, scatter, store_element, store_vector, under_mask
from .position import Position, position

EmitBody: TypeAlias = Callable[[Position], None]
"""Emits code at a position."""
EmitVector: TypeAlias = Callable[[Position, LlvmValue], None]
"""The same with a vector that was computed there."""


class LoopNests:
    """Emits the loops of one kernel."""

    def __init__(self, elements: ElementEvaluator, target: Target) -> None:
        self.e, self.b, self.target = elements, elements.b, target
        self.reusable: dict[str, int] = {}
        """Memory of low-precision products that the next one may reuse: bytes by name."""
        self.prepacked_tiles: dict[tuple[ir.Tile, bool], ir.Tile] = {}
        """Addresses of operands prepacked for the matrix unit, by operand and side."""
        self.prepacked_panels: dict[tuple[ir.Tile, bool], ir.Tile] = {}
        """Addresses of operands prepacked in float32 panels, by operand and side."""
        self.multiply_adds_only = False
        """Whether all products use multiply-adds."""

    def form_of(self, x: ir.Dot) -> LowPrecisionForm | None:
        """Return the low-precision form in which a product is computed; None: by multiply-adds."""
        return None if self.multiply_adds_only else low_precision_form(self.target, self.e.types, x)

    def for_each(
        self, shape: tuple[int, ...], body: EmitBody, dtype: DType, vectorised: bool = True, step: int = 1
    ) -> None:
        """Emit a body over a shape: by vectors along the last axis, the last of which may be partial, or by steps."""
        self.e.begin_nest()
        if not shape:
            body(position())
        elif 0 not in shape:
            self._for_each(shape, body, dtype, vectorised, step)
        else:
            return
        self.e.begin_nest()

    def _for_each(self, shape: tuple[int, ...], body: EmitBody, dtype: DType, vectorised: bool, step: int) -> None:
        opened, at = [], []
        for extent in shape[:-1]:
            if extent == 1:
                at.append(constant(0, I64))
                continue
            opened.append(self.loop("row", 0, extent, 1))
            at.append(opened[-1].index)
        if vectorised and shape[-1] > 1:
            self._along(shape[-1], self.target.lanes(max(4, dtype.bytes)), at, body)
        elif shape[-1] == step:
            body(position((*at, constant(0, I64)), aligned=True))
        else:
            loop = self.loop("at", 0, shape[-1], step)
            body(position((*at, loop.index), aligned=True))
            self.b.close_loop(loop)
        for loop in reversed(opened):
            self.b.close_loop(loop)

    def _along(self, extent: int, lanes: int, at: list[LlvmValue], body: EmitBody) -> None:
        full = extent // lanes * lanes
        if full == lanes:
            body(position((*at, constant(0, I64)), lanes, aligned=True))
        elif full:
            loop = self.loop("column", 0, full, lanes)
            body(position((*at, loop.index), lanes, aligned=True))
            self.b.close_loop(loop)
        if extent > full:
            body(position((*at, constant(full, I64)), lanes, active=extent - full, aligned=True))

    def loop(
        self, hint: str, start: int, stop: int, step: int, carried: Sequence[tuple[str, LlvmValue]] = ()
    ) -> OpenLoop:
        first, last, width = (constant(n, I64) for n in (start, stop, step))
        return self.b.open_loop(hint, first, last, width, carried, guarded=False, pinned=True)

    # --- tiles on the stack ----------------------------------------------------------------------

    def store_tile(self, memory: StackTile, value: ir.Tile, shape: tuple[int, ...] | None = None) -> None:
        """Store the elements of an expression on the stack; `shape`: the shape that it has before a reshape."""
        if self.is_transposed_copy(memory.dtype, memory.shape, value):
            assert isinstance(value, ir.Trans)
            self._store_transpose(memory, value)
            return
        if shape is not None and shape != memory.shape:
            memory = memory._replace(shape=shape)

        def write(at: Position) -> None:
            memory.store(self.b, at, self.e.evaluate(value, at, memory.dtype))

        self.for_each(memory.shape, write, memory.dtype)

    def is_transposed_copy(self, dtype: DType, shape: Sequence[int], value: ir.Tile) -> bool:
        """Whether a tile is a transpose that consists of whole squares of vectors."""
        lanes = self.target.lanes(dtype.bytes)
        transposed = isinstance(value, ir.Trans) and value.permutation == (1, 0)
        return transposed and dtype.bytes >= 4 and lanes > 1 and all(extent % lanes == 0 for extent in shape)

    def _store_transpose(self, memory: StackTile, value: ir.Trans) -> None:
        """Store a transpose, by squares that are transposed in registers."""
        e, b, lanes = self.e, self.b, self.target.lanes(memory.dtype.bytes)
        e.begin_nest()
        down = self.loop("row", 0, memory.shape[0], lanes)
        along = self.loop("column", 0, memory.shape[1], lanes)
        at = position(lanes=lanes, aligned=True)
        places = [at.moved(b.op("add", along.index, constant(n, I64)), down.index) for n in range(lanes)]
        rows = [e.evaluate(value.x, place, memory.dtype) for place in places]
        for n, row in enumerate(transpose_square(b, [b.splat(row, lanes) for row in rows])):
            memory.store(b, at.moved(b.op("add", down.index, constant(n, I64)), along.index), row)
        for loop in (along, down):
            b.close_loop(loop)
        e.begin_nest()

    def copy_tile(self, target: StackTile, source: StackTile) -> None:
        self.for_each(target.shape, lambda at: target.store(self.b, at, source.load(self.b, at)), target.dtype)

    # --- stores ----------------------------------------------------------------------------------

    def store_all(self, stores: Sequence[ir.Store]) -> None:
        """Emit stores of one shape in one nest, which computes common subexpressions once."""
        t = self.e.types.of(stores[0].pointer)

        def write(at: Position) -> None:
            for emit in [self.prepared_store(s, at) for s in stores]:
                emit()

        self.for_each(t.shape, write, t.dtype)

    def prepared_store(self, store: ir.Store, at: Position) -> Callable[[], None]:
        """Evaluate what is stored at a position; return a function that emits the store."""
        e, b, lanes = self.e, self.b, at.lanes
        t = e.types.of(store.pointer)
        bytes = t.dtype.bytes
        raw = vectors.to_memory(b, b.splat(e.operand(store.value, at, t.shape, t.dtype), lanes), t.dtype)
        mask = None if store.mask is None else e.operand(store.mask, at, t.shape, bool_)
        if lanes and e.lane_stride(store.pointer, at) != 1:
            addresses = b.splat(e.evaluate(store.pointer, at, t.dtype), lanes)
            return lambda: scatter(b, addresses, raw, self._with_active(mask, at), bytes)
        address = e.evaluate(store.pointer, at.element, t.dtype)
        if not lanes:
            return partial(store_element, b, address, raw, mask, bytes)
        if mask is None or mask.type.lanes:
            return lambda: store_vector(b, address, raw, bytes, self._with_active(mask, at), at.active)
        return lambda: under_mask(b, mask, lambda: store_vector(b, address, raw, bytes, at.mask, at.active))

    def _with_active(self, mask: LlvmValue | None, at: Position) -> LlvmValue | None:
        """Combine a mask with the lanes that exist."""
        existing = at.mask
        if mask is None or existing is None:
            return existing if mask is None else self.b.splat(mask, at.lanes)
        return self.b.op("and", self.b.splat(mask, at.lanes), existing)


def transpose_square(b: Builder, rows: list[LlvmValue]) -> list[LlvmValue]:
    """Transpose a square of vectors by pairwise shuffles."""
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
            made[first], made[first + step] = b.shuffle(x, y, low), b.shuffle(x, y, high)
        rows = made
        step *= 2
    return rows
