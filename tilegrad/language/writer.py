"""The kernel that is being written while a user's function is read: its statements, and the types of its names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from keyword import iskeyword
from typing import TYPE_CHECKING, Any

from ..ir.dtype import DType, bool_
from ..ir.tile import Assign, Cast, Expand, Full, Literal, Name, Parameter, Statement, Tile
from ..ir.tile_types import Refused, TileType, Types
from .values import Block, Number, Operand, number_dtype

if TYPE_CHECKING:
    from .source import Place

RESERVED = frozenset({"tl", "tg", "range", "float"})
"""Names that the printed form of a kernel uses."""


class Writer:
    """Names are given out once each; `home` says in which block one was made."""

    def __init__(self) -> None:
        self.types = Types({})
        self.open: list[list[Statement]] = [[]]
        self.numbers = [0]
        self.count = 0
        self.home: dict[str, int] = {}
        self.places: dict[int, tuple[Statement, Place]] = {}
        """Where statements come from, by identity."""
        self.parts: dict[int, tuple[Tile, Place]] = {}
        self.at: Place | None = None
        self.hidden: dict[DType, Parameter] = {}
        """Pointers to address 0, for those that are made of addresses."""
        self.calls: tuple[Place, ...] = ()

    # --- statements ------------------------------------------------------------------------------

    def emit(self, statement: Statement) -> None:
        assert self.at is not None
        self.places[id(statement)] = (statement, self.at)
        self.open[-1].append(statement)

    @contextmanager
    def block(self) -> Iterator[list[Statement]]:
        """Statements that are put into a list of their own."""
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
        """The number of the block that is being written."""
        return self.numbers[-1]

    # --- names -----------------------------------------------------------------------------------

    def fresh(self, hint: str, type: TileType) -> str:
        """A name that is used nowhere else."""
        hint = hint if hint.isidentifier() and not iskeyword(hint) and hint not in RESERVED else f"{hint}_"
        name, n = hint, 0
        while name in self.types.variables:
            n += 1
            name = f"{hint}_{n}"
        self.types.variables[name] = type
        self.home[name] = self.here
        return name

    def assign(self, name: str, x: Operand) -> Block:
        """Gives a name that is known already another value."""
        type = self.types.variables[name]
        value = x.tile if isinstance(x, Block) and type.pointer else self.operand(x, type.dtype)
        self.emit(Assign(name, value))
        return Block(Name(name), type)

    def named(self, x: Operand, hint: str) -> Block:
        """A value under a name of its own."""
        made = self.tile(x)
        name = self.fresh(hint, made.type)
        self.emit(Assign(name, made.tile))
        return Block(Name(name), made.type)

    def held(self, x: Any, hint: str) -> Any:
        """A value that may be used several times, and after other statements."""
        if isinstance(x, Block) and not isinstance(x.tile, Name | Literal):
            return self.named(x, hint)
        return x

    def memory(self, dtype: DType) -> Name:
        """The start of all memory, as a pointer to elements of some type."""
        if dtype not in self.hidden:
            name = self.fresh("memory", TileType(dtype, (), True))
            self.home[name] = -1
            self.hidden[dtype] = Parameter(name, dtype)
        return Name(self.hidden[dtype].name)

    # --- expressions -----------------------------------------------------------------------------

    def make(self, tile: Tile) -> Block:
        """An expression with its type; raises Refused if it has none."""
        if self.at is not None:
            self.parts[id(tile)] = (tile, self.at)
        return Block(tile, self.types.of(tile))

    def tile(self, x: Operand) -> Block:
        """A number as a tile of its own type; a tile as it is."""
        if isinstance(x, Block):
            return x
        if not isinstance(x, int | float):
            raise Refused(f"{x!r} is neither a tile nor a number")
        literal = Literal(x)
        dtype = number_dtype(x)
        alone = self.types.of(literal).dtype
        return self.make(literal if alone is dtype else Full((), literal, dtype))

    def operand(self, x: Operand, dtype: DType) -> Tile:
        """A value as an expression that has, or takes, a dtype."""
        if isinstance(x, Block):
            return self.cast(x, dtype).tile
        return Literal(in_dtype(x, dtype))

    def cast(self, x: Block, dtype: DType) -> Block:
        """The elements in another type."""
        if x.type.pointer:
            raise Refused("a pointer is used as a number: read through it with tl.load")
        return x if x.type.dtype is dtype else self.make(Cast(x.tile, dtype))

    def expanded(self, x: Block, rank: int) -> Block:
        """With axes of extent 1 in front, as many as there should be."""
        missing = rank - len(x.shape)
        return x if missing <= 0 or not x.shape else self.make(Expand(x.tile, tuple(range(missing))))

    # --- what builtins ask for -------------------------------------------------------------------

    def inline(self, fn: Any, args: tuple[Any, ...]) -> Any:
        """Calls another kernel function with tiles; the reader says how."""
        raise NotImplementedError


def in_dtype(x: Number, dtype: DType) -> Number:
    """A number as one of a dtype."""
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
    """A whole number that is known when the kernel is compiled."""
    if isinstance(x, Block):
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
    """Extents that are known when the kernel is compiled."""
    parts = x if isinstance(x, tuple) else (x,)
    shape = tuple([static_int(part, f"every extent of {role}") for part in parts])
    if any(extent < 1 for extent in shape):
        raise Refused(f"the extents of a tile are positive, and not {list(shape)}")
    return shape
