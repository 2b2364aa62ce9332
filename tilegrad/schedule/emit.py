"""Emit the statements of a tile kernel from scalar expressions.

Each index of the expressions is a variable of the kernel: a scalar, or a tile along one axis. An expression becomes a
tile over the axes that it depends on, `x[:, None]` where those of its operands differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..ir import tile
from ..ir.dtype import DType, bool_, int32, int64
from ..ir.functions import REDUCERS, identity
from ..ir.graph import Value
from ..ir.position import bounds
from ..ir.precision import PRECISION_OF
from ..ir.scalar import (
    TRUE,
    Apply,
    Const,
    Expr,
    Index,
    Read,
    Reduce,
    Scan,
    Symbol,
    apply,
    const,
    facts,
    parts,
    size,
    walk,
)
from ..ir.size import Dim, Size
from ..ir.tile import Assign, Literal, Name, Statement, Store, Tile
from .flatten import FlatStore
from .guards import beyond, keeps_below

MAX_NESTING = 6
"""Nesting depth of an expression from which on its operands get names."""
MAX_RECURSION = 60
"""Recursion depth from which on operands are emitted bottom-up."""
MAX_GUARDS = 4
"""Guards under which an expression is emitted; in a chain of overlapping writes their number doubles at each write."""

Axes = tuple[Index, ...]


class Emitter:
    """Emits the body of a kernel. `axes` are the indices that run along tile axes, in their order."""

    def __init__(self, axes: Axes, block: Mapping[Index, int], names: dict[Value, str], roots: tuple[Expr, ...]):
        self.axes = axes
        self.block = dict(block)
        self.names = names
        self.body: list[Statement] = []
        self.known: dict[tuple[Expr, Expr], tuple[Tile, Axes]] = {}
        self._level = 0
        self.variables: dict[Index, str] = {}
        self.long: set[str] = set()
        """Names of variables that hold positions in int64."""
        self.bound: dict[Index, Dim] = {}
        """Extents of the axes that tiles overhang: elements beyond are masked."""
        self.begins: dict[Index, Tile] = {}
        """First index that no earlier tile writes, where the last tile overlaps the one before."""
        self.masks: dict[tuple[Index, ...], tuple[Tile, Axes]] = {}
        self.used: set[str] = set(names.values())
        self.uses: dict[Expr, int] = {}
        self.depth: dict[Tile, int] = {}
        self.unsafe: dict[Expr, bool] = {}
        self.bare: dict[Expr, frozenset[Read]] = {}
        self.symbols: set[str] = set()
        self.masked = False
        """Whether masks are as cheap as any other condition."""
        self.accumulated: dict[Expr, tuple[Tile, Axes]] = {}
        self.guards: dict[Expr, int] = {}
        """Under how many guards an expression was emitted."""
        self.common: dict[Expr, Expr] = {}
        """The guards that replace those of each reader, once an expression had too many."""
        self._root: tuple[Expr, Expr] = TRUE, TRUE
        """The outermost expression that is being emitted, with its guard."""
        for e in walk(*roots):
            for part in parts(e):
                self.uses[part] = self.uses.get(part, 0) + 1

    def fresh(self, stem: str) -> str:
        name, n = stem, 1
        while name in self.used:
            n += 1
            name = f"{stem}{n}"
        self.used.add(name)
        return name

    def assign(self, stem: str, value: Tile) -> Name:
        name = self.fresh(stem)
        if self._is_wide(value):
            self.long.add(name)
        self.body.append(Assign(name, value))
        return Name(name)

    def depends(self, e: Expr) -> Axes:
        return self.emit(e)[1]

    def padded(self, read: Read, padding: float) -> tuple[Tile, Axes]:
        """Emit a read that gives a number where its mask is false."""
        key = (read, const(padding, read.dtype))
        found = self.known.get(key)
        if found is None:
            value, axes = self._load(read.source, read.position[0], TRUE, Literal(padding))
            found = self.known[key] = self.assign(self.names[read.source] + "_", value), axes
        return found

    def emit(self, e: Expr, guard: Expr = TRUE) -> tuple[Tile, Axes]:
        """Emit an expression as a tile, and return its axes. Reads are masked by `guard` where they may be outside."""
        if e in self.accumulated:
            return self.accumulated[e]
        if not self._level:
            self._root, self.common = (e, guard), {}
        key = (e, (self.common.get(e, guard) if self.common else guard) if self._is_unsafe(e) else TRUE)
        found = self.known.get(key)
        if found is None:
            if key[1] is not TRUE:
                key = (e, self._counted(*key))
            self._level += 1
            if self._level % MAX_RECURSION == 0:
                self._emit_below(e, guard)
            found = self.known[key] = self._named(e, *self._emitted(e, key[1]))
            self._level -= 1
        return found

    def _counted(self, e: Expr, guard: Expr) -> Expr:
        """Count the guards of an expression; once one has too many, all have a common guard each."""
        self.guards[e] = self.guards.get(e, 0) + 1
        if self.guards[e] > MAX_GUARDS and not self.common:
            from .common_guards import common_guards  # seldom needed

            self.common = common_guards(*self._root, self._guarded)
        return self.common.get(e, guard)

    def _emit_below(self, e: Expr, guard: Expr) -> None:
        """Emit the operands of an expression bottom-up, so that long chains do not recurse."""
        order: list[tuple[Expr, Expr]] = []
        seen: set[tuple[Expr, Expr]] = set()
        stack: list[tuple[Expr, Expr, bool]] = [(e, guard, False)]
        while stack:
            part, held, done = stack.pop()
            if done:
                order.append((part, held))
                continue
            stack.append((part, held, True))
            for x, inner in self._guarded(part, held):
                key = (x, self.common.get(x, inner) if self._is_unsafe(x) else TRUE)
                if isinstance(x, Apply) and key not in seen:
                    key = key if key[1] is TRUE else (x, self._counted(*key))
                    seen.add(key)
                    stack.append((*key, False))
        for part, held in order[:-1]:
            self.emit(part, held)

    def _guarded(self, e: Expr, guard: Expr) -> list[tuple[Expr, Expr]]:
        """List the operands of an expression, each with the condition that holds where it is wanted."""
        match e:
            case Apply("where", (condition, Read() as x, Const(0))) if self._is_masked(condition, x):
                return []
            case Apply("where", (condition, x, y)):
                inside, outside = guard, guard
                if not facts(condition).data or not (self._bare(x) | self._bare(y)).issubset(facts(condition).reads):
                    inside = apply("bitand", guard, condition)
                    outside = apply("bitand", guard, apply("invert", condition))
                return [(condition, guard), (x, inside), (y, outside)]
            case Apply(_, args):
                return [(x, guard) for x in args]
        return []

    def _named(self, e: Expr, value: Tile, axes: Axes) -> tuple[Tile, Axes]:
        """Assign what is used twice, or deeply nested, to a variable."""
        if isinstance(value, Name | Literal):
            return value, axes
        depth = self.depth.get(value, 1)
        if isinstance(e, Read):
            return self.assign(self.names[e.source] + "_", value), axes
        if isinstance(e, Reduce | Scan):
            return self.assign(REDUCERS[e.fn].printed, value), axes
        if self.uses.get(e, 0) > 1 or depth > MAX_NESTING:
            return self.assign("i" if e.dtype is int64 else "mask" if e.dtype is bool_ else "v", value), axes
        return value, axes

    def _leaf(self, e: Const | Index | Symbol) -> tuple[Tile, Axes]:
        if isinstance(e, Index):
            return Name(self.variables[e]), (e,) if e in self.axes else ()
        if isinstance(e, Symbol):
            self.symbols.add(e.name)
        return (Literal(e.value) if isinstance(e, Const) else Name(e.name)), ()

    def _emitted(self, e: Expr, guard: Expr) -> tuple[Tile, Axes]:
        match e:
            case Const() | Index() | Symbol():
                return self._leaf(e)
            case Read(source, (offset,), _):
                return self._load(source, offset, guard)
            case Apply("cast", (x,), dtype):
                value, axes = self.emit(x, guard)
                return self._deep(tile.Cast(self.strong(value, x.dtype), dtype), value), axes
            case Apply("bitcast", (x,), dtype):
                value, axes = self.emit(x, guard)
                return self._deep(tile.Bitcast(self.strong(self.wide(x, value), x.dtype), dtype), value), axes
            case Apply("where", (condition, Read() as x, Const(0) as zero)) if self._is_masked(condition, x):
                load, axes = self._load(x.source, x.position[0], apply("bitand", guard, condition), Literal(zero.value))
                return self.assign(self.names[x.source] + "_", load), axes
            case Apply("inside", args):
                return self._kept_inside(args, guard)
            case Apply(fn, args):
                return self._applied(fn, [self.emit(*part) for part in self._guarded(e, guard)], args)
            case Reduce(fn, index, body):
                value, axes = self.inside(fn, index, body, *self.emit(body, beyond(guard, index)))
                return self._reduced(fn, index, value, axes, body.dtype)
            case Scan(fn, index, body, at):
                assert at is index
                return self._scanned(fn, index, body, *self.emit(body, beyond(guard, index)))
        raise NotImplementedError(str(e))

    def _kept_inside(self, args: tuple[Expr, ...], guard: Expr) -> tuple[Tile, Axes]:
        """Clamp an index to its axis: masked elements read position 0."""
        value, axes = self.emit(args[0], guard)
        value = self.strong(self.wide(args[0], value), int64)
        mask, mask_axes = self.mask(axes, guard)
        every = tuple(a for a in self.axes if a in axes or a in mask_axes)
        if mask is not None:
            lifted = self.lift(mask, mask_axes, every), self.lift(value, axes, every)
            value = self._deep(tile.Apply("where", (*lifted, Literal(0))), *lifted)
        end, number = (self.wide(a, self.emit(a)[0]) for a in args[1:])
        return self._deep(tile.Apply("inside", (value, end, number)), value), every

    def _is_masked(self, condition: Expr, read: Read) -> bool:
        """Whether the mask of a read already gives its zeros where a condition on indices fails."""
        known = facts(condition).data or read.dtype is bool_
        return self.masked and self._reads_outside(read) and not known

    def _scanned(self, fn: str, index: Index, body: Expr, value: Tile, axes: Axes) -> tuple[Tile, Axes]:
        """Emit a scan along an axis; running positions of extremes are the maximum of the positions of new ones."""
        value = self.wide(body, value)
        if index not in axes:
            value, axes = self.spread(self.strong(value, body.dtype), axes, index)
        axis = axes.index(index)
        if not fn.startswith("arg"):
            return tile.Scan(fn, value, axis), axes
        value = self.assign("v", value)
        running = tile.Scan("maximum" if fn == "argmax" else "minimum", value, axis)
        places = self.places_met(Scan(fn, index, body, index, int64), value, running, axes)
        return tile.Scan("maximum", places, axis), axes

    def places_met(self, e: Scan, value: Tile, running: Tile, axes: Axes) -> Tile:
        """Return the position where a running extreme is new, elsewhere 0."""
        met: Tile = tile.Apply("ge" if e.fn == "argmax" else "le", (value, running))
        if e.body.dtype.is_float:
            met = tile.Apply("bitor", (met, tile.Apply("isnan", (value,))))
        place = self.lift(tile.Cast(Name(self.variables[e.index]), int64), (e.index,), axes)
        return self.assign("places", tile.Apply("where", (met, place, Literal(0))))

    def lift_all(self, value: Tile, axes: Axes, dtype: DType) -> Tile:
        """Broadcast a tile to all axes."""
        if axes == self.axes:
            return value
        lifted = self.lift(self.strong(value, dtype), axes, self.axes)
        return tile.BroadcastTo(lifted, tuple(self.block[a] for a in self.axes))

    def _reduced(self, fn: str, index: Index, value: Tile, axes: Axes, dtype: DType) -> tuple[Tile, Axes]:
        if index not in axes:
            value, axes = self.spread(self.strong(value, dtype), axes, index)
        reduced: Tile = tile.Reduce(fn, value, axes.index(index))
        if fn.startswith("arg"):
            reduced = tile.Cast(reduced, int64)
        return reduced, tuple(a for a in axes if a is not index)

    def inside(self, fn: str, index: Index, body: Expr, value: Tile, axes: Axes) -> tuple[Tile, Axes]:
        """Replace what overhangs the axis of a reduction by its identity."""
        value = self.wide(body, value)
        if index not in self.bound:
            return value, axes
        mask, mask_axes = self._all_bounds((index,))
        neutral = identity({"argmax": "maximum", "argmin": "minimum"}.get(fn, fn), body.dtype)
        every = tuple(a for a in self.axes if a in axes or a is index)
        lifted = self.lift(mask, mask_axes, every), self.lift(self.strong(value, body.dtype), axes, every)
        return tile.Apply("where", (*lifted, Literal(neutral))), every

    def spread(self, value: Tile, axes: Axes, index: Index) -> tuple[Tile, Axes]:
        """Repeat a tile along an index that it does not depend on."""
        every = tuple(a for a in self.axes if a in axes or a is index)
        lifted = self.lift(value, axes, every)
        return tile.BroadcastTo(lifted, tuple(self.block[a] for a in every)), every

    def strong(self, value: Tile, dtype: DType) -> Tile:
        """Give a literal its type where no operand implies it."""
        if isinstance(value, Literal):
            return tile.Full((), value, dtype)
        return value

    def wide(self, e: Expr, value: Tile) -> Tile:
        """Widen a position from int32 to int64 where it is data."""
        if e.dtype is int64 and not isinstance(value, Literal) and self._is_position(e):
            return tile.Cast(value, int64)
        return value

    def _is_wide(self, value: Tile) -> bool:
        """Whether a position is in int64, since one of its operands does not fit in int32."""
        match value:
            case tile.Cast(_, dtype):
                return dtype is int64
            case tile.Apply(_, args):
                return any(self._is_wide(x) for x in args)
            case Name(name):
                return name in self.long
        return False

    def _is_position(self, e: Expr) -> bool:
        known = facts(e)
        return not known.data and not known.symbols

    def _applied(self, fn: str, made: list[tuple[Tile, Axes]], args: tuple[Expr, ...]) -> tuple[Tile, Axes]:
        fn = "mul" if fn in PRECISION_OF else fn  # a product outside a dot is as exact as it can be
        every = tuple(a for a in self.axes if any(a in axes for _, axes in made))
        values = [self.lift(value, axes, every) for value, axes in made]
        typed = [v for v, a in zip(values, args, strict=True) if not isinstance(v, Literal) and a.dtype is not bool_]
        choices = args[1:] if fn == "where" else args
        if not typed and choices[0].dtype is not bool_:
            n = len(args) - len(choices)
            values[n] = tile.Full((), values[n], choices[0].dtype)
        elif all(isinstance(v, Literal) for v in values[len(args) - len(choices) :]):
            values[-1] = tile.Full((), values[-1], choices[-1].dtype)
        if args[-1].dtype is int64 and not self._fits(fn, args):
            values = [self.wide(a, v) for a, v in zip(args, values, strict=True)]
        return self._deep(tile.Apply(fn, tuple(values)), *values), every

    def _fits(self, fn: str, args: tuple[Expr, ...]) -> bool:
        """Whether int32 holds the result of an application to positions."""
        if fn == "where" and not self._is_position(args[0]):
            return False  # the choice is no position either: nobody converts it later
        if any(isinstance(a, Const) and not int32.min <= a.value <= int32.max for a in args):
            return False
        if fn in ("lt", "le", "gt", "ge", "eq", "ne", "where", "floordiv", "mod", "minimum", "maximum"):
            return True
        if not all(self._is_position(a) for a in args):
            return True  # the other operand is int64 already
        low, high = bounds(apply(fn, *args))
        return type(low) is int and type(high) is int and low >= int32.min and high <= int32.max

    def _deep(self, made: Tile, *inner: Tile) -> Tile:
        self.depth[made] = 1 + max((self.depth.get(v, 0) for v in inner), default=0)
        return made

    def _load(self, source: Value, offset: Expr, guard: Expr, other: Tile | None = None) -> tuple[Tile, Axes]:
        where, axes = self.emit(offset, guard)
        mask, mask_axes = self.mask(axes, guard)
        every = tuple(a for a in self.axes if a in axes or a in mask_axes)
        pointer: Tile = Name(self.names[source])
        if where != Literal(0) or every:
            pointer = tile.Apply("add", (pointer, self.widened(offset, where, axes, every)))
        lifted = None if mask is None else self.lift(mask, mask_axes, every)
        return tile.Load(pointer, lifted, None if mask is None else other), every

    def widened(self, offset: Expr, where: Tile, axes: Axes, every: Axes) -> Tile:
        """Broadcast an offset to all axes, as a mask needs it."""
        shape = tuple(self.block[a] for a in every)
        if not axes:
            short = isinstance(where, Literal) or (self._is_position(offset) and not self._is_wide(where))
            dtype = int32 if short else int64
            return tile.Full(shape, where, dtype) if every else where
        lifted = self.lift(where, axes, every)
        return lifted if len(axes) == len(every) else tile.BroadcastTo(lifted, shape)

    def mask(self, axes: Axes, guard: Expr = TRUE) -> tuple[Tile | None, Axes]:
        """Return the condition under which the elements over some axes exist, if any may not."""
        condition, condition_axes = (None, ()) if guard is TRUE else self._holds(guard)
        overhanging = tuple(i for i in self.bound if i in (*axes, *condition_axes) or i not in self.axes)
        if self.masked and condition is not None:
            overhanging = tuple(i for i in overhanging if not keeps_below(guard, i, self.bound[i]))
        if not overhanging:
            return condition, condition_axes
        mask, every = self._all_bounds(overhanging)
        if condition is None:
            return mask, every
        union = tuple(a for a in self.axes if a in every or a in condition_axes)
        both = (self.lift(mask, every, union), self.lift(condition, condition_axes, union))
        return tile.Apply("bitand", both), union

    def _renews(self, stores: list[FlatStore]) -> bool:
        read = {self.names[e.source] for s in stores for e in walk(s.expr) if isinstance(e, Read)}
        return any(self.names[s.value] in read for s in stores)

    def _own(self, mask: Tile | None, axes: Axes) -> tuple[Tile, Axes]:
        """Exclude the elements that the overlapping tile before writes from a mask."""
        for index, begin in self.begins.items():
            own = self.assign("own", tile.Apply("ge", (Name(self.variables[index]), begin)))
            every = tuple(a for a in self.axes if a in axes or a is index)
            lifted = self.lift(own, (index,), every)
            mask = lifted if mask is None else tile.Apply("bitand", (self.lift(mask, axes, every), lifted))
            axes = every
        assert mask is not None
        return mask, axes

    def _holds(self, guard: Expr) -> tuple[Tile, Axes]:
        """Emit a guard as a tile. The last of its conditions may read only where those before it hold."""
        match guard:
            case Apply("bitand", (before, last)) if self._is_unsafe(last):
                made = [self._holds(before), self.emit(last, before)]
                return self._applied("bitand", made, (before, last))
        return self.emit(guard)

    def _all_bounds(self, indices: tuple[Index, ...]) -> tuple[Tile, Axes]:
        found = self.masks.get(indices)
        if found is None:
            every = tuple(a for a in self.axes if a in indices)
            mask: Tile | None = None
            for index in indices:
                extent = self.bound[index]
                limit = Literal(extent) if type(extent) is int else self.emit(size(extent))[0]
                one = tile.Apply("lt", (Name(self.variables[index]), limit))
                lifted = self.lift(one, (index,) if index in self.axes else (), every)
                mask = lifted if mask is None else tile.Apply("bitand", (mask, lifted))
            assert mask is not None
            found = self.masks[indices] = (self.assign("mask", mask), every)
        return found

    def _is_unsafe(self, e: Expr) -> bool:
        found = self.unsafe.get(e)
        if found is None:
            known = facts(e)
            found = self.unsafe[e] = known.checked or any(self._reads_outside(read) for read in known.reads)
        return found

    def _bare(self, e: Expr) -> frozenset[Read]:
        """Find the reads that may be out of range and are under no condition on indices alone."""
        if e not in self.bare:
            for part in walk(e):
                own: frozenset[Read] = frozenset()
                match part:
                    case Apply("where", (condition, _, _)) if not facts(condition).data:
                        pass
                    case _ if self._is_unsafe(part):
                        own = own.union(*[self.bare[p] for p in parts(part)])
                        if isinstance(part, Read) and self._reads_outside(part):
                            own |= {part}
                self.bare[part] = own
        return self.bare[e]

    def _reads_outside(self, e: Read) -> bool:
        low, high = bounds(e.position[0])
        count: Dim = e.source.type.count
        if type(low) is not int or low < 0 or high is None:
            return True
        room = count - 1 - high
        return isinstance(room, Size) or room < 0

    def lift(self, value: Tile, axes: Axes, every: Axes) -> Tile:
        """Broadcast a tile over some axes to more axes."""
        if axes == every or not axes:
            return value
        missing = tuple(n for n, a in enumerate(every) if a not in axes)
        return self._deep(tile.ExpandDims(value, missing), value)

    def store(self, stores: Iterable[FlatStore], exists: Expr = TRUE) -> None:
        """Store values where they exist. All are computed before the first is written, since they may read each other's
        memory.

        Overlapping tiles write the same elements twice, except where those depend on the old contents.
        """
        stores = list(stores)
        renewing = self.begins and self._renews(stores)
        ready = [(s, *self.emit(s.expr, exists)) for s in stores]
        for s, made, made_axes in ready:
            made = self.wide(s.expr, made)
            where, axes = self.emit(s.offset)
            every = tuple(a for a in self.axes if a in axes or a in made_axes)
            mask, mask_axes = self.mask(every, exists)
            if renewing:
                mask, mask_axes = self._own(mask, mask_axes)
            every = tuple(a for a in self.axes if a in every or a in mask_axes)
            pointer: Tile = Name(self.names[s.value])
            if where != Literal(0) or every:
                pointer = tile.Apply("add", (pointer, self.widened(s.offset, where, axes, every)))
            lifted = None if mask is None else self.lift(mask, mask_axes, every)
            self.body.append(Store(pointer, self.lift(made, made_axes, every), lifted))
