"""Examples of indexing, scattering, selecting, sorting, random, batched and joint ops."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from tests.ops.registry import bools, example, floats, ints
from tilegrad.ir.dtype import float64, int64
from tilegrad.ir.functions import identity
from tilegrad.ir.graph import Input, Value
from tilegrad.ops import (
    arithmetic,
    batched,
    control,
    counting,
    digits,
    exact_sums,
    indexing,
    joint,
    movement,
    random,
    ranges,
    searching,
    segment_sums,
    selection,
    sorting,
)
from tilegrad.ops.broadcasting import reduce_sum
from tilegrad.transform.batch import batch
from tilegrad.transform.radix_sorts import radix_order, sorted_places

ROWS = ints(4, 3, low=-5, high=5)  # indices into an axis of 5, some counted from the end


def positive(index: np.ndarray, extent: int) -> np.ndarray:
    return np.where(index < 0, index + extent, index)


# --- reading ----------------------------------------------------------------------------------

example(
    indexing.TakeAlong,
    lambda x, i: indexing.take_along(x, i, 0),
    floats(5, 4),
    ROWS,
    torch=lambda t, x, i: t.gather(x, 0, i % 5),
)
example(
    indexing.TakeAlong,
    lambda x, i: indexing.take_along(x, i, -1),
    floats(3, 2, 6),
    ints(2, 2, 9, low=0, high=6, dtype=np.int32),
    torch=lambda t, x, i: t.gather(x, -1, i.long()),
)
example(
    indexing.Gather,
    lambda x, i, j: indexing.index(x, (i, j), (1, 2)),
    floats(2, 5, 6, 3),
    ints(4, 1, low=-5, high=5),
    ints(3, low=0, high=6),
    torch=lambda t, x, i, j: x[:, i, j],
)
example(
    indexing.Gather,
    lambda x, i, j: indexing.index(x, (i, j), (2, 0)),
    floats(5, 4, 6),
    ints(3, low=0, high=6),
    ints(2, 3, low=0, high=5),
    torch=lambda t, x, i, j: x[j, :, i],
)
example(
    indexing.Gather,
    lambda x, i: indexing.index_select(x, i, 1),
    floats(3, 5, 2),
    ints(7, low=0, high=5),
    torch=lambda t, x, i: t.index_select(x, 1, i),
)
example(
    indexing.Gather,
    indexing.embedding,
    floats(6, 3),
    ints(2, 4, low=0, high=6),
    torch=lambda t, x, i: t.nn.functional.embedding(i, x),
)

# --- writing ----------------------------------------------------------------------------------

PERMUTED = np.stack([np.random.default_rng(n).permutation(5)[:4] for n in range(3)], 1)

example(
    indexing.ScatterAlong,
    lambda x, i, s: indexing.scatter_along(x, i, s, 0),
    floats(5, 4),
    PERMUTED,
    floats(4, 3, seed=1),
    torch=lambda t, x, i, s: t.scatter(x, 0, i, s),
)
example(
    indexing.ScatterAlong,
    lambda x, i, s: indexing.scatter_along(x, i, s, 1, "add"),
    floats(2, 5, 3),
    ints(2, 7, 3, low=0, high=5),
    floats(2, 8, 3, seed=1),
    torch=lambda t, x, i, s: t.scatter_add(x, 1, i, s[:, :7]),
)
example(
    indexing.ScatterAlong,
    lambda x, i: indexing.scatter_along(x, i, 7.0, 0),
    floats(5, 4),
    PERMUTED,
    torch=lambda t, x, i: t.scatter(x, 0, i, 7.0),
)
for fn, name in (("maximum", "amax"), ("minimum", "amin"), ("mul", "prod")):
    example(
        indexing.ScatterAlong,
        lambda x, i, s, fn=fn: indexing.scatter_along(x, i, s, 0, fn),
        floats(5, 4),
        ints(9, 4, low=0, high=5),
        floats(9, 4, seed=1),
        torch=lambda t, x, i, s, name=name: x.scatter_reduce(0, i, s, name),
        gradient=fn != "mul",
    )
example(
    indexing.Scatter,
    lambda x, i, s: indexing.index_add(x, 1, i, s),
    floats(3, 5, 2),
    ints(7, low=0, high=5),
    floats(3, 7, 2, seed=1),
    torch=lambda t, x, i, s: t.index_add(x, 1, i, s),
)
example(
    indexing.Scatter,
    lambda x, i, j, s: indexing.index_put(x, (i, j), (0, 2), s, "add"),
    floats(5, 3, 4),
    ints(2, 6, low=-5, high=5),
    ints(6, low=0, high=4),
    floats(6, 3, seed=1),
    torch=lambda t, x, i, j, s: x.permute(0, 2, 1).index_put((i, j), s, accumulate=True).permute(0, 2, 1),
)
example(
    indexing.Scatter,
    lambda x, i, s: indexing.index_put(x, (i,), (1,), s),
    floats(3, 5),
    np.array([4, -5, 2]),
    floats(3, 1, seed=1),
    torch=lambda t, x, i, s: x.T.index_put((i,), s.T.expand(3, 3)).T,
)


def put_in_view(x: Value, s: Value) -> Value:
    """`x.T[1:, ::2] = s`"""
    turned = movement.permute(x, (1, 0))
    rows = movement.slice_axis(turned, 0, 1, None)
    return indexing.put(x, (turned, rows, movement.slice_axis(rows, 1, None, None, 2)), s)


def put_with_numpy(x: Any, s: Any) -> Any:
    y = x.copy()
    y.T[1:, ::2] = s
    return y


example(None, put_in_view, floats(5, 4), floats(3, 3, seed=1), numpy=put_with_numpy)
example(None, put_in_view, floats(5, 4), floats(3, 1, seed=1), numpy=put_with_numpy)
example(
    None,
    lambda x: movement.select(indexing.put(x, (movement.select(x, 0, 2),), 9.0), 0, 2),
    floats(4, 3),
    numpy=lambda x: np.full(3, 9.0),
    name="put_number",
)
example(
    control.CheckedIndex, lambda i: control.checked_index(i, 5, 0, "indexing"), ROWS, numpy=lambda i: positive(i, 5)
)
example(
    control.CheckedIndex,
    lambda x, i: indexing.index(x, (control.checked_index(i, 5, 0, "gather", from_end=False),), (0,)),
    floats(5, 3),
    ints(4, low=0, high=5),
    torch=lambda t, x, i: x[i],
)
example(
    indexing.Scatter,
    lambda x, i, s: indexing.index_put(x, (control.checked_index(i, 5, 0, "indexing"),), (0,), s, "add"),
    floats(5, 3),
    ints(8, low=-5, high=5),
    floats(8, 3, seed=1),
    torch=lambda t, x, i, s: x.index_put((i,), s, True),
)
example(
    indexing.ScatterAlong,
    lambda x, i, s: indexing.scatter_along(x, control.checked_index(i, 5, 0, "scatter", from_end=False), s, 0),
    floats(5, 4),
    PERMUTED % 5,
    floats(4, 3, seed=1),
    torch=lambda t, x, i, s: t.scatter(x, 0, i % 5, s),
)
example(None, indexing.index_bounds, ints(9), numpy=lambda i: (i.min(), i.max()))

# --- choosing ---------------------------------------------------------------------------------

MASK = bools(3, 5)
COUNT = int(MASK.sum())

example(
    selection.Compact,
    lambda m: selection.flat_nonzero(m, COUNT),
    MASK,
    numpy=np.flatnonzero,
)
example(selection.Compact, lambda m: selection.nonzero(m, COUNT), MASK, numpy=np.argwhere)
example(
    selection.Compact,
    lambda x, m: selection.masked_select(x, m, COUNT),
    floats(3, 5),
    MASK,
    torch=lambda t, x, m: t.masked_select(x, m),
)
example(
    None,
    lambda x, m: selection.masked_fill(x, m, -1.0),
    floats(3, 5),
    MASK,
    torch=lambda t, x, m: x.masked_fill(m, -1.0),
    name="masked_fill",
)
example(
    None,
    lambda i: selection.one_hot(i, 5),
    ints(2, 3, low=0, high=5),
    torch=lambda t, i: t.nn.functional.one_hot(i, 5),
    name="one_hot",
)

# --- sorting ----------------------------------------------------------------------------------

SPECIAL = np.array([[0.0, -0.0, np.nan, -np.inf, np.inf, -1.5, 0.0, 2.0], [3, 1, 2, np.nan, -np.nan, 1, 0, -2]])


def sort_keys(x: np.ndarray, descending: bool) -> np.ndarray:
    key = np.where(np.isnan(x), np.inf, x.astype(np.float64))
    key = np.where(np.isinf(key) & ~np.isnan(x), np.sign(key) * 1e30, key)
    return -key if descending else key


example(sorting.SortKey, lambda x: sorting.sort(x, 1), floats(3, 6), torch=lambda t, x: t.sort(x, dim=1, stable=True))
for descending in (False, True):
    for array in (SPECIAL, SPECIAL.astype(np.float32), SPECIAL.astype(np.float16), ints(3, 40), bools(4, 9)):
        example(
            sorting.SortedKeys,
            lambda x, d=descending: sorting.argsort(x, -1, d),
            array,
            torch=lambda t, x, d=descending: t.argsort(x, dim=-1, descending=d, stable=True),
        )
example(
    sorting.SortedKeys,
    lambda x: sorting.argsort(x, 0),
    ints(6, 3, dtype=np.int8),
    numpy=lambda x: np.argsort(x, 0, kind="stable"),
)
for array in (
    ints(2, 9, low=0, high=256, dtype=np.uint8),
    ints(2, 9, low=0, high=1 << 32, dtype=np.uint32),
    np.array([1 << 63, 5, (1 << 64) - 1, 7], np.uint64),
):
    example(sorting.SortedKeys, sorting.argsort, array, numpy=lambda x: np.argsort(x, -1, kind="stable"))
example(sorting.SortedKeys, lambda x: sorting.topk(x, 3, 0), floats(6, 2), torch=lambda t, x: t.topk(x, 3, 0))
example(
    sorting.SortedKeys,
    lambda x: sorting.topk(x, 2, -1, False),
    floats(6),
    torch=lambda t, x: t.topk(x, 2, largest=False),
)
example(sorting.SortedKeys, lambda x: sorting.kthvalue(x, 2, 0), floats(5, 3), torch=lambda t, x: t.kthvalue(x, 2, 0))
example(sorting.SortedKeys, lambda x: sorting.median(x, 1), floats(3, 6), torch=lambda t, x: t.median(x, 1))
example(sorting.SortedKeys, lambda x: sorting.sorted_runs(x).values, floats(3, 4), numpy=lambda x: np.sort(x.ravel()))

for largest in (False, True):
    for array in (SPECIAL.astype(np.float32), ints(3, 70, dtype=np.int16)):
        example(
            sorting.SmallestKeys,
            lambda x, d=largest: sorting.topk(x, 2, -1, d).indices,
            array,
            numpy=lambda x, d=largest: np.argsort(sort_keys(x, d), -1, kind="stable")[:, :2],
        )
example(
    sorting.SmallestKeys, lambda x: sorting.topk(x, 3, 0), np.float32(floats(90, 2)), torch=lambda t, x: t.topk(x, 3, 0)
)

ENTRIES = np.array([3, 0, 3, 5, 0, 3, 3, 3], np.int32)
example(
    segment_sums.SegmentStarts,
    lambda x: segment_sums.SegmentStarts(sorting.SortedKeys(x), 7),
    ENTRIES,
    numpy=lambda x: np.searchsorted(np.sort(x), np.arange(8)),
)
example(
    segment_sums.SegmentSums,
    lambda x, y: segment_sums.SegmentSums(o := sorting.SortedKeys(x), segment_sums.SegmentStarts(o, 7), y, 5),
    ENTRIES,
    ints(2, 4, 5, dtype=np.float32),
    numpy=lambda x, y: np.stack([y.reshape(8, 5)[x == n].sum(0) for n in range(7)]),
)
example(
    digits.DigitCounts,
    lambda x: digits.DigitCounts(x, 60),
    np.int64([[5, -1, 1 << 60, 3 << 60, -(1 << 60)] * 100, [7] * 500]),
    numpy=lambda x: (
        np.stack([[(half >> 60 & 15 == n).sum(1) for half in (x[:, :256], x[:, 256:])] for n in range(16)])
        .transpose(2, 0, 1)
        .astype(np.int32)
    ),
)
example(
    digits.SortByDigit,
    lambda x: sorted_places(radix_order(x, 8)),
    np.concatenate([ints(2, 700, low=0, high=200, dtype=np.int32), np.full((2, 400), 15, np.int32)], 1),
    numpy=lambda x: np.argsort(x, -1, kind="stable"),
)
example(
    counting.PartialHistograms,
    lambda x: reduce_sum(counting.PartialHistograms(x, 7, 3), 0),
    ints(5000, low=0, high=7, dtype=np.int32),
    numpy=lambda x: np.bincount(x, minlength=7).astype(np.int32),
)
example(
    exact_sums.ExactSums,
    lambda x, y: exact_sums.exact_total(exact_sums.ExactSums(x, y, 7, 3)),
    ints(5000, low=0, high=7, dtype=np.int32),
    np.append(np.exp2(ints(4996, low=-20, high=20)) * 1.25, [np.inf, 0.0, -1e-40, 3e38]).astype(np.float32),
    numpy=lambda x, y: np.bincount(x, y.astype(np.float64), 7),
)
for right in (False, True):
    example(
        searching.SearchSorted,
        lambda x, y, right=right: searching.search_sorted(x, y, right),
        np.arange(70) // 3.0,
        np.append(ints(5, 7, low=-1, high=30).astype(np.float64), np.full((1, 7), np.nan), 0),
        torch=lambda t, x, y, right=right: t.searchsorted(x, y, right=right),
    )
    example(
        searching.SearchSorted,
        lambda x, y, right=right: searching.search_sorted(x, y, right),
        np.sort(ints(3, 65, low=0, high=40), -1),
        ints(3, 9, low=-1, high=41),
        torch=lambda t, x, y, right=right: t.searchsorted(x, y, right=right),
    )
for fn in ranges.FUNCTIONS:
    example(
        ranges.RangeReduce,
        lambda x, y, fn=fn: ranges.RangeReduce(x, ranges.block_levels(y, fn), fn),
        np.int64([0, 3, 3, 64, 200, 4170]),
        ints(4170, 2, low=1, high=3, dtype=np.int64),
        numpy=lambda x, y, fn=fn: np.stack(
            [ranges.FUNCTIONS[fn].reduce(y[i:j], 0, initial=identity(fn, int64)) for i, j in pairwise(x)]
        ),
    )

# --- random -----------------------------------------------------------------------------------

STATE = np.array([42, 7])

example(random.Philox, lambda s: random.Philox(s, (2, 3), 1), STATE)
example(random.Philox, lambda s: random.rand(s, (5,), float64), STATE)
example(random.Philox, lambda s: random.randint(s, -3, 9, (5,)), STATE)
example(random.Philox, lambda s: random.randperm(s, 6), STATE)
example(random.Philox, lambda x, s: random.dropout(x, s, 0.4), floats(4, 3), STATE)

# --- batched ops, and ops with a given gradient -------------------------------------------------


def each(build: Any, *arrays: np.ndarray) -> Any:
    """Builds for single entries, and batches."""

    def built(*values: Value) -> Any:
        ones = {Input(v.type.with_shape(v.shape[1:])): v for v in values}
        for one in ones:
            one.__dict__["tracked"] = one.dtype.is_float
        return tuple(batch([build(*ones)], ones))

    return built


example(
    batched.Batched,
    each(lambda x: movement.permute(x, (1, 0))),
    floats(3, 2, 4),
    numpy=lambda x: x.transpose(0, 2, 1),
)
example(
    batched.Batched,
    each(lambda x, i: indexing.take_along(x, i, 0)),
    floats(3, 5, 2),
    ints(3, 4, 2, low=0, high=5),
    torch=lambda t, x, i: t.gather(x, 1, i),
)
example(
    batched.Batched,
    each(lambda x: sorting.sort(x).values),
    floats(3, 5),
    torch=lambda t, x: t.sort(x).values,
)
example(
    batched.Batched,
    each(lambda x, i, s: indexing.scatter_along(x, i, s, 0, "add")),
    floats(3, 5, 2),
    ints(3, 4, 2, low=0, high=5),
    floats(3, 4, 2),
    torch=lambda t, x, i, s: t.scatter_add(x, 1, i, s),
)


def cubed(x: Value) -> Value:
    """x ** 3 with a gradient given by hand."""

    def rule(upstreams: Sequence[Value | None]) -> Sequence[Value | None]:
        (upstream,) = upstreams
        assert upstream is not None
        return [arithmetic.mul(upstream, arithmetic.mul(arithmetic.mul(x, x), 3.0))]

    return joint.joint_outputs([arithmetic.mul(x, arithmetic.mul(x, x))], [x], rule)[0]


example(joint.JointOutput, cubed, floats(4), numpy=lambda x: x**3)
example(joint.JointOutput, each(lambda x: reduce_sum(cubed(x))), floats(3, 4), numpy=lambda x: (x**3).sum(1))
example(joint.Recompute, lambda x, y: joint.Recompute(x, y), floats(3), floats(2), numpy=lambda x, y: x)
