"""Define the tile language: what one program instance of a kernel does.

    kernel    ::= Kernel(name, parameters, body, origin)
    parameter ::= TileParameter(name, dtype, pointer)
    statement ::= Assign(name, value) | Store(pointer, value, mask) | Print(text, values) | Assert(condition, text)
                | Atomic(fn, pointer, value, mask, expected, name)
                | For(index, start, stop, step, body) | While(condition, body) | If(condition, body, otherwise)
    tile      ::= Name(name) | Literal(value) | ProgramId(axis) | NumPrograms(axis) | Arange(start, stop)
                | Load(pointer, mask, other) | Apply(fn, args) | Cast(x, dtype) | Bitcast(x, dtype)
                | Full(shape, value, dtype) | ExpandDims(x, axes) | BroadcastTo(x, shape) | Reshape(x, shape)
                | Trans(x, permutation) | Reduce(fn, x, axis) | Scan(fn, x, axis)
                | Dot(x, y, accumulator, precision) | GatherAlongAxis(x, index, axis)

Every value is a tile: an array of static shape, `()` for a scalar. Notation and semantics are Triton's:

- Names are variables: assigned again inside `For`, `While` or `If` they are loop-carried. The scope of a name first
  assigned inside a block is that block. All assignments of a name in a kernel have one type, also in sibling blocks,
  so the type of an expression depends on the expression alone.
- `ProgramId`, `NumPrograms` and `Arange` are int32. A literal takes the type of its other operands; alone it is
  int32 (int64 if it must), float32 or bool. Integers of two widths are promoted to the wider if that holds the
  values of both; nothing else is converted.
- Shapes broadcast as in numpy.
- A pointer plus integers is a tile of pointers; `Load` and `Store` access it element by element. Where
  `mask` is false nothing is read (the element is `other`, or unspecified) and nothing written.
  A mask and `other` broadcast to the pointer's shape, and so does the value of a `Store`.
- The instances of a kernel run in any order, or concurrently. No instance may load what another stores.
- An `Atomic` is an indivisible read-modify-write. The order between the lanes of a tile
  and between instances is unspecified. `name`, if given, is assigned the old value.
- `GatherAlongAxis` takes, along its axis, the elements selected by `index`; an index out of range is an error.
- `Print` and `Assert` are for debugging: each backend decides what an `Assert` does.
- Reductions and scans of float16 and bfloat16 accumulate in float32 and round at the end.
- Arange may have any length. Integer overflow of an offset is an error of the kernel.
- `Reduce` drops its axis; argmax and argmin give int32, the first position if several are equal, or
  that of the first NaN. `Dot` accumulates in float32 (float64, int32) for float (float64, integer) operands;
  `input_precision` is its minimum precision for float32 operands (`precision.py`).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from .dtype import DType
from .node import Structure, amend, cache_fact
from .precision import Precision

if TYPE_CHECKING:
    from .contraction import Contraction, SumOfParts


def printers() -> Any:
    """Import the printer when a kernel is first printed."""
    return import_module(f"{__package__}.tile_printer")


class Tile(Structure):
    """An expression. `children` names the fields that are expressions. Operators build expressions."""

    children: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.children = tuple(n for n in cls.fields if "Tile" in cls.annotations[n])

    def __add__(self, other: Tile | float) -> Tile:
        return Apply("add", (self, tile(other)))

    def __sub__(self, other: Tile | float) -> Tile:
        return Apply("sub", (self, tile(other)))

    def __mul__(self, other: Tile | float) -> Tile:
        return Apply("mul", (self, tile(other)))

    def __floordiv__(self, other: Tile | float) -> Tile:
        return Apply("floordiv", (self, tile(other)))

    def __mod__(self, other: Tile | float) -> Tile:
        return Apply("mod", (self, tile(other)))

    def __and__(self, other: Tile | bool) -> Tile:
        return Apply("bitand", (self, tile(other)))

    def __or__(self, other: Tile | bool) -> Tile:
        return Apply("bitor", (self, tile(other)))

    def __lt__(self, other: Tile | float) -> Tile:
        return Apply("lt", (self, tile(other)))

    def __le__(self, other: Tile | float) -> Tile:
        return Apply("le", (self, tile(other)))

    def __gt__(self, other: Tile | float) -> Tile:
        return Apply("gt", (self, tile(other)))

    def __ge__(self, other: Tile | float) -> Tile:
        return Apply("ge", (self, tile(other)))

    def __str__(self) -> str:
        return printers().show_tile(self)  # type: ignore[no-any-return]


class Name(Tile):
    name: str


def tile(x: Tile | float) -> Tile:
    """Convert a Python number to an expression; return an expression unchanged."""
    return x if isinstance(x, Tile) else Literal(x)


class Literal(Tile):
    value: int | float | bool

    def field_values(self) -> tuple[Any, ...]:
        """Key the literals 1, 1.0 and True apart, and so 0.0 and -0.0."""
        return (type(self.value).__name__, repr(self.value))


class ProgramId(Tile):
    axis: int


class NumPrograms(Tile):
    axis: int


class Arange(Tile):
    """The integers start, start + 1, ... stop - 1."""

    start: int
    stop: int


class Load(Tile):
    pointer: Tile
    mask: Tile | None = None
    other: Tile | None = None


class Apply(Tile):
    """A function of `functions.FUNCTIONS`, applied elementwise."""

    fn: str
    args: tuple[Tile, ...]


class Cast(Tile):
    x: Tile
    dtype: DType


class Bitcast(Tile):
    x: Tile
    dtype: DType


class Full(Tile):
    shape: tuple[int, ...]
    value: Tile
    dtype: DType


class ExpandDims(Tile):
    """`x[:, None]`: inserts axes of extent 1, given by their positions in the result."""

    x: Tile
    axes: tuple[int, ...]


class BroadcastTo(Tile):
    x: Tile
    shape: tuple[int, ...]


class Reshape(Tile):
    x: Tile
    shape: tuple[int, ...]


class Trans(Tile):
    x: Tile
    permutation: tuple[int, ...]


class Reduce(Tile):
    """`fn` is a key of `functions.REDUCERS`."""

    fn: str
    x: Tile
    axis: int


class Scan(Tile):
    fn: str
    x: Tile
    axis: int


class Dot(Tile):
    """x (m, k) times y (k, n), added to the accumulator (m, n) if there is one."""

    x: Tile
    y: Tile
    accumulator: Tile | None = None
    precision: Precision = "highest"


class GatherAlongAxis(Tile):
    """Element [.., index[.., i, ..], ..] of x: the shapes of x and of the index differ at most along the axis."""

    x: Tile
    index: Tile
    axis: int


def parts(x: Tile) -> tuple[Tile, ...]:
    """List the operands of an expression.

    >>> parts(Load(Name("x") + Name("i"), Name("m")))
    (Apply(fn='add', args=(Name(name='x'), Name(name='i'))), Name(name='m'))
    """
    own = x.__dict__
    known: tuple[Tile, ...] | None = own.get("_parts")
    if known is not None:
        return known
    found: list[Tile] = []
    for name in x.children:
        value = own[name]
        if isinstance(value, tuple):
            found.extend(value)
        elif value is not None:
            found.append(value)
    made = tuple(found)
    cache_fact(x, "_parts", made)
    return made


class Assign(Structure):
    name: str
    value: Tile


class Store(Structure):
    pointer: Tile
    value: Tile
    mask: Tile | None = None


class Atomic(Structure):
    """`fn` is one of `ATOMICS`; `expected` is the comparand of cas; `name` is empty if the old value is unused."""

    fn: str
    pointer: Tile
    value: Tile
    mask: Tile | None = None
    expected: Tile | None = None
    name: str = ""


ATOMICS = ("add", "max", "min", "and", "or", "xor", "xchg", "cas")


class Print(Structure):
    """Prints a line for each element: the program, the text, and the values."""

    text: str
    values: tuple[Tile, ...]


class Assert(Structure):
    """Requires that all elements of the condition are true."""

    condition: Tile
    text: str


class For(Structure):
    """A loop: index = start, start + step, ... while it is below stop; the step is positive."""

    index: str
    start: Tile
    stop: Tile
    step: Tile
    body: tuple[Statement, ...]


class While(Structure):
    condition: Tile
    body: tuple[Statement, ...]


class If(Structure):
    condition: Tile
    body: tuple[Statement, ...]
    otherwise: tuple[Statement, ...] = ()


Statement: TypeAlias = "Assign | Store | Atomic | Print | Assert | For | While | If"


class TileParameter(Structure):
    """A pointer to elements of a dtype, or (pointer=False) a number."""

    name: str
    dtype: DType
    pointer: bool = True


class Kernel(Structure):
    name: str
    parameters: tuple[TileParameter, ...]
    body: tuple[Statement, ...]
    origin: str = ""
    """A comment: the user's lines that the kernel computes."""
    computes: Contraction | SumOfParts | None = None
    """The contraction that the kernel computes, where a library could; no part of its code."""

    def field_values(self) -> tuple[Any, ...]:
        """Return the fields that are compared: `computes` follows from the code."""
        own = self.__dict__
        return tuple([own[name] for name in self.fields if name != "computes"])

    def __repr__(self) -> str:
        shown = [f"{name}={self.__dict__[name]!r}" for name in self.fields if name != "computes"]
        return f"{type(self).__name__}({', '.join(shown)})"

    def digest(self) -> str:
        """Return a hash of the code, the same in all processes."""
        own = self.__dict__
        if "_digest" not in own:
            self._described()
        return own["_digest"]  # type: ignore[no-any-return]

    def form(self) -> str:
        """Return a hash of the code with names numbered by first appearance, so that layers of one shape share code.

        >>> one, other = (Kernel("double", (), (Assign(x, Name(y)),)) for x, y in ("ab", "cd"))
        >>> one.form() == other.form(), one.form() == Kernel("double", (), (Assign("a", Name("a")),)).form()
        (True, False)
        """
        own = self.__dict__
        if "_form" not in own:
            self._described()
        return own["_form"]  # type: ignore[no-any-return]

    def _described(self) -> None:
        """Compute the digest and the form from one text: printing dominates the cost of both."""
        import re
        from hashlib import sha256

        text = repr(self.replaced(origin=""))
        amend(self, _digest=sha256(text.encode()).hexdigest())
        names: dict[str, int] = {}
        if "text=" not in text:  # what a kernel prints is not to be looked into

            def numbered(found: re.Match[str]) -> str:
                return f"{found[1]}={names.setdefault(found[2], len(names))}"

            text = re.sub(r"\b(name|index)='(\w+)'", numbered, text)
        amend(self, _form=f"{self.name} {sha256(text.encode()).hexdigest()}")

    @classmethod
    def known(cls, *fields: Any) -> Kernel:
        """Build a kernel from its fields and its precomputed digest and form."""
        *own, digest, form = fields
        made = cls(*own)
        amend(made, _digest=digest, _form=form)
        return made

    def __str__(self) -> str:
        return printers().show_kernel(self)  # type: ignore[no-any-return]
