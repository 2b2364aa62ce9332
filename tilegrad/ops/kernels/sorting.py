"""Sort rows stably: int32 keys by counting smaller ones or by a merge sort, int64 numbers by a radix sort."""

# mypy: ignore-errors
# (Parameters in capitals are constants.)

from __future__ import annotations

from ...tiles.read import core as tl
from ...tiles.read.scope import TileFunction
from ..op_kernel import OpKernel, int64


@OpKernel
def count_keys(keys, out, LENGTH, KEYS, STEP):
    # Rank each key by counting those before it: independent instances finish earlier than a merge sort.
    begin = tl.program_id(0).to(tl.int64) * LENGTH
    entry = tl.program_id(1) * KEYS + tl.arange(0, KEYS)
    key = tl.load(keys + (begin + entry), mask=entry < LENGTH)
    before = tl.zeros((KEYS,), dtype=tl.int32)
    for first in range(0, LENGTH, STEP):
        other = first + tl.arange(0, STEP)
        theirs = tl.load(keys + (begin + other), mask=other < LENGTH, other=2147483647)
        earlier = (other < LENGTH)[None, :] & (theirs[None, :] == key[:, None]) & (other[None, :] < entry[:, None])
        before += tl.sum(((theirs[None, :] < key[:, None]) | earlier).to(tl.int32), axis=1)
    place = begin * 2 + before.to(tl.int64)
    tl.store(out + place, entry.to(tl.int64), mask=entry < LENGTH)
    tl.store(out + (place + LENGTH), key.to(tl.int64), mask=entry < LENGTH)


@OpKernel
def sort_keys(keys, out, LENGTH):
    # Pack key << 32 | place, so that one comparison also breaks ties.
    row = tl.program_id(0).to(tl.int64)
    length = int64(LENGTH)
    near = row * length * 2
    far = near + length
    for first in range(int64(0), length, 256):
        place = first + tl.arange(0, 256)
        key = tl.load(keys + (row * length + place), mask=place < length).to(tl.int64)
        tl.store(out + (near + place), key << int64(32) | place, mask=place < length)

    # Merge neighbouring runs of 1, 2, 4 ... elements from `near` to `far`, then swap the two.
    run = int64(1)
    while run < length:
        for start in range(int64(0), length, run * 2):
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
    for first in range(int64(0), length, 256):
        place = first + tl.arange(0, 256)
        packed = tl.load(out + (near + place), mask=place < length)
        tl.store(out + (order + place), packed & int64(4294967295), mask=place < length)
        tl.store(out + (order + length + place), packed >> int64(32), mask=place < length)


@OpKernel
def smallest_keys(keys, out, LENGTH, COUNT):
    # Pack key << 32 | place. The smallest so far are kept sorted at `best`.
    row = tl.program_id(0).to(tl.int64)
    length = int64(LENGTH)
    best = row * (2 * COUNT)
    worst = int64(9223372036854775807)
    for k in range(int64(0), COUNT):
        tl.store(out + (best + k), worst)
    for first in range(int64(0), length, 64):
        place = first + tl.arange(0, 64)
        many = tl.load(keys + (row * length + place), mask=place < length, other=2147483647).to(tl.int64)
        if tl.min(many << int64(32) | place, axis=0) < worst:
            for n in range(first, tl.minimum(first + 64, length)):
                x = tl.load(keys + (row * length + n)).to(tl.int64) << int64(32) | n
                if x < worst:
                    hole = int64(COUNT - 1)
                    before = tl.load(out + (best + hole - 1), mask=hole > 0, other=0)
                    while (hole > 0) & (before > x):
                        tl.store(out + (best + hole), before)
                        hole -= 1
                        before = tl.load(out + (best + hole - 1), mask=hole > 0, other=0)
                    tl.store(out + (best + hole), x)
                    worst = tl.load(out + (best + (COUNT - 1)))
    for k in range(int64(0), COUNT):
        packed = tl.load(out + (best + k))
        tl.store(out + (best + k), packed & int64(4294967295))
        tl.store(out + (best + COUNT + k), packed >> int64(32))


@TileFunction
def digits(numbers, BLOCK, SEVERAL, LENGTH, SHIFT):
    row = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1) * SEVERAL + tl.arange(0, SEVERAL)
    place = block[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
    inside = place < LENGTH
    number = tl.load(numbers + (row * LENGTH + place), mask=inside, other=0)
    digit = (number >> int64(SHIFT)).to(tl.int32) & 15
    return row, block, inside, number, digit


@OpKernel
def digit_counts(numbers, out, BLOCK, BLOCKS, SEVERAL, LENGTH, SHIFT):
    row, block, inside, _, digit = digits(numbers, BLOCK, SEVERAL, LENGTH, SHIFT)
    # A word holds the counts of four digits.
    word = tl.arange(0, 4)
    mine = (digit >> 2)[None, :, :] == word[:, None, None]
    one = tl.where(inside, int64(1) << ((digit & 3) * 16).to(tl.int64), int64(0))
    counts = tl.sum(tl.where(mine, one[None, :, :], int64(0)), axis=2)
    for k in range(4):
        count = counts >> (k * 16).to(tl.int64) & int64(65535)
        to = (row * 16 + word[:, None] * 4 + k) * BLOCKS + block[None, :]
        tl.store(out + to, count.to(tl.int32), mask=(block < BLOCKS)[None, :])


@OpKernel
def sort_by_digit(numbers, starts, out, BLOCK, BLOCKS, SEVERAL, LENGTH, SHIFT):
    row, block, inside, number, digit = digits(numbers, BLOCK, SEVERAL, LENGTH, SHIFT)
    # A word holds the counts of eight digits, modulo 256 (if a block has only one digit).
    word = tl.arange(0, 2)
    bit = ((digit & 7) * 8).to(tl.int64)
    mine = (digit >> 3)[None, :, :] == word[:, None, None]
    one = tl.where(inside, int64(1) << bit, int64(0))
    running = tl.cumsum(tl.where(mine, one[None, :, :], int64(0)), axis=2)
    upto = tl.sum(tl.where(mine, running, int64(0)), axis=0) >> bit
    before = tl.load(starts + ((row * 16 + digit) * BLOCKS + block[:, None]), mask=inside, other=0)
    tl.store(out + (row * LENGTH + before + (upto - 1 & int64(255))), number, mask=inside)
