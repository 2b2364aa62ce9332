"""Kernels of generation, in the tile language: attention to a cache, its updates, and the choice of the next token.

Caches of keys and values have the axes (slot, head, position, width) and are written in place. Each instance of a
kernel works on one row of a batch and on one head, in an order that depends on that row alone: the same request has the
same result whatever else is in the batch.
"""

# mypy: ignore-errors
# (Parameters in capitals are constants.)

from __future__ import annotations

from .. import language as tl
from ..language.kernel import kernel


@kernel
def attend_one(
    query, key, value, keys, values, slots, positions, out, scale,
    HEADS: tl.constexpr, GROUP: tl.constexpr, WIDTH: tl.constexpr, CAPACITY: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    # One new token in each row: store its key and value, then attend to them and to all before them.
    row = tl.program_id(0)
    head = tl.program_id(1)
    position = tl.load(positions + row).to(tl.int32)
    first = (tl.load(slots + row).to(tl.int64) * HEADS + head) * (CAPACITY * WIDTH)
    d = tl.arange(0, WIDTH)
    new = (row * HEADS + head) * WIDTH + d
    own_key = tl.load(key + new)
    own_value = tl.load(value + new)
    stored = first + position.to(tl.int64) * WIDTH + d
    tl.store(keys + stored, own_key)
    tl.store(values + stored, own_value)
    for g in tl.static_range(GROUP):
        at = ((row * HEADS + head) * GROUP + g) * WIDTH + d
        q = tl.load(query + at).to(tl.float32) * scale
        found = attend_before(q, own_key, own_value, keys + first, values + first, position, WIDTH, BLOCK)
        tl.store(out + at, found.to(out.dtype.element_ty))


@kernel
def attend_before(q, own_key, own_value, keys, values, position, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    # Attend to a key that is given, and to those before its position. Every BLOCK-th key has a sum of its own, with its
    # own maximum: lanes meet at the end only. The new key is not read from memory, where other threads stored it.
    n = tl.arange(0, BLOCK)
    d = tl.arange(0, WIDTH)
    own = tl.sum(q * own_key.to(tl.float32), 0)
    largest = tl.where(n == 0, own, -float("inf"))
    weights = tl.where(n == 0, 1.0, 0.0)
    total = tl.where((n == 0)[:, None], own_value.to(tl.float32)[None, :], 0.0)
    for start in range(0, position, BLOCK):
        s = start + n
        inside = s < position
        place = s[:, None] * WIDTH + d[None, :]
        k = tl.load(keys + place, mask=inside[:, None], other=0.0).to(tl.float32)
        v = tl.load(values + place, mask=inside[:, None], other=0.0).to(tl.float32)
        scores = tl.where(inside, tl.sum(q[None, :] * k, 1), -float("inf"))
        most = tl.maximum(largest, scores)
        base = tl.where(most == -float("inf"), 0.0, most)
        power = tl.exp(scores - base)
        kept = tl.exp(largest - base)
        total = total * kept[:, None] + power[:, None] * v
        weights = weights * kept + power
        largest = most
    factor = tl.exp(largest - tl.max(largest, 0))
    return tl.sum(total * factor[:, None], 0) / tl.sum(weights * factor, 0)


@kernel
def append(
    key,
    value,
    keys,
    values,
    slots,
    positions,
    length,
    HEADS: tl.constexpr,
    WIDTH: tl.constexpr,
    CAPACITY: tl.constexpr,
    BLOCK: tl.constexpr,
):
    # Store the keys and values of several new tokens in each row, as far as the cache reaches.
    row = tl.program_id(0)
    head = tl.program_id(1)
    n = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    position = tl.load(positions + row).to(tl.int64) + n
    inside = ((n < length) & (position < CAPACITY))[:, None]
    d = tl.arange(0, WIDTH)
    first = (tl.load(slots + row).to(tl.int64) * HEADS + head) * (CAPACITY * WIDTH)
    new = ((row * length + n) * HEADS + head)[:, None] * WIDTH + d[None, :]
    stored = first + position[:, None] * WIDTH + d[None, :]
    tl.store(keys + stored, tl.load(key + new, mask=inside, other=0.0), mask=inside)
    tl.store(values + stored, tl.load(value + new, mask=inside, other=0.0), mask=inside)


@kernel
def attend(
    query,
    keys,
    values,
    slots,
    positions,
    out,
    length,
    scale,
    HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    WIDTH: tl.constexpr,
    CAPACITY: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    # Several new tokens in each row: each attends to all keys up to its own position.
    row = tl.program_id(0)
    head = tl.program_id(1)
    n = tl.program_id(2) * ROWS + tl.arange(0, ROWS)
    begun = tl.load(positions + row).to(tl.int32)
    first = (tl.load(slots + row).to(tl.int64) * HEADS + head // GROUP) * (CAPACITY * WIDTH)
    d = tl.arange(0, WIDTH)
    at = ((row * length + n) * (HEADS * GROUP) + head)[:, None] * WIDTH + d[None, :]
    q = tl.load(query + at, mask=(n < length)[:, None], other=0.0).to(tl.float32) * scale
    largest = tl.full([ROWS], -float("inf"), tl.float32)
    weights = tl.zeros([ROWS], tl.float32)
    total = tl.zeros([ROWS, WIDTH], tl.float32)
    end = tl.minimum(begun + (tl.program_id(2) + 1) * ROWS, CAPACITY)
    for start in range(0, end, BLOCK):
        s = start + tl.arange(0, BLOCK)
        place = first + s.to(tl.int64)[:, None] * WIDTH + d[None, :]
        k = tl.load(keys + place, mask=(s < end)[:, None], other=0.0).to(tl.float32)
        v = tl.load(values + place, mask=(s < end)[:, None], other=0.0).to(tl.float32)
        seen = (s[None, :] <= begun + n[:, None]) & (s < end)[None, :]
        scores = tl.where(seen, tl.dot(q, tl.trans(k)), -float("inf"))
        most = tl.maximum(largest, tl.max(scores, 1))
        power = tl.exp(scores - most[:, None])
        kept = tl.exp(largest - most)
        total = tl.dot(power, v, total * kept[:, None])
        weights = weights * kept + tl.sum(power, 1)
        largest = most
    tl.store(out + at, (total / weights[:, None]).to(out.dtype.element_ty), mask=(n < length)[:, None])


@kernel
def weigh(logits, temperatures, best, weights, VOCABULARY: tl.constexpr, BLOCK: tl.constexpr):
    # Find the most likely token of a row (-1 if a logit is NaN, or none is finite), and the weights exp((x - max) / t).
    row = tl.program_id(0)
    first = row.to(tl.int64) * VOCABULARY
    largest = tl.full([BLOCK], -float("inf"), tl.float32)
    place = tl.zeros([BLOCK], tl.int32)
    invalid = tl.zeros([BLOCK], tl.int32)
    for start in range(0, VOCABULARY, BLOCK):
        i = start + tl.arange(0, BLOCK)
        x = tl.load(logits + first + i, mask=i < VOCABULARY, other=-float("inf")).to(tl.float32)
        invalid = tl.where((x != x) | (x == float("inf")), 1, invalid)
        place = tl.where(x > largest, i, place)
        largest = tl.where(x > largest, x, largest)
    most = tl.max(largest, 0)
    chosen = tl.min(tl.where(largest == most, place, VOCABULARY), 0)
    fails = (tl.max(invalid, 0) > 0) | (most == -float("inf"))
    tl.store(best + row, tl.where(fails, -1, chosen).to(tl.int64))
    temperature = tl.load(temperatures + row)
    if temperature > 0.0:
        for start in range(0, VOCABULARY, BLOCK):
            i = start + tl.arange(0, BLOCK)
            x = tl.load(logits + first + i, mask=i < VOCABULARY, other=-float("inf")).to(tl.float32)
            tl.store(weights + first + i, tl.exp((x - most) / temperature), mask=i < VOCABULARY)


@kernel
def amount_above(weights, first, bits, counts: tl.constexpr, VOCABULARY: tl.constexpr, BLOCK: tl.constexpr):
    # Return the sum of the weights of at least a bound, or how many there are; the bound is given by its bits.
    bound = bits.to(tl.float32, bitcast=True)
    found = tl.zeros([BLOCK], tl.float32)
    for start in range(0, VOCABULARY, BLOCK):
        i = start + tl.arange(0, BLOCK)
        w = tl.load(weights + first + i, mask=i < VOCABULARY, other=-1.0)
        found += tl.where(w >= bound, tl.where(counts, 1.0, w), 0.0)
    return tl.sum(found, 0)


@kernel
def draw(
    weights, best, temperatures, top_ks, top_ps, seeds, positions, out, VOCABULARY: tl.constexpr, BLOCK: tl.constexpr
):
    # Draw a token of a row in proportion to its weights, among the top_k largest, and among these the fewest whose
    # probabilities sum up to top_p. Positive floats are ordered as their bits: bounds are found by bisection.
    row = tl.program_id(0)
    first = row.to(tl.int64) * VOCABULARY
    chosen = tl.load(best + row)
    if (chosen >= 0) & (tl.load(temperatures + row) > 0.0):
        low = row * 0
        top_k = tl.load(top_ks + row).to(tl.float32)
        if (top_k > 0.0) & (top_k < VOCABULARY):
            high = low + 0x3F800001
            while high - low > 1:
                middle = low + (high - low) // 2
                enough = amount_above(weights, first, middle, True, VOCABULARY, BLOCK) >= top_k
                low = tl.where(enough, middle, low)
                high = tl.where(enough, high, middle)
        top_p = tl.load(top_ps + row)
        if top_p < 1.0:
            wanted = amount_above(weights, first, low, False, VOCABULARY, BLOCK) * top_p
            high = low * 0 + 0x3F800001
            while high - low > 1:
                middle = low + (high - low) // 2
                enough = amount_above(weights, first, middle, False, VOCABULARY, BLOCK) >= wanted
                low = tl.where(enough, middle, low)
                high = tl.where(enough, high, middle)
        chosen = fastest(weights, first, low, tl.load(seeds + row), tl.load(positions + row), VOCABULARY, BLOCK)
    tl.store(out + row, chosen)


@kernel
def fastest(weights, first, bits, seed, position, VOCABULARY: tl.constexpr, BLOCK: tl.constexpr):
    # Return the token that comes first when each arrives after an exponential time with its weight as the rate.
    bound = bits.to(tl.float32, bitcast=True)
    largest = tl.full([BLOCK], -1.0, tl.float32)
    place = tl.zeros([BLOCK], tl.int32)
    for start in range(0, VOCABULARY, BLOCK):
        i = start + tl.arange(0, BLOCK)
        w = tl.load(weights + first + i, mask=i < VOCABULARY, other=-1.0)
        random, _, _, _ = tl.philox(seed, i, position.to(tl.int32), 0, 0)
        uniform = ((random >> 9).to(tl.float32) + 0.5) * (1.0 / 8388608.0)
        rate = tl.where(w >= bound, w / -tl.log(uniform), -1.0)
        place = tl.where(rate > largest, i, place)
        largest = tl.where(rate > largest, rate, largest)
    most = tl.max(largest, 0)
    return tl.min(tl.where(largest == most, place, VOCABULARY), 0).to(tl.int64)
