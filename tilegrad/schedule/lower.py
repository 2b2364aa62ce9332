"""Lower a group to its kernel: which indices become programs, which run along tile axes, and which loop.

map:    one tile of elements per instance rows:   an instance has one row (or a few short ones) whole; or, where rows
are too long for a tile or not contiguous,
        it loops over the columns and accumulates
contraction: see `contract.py`;   opaque: the op brings its kernel
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from ..ir import tile
from ..ir.dtype import int64
from ..ir.functions import identity
from ..ir.graph import Value
from ..ir.program import Tiles
from ..ir.scalar import Apply, Const, Expr, Index, Reduce, Scan, parts, walk
from ..ir.tile import Assign, For, Literal, Name, Tile
from ..runtime.choice import Choice
from ..runtime.target_model import TargetModel
from .contract import lower_contraction
from .emit import Axes, Emitter
from .flatten import FlatGroup, FlatStore, flatten
from .group import Group
from .inline import weight_of
from .instances import Lowered, declare_programs, divides, extent_of, finished, fits, kernel_names, number_of
from .merge_axes import as_matrix
from .strategies import cut, default

RUNNING = {"argmax": "maximum", "argmin": "minimum"}
"""Reductions that decide about running positions of extremes."""


def lower(
    group: Group, names: Mapping[Value, str], target: TargetModel = TargetModel(), choice: Choice | None = None
) -> Lowered:
    """Lower a group. `names` are the names of values; without a `choice` the cost model chooses."""
    if group.kind == "opaque":
        return _opaque(group)
    flat = flatten(group, not target.coalesced_access)
    if group.kind == "contraction":
        return lower_contraction(group, as_matrix(flat, target), names, target, choice)
    return _Lowering(group, flat, names, choice or default(flat, target), target).lowered()


def _opaque(group: Group) -> Lowered:
    """Return the kernel of an opaque op."""
    (value,) = group.stored
    code = value.kernel()  # type: ignore[attr-defined]
    kernel = code.kernel.replaced(origin=str(value.location or ""))
    return Lowered(kernel, (*value.inputs, value, *code.sizes), code.grid, 1e5)


class _Lowering:
    """Lowers one map or rows group."""

    def __init__(
        self, group: Group, flat: FlatGroup, names: Mapping[Value, str], choice: Choice, target: TargetModel
    ) -> None:
        self.flat = flat
        self.group = group
        self.names = kernel_names(flat, names)
        made = cut(flat, choice, target)
        self.axes = made.axes
        self.block = made.block
        """Extent of the tile axis of an index; indices without one are scalars."""
        self.looped = made.looped
        """Columns that are looped over, and the step of each loop."""
        self.masked = target.masks_are_cheap
        self.overlapping = group.kind == "map" and not target.masks_are_cheap
        """Whether the last tile of an axis overlaps the one before: masks cost more than computing elements twice."""

    def lowered(self) -> Lowered:
        flat = self.flat
        emitter = Emitter(self.axes, self.block, self.names, flat.roots)
        emitter.masked = self.masked
        grid = self._programs(emitter)
        for column in flat.columns:
            if column not in self.looped:
                self._whole_axis(emitter, column)
        if self.looped:
            self._stages(emitter)
        else:
            emitter.store(flat.stores)
        return finished(self.group, flat, emitter, self.names, grid, self._work())

    def _work(self) -> float:
        elements = math.prod(self.block.values())
        for column, step in self.looped.items():
            elements *= max(1, number_of(column.extent) // step)
        weight = 0.0
        for e in self.flat.expressions:
            kind = e.__class__
            weight += weight_of(e.fn) if kind is Apply else kind is not Const and kind is not Index  # type: ignore[attr-defined]
        return float(elements * weight)

    def _programs(self, emitter: Emitter) -> tuple[Tiles, ...]:
        return declare_programs(emitter, self.flat.rows, self.block, self.overlapping)

    def _whole_axis(self, emitter: Emitter, column: Index) -> None:
        name = emitter.fresh("k")
        emitter.body.append(Assign(name, tile.Arange(0, self.block[column])))
        emitter.variables[column] = name
        if self.block[column] != column.extent:
            emitter.bound[column] = column.extent

    def _stages(self, emitter: Emitter) -> None:
        """Write one loop after another: each computes the reductions that depend only on earlier ones."""
        reductions = self._looped()
        levels = self._levels(reductions)
        last = max((levels[e] for e in reductions), default=0)
        pending = list(self.flat.stores)
        for level in range(1, last + 1):
            now = [e for e in reductions if levels[e] == level]
            stores = [s for s in pending if self._in_loop(s) and levels[s.expr] < level]
            self._loop(emitter, now, stores)
            pending = [s for s in pending if s not in stores]
        streamed = [s for s in pending if self._in_loop(s)]
        if streamed:
            self._loop(emitter, [], streamed)
        emitter.store(s for s in pending if not self._in_loop(s))

    def _looped(self) -> list[Reduce]:
        """Find the reductions that loops compute; of a nest the outermost."""
        found = [e for e in self.flat.expressions if isinstance(e, Reduce) and e.index in self.looped]
        inner = {e.body for e in found if _continues(e)}
        return [e for e in found if e not in inner]

    def _levels(self, reductions: list[Reduce]) -> dict[Expr, int]:
        """Count the loops that must have run before a value is known."""
        levels: dict[Expr, int] = {}
        ends = set(reductions)
        for e in self.flat.expressions:
            levels[e] = max((levels[p] for p in parts(e)), default=0) + (e in ends)
        return levels

    def _in_loop(self, s: FlatStore) -> bool:
        return any(i in self.looped for i in walk(s.offset))

    def _loop(self, emitter: Emitter, reductions: list[Reduce], stores: list[FlatStore]) -> None:
        accumulators = [self._accumulator(emitter, e) for e in reductions]
        scans = self._scans(emitter, [e.body for e in reductions] + [s.expr for s in stores])
        carried = [self._carried(emitter, e) for e in scans]
        extents = {column: extent_of(emitter, column.extent) for column in self.looped}
        outer_body, outer_known, outer_masks = emitter.body, dict(emitter.known), dict(emitter.masks)
        emitter.body = []
        indices = [(c, emitter.fresh("k")) for c in self.looped]
        # the last turn adds a step, too
        emitter.long |= {name for c, name in indices if not fits(1, c.extent + self.looped[c])}
        inner, start = indices[-1]
        for column, name in indices:
            emitter.variables[column] = name
        once = len(indices) > 1 and not scans and self._is_read_once(inner, reductions)
        if inner in self.block:
            lanes: Tile = tile.Arange(0, self.block[inner])
            at = emitter.assign("at", lanes if once else tile.Apply("add", (Name(start), lanes)))
            emitter.variables[inner] = at.name
            if not divides(self.block[inner], inner.extent):
                emitter.bound[inner] = inner.extent
        for scan, before in zip(scans, carried, strict=True):
            emitter.accumulated[scan] = self._scan_on(emitter, scan, before)
        for e, names in zip(reductions, accumulators, strict=True):
            self._accumulate(emitter, e, names, start)
        emitter.store(stores)
        for scan in scans:
            del emitter.accumulated[scan]
        body = emitter.body
        for column, name in reversed(indices[:-1] if once else indices):
            step = self.looped[column]
            begin = tile.Full((), Literal(0), int64) if name in emitter.long else Literal(0)
            body = [For(name, begin, extents[column], Literal(step), tuple(body))]
        emitter.body = outer_body + body
        emitter.known, emitter.masks = outer_known, outer_masks
        emitter.bound.pop(inner, None)
        for column, _ in indices:
            emitter.variables.pop(column, None)
        for e, names in zip(reductions, accumulators, strict=True):
            self._result(emitter, e, names)

    def _is_read_once(self, inner: Index, reductions: list[Reduce]) -> bool:
        """Whether the innermost loop has one iteration; loops around it that only load are unrolled then."""
        if type(inner.extent) is not int or self.looped[inner] < inner.extent or not self.masked:
            return False
        return inner in self.block and not any(e.fn.startswith("arg") for e in reductions)

    def _scans(self, emitter: Emitter, roots: list[Expr]) -> list[Scan]:
        """Find the scans in a loop, inner ones first, without looking into known values."""
        found: list[Scan] = []
        done: set[Expr] = set(emitter.accumulated)
        stack = [(e, False) for e in reversed(roots)]
        while stack:
            e, ready = stack.pop()
            if ready:
                if isinstance(e, Scan) and e not in found:
                    found.append(e)
            elif e not in done:
                done.add(e)
                stack += [(e, True), *((part, False) for part in parts(e))]
        return found

    def _carried(self, emitter: Emitter, e: Scan) -> tuple[Name, ...]:
        """Make the loop-carried variables of a scan: the running result, and the position of an extreme."""
        shape = tuple(self.block[a] for a in self.axes if a is not e.index)
        fn = RUNNING.get(e.fn, e.fn)
        last = emitter.assign("last", tile.Full(shape, Literal(identity(fn, e.body.dtype)), e.body.dtype))
        if fn == e.fn:
            return (last,)
        return last, emitter.assign("place", tile.Full(shape, Literal(0), int64))

    def _scan_on(self, emitter: Emitter, e: Scan, carried: tuple[Name, ...]) -> tuple[Tile, Axes]:
        """Continue a scan from the previous iteration."""
        fn = RUNNING.get(e.fn, e.fn)
        value, axes = emitter.inside(fn, e.index, e.body, *emitter.emit(e.body))
        value = emitter.assign("v", emitter.lift_all(value, axes, e.body.dtype))
        along = self.axes.index(e.index)
        before = tuple(a for a in self.axes if a is not e.index)
        last = emitter.lift(carried[0], before, self.axes)
        running = emitter.assign("run", tile.Apply(fn, (last, tile.Scan(fn, value, along))))
        result: Tile = running
        if fn != e.fn:
            places = emitter.places_met(e, value, running, self.axes)
            place = emitter.lift(carried[1], before, self.axes)
            result = emitter.assign("at", tile.Apply("maximum", (place, tile.Scan("maximum", places, along))))
            met = tile.Apply("maximum", (carried[1], tile.Reduce("maximum", places, along)))
            emitter.body.append(Assign(carried[1].name, met))
        total = tile.Apply(fn, (carried[0], tile.Reduce(fn, value, along)))
        emitter.body.append(Assign(carried[0].name, total))
        return result, self.axes

    def _innermost(self, e: Reduce) -> tuple[Reduce, Expr]:
        inner: Expr = e
        while isinstance(inner, Reduce) and _continues(inner):
            inner = inner.body
        assert isinstance(inner, Reduce)
        return inner, inner.body

    def _accumulator(self, emitter: Emitter, e: Reduce) -> tuple[str, ...]:
        """Make the loop-carried variables of a reduction."""
        inner, body = self._innermost(e)
        if e.fn.startswith("arg"):
            axes = tuple(a for a in self.axes if a is not inner.index)
            shape = tuple(self.block[a] for a in axes)
            first = identity("maximum" if e.fn == "argmax" else "minimum", body.dtype)
            best = emitter.assign("best", tile.Full(shape, Literal(first), body.dtype))
            place = emitter.assign("place", tile.Full(shape, Literal(0), e.dtype))
            return best.name, place.name
        shape = tuple(self.block[a] for a in self._kept(inner.index))
        start = tile.Full(shape, Literal(identity(e.fn, body.dtype)), body.dtype)
        return (emitter.assign("acc", start).name,)

    def _kept(self, column: Index) -> tuple[Index, ...]:
        """Return the axes of an accumulator: a whole tile along a row, one number for each row across."""
        return tuple(a for a in self.axes if a is not column) if self.axes[-1] is not column else self.axes

    def _accumulate(self, emitter: Emitter, e: Reduce, names: tuple[str, ...], start: str) -> None:
        inner, body = self._innermost(e)
        value, axes = emitter.inside(e.fn, inner.index, body, *emitter.emit(body))
        if e.fn.startswith("arg"):
            self._accumulate_place(emitter, e, names, value, axes, inner, start)
            return
        kept = self._kept(inner.index)
        if inner.index not in kept and inner.index in self.axes:
            if inner.index not in axes:
                value, axes = emitter.spread(emitter.strong(value, body.dtype), axes, inner.index)
            value = tile.Reduce(e.fn, value, axes.index(inner.index))
            axes = tuple(a for a in axes if a is not inner.index)
        lifted = emitter.lift(value, axes, kept)
        emitter.body.append(Assign(names[0], tile.Apply(e.fn, (Name(names[0]), lifted))))

    def _accumulate_place(
        self, emitter: Emitter, e: Reduce, names: tuple[str, ...], value: Tile, axes: Axes, inner: Reduce, start: str
    ) -> None:
        if inner.index in self.axes and inner.index not in axes:
            value, axes = emitter.spread(emitter.strong(value, inner.body.dtype), axes, inner.index)
        best, place = Name(names[0]), Name(names[1])
        where: Tile
        if inner.index in axes:
            axis = axes.index(inner.index)
            value = emitter.assign("v", value)
            top = emitter.assign("top", tile.Reduce("maximum" if e.fn == "argmax" else "minimum", value, axis))
            where = tile.Apply("add", (tile.Cast(tile.Reduce(e.fn, value, axis), e.dtype), Name(start)))
        else:  # one element at a time, of each column
            top = emitter.assign("top", emitter.lift(emitter.strong(value, inner.body.dtype), axes, self.axes))
            where = tile.Cast(Name(emitter.variables[inner.index]), e.dtype)
        better: Tile = tile.Apply("gt" if e.fn == "argmax" else "lt", (top, best))
        if inner.body.dtype.is_float:
            known = tile.Apply("invert", (tile.Apply("isnan", (best,)),))
            better = tile.Apply("bitor", (better, tile.Apply("bitand", (tile.Apply("isnan", (top,)), known))))
        chosen = emitter.assign("better", better)
        emitter.body.append(Assign(names[1], tile.Apply("where", (chosen, where, place))))
        emitter.body.append(Assign(names[0], tile.Apply("where", (chosen, top, best))))

    def _result(self, emitter: Emitter, e: Reduce, names: tuple[str, ...]) -> None:
        inner, _ = self._innermost(e)
        kept = self._kept(inner.index)
        if e.fn.startswith("arg"):
            emitter.accumulated[e] = (Name(names[1]), tuple(a for a in self.axes if a is not inner.index))
            return
        total: Tile = Name(names[0])
        axes = kept
        if inner.index in kept:
            total = emitter.assign(names[0] + "_", tile.Reduce(e.fn, total, kept.index(inner.index)))
            axes = tuple(a for a in kept if a is not inner.index)
        emitter.accumulated[e] = (total, axes)


def _continues(e: Reduce) -> bool:
    """Whether the body of a reduction is the same reduction along another index: one loop nest computes both.

    The sum over columns of each row's maximum is none: that takes one loop after the other.
    """
    return isinstance(e.body, Reduce) and e.body.fn == e.fn and e.body.index is not e.index
