"""Evaluate tile expressions at a position: one element, or a vector along the last axis.

An expression is evaluated where it is used, inside the loops that use it. Names stand for registers (scalars), for
memory on the stack (tiles worth storing), or for an inlined expression, evaluated in the same way. Loads become vector
loads where addresses are contiguous.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ....ir import tile as ir
from ....ir.dtype import DType, bool_, int32, int64
from ....ir.tile_types import TileType, Types, literal_dtype
from ....tiles.affine import Affine
from .. import vectors
from ..emit import I32, I64, Builder, LlvmValue, Type, constant, dtype_constant, element_type, lane_constants
from .chains import MAX_RECURSION, names_below
from .checked_indices import clamped_index
from .memory import StackTile, gather, is_small_stride, load_element, load_vector
from .peepholes import simpler
from .position import Position


class ElementEvaluator:
    """Evaluates the expressions of one kernel."""

    def __init__(self, types: Types, b: Builder, min_masked_bytes: int) -> None:
        self.types, self.b = types, b
        self.min_masked_bytes = min_masked_bytes
        """Smallest element size in bytes for which masked vector loads are used."""
        self.registers: dict[str, LlvmValue] = {}
        """Scalars that are assigned once, and the addresses of parameters."""
        self.memory: dict[str, StackTile] = {}
        self.inlined: dict[str, ir.Tile] = {}
        self.affine = Affine(types, {}, {})
        self.computed: dict[int, StackTile] = {}
        """Memory of the reductions, scans, products and reshapes of the current statement."""
        self.reduction: Callable[[ir.Reduce, Position], LlvmValue]
        """Evaluates an element of a reduction that was not stored."""
        self.next_counter: tuple[str, LlvmValue] | None = None
        """The counter of the innermost loop, and its value in the next iteration."""
        self.ids: list[LlvmValue] = []
        self.grid: list[LlvmValue] = []
        self._depth = 0
        """Nesting depth of the expression being evaluated."""

    def begin_nest(self) -> None:
        """Begin a loop nest: memory may have changed."""
        self.b.begin_nest()

    def inline(self, name: str, value: ir.Tile) -> None:
        """Evaluate a name where it is used."""
        self.inlined[name] = value
        self.affine.define(name, value)

    @contextmanager
    def loop(self, counter: str, following: LlvmValue | None) -> Iterator[None]:
        """Within the block, the innermost loop is that of this counter; `following`: its next value, if it is known."""
        outer, self.next_counter = self.next_counter, None if following is None else (counter, following)
        yield
        self.next_counter = outer

    def lane_stride(self, x: ir.Tile, at: Position) -> int | None:
        """Stride of an address from lane to lane of a vector."""
        return self.affine.step(x, lanes=at.lanes if at.aligned else 0)

    def definition(self, x: ir.Tile) -> ir.Tile:
        """Look through names of inlined expressions."""
        while isinstance(x, ir.Name) and x.name in self.inlined:
            x = self.inlined[x.name]
        return x

    def subexpressions(self, *roots: ir.Tile, addresses: bool = True) -> list[ir.Tile]:
        """List the subexpressions of expressions, each once, through inlined names; those of loads if `addresses`."""
        found: dict[int, ir.Tile] = {}
        stack = list(roots)
        while stack:
            x = stack.pop()
            if id(x) not in found:
                found[id(x)] = x
                inlined = self.inlined.get(x.name) if isinstance(x, ir.Name) else None
                deeper = addresses or not isinstance(x, ir.Load)
                stack += [inlined] if inlined is not None else ir.parts(x) if deeper else ()
        return list(found.values())

    def loads(self, *roots: ir.Tile) -> list[ir.Load]:
        """List the loads in expressions, through inlined names; not those inside addresses."""
        return [x for x in self.subexpressions(*roots, addresses=False) if isinstance(x, ir.Load)]

    # --- expressions -----------------------------------------------------------------------------

    def shape(self, x: ir.Tile) -> tuple[int, ...]:
        return () if isinstance(x, ir.Literal) else self.types.of(x).shape

    def dtype(self, x: ir.Tile, default: DType) -> DType:
        return default if isinstance(x, ir.Literal) else self.types.of(x).dtype

    def operand(self, x: ir.Tile, at: Position, shape: tuple[int, ...], dtype: DType) -> LlvmValue:
        """Evaluate an operand that is broadcast to a shape."""
        if isinstance(x, ir.Literal):
            return dtype_constant(x.value, dtype, 0)
        own = self.types.of(x).shape
        if not own:
            return self.evaluate(x, at.scalar, dtype)
        if own == shape:
            return self.evaluate(x, at, dtype)
        place = _in_operand(at, own, shape)
        return self.evaluate(x, place if own[-1] == shape[-1] else place.element, dtype)

    def evaluate(self, x: ir.Tile, at: Position, dtype: DType) -> LlvmValue:
        """Evaluate an expression at a position."""
        if isinstance(x, ir.Literal):
            return dtype_constant(x.value, dtype, 0)
        if isinstance(x, ir.Name):
            value = at.names.get(x.name) or self.registers.get(x.name)
            if value is not None:
                return value
        key = _key(x, at)
        found = at.known.get(key)
        if found is None or found.level > self.b.level:
            self._depth += 1
            for name in names_below(self, x) if self._depth % MAX_RECURSION == 0 else ():
                self.evaluate(name, at, self.types.of(name).dtype)
            found = at.known[key] = self._evaluate(x, at, self.types.of(x))
            self._depth -= 1
        return found

    def assume(self, x: ir.Tile, at: Position, value: LlvmValue) -> None:
        """Take a value for that of an expression at a position."""
        at.known[_key(x, at)] = value

    def _evaluate(self, x: ir.Tile, at: Position, t: TileType) -> LlvmValue:
        computed = self.computed.get(id(x))
        if computed is not None:
            return computed.load(self.b, at)
        match x:
            case ir.Name(name):
                inlined = self.inlined.get(name)
                if inlined is not None:
                    return self.evaluate(inlined, at, t.dtype)
                return self.memory[name].load(self.b, at)
            case ir.Apply():
                return self._address(x, at, t) if t.pointer else self._apply(x, at, t)
            case ir.Load():
                return self._load(x, at, t)
            case ir.Cast() | ir.Bitcast() | ir.Full():
                return self._converted(x, at)
            case ir.ExpandDims() | ir.BroadcastTo() | ir.Trans():
                return self._moved(x, at, t)
            case ir.GatherAlongAxis():
                return self._gathered(x, at)
            case ir.Reduce():
                return self.reduction(x, at)
        return self._index(x, at)

    def _index(self, x: ir.Tile, at: Position) -> LlvmValue:
        b = self.b
        match x:
            case ir.ProgramId(axis):
                return self.ids[axis]
            case ir.NumPrograms(axis):
                return self.grid[axis]
            case ir.Arange(start, _):
                first = b.op("add", b.convert("trunc", at.indices[-1], "i32"), constant(start, I32))
                if not at.lanes:
                    return first
                return b.op("add", b.splat(first, at.lanes), lane_constants(range(at.lanes), "i32"))
        raise NotImplementedError(type(x).__name__)

    def _converted(self, x: ir.Cast | ir.Bitcast | ir.Full, at: Position) -> LlvmValue:
        match x:
            case ir.Cast(y, target):
                have = literal_dtype(y) if isinstance(y, ir.Literal) else self.types.of(y).dtype
                return vectors.cast(self.b, self.evaluate(y, at, have), have, target)
            case ir.Bitcast(y, target):
                return vectors.bitcast(self.b, self.evaluate(y, at, self.types.of(y).dtype), target)
        have = self.dtype(x.value, x.dtype)
        return vectors.cast(self.b, self.evaluate(x.value, at.scalar, have), have, x.dtype)

    def _moved(self, x: ir.ExpandDims | ir.BroadcastTo | ir.Trans, at: Position, t: TileType) -> LlvmValue:
        match x:
            case ir.ExpandDims(y, axes):
                lanes = 0 if len(t.shape) - 1 in axes else at.lanes
                return self.evaluate(y, _without_axes(at, axes)._replace(lanes=lanes), t.dtype)
            case ir.BroadcastTo(y, shape):
                return self.operand(y, at, shape, t.dtype)
        return self._transposed(x, at, t)

    def _transposed(self, x: ir.Trans, at: Position, t: TileType) -> LlvmValue:
        b, axes = self.b, [x.permutation.index(n) for n in range(len(x.permutation))]

        def one(index: list[LlvmValue]) -> LlvmValue:
            return self.evaluate(x.x, at.moved(*[index[axis] for axis in axes], lanes=0), t.dtype)

        if not at.lanes:
            return one([*at.indices])
        made = LlvmValue("poison", Type(element_type(t.dtype), at.lanes))
        for n in range(at.lanes if at.active is None else at.active):
            y = one([*at.indices[:-1], b.op("add", at.indices[-1], constant(n, I64))])
            made = b.pure(f"insertelement {made.type} {made}, {y.type} {y}, i64 {n}", made.type, (made, y))
        return made

    def _apply(self, x: ir.Apply, at: Position, t: TileType) -> LlvmValue:
        if (value := simpler(self, x, at, t)) is not None:
            return value
        meeting = self.types.arguments(x)
        wanted = (bool_, meeting, meeting) if x.fn == "where" else (meeting,) * len(x.args)
        args = []
        for a, dtype in zip(x.args, wanted, strict=True):
            have = self.dtype(a, dtype)
            args.append(vectors.cast(self.b, self.operand(a, at, t.shape, have), have, dtype))
        if x.fn == "inside":
            return clamped_index(self.b, meeting, tuple(args), at.mask)
        return vectors.apply(self.b, x.fn, meeting, tuple(args))

    # --- addresses -------------------------------------------------------------------------------

    def _address(self, x: ir.Apply, at: Position, t: TileType) -> LlvmValue:
        b = self.b
        base, offset = x.args
        if isinstance(base, ir.Literal) or not self.types.of(base).pointer:
            base, offset = offset, base
        address = self.operand(base, at, t.shape, t.dtype)
        if at.lanes:
            have = self.dtype(offset, int32)
            index = vectors.cast(b, self.operand(offset, at, t.shape, have), have, int64)
        else:
            index = self._offset(offset, at, t.shape)
        if x.fn == "sub":
            index = b.op("sub", constant(0, index.type), index)
        return b.offset(address, vectors.memory_element(t.dtype), b.splat(index, address.type.lanes))

    def _offset(self, x: ir.Tile, at: Position, shape: tuple[int, ...]) -> LlvmValue:
        """Evaluate an offset in int64, by parts: no overflow, so that it folds into the addressing mode."""
        if isinstance(x, ir.Literal):
            return constant(int(x.value), I64)
        own = self.types.of(x).shape
        at = (at if own == shape or not own else _in_operand(at, own, shape)).element
        key = (id(x), -1, *[i.text for i in at.indices])
        found = at.known.get(key)
        if found is None or found.level > self.b.level:
            found = at.known[key] = self._offset_of(x, at, own)
        return found

    def _offset_of(self, x: ir.Tile, at: Position, own: tuple[int, ...]) -> LlvmValue:
        b = self.b
        if id(x) in self.computed:
            return b.convert("sext", self.evaluate(x, at, int32), "i64")
        match x:
            case ir.Name(name) if name in self.inlined:
                return self._offset(self.inlined[name], at, own)
            case ir.Arange(start, _):
                return b.op("add", at.indices[-1], constant(start, I64))
            case ir.ExpandDims(y, axes):
                return self._offset(y, _without_axes(at, axes), self.shape(y))
            case ir.BroadcastTo(y, _):
                return self._offset(y, at, own)
            case ir.Apply("add" | "sub" | "mul" as fn, (y, z)) if self.types.of(x).dtype in (int32, int64):
                return b.op(fn, self._offset(y, at, own), self._offset(z, at, own))
            case ir.Cast(y, target) if target is int64 and self.dtype(y, int64) is int32:
                return self._offset(y, at, own)
        have = self.dtype(x, int32)
        return vectors.cast(b, self.evaluate(x, at if own else at.scalar, have), have, int64)

    def split_offset(self, x: ir.Tile, at: Position) -> tuple[LlvmValue, LlvmValue | None]:
        """Split an offset into a uniform part and a part that varies among lanes."""
        own = self.shape(x)
        if self.affine.step(x) == 0:
            return self._offset(x, at, own), None
        match x:
            case ir.Name(name) if name in self.inlined:
                return self.split_offset(self.inlined[name], at)
            case ir.ExpandDims(y, axes):
                return self.split_offset(y, _without_axes(at, axes))
            case ir.BroadcastTo(y, _):
                return self.split_offset(y, _in_operand(at, self.shape(y), own))
            case ir.Apply("add", (y, z)):
                (uniform, one), (more, two) = [
                    self.split_offset(p, _in_operand(at, self.shape(p), own)) for p in (y, z)
                ]
                uniform = self.b.op("add", uniform, more)
                if one is None or two is None:
                    return uniform, two if one is None else one
                if one.type == two.type:
                    return uniform, self.b.op("add", one, two)
        have = self.dtype(x, int32)
        value = self.evaluate(x, at, have)
        return constant(0, I64), value if have is int32 else vectors.cast(self.b, value, have, int64)

    # --- loads -----------------------------------------------------------------------------------

    def _load(self, x: ir.Load, at: Position, t: TileType) -> LlvmValue:
        stride = self.lane_stride(x.pointer, at) if at.lanes else 0
        if stride is None:
            from .gathering import is_split_load, load_halves  # most loads are contiguous

            if is_split_load(self, x, at):
                return load_halves(self, x, at, t.dtype)
        mask = None if x.mask is None else self.operand(x.mask, at, t.shape, bool_)
        other = None if x.other is None else self.operand(x.other, at, t.shape, t.dtype)
        if stride == 0 and (mask is None or not mask.type.lanes):
            return load_element(self.b, self.evaluate(x.pointer, at.element, t.dtype), mask, other, t.dtype)
        return self._load_lanes(x, at, t, stride, mask, other)

    def _load_lanes(
        self,
        x: ir.Load,
        at: Position,
        t: TileType,
        stride: int | None,
        mask: LlvmValue | None,
        other: LlvmValue | None,
    ) -> LlvmValue:
        b, lanes, bytes = self.b, at.lanes, t.dtype.bytes
        existing = at.mask
        if mask is not None:
            mask = b.splat(mask, lanes)
            existing = mask if existing is None else b.op("and", mask, existing)
        type = Type(vectors.memory_element(t.dtype), lanes)
        if stride is not None and mask is None and is_small_stride(stride, bytes):
            from .gathering import load_strided

            raw = load_strided(b, self.evaluate(x.pointer, at.element, t.dtype), type, stride, bytes, at.active)
            return vectors.from_memory(b, raw, t.dtype)
        default = b.splat(dtype_constant(0, t.dtype) if other is None else other, lanes)
        default = vectors.to_memory(b, default, t.dtype)
        if stride == 1:
            raw = load_vector(b, self.evaluate(x.pointer, at.element, t.dtype), type, existing, default, bytes)
        else:
            existing = constant(True, Type("i1", lanes)) if existing is None else existing
            from .gathering import load_irregular

            raw = load_irregular(self, x.pointer, at, t, type, existing, default)
        return vectors.from_memory(b, raw, t.dtype)

    def _gathered(self, x: ir.GatherAlongAxis, at: Position) -> LlvmValue:
        """Load elements of a stored tile at indices along an axis."""
        b, lanes, last, source = self.b, at.lanes, len(at.indices) - 1, self.computed[id(x.x)]
        have = self.dtype(x.index, int32)
        stride = self.affine.step(x.index) if lanes else 0
        if not lanes or stride == (1 if x.axis == last else 0):
            index = vectors.cast(b, self.evaluate(x.index, at.element, have), have, int64)
            return source.load(b, at.moved(*[index if n == x.axis else i for n, i in enumerate(at.indices)]))
        index = b.splat(vectors.cast(b, self.evaluate(x.index, at, have), have, int64), lanes)
        most = constant(source.shape[x.axis] - 1, index.type)
        index = b.select(b.compare("ult", index, most), index, most)
        pitch, flat = 1, constant(0, I64)
        for axis in range(last, -1, -1):
            if axis == x.axis:
                index = b.op("mul", index, constant(pitch, index.type))
            else:
                flat = b.op("add", flat, b.op("mul", at.indices[axis], constant(pitch, I64)))
            pitch *= source.shape[axis]
        if x.axis != last:
            index = b.op("add", index, lane_constants(range(lanes), "i64"))
        address = b.offset(source.address, source.element, b.op("add", index, b.splat(flat, lanes)))
        mask = at.mask or constant(True, Type("i1", lanes))
        type = Type(source.element, lanes)
        raw = gather(b, address, type, mask, constant(0, type), source.element_bytes)
        return vectors.from_memory(b, raw, source.dtype)


def _key(x: ir.Tile, at: Position) -> tuple[Any, ...]:
    return (x.name if isinstance(x, ir.Name) else id(x), at.lanes, *[i.text for i in at.indices])


def _without_axes(at: Position, axes: tuple[int, ...]) -> Position:
    return at.moved(*[i for n, i in enumerate(at.indices) if n not in axes])


def _in_operand(at: Position, own: tuple[int, ...], shape: tuple[int, ...]) -> Position:
    """Map a position to an operand that is broadcast to a shape."""
    if own == shape or not own:
        return at
    index = at.indices[len(at.indices) - len(own) :]
    ends = zip(index, own, shape[len(shape) - len(own) :], strict=True)
    return at.moved(*[constant(0, I64) if e == 1 and w != 1 else i for i, e, w in ends])
