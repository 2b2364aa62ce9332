"""Convert bfloat16 rows to float32 for sums: two vectors from one load, of the even and of the odd elements.

Of two numbers in a 32-bit word the upper one is a float32 number except for its last bits, which are masked, and the
lower one becomes one by a shift. Converting consecutive numbers would go through the shuffle ports instead. The lane of
a number does not matter in a sum.
"""

from __future__ import annotations

from typing import TypeAlias

from ....ir import tile as ir
from ....ir.dtype import DType, bfloat16, float32
from .. import vectors
from ..emit import LlvmValue, Type, constant
from .elements import ElementEvaluator
from .position import Position

SUPPORTED = ("add", "sub", "mul")
Made: TypeAlias = dict[tuple[int | str, ...], tuple[LlvmValue, ir.Tile]]


def _is_bfloat16_load(e: ElementEvaluator, x: ir.Tile) -> bool:
    if not isinstance(x, ir.Load) or x.mask is not None:
        return False
    return e.types.of(x).dtype is bfloat16 and e.affine.step(x.pointer) == 1


def is_bfloat16_row(e: ElementEvaluator, x: ir.Tile) -> bool:
    """Whether an expression consists of bfloat16 numbers converted to float32, contiguous in memory."""
    seen: dict[int, ir.Tile] = {}
    stack = [x]
    while stack:
        x = e.definition(stack.pop())
        if id(x) in seen:
            continue
        seen[id(x)] = x
        match x:
            case ir.Cast(y, to):
                if to is not float32 or not _is_bfloat16_load(e, e.definition(y)):
                    return False
            case ir.Apply(fn, args) if fn in SUPPORTED and e.types.of(x).dtype is float32:
                stack.extend(args)
            case ir.ExpandDims(y, axes) if len(e.types.of(x).shape) - 1 not in axes:  # the same for all rows
                stack.append(y)
            case _:
                return False
    return True


def even_or_odd(e: ElementEvaluator, x: ir.Tile, at: Position, odd: bool, made: Made | None = None) -> LlvmValue:
    """Return the even or odd elements of twice as many as there are lanes; `made` memoises shared subexpressions."""
    made = {} if made is None else made
    x = e.definition(x)
    key: tuple[int | str, ...] = (id(x), *[place.text for place in at.indices])
    if key not in made:
        made[key] = _even_or_odd(e, x, at, odd, made), x
    return made[key][0]


def _even_or_odd(e: ElementEvaluator, x: ir.Tile, at: Position, odd: bool, made: Made) -> LlvmValue:
    b = e.b
    match x:
        case ir.Cast(y):
            load = e.definition(y)
            assert isinstance(load, ir.Load)
            address = e.evaluate(load.pointer, at.element, bfloat16)
            words = b.load_invariant(address, Type("i32", at.lanes), bfloat16.bytes)
            if odd:
                bits = b.op("and", words, constant(-0x10000, words.type))
            else:
                bits = b.op("shl", words, constant(16, words.type))
            return b.convert("bitcast", bits, "float")
        case ir.ExpandDims(y, axes):
            return even_or_odd(e, y, at.moved(*[i for n, i in enumerate(at.indices) if n not in axes]), odd, made)
        case ir.Apply(fn, args):
            return vectors.apply(b, fn, float32, tuple([even_or_odd(e, y, at, odd, made) for y in args]))
    raise NotImplementedError(type(x).__name__)


def reads_even_and_odd(e: ElementEvaluator, x: ir.Tile, fn: str, dtype: DType) -> bool:
    """Whether a reduction may read even and odd elements separately."""
    return fn == "add" and dtype is float32 and is_bfloat16_row(e, x)
