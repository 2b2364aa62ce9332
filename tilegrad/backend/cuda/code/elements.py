"""Evaluate tile expressions at a position as C++ expressions.

A view gives a position along each axis, with the layout digits it is made of. A variable whose layout has the same
digits is read from registers; any other is read from a copy in shared memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from math import prod
from typing import NamedTuple

from ....ir import tile as ir
from ....ir.dtype import DType, bfloat16, bool_, float16, float32, int32, uint32
from ....ir.tile_access import walk
from ....ir.tile_types import TileType, Types
from ....tiles.affine import Affine
from . import functions
from .functions import PRODUCT, SUM, TYPES, Text, binary, literal
from .hardware import REGISTER_BITS
from .layout import Digit, RegisterLayout

LANE = "v"
"""Index variable of loops over the elements of a vector."""


class AxisPosition(NamedTuple):
    """A position along an axis: the start of a vector, or an element of it."""

    at: Text
    """Start of the vector."""
    digits: tuple[tuple[Digit, str], ...] | None = ()
    """Layout digits, with the index variables of those in registers; None: the position belongs to no layout."""
    width: int = 0
    """Width of the vector whose current element this is; 0: the start of the vector."""


View = tuple[AxisPosition, ...]
ORIGIN = AxisPosition(Text("0"))


def element_view(view: View, layout: RegisterLayout) -> View:
    """Return the view of the current element, inside a loop over the elements of a layout's vectors."""
    return tuple([a._replace(width=layout.width) if n == layout.vector else a for n, a in enumerate(view)])


class RegisterTile(NamedTuple):
    """A tile in registers: `text` is the array."""

    text: str
    layout: RegisterLayout
    element: str = ""
    """Text of the current element, if the array does not cover all registers."""


class SharedTile(NamedTuple):
    """A tile in shared memory, in row-major order."""

    text: str
    shape: tuple[int, ...]
    pitch: int
    """Elements from row to row."""


