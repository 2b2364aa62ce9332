"""What a tile expression is at one place: a scalar, or one vector along the axis that the lanes run along.

A position has an index for each axis, linear in the lane. Expressions are evaluated on demand, each once for a position;
integers stay linear (`linear.py`) as long as they are, so that it is seen here which loads are contiguous.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ....ir.dtype import DType, bool_, int32, int64, uint32, uint64
from .. import linear, vectors
from ..emit import I64, Builder, Type, Value, constant, dtype_constant, element_type, lane_constants
from ..linear import ZERO, Linear, number, term
from .nodes import TileNode
from ..target import Target

Position = tuple[Linear, ...]

TRUE, FALSE = constant(True, Type("i1")), constant(False, Type("i1"))
_LINEAR = (int32, int64)


class Address(NamedTuple):
    """Where elements lie: a pointer, an offset that is linear in the lane, and one that is not."""

    pointer: Value
    offset: Linear
    scattered: Value | None
    parameter: str


class Slot(NamedTuple):
    """A tile in memory of the instance. The axes before `dropped` are those of loops around it, and take no room."""

    pointer: Value
    dtype: DType
    strides: tuple[int, ...]
    dropped: int = 0

    def offset(self, b: Builder, position: Position) -> Linear:
        total = ZERO
        for index, stride in zip(position[self.dropped :], self.strides, strict=True):
            total = linear.add(b, total, linear.scale(index, stride))
        return total


Result = Slot | Value
"""A tile that was computed: in memory, or (a scalar) in a register."""


class Frame(NamedTuple):
    """What all of a kernel's code shares."""

    builder: Builder
    target: Target
    results: dict[TileNode, Result]
    stored: frozenset[str]
    """The parameters that the kernel stores to: only these change."""
    nowhere: Value
    """Memory that may always be read: where addresses behind a false mask point."""


