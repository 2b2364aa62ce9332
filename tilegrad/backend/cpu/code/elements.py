"""Evaluate tile expressions at a position: one element, or a vector along the last axis.

An expression is evaluated where it is used, inside the loops that use it. Names stand for registers (scalars), for
memory on the stack (tiles worth storing), or for an inlined expression, evaluated in the same way. Loads become vector
loads where addresses are contiguous.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import copysign, prod, sqrt
from typing import Any, NamedTuple

from ....ir import tile as ir
from ....ir.dtype import DType, bool_, float32, int32, int64
from ....ir.tile_types import TileType, Types, literal_dtype
from .. import vectors
from ..emit import I32, I64, Builder, LlvmValue, Type, constant, dtype_constant, element_type, lane_constants
from .chains import MAX_RECURSION, names_below
from .checked_indices import clamped_index
from .gathering import gather, is_small_stride, is_split_load, load_halves, load_irregular, load_strided
from .ranges import IntegerRanges, divide_by_constant
from .strides import step

Position = list[LlvmValue]
"""A position: an int64 index per axis; for a vector, that of its first lane."""


class StackTile(NamedTuple):
    """A tile (or scalar) on the stack, row-major; a vector may run past the end of a row."""

    address: LlvmValue
    dtype: DType
    shape: tuple[int, ...]
    pointer: bool = False
    room: tuple[int, ...] = ()
    """Shape with padding, if that is larger."""

    @property
    def element(self) -> str:
        return "ptr" if self.pointer else vectors.memory_element(self.dtype)

    @property
    def element_bytes(self) -> int:
        return 8 if self.pointer else self.dtype.bytes


class ElementEvaluator:
    """Evaluates the expressions of one kernel."""

    def __init__(self, types: Types, b: Builder) -> None:
        self.types, self.b = types, b
        self.ranges = IntegerRanges(types)
        self.registers: dict[str, LlvmValue] = {}
        """Scalars that are assigned once, and the addresses of parameters."""
        self.memory: dict[str, StackTile] = {}
        self.inlined: dict[str, ir.Tile] = {}
        self.made: dict[int, StackTile] = {}
        """Memory of the reductions, scans, products and reshapes of the current statement."""
        self.across: Callable[[ir.Reduce, Position, int], LlvmValue]
        """Evaluates an element of a reduction that was not stored."""
        self.depth = 0
        """Nesting depth of the expression being evaluated."""
        self.memo: dict[Any, LlvmValue] = {}
        """Values known in the current iteration of the innermost loop."""
        self.steps: dict[tuple[int, int, bool, int], tuple[int | None, ir.Tile]] = {}
        """Strides found in the current nest, with their expressions, which are kept alive here."""
        self.least_masked = 4
        """Smallest element size in bytes for which masked vector loads are used."""
        self.active: int | None = None
        """Number of lanes that exist in the last vector of a row."""
        self.nowhere: LlvmValue | None = None
        """Memory to read in place of masked-out elements."""
        self.nest = 0
        """Number of the loop nest being emitted."""
        self.base = 0
        """Scope level at which the nest began: what is invariant in the nest is computed there."""
        self.even = False
        """Whether vectors begin at multiples of their length."""
        self.multiples: dict[str, int] = {}
        """Known divisors of loop counters."""
        self.following: tuple[str, LlvmValue] | None = None
        """The counter of the innermost loop, and its value in the next iteration."""
        self.ids: list[LlvmValue] = []
        self.grid: list[LlvmValue] = []

    # --- memory ----------------------------------------------------------------------------------

    def allocate(
        self, dtype: DType, shape: tuple[int, ...], hint: str, pointer: bool = False, room: tuple[int, ...] = ()
    ) -> StackTile:
        bytes = 8 if pointer else dtype.bytes
        address = self.b.allocate(prod(room or shape) * bytes + 64, f"{hint}.tile")
        return StackTile(address, dtype, shape, pointer, room)

    def place(self, memory: StackTile, at: Position) -> LlvmValue:
        """Address of an element."""
        b = self.b
        flat = constant(0, I64)
        for index, extent in zip(at, memory.room or memory.shape, strict=True):
            flat = index if flat.text == "0" else b.op("add", b.op("mul", flat, constant(extent, I64)), index)
        return b.offset(memory.address, memory.element, flat)

    def load(self, memory: StackTile, at: Position, lanes: int) -> LlvmValue:
        raw = self.once(self.place(memory, at), Type(memory.element, lanes), memory.element_bytes)
        return raw if memory.pointer else vectors.from_memory(self.b, raw, memory.dtype)

    def once(self, address: LlvmValue, type: Type, bytes: int) -> LlvmValue:
        """Load memory that the current nest does not change, hoisted as far as the address is invariant."""
        text = f"load {type}, ptr {address}, align {bytes} ; nest {self.nest}"
        return self.b.pure(text, type, (address,), least=self.base)

    def begin(self) -> None:
        """Begin a nest: memory may have changed since the last one."""
        self.nest += 1
        self.base = self.b.level
        self.memo = {}
        self.steps = {}

    def keep(self, memory: StackTile, at: Position, value: LlvmValue, lanes: int) -> None:
        """Store elements on the stack, except lanes that do not exist."""
        value = self.b.splat(value, lanes)
        raw = value if memory.pointer else vectors.to_memory(self.b, value, memory.dtype)
        self.write(self.place(memory, at), raw, memory.element_bytes, self.existing(lanes))

    def write(self, address: LlvmValue, raw: LlvmValue, bytes: int, mask: LlvmValue | None) -> None:
        """Store a vector; masked stores are slow on some machines and used as a last resort."""
        b = self.b
        present = self.existing(raw.type.lanes)
        if mask is None:
            b.effect(f"store {raw.type} {raw}, ptr {address}, align {bytes}")
        elif present is not None and mask.text == present.text:
            self._write_first(address, raw, bytes)
        elif mask.is_constant:
            self._write_masked(address, raw, bytes, mask)
        else:
            bits = b.pure(f"bitcast {mask.type} {mask} to i{mask.type.lanes}", Type(f"i{mask.type.lanes}"), (mask,))
            b.open_branch("all")
            b.effect(f"store {raw.type} {raw}, ptr {address}, align {bytes}")
            every = b.close_branch()
            b.open_branch("some")
            self._write_masked(address, raw, bytes, mask)
            b.close_branches(b.compare("eq", bits, constant(-1, bits.type)), every, b.close_branch())

    def _write_first(self, address: LlvmValue, raw: LlvmValue, bytes: int) -> None:
        """Store the lanes that exist, in pieces of halving lengths."""
        b = self.b
        assert self.active is not None
        done = 0
        while done < self.active:
            width = 1 << ((self.active - done).bit_length() - 1)
            piece = b.shuffle(raw, raw, range(done, done + width)) if width > 1 else b.extract(raw, done)
            place = b.offset(address, raw.type.element, constant(done, I64))
            b.effect(f"store {piece.type} {piece}, ptr {place}, align {bytes}")
            done += width

    def _write_masked(self, address: LlvmValue, raw: LlvmValue, bytes: int, mask: LlvmValue) -> None:
        b = self.b
        name = f"llvm.masked.store.{raw.type.short}.p0"
        b.declarations.setdefault(name, f"declare void @{name}({raw.type}, ptr, i32, {mask.type})")
        b.effect(f"call void @{name}({raw.type} {raw}, ptr {address}, i32 {bytes}, {mask.type} {mask})")

    def existing(self, lanes: int) -> LlvmValue | None:
        """Mask of the lanes that exist, if not all do."""
        if self.active is None or not lanes:
            return None
        return lane_constants([n < self.active for n in range(lanes)], "i1")

    # --- expressions -----------------------------------------------------------------------------

    def shape(self, x: ir.Tile) -> tuple[int, ...]:
        return () if isinstance(x, ir.Literal) else self.types.of(x).shape

    def dtype(self, x: ir.Tile, default: DType) -> DType:
        return default if isinstance(x, ir.Literal) else self.types.of(x).dtype

    def part(self, x: ir.Tile, at: Position, shape: tuple[int, ...], lanes: int, dtype: DType) -> LlvmValue:
        """Evaluate an operand that is broadcast to a shape."""
        own = self.shape(x)
        if not own:
            return self.of(x, [], 0, dtype)
        return self.of(x, _aligned(at, own, shape), lanes if own[-1] == shape[-1] else 0, dtype)

    def of(self, x: ir.Tile, at: Position, lanes: int, dtype: DType) -> LlvmValue:
        """Evaluate an expression at a position: one element, or `lanes` along the last axis."""
        if isinstance(x, ir.Literal):
            return dtype_constant(x.value, dtype, 0)
        if isinstance(x, ir.Name) and x.name in self.registers:
            return self.registers[x.name]
        key = (x.name if isinstance(x, ir.Name) else id(x), lanes, *[i.text for i in at])
        found = self.memo.get(key)
        if found is None or found.level > self.b.level:
            self.depth += 1
            for name in names_below(self, x) if self.depth % MAX_RECURSION == 0 else ():
                self.of(name, at, lanes, self.types.of(name).dtype)
            found = self._of(x, at, lanes, self.types.of(x))
            self.depth -= 1
            self.memo[key] = found
        return found

    def _of(self, x: ir.Tile, at: Position, lanes: int, t: TileType) -> LlvmValue:
        b = self.b
        made = self.made.get(id(x))
        if made is not None:
            return self.load(made, at, lanes)
        match x:
            case ir.Name(name):
                inlined = self.inlined.get(name)
                return (
                    self.load(self.memory[name], at, lanes) if inlined is None else self.of(inlined, at, lanes, t.dtype)
                )
            case ir.ProgramId(axis):
                return self.ids[axis]
            case ir.NumPrograms(axis):
                return self.grid[axis]
            case ir.Arange(start, _):
                first = b.op("add", b.convert("trunc", at[-1], "i32"), constant(start, I32))
                return b.op("add", b.splat(first, lanes), lane_constants(range(lanes), "i32")) if lanes else first
            case ir.Load():
                return self._load(x, at, lanes, t)
            case ir.Cast(y, target):
                have = literal_dtype(y) if isinstance(y, ir.Literal) else self.types.of(y).dtype
                return vectors.cast(b, self.of(y, at, lanes, have), have, target)
            case ir.Bitcast(y, target):
                return vectors.bitcast(b, self.of(y, at, lanes, self.types.of(y).dtype), target)
            case ir.Full(_, value, dtype):
                have = self.dtype(value, dtype)
                return vectors.cast(b, self.of(value, [], 0, have), have, dtype)
            case ir.Expand(y, axes):
                inner = [i for n, i in enumerate(at) if n not in axes]
                return self.of(y, inner, 0 if len(t.shape) - 1 in axes else lanes, t.dtype)
            case ir.BroadcastTo(y, shape):
                return self.part(y, at, shape, lanes, t.dtype)
            case ir.Gather():
                return self._gathered(x, at, lanes)
            case ir.Reduce():
                return self.across(x, at, lanes)
            case ir.Trans(y, permutation):
                return self._transposed(y, permutation, at, lanes, t)
            case ir.Apply():
                return self._address(x, at, lanes, t) if t.pointer else self._apply(x, at, lanes, t)
        raise NotImplementedError(type(x).__name__)

    def _apply(self, x: ir.Apply, at: Position, lanes: int, t: TileType) -> LlvmValue:
        if (easier := self._easier(x, at, lanes, t)) is not None:
            return easier
        meeting = self.types.arguments(x)
        wanted = (bool_, meeting, meeting) if x.fn == "where" else (meeting,) * len(x.args)
        args = []
        for a, dtype in zip(x.args, wanted, strict=True):
            have = self.dtype(a, dtype)
            args.append(vectors.cast(self.b, self.part(a, at, t.shape, lanes, have), have, dtype))
        if x.fn == "inside":
            return clamped_index(self.b, meeting, tuple(args), self.existing(lanes))
        return vectors.apply(self.b, x.fn, meeting, tuple(args))

    def _easier(self, x: ir.Apply, at: Position, lanes: int, t: TileType) -> LlvmValue | None:
        """Simplify divisions of natural numbers, erf in gelu, range checks, and masks that a load applies already."""
        b = self.b
        match x:
            case ir.Apply("floordiv" | "mod" as fn, (y, ir.Literal(int() as divisor))) if divisor > 0:
                span = self.ranges.of(y)
                if span is not None and span[0] >= 0 and self.types.of(y).dtype is t.dtype:
                    return divide_by_constant(b, fn, self.part(y, at, t.shape, lanes, t.dtype), divisor, span[1])
            case ir.Apply("add") if lanes and len(t.shape) == 2 and t.dtype is int32:
                common, apart = self.parted(x, at, lanes)
                if apart is not None and apart.type.element == "i32":
                    return b.op("add", b.splat(b.convert("trunc", common, "i32"), lanes), apart)
            case ir.Apply("add", (ir.Apply("erf", (ir.Apply("mul", (y, ir.Literal(factor))),)), ir.Literal(1))):
                if t.dtype is float32 and factor == sqrt(0.5):
                    from ..special import one_plus_erf

                    return one_plus_erf(b, self.part(y, at, t.shape, lanes, float32))
            case ir.Apply("bitand"):
                between = self.ranges.is_between(x)
                if between is not None:
                    value = self.part(between[0], at, t.shape, lanes, self.types.of(between[0]).dtype)
                    return b.compare("ult", value, constant(between[1], value.type))
            case ir.Apply("where", (condition, ir.Name(name), ir.Literal(number))) if number == 0:
                load = self.inlined.get(name)
                if isinstance(load, ir.Load) and load.other is None and load.mask == condition:
                    if copysign(1, number) > 0 and self.types.of(load).shape == t.shape:
                        return self.of(load, at, lanes, t.dtype)
        return None

    def _address(self, x: ir.Apply, at: Position, lanes: int, t: TileType) -> LlvmValue:
        b = self.b
        base, offset = x.args
        if isinstance(base, ir.Literal) or not self.types.of(base).pointer:
            base, offset = offset, base
        address = self.part(base, at, t.shape, lanes, t.dtype)
        if lanes:
            have = self.dtype(offset, int32)
            index = vectors.cast(b, self.part(offset, at, t.shape, lanes, have), have, int64)
        else:
            index = self._offset(offset, at, t.shape)
        if x.fn == "sub":
            index = b.op("sub", constant(0, index.type), index)
        return b.offset(address, vectors.memory_element(t.dtype), b.splat(index, address.type.lanes))

    def _offset(self, x: ir.Tile, at: Position, shape: tuple[int, ...]) -> LlvmValue:
        """Evaluate an offset in int64, by parts: no overflow, so that it folds into the addressing mode."""
        b = self.b
        own = self.shape(x)
        at = _aligned(at, own, shape)
        if isinstance(x, ir.Literal):
            return constant(int(x.value), I64)
        key = (id(x), -1, *[i.text for i in at])
        found = self.memo.get(key)
        if found is None or found.level > b.level:
            found = self._offset_of(x, at, own)
            self.memo[key] = found
        return found

    def _offset_of(self, x: ir.Tile, at: Position, own: tuple[int, ...]) -> LlvmValue:
        b = self.b
        if id(x) in self.made:
            return b.convert("sext", self.of(x, at, 0, int32), "i64")
        match x:
            case ir.Name(name) if name in self.inlined:
                return self._offset(self.inlined[name], at, own)
            case ir.Arange(start, _):
                return b.op("add", at[-1], constant(start, I64))
            case ir.Expand(y, axes):
                return self._offset(y, [i for n, i in enumerate(at) if n not in axes], self.shape(y))
            case ir.BroadcastTo(y, _):
                return self._offset(y, at, own)
            case ir.Apply("add" | "sub" | "mul" as fn, (y, z)) if self.types.of(x).dtype in (int32, int64):
                return b.op(fn, self._offset(y, at, own), self._offset(z, at, own))
            case ir.Cast(y, target) if target is int64 and self.dtype(y, int64) is int32:
                return self._offset(y, at, own)
        have = self.dtype(x, int32)
        return vectors.cast(b, self.of(x, at if own else [], 0, have), have, int64)

    def _transposed(self, y: ir.Tile, permutation: tuple[int, ...], at: Position, lanes: int, t: TileType) -> LlvmValue:
        b = self.b

        def one(position: Position) -> LlvmValue:
            return self.of(y, [position[permutation.index(n)] for n in range(len(permutation))], 0, t.dtype)

        if not lanes:
            return one(at)
        made = LlvmValue("poison", Type(element_type(t.dtype), lanes))
        for n in range(lanes if self.active is None else self.active):
            x = one([*at[:-1], b.op("add", at[-1], constant(n, I64))])
            made = b.pure(f"insertelement {made.type} {made}, {x.type} {x}, i64 {n}", made.type, (made, x))
        return made

    # --- loads -----------------------------------------------------------------------------------

    def _load(self, x: ir.Load, at: Position, lanes: int, t: TileType) -> LlvmValue:
        b = self.b
        step = self.lane_step(x.pointer, lanes) if lanes else 0
        if step is None and is_split_load(self, x, lanes):
            return load_halves(self, x, at, lanes, t.dtype)
        mask = None if x.mask is None else self.part(x.mask, at, t.shape, lanes, bool_)
        other = None if x.other is None else self.part(x.other, at, t.shape, lanes, t.dtype)
        if step == 0 and (mask is None or not mask.type.lanes):
            return self._load_one(self.of(x.pointer, at, 0, t.dtype), mask, other, t.dtype)
        existing = self.existing(lanes)
        if mask is not None:
            mask = b.splat(mask, lanes)
            existing = mask if existing is None else b.op("and", mask, existing)
        type = Type(vectors.memory_element(t.dtype), lanes)
        if step is not None and mask is None and is_small_stride(step, t.dtype.bytes):
            raw = load_strided(self, self.of(x.pointer, at, 0, t.dtype), type, step, t.dtype.bytes)
            return vectors.from_memory(b, raw, t.dtype)
        default = b.splat(dtype_constant(0, t.dtype) if other is None else other, lanes)
        default = vectors.to_memory(b, default, t.dtype)
        if step == 1:
            raw = self.load_along(self.of(x.pointer, at, 0, t.dtype), type, existing, default, t.dtype.bytes)
        else:
            existing = constant(True, Type("i1", lanes)) if existing is None else existing
            raw = load_irregular(self, x.pointer, at, t, type, existing, default)
        return vectors.from_memory(b, raw, t.dtype)

    def parted(self, x: ir.Tile, at: Position, lanes: int) -> tuple[LlvmValue, LlvmValue | None]:
        """Split an offset into a uniform part and a part that varies among lanes."""
        own = self.shape(x)
        if self.step(x) == 0:
            return self._offset(x, at, own), None
        match x:
            case ir.Name(name) if name in self.inlined:
                return self.parted(self.inlined[name], at, lanes)
            case ir.Expand(y, axes):
                return self.parted(y, [i for n, i in enumerate(at) if n not in axes], lanes)
            case ir.BroadcastTo(y, _):
                return self.parted(y, _aligned(at, self.shape(y), own), lanes)
            case ir.Apply("add", (y, z)):
                (common, one), (more, two) = [self.parted(p, _aligned(at, self.shape(p), own), lanes) for p in (y, z)]
                common = self.b.op("add", common, more)
                if one is None or two is None:
                    return common, two if one is None else one
                if one.type == two.type:
                    return common, self.b.op("add", one, two)
        have = self.dtype(x, int32)
        value = self.of(x, at, lanes, have)
        return constant(0, I64), value if have is int32 else vectors.cast(self.b, value, have, int64)

    def _load_one(self, address: LlvmValue, mask: LlvmValue | None, other: LlvmValue | None, dtype: DType) -> LlvmValue:
        b = self.b
        type = Type(vectors.memory_element(dtype))

        def read() -> LlvmValue:
            return vectors.from_memory(
                b, b.instruction(f"load {type}, ptr {address}, align {dtype.bytes}", type), dtype
            )

        if mask is None or mask.text == "true":
            return read()
        b.open_branch("read")
        value = read()
        then = b.close_branch()
        b.open_branch("skip")
        skip = b.close_branch()
        return b.close_branches(mask, then, skip, [(value, dtype_constant(0, dtype) if other is None else other)])[0]

    def load_along(
        self, address: LlvmValue, type: Type, mask: LlvmValue | None, default: LlvmValue, bytes: int
    ) -> LlvmValue:
        b = self.b
        if mask is None:
            return self.once(address, type, bytes)
        name = f"llvm.masked.load.{type.short}.p0"
        b.declarations.setdefault(name, f"declare {type} @{name}(ptr, i32, {mask.type}, {type})")
        text = f"call {type} @{name}(ptr {address}, i32 {bytes}, {mask.type} {mask}, {type} {default})"
        return b.instruction(text, type)

    def _gathered(self, x: ir.Gather, at: Position, lanes: int) -> LlvmValue:
        """Load elements of a stored tile at indices along an axis."""
        b, last, source = self.b, len(at) - 1, self.made[id(x.x)]
        have = self.dtype(x.index, int32)
        step = self.step(x.index) if lanes else 0
        if not lanes or step == (1 if x.axis == last else 0):
            index = vectors.cast(b, self.of(x.index, at, 0, have), have, int64)
            return self.load(source, [index if n == x.axis else i for n, i in enumerate(at)], lanes)
        index = b.splat(vectors.cast(b, self.of(x.index, at, lanes, have), have, int64), lanes)
        most = constant(source.shape[x.axis] - 1, index.type)
        index = b.select(b.compare("ult", index, most), index, most)
        stride = 1
        flat = constant(0, I64)
        for axis in range(last, -1, -1):
            if axis == x.axis:
                index = b.op("mul", index, constant(stride, index.type))
            else:
                flat = b.op("add", flat, b.op("mul", at[axis], constant(stride, I64)))
            stride *= source.shape[axis]
        if x.axis != last:
            index = b.op("add", index, lane_constants(range(lanes), "i64"))
        address = b.offset(source.address, source.element, b.op("add", index, b.splat(flat, lanes)))
        mask = self.existing(lanes) or constant(True, Type("i1", lanes))
        type = Type(source.element, lanes)
        raw = gather(self, address, type, mask, constant(0, type), source.element_bytes)
        return vectors.from_memory(b, raw, source.dtype)

    def step(self, x: ir.Tile, axis: int = -1, local: bool = False, lanes: int = 0) -> int | None:
        """Stride of an integer or address along an axis, if it is constant."""
        key = (id(x), axis, local, lanes)
        if key not in self.steps:
            self.steps[key] = step(self, x, axis, local, lanes), x
        return self.steps[key][0]

    @contextmanager
    def vectors_begin_evenly(self, holds: bool = True) -> Iterator[None]:
        """Within the block, vectors begin at multiples of their length and cross no border."""
        before, self.even = self.even, holds
        yield
        self.even = before

    def lane_step(self, x: ir.Tile, lanes: int) -> int | None:
        """Stride of an address from lane to lane of a vector."""
        return self.step(x, lanes=lanes if self.even else 0)


def _aligned(at: Position, own: tuple[int, ...], shape: tuple[int, ...]) -> Position:
    """Map a position to an operand that is broadcast."""
    if own == shape or not own:
        return at
    whole, at = shape[len(shape) - len(own) :], at[len(at) - len(own) :]
    return [constant(0, I64) if e == 1 and w != 1 else i for i, e, w in zip(at, own, whole, strict=True)]


def definition(e: ElementEvaluator, x: ir.Tile) -> ir.Tile:
    """Look through names of inlined expressions."""
    while isinstance(x, ir.Name) and x.name in e.inlined:
        x = e.inlined[x.name]
    return x
