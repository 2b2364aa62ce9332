"""Build a tile kernel: its statements, fresh names, and the types of names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from keyword import iskeyword
from typing import TYPE_CHECKING, Any

from ...ir.dtype import DType, bool_
from ...ir.tile import Assign, Cast, ExpandDims, Full, Literal, Name, Statement, Tile, TileParameter
from ...ir.tile_types import Refused, TileType, Types
from .values import Number, Operand, SymbolicTile, number_dtype

if TYPE_CHECKING:
    from .source import KernelLocation

RESERVED = frozenset({"tl", "tg", "range", "float"})
"""Names that the printed form of a kernel uses."""


class TileWriter:
    """Builds statements; each name is used once, and `home` is the block where it was created."""

    def __init__(self) -> None:
        self.types = Types({})
        self.open: list[list[Statement]] = [[]]
        self.numbers = [0]
        self.count = 0
        self.home: dict[str, int] = {}
        self.places: dict[int, tuple[Statement, KernelLocation]] = {}
        """Source locations of statements, by identity."""
        self.parts: dict[int, tuple[Tile, KernelLocation]] = {}
        self.at: KernelLocation | None = None
        self.hidden: dict[DType, TileParameter] = {}
        """Implicit pointers to address 0 by element type, for pointers made of addresses."""
        self.calls: tuple[KernelLocation, ...] = ()

    # --- statements ------------------------------------------------------------------------------

    def emit(self, statement: Statement) -> None:
        assert self.at is not None
        self.places[id(statement)] = (statement, self.at)
        self.open[-1].append(statement)

    @contextmanager
    def block(self) -> Iterator[list[Statement]]:
        """Collect the statements emitted within the block in a new list."""
        body: list[Statement] = []
        self.count += 1
        self.open.append(body)
        self.numbers.append(self.count)
        try:
            yield body
        finally:
            self.open.pop()
            self.numbers.pop()

    @property
    def here(self) -> int:
        """The number of the innermost block."""
        return self.numbers[-1]

    # --- names -----------------------------------------------------------------------------------

    def fresh(self, hint: str, type: TileType) -> str:
        """Return an unused name."""
        hint = hint if hint.isidentifier() and not iskeyword(hint) and hint not in RESERVED else f"{hint}_"
        name, n = hint, 0
        while name in self.types.variables:
            n += 1
            name = f"{hint}_{n}"
        self.types.variables[name] = type
        self.home[name] = self.here
        return name

    def assign(self, name: str, x: Operand) -> SymbolicTile:
        """Assign a new value to an existing name."""
        type = self.types.variables[name]
        value = x.tile if isinstance(x, SymbolicTile) and type.pointer else self.operand(x, type.dtype)
        self.emit(Assign(name, value))
        return SymbolicTile(Name(name), type)

    def named(self, x: Operand, hint: str) -> SymbolicTile:
        """Bind a value to a new name."""
        made = self.tile(x)
        name = self.fresh(hint, made.type)
        self.emit(Assign(name, made.tile))
        return SymbolicTile(Name(name), made.type)

    def held(self, x: Any, hint: str) -> Any:
        """Bind a value to a name unless it is cheap, so that it can be used repeatedly and later."""
        if isinstance(x, SymbolicTile) and not isinstance(x.tile, Name | Literal):
            return self.named(x, hint)
        return x

    def memory(self, dtype: DType) -> Name:
        """Return a pointer to address 0 of an element type."""
        if dtype not in self.hidden:
            name = self.fresh("memory", TileType(dtype, (), True))
            self.home[name] = -1
            self.hidden[dtype] = TileParameter(name, dtype)
        return Name(self.hidden[dtype].name)

    # --- expressions -----------------------------------------------------------------------------

    def make(self, tile: Tile) -> SymbolicTile:
        """Build a typed expression; raises Refused if it has no type."""
        if self.at is not None:
            self.parts[id(tile)] = (tile, self.at)
        return SymbolicTile(tile, self.types.of(tile))

    def tile(self, x: Operand) -> SymbolicTile:
        """Return a number as a scalar tile of its own dtype; a tile unchanged."""
        if isinstance(x, SymbolicTile):
            return x
        if not isinstance(x, int | float):
            raise Refused(f"{x!r} is neither a tile nor a number")
        literal = Literal(x)
        dtype = number_dtype(x)
        alone = self.types.of(literal).dtype
        return self.make(literal if alone is dtype else Full((), literal, dtype))

    def operand(self, x: Operand, dtype: DType) -> Tile:
        """Return a value as an expression that has, or can take, a dtype."""
        if isinstance(x, SymbolicTile):
            return self.cast(x, dtype).tile
        return Literal(in_dtype(x, dtype))

    def cast(self, x: SymbolicTile, dtype: DType) -> SymbolicTile:
        """Convert elements to a dtype."""
        if x.type.pointer:
            raise Refused("a pointer is used as a number: read through it with tl.load")
        return x if x.type.dtype is dtype else self.make(Cast(x.tile, dtype))

    def with_rank(self, x: SymbolicTile, rank: int) -> SymbolicTile:
        """Insert leading axes of extent 1 up to a rank."""
        missing = rank - len(x.shape)
        return x if missing <= 0 or not x.shape else self.make(ExpandDims(x.tile, tuple(range(missing))))

    # --- what builtins ask for -------------------------------------------------------------------

    def inline(self, fn: Any, args: tuple[Any, ...]) -> Any:
        """Inline a call of another kernel function on tiles; implemented by the reader."""
        raise NotImplementedError


def in_dtype(x: Number, dtype: DType) -> Number:
    """Convert a number to a literal of a dtype."""
    if dtype is bool_:
        return bool(x)
    if dtype.is_float:
        return float(x)
    if isinstance(x, float) and not x.is_integer():
        raise Refused(f"{x!r} is no number of {dtype.name}: convert with .to(...)")
    value = int(x)
    if not dtype.min <= value <= dtype.max:
        raise Refused(f"{value} is no number of {dtype.name}, which has {dtype.min} to {dtype.max}")
    return value


def static_int(x: Any, role: str) -> int:
    """Return a compile-time integer."""
    if isinstance(x, SymbolicTile):
        raise Refused(
            f"{role} must be known when the kernel is compiled, and this is computed when it runs: make what it comes "
            "from a parameter `NAME: tl.constexpr`"
        )
    if isinstance(x, bool) or not isinstance(x, int):
        if isinstance(x, float) and x.is_integer():
            return int(x)
        raise Refused(f"{role} is a whole number, and not {x!r}")
    return x


def static_shape(x: Any, role: str = "a shape") -> tuple[int, ...]:
    """Return a compile-time shape."""
    parts = x if isinstance(x, tuple) else (x,)
    shape = tuple([static_int(part, f"every extent of {role}") for part in parts])
    if any(extent < 1 for extent in shape):
        raise Refused(f"the extents of a tile are positive, and not {list(shape)}")
    return shape
