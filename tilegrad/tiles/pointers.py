"""Analyse pointers: which parameter they point into, and at which element, in integers that cannot overflow."""

from __future__ import annotations

from typing import NamedTuple

from ..ir.dtype import int64
from ..ir.tile import Apply, BroadcastTo, Cast, ExpandDims, Full, Literal, Name, Reshape, Tile, Trans
from ..ir.tile_types import Types

OVERFLOWING = frozenset(
    {"add", "sub", "mul", "neg", "minimum", "maximum", "floordiv", "truncdiv", "fmod", "mod", "abs"}
)
"""Functions recomputed in 64 bits to detect overflow of narrower integers."""


class Unsupported(Exception):
    """Raised where a kernel uses pointers in a way that only the interpreter can follow."""


class PointedElement(NamedTuple):
    """An element that a pointer refers to: `offset` as the kernel computes it, `exact` in 64 bits throughout."""

    base: str
    offset: Tile
    exact: Tile


class PointerAnalysis:
    """Tracks pointers: `bases` are the parameters that variables point into; `followed` have a 64-bit twin."""

    def __init__(self, types: Types, bases: dict[str, str], followed: frozenset[str], tail: str) -> None:
        self.types, self.bases, self.followed, self.tail = types, bases, followed, tail

    def value(self, x: Tile) -> Tile:
        """Translate an expression into the instrumented kernel."""
        raise NotImplementedError

    def place(self, x: Tile) -> PointedElement:
        match x:
            case Name(name) if name in self.bases:
                base = self.bases[name]
                if base == name:
                    return PointedElement(base, Literal(0), Literal(0))
                return PointedElement(base, Name(name), Name(self.exact_name(name)))
            case Apply("add" | "sub" as fn, (y, z)):
                pointer, distance = (y, z) if self.types.of(y).pointer else (z, y)
                place = self.place(pointer)
                step = self.value(distance) if isinstance(distance, Literal) else Cast(self.value(distance), int64)
                exact = self.exact(distance)
                return PointedElement(place.base, Apply(fn, (place.offset, step)), Apply(fn, (place.exact, exact)))
            case ExpandDims() | BroadcastTo() | Reshape() | Trans():
                place = self.place(x.x)
                return PointedElement(
                    place.base,
                    x.replaced(x=self.wide_shape(place.offset, x.x)),
                    x.replaced(x=self.wide_shape(place.exact, x.x)),
                )
        raise Unsupported

    def is_exact(self, x: Tile) -> bool:
        """Whether an integer expression cannot overflow, so that it needs no recomputation in 64 bits."""
        followed = Literal | Apply | Cast | ExpandDims | BroadcastTo | Reshape | Trans | Full | Name
        return not isinstance(x, followed)

    def exact(self, x: Tile) -> Tile:
        """Recompute an integer expression in 64 bits throughout."""
        match x:
            case Literal():
                return x
            case Name(name) if self.has_exact(name):
                return Name(self.exact_name(name))
            case Apply(fn, args) if fn in OVERFLOWING and self.types.of(x).dtype.kind == "int":
                return Apply(fn, tuple([self.exact(a) for a in args]))
            case Apply("where", (condition, y, z)) if self.types.of(x).dtype.kind == "int":
                return Apply("where", (self.value(condition), self.exact(y), self.exact(z)))
            case Cast(y, dtype) if dtype is int64 and self.types.of(y).dtype.kind == "int":
                return self.in_64_bits(self.exact(y))
            case ExpandDims() | BroadcastTo() | Reshape() | Trans():
                return x.replaced(x=self.in_64_bits(self.exact(x.x)))  # type: ignore[no-any-return]
            case Full(shape, value, dtype) if dtype.kind == "int":
                return Full(shape, self.exact(value), int64)
        return Cast(self.value(x), int64)

    def has_exact(self, name: str) -> bool:
        """Whether a variable has a 64-bit twin: signed variables that indices depend on, except loop counters."""
        return self.types.variables[name].dtype.kind == "int" and name in self.followed

    def exact_name(self, name: str) -> str:
        """Return the name of a variable's 64-bit twin."""
        return f"{name}_exact{self.tail}"

    def in_64_bits(self, x: Tile) -> Tile:
        return Full((), x, int64) if isinstance(x, Literal) else x

    def wide_shape(self, x: Tile, pointer: Tile) -> Tile:
        """Broadcast a number to the shape of a pointer."""
        shape = self.types.of(pointer).shape
        return Full(shape, x, int64) if isinstance(x, Literal) else x