class Elements:
    """Evaluates expressions in one stretch of code: vectors of `lanes` elements, or scalars (0).

    Lanes outside `active` do not exist.
    """

    def __init__(self, frame: Frame, lanes: int, active: Value | None = None) -> None:
        self.frame, self.b = frame, frame.builder
        self.lanes, self.active = lanes, active
        self.known: dict[tuple[TileNode, Position], Any] = {}
        """What has been computed, and masks of which it is known that they hold."""

    def value(self, node: TileNode, position: Position) -> Value:
        """The element as a register: a scalar if it is the same in all lanes."""
        found = self.at(node, position)
        if isinstance(found, Linear):
            negative = found.negative
            found = linear.vector(self.b, found, self.lanes, element_type(node.dtype))
            if not found.is_constant:
                found.negative = negative
        assert isinstance(found, Value)
        return found

    def vector(self, node: TileNode, position: Position) -> Value:
        return self.b.splat(self.value(node, position), self.lanes)

    def linear(self, node: TileNode, position: Position) -> Linear | None:
        """An integer as a linear one, if it is."""
        return as_linear(self.b, self.at(node, position), node.dtype)

    def at(self, node: TileNode, position: Position) -> Any:
        """The element in the form that it has: a Value, a Linear or an Address."""
        key = (node, position)
        found = self.known.get(key)
        if found is None:
            found = self.known[key] = self._computed(node, position)
        return found

    def _computed(self, node: TileNode, position: Position) -> Any:
        result = self.frame.results.get(node)
        if result is not None:
            return result if isinstance(result, Value) else self.read(result, position)
        x = node.args[0] if node.args else node
        match node.kind:
            case "literal":
                return self._literal(node)
            case "scalar":
                return node.data
            case "pointer":
                return Address(node.data, ZERO, None, node.pointer)
            case "slot":
                return self.read(node.data[0], position)
            case "arange":
                return linear.add(self.b, position[0], number(node.data))
            case "apply":
                return self._apply(node, position)
            case "forward" | "back":
                return self._moved(node, position)
            case "load":
                return self._load(node, position)
            case "cast":
                return self._cast(node, position)
            case "bitcast":
                return vectors.bitcast(self.b, self.value(x, position), node.dtype)
            case "expand":
                return self.at(x, tuple([p for n, p in enumerate(position) if n not in node.data]))
            case "broadcast":
                return self.at(x, projected(position, x.shape))
            case "trans":
                return self.at(x, tuple([position[node.data.index(n)] for n in range(len(position))]))
            case "reshape":
                return self._reshaped(node, position)
        raise AssertionError(f"{node.kind} was not computed before it is read")

    def _literal(self, node: TileNode) -> Value | Linear:
        value = node.data[2]
        if node.dtype in _LINEAR:
            return number(int(value))
        return dtype_constant(value, node.dtype)

    def _cast(self, node: TileNode, position: Position) -> Any:
        (x,) = node.args
        found = self.at(x, position)
        if isinstance(found, Linear) and node.dtype in _LINEAR and node.dtype.bits >= x.dtype.bits:
            return found
        return vectors.cast(self.b, self.value(x, position), x.dtype, node.dtype)

    def _reshaped(self, node: TileNode, position: Position) -> Any:
        (x,) = node.args
        places = split(self.b, flat(self.b, position, node.shape), x.shape, self.lanes)
        if places is not None:
            return self.at(x, places)
        return self._lane_by_lane(node, position)

    def _lane_by_lane(self, node: TileNode, position: Position) -> Value:
        """An element whose place is not linear in the lane: each lane is a scalar of its own."""
        type = Type(element_type(node.dtype), self.lanes)
        made = Value("poison", type)
        for lane in range(self.lanes):
            single = Elements(self.frame, 0)
            here = tuple([linear.add(self.b, p.base, linear.scale(p._replace(terms=(), number=p.lane, lane=0), lane)) for p in position])  # fmt: skip
            one = single.value(node, here)
            text = f"insertelement {type} {made}, {one.type} {one}, i64 {lane}"
            made = self.b.pure(text, type, (made, one)) if self.active is None else self.b.instruction(text, type)
        return made

    # Functions.

    def _apply(self, node: TileNode, position: Position) -> Any:
        fn = node.data
        operands = [(a, projected(position, a.shape)) for a in node.args]
        if fn == "where":
            return self._where(node, operands)
        if node.args[0].dtype in _LINEAR:
            made = self._linear_apply(fn, node, operands)
            if made is not None:
                return made
        if node.dtype is bool_ and fn in ("bitand", "bitor"):
            return self._logical(fn, operands)
        args = tuple([self.value(a, p) for a, p in operands])
        return self._function(fn, node.args[0].dtype, args)

    def _where(self, node: TileNode, operands: list[tuple[TileNode, Position]]) -> Any:
        condition = self.value(*operands[0])
        if condition.text in ("true", "false"):
            return self.at(*operands[1 if condition.text == "true" else 2])
        return vectors.apply(self.b, "where", node.dtype, (condition, self.value(*operands[1]), self.value(*operands[2])))

    def _logical(self, fn: str, operands: list[tuple[TileNode, Position]]) -> Value:
        """A conjunct that is known saves the other one."""
        x = self.value(*operands[0])
        absorbing, neutral = ("false", "true") if fn == "bitand" else ("true", "false")
        if x.text == absorbing:
            return x
        y = self.value(*operands[1])
        if x.text == neutral or y.text == absorbing:
            return y
        return x if y.text == neutral else vectors.apply(self.b, fn, bool_, (x, y))

    def _function(self, fn: str, dtype: DType, args: tuple[Value, ...]) -> Value:
        """Integers that cannot be negative are divided as unsigned ones, which is cheaper."""
        if dtype.kind != "int":
            return vectors.apply(self.b, fn, dtype, args)
        positive = all(not _can_be_negative(a) for a in args)
        if positive and fn in ("floordiv", "mod", "truncdiv", "fmod"):
            dtype = {32: uint32, 64: uint64}.get(dtype.bits, dtype)
        made = vectors.apply(self.b, fn, dtype, args)
        if positive and fn in ("floordiv", "mod", "add", "mul", "maximum", "minimum") and not made.is_constant:
            made.negative = False
        return made

    def _linear_apply(self, fn: str, node: TileNode, operands: list[tuple[TileNode, Position]]) -> Any:
        if fn not in ("add", "sub", "mul", "neg", "floordiv", "mod", "lt", "le", "gt", "ge", "eq", "ne", "minimum", "maximum"):
            return None
        found = [self.linear(a, p) for a, p in operands]
        if any(x is None for x in found):
            return None
        x = found[0]
        y = found[-1]
        assert x is not None and y is not None
        match fn:
            case "add" | "sub":
                return linear.add(self.b, x, y, 1 if fn == "add" else -1)
            case "mul":
                return linear.multiply(self.b, x, y)
            case "neg":
                return linear.scale(x, -1) if isinstance(x.lane, int) else None
            case "floordiv" | "mod":
                divided = linear.divide(self.b, x, y.number, self.lanes) if y.is_number else None
                return None if divided is None else divided[fn == "mod"]
            case "minimum" | "maximum":
                return self._bound(fn, x, y)
        return self._compared(fn, linear.add(self.b, x, y, -1))

    def _bound(self, fn: str, x: Linear, y: Linear) -> Linear | None:
        if not (x.is_uniform and y.is_uniform):
            return None
        if x.is_number and y.is_number:
            return number(max(x.number, y.number) if fn == "maximum" else min(x.number, y.number))
        made = self.b.intrinsic("smax" if fn == "maximum" else "smin", linear.scalar(self.b, x), linear.scalar(self.b, y))
        made.negative = (x.negative and y.negative) if fn == "maximum" else (x.negative or y.negative)
        return term(made)

    def difference(self, node: TileNode, position: Position) -> tuple[str, Linear] | None:
        """A comparison of linear integers as a comparison of their difference with 0: "lt" or "le"."""
        if node.kind == "expand":
            return self.difference(node.args[0], tuple([p for n, p in enumerate(position) if n not in node.data]))
        if node.kind == "broadcast":
            return self.difference(node.args[0], projected(position, node.args[0].shape))
        if node.kind != "apply" or node.data not in ("lt", "le", "gt", "ge") or node.args[0].dtype not in _LINEAR:
            return None
        x, y = (self.linear(a, projected(position, a.shape)) for a in node.args)
        if x is None or y is None:
            return None
        if node.data in ("gt", "ge"):
            x, y = y, x
        return {"gt": "lt", "ge": "le"}.get(node.data, node.data), linear.add(self.b, x, y, -1)

    def _compared(self, fn: str, difference: Linear) -> Value | None:
        """difference < 0 (or <=, ...). Lanes are compared with what is left, in 32 bits."""
        b, lane = self.b, difference.lane
        predicate = {"lt": "slt", "le": "sle", "gt": "sgt", "ge": "sge"}.get(fn, fn)
        if difference.is_number:
            holds = {"lt": 0 > difference.number, "le": 0 >= difference.number, "gt": 0 < difference.number,
                     "ge": 0 <= difference.number, "eq": 0 == difference.number, "ne": 0 != difference.number}  # fmt: skip
            return TRUE if holds[fn] else FALSE
        if difference.is_uniform:
            return b.compare(predicate, linear.scalar(b, difference), constant(0, I64))
        if not isinstance(lane, int):
            return None
        reach = abs(lane) * self.lanes + 1
        rest = linear.scalar(b, linear.scale(difference.base, -1))
        if difference.base.is_number:
            clamped = constant(max(-reach, min(reach, int(rest.text))), Type("i32"))
        else:
            low, high = constant(-reach, I64), constant(reach, I64)
            clamped = b.convert("trunc", b.intrinsic("smax", b.intrinsic("smin", rest, high), low), "i32")
        steps = lane_constants([lane * n for n in range(self.lanes)], "i32")
        return b.compare(predicate, steps, b.splat(clamped, self.lanes), "inside")

    # Memory.

    def _moved(self, node: TileNode, position: Position) -> Address:
        pointer, offset = node.args
        where = self.at(pointer, projected(position, pointer.shape))
        at = projected(position, offset.shape)
        sign = 1 if node.kind == "forward" else -1
        step = self.linear(offset, at)
        if step is not None:
            return where._replace(offset=linear.add(self.b, where.offset, step, sign))
        apart = vectors.cast(self.b, self.value(offset, at), offset.dtype, int64)
        if sign < 0:
            apart = self.b.op("sub", constant(0, apart.type), apart)
        if where.scattered is not None:
            apart = self.b.op("add", where.scattered, apart)
        return where._replace(scattered=apart)

    def _load(self, node: TileNode, position: Position) -> Value:
        where = self.at(node.args[0], position)
        mask, other = TRUE, None
        if len(node.args) > 1:
            mask = self.value(node.args[1], projected(position, node.args[1].shape))
        if mask.text != "true" and len(node.args) > 2:
            other = self.value(node.args[2], projected(position, node.args[2].shape))
        if mask.text == "false":
            return other if other is not None else vectors.zero(node.dtype, 0)
        return self.fetch(where, node.dtype, mask, other, changes=where.parameter in self.frame.stored)

    def read(self, slot: Slot, position: Position) -> Value:
        """An element of a tile that lies in memory."""
        where = Address(slot.pointer, slot.offset(self.b, position), None, "")
        return self.fetch(where, slot.dtype, TRUE, None, changes=True)

    def fetch(self, where: Address, dtype: DType, mask: Value, other: Value | None, *, changes: bool) -> Value:
        """Reads memory, never behind a false mask. Memory that never changes is read as far out as it can be."""
        b, element = self.b, vectors.memory_element(dtype)
        if where.scattered is None and where.offset.is_uniform and not mask.type.lanes:
            at = linear.address(b, where.pointer, element, where.offset)
            if mask.text != "true":
                at = b.select(mask, at, self.frame.nowhere, "at")
            found = self._fetched(f"load {element}, ptr {at}, align {dtype.bytes}", Type(element), (at,), changes)
            found = vectors.from_memory(b, found, dtype)
            return found if other is None or mask.text == "true" else vectors.apply(b, "where", dtype, (mask, found, other))
        found = self._vector_fetch(where, dtype, mask, other, changes)
        return vectors.from_memory(b, found, dtype)

    def _fetched(self, text: str, type: Type, operands: Sequence[Value], changes: bool) -> Value:
        if changes:
            return self.b.instruction(text, type, "x")
        return self.b.pure(text, type, operands, "x", self.b.load_level())

    def _vector_fetch(self, where: Address, dtype: DType, mask: Value, other: Value | None, changes: bool) -> Value:
        b, element = self.b, vectors.memory_element(dtype)
        type = Type(element, self.lanes)
        lane = where.offset.lane
        mask = self.masked(mask)
        if where.scattered is None and lane == 1:
            at = linear.address(b, where.pointer, element, where.offset.base)
            if mask.text == "true":
                return self._fetched(f"load {type}, ptr {at}, align {dtype.bytes}", type, (at,), changes)
            mask, rest = b.splat(mask, self.lanes), self._otherwise(other, dtype)
            name = b.memory_intrinsic("load", type)
            text = f"call {type} @{name}(ptr align {dtype.bytes} {at}, {mask.type} {mask}, {type} {rest})"
            return self._fetched(text, type, (at, mask, rest), changes)
        if where.scattered is None and lane == -1 and mask.text == "true":
            first = linear.add(b, where.offset.base, number(1 - self.lanes))
            at = linear.address(b, where.pointer, element, first)
            found = self._fetched(f"load {type}, ptr {at}, align {dtype.bytes}", type, (at,), changes)
            return b.shuffle(found, found, range(self.lanes - 1, -1, -1))
        at, mask, rest = self._addresses(where, element), b.splat(mask, self.lanes), self._otherwise(other, dtype)
        name = b.memory_intrinsic("gather", type)
        text = f"call {type} @{name}({at.type} align {dtype.bytes} {at}, {mask.type} {mask}, {type} {rest})"
        return self._fetched(text, type, (at, mask, rest), changes)

    def masked(self, mask: Value) -> Value:
        """A mask, without the lanes that do not exist."""
        if self.active is None:
            return mask
        return self.active if mask.text == "true" else self.b.op("and", self.b.splat(mask, self.lanes), self.active)

    def _otherwise(self, other: Value | None, dtype: DType) -> Value:
        filler = vectors.zero(dtype, 0) if other is None else other
        return vectors.to_memory(self.b, self.b.splat(filler, self.lanes), dtype)

    def _addresses(self, where: Address, element: str) -> Value:
        """One address for each lane."""
        b = self.b
        first = linear.address(b, where.pointer, element, where.offset.base)
        apart = linear.vector(b, where.offset._replace(terms=(), number=0), self.lanes, "i64")
        if where.scattered is not None:
            spread = b.splat(where.scattered, self.lanes)
            apart = spread if where.offset.is_uniform else b.op("add", spread, apart)
        return b.offset(first, element, b.splat(apart, self.lanes))

    def write(self, where: Address, value: Value, dtype: DType, mask: Value = TRUE) -> None:
        """Stores an element (a vector of them) where the mask is true."""
        b, element = self.b, vectors.memory_element(dtype)
        if mask.text == "false":
            return
        uniform = where.scattered is None and where.offset.is_uniform
        if uniform and not self.lanes:
            at = linear.address(b, where.pointer, element, where.offset)
            if mask.text != "true":
                at = b.select(mask, at, self.frame.nowhere, "at")
            raw = vectors.to_memory(b, value, dtype)
            b.effect(f"store {element} {raw}, ptr {at}, align {dtype.bytes}")
            return
        self._vector_write(where, vectors.to_memory(b, b.splat(value, self.lanes), dtype), dtype, self.masked(mask))

    def _vector_write(self, where: Address, raw: Value, dtype: DType, mask: Value) -> None:
        b, element = self.b, vectors.memory_element(dtype)
        if where.scattered is None and where.offset.lane == 1:
            at = linear.address(b, where.pointer, element, where.offset.base)
            if mask.text == "true":
                b.effect(f"store {raw.type} {raw}, ptr {at}, align {dtype.bytes}")
                return
            kind = "store"
        else:
            at, kind = self._addresses(where, element), "scatter"
        mask = b.splat(mask, self.lanes)
        name = b.memory_intrinsic(kind, raw.type)
        b.effect(f"call void @{name}({raw.type} {raw}, {at.type} align {dtype.bytes} {at}, {mask.type} {mask})")


