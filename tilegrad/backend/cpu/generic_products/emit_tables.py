"""Emit the functions that fill tables of offsets from the axes of a product, and find contiguous runs in them."""

from __future__ import annotations

from ..emit import I64, PTR, constant
from .function_builder import FunctionBuilder

AXIS_WORDS = 4
"""Words of an axis: its extent, and its strides in the left operand, the right operand and the result, in elements."""


def offsets_function() -> FunctionBuilder:
    """Emit `offsets(axes, rank, field, start, count, padded, table)`.

    Writes the offsets of `count` positions from the one with number `start`, counted row by row, and repeats the last
    one up to `padded` entries.
    """
    words = ("rank", "field", "start", "count", "padded")
    f = FunctionBuilder("offsets", [("axes", PTR), *[(name, I64) for name in words], ("table", PTR)])
    axes, rank, field, start, count, padded, table = f.arguments
    last = f.minus(rank, 1)
    inner = f.offset(axes, "i64", f.times(last, AXIS_WORDS))
    extent, stride = f.word_at(inner, 0), f.word_at(inner, field)
    zero = constant(0, I64)
    label, (n,) = f.open_while([("n", zero)])
    f.enter_while(f.compare("slt", n, count))
    position = f.plus(start, n)
    digit = f.instruction(f"urem i64 {position}, {extent}", I64)
    rest = f.instruction(f"udiv i64 {position}, {extent}", I64)
    outer = f.open_loop("axis", zero, last, constant(1, I64), [("rest", rest), ("base", zero)], guarded=True)
    axis = f.offset(axes, "i64", f.times(f.minus(f.minus(rank, 2), outer.index), AXIS_WORDS))
    of_axis, step = f.word_at(axis, 0), f.word_at(axis, field)
    left, base = outer.carried
    here = f.instruction(f"urem i64 {left}, {of_axis}", I64)
    beyond = f.instruction(f"udiv i64 {left}, {of_axis}", I64)
    _, base = f.close_loop(outer, [beyond, f.plus(base, f.times(here, step))])
    run = f.least(f.minus(count, n), f.minus(extent, digit))
    with f.counted("k", 0, run) as k:
        f.set_word(table, f.plus(n, k), f.plus(base, f.times(f.plus(digit, k), stride)))
    f.close_while(label, [n], [zero], [f.plus(n, run)])
    with f.when(f.compare("slt", count, padded)):
        final = f.word_at(table, f.minus(count, 1))
        with f.counted("filler", count, padded) as k:
            f.set_word(table, k, final)
    return f


def runs_function() -> FunctionBuilder:
    """Emit `runs(table, count, list) -> number`: list runs of consecutive offsets, by first entry and length."""
    f = FunctionBuilder("runs", [("table", PTR), ("count", I64), ("list", PTR)], I64)
    table, count, found = f.arguments
    zero, one = constant(0, I64), constant(1, I64)
    loop = f.open_loop("n", zero, count, one, [("number", zero)], guarded=True)
    (number,) = loop.carried
    before = f.word_at(table, f.intrinsic("smax", f.minus(loop.index, 1), zero))
    breaks = f.compare("ne", f.word_at(table, loop.index), f.plus(before, 1))
    starts = f.op("or", breaks, f.compare("eq", loop.index, zero))
    number = f.plus(number, f.convert("zext", starts, "i64"))
    at = f.offset(found, "i64", f.times(f.minus(number, 1), 2))
    known = f.word_at(at, 0)
    first = f.select(starts, loop.index, known)
    f.set_word(at, 0, first)
    f.set_word(at, 1, f.plus(f.minus(loop.index, first), 1))
    (f.returned,) = f.close_loop(loop, [number])
    return f
