"""Lower atomics and prints, element by element."""

from __future__ import annotations

from collections.abc import Callable

from ....errors import CompileError
from ....ir import tile as ir
from ....ir.dtype import DType, bfloat16, bool_, float64, int32, int64
from ....ir.tile_types import TileType
from .. import vectors
from ..emit import I32, Builder, LlvmValue, Type
from .elements import ElementEvaluator
from .memory import StackTile, store_vector
from .nests import LoopNests
from .position import Position

NAMES = {"and": "and", "or": "or", "xor": "xor", "xchg": "xchg"}
"""Atomic operations whose LLVM name does not depend on the type."""


def atomic(nests: LoopNests, x: ir.Atomic, out: StackTile | None) -> None:
    """Emit an atomic per element; old values are stored in `out`."""
    e, b = nests.e, nests.b
    t = e.types.of(x.pointer)
    if t.dtype is bfloat16 and x.fn not in NAMES:
        raise CompileError(f"atomic_{x.fn} of bfloat16: no machine has it; keep what is added up in float32")

    def change(at: Position) -> None:
        def update() -> None:
            address = e.evaluate(x.pointer, at, t.dtype)
            given = [_stored(e, y, at, t) for y in (x.expected, x.value) if y is not None]
            raw = _exchanged(b, address, *given) if x.fn == "cas" else _changed(b, x.fn, t.dtype, address, given[0])
            if out is not None:
                store_vector(b, out.address_of(b, at.indices), raw, out.element_bytes)

        under_mask(nests, x.mask, at, t, update)

    nests.for_each(t.shape, change, t.dtype, vectorised=False)


def _stored(e: ElementEvaluator, x: ir.Tile, at: Position, t: TileType) -> LlvmValue:
    return vectors.to_memory(e.b, e.operand(x, at, t.shape, t.dtype), t.dtype)


def under_mask(nests: LoopNests, mask: ir.Tile | None, at: Position, t: TileType, body: Callable[[], None]) -> None:
    """Emit code that runs for an element where the mask is true."""
    if mask is None:
        body()
        return
    nests.b.under_condition(nests.e.operand(mask, at, t.shape, bool_), "active", body, "idle")


def _changed(b: Builder, fn: str, dtype: DType, address: LlvmValue, value: LlvmValue) -> LlvmValue:
    prefix = "f" if dtype.is_float else "u" if dtype.kind != "int" and fn in ("max", "min") else ""
    operation = NAMES.get(fn, prefix + fn)
    return b.instruction(f"atomicrmw {operation} ptr {address}, {value.type} {value} seq_cst", value.type, "old")


def _exchanged(b: Builder, address: LlvmValue, expected: LlvmValue, value: LlvmValue) -> LlvmValue:
    """Emit a compare-and-exchange, on the bits of the values."""
    bits = Type(f"i{value.type.bits}")
    raw = [y if y.type == bits else b.convert("bitcast", y, bits.element) for y in (expected, value)]
    text = f"cmpxchg ptr {address}, {bits} {raw[0]}, {bits} {raw[1]} seq_cst seq_cst"
    pair = b.instruction(text, bits, "pair")
    old = b.instruction(f"extractvalue {{ {bits}, i1 }} {pair}, 0", bits, "old")
    return old if value.type == bits else b.convert("bitcast", old, value.type.element)


def print_elements(nests: LoopNests, x: ir.Print) -> None:
    """Emit a call of the C library's printf per element."""
    e, b = nests.e, nests.b
    for value in x.values or (None,):
        t = TileType(int32) if value is None else e.types.of(value)

        def line(at: Position, value: ir.Tile | None = value, t: TileType = t) -> None:
            lanes = " idx (" + ", ".join(["%lld"] * len(at.indices)) + ")" if value is not None else ""
            words = f"pid (%d, %d, %d){lanes} {x.text.replace('%', '%%')}"
            operands = [*e.ids, *at.indices]
            if value is not None:
                number = _printed(b, e.evaluate(value, at, t.dtype), t.dtype)
                words += f": {'%.9g' if number.type.is_float else '%llu' if t.dtype.kind == 'uint' else '%lld'}"
                operands.append(number)
            _printf(b, words + "\n", operands)

        nests.for_each(t.shape, line, t.dtype, vectorised=False)


def _printed(b: Builder, x: LlvmValue, dtype: DType) -> LlvmValue:
    """Promote a number as C's variadic arguments are: to double or 64 bits."""
    return vectors.cast(b, x, dtype, float64 if dtype.is_float else int64)


def _printf(b: Builder, text: str, operands: list[LlvmValue]) -> None:
    data = text.encode() + b"\0"
    shown = "".join(f"\\{byte:02X}" for byte in data)
    name = f"@words.{sum(key.startswith('@words') for key in b.declarations)}"
    b.declarations[name] = f'{name} = private constant [{len(data)} x i8] c"{shown}"'
    b.declarations.setdefault("printf", "declare i32 @printf(ptr, ...)")
    listed = "".join(f", {y.type} {y}" for y in operands)
    b.instruction(f"call i32 (ptr, ...) @printf(ptr {name}{listed})", I32, "printed")
