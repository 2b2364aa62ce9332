"""Build the stages of a block program: instructions from expressions, and loops from the axes that they step along."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from ....ir.dtype import FLOAT8, DType, bool_, int64
from ....ir.position import flat_position, linear
from ....ir.scalar import Apply, Const, Expr, Index, Read, Reduce, Scan, facts
from .bytecode import BlockInstruction, BlockStage, Guard, InstructionKind, LinearForm, Pieces
from .forms import (
    Form,
    MergedReads,
    NotTranslated,
    affine_form,
    is_inside,
    merged_reads,
    split_form,
    static,
    without_repetition,
)

MIN_LANES = 8
"""Extent from which on the last axis has the lanes; below, the longest one."""
MAX_ROW_LANES = 256
"""Extent of the last axis below which the lanes are those of the last two axes."""


class StridedMemory(NamedTuple):
    """Where the elements of a tensor are: the number of the memory, and strides in elements."""

    number: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0


class StageStorage(Protocol):
    """What a stage asks of its translation."""

    stages: list[BlockStage]

    def memory(self, source: Any) -> StridedMemory: ...

    def temporary(self, dtype: DType, indices: Sequence[Index]) -> tuple[Any, StridedMemory]: ...

    def stored_elsewhere(self, e: Reduce | Scan, order: Sequence[Index]) -> Expr: ...


class LoopAxis(NamedTuple):
    """A loop: its extent, and the index that it counts; for an axis of pieces also the index that is cut."""

    counted: Index
    extent: int
    members: frozenset[Index]
    """All indices that were merged into it."""
    cut: Index | None = None
    length: int = 0

    def step(self, form: Form) -> int:
        step = form.get(self.counted, 0)
        return step if self.cut is None else step + form.get(self.cut, 0) * self.length


class IndexedInstruction(NamedTuple):
    """An instruction whose linear forms are by index."""

    kind: InstructionKind
    result: int
    args: tuple[int, ...] = ()
    fn: str = ""
    source: DType | None = None
    memory: int = -1
    form: Form | None = None
    guards: tuple[tuple[Form, int], ...] = ()
    numbers: tuple[float, ...] = ()
    indices: frozenset[Index] | None = None
    """The indices that the arguments of a gather depend on."""

    def forms(self) -> Iterable[Form]:
        return [*([] if self.form is None else [self.form]), *[form for form, _ in self.guards]]


class Loops(NamedTuple):
    """The axes of a stage."""

    outer: list[LoopAxis]
    inner: list[LoopAxis]
    lanes: LoopAxis | None
    """None: one lane."""
    lanes_inside: bool = False
    pieces: Pieces | None = None
    rows: LoopAxis | None = None
    """The second axis of the lanes, if they have two."""


class StageBuilder:
    """Collects the instructions of one stage, for all values of some indices (and of those of a reduction)."""

    def __init__(self, storage: StageStorage, order: Sequence[Index]) -> None:
        self.storage, self.order = storage, order
        self.dtypes: list[DType] = []
        self.once: list[IndexedInstruction] = []
        self.before: list[IndexedInstruction] = []
        self.body: list[IndexedInstruction] = []
        self.after: list[IndexedInstruction] = []
        self._known: dict[Expr, int] = {}
        self._instead: dict[Expr, Expr] = {}
        self._merged: dict[Expr, MergedReads | None] = {}

    def new(self, dtype: DType) -> int:
        """Return the number of a new value."""
        self.dtypes.append(dtype)
        return len(self.dtypes) - 1

    # --- expressions -----------------------------------------------------------------------------

    def value(self, root: Expr) -> int:
        """Add the instructions that compute an expression, each part once, and return the number of its value."""
        known, stack = self._known, [root]
        while stack:
            e = stack[-1]
            if e in known:
                stack.pop()
                continue
            missing = [p for p in self._operands(e) if p not in known]
            if missing:
                stack += reversed(missing)
            else:
                known[stack.pop()] = self._added(e)
        return known[root]

    def fresh_value(self, root: Expr) -> int:
        """Return the value of an expression as one of the body, whose spare lanes may be overwritten."""
        if not isinstance(root, Const):
            value = self.value(root)
            if any(value == i.result for i in self.body):
                return value
            raise NotTranslated
        value = self.new(root.dtype)
        self.body.append(IndexedInstruction("constant", value, numbers=(root.value,)))
        return value

    def _operands(self, e: Expr) -> tuple[Expr, ...]:
        match e:
            case Apply(fn, args):
                if e.dtype is int64 and affine_form(e) is not None:
                    return ()
                if fn == "where" and self._merged_reads(e) is not None:
                    return ()
                return args[:1] if fn == "inside" else args
            case Read(source, position):
                return self._positions(e, self.storage.memory(source), position)
            case Reduce() | Scan():
                instead = self._instead.get(e)
                if instead is None:
                    instead = self._instead[e] = self.storage.stored_elsewhere(e, self.order)
                return (instead,)
        return ()

    def _positions(self, e: Read, memory: StridedMemory, position: Sequence[Expr]) -> tuple[Expr, ...]:
        """Return the positions that are computed lane by lane: none if the read is at a linear form."""
        if self._read_form(e, memory) is not None:
            return ()
        return (split_form(self._flat(e, memory))[1], *[p for p, _ in self._unsafe(memory, position)])

    def _merged_reads(self, e: Apply) -> MergedReads | None:
        """Return a choice between reads at linear forms by ranges of positions, or None."""
        if e in self._merged:
            return self._merged[e]
        found = merged_reads(e) if facts(e.args[0]).data is False else None
        if found is not None and any(self._read_form(x, self.storage.memory(x.source)) is None for x, _ in found.reads):
            found = None
        self._merged[e] = found
        return found

    def _flat(self, e: Read, memory: StridedMemory) -> Expr:
        return flat_position(e.position, memory.strides) + memory.offset

    @staticmethod
    def _unsafe(memory: StridedMemory, position: Sequence[Expr]) -> list[tuple[Expr, int]]:
        return [(p, extent) for p, extent in zip(position, memory.shape, strict=True) if not is_inside(p, extent)]

    def _read_form(self, e: Read, memory: StridedMemory) -> Form | None:
        """Return the linear form of a read whose positions, or at least their sum, are linear; else None."""
        total: Form = {None: memory.offset}
        for p, stride in zip(e.position, memory.strides, strict=True):
            for product, factor in linear(p).items():
                if len(product) > 1 or (product and not isinstance(product[0], Index)):
                    flat = affine_form(self._flat(e, memory))
                    unsafe = self._unsafe(memory, e.position)
                    return flat if flat is not None and all(affine_form(q) is not None for q, _ in unsafe) else None
                index: Any = product[0] if product else None
                total[index] = total.get(index, 0) + factor * stride
        return total

    def _added(self, e: Expr) -> int:
        match e:
            case Const(number, dtype):
                self.once.append(IndexedInstruction("constant", self.new(dtype), numbers=(number,)))
                return len(self.dtypes) - 1
            case Read():
                return self._read(e)
            case Reduce() | Scan():
                return self._known[self._instead[e]]
        form = affine_form(e) if e.dtype is int64 else None
        if form is not None:
            self.body.append(IndexedInstruction("iota", self.new(int64), form=form))
            return len(self.dtypes) - 1
        if not isinstance(e, Apply):
            raise NotTranslated
        merged = self._merged_reads(e) if e.fn == "where" else None
        return self._applied(e) if merged is None else self._merge(e, merged)

    def _read(self, e: Read) -> int:
        memory = self.storage.memory(e.source)
        form, unsafe = self._read_form(e, memory), self._unsafe(memory, e.position)
        if form is not None:
            guards = tuple([(affine_form(p) or {}, extent) for p, extent in unsafe])
            value = self.new(e.dtype)
            self.body.append(IndexedInstruction("load", value, memory=memory.number, form=form, guards=guards))
            return value
        mask: tuple[int, ...] = ()
        for p, extent in unsafe:
            made = self.new(bool_)
            self.body.append(IndexedInstruction("check", made, (self._known[p], *mask), numbers=(extent,)))
            mask = (made,)
        value = self.new(e.dtype)
        form, rest = split_form(self._flat(e, memory))
        parts = facts(rest).indices.union(*[facts(p).indices for p, _ in unsafe])
        args = (self._known[rest], *mask)
        self.body.append(IndexedInstruction("gather", value, args, memory=memory.number, form=form, indices=parts))
        return value

    def _merge(self, e: Apply, merged: MergedReads) -> int:
        """Read several tensors, each in its range of positions."""
        value = self.new(e.dtype)
        if merged.default is not None:
            self.body.append(IndexedInstruction("constant", value, numbers=(merged.default.value,)))
        for x, ranges in merged.reads:
            memory = self.storage.memory(x.source)
            own = [(affine_form(p) or {}, extent) for p, extent in self._unsafe(memory, x.position)]
            guards = without_repetition([*ranges, *own])
            form = self._read_form(x, memory)
            self.body.append(IndexedInstruction("merge", value, memory=memory.number, form=form, guards=guards))
        return value

    def _applied(self, e: Apply) -> int:
        if e.fn == "inside":
            return self._clamped(e)
        args = tuple([self._known[x] for x in e.args])
        if e.fn == "bitcast":
            return self._reinterpreted(e, args[0])
        fn = "mul" if e.fn in ("mul_high", "mul_medium") else e.fn  # a precision is a lower bound
        sources = {x.dtype for x in e.args[1 if fn == "where" else 0 :]}
        source = sources.pop()
        if sources or (source in FLOAT8 and fn not in ("cast", "where")):
            raise NotTranslated
        return self.apply(fn, source, e.dtype, *args)

    def _clamped(self, e: Apply) -> int:
        """Add an index that is made to be inside of an axis, and reported if it is not."""
        x, extent, number = e.args
        if x.dtype is not int64 or not isinstance(extent, Const) or not isinstance(number, Const):
            raise NotTranslated
        numbers = (extent.value, number.value)
        self.body.append(IndexedInstruction("clamp", self.new(int64), (self._known[x],), numbers=numbers))
        return len(self.dtypes) - 1

    def _reinterpreted(self, e: Apply, arg: int) -> int:
        """Name the same bits as another dtype: a function of integers that changes no bit."""
        source = self.dtypes[arg]
        if bool_ in (source, e.dtype) or source.bytes != e.dtype.bytes:
            raise NotTranslated
        return self.apply("bitcast", source, e.dtype, arg)

    def apply(self, fn: str, source: DType, result: DType, *args: int, to: int | None = None) -> int:
        """Add a function of values; the result is a new one, or replaces `to`."""
        value = self.new(result) if to is None else to
        self.body.append(IndexedInstruction("apply", value, args, fn, source))
        return value

    # --- loops -----------------------------------------------------------------------------------

    def forms(self) -> list[Form]:
        return [form for i in (*self.once, *self.before, *self.body, *self.after) for form in i.forms()]

    def map_stage(self, value: int, out: StridedMemory) -> BlockStage:
        """Return the stage that stores a value for all values of its indices."""
        self.body.append(
            IndexedInstruction("store", -1, (value,), memory=out.number, form=self.store_form(out, self.order))
        )
        axes = merged(self.order, self.forms())
        lanes = lane_axis(axes)
        rows = self.row_axis(axes, lanes)
        return self.stage(Loops([a for a in axes if a not in (lanes, rows)], [], lanes, rows=rows))

    def row_axis(self, axes: Sequence[LoopAxis], lanes: LoopAxis | None) -> LoopAxis | None:
        """Choose a second axis for the lanes, so that blocks are long if the last axis is short."""
        if len(axes) < 2 or lanes is not axes[-1] or not MIN_LANES <= lanes.extent < MAX_ROW_LANES:
            return None
        rows, last = axes[-2], lanes
        forms = [i.form or {} for i in self.body if i.kind == "gather" and not _is_uniform(i, rows, last)]
        return rows if all(rows.step(form) == last.step(form) * last.extent for form in forms) else None

    @staticmethod
    def store_form(out: StridedMemory, order: Sequence[Index]) -> Form:
        form: Form = dict(zip(order, out.strides, strict=True))
        return {**form, None: out.offset}

    def stage(self, loops: Loops) -> BlockStage:
        """Return the stage with its loops."""
        axes = [*loops.outer, *loops.inner, *([] if loops.rows is None else [loops.rows])]
        lane, rows = loops.lanes, 1 if loops.rows is None else loops.rows.extent

        def by_axis(form: Form) -> LinearForm:
            steps = [axis.step(form) for axis in axes]
            return LinearForm(form.get(None, 0), (*steps, 0 if lane is None else form.get(lane.counted, 0)))

        def instructions(drafts: Sequence[IndexedInstruction]) -> tuple[BlockInstruction, ...]:
            return tuple(
                [
                    BlockInstruction(
                        "offset" if i.kind == "gather" and _is_uniform(i, lane, loops.rows) else i.kind,
                        i.result,
                        i.args,
                        i.fn,
                        i.source,
                        i.memory,
                        None if i.form is None else by_axis(i.form),
                        tuple([Guard(by_axis(form), extent) for form, extent in i.guards]),
                        i.numbers,
                    )
                    for i in drafts
                ]
            )

        return BlockStage(
            tuple([a.extent for a in loops.outer]),
            tuple([a.extent for a in loops.inner]),
            1 if lane is None else lane.extent * rows,
            loops.lanes_inside,
            0 if lane is None or loops.rows is None else lane.extent,
            loops.pieces,
            tuple(self.dtypes),
            *[instructions(part) for part in (self.once, self.before, self.body, self.after)],
        )


def merged(indices: Sequence[Index], forms: Sequence[Form]) -> list[LoopAxis]:
    """Merge neighbouring axes that all linear forms go through in equal steps; axes of extent 1 are left out.

    >>> i, j, k = Index("i", 4), Index("j", 5), Index("k", 6)
    >>> [axis.extent for axis in merged((i, j, k), [{i: 30, j: 6, k: 1}, {j: 6, k: 1}])]
    [4, 30]
    """
    axes: list[LoopAxis] = []
    for index in reversed(indices):
        extent = static(index.extent)
        if extent == 1:
            continue
        if axes:
            inner = axes[-1]
            if all(f.get(index, 0) == f.get(inner.counted, 0) * inner.extent for f in forms):
                axes[-1] = LoopAxis(inner.counted, inner.extent * extent, inner.members | {index})
                continue
        axes.append(LoopAxis(index, extent, frozenset((index,))))
    return axes[::-1]


def lane_axis(axes: Sequence[LoopAxis]) -> LoopAxis | None:
    """Choose the axis whose elements are the lanes of blocks."""
    if not axes:
        return None
    if axes[-1].extent >= MIN_LANES:
        return axes[-1]
    return max(reversed(axes), key=lambda axis: axis.extent)


def _is_uniform(i: IndexedInstruction, *axes: LoopAxis | None) -> bool:
    """Whether the arguments of a gather are the same for all lanes."""
    return i.indices is not None and all(axis is None or i.indices.isdisjoint(axis.members) for axis in axes)
