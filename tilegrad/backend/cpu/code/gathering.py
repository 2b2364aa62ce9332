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
from ..costs import MIN_PART_LANES
from ..emit import I64, Builder, LlvmValue, Type, constant, lane_constants
from .memory import gather, load_vector
from .position import Position, first_lanes

if TYPE_CHECKING:
    from .elements import ElementEvaluator


def is_split_load(e: ElementEvaluator, x: ir.Load, at: Position) -> bool:
    """Whether the halves of a vector are simpler to load than the whole, recursively."""
    half = at._replace(lanes=at.lanes // 2)
    if half.lanes < MIN_PART_LANES or e.types.of(x).dtype.bytes < e.min_masked_bytes:
        return False
    if has_one_break(e, x.pointer, at.lanes):
        return False
    return e.lane_stride(x.pointer, half) == 1 or has_one_break(e, x.pointer, half.lanes) or is_split_load(e, x, half)


def has_one_break(e: ElementEvaluator, pointer: ir.Tile, lanes: int) -> bool:
    """Whether a vector is contiguous with at most one break: all quotients change at the same lane."""
    match pointer:
        case ir.Apply("add", (ir.Name() as base, offset)) if (
            not e.shape(base) and e.affine.step(pointer, typical=True) == 1
        ):
            pass
        case _:
            return False
    found = [x for x in _varying(e, offset) if isinstance(x, ir.Apply) and x.fn in ("floordiv", "mod")]
    divisors = [x.args[1].value if isinstance(x.args[1], ir.Literal) else 0 for x in found]
    least = min(divisors, default=0)
    if least < lanes or any(divisor % least for divisor in divisors):
        return False
    dividends = [_dividend(e, x) for x in found]
    return all(x == dividends[0] for x in dividends)


def _dividend(e: ElementEvaluator, x: ir.Tile) -> ir.Tile:
    """Return the dividend of the innermost remainder."""
    while isinstance(x, ir.Apply) and x.fn in ("floordiv", "mod"):
        x = x.args[0]
        named = e.affine.resolved(x)
        x = named if isinstance(named, ir.Apply) and named.fn in ("floordiv", "mod") else x
    return x


def _varying(e: ElementEvaluator, x: ir.Tile) -> list[ir.Tile]:
    """Subexpressions that vary along the last axis, through names."""
    found: dict[int, ir.Tile] = {}
    stack = [x]
    while stack:
        x = e.affine.resolved(stack.pop())
        if id(x) not in found and e.affine.step(x) != 0:
            found[id(x)] = x
            stack += ir.parts(x)
    return list(found.values())


def load_halves(e: ElementEvaluator, x: ir.Load, at: Position, dtype: DType) -> LlvmValue:
    b, active, half, found = e.b, at.active, at.lanes // 2, list[LlvmValue]()
    for first in (0, half):
        if active is not None and active <= first:
            found.append(LlvmValue("poison", found[0].type))
        else:
            place = at.moved(*at.indices[:-1], b.op("add", at.indices[-1], constant(first, I64)), lanes=half)
            exist = None if active is None or active >= first + half else active - first
            names = {name: _lanes_from(b, y, first, half) for name, y in at.names.items()}
            found.append(e.evaluate(x, place._replace(active=exist, names=names), dtype))
    return b.shuffle(found[0], found[1], range(at.lanes))


def _lanes_from(b: Builder, x: LlvmValue, first: int, count: int) -> LlvmValue:
    """Return some lanes of a vector, or the value of all lanes."""
    return b.shuffle(x, x, range(first, first + count)) if x.type.lanes else x


def load_strided(b: Builder, address: LlvmValue, type: Type, stride: int, bytes: int, active: int | None) -> LlvmValue:
    """Load elements of a constant stride, forwards or backwards: vectors that cover their range, then shuffles."""
    lanes = type.lanes
    places = [stride * n for n in range(lanes if active is None else active)]
    least, count = min(places), max(places) - min(places) + 1
    made, known = LlvmValue("poison", type), set[int]()
    for start in range(0, count, lanes):
        first = max(0, min(start, count - lanes))
        exist = None if count >= lanes else first_lanes(count, lanes)
        at = b.offset(address, type.element, constant(least + first, I64))
        vector = load_vector(b, at, type, exist, LlvmValue("poison", type), bytes)
        here = {n: place - least - first for n, place in enumerate(places) if start <= place - least < start + lanes}
        chosen = [lanes + here[n] if n in here else n if n in known else -1 for n in range(lanes)]
        made, known = b.shuffle(made, vector, chosen), known | set(here)
    return made


def load_irregular(
    e: ElementEvaluator, pointer: ir.Tile, at: Position, t: TileType, type: Type, mask: LlvmValue, default: LlvmValue
) -> LlvmValue:
    """Load lanes of irregular addresses: from two rows, or by a gather at offsets from one address."""
    b, lanes, bytes = e.b, type.lanes, t.dtype.bytes
    match pointer:
        case ir.Apply("add", (ir.Name() as base, offset)) if not e.shape(base) and e.shape(offset) == t.shape:
            uniform, varying = e.split_offset(offset, at)
            if varying is None:
                varying = constant(0, Type("i32", lanes))
            start = b.offset(e.evaluate(base, at.scalar, t.dtype), type.element, uniform)
        case _:
            return gather(b, b.splat(e.evaluate(pointer, at, t.dtype), lanes), type, mask, default, bytes)
    if bytes < e.min_masked_bytes or not has_one_break(e, pointer, lanes):
        return gather(b, b.offset(start, type.element, varying), type, mask, default, bytes)
    first, last = b.extract(varying, 0), b.extract(varying, lanes - 1)
    before = b.op("sub", varying, b.splat(first, lanes))
    before = b.compare("eq", before, lane_constants(range(lanes), varying.type.element))
    bits = f"i{8 * bytes}"  # i1 vectors carried across a loop border would be packed and unpacked
    before = b.convert("sext", before, bits)
    behind = b.op("xor", before, constant(-1, before.type))
    mask = b.convert("sext", mask, bits)
    before, behind = (b.compare("slt", b.op("and", mask, x), constant(0, x.type)) for x in (before, behind))
    places = [b.offset(start, type.element, b.convert("sext", place, "i64")) for place in (first, last)]
    places[1] = b.offset(places[1], type.element, constant(1 - lanes, I64))
    found = load_vector(b, places[0], type, before, default, bytes)
    return load_vector(b, places[1], type, behind, found, bytes)
