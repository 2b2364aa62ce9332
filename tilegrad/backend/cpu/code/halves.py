"""Sums of products of bfloat16 numbers, two vectors of float32 numbers from one load.

Of two neighbours in a word of 32 bits the upper one is a float32 number as it lies there, but for its last bits, and
the lower one is, shifted up. So a vector of words gives those at even places and those at odd ones, each by one
instruction; read one after another, numbers go through the ports that shuffle, and rows of weights take a fifth longer.
Which number is in which lane does not matter to a sum.
"""

from __future__ import annotations

from ....ir import tile as ir
from ....ir.dtype import DType, bfloat16, float32
from .. import vectors
from ..emit import Type, Value, constant
from .elements import At, Elements, defined

PLAIN = ("add", "sub", "mul")


def are_halves(e: Elements, x: ir.Tile) -> bool:
    """Whether an expression is made of such numbers alone, read along memory."""
    x = defined(e, x)
    match x:
        case ir.Cast(y, to):
            y = defined(e, y)
            if to is not float32 or not isinstance(y, ir.Load) or y.mask is not None:
                return False
            return e.types.of(y).dtype is bfloat16 and e.step(y.pointer) == 1
        case ir.Apply(fn, args) if fn in PLAIN:
            return e.types.of(x).dtype is float32 and all(are_halves(e, y) for y in args)
        case ir.Expand(y, axes):  # the same for all rows
            return len(e.types.of(x).shape) - 1 not in axes and are_halves(e, y)
    return False


def half(e: Elements, x: ir.Tile, at: At, lanes: int, odd: bool) -> Value:
    """The numbers at even or at odd places of twice as many as there are lanes."""
    b, x = e.b, defined(e, x)
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
            return half(e, y, [place for n, place in enumerate(at) if n not in axes], lanes, odd)
        case ir.Apply(fn, args):
            return vectors.apply(b, fn, float32, tuple([half(e, y, at, lanes, odd) for y in args]))
    raise NotImplementedError(type(x).__name__)


def in_halves(e: Elements, x: ir.Tile, fn: str, dtype: DType) -> bool:
    """Whether a reduction takes them so."""
    return fn == "add" and dtype is float32 and are_halves(e, x)
