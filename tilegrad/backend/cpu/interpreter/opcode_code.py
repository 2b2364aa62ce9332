"""Generate the native code of the block interpreter's instructions.

A function is given the state and the instruction (see `blocks.ll`). It works on whole groups of lanes: registers have
room for them, and lanes that do not exist hold anything.
"""

from __future__ import annotations

from collections.abc import Sequence

from ....ir.dtype import DType, bool_, int64
from ....ir.functions import FUNCTIONS, accumulation_dtype, identity
from .. import vectors
from ..emit import I64, PTR, Builder, LlvmValue, Type, constant, dtype_constant
from ..target import Target
from .opcodes import FIRST_SLOT, GROUP_LANES, Opcode, total_dtype

CHEAP_VECTORS, EXPENSIVE_VECTORS = 4, 2
"""Vector registers that a function works on at a time: independent ones hide latency."""


def opcode_ir(opcode: Opcode, target: Target) -> str:
    """Return the LLVM module of an instruction."""
    b = Builder()
    for name in ("entry", "state", "instruction"):
        b.name(name)
    {"apply": _apply, "reduce": _reduce, "extreme": _extreme, "scan": _scan}[opcode.kind](b, opcode, target)
    bits = target.vector_bytes * 8
    lines = [*b.declarations.values(), f"define void @{opcode.name}(ptr %state, ptr %instruction) #0 {{", "entry:"]
    lines += [*b.allocations, *b.scopes[0].lines, "  ret void", "}"]
    width = f'"prefer-vector-width"="{bits}" "min-legal-vector-width"="{bits}"'
    return "\n".join([*lines, f"attributes #0 = {{ nounwind {width} }}", ""])


def _word(b: Builder, base: str, n: int, hint: str) -> LlvmValue:
    at = b.offset(LlvmValue(base, PTR), "i64", constant(n, I64))
    return b.instruction(f"load i64, ptr {at}, align 8", I64, hint)


def _slot(b: Builder, operand: int, hint: str) -> LlvmValue:
    """Return the address of the block that an operand names."""
    number = b.op("add", _word(b, "%instruction", 2 + operand, "number"), constant(FIRST_SLOT, I64))
    at = b.offset(LlvmValue("%state", PTR), "ptr", number)
    return b.instruction(f"load ptr, ptr {at}, align 8", PTR, hint)


def _load(b: Builder, block: LlvmValue, lane: LlvmValue, dtype: DType, lanes: int) -> LlvmValue:
    element = vectors.memory_element(dtype)
    type = Type(element, lanes)
    at = b.offset(block, element, lane)
    return vectors.from_memory(b, b.instruction(f"load {type}, ptr {at}, align {dtype.bytes}", type), dtype)


def _store(b: Builder, block: LlvmValue, lane: LlvmValue, dtype: DType, value: LlvmValue) -> None:
    raw = vectors.to_memory(b, value, dtype)
    at = b.offset(block, vectors.memory_element(dtype), lane)
    b.effect(f"store {raw.type} {raw}, ptr {at}, align {dtype.bytes}")


def _apply(b: Builder, opcode: Opcode, target: Target) -> None:
    fn, source, result = opcode.fn, opcode.source, opcode.target
    function = FUNCTIONS[fn]
    dtypes = (bool_, source, source) if fn == "where" else (source,) * function.arity
    lanes = _lanes(target, function.expensive, result, *dtypes)
    to = _slot(b, 0, "to")
    blocks = [_slot(b, n + 1, "from") for n in range(len(dtypes))]
    stop = _word(b, "%state", 1, "lanes")
    loop = b.open_loop("lane", constant(0, I64), stop, constant(lanes, I64), guarded=False, pinned=True)
    args = tuple([_load(b, x, loop.index, dtype, lanes) for x, dtype in zip(blocks, dtypes, strict=True)])
    if fn == "cast":
        value = vectors.cast(b, args[0], source, result)
    elif fn == "bitcast":
        value = vectors.bitcast(b, args[0], result)
    else:
        value = vectors.apply(b, fn, source, args)
    _store(b, to, loop.index, result, value)
    b.close_loop(loop)


def _lanes(target: Target, expensive: bool, *dtypes: DType) -> int:
    widest = max(4 if dtype.bytes < 4 and dtype.is_float else dtype.bytes for dtype in dtypes)
    return min(GROUP_LANES, target.lanes(widest) * (EXPENSIVE_VECTORS if expensive else CHEAP_VECTORS))


def _fill_up(b: Builder, block: LlvmValue, dtype: DType, value: LlvmValue) -> None:
    """Store a number in the lanes of the last group that do not exist."""
    first, stop = _word(b, "%state", 0, "some"), _word(b, "%state", 1, "all")
    loop = b.open_loop("spare", first, stop, constant(1, I64), guarded=True, pinned=True)
    _store(b, block, loop.index, dtype, value)
    b.close_loop(loop)


