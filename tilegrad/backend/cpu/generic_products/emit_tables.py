"""Emit the functions that fill tables of offsets from the axes of a product, and find contiguous runs in them."""

from __future__ import annotations

from ..emit import I1, I64, PTR, LlvmValue, Type, constant, lane_constants
from .function_builder import FunctionBuilder

AXIS_WORDS = 4
"""Words of an axis: its extent, and its strides in the left operand, the right operand and the result, in elements."""

CHUNK = 8
"""Offsets that are compared at once with those of a run."""


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
    initial = [zero] * 4
    names = ("n", "number", "first", "expected")
    label, carried = f.open_while(list(zip(names, initial, strict=True)))
    n, number, first, expected = carried
    f.enter_while(f.compare("slt", n, count))
    together = _continues(f, f.offset(table, "i64", n), expected, f.minus(count, n), f.compare("sgt", n, zero))
    offset = f.word_at(table, n)
    breaks = f.op("or", f.compare("ne", offset, expected), f.compare("eq", n, zero))
    number = f.plus(number, f.convert("zext", breaks, "i64"))
    first = f.select(breaks, n, first)
    length = f.select(together, constant(CHUNK, I64), one)
    after = f.plus(n, length)
    at = f.offset(found, "i64", f.times(f.minus(number, 1), 2))
    f.set_word(at, 0, first)
    f.set_word(at, 1, f.minus(after, first))
    results = f.close_while(label, carried, initial, [after, number, first, f.plus(offset, length)])
    f.returned = results[1]
    return f


def _continues(f: FunctionBuilder, at: LlvmValue, expected: LlvmValue, left: LlvmValue, within: LlvmValue) -> LlvmValue:
    """Return whether all of the next CHUNK offsets continue a run, if there are so many."""
    type = Type("i64", CHUNK)
    fits = f.op("and", within, f.compare("sge", left, constant(CHUNK, I64)))
    f.open_branch("chunk")
    offsets = f.instruction(f"load {type}, ptr {at}, align 8", type)
    consecutive = f.op("add", f.splat(expected, CHUNK), lane_constants(range(CHUNK), "i64"))
    equal = f.compare("eq", offsets, consecutive)
    every = f.call(f"llvm.vector.reduce.and.v{CHUNK}i1", I1, equal)
    side = f.close_branch()
    f.open_branch("single")
    (joined,) = f.close_branches(fits, side, f.close_branch(), [(every, constant(False, I1))])
    return joined
