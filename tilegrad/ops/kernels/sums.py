"""Reduce segments and ranges of the rows of a table."""

# mypy: ignore-errors
# (Parameters in capitals are constants.)

from __future__ import annotations

from ...tiles.read import core as tl
from ..op_kernel import OpKernel, combine, int64, sum_of


@OpKernel
def segment_sums(order, starts, source, out, BLOCK, COLUMNS, ENTRIES_PER_STEP):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = column < COLUMNS
    end = tl.load(starts + row + 1)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for first in range(tl.load(starts + row), end, ENTRIES_PER_STEP):
        steps = range(ENTRIES_PER_STEP)
        entries = [tl.load(order + (first + n), mask=first + n < end, other=0) for n in steps]
        rows = [
            tl.load(source + (entries[n] * COLUMNS + column), mask=inside & (first + n < end), other=0.0) for n in steps
        ]
        total += sum_of(rows)
    tl.store(out + (row * COLUMNS + column), total, mask=inside)


@OpKernel
def range_reduce(starts, level, out, FN, NOTHING, DTYPE, LANES, BLOCK, COUNT, COLUMNS):
    lane = tl.program_id(0).to(tl.int64) * LANES + tl.arange(0, LANES)
    inside = lane < COUNT
    row = lane // COLUMNS
    column = lane % COLUMNS
    begin = tl.load(starts + row, mask=inside, other=0)
    end = tl.load(starts + (row + 1), mask=inside, other=0)
    total = tl.full((LANES,), NOTHING, dtype=DTYPE)
    for entries in level[:-1]:
        first = tl.minimum(end, (begin + (BLOCK - 1)) // BLOCK * BLOCK)
        for n in range(int64(0), tl.max(first - begin, axis=0)):
            x = tl.load(entries + ((begin + n) * COLUMNS + column), mask=begin + n < first, other=NOTHING)
            total = combine(FN, total, x)
        last = tl.maximum(first, end // BLOCK * BLOCK)
        for n in range(int64(0), tl.max(end - last, axis=0)):
            x = tl.load(entries + ((last + n) * COLUMNS + column), mask=last + n < end, other=NOTHING)
            total = combine(FN, total, x)
        begin = first // BLOCK
        end = last // BLOCK
    for n in range(int64(0), tl.max(end - begin, axis=0)):
        x = tl.load(level[-1] + ((begin + n) * COLUMNS + column), mask=begin + n < end, other=NOTHING)
        total = combine(FN, total, x)
    tl.store(out + lane, total, mask=inside)
