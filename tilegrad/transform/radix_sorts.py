"""Sort long rows by radix sort, on devices where all instances should share the work of one row.

Each pass sorts by four bits, lowest first: count the digits, scan the counts, scatter stably (`ops/digits.py`). The
sorted numbers are `key << 32 | position`.
"""

from __future__ import annotations

from ..ir.dtype import int32, int64
from ..ir.graph import Graph, Value
from ..ir.size import product
from ..ops.arithmetic import add, mul, sub
from ..ops.bits import bitwise_and, bitwise_or, bitwise_xor, shift_left, shift_right
from ..ops.broadcasting import expand, reshape
from ..ops.cast import cast
from ..ops.creation import positions
from ..ops.digits import BITS, DigitCounts, SortByDigit
from ..ops.indexing import take_along
from ..ops.movement import pad, select, stack
from ..ops.scan import cumsum
from ..ops.sorting import SmallestKeys, SortedKeys
from ..runtime.target_model import TargetModel
from .rewrite import rewrite

MIN_ROW, MIN_COMPARISONS = 4096, 1 << 31
"""Length of a row and number of comparisons up to which one kernel compares each key with all others."""
MIN_SELECTION_ROW, SELECTION_BLOCK = 1 << 14, 1 << 12
"""Length of a row from which selection is split, and the approximate length of a part."""
MIN_PART_PER_RESULT = 32
"""Least number of keys in a part, for each key that is selected."""
SIGN_BIT = -(1 << 31)
"""Sign bit of an int32, as a number."""


def radix_sorts(graph: Graph, target: TargetModel) -> Graph:
    """Sort long rows by radix sort, and select the smallest keys of long rows in parts."""

    def split(value: Value, _: set[Value]) -> Value | None:
        return radix_sort(value) or split_selection(value, target)

    return rewrite(graph, split, of=(SortedKeys, SmallestKeys))


def radix_sort(value: Value) -> Value | None:
    """Sort the keys of long rows by radix sort; None for anything else or short rows.

    >>> from ..ir.graph import Input, TensorType
    >>> print(radix_sort(SortedKeys(Input(TensorType(int32, (1 << 20,))))).type)
    i64[2,1048576]
    """
    if not isinstance(value, SortedKeys):
        return None
    keys = value.keys
    rows, length = product(keys.shape[:-1]), keys.shape[-1]
    if not isinstance(length, int) or not isinstance(rows, int) or not MIN_ROW <= length <= int32.max:
        return None
    if rows * length * length < MIN_COMPARISONS:
        return None
    made = radix_order(bitwise_xor(reshape(keys, (rows, length)), SIGN_BIT), 32)
    sorted_keys = cast(bitwise_xor(cast(shift_right(made, 32), int32), SIGN_BIT), int64)
    return reshape(stack([sorted_places(made), sorted_keys], 1), value.shape)


def radix_order(keys: Value, bits: int) -> Value:
    """Sort `key << 32 | position` of each row stably by the lowest bits of unsigned int32 keys."""
    rows, length = keys.shape
    place = expand(reshape(positions(length, keys.device), (1, length)), keys.shape)
    made = bitwise_or(shift_left(cast(keys, int64), 32), place)
    for shift in range(32, 32 + bits, BITS):
        counts = DigitCounts(made, shift)
        flat = reshape(counts, (rows, product(counts.shape[1:])))
        made = SortByDigit(made, reshape(sub(cumsum(flat, 1), flat), counts.shape), shift)
    return made


def stable_order(keys: Value, most: int) -> Value:
    """Compute `SortedKeys` of a vector of int32 keys from 0 to `most - 1`."""
    (length,) = keys.shape
    assert isinstance(length, int)
    if length < MIN_ROW or length * length < MIN_COMPARISONS:
        return SortedKeys(keys)
    made = reshape(radix_order(reshape(keys, (1, length)), (most - 1).bit_length()), (length,))
    return stack([sorted_places(made), shift_right(made, 32)], 0)


def sorted_places(made: Value) -> Value:
    """Return the original positions of the numbers of `radix_order`."""
    return bitwise_and(made, (1 << 32) - 1)


def split_selection(value: Value, target: TargetModel) -> Value | None:
    """Select the smallest keys of a few long rows: first those of each part, then the smallest of these.

    >>> from ..ir.graph import Input, TensorType
    >>> from ..backend.cuda.costs import gpu_model
    >>> print(split_selection(SmallestKeys(Input(TensorType(int32, (1 << 20,))), 5), gpu_model(132)).type)
    i64[2,5]
    """
    if not isinstance(value, SmallestKeys):
        return None
    keys, count = value.keys, value.count
    rows, length = product(keys.shape[:-1]), keys.shape[-1]
    if not isinstance(length, int) or not isinstance(rows, int) or not MIN_SELECTION_ROW <= length <= int32.max:
        return None
    size = max(SELECTION_BLOCK, 1 << (MIN_PART_PER_RESULT * count - 1).bit_length())
    parts = -(-length // size)
    if parts < 2 or rows >= target.min_instances:
        return None
    flat = reshape(keys, (rows, length))
    if parts * size > length:
        flat = pad(
            flat, [(0, 0), (0, parts * size - length)], -SIGN_BIT - 1
        )  # real keys of equal value come first, as the sort is stable
    found = SmallestKeys(reshape(flat, (rows, parts, size)), count)
    begins = reshape(mul(positions(parts, keys.device), size), (1, parts, 1))
    place = reshape(add(select(found, 2, 0), begins), (rows, parts * count))
    least = SmallestKeys(cast(reshape(select(found, 2, 1), (rows, parts * count)), int32), count)
    order = take_along(place, select(least, 1, 0), 1)
    return reshape(stack([order, select(least, 1, 1)], 1), value.shape)
