"""Emit loop nests over tiles: stores, stored tiles, reductions, scans."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ....ir import tile as ir
from ....ir.dtype import DType, bfloat16, bool_, float16, float32
from ....ir.functions import identity
from ....ir.tile_types import TileType
from .. import vectors
from ..emit import I64, LlvmValue, OpenLoop, constant, dtype_constant, lane_constants
from ..target import Target
from .bf16_reads import even_or_odd, reads_even_and_odd
from .elements import ElementEvaluator, Position, StackTile
from .first_extreme import reduce_arg
from .prefetch import prefetch_rows

EmitBody = Callable[[Position, int], None]
"""Emits code at a position, for a number of lanes (0: one element)."""
EmitVector = Callable[[Position, int, LlvmValue], None]
"""The same with a vector that was computed there."""

MAX_UNROLLED_ROWS = 16
"""Rows up to which a reduction is unrolled."""
ACCUMULATOR_COUNT = 4
"""Independent accumulators of a reduction along memory, which hide the latency of additions."""
MAX_ROWS_AT_ONCE, MIN_LONG_ROW = 4, 1024
"""Rows reduced at a time, and the row length from which on: several streams use more memory bandwidth than one."""


class LoopNests:
    """Emits the loops of one kernel."""

    def __init__(self, elements: ElementEvaluator, target: Target) -> None:
        self.e, self.b, self.target = elements, elements.b, target
        elements.across = self.across
        self.panels: dict[str, int] = {}
        """Memory of low-precision products that the next one may reuse: bytes by name."""
        self.packed: dict[tuple[ir.Tile, bool], ir.Tile] = {}
        """Addresses of operands prepacked for the matrix unit, by operand and side."""
        self.laid: dict[tuple[ir.Tile, bool], ir.Tile] = {}
        """Addresses of operands prepacked in float32 panels, by operand and side."""
        self.plain = False
        """Whether all products use multiply-adds."""

    def over(
        self, shape: tuple[int, ...], body: EmitBody, dtype: DType, vectorised: bool = True, step: int = 1
    ) -> None:
        """Emit a body over a shape: by vectors along the last axis, the last of which may be partial, or by steps."""
        self.e.begin()
        if not shape:
            body([], 0)
            self.e.begin()
            return
        if 0 in shape:
            return
        with self.e.vectors_begin_evenly():
            self._over(shape, body, dtype, vectorised, step)
        self.e.begin()

    def _over(self, shape: tuple[int, ...], body: EmitBody, dtype: DType, vectorised: bool, step: int) -> None:
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
            self.e.memo = {}
            body([*at, constant(0, I64)], 0)
        else:
            loop = self.loop("at", 0, shape[-1], step)
            body([*at, loop.index], 0)
            self.b.close_loop(loop)
        for loop in reversed(opened):
            self.b.close_loop(loop)

    def _along(self, extent: int, lanes: int, at: Position, body: EmitBody) -> None:
        full = extent // lanes * lanes
        if full == lanes:
            self.e.memo = {}
            body([*at, constant(0, I64)], lanes)
        elif full:
            loop = self.loop("column", 0, full, lanes)
            body([*at, loop.index], lanes)
            self.b.close_loop(loop)
        if extent > full:
            self.e.memo = {}
            self.e.active = extent - full
            body([*at, constant(full, I64)], lanes)
            self.e.active = None

    def loop(
        self, hint: str, start: int, stop: int, step: int, carried: Sequence[tuple[str, LlvmValue]] = ()
    ) -> OpenLoop:
        self.e.memo = {}
        first, last, width = (constant(n, I64) for n in (start, stop, step))
        return self.b.open_loop(hint, first, last, width, carried, guarded=False, pinned=True)

    # --- tiles that are kept, and stores ---------------------------------------------------------

    def keep(self, memory: StackTile, value: ir.Tile, shape: tuple[int, ...] | None = None) -> None:
        """Store the elements of an expression on the stack."""

        def write(at: Position, lanes: int) -> None:
            self.e.keep(memory, at, self.e.of(value, at, lanes, memory.dtype), lanes)

        if self.is_transposed_copy(memory.dtype, memory.shape, value):
            assert isinstance(value, ir.Trans)
            self._keep_turned(memory, value)
        elif shape is None or shape == memory.shape:
            self.over(memory.shape, write, memory.dtype)
        else:  # a reshape: the same elements in the same order
            self.over(
                shape,
                lambda at, lanes: self.e.keep(
                    memory._replace(shape=shape), at, self.e.of(value, at, lanes, memory.dtype), lanes
                ),
                memory.dtype,
            )

    def is_transposed_copy(self, dtype: DType, shape: Sequence[int], value: ir.Tile) -> bool:
        """Whether a tile is a transpose that consists of whole squares of vectors."""
        lanes = self.target.lanes(dtype.bytes)
        across = isinstance(value, ir.Trans) and value.permutation == (1, 0)
        return across and dtype.bytes >= 4 and lanes > 1 and all(extent % lanes == 0 for extent in shape)

    def _keep_turned(self, memory: StackTile, value: ir.Trans) -> None:
        """Store a transpose, by squares that are transposed in registers."""
        e, lanes = self.e, self.target.lanes(memory.dtype.bytes)
        e.begin()
        down = self.loop("row", 0, memory.shape[0], lanes)
        along = self.loop("column", 0, memory.shape[1], lanes)
        places = [self.b.op("add", along.index, constant(n, I64)) for n in range(lanes)]
        with e.vectors_begin_evenly():
            rows = [e.of(value.x, [place, down.index], lanes, memory.dtype) for place in places]
        rows = [self.b.splat(row, lanes) for row in rows]
        for n, row in enumerate(transpose_square(self, rows)):
            e.keep(memory, [self.b.op("add", down.index, constant(n, I64)), along.index], row, lanes)
        for loop in (along, down):
            self.b.close_loop(loop)
        e.begin()

    def copy(self, target: StackTile, source: StackTile) -> None:
        self.over(
            target.shape, lambda at, lanes: self.e.keep(target, at, self.e.load(source, at, lanes), lanes), target.dtype
        )

    def store(self, stores: Sequence[ir.Store]) -> None:
        """Emit stores of one shape in one nest, which computes common subexpressions once."""
        shape = self.e.types.of(stores[0].pointer).shape

        def write(at: Position, lanes: int) -> None:
            for finish in [self.stored(s, at, lanes) for s in stores]:
                finish()

        self.over(shape, write, self.e.types.of(stores[0].pointer).dtype)

    def stored(self, store: ir.Store, at: Position, lanes: int) -> Callable[[], None]:
        """Evaluate what is stored at a position; return a function that emits the store."""
        e, b = self.e, self.b
        t = e.types.of(store.pointer)
        raw = vectors.to_memory(b, b.splat(e.part(store.value, at, t.shape, lanes, t.dtype), lanes), t.dtype)
        where = None if store.mask is None else e.part(store.mask, at, t.shape, lanes, bool_)
        if lanes and e.lane_step(store.pointer, lanes) != 1:
            addresses = b.splat(e.of(store.pointer, at, lanes, t.dtype), lanes)
            return lambda: self._scatter(addresses, raw, self._present(where, lanes), t.dtype.bytes)
        address = e.of(store.pointer, at, 0, t.dtype)
        if not lanes:
            return lambda: self._store_one(address, raw, where, t.dtype)
        if where is None or where.type.lanes:
            return lambda: e.write(address, raw, t.dtype.bytes, self._present(where, lanes))
        return lambda: self._under_condition(where, lambda: e.write(address, raw, t.dtype.bytes, e.existing(lanes)))

    def _present(self, mask: LlvmValue | None, lanes: int) -> LlvmValue | None:
        """Combine a mask with the lanes that exist."""
        existing = self.e.existing(lanes)
        if mask is None or existing is None:
            return existing if mask is None else self.b.splat(mask, lanes)
        return self.b.op("and", self.b.splat(mask, lanes), existing)

    def _store_one(self, address: LlvmValue, raw: LlvmValue, mask: LlvmValue | None, dtype: DType) -> None:
        text = f"store {raw.type} {raw}, ptr {address}, align {dtype.bytes}"
        self._under_condition(mask, lambda: self.b.effect(text))

    def _under_condition(self, mask: LlvmValue | None, write: Callable[[], None]) -> None:
        """Emit code under a condition."""
        b = self.b
        if mask is None or mask.text == "true":
            write()
            return
        b.open_branch("write")
        write()
        then = b.close_branch()
        b.open_branch("skip")
        b.close_branches(mask, then, b.close_branch())

    def _scatter(self, address: LlvmValue, raw: LlvmValue, mask: LlvmValue | None, bytes: int) -> None:
        b = self.b
        mask = constant(True, raw.type.of("i1")) if mask is None else mask
        name = f"llvm.masked.scatter.{raw.type.short}.{address.type.short}"
        b.declarations.setdefault(name, f"declare void @{name}({raw.type}, {address.type}, i32, {mask.type})")
        b.effect(f"call void @{name}({raw.type} {raw}, {address.type} {address}, i32 {bytes}, {mask.type} {mask})")

    # --- reductions and scans --------------------------------------------------------------------

    def reduce(self, out: StackTile, fn: str, x: ir.Tile, axis: int) -> None:
        source = self.e.types.of(x)
        wide = _wide(source.dtype)
        if fn.startswith("arg"):
            reduce_arg(self, out, fn, x, axis)
        elif axis == len(source.shape) - 1:
            self._reduce_along(out, fn, x, source, wide)
        else:
            self._reduce_across(out, fn, x, axis, source, wide)

    def _reduce_along(self, out: StackTile, fn: str, x: ir.Tile, source: TileType, wide: DType) -> None:
        """Reduce the last axis: vectors, then lanes, in a fixed order."""
        b, e = self.b, self.e
        lanes = self.target.lanes(max(4, wide.bytes))
        extent = source.shape[-1]
        neutral = dtype_constant(identity(fn, wide), wide, lanes)
        pairs = reads_even_and_odd(e, x, fn, wide)
        together = _rows_at_once(source)
        chains = ACCUMULATOR_COUNT if together == 1 else ACCUMULATOR_COUNT // 2

        def read(at: Position) -> LlvmValue:
            return b.splat(vectors.cast(b, e.of(x, at, lanes, source.dtype), source.dtype, wide), lanes)

        def rows(at: Position, _: int) -> None:
            totals: list[list[LlvmValue]] = [[] for _ in range(together)]
            here = [[*at[:-1], b.op("add", at[-1], constant(n, I64))] if n else at for n in range(together)]
            done = extent // (lanes * chains) * lanes * chains
            if done:
                names = [f"part{n}" for n in range(together * chains)]
                loop = self.loop("k", 0, done, lanes * chains, [(name, neutral) for name in names])
                if pairs:
                    places = [b.op("add", loop.index, constant(n // 2 * 2 * lanes, I64)) for n in range(chains)]
                    found = [even_or_odd(e, x, [*r, p], lanes, n % 2 == 1) for r in here for n, p in enumerate(places)]
                else:
                    places = [b.op("add", loop.index, constant(n * lanes, I64)) for n in range(chains)]
                    found = [read([*r, p]) for r in here for p in places]
                parts = [vectors.apply(b, fn, wide, pair) for pair in zip(loop.carried, found, strict=True)]
                closed = list(b.close_loop(loop, parts))
                totals = [closed[n * chains : (n + 1) * chains] for n in range(together)]
            e.memo = {}
            for start in range(done, extent, lanes):
                left = extent - start
                e.active = left if left < lanes else None
                for r, total in zip(here, totals, strict=True):
                    value = read([*r, constant(start, I64)])
                    if left < lanes:
                        value = b.select(lane_constants([n < left for n in range(lanes)], "i1"), value, neutral)
                    total.append(value)
                e.active, e.memo = None, {}
            for r, total in zip(here, totals, strict=True):
                lane = self._across_lanes(fn, wide, self._combined(fn, wide, total))
                e.keep(out, r, vectors.cast(b, lane, wide, out.dtype), 0)

        self.over(out.shape, rows, wide, vectorised=False, step=together)

    def _combined(self, fn: str, dtype: DType, values: list[LlvmValue]) -> LlvmValue:
        """Combine values pairwise."""
        while len(values) > 1:
            pairs = [vectors.apply(self.b, fn, dtype, (x, y)) for x, y in zip(values[::2], values[1::2], strict=False)]
            values = pairs + values[len(pairs) * 2 :]
        return values[0]

    def _across_lanes(self, fn: str, dtype: DType, x: LlvmValue) -> LlvmValue:
        lanes = x.type.lanes
        while lanes > 1:
            lanes //= 2
            even_or_odd = self.b.shuffle(x, x, [*range(lanes, 2 * lanes)])
            x = vectors.apply(self.b, fn, dtype, (self.b.shuffle(x, x, [*range(lanes)]), even_or_odd))
        return self.b.extract(x, 0)

    def _reduce_across(self, out: StackTile, fn: str, x: ir.Tile, axis: int, source: TileType, wide: DType) -> None:
        """Reduce an outer axis: lanes stay independent."""
        b, e = self.b, self.e
        extent = source.shape[axis]

        def column(at: Position, lanes: int) -> None:
            if extent <= MAX_UNROLLED_ROWS:
                total = self._across_here(fn, x, axis, wide, at, lanes)
            else:
                active = e.active
                loop = self.loop("k", 0, extent, 1, [("total", dtype_constant(identity(fn, wide), wide, lanes))])
                e.active = active
                here = self._across_at(x, axis, wide, at, loop.index, lanes)
                (total,) = b.close_loop(loop, [vectors.apply(b, fn, wide, (loop.carried[0], here))])
                e.memo = {}
            e.keep(out, at, vectors.cast(b, total, wide, out.dtype), lanes)

        self.over(out.shape, column, wide)

    def _across_at(self, x: ir.Tile, axis: int, wide: DType, at: Position, index: LlvmValue, lanes: int) -> LlvmValue:
        """Evaluate one row of a reduction over an outer axis."""
        dtype = self.e.types.of(x).dtype
        value = self.e.of(x, [*at[:axis], index, *at[axis:]], lanes, dtype)
        return self.b.splat(vectors.cast(self.b, value, dtype, wide), lanes)

    def _across_here(self, fn: str, x: ir.Tile, axis: int, wide: DType, at: Position, lanes: int) -> LlvmValue:
        """Evaluate an element of a reduction over few rows, unrolled."""
        extent = self.e.types.of(x).shape[axis]
        every = [self._across_at(x, axis, wide, at, constant(n, I64), lanes) for n in range(extent)]
        return self._combined(fn, wide, every)

    def is_short_across(self, x: ir.Reduce) -> bool:
        """Whether a reduction is over few rows of an outer axis, so that it can be unrolled."""
        shape = self.e.types.of(x.x).shape
        return not x.fn.startswith("arg") and x.axis < len(shape) - 1 and shape[x.axis] <= MAX_UNROLLED_ROWS

    def across(self, x: ir.Reduce, at: Position, lanes: int) -> LlvmValue:
        """Evaluate an element of such a reduction where it is used."""
        t = self.e.types.of(x)
        prefetch_rows(self.e, x, at, self.target.l3_bytes)
        wide = _wide(self.e.types.of(x.x).dtype)
        return vectors.cast(self.b, self._across_here(x.fn, x.x, x.axis, wide, at, lanes), wide, t.dtype)

    def scan(self, out: StackTile, fn: str, x: ir.Tile, axis: int) -> None:
        b, e = self.b, self.e
        dtype = out.dtype
        wide = float32 if dtype in (float16, bfloat16) else dtype
        across = axis != len(out.shape) - 1

        def line(at: Position, lanes: int) -> None:
            active = e.active
            start = dtype_constant(identity(fn, wide), wide, lanes)
            loop = self.loop("k", 0, out.shape[axis], 1, [("total", start)])
            e.active = active
            here = [*at[:axis], loop.index, *at[axis:]]
            value = b.splat(vectors.cast(b, e.of(x, here, lanes, dtype), dtype, wide), lanes)
            total = vectors.apply(b, fn, wide, (loop.carried[0], value))
            e.keep(out, here, vectors.cast(b, total, wide, dtype), lanes)
            b.close_loop(loop, [total])
            e.memo = {}

        self.over((*out.shape[:axis], *out.shape[axis + 1 :]), line, wide, vectorised=across)


def _wide(dtype: DType) -> DType:
    """The dtype in which numbers are reduced."""
    return float32 if dtype in (float16, bfloat16) else dtype


def _rows_at_once(source: TileType) -> int:
    """Number of rows of a tile that one loop reduces."""
    if len(source.shape) < 2 or source.shape[-1] < MIN_LONG_ROW:
        return 1
    return next(n for n in range(MAX_ROWS_AT_ONCE, 0, -1) if source.shape[-2] % n == 0)


def transpose_square(nests: LoopNests, rows: list[LlvmValue]) -> list[LlvmValue]:
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
            made[first], made[first + step] = nests.b.shuffle(x, y, low), nests.b.shuffle(x, y, high)
        rows = made
        step *= 2
    return rows
