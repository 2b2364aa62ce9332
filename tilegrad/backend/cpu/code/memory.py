"""Load and store vectors and elements: tiles on the stack, masked accesses, gathers and scatters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import NamedTuple

from ....ir.dtype import DType
from .. import vectors
from ..costs import MAX_STRIDE, MIN_STRIDED_BYTES
from ..emit import I64, Builder, LlvmValue, Type, constant, dtype_constant
from .position import Position, first_lanes

MIN_GATHER_BYTES = 64
"""Bytes of the vectors that are gathered by one instruction; LLVM makes a branch per lane of smaller ones."""


class StackTile(NamedTuple):
    """A tile (or scalar) on the stack, row-major; a vector may run past the end of a row."""

    address: LlvmValue
    dtype: DType
    shape: tuple[int, ...]
    pointer: bool = False
    padded: tuple[int, ...] = ()
    """Shape with padding, if that is larger."""

    @property
    def element(self) -> str:
        return "ptr" if self.pointer else vectors.memory_element(self.dtype)

    @property
    def element_bytes(self) -> int:
        return 8 if self.pointer else self.dtype.bytes

    @property
    def row_pitch(self) -> int:
        """Elements from row to row."""
        return (self.padded or self.shape)[1]

    def address_of(self, b: Builder, index: Sequence[LlvmValue]) -> LlvmValue:
        flat = constant(0, I64)
        for i, extent in zip(index, self.padded or self.shape, strict=True):
            flat = i if flat.text == "0" else b.op("add", b.op("mul", flat, constant(extent, I64)), i)
        return b.offset(self.address, self.element, flat)

    def load(self, b: Builder, at: Position) -> LlvmValue:
        raw = b.load_invariant(self.address_of(b, at.indices), Type(self.element, at.lanes), self.element_bytes)
        return raw if self.pointer else vectors.from_memory(b, raw, self.dtype)

    def store(self, b: Builder, at: Position, value: LlvmValue) -> None:
        """Store elements, except lanes that do not exist."""
        value = b.splat(value, at.lanes)
        raw = value if self.pointer else vectors.to_memory(b, value, self.dtype)
        store_vector(b, self.address_of(b, at.indices), raw, self.element_bytes, at.mask, at.active)


def allocate(
    b: Builder, dtype: DType, shape: tuple[int, ...], hint: str, pointer: bool = False, padded: tuple[int, ...] = ()
) -> StackTile:
    bytes = 8 if pointer else dtype.bytes
    address = b.allocate(prod(padded or shape) * bytes + 64, f"{hint}.tile")
    return StackTile(address, dtype, shape, pointer, padded)


def load_element(
    b: Builder, address: LlvmValue, mask: LlvmValue | None, other: LlvmValue | None, dtype: DType
) -> LlvmValue:
    """Load one element, under a condition if there is a mask."""
    type = Type(vectors.memory_element(dtype))

    def read() -> LlvmValue:
        return vectors.from_memory(b, b.instruction(f"load {type}, ptr {address}, align {dtype.bytes}", type), dtype)

    if mask is None or mask.text == "true":
        return read()
    b.open_branch("read")
    value = read()
    then = b.close_branch()
    b.open_branch("skip")
    skip = b.close_branch()
    return b.close_branches(mask, then, skip, [(value, dtype_constant(0, dtype) if other is None else other)])[0]


def load_vector(
    b: Builder, address: LlvmValue, type: Type, mask: LlvmValue | None, default: LlvmValue, bytes: int
) -> LlvmValue:
    if mask is None:
        return b.load_invariant(address, type, bytes)
    name = f"llvm.masked.load.{type.short}.p0"
    b.declarations.setdefault(name, f"declare {type} @{name}(ptr, i32, {mask.type}, {type})")
    text = f"call {type} @{name}(ptr {address}, i32 {bytes}, {mask.type} {mask}, {type} {default})"
    return b.instruction(text, type)


def gather(b: Builder, address: LlvmValue, type: Type, mask: LlvmValue, default: LlvmValue, bytes: int) -> LlvmValue:
    address = b.splat(address, type.lanes)
    if bytes < 4 or type.lanes * bytes < MIN_GATHER_BYTES:
        return _gather_by_lane(b, address, type, mask, default, bytes)
    name = f"llvm.masked.gather.{type.short}.{address.type.short}"
    b.declarations.setdefault(name, f"declare {type} @{name}({address.type}, i32, {mask.type}, {type})")
    text = f"call {type} @{name}({address.type} {address}, i32 {bytes}, {mask.type} {mask}, {type} {default})"
    return b.instruction(text, type)


def _gather_by_lane(
    b: Builder, address: LlvmValue, type: Type, mask: LlvmValue, default: LlvmValue, bytes: int
) -> LlvmValue:
    """Load elements one by one; masked-out lanes read dummy memory."""
    every = mask.text == constant(True, mask.type).text
    if not every:
        address = b.select(mask, address, b.splat(b.dummy, type.lanes))
    made = LlvmValue("poison", type)
    for n in range(type.lanes):
        x = b.instruction(f"load {type.element}, ptr {b.extract(address, n)}, align {bytes}", Type(type.element))
        made = b.pure(f"insertelement {type} {made}, {x.type} {x}, i64 {n}", type, (made, x))
    return made if every else b.select(mask, made, default)


def under_mask(b: Builder, mask: LlvmValue | None, write: Callable[[], None]) -> None:
    """Emit stores under a condition."""
    if mask is None or mask.text == "true":
        write()
    else:
        b.under_condition(mask, "write", write, "skip")


def store_element(b: Builder, address: LlvmValue, raw: LlvmValue, mask: LlvmValue | None, bytes: int) -> None:
    under_mask(b, mask, lambda: b.effect(f"store {raw.type} {raw}, ptr {address}, align {bytes}"))


def store_vector(
    b: Builder,
    address: LlvmValue,
    raw: LlvmValue,
    bytes: int,
    mask: LlvmValue | None = None,
    active: int | None = None,
) -> None:
    """Store a vector; masked stores are slow on some machines and used as a last resort."""
    lanes = raw.type.lanes
    if mask is None:
        b.effect(f"store {raw.type} {raw}, ptr {address}, align {bytes}")
    elif active is not None and lanes and mask.text == first_lanes(active, lanes).text:
        _store_first(b, address, raw, bytes, active)
    elif mask.is_constant:
        _store_masked(b, address, raw, bytes, mask)
    else:
        bits = b.pure(f"bitcast {mask.type} {mask} to i{lanes}", Type(f"i{lanes}"), (mask,))
        b.open_branch("all")
        b.effect(f"store {raw.type} {raw}, ptr {address}, align {bytes}")
        every = b.close_branch()
        b.open_branch("some")
        _store_masked(b, address, raw, bytes, mask)
        b.close_branches(b.compare("eq", bits, constant(-1, bits.type)), every, b.close_branch())


def _store_first(b: Builder, address: LlvmValue, raw: LlvmValue, bytes: int, active: int) -> None:
    """Store the lanes that exist, in pieces of halving lengths."""
    done = 0
    while done < active:
        width = 1 << ((active - done).bit_length() - 1)
        piece = b.shuffle(raw, raw, range(done, done + width)) if width > 1 else b.extract(raw, done)
        place = b.offset(address, raw.type.element, constant(done, I64))
        b.effect(f"store {piece.type} {piece}, ptr {place}, align {bytes}")
        done += width


def _store_masked(b: Builder, address: LlvmValue, raw: LlvmValue, bytes: int, mask: LlvmValue) -> None:
    name = f"llvm.masked.store.{raw.type.short}.p0"
    b.declarations.setdefault(name, f"declare void @{name}({raw.type}, ptr, i32, {mask.type})")
    b.effect(f"call void @{name}({raw.type} {raw}, ptr {address}, i32 {bytes}, {mask.type} {mask})")


def scatter(b: Builder, address: LlvmValue, raw: LlvmValue, mask: LlvmValue | None, bytes: int) -> None:
    mask = constant(True, raw.type.of("i1")) if mask is None else mask
    name = f"llvm.masked.scatter.{raw.type.short}.{address.type.short}"
    b.declarations.setdefault(name, f"declare void @{name}({raw.type}, {address.type}, i32, {mask.type})")
    b.effect(f"call void @{name}({raw.type} {raw}, {address.type} {address}, i32 {bytes}, {mask.type} {mask})")


def is_small_stride(stride: int, bytes: int) -> bool:
    """Whether a stride is small enough to load everything between the first and last element."""
    return stride not in (0, 1) and abs(stride) <= MAX_STRIDE and bytes >= MIN_STRIDED_BYTES