class Elements:
    """Evaluates the expressions of one kernel."""

    def __init__(self, types: Types, affine: Affine, positions: frozenset[int], name_of: Callable[[str], str]) -> None:
        self.types, self.affine, self.positions, self.name_of = types, affine, positions, name_of
        self.inlined: dict[str, ir.Tile] = {}
        self.register_tiles: dict[str, RegisterTile] = {}
        self.shared_tiles: dict[str, SharedTile] = {}
        self.fast_functions: dict[str, str] = {}
        """Fast replacements of float32 functions."""
        self.declare: Callable[[str, str, Text], str] | None = None
        """Declares a variable for a position: (type, stem, value)."""
        self.named_positions: dict[tuple[str, View], str] = {}
        self.extra_positions: list[ir.Tile] = []
        self.missing: set[str] = set()
        """Variables that were read but are neither in registers nor in shared memory."""
        self.memo: dict[tuple[int, View], Text] | None = None
        """Memo of evaluated expressions, while only `missing` is of interest."""

    def add_position(self, x: ir.Tile) -> None:
        """Mark an expression as a position; it is kept alive, so that its identity is not reused."""
        self.extra_positions.append(x)
        self.positions |= {id(y) for y in walk(x)}

    def registers_only(self) -> Elements:
        """Return an evaluator that reads registers alone, declares nothing, and collects the missing variables."""
        made = copy(self)
        made.register_tiles, made.shared_tiles = dict(self.register_tiles), {}
        made.declare, made.missing, made.memo = None, set(), {}
        return made

    @contextmanager
    def naming(self, declare: Callable[[str, str, Text], str] | None) -> Iterator[None]:
        """Declare positions by a function, or (None) write them out at each use, inside the block."""
        outer = self.declare, self.named_positions
        self.declare, self.named_positions = declare, {}
        yield
        self.declare, self.named_positions = outer

    def forget_local_tiles(self) -> None:
        """Forget the tiles of which only the current element exists, at the end of their loop."""
        self.register_tiles = {name: tile for name, tile in self.register_tiles.items() if not tile.element}

    def shape(self, x: ir.Tile) -> tuple[int, ...]:
        return () if isinstance(x, ir.Literal) else self.types.of(x).shape

    def dtype(self, x: ir.Tile, default: DType) -> DType:
        return default if isinstance(x, ir.Literal) else self.types.of(x).dtype

    def part(self, x: ir.Tile, view: View, shape: tuple[int, ...], dtype: DType) -> Text:
        """Evaluate an operand that is broadcast to a shape."""
        own = self.shape(x)
        if not own:
            return self.of(x, (), dtype)
        inner = view[len(view) - len(own) :]
        whole = shape[len(shape) - len(own) :]
        return self.of(
            x, tuple([ORIGIN if e == 1 and w != 1 else a for a, e, w in zip(inner, own, whole, strict=True)]), dtype
        )

    def of(self, x: ir.Tile, view: View, dtype: DType) -> Text:
        """Evaluate an expression at a view; a literal takes the dtype."""
        if isinstance(x, ir.Literal):
            return literal(x.value, dtype)
        if self.memo is None:
            return self._of(x, view, self.types.of(x))
        key = (id(x), view)
        found = self.memo.get(key)
        if found is None:
            found = self.memo[key] = self._of(x, view, self.types.of(x))
        return found

    def _of(self, x: ir.Tile, view: View, t: TileType) -> Text:
        match x:
            case ir.Name(name):
                return self._name(name, view, t)
            case ir.Apply():
                return self._address(x, view, t) if t.pointer else self._apply(x, view, t)
            case ir.Arange(start, _):
                at = self.position(view[0])
                return binary("+", SUM, at, Text(str(start))) if start else at
            case ir.ProgramId(axis):
                return Text(f"program_{axis}")
            case ir.NumPrograms(axis):
                return Text(f"grid_{axis}")
            case ir.Cast():
                return self._cast(x, view)
            case ir.Bitcast(y, target):
                have = self.types.of(y).dtype
                return functions.bitcast(self.of(y, view, have), have, target)
            case ir.Full(_, value, wanted):
                have = self.dtype(value, wanted)
                return functions.cast(self.of(value, (), have), have, wanted)
        return self._rearranged(x, view, t)

    def _cast(self, x: ir.Cast, view: View) -> Text:
        have = self.dtype(x.x, x.dtype)
        rounds = have is float32 and x.dtype in (float16, bfloat16)
        value = self._before_rounding(x.x, view) if rounds else self.of(x.x, view, have)
        return functions.cast(value, have, x.dtype)

    def _rearranged(self, x: ir.Tile, view: View, t: TileType) -> Text:
        """Evaluate an expression that only selects elements of another one."""
        match x:
            case ir.ExpandDims(y, axes):
                return self.of(y, tuple([a for n, a in enumerate(view) if n not in axes]), t.dtype)
            case ir.BroadcastTo(y, shape):
                return self.part(y, view, shape, t.dtype)
            case ir.Trans(y, permutation):
                return self.of(y, tuple([view[permutation.index(n)] for n in range(len(view))]), t.dtype)
            case ir.Reshape(y, _):
                return self.of(y, self._reshaped(view, t.shape, self.shape(y)), t.dtype)
            case ir.GatherAlongAxis(y, index, axis):
                return self.of(y, self._gathered(view, index, axis, self.shape(y)), t.dtype)
        raise NotImplementedError(type(x).__name__)

    def _before_rounding(self, x: ir.Tile, view: View) -> Text:
        """Evaluate a float32 expression that will be rounded to 16 bits."""
        before = self.fast_functions
        self.fast_functions = {**functions.FAST_BEFORE_ROUNDING, **before}
        made = self.of(x, view, float32)
        self.fast_functions = before
        return made

    # --- names -----------------------------------------------------------------------------------

    def _name(self, name: str, view: View, t: TileType) -> Text:
        if name in self.inlined:
            return self._positional(name, view, t)
        if not t.shape:
            return Text(self.name_of(name))
        kept = self.register_tiles.get(name)
        if kept is not None and matches_layout(kept.layout, view):
            return Text(kept.element or kept.text + self._indices(kept.layout, view))
        shared = self.shared_tiles.get(name)
        if shared is None:
            self.missing.add(name)
            return Text(self.name_of(name))
        inside = tuple([self._clamped(axis, extent) for axis, extent in zip(view, shared.shape, strict=True)])
        return Text(f"{shared.text}[{self.place(inside, shared.shape, shared.pitch)}]")

    def _clamped(self, axis: AxisPosition, extent: int) -> AxisPosition:
        """Clamp a position to the tile: threads beyond it read the last element, which is not used."""
        if axis.digits is not None and prod(d.extent for d, _ in axis.digits) <= extent:
            return axis
        return AxisPosition(Text(f"min({self.position(axis)}, {extent - 1})"), axis.digits)

    def _indices(self, layout: RegisterLayout, view: View) -> str:
        made = ""
        for axis, place in layout.registers():
            digits = view[axis].digits
            assert digits is not None
            made += f"[{digits[place][1]}]"
        return made

    def place(self, view: View, shape: tuple[int, ...], pitch: int) -> Text:
        """Return the offset of an element in memory with this pitch."""
        flat: Text | None = None
        for n, axis in enumerate(view):
            at = self.position(axis)
            step = pitch if n == len(shape) - 1 else shape[n]
            if flat is None or flat.text == "0":
                flat = at
            else:
                scaled = binary("*", PRODUCT, flat, Text(str(step)))
                flat = scaled if at.text == "0" else binary("+", SUM, scaled, at)
        return flat or Text("0")

    def position(self, axis: AxisPosition) -> Text:
        if not axis.width:
            return axis.at
        return binary("+", SUM, axis.at, Text(LANE)) if axis.at.text != "0" else Text(LANE)

    def _positional(self, name: str, view: View, t: TileType) -> Text:
        """Evaluate an index, mask or address of the position; name its value at the start of the vector."""
        meaning = self.inlined[name]
        if t.dtype is bool_ and not t.pointer:
            return self.of(meaning, view, t.dtype)
        vector = next((n for n, a in enumerate(view) if a.width), None)
        step = 0 if vector is None else self.affine.step(ir.Name(name), vector - len(view), view[vector].width)
        if step is None or self.declare is None:
            return self.of(meaning, view, t.dtype)
        start = view if vector is None else tuple([a._replace(width=0) for a in view])
        found = self.named_positions.get((name, start))
        if found is None:
            value = self.of(meaning, start, t.dtype)
            found = self.declare("auto" if t.pointer else TYPES[t.dtype.name], self.name_of(name), value)
            self.named_positions[(name, start)] = found
        if not step:
            return Text(found)
        offset = Text(LANE) if step == 1 else binary("*", PRODUCT, Text(LANE), Text(str(step)))
        return binary("+", SUM, Text(found), offset)

    def _reshaped(self, view: View, shape: tuple[int, ...], inner: tuple[int, ...]) -> View:
        """Return the view of a reshaped tile's operand from that of the result."""
        if tuple(e for e in shape if e > 1) == tuple(e for e in inner if e > 1):
            rest = iter([a for a, e in zip(view, shape, strict=True) if e > 1])
            return tuple([next(rest) if e > 1 else ORIGIN for e in inner])
        flat = self.place(view, shape, shape[-1])
        made: list[AxisPosition] = []
        below = 1
        for n in reversed(range(len(inner))):
            at = flat if below == 1 else binary("/", PRODUCT, flat, Text(str(below)), free=False)
            if n and at.text != "0":
                at = binary("%", PRODUCT, at, Text(str(inner[n])), free=False)
            made.append(AxisPosition(at, None))
            below *= inner[n]
        return tuple(reversed(made))

    def _gathered(self, view: View, index: ir.Tile, axis: int, shape: tuple[int, ...]) -> View:
        """Return the view of a gather's source: one axis is the index."""
        have = self.dtype(index, int32)
        at = functions.cast(self.part(index, view, self.shape(index), have), have, int32)
        inside = Text(f"minimum(maximum({at}, 0), {shape[axis] - 1})")
        return (*view[:axis], AxisPosition(inside, None), *view[axis + 1 :])

    # --- functions -------------------------------------------------------------------------------

    def _argument(self, a: ir.Tile, dtype: DType, view: View, t: TileType, widening: bool) -> Text:
        """Return an operand in the type in which a function computes; integers of positions keep their own."""
        have = self.dtype(a, dtype)
        plain = widening and dtype.is_integer
        short = plain and isinstance(a, ir.Literal) and int32.min < a.value <= int32.max
        made = self.part(a, view, t.shape, int32 if short else have)
        return made if plain else functions.cast(made, have, dtype)

    def _apply(self, x: ir.Apply, view: View, t: TileType) -> Text:
        meeting = self.types.arguments(x)
        wanted = (bool_, meeting, meeting) if x.fn == "where" else (meeting,) * len(x.args)
        position = id(x) in self.positions
        widening = position and x.fn in _WIDENING
        args = [self._argument(a, dtype, view, t, widening) for a, dtype in zip(x.args, wanted, strict=True)]
        if x.fn in ("floordiv", "mod") and isinstance(x.args[1], ir.Literal) and x.args[1].value > 0:
            if meeting.is_integer and self.affine.is_nonnegative(x.args[0]):
                made = self._natural(x.fn, meeting, args, x.args[1].value)
                return made if meeting.bits >= REGISTER_BITS else functions.call(TYPES[meeting.name], made)
        if meeting is float32 and x.fn in self.fast_functions:
            return functions.call(self.fast_functions[x.fn], *args)
        return functions.apply_function(x.fn, meeting, args, position)

    def _natural(self, fn: str, dtype: DType, args: Sequence[Text], divisor: float) -> Text:
        """Divide a non-negative number: unsigned arithmetic tells the compiler what it cannot prove."""
        if dtype.kind == "int" and divisor <= uint32.max:
            return functions.call("quotient" if fn == "floordiv" else "rest", *args)
        return binary("/" if fn == "floordiv" else "%", PRODUCT, args[0], args[1], free=False)

    def _address(self, x: ir.Apply, view: View, t: TileType) -> Text:
        base, offset, forward = self.address_parts(x)
        start = self.part(base, view, t.shape, t.dtype)
        have = self.dtype(offset, t.dtype)
        distance = self.part(offset, view, t.shape, int32 if isinstance(offset, ir.Literal) else have)
        return binary("+" if forward else "-", SUM, start, distance, free=False)

    def address_parts(self, x: ir.Apply) -> tuple[ir.Tile, ir.Tile, bool]:
        """Return pointer, offset, and whether the offset is added."""
        base, offset = x.args
        if isinstance(base, ir.Literal) or not self.types.of(base).pointer:
            base, offset = offset, base
        return base, offset, x.fn == "add"

    def memory(self, pointer: ir.Tile, view: View) -> Text:
        """Return the memory access of a pointer."""
        t = self.types.of(pointer)
        if isinstance(pointer, ir.Apply):
            base, offset, forward = self.address_parts(pointer)
            if isinstance(base, ir.Name) and forward and not self.types.of(base).shape:
                have = self.dtype(offset, int32)
                return Text(f"{self.of(base, (), have)}[{self.part(offset, view, t.shape, have)}]")
        return Text(f"*{self.of(pointer, view, t.dtype).within(functions.UNARY)}", functions.UNARY)


_WIDENING = frozenset(("add", "sub", "mul", "eq", "ne", "lt", "le", "gt", "ge"))
"""Functions for which C++ itself widens two integers to the wider type."""


def matches_layout(layout: RegisterLayout, view: View) -> bool:
    """Return whether a layout has the digits of a view."""
    return all(
        axis.digits is not None and digits == tuple([d for d, _ in axis.digits])
        for digits, axis in zip(layout.axes, view, strict=True)
    )
