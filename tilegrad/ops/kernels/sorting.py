"""Sort rows of int32 keys, stably."""

# mypy: ignore-errors
# (In kernels a constexpr is a number.)

from __future__ import annotations

from typing import TYPE_CHECKING

from ..tile_code import OpKernel

if TYPE_CHECKING:
    from ...tiles.read import core as tl


@OpKernel
def count_keys(keys, out, LENGTH: tl.constexpr, KEYS: tl.constexpr, STEP: tl.constexpr):
    # Rank each key by counting those before it: independent instances finish earlier than a merge sort.
    begin = tl.program_id(0).to(tl.int64) * LENGTH
    entry = tl.program_id(1) * KEYS + tl.arange(0, KEYS)
    key = tl.load(keys + (begin + entry), mask=entry < LENGTH)
    before = tl.zeros((KEYS,), dtype=tl.int32)
    for first in range(0, LENGTH, STEP):
        other = first + tl.arange(0, STEP)
        theirs = tl.load(keys + (begin + other), mask=other < LENGTH, other=2147483647)
        sooner = (other < LENGTH)[None, :] & (theirs[None, :] == key[:, None]) & (other[None, :] < entry[:, None])
        before += tl.sum(((theirs[None, :] < key[:, None]) | sooner).to(tl.int32), axis=1)
    place = begin * 2 + before.to(tl.int64)
    tl.store(out + place, entry.to(tl.int64), mask=entry < LENGTH)
    tl.store(out + (place + LENGTH), key.to(tl.int64), mask=entry < LENGTH)


@OpKernel
def sort_keys(keys, out, LENGTH: tl.constexpr):
    # Pack key << 32 | place, so that one comparison also breaks ties.
    row = tl.program_id(0).to(tl.int64)
    length = (LENGTH).to(tl.int64)
    near = row * length * 2
    far = near + length
    for first in range((0).to(tl.int64), length, 256):
        place = first + tl.arange(0, 256)
        key = tl.load(keys + (row * length + place), mask=place < length).to(tl.int64)
        tl.store(out + (near + place), key << (32).to(tl.int64) | place, mask=place < length)

    # Merge neighbouring runs of 1, 2, 4 ... elements from `near` to `far`, then swap the two.
    run = (1).to(tl.int64)
    while run < length:
        for start in range((0).to(tl.int64), length, run * 2):
            middle = tl.minimum(start + run, length)
            end = tl.minimum(middle + run, length)
            i = start
            j = middle
            for k in range(start, end):
                x = tl.load(out + (near + i), mask=i < middle, other=9223372036854775807)
                y = tl.load(out + (near + j), mask=j < end, other=9223372036854775807)
                tl.store(out + (far + k), tl.minimum(x, y))
                i += (x < y).to(tl.int64)
                j += (x > y).to(tl.int64)
        swapped = near
        near = far
        far = swapped
        run *= 2

    order = row * length * 2
    for first in range((0).to(tl.int64), length, 256):
        place = first + tl.arange(0, 256)
        packed = tl.load(out + (near + place), mask=place < length)
        tl.store(out + (order + place), packed & (4294967295).to(tl.int64), mask=place < length)
        tl.store(out + (order + length + place), packed >> (32).to(tl.int64), mask=place < length)


@OpKernel
def smallest_keys(keys, out, LENGTH: tl.constexpr, COUNT: tl.constexpr):
    # Pack key << 32 | place. The smallest so far are kept sorted at `best`.
    row = tl.program_id(0).to(tl.int64)
    length = (LENGTH).to(tl.int64)
    best = row * (2 * COUNT)
    worst = (9223372036854775807).to(tl.int64)
    for k in range((0).to(tl.int64), COUNT):
        tl.store(out + (best + k), worst)
    for first in range((0).to(tl.int64), length, 64):
        place = first + tl.arange(0, 64)
        many = tl.load(keys + (row * length + place), mask=place < length, other=2147483647).to(tl.int64)
        if tl.min(many << (32).to(tl.int64) | place, axis=0) < worst:
            for n in range(first, tl.minimum(first + 64, length)):
                x = tl.load(keys + (row * length + n)).to(tl.int64) << (32).to(tl.int64) | n
                if x < worst:
                    hole = (COUNT - 1).to(tl.int64)
                    before = tl.load(out + (best + hole - 1), mask=hole > 0, other=0)
                    while (hole > 0) & (before > x):
                        tl.store(out + (best + hole), before)
                        hole -= 1
                        before = tl.load(out + (best + hole - 1), mask=hole > 0, other=0)
                    tl.store(out + (best + hole), x)
                    worst = tl.load(out + (best + (COUNT - 1)))
    for k in range((0).to(tl.int64), COUNT):
        packed = tl.load(out + (best + k))
        tl.store(out + (best + k), packed & (4294967295).to(tl.int64))
        tl.store(out + (best + COUNT + k), packed >> (32).to(tl.int64))
