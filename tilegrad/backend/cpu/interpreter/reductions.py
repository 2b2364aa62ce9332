"""Build the stages of reductions and scans.

Either the lanes of a block are those of the result, and each step of the reduction is one instruction on all of them;
or they are elements that are reduced, and an instruction reduces those of a block. Long reductions are cut into pieces,
whose results another stage reduces: sums stay accurate, and threads share the work.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ....ir.dtype import DType, bool_, int64
from ....ir.functions import accumulation_dtype, identity
from ....ir.scalar import Expr, Index, Read, Reduce, Scan, fresh_index
from .bytecode import BlockStage, Pieces
from .forms import Form
from .opcodes import total_dtype
from .stages import IndexedInstruction, LoopAxis, Loops, StageBuilder, StageStorage, StridedMemory, lane_axis, merged

MIN_ROW_LANES = 32
"""Elements of a row from which on they are reduced as lanes."""
MAX_STEPS, PIECE_STEPS = 512, 256
"""Steps beyond which a reduction of columns is cut, and those of a piece."""
MAX_ROW, PIECE_ROW, MAX_CUT_ROWS = 1 << 16, 1 << 15, 64
"""Elements beyond which a row is cut, those of a piece, and the rows from which on threads have enough without."""


class ReductionBuilder:
    """One reduction over some indices, to be stored for all values of others."""

    def __init__(
        self,
        storage: StageStorage,
        fn: str,
        inner: Sequence[Index],
        body: Expr,
        domain: Sequence[Index],
        results: Sequence[DType],
    ) -> None:
        self.storage, self.fn, self.body, self.domain = storage, fn, body, domain
        self.results = results
        """The dtypes that the total is rounded to, one after the other: half precision comes from float32."""
        self.indices = inner
        self.builder = StageBuilder(storage, (*domain, *inner))
        self.source = body.dtype
        self.is_place = fn.startswith("arg")
        self.element = self.builder.fresh_value(body)

    def store(self, out: StridedMemory) -> None:
        """Add the stages that store the result."""
        forms = self.builder.forms()
        outer = merged(self.domain, [*forms, StageBuilder.store_form(out, self.domain)])
        inner = merged(self.indices, forms)  # of one index, if its place is wanted
        if self._in_rows(outer, inner, forms):
            self._rows(outer, inner, out)
        else:
            self._columns(outer, inner, out)

    def _in_rows(self, outer: Sequence[LoopAxis], inner: Sequence[LoopAxis], forms: Sequence[Form]) -> bool:
        if self.is_place and len(inner) > 1:
            return False
        column = lane_axis(outer)
        return column is None or _is_in_order(inner[-1], column, forms)

    # --- lanes are elements that are reduced -------------------------------------------------------

    def _rows(self, outer: list[LoopAxis], inner: list[LoopAxis], out: StridedMemory) -> None:
        *others, lanes = inner
        b = self.builder
        if self.is_place:
            best, place, index = b.new(self.source), b.new(int64), b.new(int64)
            b.before.append(IndexedInstruction("constant", best, numbers=(identity(_value_fn(self.fn), self.source),)))
            b.before.append(IndexedInstruction("constant", place, numbers=(int64.max,)))
            b.body.append(IndexedInstruction("iota", index, form={lanes.counted: 1}))
            b.body.append(IndexedInstruction("extreme", best, (place, self.element, index), self.fn, self.source))
            self._finish(place, int64, out, self.domain)
            b.storage.stages.append(b.stage(Loops(outer, others, lanes, lanes_inside=True)))
            return
        total = total_dtype(self.fn, self.source)
        sum = b.new(total)
        b.before.append(IndexedInstruction("constant", sum, numbers=(identity(self.fn, total),)))
        b.body.append(IndexedInstruction("reduce", sum, (self.element,), self.fn, self.source))
        if lanes.extent > MAX_ROW and prod([axis.extent for axis in outer]) < MAX_CUT_ROWS:
            self._in_pieces(outer, others, lanes, PIECE_ROW, sum, total, out)
        else:
            self._finish(sum, total, out, self.domain)
            b.storage.stages.append(b.stage(Loops(outer, others, lanes, lanes_inside=True)))

    # --- lanes are elements of the result ----------------------------------------------------------

    def _columns(self, outer: list[LoopAxis], inner: list[LoopAxis], out: StridedMemory) -> None:
        b, wide = self.builder, accumulation_dtype(self.source)
        if self.is_place:
            place = running_place(b, self.fn, self.source, self.element, self.indices[0], "gt")
            self._finish(place, int64, out, self.domain)
            b.storage.stages.append(self._column_stage(outer, inner))
            return
        sum = running_total(b, self.fn, self.source, self.element)
        rest = prod([axis.extent for axis in inner[1:]])
        steps = max(1, PIECE_STEPS // rest)
        if inner[0].extent * rest > MAX_STEPS and inner[0].extent > steps:
            self._in_pieces(outer, inner, inner[0], steps, sum, wide, out)
        else:
            self._finish(sum, wide, out, self.domain)
            b.storage.stages.append(self._column_stage(outer, inner))

    def _column_stage(self, outer: list[LoopAxis], inner: list[LoopAxis], pieces: Pieces | None = None) -> BlockStage:
        axes = [axis for axis in outer if axis.cut is None]
        lanes = lane_axis(axes)
        rows = self.builder.row_axis(axes, lanes)
        kept = [axis for axis in outer if axis not in (lanes, rows)]
        moved = None if pieces is None else pieces._replace(axis=next(n for n, axis in enumerate(kept) if axis.cut))
        return self.builder.stage(Loops(kept, inner, lanes, pieces=moved, rows=rows))

    # --- both ----------------------------------------------------------------------------------------

    def _finish(self, value: int, dtype: DType, out: StridedMemory, order: Sequence[Index]) -> None:
        """Store the value of a reduction when it is complete."""
        b = self.builder
        for to in self.results:
            if dtype is not to:
                made = b.new(to)
                b.after.append(IndexedInstruction("apply", made, (value,), "cast", dtype))
                value, dtype = made, to
        b.after.append(
            IndexedInstruction("store", -1, (value,), memory=out.number, form=StageBuilder.store_form(out, order))
        )

    def _in_pieces(
        self,
        outer: list[LoopAxis],
        inner: list[LoopAxis],
        cut: LoopAxis,
        length: int,
        value: int,
        dtype: DType,
        out: StridedMemory,
    ) -> None:
        """Reduce pieces of an axis to a temporary, and that to the result."""
        b = self.builder
        count = -(-cut.extent // length)
        piece = fresh_index(count)
        order = (*self.domain, piece)
        source, memory = self.storage.temporary(dtype, order)
        b.after.append(
            IndexedInstruction("store", -1, (value,), memory=memory.number, form=StageBuilder.store_form(memory, order))
        )
        pieces = Pieces(len(outer), length, cut.extent)
        outer = [*outer, LoopAxis(piece, count, frozenset((piece,)), cut.counted, length)]
        if cut in inner:
            shorter = [axis._replace(extent=length) if axis is cut else axis for axis in inner]
            self.storage.stages.append(self._column_stage(outer, shorter, pieces))
        else:
            self.storage.stages.append(b.stage(Loops(outer, inner, cut, lanes_inside=True, pieces=pieces)))
        rest = Read(source, order, dtype)
        ReductionBuilder(self.storage, self.fn, (piece,), rest, self.domain, self.results).store(out)


def store_reduction(
    storage: StageStorage, e: Reduce, domain: Sequence[Index], out: StridedMemory, results: Sequence[DType]
) -> None:
    """Add the stages that store a reduction for all values of some indices, rounded to some dtypes in turn."""
    inner, body = [e.index], e.body
    while isinstance(body, Reduce) and body.fn == e.fn and not e.fn.startswith("arg"):
        inner.append(body.index)
        body = body.body
    ReductionBuilder(storage, e.fn, inner, body, domain, results).store(out)


def store_scan(storage: StageStorage, e: Scan, order: Sequence[Index], out: StridedMemory) -> None:
    """Add the stage that stores a scan for all values of some indices, one of which is its own."""
    b = StageBuilder(storage, order)
    element = b.fresh_value(e.body)
    source, wide = e.body.dtype, accumulation_dtype(e.body.dtype)
    domain = [i for i in order if i is not e.index]
    form = StageBuilder.store_form(out, order)
    outer, inner = merged(domain, [*b.forms(), form]), merged((e.index,), [])
    column = lane_axis(outer)
    is_place = e.fn.startswith("arg")
    if not is_place and (column is None or _is_in_order(inner[0], column, [*b.forms(), form])):
        total, value = b.new(wide), b.new(source)
        b.before.append(IndexedInstruction("constant", total, numbers=(identity(e.fn, wide),)))
        b.body.append(IndexedInstruction("scan", value, (total, element), e.fn, source))
        loops = Loops(outer, [], inner[0], lanes_inside=True)
    else:
        if is_place:
            value = running_place(b, e.fn, source, element, e.index, "ge")
        else:
            value = running_total(b, e.fn, source, element)
            value = value if wide is source else b.apply("cast", wide, source, value)
        loops = Loops([axis for axis in outer if axis is not column], inner, column)
    b.body.append(IndexedInstruction("store", -1, (value,), memory=out.number, form=form))
    storage.stages.append(b.stage(loops))


def running_total(b: StageBuilder, fn: str, source: DType, element: int) -> int:
    """Add the instructions that accumulate an element per lane; return the total."""
    wide = accumulation_dtype(source)
    total = b.new(wide)
    b.before.append(IndexedInstruction("constant", total, numbers=(identity(fn, wide),)))
    value = element if source is wide else b.apply("cast", source, wide, element)
    return b.apply(fn, wide, wide, total, value, to=total)


def running_place(b: StageBuilder, fn: str, source: DType, element: int, index: Index, comparison: str) -> int:
    """Add the instructions that keep the place of the extreme per lane; return the place.

    With "gt" the first of equal elements stays, and the first NaN; with "ge" the last.
    """
    best, place, here = b.new(source), b.new(int64), b.new(int64)
    b.before.append(IndexedInstruction("constant", best, numbers=(identity(_value_fn(fn), source),)))
    b.before.append(IndexedInstruction("constant", place, numbers=(0,)))
    b.body.append(IndexedInstruction("iota", here, form={index: 1}))
    fits = comparison if fn == "argmax" else {"gt": "lt", "ge": "le"}[comparison]
    wins = b.apply(fits, source, bool_, element, best)
    if source.is_float:
        nan = b.apply("isnan", source, bool_, element)
        if comparison == "gt":
            known = b.apply("isnan", source, bool_, best)
            nan = b.apply("bitand", bool_, bool_, nan, b.apply("invert", bool_, bool_, known))
        wins = b.apply("bitor", bool_, bool_, wins, nan)
    b.apply("where", source, source, wins, element, best, to=best)
    return b.apply("where", int64, int64, wins, here, place, to=place)


def _is_along(row: LoopAxis, column: LoopAxis, forms: Sequence[Form]) -> bool:
    """Whether more of the reads that go through both axes are of consecutive elements along the first."""
    both = [f for f in forms if f.get(row.counted) and f.get(column.counted)]
    return sum(f[row.counted] == 1 for f in both) > sum(f[column.counted] == 1 for f in both)


def _is_in_order(row: LoopAxis, column: LoopAxis, forms: Sequence[Form]) -> bool:
    if column.extent < MIN_ROW_LANES:
        return row.extent > column.extent
    return row.extent >= MIN_ROW_LANES and _is_along(row, column, forms)


def _value_fn(fn: str) -> str:
    return "maximum" if fn == "argmax" else "minimum"
