"""Count numbers, and sum exactly, with atomic additions to one row of counters per part."""

# mypy: ignore-errors
# (Parameters in capitals are constants.)

from __future__ import annotations

from ...tiles.read import core as tl
from ...tiles.read.scope import TileFunction
from ..op_kernel import OpKernel, int64


@TileFunction
def clear(out, own, COUNT, BLOCK):
    for first in range(0, COUNT, BLOCK):
        number = first + tl.arange(0, BLOCK)
        tl.store(out + (own + number), tl.zeros((BLOCK,), dtype=out.dtype.element_ty), mask=number < COUNT)


@OpKernel
def partial_histograms(numbers, out, BLOCK, LENGTH, COUNT, BINS):
    # Integer sums do not depend on the order.
    part = tl.program_id(0).to(tl.int64)
    own = part * BINS
    clear(out, own, BINS, BLOCK)
    for begin in range(part * LENGTH, tl.minimum((part + 1) * LENGTH, int64(COUNT)), BLOCK):
        place = begin + tl.arange(0, BLOCK)
        met = tl.load(numbers + place, mask=place < COUNT, other=0)
        tl.atomic_add(out + (own + met), 1, mask=place < COUNT)


@OpKernel
def exact_sums(places, amounts, out, BLOCK, LENGTH, COUNT, COUNTERS, WORDS, POWERS):
    # Integer sums do not depend on the order.
    part = tl.program_id(0).to(tl.int64)
    own = part * COUNTERS
    clear(out, own, COUNTERS, BLOCK)
    for begin in range(part * LENGTH, tl.minimum((part + 1) * LENGTH, int64(COUNT)), BLOCK):
        at = begin + tl.arange(0, BLOCK)
        inside = at < COUNT
        place = tl.load(places + at, mask=inside, other=0)
        bits = tl.load(amounts + at, mask=inside, other=0.0).to(tl.int32, bitcast=True)
        exponent = bits >> 23 & 255
        fraction = bits & 8388607
        power = tl.maximum(exponent, 1) - 1
        whole = (fraction + tl.where(exponent > 0, 8388608, 0)).to(tl.int64) << (power & 7).to(tl.int64)
        value = tl.where(bits < 0, -whole, whole)
        sign = tl.where(bits < 0, int64(2147483648), int64(1))
        odd = tl.where(fraction > 0, int64(2147483649), sign)
        word = tl.where(exponent == 255, POWERS, power >> 3)
        added = tl.where(exponent == 255, odd, value)
        tl.atomic_add(out + (own + place.to(tl.int64) * WORDS + word), added, mask=inside & (added != 0))
