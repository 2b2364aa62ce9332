"""Instrument a kernel for `check`: test every memory access.

A pointer becomes the index of the element that it points to (`pointers.py`). Before each access the indices are
compared with the tensor's extent, with the same indices computed in 64 bits (to find overflow), with the elements
written so far, and with the elements of a view. A stored value is tested for NaN and read back, to find another lane
that stores to the same element. A program that finds a fault records its number for that access and skips the access;
the interpreter then runs this program to find the exact cause.
"""

from __future__ import annotations

from math import prod
from typing import NamedTuple

from ..backend.reference.positions import position_parts
from ..ir import tile as ir
from ..ir.dtype import FLOAT8, DType, bool_, float32, int16, int32, int64, uint8
from ..ir.tile_access import roots, statements, walk
from ..ir.tile_types import Types
from ..tiles.pointers import PointedElement, PointerAnalysis, Unsupported

PROGRAM_PAIR_BASE = 1 << 31
"""Faults are encoded as the number of a program times this, plus the number of a second program."""
NO_FAULT = (1 << 62) - 1
"""Fault entry while no program has found anything."""


class CheckOptions(NamedTuple):
    """Parameters that need more than a bounds check."""

    unwritten: frozenset[str] = frozenset()
    """Parameters whose elements have not been written yet."""
    holed: frozenset[str] = frozenset()
    """Parameters that are views with gaps between their elements."""
    loaded: bool = False
    """Test loaded values for NaN too: NaN stored after loading one is not the kernel's fault."""
    ordered: bool = False
    """One program runs the work of all, in the order given by a list."""


class CheckedAccess(NamedTuple):
    """A checked access; `wrong` describes the faults that it can have."""

    statement: ir.Statement
    wrong: str
    nan: bool = False


class InstrumentedKernel(NamedTuple):
    """An instrumented kernel; `sites` are in the order of the entries of `faults`."""

    kernel: ir.Kernel
    sites: tuple[CheckedAccess, ...]
    extents: tuple[str, ...]
    watch: CheckOptions


def instrument(kernel: ir.Kernel, types: Types, watch: CheckOptions) -> InstrumentedKernel:
    """Instrument a kernel; raises Unsupported where its pointers cannot be followed."""
    maker = _Instrumenter(kernel, types, watch)
    maker.block(kernel.body, maker.body)
    pointers = tuple([p.name for p in kernel.parameters if p.pointer])
    extra = [ir.TileParameter(f"{n}_extent{maker.tail}", int64, False) for n in pointers]
    extra += [ir.TileParameter(f"{n}_written{maker.tail}", int32) for n in sorted(watch.unwritten)]
    extra += [ir.TileParameter(f"{n}_inside{maker.tail}", uint8) for n in sorted(watch.holed)]
    extra.append(ir.TileParameter(f"faults{maker.tail}", int64))
    body = tuple(maker.body)
    if watch.ordered:
        extra += [
            ir.TileParameter(f"order{maker.tail}", int32),
            *[ir.TileParameter(n, int32, False) for n in maker.programs],
        ]
        body = maker.run_in_order(body)
    made = ir.Kernel(f"{kernel.name}_checked", (*kernel.parameters, *extra), body, kernel.origin)
    return InstrumentedKernel(made, tuple(maker.sites), pointers, watch)


def decode_fault(word: int) -> tuple[int, int]:
    """Decode a fault: the program that found it, and another one involved (itself if there is none).

    >>> decode_fault(7 * PROGRAM_PAIR_BASE + 3)
    (7, 3)
    """
    return divmod(word, PROGRAM_PAIR_BASE)


