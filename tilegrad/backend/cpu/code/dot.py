"""Compute matrix products of tiles with register blocking: blocks of the result stay in registers along k.

A block is some rows by one to three vectors, as many as leave registers for the operands. Elements of the left operand
are broadcast: from panels (`packing.py`), or unpacked if rows are few. The right operand is read by vectors, from
panels, or unpacked for a few rows, for which packing does not pay. Blocks may exceed the result, whose memory is padded
(`padded_shape`): so one block size serves all positions, and code stays small.

8-bit integers are packed as pairs along k, of 16 bits each: processors multiply and add two of them at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, TypeAlias

from ....ir import tile as ir
from ....ir.dtype import int8, int32, uint8
from .. import vectors
from ..costs import (
    ALIASING_STRIDE_BYTES,
    MAX_ADDRESS_ROWS,
    MAX_ROW_EPILOGUE_DEPTH,
    MIN_ALIASING_SHAPE,
    MIN_EPILOGUE_PREFETCH_DEPTH,
    MIN_PACKED_VECTORS,
    MIN_PREFETCH_DEPTH,
    PREFETCH_BYTES,
    UNPACKED_VECTORS,
    UNPACKED_VECTORS_ANY_ROWS,
    UNROLLED_STEPS,
)
from ..emit import I64, PTR, LlvmValue, Type, constant
from .blocks import AxisRange, axis_ranges, register_block
from .memory import StackTile, allocate, store_vector
from .nests import EmitVector, LoopNests
from .packing import Panels, allocate_panels, pack, pack_transposed, panels_at, transposed_operand
from .position import Position, position
from .prefetch import PrefetchTile, prefetch_share, tiles_to_prefetch

FENCE = 'call void asm sideeffect "", "~{memory}"()'
"""A barrier for loads. LLVM hoists the next iteration's operands: with 28 sums in 32 registers, that would spill all
sums.
"""
MIN_SEPARATE_SUM_DEPTH = 64
"""Depth from which on a sum starts at zero and the accumulator is added last: errors grow with the number of terms."""
PAIR_MULTIPLY = {
    ("x86", 16): "llvm.x86.sse2.pmadd.wd",
    ("x86", 32): "llvm.x86.avx2.pmadd.wd",
    ("x86", 64): "llvm.x86.avx512.pmaddw.d.512",
}
"""Instructions that multiply pairs of 16-bit integers and add the products, by architecture and vector bytes."""

Reader: TypeAlias = Callable[[Position], LlvmValue]
"""Reads the element of a row, or a vector of columns, at some k."""


class Epilogue(NamedTuple):
    """An epilogue: computation on a product, block by block, instead of storing it."""

    emit: EmitVector
    """Emits it for a vector of the product at a position."""
    is_expensive: bool
    """Whether it is too long to be unrolled over all vectors of a block."""
    loads: tuple[ir.Load, ...]
    """Loads of the epilogue."""


def dot(nests: LoopNests, out: StackTile, x: ir.Dot) -> None:
    """Emit out = the product plus its accumulator."""
    e, (y, z, accumulator) = nests.e, (x.x, x.y, x.accumulator)
    here = isinstance(accumulator, ir.Name) and e.memory.get(accumulator.name) == out
    if accumulator is not None and not here:
        nests.store_tile(out, accumulator)
    fresh = accumulator is None
    form = nests.form_of(x)
    if form is None:
        _RegisterBlocked(nests, out, y, z).write(fresh)
    else:
        from . import low_precision

        low_precision.dot(nests, out, (y, z), form, not fresh, lambda: _RegisterBlocked(nests, out, y, z).write(fresh))


def dot_with_epilogue(nests: LoopNests, x: ir.Dot, finish: Epilogue) -> None:
    """Emit a product without accumulator whose blocks go through an epilogue."""
    t = nests.e.types.of(x)
    nowhere = StackTile(LlvmValue("null", PTR), t.dtype, t.shape)
    _RegisterBlocked(nests, nowhere, x.x, x.y).finish(finish)


class _RegisterBlocked:
    def __init__(self, nests: LoopNests, out: StackTile, x: ir.Tile, y: ir.Tile) -> None:
        self.nests, self.e, self.b, self.out = nests, nests.e, nests.b, out
        self.dtype = out.dtype
        self.lanes = nests.target.lanes(self.dtype.bytes)
        self.m, self.n = out.shape
        self.k = self.e.types.of(x).shape[1]
        self.multiply = self._multiplies_pairs(x, y)
        self.k = self.k // 2 if self.multiply else self.k
        self.block = register_block(nests.target, self.dtype, out.shape)
        self.has_few_rows = self.m <= nests.target.registers - 4
        self.left = self._prepacked(x, False) or self._packed_left(x)
        unpacked = self._stored_tile(y) or y if self._is_unpacked(y) else None
        self.prefetched = [] if self.has_few_rows and unpacked is not None else self._tiles_to_prefetch(x, y)
        self.right = self._prepacked(y, True) or unpacked or self._packed_right(y)

    def _tiles_to_prefetch(self, x: ir.Tile, y: ir.Tile) -> list[PrefetchTile]:
        """Tiles that the next iteration packs. Operands that few rows read unpacked are left to the hardware
        prefetcher.
        """
        if self.k < MIN_PREFETCH_DEPTH:
            return []
        # with 64-byte vectors, prefetching operands that fit the last-level cache makes products slower
        cache = self.nests.target.l3_bytes if self.nests.target.vector_bytes == 64 else 0
        operands = [z for z, right in ((x, False), (y, True)) if (z, right) not in self.nests.prepacked_panels]
        return tiles_to_prefetch(self.e, operands, cache)

    def _multiplies_pairs(self, x: ir.Tile, y: ir.Tile) -> str:
        """Choose the instruction that multiplies pairs of 16-bit integers, if operands are packed as such pairs."""
        short = all(self.e.types.of(z).dtype in (int8, uint8) for z in (x, y))
        if not short or self.dtype is not int32 or self.k % 2 or self.k < 2 * self.lanes:
            return ""
        return PAIR_MULTIPLY.get((self.nests.target.architecture, self.nests.target.vector_bytes), "")

    def _stored_tile(self, x: ir.Tile) -> StackTile | None:
        """Memory in which a tile is stored with the dtype of the product, if any."""
        x = self.e.definition(x)
        memory = self.e.memory.get(x.name) if isinstance(x, ir.Name) else None
        return memory if memory is not None and memory.dtype is self.dtype and memory != self.out else None

    def _is_unpacked(self, y: ir.Tile) -> bool:
        """Whether the right operand is read unpacked: for few rows, or if it stays in the L1 cache."""
        if self.n % (self.lanes * self.block.wide):
            return False
        stored, most = self._stored_tile(y), self.nests.target.l1_bytes // 2
        if stored is not None:
            return self.k * (stored.padded or stored.shape)[1] * self.dtype.bytes <= most
        if not self._is_plain_load(y) or self._column_stride(y) != 1:
            return False
        stride = self._row_stride(y)
        return self.has_few_rows or (stride is not None and self.k * stride * self.dtype.bytes <= most)

    def _row_stride(self, y: ir.Tile) -> int | None:
        """Stride between rows in memory."""
        y = self.e.definition(y)
        return self.e.affine.step(y.pointer, -2) if isinstance(y, ir.Load) else None

    def _prepacked(self, x: ir.Tile, right: bool) -> Panels | None:
        """Return the panels of a prepacked operand."""
        place = self.nests.prepacked_panels.get((x, right))
        if place is None:
            return None
        width, extent = (self.block.wide * self.lanes, self.n) if right else (self.block.rows, self.m)
        return panels_at(self.e.evaluate(place, position(), uint8), width, self.k, extent, self.lanes)

    def _is_plain_load(self, x: ir.Tile) -> bool:
        """Whether the operand is a load without mask or conversion."""
        x = self.e.definition(x)
        return isinstance(x, ir.Load) and x.mask is None and self.e.types.of(x).dtype is self.dtype

    def _column_stride(self, x: ir.Tile) -> int | None:
        x = self.e.definition(x)
        return self.e.affine.step(x.pointer) if isinstance(x, ir.Load) else None

    def _converted(self, x: ir.Tile) -> ir.Tile:
        return x if self.e.types.of(x).dtype is self.dtype else ir.Cast(x, self.dtype)

    @property
    def _is_read_unpacked(self) -> bool:
        """Whether few columns read the left operand, and one address register serves all rows of a block."""
        many = self.nests.target.registers - 4 > MAX_ADDRESS_ROWS * self.block.wide
        return many and self.n <= UNPACKED_VECTORS * self.lanes and self.m % self.block.rows == 0 and not self.multiply

    def _packed_left(self, x: ir.Tile) -> ir.Tile | StackTile | Panels:
        is_plain = self._is_plain_load(x) and self._column_stride(x) is not None
        if is_plain and self._is_read_unpacked and self._row_stride(x) is not None:
            return x
        return self._left_in_panels(x) or (x if is_plain else self._stored_tile(x) or self._evaluated_left(x))

    def _left_in_panels(self, x: ir.Tile) -> Panels | None:
        """Pack the left operand in panels of rows, if that pays."""
        is_wide = self.multiply or self.n > UNPACKED_VECTORS_ANY_ROWS * self.lanes
        transposed = transposed_operand(self.e, x) if is_wide else None
        if transposed is not None and (not self.has_few_rows or self.multiply):
            made = self._left_panels()
            pack(self.nests, made, self._converted(transposed), self.m, self.lanes)
            return made
        if transposed is None and (self.multiply or self._is_worth_transposing(x)):
            made = self._left_panels()
            pack_transposed(self.nests, made, self._converted(x), self.m, self.lanes)
            return made
        return None

    def _evaluated_left(self, x: ir.Tile) -> StackTile:
        memory = allocate(self.b, self.dtype, (self.m, self.k), "left")
        self.nests.store_tile(memory, self._converted(x))
        return memory

    def _left_panels(self) -> Panels:
        return self._panels(self.block.rows, self.m, "left")

    def _panels(self, width: int, extent: int, hint: str) -> Panels:
        return allocate_panels(self.b, self.dtype, width, self.k, extent, self.lanes, hint, bool(self.multiply))

    def _is_worth_transposing(self, x: ir.Tile) -> bool:
        """Whether to pack a left operand contiguous along k: its rows need too many addresses, or alias."""
        if self.k < self.lanes or self.n < MIN_PACKED_VECTORS * self.lanes:
            return False
        return not self._is_read_unpacked if self.block.rows > MAX_ADDRESS_ROWS else self._rows_alias(x)

    def _rows_alias(self, x: ir.Tile) -> bool:
        """Whether rows of a large left operand alias in the L2 cache."""
        stride = self._row_stride(x) if self._is_plain_load(x) else None
        if not stride or stride * self.dtype.bytes % (2 * ALIASING_STRIDE_BYTES):
            return False
        return all(n >= least for n, least in zip((self.m, self.k, self.n), MIN_ALIASING_SHAPE, strict=True))

    def _packed_right(self, y: ir.Tile) -> Panels:
        made = self._panels(self.block.wide * self.lanes, self.n, "right")
        self.e.begin_nest()
        transposed = transposed_operand(self.e, y, self.lanes if self.k % self.lanes == 0 else 0)
        if transposed is None:
            pack(self.nests, made, self._converted(y), self.n, self.lanes)
        else:
            pack_transposed(self.nests, made, self._converted(transposed), self.n, self.lanes)
        self.e.begin_nest()
        return made

    def write(self, fresh: bool) -> None:
        """Emit the result, rows of blocks inside columns of blocks: a column of y stays in the cache."""
        _, wide, tail = self.block
        end = -(-self.n // self.lanes)
        self._columns(0, end - tail if tail else -(-end // wide) * wide, wide, fresh)
        if tail:
            self._columns(end - tail, end, tail, fresh)

    def _columns(self, start: int, end: int, wide: int, fresh: bool) -> None:
        """Emit the blocks between two vectors of the columns."""
        outer = self.nests.loop("n", start * self.lanes, end * self.lanes, wide * self.lanes)
        inner = self.nests.loop("m", 0, self.m, self.block.rows)
        self._block(inner.index, outer.index, wide, fresh)
        self.b.close_loop(inner)
        self.b.close_loop(outer)

    def _block(self, row: LlvmValue, column: LlvmValue, wide: int, fresh: bool) -> None:
        b, e, rows = self.b, self.e, self.block.rows
        e.begin_nest()
        first, width = self.out.address_of(b, (row, column)), self.out.row_pitch
        steps = [r * width + v * self.lanes for r in range(rows) for v in range(wide)]
        places = [b.offset(first, self.out.element, constant(step, I64)) for step in steps]
        is_separate = not fresh and self.k >= MIN_SEPARATE_SUM_DEPTH
        sums = [self._zero if fresh or is_separate else self._result(at) for at in places]
        self._prefetch_operands(row, column)
        if self.k >= MIN_PREFETCH_DEPTH:
            self._prefetch_result(first, [step + rows * width for step in steps])
        sums = self._sums(position((row, column)), rows, wide, sums)
        e.begin_nest()
        for at, value in zip(places, sums, strict=True):
            if is_separate:
                value = b.op("fadd" if self.dtype.is_float else "add", self._result(at), value)
            store_vector(b, at, vectors.to_memory(b, value, self.dtype), self.dtype.bytes)

    def _prefetch_operands(self, row: LlvmValue, column: LlvmValue) -> None:
        """Prefetch a share of the next iteration's operands to the L2 cache."""
        if not self.prefetched:
            return
        b, width = self.b, self.block.wide * self.lanes
        rows, columns = -(-self.m // self.block.rows), -(-self.n // width)
        number = b.op("mul", b.op("udiv", column, constant(width, I64)), constant(rows, I64))
        number = b.op("add", number, b.op("udiv", row, constant(self.block.rows, I64)))
        prefetch_share(self.e, self.prefetched, number, rows * columns)

    @property
    def _zero(self) -> LlvmValue:
        return constant(0.0 if self.dtype.is_float else 0, vectors.lanes_type(self.dtype, self.lanes))

    def finish(self, finish: Epilogue) -> None:
        """Emit the result with an epilogue; no block exceeds the result.

        Rows of blocks are inside columns of blocks, since a column of y stays in the L1 cache. If sums are so short
        that memory bandwidth is the bound, columns are innermost: the epilogue then reads long rows.
        """
        rows, wide, _ = self.block
        width = wide * self.lanes
        self.buffer = allocate(self.b, self.dtype, (rows, width), "block") if finish.is_expensive else None
        down, across = axis_ranges("m", self.m, rows), axis_ranges("n", self.n, width)
        by_rows = bool(finish.loads) and self.k <= MAX_ROW_EPILOGUE_DEPTH
        for outer in down if by_rows else across:
            with self._block_starts(outer) as first:
                for inner in across if by_rows else down:
                    with self._block_starts(inner) as second:
                        at = (first, second) if by_rows else (second, first)
                        m, n = (outer, inner) if by_rows else (inner, outer)
                        self._block_with_epilogue(
                            finish, at, (m.size, -(-n.size // self.lanes)), n.size % self.lanes or None
                        )

    @contextmanager
    def _block_starts(self, piece: AxisRange) -> Iterator[LlvmValue]:
        """Positions of the blocks along an axis: those of a loop, or a constant."""
        if piece.end - piece.start == piece.size:
            yield constant(piece.start, I64)
        else:
            loop = self.nests.loop(piece.hint, piece.start, piece.end, piece.size)
            yield loop.index
            self.b.close_loop(loop)

    def _block_with_epilogue(
        self, finish: Epilogue, at: tuple[LlvmValue, LlvmValue], size: tuple[int, int], short: int | None
    ) -> None:
        b, e, (row, column), (rows, wide), start = self.b, self.e, at, size, position(at)
        e.begin_nest()
        if self.k >= MIN_EPILOGUE_PREFETCH_DEPTH:
            self._prefetch_epilogue(finish, start, rows)
        sums = self._sums(start, rows, wide, [self._zero] * (rows * wide))
        e.begin_nest()

        def emit_epilogue(row: LlvmValue, v: int, value: LlvmValue) -> None:
            index = (row, b.op("add", column, constant(v * self.lanes, I64)))
            active = short if v == wide - 1 else None
            finish.emit(position(index, self.lanes, active=active, aligned=True), value)

        if self.buffer is None:
            for n, value in enumerate(sums):
                emit_epilogue(b.op("add", row, constant(n // wide, I64)), n % wide, value)
        else:
            for n, value in enumerate(sums):
                index = (constant(n // wide, I64), constant(n % wide * self.lanes, I64))
                self.buffer.store(b, position(index, self.lanes), value)
            e.begin_nest()
            loop = self.nests.loop("r", 0, rows, 1)
            for v in range(wide):
                value = self.buffer.load(b, position((loop.index, constant(v * self.lanes, I64)), self.lanes))
                emit_epilogue(b.op("add", row, loop.index), v, value)
            b.close_loop(loop)
        e.begin_nest()

    def _prefetch_epilogue(self, finish: Epilogue, at: Position, rows: int) -> None:
        """Prefetch what the epilogue reads to the L1 cache while the block is computed."""
        for x in finish.loads:
            if self.e.affine.step(x.pointer) == 1 and self.e.affine.step(x.pointer, -2) != 0:
                for r in range(rows):
                    place = at.moved(self.b.op("add", at.indices[0], constant(r, I64)), at.indices[1])
                    self.b.prefetch(self.e.evaluate(x.pointer, place, self.dtype), 1)

    def _sums(self, at: Position, rows: int, wide: int, sums: list[LlvmValue]) -> list[LlvmValue]:
        """Emit the sums of a block over all k."""
        b, left = self.b, [self._left_reader(at, r) for r in range(rows)]
        right = [self._right_reader(at, v * self.lanes) for v in range(wide)]
        together = self.k // UNROLLED_STEPS * UNROLLED_STEPS
        if together:
            loop = self.nests.loop("k", 0, together, UNROLLED_STEPS, [(f"c{n}", x) for n, x in enumerate(sums)])
            sums, inner = list(loop.carried), position()
            for u in range(UNROLLED_STEPS):
                if u:
                    b.effect(FENCE)
                sums = self._one_step(left, right, inner.moved(b.op("add", loop.index, constant(u, I64))), sums)
            sums = list(b.close_loop(loop, sums))
        for u in range(together, self.k):
            sums = self._one_step(left, right, position([constant(u, I64)]), sums)
        return sums

    def _prefetch_result(self, first: LlvmValue, steps: list[int]) -> None:
        """Prefetch the next block of the result to the L1 cache."""
        for step in steps:
            if step * self.dtype.bytes % PREFETCH_BYTES == 0 or step == steps[0]:
                self.b.prefetch(self.b.offset(first, self.out.element, constant(step, I64)), 1)

    def _result(self, at: LlvmValue) -> LlvmValue:
        raw = self.b.load_invariant(at, Type(self.out.element, self.lanes), self.dtype.bytes)
        return vectors.from_memory(self.b, raw, self.dtype)

    def _one_step(self, left: list[Reader], right: list[Reader], k: Position, sums: list[LlvmValue]) -> list[LlvmValue]:
        """Emit one step along k."""
        ys = [read(k) for read in right]
        added = []
        for r, read in enumerate(left):
            x = self.b.splat(read(k), self.lanes)
            added += [self._multiply_add(x, y, sums[r * len(ys) + v]) for v, y in enumerate(ys)]
        return added

    def _left_reader(self, start: Position, r: int) -> Reader:
        """Return a reader of row r of a block of the left operand."""
        e, b, left, block = self.e, self.b, self.left, start.indices[0]
        if isinstance(left, Panels):
            return lambda at: left.load(b, block, r, at.indices[0], 0)
        row = b.op("add", block, constant(r, I64))
        if self.m % self.block.rows:
            row = b.intrinsic("smin", row, constant(self.m - 1, I64))
        if isinstance(left, StackTile):
            return lambda at: left.load(b, at.moved(row, *at.indices))
        x, step = e.definition(left), self._column_stride(left)
        if not isinstance(x, ir.Load) or step is None or not self._is_plain_load(x):
            converted = self._converted(left)
            return lambda at: e.evaluate(converted, at.moved(row, *at.indices), self.dtype)
        first = e.evaluate(x.pointer, start.moved(row, constant(0, I64)), self.dtype)
        return self._strided_reader(first, step, 0)

    def _right_reader(self, start: Position, inside: int) -> Reader:
        """Return a reader of a vector of columns of the right operand."""
        e, b, right, block, lanes = self.e, self.b, self.right, start.indices[1], self.lanes
        if isinstance(right, Panels):
            return lambda at: right.load(b, block, inside, at.indices[0], lanes)
        column = b.op("add", block, constant(inside, I64))
        if isinstance(right, StackTile):
            return lambda at: right.load(b, at.moved(*at.indices, column, lanes=lanes))
        stride, x = self._row_stride(right), e.definition(right)
        if stride is None or not isinstance(x, ir.Load):
            return lambda at: e.evaluate(right, at.moved(*at.indices, column, lanes=lanes), self.dtype)
        first = e.evaluate(x.pointer, start.moved(constant(0, I64), column), self.dtype)
        return self._strided_reader(first, stride, lanes)

    def _strided_reader(self, first: LlvmValue, stride: int, lanes: int) -> Reader:
        """Return a reader of memory at a stride along k."""
        b, type = self.b, Type(vectors.memory_element(self.dtype), lanes)

        def read(at: Position) -> LlvmValue:
            (k,) = at.indices
            place = b.offset(first, type.element, b.op("mul", k, constant(stride, I64)) if lanes or stride != 1 else k)
            return vectors.from_memory(b, b.load_invariant(place, type, self.dtype.bytes), self.dtype)

        return read

    def _multiply_add(self, x: LlvmValue, y: LlvmValue, total: LlvmValue) -> LlvmValue:
        if self.dtype.is_float:
            return self.b.intrinsic("fma", x, y, total)
        if self.multiply:
            type = Type("i16", 2 * self.lanes)
            halves = [self.b.pure(f"bitcast {z.type} {z} to {type}", type, (z,)) for z in (x, y)]
            return self.b.op("add", self.b.call(self.multiply, total.type, *halves), total)
        return self.b.op("add", self.b.op("mul", x, y), total)
