"""Emit the functions that pack parts of operands: `packed[o * row + i] = operand[outer[o] + inner[i]]`.

Contiguous runs of the inner table are copied by vectors; runs of the outer table are transposed in registers; elements
without neighbours are copied one by one. What is packed has the type of sums.
"""

from __future__ import annotations

from .. import vectors
from ..code.nests import transpose_square
from ..emit import I64, PTR, LlvmValue, Type, constant
from .element_format import ElementFormat
from .function_builder import FunctionBuilder

MIN_RUN_SHARE = 2
"""A run is long if it is at least a vector divided by this."""


def pack_function(format: ElementFormat) -> FunctionBuilder:
    """Emit `pack`, which chooses a method.

    The tables are followed by the lists of their runs. The inner table is padded to whole vectors, and `packed` has
    memory for a vector of rows behind it.
    """
    f = _packer("pack")
    outer_count, inner_count, inner_runs, outer_runs = (_argument(f, name) for name in COUNTS)
    long = max(1, format.lanes // MIN_RUN_SHARE)
    copies = f.compare("sle", f.times(inner_runs, long), f.plus(inner_count, long - 1))
    f.open_branch("copied")
    f.run("pack_copied", *f.arguments)
    side = f.close_branch()
    f.open_branch("other")
    transposes = f.compare("sle", f.times(outer_runs, long), f.plus(outer_count, long - 1))
    f.open_branch("transposed")
    f.run("pack_transposed", *f.arguments)
    inner_side = f.close_branch()
    f.open_branch("scattered")
    f.run("pack_elements", *f.arguments)
    f.close_branches(transposes, inner_side, f.close_branch())
    f.close_branches(copies, side, f.close_branch())
    return f


PARAMETERS = (
    *(("operand", PTR), ("outer", PTR), ("outer_count", I64), ("inner", PTR), ("inner_count", I64)),
    *(
        ("packed", PTR),
        ("row", I64),
        ("inner_list", PTR),
        ("inner_runs", I64),
        ("outer_list", PTR),
        ("outer_runs", I64),
    ),
)
COUNTS = ("outer_count", "inner_count", "inner_runs", "outer_runs")


def _packer(name: str) -> FunctionBuilder:
    return FunctionBuilder(name, PARAMETERS)


def _argument(f: FunctionBuilder, name: str) -> LlvmValue:
    return f.arguments[[hint for hint, _ in PARAMETERS].index(name)]


def packed_copies(format: ElementFormat) -> FunctionBuilder:
    """Emit `pack_copied`: runs of the inner table, by vectors."""
    f = _packer("pack_copied")
    operand, _, _, inner, _, packed, _, list_, runs, _, _ = f.arguments
    stored, summed = str(format.stored), str(format.sum)
    with f.counted("r", 0, runs) as r:
        run = f.offset(list_, "i64", f.times(r, 2))
        first, length = f.word_at(run, 0), f.word_at(run, 1)
        here = f.offset(operand, stored, f.word_at(inner, first))
        there = f.offset(packed, summed, first)
        with f.counted("i", 0, length, format.lanes) as i:
            source, target = f.offset(here, stored, i), f.offset(there, summed, i)
            _copy_column(f, (source, target, f.minus(length, i)), format)
    return f


def _copy_column(f: FunctionBuilder, values: tuple[LlvmValue, LlvmValue, LlvmValue], format: ElementFormat) -> None:
    """Copy `count` elements, or a whole vector, of all rows: nothing beyond is overwritten."""
    source, target, count = values
    outer, outer_count, row = (_argument(f, name) for name in ("outer", "outer_count", "row"))
    stored, summed = str(format.stored), str(format.sum)
    with f.counted("o", 0, outer_count) as o:
        x = f.load_first(f.offset(source, stored, f.word_at(outer, o)), count, format)
        f.store_first(x, f.offset(target, summed, f.times(o, row)), count, format.of_sums)


def packed_transposed(format: ElementFormat) -> FunctionBuilder:
    """Emit `pack_transposed`: runs of the outer table, by squares of vectors."""
    f = _packer("pack_transposed")
    operand, outer, _, inner, inner_count, packed, row, _, _, list_, runs = f.arguments
    lanes, stored, summed = format.lanes, str(format.stored), str(format.sum)
    with f.counted("r", 0, runs) as r:
        run = f.offset(list_, "i64", f.times(r, 2))
        first, length = f.word_at(run, 0), f.word_at(run, 1)
        with f.counted("o", 0, length, lanes) as o:
            at = f.plus(first, o)
            source = f.offset(operand, stored, f.word_at(outer, at))
            target = f.offset(packed, summed, f.times(at, row))
            count = f.minus(length, o)
            full = f.compare("sge", count, constant(lanes, I64))
            with f.counted("i", 0, inner_count, lanes) as i:
                places = [f.offset(source, stored, f.word_at(inner, f.plus(i, n))) for n in range(lanes)]
                rest = (target, row, i, summed)
                if format.has_masks:
                    _store_square(f, [f.load_first(place, count, format) for place in places], *rest)
                else:
                    f.open_branch("full")
                    _store_square(f, [f.load_vector(place, format) for place in places], *rest)
                    side = f.close_branch()
                    f.open_branch("partial")
                    _store_square(f, [f.load_first(place, count, format) for place in places], *rest)
                    f.close_branches(full, side, f.close_branch())
    return f


def _store_square(
    f: FunctionBuilder, rows: list[LlvmValue], target: LlvmValue, row: LlvmValue, column: LlvmValue, element: str
) -> None:
    for n, x in enumerate(transpose_square(f, rows)):
        at = f.offset(f.offset(target, element, f.times(row, n)), element, column)
        f.effect(f"store {x.type} {x}, ptr {at}, align {x.type.bits // 8}")


def packed_elements(format: ElementFormat) -> FunctionBuilder:
    """Emit `pack_elements`: elements one by one."""
    f = _packer("pack_elements")
    operand, outer, outer_count, inner, inner_count, packed, row, *_ = f.arguments
    stored, summed = str(format.stored), str(format.sum)
    with f.counted("o", 0, outer_count) as o:
        source = f.offset(operand, stored, f.word_at(outer, o))
        target = f.offset(packed, summed, f.times(o, row))
        with f.counted("i", 0, inner_count) as i:
            x = load_element(f, f.offset(source, stored, f.word_at(inner, i)), format)
            f.effect(f"store {x.type} {x}, ptr {f.offset(target, summed, i)}, align {format.bytes}")
    return f


def load_element(f: FunctionBuilder, at: LlvmValue, format: ElementFormat) -> LlvmValue:
    """Load one stored element and convert it to what is summed."""
    found = f.instruction(f"load {format.stored}, ptr {at}, align {format.stored_bytes}", format.stored)
    return vectors.cast(f, found, format.dtype, format.accumulated)


def padding_function(format: ElementFormat) -> FunctionBuilder:
    """Emit `pad(description, operand, padded, begin, end)`: copy some rows of an operand into a frame of zeros.

    The description has the number of axes, then for each the padded extent, the first position of the operand, its
    extent and its stride.
    """
    f = FunctionBuilder("pad", [("axes", PTR), ("operand", PTR), ("padded", PTR), ("begin", I64), ("end", I64)])
    axes, operand, padded, begin, end = f.arguments
    stored, zero, one = str(format.stored), constant(0, I64), constant(1, I64)
    rank = f.word_at(axes, 0)
    last = f.offset(axes, "i64", f.plus(f.times(f.minus(rank, 1), 4), 1))
    width, before, extent, stride = (f.word_at(last, n) for n in range(4))
    with f.counted("row", begin, end) as row:
        loop = f.open_loop(
            "axis", zero, f.minus(rank, 1), one, [("rest", row), ("base", zero), ("inside", one)], guarded=True
        )
        rest, base, inside = loop.carried
        axis = f.offset(axes, "i64", f.plus(f.times(f.minus(f.minus(rank, 2), loop.index), 4), 1))
        of_axis, offset, there, step = (f.word_at(axis, n) for n in range(4))
        at = f.minus(f.instruction(f"urem i64 {rest}, {of_axis}", I64), offset)
        beyond = f.instruction(f"udiv i64 {rest}, {of_axis}", I64)
        exists = f.convert("zext", f.compare("ult", at, there), "i64")
        _, base, inside = f.close_loop(loop, [beyond, f.plus(base, f.times(at, step)), f.op("and", inside, exists)])
        source = f.offset(operand, stored, base)
        target = f.offset(padded, stored, f.times(row, width))
        count = f.times(extent, inside)
        if format.has_masks:
            f.open_branch("contiguous")
            _pad_by_vectors(f, source, target, (width, before, count), format)
            side = f.close_branch()
            f.open_branch("strided")
            _pad_by_elements(f, source, target, (width, before, count, stride), format)
            f.close_branches(f.compare("eq", stride, one), side, f.close_branch())
        else:
            _pad_by_elements(f, source, target, (width, before, count, stride), format)
    return f


def _pad_by_vectors(
    f: FunctionBuilder,
    source: LlvmValue,
    target: LlvmValue,
    sizes: tuple[LlvmValue, LlvmValue, LlvmValue],
    format: ElementFormat,
) -> None:
    width, before, count = sizes
    stored = str(format.stored)
    with f.counted("i", 0, width, format.lanes) as i:
        at = f.minus(i, before)
        starts = f.first_lanes(f.minus(constant(0, I64), at), format.lanes)
        ends = f.first_lanes(f.minus(count, at), format.lanes)
        mask = f.op("and", ends, f.op("xor", starts, constant(True, starts.type)))
        x = f.load_masked(f.offset(source, stored, at), mask, format)
        f.store_masked(x, f.offset(target, stored, i), f.first_lanes(f.minus(width, i), format.lanes), format)


def _pad_by_elements(
    f: FunctionBuilder,
    source: LlvmValue,
    target: LlvmValue,
    sizes: tuple[LlvmValue, LlvmValue, LlvmValue, LlvmValue],
    format: ElementFormat,
) -> None:
    width, before, count, stride = sizes
    stored = str(format.stored)
    nothing = LlvmValue("zeroinitializer", Type(stored))
    with f.counted("i", 0, width) as i:
        at = f.offset(target, stored, i)
        f.effect(f"store {stored} {nothing}, ptr {at}, align {format.stored_bytes}")
    with f.counted("i", 0, count) as i:
        at = f.offset(source, stored, f.times(i, stride))
        x = f.instruction(f"load {stored}, ptr {at}, align {format.stored_bytes}", format.stored)
        f.effect(f"store {stored} {x}, ptr {f.offset(target, stored, f.plus(i, before))}, align {format.stored_bytes}")
