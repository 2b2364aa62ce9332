"""The kernel that `check` compiles: the user's, with every access looked at.

A pointer becomes the number of the element that it points at. Before each access the numbers are compared with the
tensor's extent, with themselves in 64 bits (had an offset overflowed, they would differ), and with what has been
written; a value that is stored is looked at for NaN. A program that finds something wrong notes its number at the place
of the access, and leaves the access out. What exactly is wrong the interpreter finds out, by running this program.
"""

from __future__ import annotations

from typing import NamedTuple

from ..ir.dtype import DType, bool_, int64, uint8
from ..ir.tile import (
    Apply,
    Assert,
    Assign,
    Atomic,
    BroadcastTo,
    Cast,
    Expand,
    For,
    Full,
    Gather,
    If,
    Kernel,
    Literal,
    Load,
    Name,
    NumPrograms,
    Parameter,
    Print,
    ProgramId,
    Reduce,
    Reshape,
    Statement,
    Store,
    Tile,
    Trans,
    While,
    parts,
)
from ..ir.tile_access import statements, walk
from ..ir.tile_types import Types

EXACT = frozenset({"add", "sub", "mul", "neg", "minimum", "maximum", "floordiv", "truncdiv", "fmod", "mod", "abs"})
"""Functions that are computed in 64 bits, to see whether they overflow in fewer."""
NOBODY = (1 << 62) - 1
"""Stands where no program has found anything."""


class Unsupported(Exception):
    """The kernel does with pointers what only the interpreter follows."""


class Instrumented(NamedTuple):
    """`sites` are the statements whose accesses are looked at, in the order of the entries of `faults`."""

    kernel: Kernel
    sites: tuple[Statement, ...]
    extents: tuple[str, ...]
    shadowed: tuple[str, ...]


def instrumented(kernel: Kernel, types: Types, shadowed: frozenset[str]) -> Instrumented:
    """The kernel with checks; raises Unsupported where it cannot be followed."""
    maker = _Maker(kernel, types, shadowed)
    maker.block(kernel.body, maker.body)
    pointers = tuple([p.name for p in kernel.parameters if p.pointer])
    extra = [Parameter(f"{n}_extent{maker.tail}", int64, False) for n in pointers]
    extra += [Parameter(f"{n}_written{maker.tail}", uint8) for n in sorted(shadowed)]
    parameters = (*kernel.parameters, *extra, Parameter(f"faults{maker.tail}", int64))
    made = Kernel(f"{kernel.name}_checked", parameters, tuple(maker.body), kernel.origin)
    return Instrumented(made, tuple(maker.sites), pointers, tuple(sorted(shadowed)))


class _Place(NamedTuple):
    base: str
    offset: Tile
    exact: Tile


