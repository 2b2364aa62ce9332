"""Where a pointer of a user's kernel points: at which element of which parameter, in numbers that cannot overflow."""

from __future__ import annotations

from typing import NamedTuple

from ..ir.dtype import int64
from ..ir.tile import Apply, BroadcastTo, Cast, Expand, Full, Literal, Name, Reshape, Tile, Trans
from ..ir.tile_types import Types

EXACT = frozenset({"add", "sub", "mul", "neg", "minimum", "maximum", "floordiv", "truncdiv", "fmod", "mod", "abs"})
"""Functions that are computed in 64 bits, to see whether they overflow in fewer."""


class Unsupported(Exception):
    """The kernel does with pointers what only the interpreter follows."""


class Place(NamedTuple):
    """`offset` as the kernel computes it, `exact` in 64 bits all the way."""

    base: str
    offset: Tile
    exact: Tile


class Pointing:
    """`bases` are the parameters that variables point into; `followed` have a second variable, in 64 bits."""

    def __init__(self, types: Types, bases: dict[str, str], followed: frozenset[str], tail: str) -> None:
        self.types, self.bases, self.followed, self.tail = types, bases, followed, tail

    def value(self, x: Tile) -> Tile:
        """An expression as it stands in the kernel that checks."""
        raise NotImplementedError

    def place(self, x: Tile) -> Place:
        match x:
            case Name(name) if name in self.bases:
                base = self.bases[name]
                if base == name:
                    return Place(base, Literal(0), Literal(0))
                return Place(base, Name(name), Name(self.exact_name(name)))
            case Apply("add" | "sub" as fn, (y, z)):
                pointer, distance = (y, z) if self.types.of(y).pointer else (z, y)
                place = self.place(pointer)
                step = self.value(distance) if isinstance(distance, Literal) else Cast(self.value(distance), int64)
                exact = self.exact(distance)
                return Place(place.base, Apply(fn, (place.offset, step)), Apply(fn, (place.exact, exact)))
            case Expand() | BroadcastTo() | Reshape() | Trans():
                place = self.place(x.x)
                return Place(
                    place.base,
                    x.replaced(x=self.wide_shape(place.offset, x.x)),
                    x.replaced(x=self.wide_shape(place.exact, x.x)),
                )
        raise Unsupported

    def is_exact(self, x: Tile) -> bool:
        """Whether an integer expression cannot overflow itself, and so is not computed again in 64 bits."""
        followed = Literal | Apply | Cast | Expand | BroadcastTo | Reshape | Trans | Full | Name
        return not isinstance(x, followed)

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
        """Whether a variable is followed in 64 bits: signed ones that positions are made of, no counters of loops."""
        return self.types.variables[name].dtype.kind == "int" and name in self.followed

    def exact_name(self, name: str) -> str:
        """The variable that follows another one in 64 bits."""
        return f"{name}_exact{self.tail}"

    def in_64_bits(self, x: Tile) -> Tile:
        return Full((), x, int64) if isinstance(x, Literal) else x

    def wide_shape(self, x: Tile, pointer: Tile) -> Tile:
        """A number as a tile of the shape that a pointer has."""
        shape = self.types.of(pointer).shape
        return Full(shape, x, int64) if isinstance(x, Literal) else x