def _reduce(b: Builder, opcode: Opcode, target: Target) -> None:
    """Add the lanes of a block (1) to a total (0): vectors, then lanes, in a fixed order."""
    fn, source = opcode.fn, opcode.source
    wide, total = accumulation_dtype(source), total_dtype(fn, source)
    to, block = _slot(b, 0, "to"), _slot(b, 1, "from")
    _fill_up(b, block, source, dtype_constant(identity(fn, source), source))
    lanes = min(GROUP_LANES, CHEAP_VECTORS * target.lanes(max(4, wide.bytes)))
    stop = _word(b, "%state", 1, "lanes")
    start = dtype_constant(identity(fn, wide), wide, lanes)
    step = constant(lanes, I64)
    loop = b.open_loop("lane", constant(0, I64), stop, step, [("part", start)], guarded=False, pinned=True)
    value = vectors.cast(b, _load(b, block, loop.index, source, lanes), source, wide)
    (parts,) = b.close_loop(loop, [vectors.apply(b, fn, wide, (loop.carried[0], value))])
    while lanes > 1:
        lanes //= 2
        lower, upper = b.shuffle(parts, parts, [*range(lanes)]), b.shuffle(parts, parts, [*range(lanes, 2 * lanes)])
        parts = vectors.apply(b, fn, wide, (lower, upper))
    found = vectors.cast(b, b.extract(parts, 0), wide, total)
    before = _load(b, to, constant(0, I64), total, 0)
    _store(b, to, constant(0, I64), total, vectors.apply(b, fn, total, (before, found)))


def _extreme(b: Builder, opcode: Opcode, target: Target) -> None:
    """Find the extreme of a block (2) and its index (3) among those of earlier blocks (0 and 1)."""
    fn, source = opcode.fn, opcode.source
    wide = accumulation_dtype(source)
    best, place, block, indices = (_slot(b, n, hint) for n, hint in enumerate(("best", "place", "from", "index")))
    _fill_up(b, block, source, dtype_constant(identity(_value_fn(fn), source), source))
    _fill_up(b, indices, int64, constant(int64.max, I64))
    lanes = target.lanes(8) * EXPENSIVE_VECTORS
    start = [
        ("value", dtype_constant(identity(_value_fn(fn), wide), wide, lanes)),
        ("index", constant(int64.max, Type("i64", lanes))),
    ]
    stop = _word(b, "%state", 1, "lanes")
    loop = b.open_loop("lane", constant(0, I64), stop, constant(lanes, I64), start, guarded=False, pinned=True)
    value = vectors.cast(b, _load(b, block, loop.index, source, lanes), source, wide)
    index = _load(b, indices, loop.index, int64, lanes)
    found = b.close_loop(loop, _better(b, fn, wide, (value, index), loop.carried))
    while lanes > 1:
        lanes //= 2
        lower, upper = [tuple([b.shuffle(x, x, [*range(first, first + lanes)]) for x in found]) for first in (0, lanes)]
        found = tuple(_better(b, fn, wide, upper, lower))
    first = tuple([b.extract(x, 0) for x in found])
    zero = constant(0, I64)
    before = (vectors.cast(b, _load(b, best, zero, source, 0), source, wide), _load(b, place, zero, int64, 0))
    value, index = _better(b, fn, wide, first, before)
    _store(b, best, zero, source, vectors.cast(b, value, wide, source))
    _store(b, place, zero, int64, index)


def _value_fn(fn: str) -> str:
    return "maximum" if fn == "argmax" else "minimum"


def _better(b: Builder, fn: str, dtype: DType, x: Sequence[LlvmValue], best: Sequence[LlvmValue]) -> list[LlvmValue]:
    """Choose between two elements, each a value and its index: NaN before numbers, and the first of equal ones."""
    wins = vectors.apply(b, "gt" if fn == "argmax" else "lt", dtype, (x[0], best[0]))
    same = vectors.apply(b, "eq", dtype, (x[0], best[0]))
    if dtype.is_float:
        nan, known = (vectors.apply(b, "isnan", dtype, (y,)) for y in (x[0], best[0]))
        wins = b.op("or", wins, b.op("and", nan, vectors.apply(b, "invert", bool_, (known,))))
        same = b.op("or", same, b.op("and", nan, known))
    wins = b.op("or", wins, b.op("and", same, b.compare("slt", x[1], best[1])))
    return [b.select(wins, new, old) for new, old in zip(x, best, strict=True)]


def _scan(b: Builder, opcode: Opcode, target: Target) -> None:
    """Accumulate the lanes of a block (2) in order, beginning with a total (1), into another (0)."""
    fn, source = opcode.fn, opcode.source
    wide = accumulation_dtype(source)
    to, total, block = _slot(b, 0, "to"), _slot(b, 1, "total"), _slot(b, 2, "from")
    zero, stop = constant(0, I64), _word(b, "%state", 0, "lanes")
    start = [("sum", _load(b, total, zero, wide, 0))]
    loop = b.open_loop("lane", zero, stop, constant(1, I64), start, guarded=False, pinned=True)
    value = vectors.cast(b, _load(b, block, loop.index, source, 0), source, wide)
    summed = vectors.apply(b, fn, wide, (loop.carried[0], value))
    _store(b, to, loop.index, source, vectors.cast(b, summed, wide, source))
    (last,) = b.close_loop(loop, [summed])
    _store(b, total, zero, wide, last)