class _Instrumenter(PointerAnalysis):
    """Builds the instrumented kernel; `here` is the statement list being filled."""

    def __init__(self, kernel: ir.Kernel, types: Types, watch: CheckOptions) -> None:
        every = list(statements(kernel.body))
        self.known = set(types.variables)
        bases = {p.name: p.name for p in kernel.parameters if p.pointer}
        super().__init__(types, bases, _index_variables(kernel), _name_suffix(self.known))
        self.watch = watch
        self.locks = any(isinstance(s, ir.Atomic) and s.fn in ("cas", "xchg") for s in every)
        self.sites: list[CheckedAccess] = []
        self.loads: dict[int, tuple[ir.Tile, ir.Name]] = {}
        self.program = [self.name(f"program_{axis}") for axis in range(3)]
        self.programs = [f"programs_{axis}{self.tail}" for axis in range(3)]
        one, two, three = (ir.Cast(self.value(ir.ProgramId(axis)), int64) for axis in range(3))
        wide, high = (ir.Cast(self.value(ir.NumPrograms(axis)), int64) for axis in range(2))
        number = (three * high + two) * wide + one
        self.number, self.tainted = self.name("number"), self.name("tainted")
        self.body: list[ir.Statement] = [ir.Assign(self.number, number)]
        if watch.loaded:
            self.body.append(ir.Assign(self.tainted, ir.Literal(False)))
        self.here = self.body

    def name(self, hint: str) -> str:
        made, n = hint, 0
        while made in self.known:
            n += 1
            made = f"{hint}_{n}"
        self.known.add(made)
        return made

    def run_in_order(self, body: tuple[ir.Statement, ...]) -> tuple[ir.Statement, ...]:
        """Run the work of all programs in sequence inside one program."""
        wide, high, deep = (ir.Name(n) for n in self.programs)
        iteration, which = self.name("turn"), self.name("which")
        places = (ir.Name(which) % wide, ir.Name(which) // wide % high, ir.Name(which) // (wide * high))
        start = [ir.Assign(which, ir.Load(ir.Name(f"order{self.tail}") + ir.Name(iteration)))]
        start += [ir.Assign(n, place) for n, place in zip(self.program, places, strict=True)]
        return (ir.For(iteration, ir.Literal(0), wide * high * deep, ir.Literal(1), (*start, *body)),)

    # --- statements ------------------------------------------------------------------------------

    def block(self, body: tuple[ir.Statement, ...], into: list[ir.Statement]) -> None:
        outer, self.here = self.here, into
        for statement in body:
            self.loads = {}
            self.at = statement
            self.here.extend(self.statement(statement))
        self.here = outer

    def inner(self, body: tuple[ir.Statement, ...]) -> list[ir.Statement]:
        made: list[ir.Statement] = []
        self.block(body, made)
        return made

    def statement(self, s: ir.Statement) -> list[ir.Statement]:
        match s:
            case ir.Assign(name, value):
                return self.assign(name, value)
            case ir.Store(pointer, value, mask):
                return self.store(pointer, value, mask)
            case ir.Atomic(fn, pointer, value, mask, expected, name):
                place, ok = self.access(pointer, None if mask is None else self.value(mask))
                new = None if expected is None else self.value(expected)
                given = self.checked_value(value, pointer, ok)
                return [ir.Atomic(fn, ir.Name(place.base) + place.offset, given, ok, new, name)]
            case ir.Print(text, values):
                return [ir.Print(text, tuple([self.value(v) for v in values]))]
            case ir.Assert(condition):
                wrong = ir.Apply("invert", (self.value(condition),))
                self.report(wrong, self.types.of(condition).shape, "the assertion fails")
                return []
            case ir.For():
                return self.loop(s)
            case ir.While():
                return self.while_loop(s)
            case ir.If(condition, then, otherwise):
                chosen = self.value(condition)
                return [ir.If(chosen, tuple(self.inner(then)), tuple(self.inner(otherwise)))]

    def loop(self, s: ir.For) -> list[ir.Statement]:
        start, stop, step = (self.value(x) for x in (s.start, s.stop, s.step))
        if not isinstance(step, ir.Literal):
            wrong = self.bind("wrong", step <= 0)
            self.report(wrong, (), "the step of the loop is not positive")
            stop = ir.Apply("where", (wrong, start, stop)) if not isinstance(start, ir.Literal) else stop
            step = ir.Apply("maximum", (step, ir.Literal(1)))
        return [ir.For(s.index, start, stop, step, tuple(self.inner(s.body)))]

    def while_loop(self, s: ir.While) -> list[ir.Statement]:
        """Instrument a `while` loop: the loads of its condition are checked before each iteration."""
        if not any(isinstance(x, ir.Load | ir.GatherAlongAxis) for x in walk(s.condition)):
            return [ir.While(self.value(s.condition), tuple(self.inner(s.body)))]
        go = ir.Assign(self.name("go"), self.value(s.condition))
        body = self.inner(s.body)
        outer, self.here, self.loads, self.at = self.here, body, {}, s
        body.append(ir.Assign(go.name, self.value(s.condition)))
        self.here = outer
        return [go, ir.While(ir.Name(go.name), tuple(body))]

    def assign(self, name: str, value: ir.Tile) -> list[ir.Statement]:
        """Instrument an assignment; the 64-bit value comes first, because it may use the name's old value."""
        t = self.types.variables[name]
        if t.pointer:
            place = self.place(value)
            if self.bases.setdefault(name, place.base) != place.base:
                raise Unsupported
            exact, offset = self.wide_shape(place.exact, value), self.wide_shape(place.offset, value)
            return [ir.Assign(self.exact_name(name), exact), ir.Assign(name, offset)]
        made: ir.Statement = ir.Assign(name, self.value(value))
        if not self.has_exact(name):
            return [made]
        if self.is_exact(value):
            return [made, ir.Assign(self.exact_name(name), ir.Cast(ir.Name(name), int64))]
        return [ir.Assign(self.exact_name(name), self.in_64_bits(self.exact(value))), made]

    def store(self, pointer: ir.Tile, value: ir.Tile, mask: ir.Tile | None) -> list[ir.Statement]:
        place, ok = self.access(pointer, None if mask is None else self.value(mask), reads=False)
        target, shape = ir.Name(place.base) + place.offset, self.types.of(pointer).shape
        new = self.checked_value(value, pointer, ok)
        self.here.append(ir.Store(target, new, ok))
        if prod(shape) > 1:
            new = new if isinstance(new, ir.Literal | ir.Name) else self.bind("stored", new)
            wrong = self.bits_differ(ir.Load(target, ok, new), new, self.types.of(pointer).dtype)
            self.report(wrong, shape, "a lane stores where another one stores another value")
        if place.base in self.watch.unwritten:
            mine = ir.Cast(ir.Name(self.number) + 1, int32)
            return [ir.Store(ir.Name(f"{place.base}_written{self.tail}") + place.offset, mine, ok)]
        return []

    def checked_value(self, value: ir.Tile, pointer: ir.Tile, ok: ir.Tile) -> ir.Tile:
        """Test a stored value for NaN."""
        t, new = self.types.of(pointer), self.value(value)
        if not t.dtype.is_float or isinstance(value, ir.Literal):
            return new
        new = self.bind("new", new)
        wide = _comparable(new, t.dtype)
        found = _any_lane("bitor", ir.Apply("ne", (wide, wide)) & ok, t.shape)
        if self.watch.loaded:
            found = found & ir.Apply("invert", (ir.Name(self.tainted),))
        self.note(found, "a NaN is stored that was not loaded", nan=True)
        return new

    def bits_differ(self, x: ir.Tile, y: ir.Tile, dtype: DType) -> ir.Tile:
        """Compare bit by bit, so that NaN equals itself."""
        if not dtype.is_float or isinstance(y, ir.Literal):
            return ir.Apply("ne", (x, y))
        x, y = _comparable(x, dtype), _comparable(y, dtype)
        bits = next(d for d in (int16, int32, int64) if d.bits == (32 if dtype in FLOAT8 else dtype.bits))
        return ir.Apply("ne", (ir.Bitcast(x, bits), ir.Bitcast(y, bits)))

    # --- accesses --------------------------------------------------------------------------------

    def access(self, pointer: ir.Tile, mask: ir.Tile | None, reads: bool = True) -> tuple[PointedElement, ir.Tile]:
        """Return the indices of an access and the mask of elements to touch: none of them if any is faulty.

        Index tiles are recomputed at each use, which is cheaper than keeping them.
        """
        place = self.place(pointer)
        shape = self.types.of(pointer).shape
        offset = self.wide_shape(place.offset, pointer)
        ok = self.report_and_mask(
            self.out_of_bounds(offset, place), mask, shape, f"{place.base} is left, or an offset overflows"
        )
        if place.base in self.watch.holed:
            member = ir.Load(ir.Name(f"{place.base}_inside{self.tail}") + offset, ok, ir.Literal(1))
            hole = ir.Apply("sub", (ir.Cast(member, int64), ir.Literal(1)))
            ok = self.report_and_mask(hole, ok, shape, f"an access between the elements of {place.base}")
        if reads and place.base in self.watch.unwritten:
            self.check_writer(place.base, offset, ok, shape)
        return PointedElement(place.base, offset, place.exact), ok

    def out_of_bounds(self, offset: ir.Tile, place: PointedElement) -> ir.Tile:
        """Return a number that is negative if the index is negative, out of bounds, or overflowed.

        One comparison of all lanes together is cheaper than three separate ones.
        """
        last = ir.Name(f"{place.base}_extent{self.tail}") - 1
        off = ir.Apply("bitxor", (offset, place.exact))
        return offset | (last - offset) | off | ir.Apply("neg", (off,))

    def report_and_mask(self, bad: ir.Tile, mask: ir.Tile | None, shape: tuple[int, ...], wrong: str) -> ir.Tile:
        """Report negative numbers, and return the mask of lanes that may access memory."""
        bad = bad if mask is None else ir.Apply("where", (mask, bad, ir.Literal(0)))
        found = self.note(_any_lane("bitor", bad, shape) < 0, wrong)
        good: ir.Tile = ir.Apply("invert", (found,))
        return good if mask is None else good & mask

    def check_writer(self, base: str, offset: ir.Tile, ok: ir.Tile, shape: tuple[int, ...]) -> None:
        """Check that loaded elements were written by this program; by any program if programs synchronize."""
        mine = ir.Cast(ir.Name(self.number) + 1, int32)
        seen = ir.Load(ir.Name(f"{base}_written{self.tail}") + offset, ok, mine)
        bad = ir.Apply("eq", (seen, ir.Literal(0))) if self.locks else ir.Apply("ne", (seen, mine))
        self.report(bad, shape, f"an element of {base} is read that this program has not written", seen)

    def bind(self, hint: str, x: ir.Tile) -> ir.Name:
        name = self.name(hint)
        self.here.append(ir.Assign(name, x))
        return ir.Name(name)

    def report(self, bad: ir.Tile, shape: tuple[int, ...], wrong: str, writer: ir.Tile | None = None) -> None:
        """Record this program if any lane is faulty, together with a program that wrote to the same element."""
        other = None
        if writer is not None:
            other = _any_lane("maximum", ir.Apply("where", (bad, writer, ir.Literal(0))), shape)
        self.note(_any_lane("bitor", bad, shape), wrong, other)

    def note(self, found: ir.Tile, wrong: str, writer: ir.Tile | None = None, nan: bool = False) -> ir.Name:
        """Record this program at a checked access; return whether there was a fault."""
        site = len(self.sites)
        self.sites.append(CheckedAccess(self.at, wrong, nan))
        number: ir.Tile = ir.Name(self.number)
        other = number if writer is None else ir.Apply("where", (writer > 0, ir.Cast(writer, int64) - 1, number))
        kept = self.bind("wrong", found)
        self.here.append(
            ir.If(kept, (ir.Atomic("min", ir.Name(f"faults{self.tail}") + site, number * PROGRAM_PAIR_BASE + other),))
        )
        return kept

    def load(self, x: ir.Load) -> ir.Tile:
        found = self.loads.get(id(x))
        if found is None:
            mask = None if x.mask is None else self.value(x.mask)
            place, ok = self.access(x.pointer, mask)
            t = self.types.of(x)
            other = masked_value(t.dtype) if x.other is None else self.value(x.other)
            made = self.bind("loaded", ir.Load(ir.Name(place.base) + place.offset, ok, other))
            if t.dtype.is_float and self.watch.loaded:
                nan: ir.Tile = ir.Apply("ne", (made, made))
                nan = nan & ok if x.other is None and mask is not None else nan
                self.here.append(ir.Assign(self.tainted, ir.Name(self.tainted) | _any_lane("bitor", nan, t.shape)))
            found = self.loads[id(x)] = (x, made)
        return found[1]

    def value(self, x: ir.Tile) -> ir.Tile:
        """Return an expression whose loads are done by statements before it."""
        match x:
            case ir.Load():
                return self.load(x)
            case ir.ProgramId(axis) if self.watch.ordered:
                return ir.Name(self.program[axis])
            case ir.NumPrograms(axis) if self.watch.ordered:
                return ir.Name(self.programs[axis])
        if not ir.parts(x):
            return x
        made = {id(part): self.value(part) for part in ir.parts(x)}
        if isinstance(x, ir.GatherAlongAxis):
            made[id(x.index)] = self.checked_index(made[id(x.index)], self.types.of(x.x).shape[x.axis], x)
        return x.replaced(**{n: _swapped(x.__dict__[n], made) for n in x.children})  # type: ignore[no-any-return]

    def checked_index(self, index: ir.Tile, extent: int, x: ir.GatherAlongAxis) -> ir.Tile:
        """Return the indices limited to existing elements."""
        wrong = self.bind("wrong", (index < 0) | (index >= extent))
        self.report(wrong, self.types.of(x).shape, "an element is gathered that is outside its axis")
        return ir.Apply("where", (wrong, ir.Literal(0), index))


def _index_variables(kernel: ir.Kernel) -> frozenset[str]:
    """Return the variables that indices depend on."""
    found = position_parts(kernel)
    assigned = {s.name for s in statements(kernel.body) if isinstance(s, ir.Assign)}
    every = walk(*[x for s in statements(kernel.body) for x in roots(s)])
    return frozenset(x.name for x in every if isinstance(x, ir.Name) and id(x) in found) & assigned


def _comparable(x: ir.Tile, dtype: DType) -> ir.Tile:
    """Return elements in a comparable dtype: 8-bit floats have no comparisons."""
    return ir.Cast(x, float32) if dtype in FLOAT8 else x


def _any_lane(fn: str, x: ir.Tile, shape: tuple[int, ...]) -> ir.Tile:
    """Reduce a tile to one number."""
    if not shape:
        return x
    flat = x if len(shape) == 1 else ir.Reshape(ir.BroadcastTo(x, shape), (prod(shape),))
    return ir.Reduce(fn, flat, 0)


def _name_suffix(known: set[str]) -> str:
    """Return a suffix that keeps generated names distinct from the user's."""
    tail = ""
    words = ("exact", "extent", "written", "inside")
    ours = {"faults", "order", *[f"programs_{axis}" for axis in range(3)], *[f"{n}_{w}" for n in known for w in words]}
    while any(f"{name}{tail}" in known for name in ours):
        tail += "_"
    return tail


def masked_value(dtype: DType) -> ir.Tile:
    """Return the value that masked-off loads yield."""
    if dtype.is_float:
        return ir.Literal(float("nan"))
    return ir.Literal(True) if dtype is bool_ else ir.Literal(int(dtype.max) // 3 * 2)


def _swapped(field: object, made: dict[int, ir.Tile]) -> object:
    if isinstance(field, tuple):
        return tuple([made[id(x)] for x in field])
    return field if field is None else made[id(field)]