def as_linear(b: Builder, x: Any, dtype: DType) -> Linear | None:
    """A scalar integer as a term."""
    if isinstance(x, Linear):
        return x
    if isinstance(x, Value) and not x.type.lanes and dtype.is_integer:
        negative = x.negative and dtype.kind == "int"
        wide = vectors.cast(b, x, dtype, int64)
        if not wide.is_constant:
            wide.negative = wide.negative and negative
        return term(wide)
    return None


def projected(position: Position, shape: tuple[int, ...]) -> Position:
    """The position in an operand of fewer axes, or of axes that are repeated."""
    own = position[len(position) - len(shape) :]
    if 1 not in shape:
        return own
    return tuple([ZERO if extent == 1 else p for p, extent in zip(own, shape, strict=True)])


def flat(b: Builder, position: Position, shape: tuple[int, ...]) -> Linear:
    """The number of an element, row by row."""
    total, stride = ZERO, 1
    for index, extent in zip(reversed(position), reversed(shape), strict=True):
        total = linear.add(b, total, linear.scale(index, stride))
        stride *= extent
    return total


def split(b: Builder, index: Linear, shape: tuple[int, ...], lanes: int) -> Position | None:
    """The position of an element of that number, if it is linear."""
    places: list[Linear] = []
    for n, extent in enumerate(reversed(shape)):
        if n == len(shape) - 1:
            places.append(index)
        elif extent == 1:
            places.append(ZERO)
        else:
            divided = linear.divide(b, index, extent, lanes)
            if divided is None:
                return None
            index, rest = divided
            places.append(rest)
    return tuple(reversed(places))


def _can_be_negative(x: Value) -> bool:
    return "-" in x.text if x.is_constant else x.negative


def dense_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """How far apart neighbours along each axis lie, row by row.

    >>> dense_strides((2, 3, 4))
    (12, 4, 1)
    """
    strides, total = [], 1
    for extent in reversed(shape):
        strides.append(total)
        total *= extent
    return tuple(reversed(strides))

