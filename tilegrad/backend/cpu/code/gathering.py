"""Load vectors of elements that are not contiguous: `x + i // 10 * 14 + i % 10`.

Contiguous elements with one break (the end of a row) take two masked loads. If rows are shorter than a vector, but not
than its half or quarter, the parts are loaded separately. Small strides are loaded whole and shuffled. All other
vectors are gathered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....ir import tile as ir
from ....ir.dtype import DType
from ....ir.tile_types import TileType
from ..emit import I64, LlvmValue, Type, constant, lane_constants

if TYPE_CHECKING:
    from .elements import ElementEvaluator, Position

MIN_PART_LANES = 4
"""Lanes of the shortest part of a vector that is loaded separately."""
MAX_STRIDE, MIN_STRIDED_BYTES = 4, 4
"""Largest stride that is loaded whole and shuffled, and the smallest element size, in bytes, for which that pays."""


def is_split_load(e: ElementEvaluator, x: ir.Load, lanes: int) -> bool:
    """Whether the halves of a vector are simpler to load than the whole, recursively."""
    half = lanes // 2
    if half < MIN_PART_LANES or e.types.of(x).dtype.bytes < e.least_masked or _has_one_break(e, x.pointer, lanes):
        return False
    return e.lane_step(x.pointer, half) == 1 or _has_one_break(e, x.pointer, half) or is_split_load(e, x, half)


def load_halves(e: ElementEvaluator, x: ir.Load, at: Position, lanes: int, dtype: DType) -> LlvmValue:
    b, active, half, found = e.b, e.active, lanes // 2, list[LlvmValue]()
    for first in (0, half):
        if active is not None and active <= first:
            found.append(LlvmValue("poison", found[0].type))
        else:
            e.active = None if active is None or active >= first + half else active - first
            found.append(e.of(x, [*at[:-1], b.op("add", at[-1], constant(first, I64))], half, dtype))
    e.active = active
    return b.shuffle(found[0], found[1], range(lanes))


def is_small_stride(step: int, bytes: int) -> bool:
    """Whether a stride is small enough to load everything between the first and last element."""
    return step not in (0, 1) and abs(step) <= MAX_STRIDE and bytes >= MIN_STRIDED_BYTES


def load_strided(e: ElementEvaluator, address: LlvmValue, type: Type, step: int, bytes: int) -> LlvmValue:
    """Load elements of a constant stride, forwards or backwards: vectors that cover their range, then shuffles."""
    b, lanes = e.b, type.lanes
    places = [step * n for n in range(lanes if e.active is None else e.active)]
    least, count = min(places), max(places) - min(places) + 1
    made, known = LlvmValue("poison", type), set[int]()
    for start in range(0, count, lanes):
        first = max(0, min(start, count - lanes))
        exist = None if count >= lanes else lane_constants([n < count for n in range(lanes)], "i1")
        at = b.offset(address, type.element, constant(least + first, I64))
        vector = e.load_along(at, type, exist, LlvmValue("poison", type), bytes)
        here = {n: place - least - first for n, place in enumerate(places) if start <= place - least < start + lanes}
        chosen = [lanes + here[n] if n in here else n if n in known else -1 for n in range(lanes)]
        made, known = b.shuffle(made, vector, chosen), known | set(here)
    return made


def _has_one_break(e: ElementEvaluator, pointer: ir.Tile, lanes: int) -> bool:
    """Whether a vector is contiguous with one break between two rows."""
    match pointer:
        case ir.Apply("add", (ir.Name() as base, offset)) if not e.shape(base):
            return e.step(pointer, local=True) == 1 and e.ranges.has_one_break(offset, lanes, e.step)
    return False


def load_irregular(
    e: ElementEvaluator, pointer: ir.Tile, at: Position, t: TileType, type: Type, mask: LlvmValue, default: LlvmValue
) -> LlvmValue:
    """Load lanes of irregular addresses: from two rows, or by a gather at offsets from one address."""
    b, lanes, bytes = e.b, type.lanes, t.dtype.bytes
    match pointer:
        case ir.Apply("add", (ir.Name() as base, offset)) if not e.shape(base) and e.shape(offset) == t.shape:
            common, apart = e.parted(offset, at, lanes)
            if apart is None:
                apart = constant(0, Type("i32", lanes))
            start = b.offset(e.of(base, [], 0, t.dtype), type.element, common)
        case _:
            address = b.splat(e.of(pointer, at, lanes, t.dtype), lanes)
            return gather(e, address, type, mask, default, bytes)
    if bytes < e.least_masked or not _has_one_break(e, pointer, lanes):
        return gather(e, b.offset(start, type.element, apart), type, mask, default, bytes)
    first, last = b.extract(apart, 0), b.extract(apart, lanes - 1)
    before = b.op("sub", apart, b.splat(first, lanes))
    before = b.compare("eq", before, lane_constants(range(lanes), apart.type.element))
    bits = f"i{8 * bytes}"  # i1 vectors carried across a loop border would be packed and unpacked
    before = b.convert("sext", before, bits)
    behind = b.op("xor", before, constant(-1, before.type))
    mask = b.convert("sext", mask, bits)
    before, behind = (b.compare("slt", b.op("and", mask, x), constant(0, x.type)) for x in (before, behind))
    places = [b.offset(start, type.element, b.convert("sext", place, "i64")) for place in (first, last)]
    places[1] = b.offset(places[1], type.element, constant(1 - lanes, I64))
    found = e.load_along(places[0], type, before, default, bytes)
    return e.load_along(places[1], type, behind, found, bytes)


def gather(
    e: ElementEvaluator, address: LlvmValue, type: Type, mask: LlvmValue, default: LlvmValue, bytes: int
) -> LlvmValue:
    """Gather a vector; LLVM gathers vectors of 512 bits only, others would become a branch per lane."""
    b = e.b
    address = b.splat(address, type.lanes)
    if bytes < 4 or type.lanes * bytes < 64:
        return _gather_by_lane(e, address, type, mask, default, bytes)
    name = f"llvm.masked.gather.{type.short}.{address.type.short}"
    b.declarations.setdefault(name, f"declare {type} @{name}({address.type}, i32, {mask.type}, {type})")
    text = f"call {type} @{name}({address.type} {address}, i32 {bytes}, {mask.type} {mask}, {type} {default})"
    return b.instruction(text, type)


def _gather_by_lane(
    e: ElementEvaluator, address: LlvmValue, type: Type, mask: LlvmValue, default: LlvmValue, bytes: int
) -> LlvmValue:
    """Load elements one by one; masked-out lanes read dummy memory."""
    b = e.b
    every = mask.text == constant(True, mask.type).text
    if not every:
        e.nowhere = e.nowhere or b.allocate(64, "nowhere")
        address = b.select(mask, address, b.splat(e.nowhere, type.lanes))
    made = LlvmValue("poison", type)
    for n in range(type.lanes):
        x = b.instruction(f"load {type.element}, ptr {b.extract(address, n)}, align {bytes}", Type(type.element))
        made = b.pure(f"insertelement {type} {made}, {x.type} {x}, i64 {n}", type, (made, x))
    return made if every else b.select(mask, made, default)
