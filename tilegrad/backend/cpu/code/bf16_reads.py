"""Sums of products of bfloat16 numbers, two vectors of float32 numbers from one load.

Of two neighbours in a word of 32 bits the upper one is a float32 number as it lies there, but for its last bits, and
the lower one is, shifted up. So a vector of words gives those at even places and those at odd ones, each by one
instruction; read one after another, numbers go through the ports that shuffle, and rows of weights take a fifth longer.
Which number is in which lane does not matter to a sum.
"""

from __future__ import annotations

from typing import TypeAlias

from ....ir import tile as ir
from ....ir.dtype import DType, bfloat16, float32
from .. import vectors
from ..emit import Type, Value, constant
from .elements import At, Elements, defined

PLAIN = ("add", "sub", "mul")
Made: TypeAlias = dict[tuple[int | str, ...], tuple[Value, ir.Tile]]


def are_halves(e: Elements, x: ir.Tile) -> bool:
    """Whether an expression is made of such numbers alone, read along memory."""
    seen: dict[int, ir.Tile] = {}
    stack = [x]
    while stack:
        x = defined(e, stack.pop())
        if id(x) in seen:
            continue
        seen[id(x)] = x
        match x:
            case ir.Cast(y, to):
                y = defined(e, y)
                if to is not float32 or not isinstance(y, ir.Load) or y.mask is not None:
                    return False
                if e.types.of(y).dtype is not bfloat16 or e.step(y.pointer) != 1:
                    return False
            case ir.Apply(fn, args) if fn in PLAIN and e.types.of(x).dtype is float32:
                stack.extend(args)
            case ir.Expand(y, axes) if len(e.types.of(x).shape) - 1 not in axes:  # the same for all rows
                stack.append(y)
            case _:
                return False
    return True


def half(e: Elements, x: ir.Tile, at: At, lanes: int, odd: bool, made: Made | None = None) -> Value:
    """The numbers at even or at odd places of twice as many as there are lanes; `made`: what is there already of
    expressions that are used twice, each with the places that it was made for."""
    made = {} if made is None else made
    x = defined(e, x)
    key: tuple[int | str, ...] = (id(x), *[place.text for place in at])
    if key not in made:
        made[key] = _half(e, x, at, lanes, odd, made), x
    return made[key][0]


def _half(e: Elements, x: ir.Tile, at: At, lanes: int, odd: bool, made: Made) -> Value:
    b = e.b
    match x:
        case ir.Cast(y):
            load = defined(e, y)
            assert isinstance(load, ir.Load)
            address = e.of(load.pointer, at, 0, bfloat16)
            words = e.once(address, Type("i32", lanes), bfloat16.bytes)
            if odd:
                bits = b.op("and", words, constant(-0x10000, words.type))
            else:
                bits = b.op("shl", words, constant(16, words.type))
            return b.convert("bitcast", bits, "float")
        case ir.Expand(y, axes):
            return half(e, y, [place for n, place in enumerate(at) if n not in axes], lanes, odd, made)
        case ir.Apply(fn, args):
            return vectors.apply(b, fn, float32, tuple([half(e, y, at, lanes, odd, made) for y in args]))
    raise NotImplementedError(type(x).__name__)


def in_halves(e: Elements, x: ir.Tile, fn: str, dtype: DType) -> bool:
    """Whether a reduction takes them so."""
    return fn == "add" and dtype is float32 and are_halves(e, x)
