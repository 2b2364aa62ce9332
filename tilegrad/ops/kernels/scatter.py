"""Copy the base of a scatter, then write the source at the indices."""

# mypy: ignore-errors
# (Parameters in capitals are constants.)

from __future__ import annotations

from ...tiles.read import core as tl
from ...tiles.read.scope import TileFunction
from ..op_kernel import OpKernel, check_index, combine, flat_offset, int64, unravel


@OpKernel
def scatter(base, index, source, out, FN, SPEC, COLUMNS, ROWS, BLOCK, STEP, SPAN, WHOLE):
    column = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    at = unravel(column, [axis.extent for axis in SPEC.columns])
    reached = None if WHOLE else column < COLUMNS
    lower, upper = int64(0), ROWS
    if SPAN:
        lower = tl.program_id(1).to(tl.int64) * SPAN
        upper = tl.minimum(lower + SPAN, ROWS)

    out_at = flat_offset(at, [axis.out for axis in SPEC.columns], column * 0)
    base_at = flat_offset(at, [axis.base for axis in SPEC.columns], column * 0)
    for first in range(lower, upper, STEP):
        row = first + tl.arange(0, STEP)
        copied = (row < upper)[:, None] if WHOLE else (row < upper)[:, None] & reached[None, :]
        to = unravel(row, [axis.extent for axis in SPEC.rows])
        base_row = flat_offset(to, [axis.base for axis in SPEC.rows], row * 0)
        out_row = flat_offset(to, [axis.out for axis in SPEC.rows], row * 0)
        old = tl.load(base + (base_row[:, None] + base_at[None, :]), mask=copied)
        tl.store(out + (out_row[:, None] + out_at[None, :]), old, mask=copied)

    for n in tl.static_range(len(SPEC.columns)):
        if SPEC.columns[n].limit is not None:
            below = at[n] < SPEC.columns[n].limit
            reached = below if reached is None else reached & below
    index_at = flat_offset(at, [axis.index for axis in SPEC.columns], column * 0)
    source_at = flat_offset(at, [axis.source for axis in SPEC.columns], column * 0)
    for entry in range(int64(0), SPEC.count):
        place = entry * SPEC.index_step
        if not SPEC.per_column:
            to = [tl.load(pointer + place).to(tl.int64) for pointer in index]
        elif reached is None:
            to = [tl.load(pointer + (index_at + place)).to(tl.int64) for pointer in index]
        else:
            to = [tl.load(pointer + (index_at + place), mask=reached, other=0).to(tl.int64) for pointer in index]
        to = [checked(to[n], SPEC.rows[n]) for n in range(len(SPEC.rows))]
        place = out_at + flat_offset(to, [axis.out for axis in SPEC.rows], 0)
        if SPAN:
            if (to[0] >= lower) & (to[0] < upper):
                new = tl.load(source + (source_at + entry * SPEC.source_step), mask=reached)
                write(out, place, new, reached, FN)
        else:
            new = tl.load(source + (source_at + entry * SPEC.source_step), mask=reached)
            write(out, place, new, reached, FN)


@TileFunction
def checked(to, AXIS):
    # Wrap a negative index, if the op does that; then clamp or check it.
    if AXIS.check is None or AXIS.check[1]:
        to = tl.where(to < 0, to + AXIS.extent, to)
    if AXIS.check is None:
        return tl.minimum(tl.maximum(to, int64(0)), int64(AXIS.extent) - 1)
    return check_index(to, int64(AXIS.extent), AXIS.check[0])


@TileFunction
def write(out, place, new, reached, FN):
    whole = new if FN == "" else combine(FN, tl.load(out + place, mask=reached), new)
    tl.store(out + place, whole, mask=reached)