class _Maker:
    def __init__(self, kernel: Kernel, types: Types, shadowed: frozenset[str]) -> None:
        self.types, self.shadowed = types, shadowed
        self.bases = {p.name: p.name for p in kernel.parameters if p.pointer}
        self.known = set(types.variables)
        self.tail = _tail(self.known)
        self.sites: list[Statement] = []
        self.loads: dict[int, tuple[Tile, Name]] = {}
        number = Cast(ProgramId(2), int64) * Cast(NumPrograms(1), int64) + Cast(ProgramId(1), int64)
        number = number * Cast(NumPrograms(0), int64) + Cast(ProgramId(0), int64)
        self.number = self.name("number")
        self.body: list[Statement] = [Assign(self.number, number)]
        self.here = self.body
        self.followed = {s.name for s in statements(kernel.body) if isinstance(s, Assign)}

    def name(self, hint: str) -> str:
        made, n = hint, 0
        while made in self.known:
            n += 1
            made = f"{hint}_{n}"
        self.known.add(made)
        return made

    # --- statements ------------------------------------------------------------------------------

    def block(self, body: tuple[Statement, ...], into: list[Statement]) -> None:
        outer, self.here = self.here, into
        for statement in body:
            self.loads = {}
            self.at = statement
            self.here.extend(self.statement(statement))
        self.here = outer

    def inner(self, body: tuple[Statement, ...]) -> tuple[Statement, ...]:
        made: list[Statement] = []
        self.block(body, made)
        return tuple(made)

    def statement(self, s: Statement) -> list[Statement]:
        match s:
            case Assign(name, value):
                return self.assign(name, value)
            case Store(pointer, value, mask):
                return self.store(pointer, value, mask)
            case Atomic(fn, pointer, value, mask, expected, name):
                place, ok = self.access(pointer, None if mask is None else self.value(mask))
                new = None if expected is None else self.value(expected)
                return [Atomic(fn, Name(place.base) + place.offset, self.value(value), ok, new, name)]
            case Print(text, values):
                return [Print(text, tuple([self.value(v) for v in values]))]
            case Assert(condition):
                self.report(Apply("invert", (self.value(condition),)), self.types.of(condition).shape)
                return []
            case For(index, start, stop, step, body):
                bounds = [self.value(x) for x in (start, stop, step)]
                return [For(index, bounds[0], bounds[1], bounds[2], self.inner(body))]
            case While(condition, body):
                if any(isinstance(x, Load) for x in walk(condition)):
                    raise Unsupported
                return [While(self.value(condition), self.inner(body))]
            case If(condition, then, otherwise):
                chosen = self.value(condition)
                return [If(chosen, self.inner(then), self.inner(otherwise))]

    def assign(self, name: str, value: Tile) -> list[Statement]:
        """The exact value comes first: it may be made from what the name was before."""
        t = self.types.variables[name]
        if t.pointer:
            place = self.place(value)
            if self.bases.setdefault(name, place.base) != place.base:
                raise Unsupported
            exact, offset = self.wide_shape(place.exact, value), self.wide_shape(place.offset, value)
            return [Assign(self.exact_name(name), exact), Assign(name, offset)]
        made: Statement = Assign(name, self.value(value))
        if t.dtype.kind != "int":
            return [made]
        return [Assign(self.exact_name(name), self.in_64_bits(self.exact(value))), made]

    def exact_name(self, name: str) -> str:
        """The variable that follows another one in 64 bits."""
        return f"{name}_exact{self.tail}"

    def in_64_bits(self, x: Tile) -> Tile:
        return Full((), x, int64) if isinstance(x, Literal) else x

    def wide_shape(self, x: Tile, pointer: Tile) -> Tile:
        """A number as a tile of the shape that a pointer has."""
        shape = self.types.of(pointer).shape
        return Full(shape, x, int64) if isinstance(x, Literal) else x

    def store(self, pointer: Tile, value: Tile, mask: Tile | None) -> list[Statement]:
        place, ok = self.access(pointer, None if mask is None else self.value(mask), reads=False)
        t = self.types.of(pointer)
        new = self.value(value)
        if t.dtype.is_float and not isinstance(value, Literal):
            kept = self.keep("stored", new)
            self.report(Apply("ne", (kept, kept)) & ok, t.shape)
            new = kept
        made: list[Statement] = [Store(Name(place.base) + place.offset, new, ok)]
        if place.base in self.shadowed:
            made.append(Store(Name(f"{place.base}_written{self.tail}") + place.offset, Literal(1), ok))
        return made

    # --- accesses --------------------------------------------------------------------------------

    def access(self, pointer: Tile, mask: Tile | None, reads: bool = True) -> tuple[_Place, Tile]:
        """The elements of an access, and which of them may be touched."""
        place = self.place(pointer)
        shape = self.types.of(pointer).shape
        offset = self.keep("at", self.wide_shape(place.offset, pointer))
        bad = (offset < 0) | (offset >= Name(f"{place.base}_extent{self.tail}")) | Apply("ne", (offset, place.exact))
        bad = self.keep("bad", bad if mask is None else bad & mask)
        good: Tile = Apply("invert", (bad,))
        ok = self.keep("ok", good if mask is None else good & mask)
        if reads and place.base in self.shadowed:
            seen = Load(Name(f"{place.base}_written{self.tail}") + offset, ok, Literal(1))
            bad = bad | Apply("eq", (seen, Literal(0)))
        self.report(bad, shape)
        return _Place(place.base, offset, place.exact), ok

    def keep(self, hint: str, x: Tile) -> Tile:
        name = self.name(hint)
        self.here.append(Assign(name, x))
        return Name(name)

    def report(self, bad: Tile, shape: tuple[int, ...]) -> None:
        """Notes this program at this place if anything is bad."""
        site = len(self.sites)
        self.sites.append(self.at)
        count = 1
        for extent in shape:
            count *= extent
        if shape:
            flat = bad if len(shape) == 1 else Reshape(BroadcastTo(bad, shape), (count,))
            bad = Reduce("bitor", flat, 0)
        note = Atomic("min", Name(f"faults{self.tail}") + site, Name(self.number))
        self.here.append(If(self.keep("wrong", bad), (note,)))

    def load(self, x: Load) -> Tile:
        found = self.loads.get(id(x))
        if found is None:
            mask = None if x.mask is None else self.value(x.mask)
            place, ok = self.access(x.pointer, mask)
            dtype = self.types.of(x).dtype
            other = poison(dtype) if x.other is None else self.value(x.other)
            made = self.keep("loaded", Load(Name(place.base) + place.offset, ok, other))
            assert isinstance(made, Name)
            found = self.loads[id(x)] = (x, made)
        return found[1]

    def value(self, x: Tile) -> Tile:
        """An expression with its loads done before."""
        if isinstance(x, Load):
            return self.load(x)
        if not parts(x):
            return x
        made = {id(part): self.value(part) for part in parts(x)}
        if isinstance(x, Gather):
            index = made[id(x.index)]
            self.report((index < 0) | (index >= self.types.of(x.x).shape[x.axis]), self.types.of(x).shape)
        return x.replaced(**{n: _swapped(x.__dict__[n], made) for n in x.children})  # type: ignore[no-any-return]

    # --- where pointers point --------------------------------------------------------------------

    def place(self, x: Tile) -> _Place:
        match x:
            case Name(name) if name in self.bases:
                base = self.bases[name]
                if base == name:
                    return _Place(base, Literal(0), Literal(0))
                return _Place(base, Name(name), Name(self.exact_name(name)))
            case Apply("add" | "sub" as fn, (y, z)):
                pointer, distance = (y, z) if self.types.of(y).pointer else (z, y)
                place = self.place(pointer)
                step = self.value(distance) if isinstance(distance, Literal) else Cast(self.value(distance), int64)
                exact = self.exact(distance)
                return _Place(place.base, Apply(fn, (place.offset, step)), Apply(fn, (place.exact, exact)))
            case Expand() | BroadcastTo() | Reshape() | Trans():
                place = self.place(x.x)
                return _Place(
                    place.base,
                    x.replaced(x=self.wide_shape(place.offset, x.x)),
                    x.replaced(x=self.wide_shape(place.exact, x.x)),
                )
        raise Unsupported

    def exact(self, x: Tile) -> Tile:
        """An integer expression as it would be in 64 bits all the way."""
        match x:
            case Literal():
                return x
            case Name(name) if self.has_exact(name):
                return Name(self.exact_name(name))
            case Apply(fn, args) if fn in EXACT and self.types.of(x).dtype.kind == "int":
                return Apply(fn, tuple([self.exact(a) for a in args]))
            case Apply("where", (condition, y, z)) if self.types.of(x).dtype.kind == "int":
                return Apply("where", (self.value(condition), self.exact(y), self.exact(z)))
            case Cast(y, dtype) if dtype is int64 and self.types.of(y).dtype.kind == "int":
                return self.in_64_bits(self.exact(y))
            case Expand() | BroadcastTo() | Reshape() | Trans():
                return x.replaced(x=self.in_64_bits(self.exact(x.x)))  # type: ignore[no-any-return]
            case Full(shape, value, dtype) if dtype.kind == "int":
                return Full(shape, self.exact(value), int64)
        return Cast(self.value(x), int64)

    def has_exact(self, name: str) -> bool:
        """Whether a variable is followed in 64 bits: all signed ones but parameters and the counters of loops."""
        return self.types.variables[name].dtype.kind == "int" and name in self.followed


def _tail(known: set[str]) -> str:
    """What our names end with, so that the user has none of them."""
    tail = ""
    words = ("exact", "extent", "written")
    while f"faults{tail}" in known or any(f"{name}_{word}{tail}" in known for name in known for word in words):
        tail += "_"
    return tail


def poison(dtype: DType) -> Tile:
    """What stands where nothing was loaded."""
    if dtype.is_float:
        return Literal(float("nan"))
    return Literal(True) if dtype is bool_ else Literal(int(dtype.max) // 3 * 2)


def _swapped(field: object, made: dict[int, Tile]) -> object:
    if isinstance(field, tuple):
        return tuple([made[id(x)] for x in field])
    return field if field is None else made[id(field)]
