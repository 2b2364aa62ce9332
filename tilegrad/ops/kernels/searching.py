"""Find positions: where segments of sorted entries start, where values belong in sorted rows, what a mask selects."""

# mypy: ignore-errors
# (Parameters in capitals are constants.)

from __future__ import annotations

from ...tiles.read import core as tl
from ..op_kernel import OpKernel, int64


@OpKernel
def segment_starts(order, out, BLOCK, ENTRIES, ENDS, STEPS, FIRST_STEP):
    row = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    before = row * 0
    step = int64(FIRST_STEP)
    for turn in range(STEPS):
        at = before + step
        key = tl.load(order + (ENTRIES - 1 + at), mask=at <= ENTRIES, other=9223372036854775807)
        before = tl.where(key < row, at, before)
        step = step // 2
    tl.store(out + row, before, mask=row < ENDS)


@OpKernel
def searchsorted(edges, values, out, LANES, COUNT, LENGTH, COLUMNS, STEPS, FIRST_STEP, RIGHT, IN_ROWS):
    lane = tl.program_id(0).to(tl.int64) * LANES + tl.arange(0, LANES)
    inside = lane < COUNT
    x = tl.load(values + lane, mask=inside)
    begin = lane // COLUMNS * LENGTH if IN_ROWS else lane * 0
    before = lane * 0
    step = int64(FIRST_STEP)
    for turn in range(STEPS):
        at = before + step
        there = inside & (at <= LENGTH)
        edge = tl.load(edges + (begin + at - 1), mask=there)
        before = tl.where(there, tl.where(edge > x if RIGHT else edge >= x, before, at), before)
        step = step // 2
    tl.store(out + lane, before, mask=inside)


@OpKernel
def compact(mask, before, out, BLOCK, LENGTH, COUNT):
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    chosen = tl.load(mask + place, mask=place < LENGTH, other=False)
    target = tl.load(before + place, mask=place < LENGTH, other=0) - 1
    tl.store(out + target, place, mask=chosen & (target < COUNT))
