"""Sorting along the last axis: argsort, sort, topk, median, unique.

Elements are mapped to int32 keys with the same order (`SortKey`), so that kernels sort one type. The order is stable in
both directions, with NaN as the greatest element, as in PyTorch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, final

import numpy as np

from ..errors import ArgumentError, DTypeError, ShapeError
from ..ir.dtype import bool_, float32, float64, int32, int64, uint32, uint64
from ..ir.graph import TensorType, Value
from ..ir.scalar import Expr, apply, bitcast, const
from ..ir.scalar import cast as cast_element
from ..ir.scalar import where as choose
from ..ir.size import product
from ..runtime.device import device
from .base import Unary
from .bits import bitwise_xor, shift_right
from .broadcasting import fill, normal_axis, reshape, shown
from .cast import cast
from .comparison import isnan, ne
from .control import where
from .creation import zeros
from .indexing import take_along
from .movement import cat, moveaxis, narrow, select, squeeze
from .opaque import Opaque

if TYPE_CHECKING:
    from .tile_code import TileCode

MAX_SELECTED = 128
"""Smallest keys that are kept sorted while a row is read; for more the row is sorted."""
MAX_COMPARED_ROW = 1 << 17
"""Keys of a row up to which each is compared with all others, on targets with many instances."""
KEYS_PER_INSTANCE, COMPARED_PER_STEP = 32, 128
"""Keys that an instance ranks, and keys that it compares them with at a time."""
MIN_KEY = {int32: -(1 << 31), int64: -(1 << 63)}


@final
class SortKey(Unary):
    """Integer key of each element, with the order of the elements."""

    differentiable = False
    descending: bool = False

    def infer(self) -> TensorType:
        return self.x.type.with_dtype(int64 if self.x.dtype.bits == 64 or self.x.dtype is uint32 else int32)

    def scalar(self, *elements: Expr) -> Expr:
        (x,) = elements
        key = _float_key(x) if x.dtype.is_float else _integer_key(x)
        return apply("invert", key) if self.descending else key

    def share_x(self, upstream: Value) -> Value | None:
        return None


def _float_key(x: Expr) -> Expr:
    """Return the bits of a number, complemented if negative; -0.0 equals 0.0, NaN is the greatest."""
    x = x if x.dtype is float64 else cast_element(x, float32)
    dtype = int64 if x.dtype is float64 else int32
    greatest = const(-MIN_KEY[dtype] - 1, dtype)
    bits = bitcast(choose(apply("eq", x, const(0.0, x.dtype)), const(0.0, x.dtype), x), dtype)
    ordered = choose(bits < 0, apply("bitxor", bits, greatest), bits)
    return choose(apply("isnan", x), greatest, ordered)


def _integer_key(x: Expr) -> Expr:
    if x.dtype is uint64:
        return apply("bitxor", bitcast(x, int64), const(MIN_KEY[int64], int64))
    return cast_element(x, int64 if x.dtype.bits == 64 or x.dtype is uint32 else int32)


@final
class SortedKeys(Opaque):
    """For each row of int32 keys two rows: the stable ascending order of the keys, and the sorted keys.

    >>> from ..ir.dtype import int32
    >>> from ..ir.graph import Input
    >>> SortedKeys(Input(TensorType(int32, (3,)))).reference(np.array([5, 2, 5], np.int32))
    array([[1, 0, 2],
           [2, 5, 5]])
    """

    differentiable = False
    quick_reference = True
    keys: Value

    def infer(self) -> TensorType:
        shape = self.keys.shape
        if self.keys.dtype is not int32:
            raise DTypeError(f"sorted_keys: keys are int32, not {self.keys.dtype.name}; use sort_key")
        return self.keys.type.with_dtype(int64).with_shape((*shape[:-1], 2, shape[-1]))

    def gradient(self, upstream: Value) -> Sequence[Value | None]:
        return (None,)

    def reference(self, keys: Any) -> Any:
        order = np.argsort(keys, axis=-1, kind="stable").astype(np.int64)
        return np.stack([order, np.take_along_axis(keys.astype(np.int64), order, -1)], -2)

    def kernel(self) -> TileCode:
        from .kernels.sorting import count_keys, sort_keys
        from .tile_code import Tiles

        row = self.keys.shape[-1]
        rows = product(self.keys.shape[:-1])
        inputs = {"keys": self.keys.type}
        if isinstance(row, int) and 0 < row <= MAX_COMPARED_ROW and device(self.type.device).target.parallel_sort:
            grid = (Tiles(rows, 1), Tiles(row, KEYS_PER_INSTANCE))
            sizes = {"LENGTH": row, "KEYS": KEYS_PER_INSTANCE, "STEP": COMPARED_PER_STEP}
            return count_keys.code(inputs, self.type, grid, **sizes)
        return sort_keys.code(inputs, self.type, (Tiles(rows, 1),), LENGTH=row)


@final
class SmallestKeys(Opaque):
    """For each row of int32 keys two rows: the positions of its `count` smallest keys in stable order, and the keys."""

    differentiable = False
    quick_reference = True
    keys: Value
    count: int

    def infer(self) -> TensorType:
        if self.keys.dtype is not int32:
            raise DTypeError(f"smallest_keys: keys are int32, not {self.keys.dtype.name}; use sort_key")
        return self.keys.type.with_dtype(int64).with_shape((*self.keys.shape[:-1], 2, self.count))

    def gradient(self, upstream: Value) -> Sequence[Value | None]:
        return (None,)

    def reference(self, keys: Any) -> Any:
        order = np.argsort(keys, axis=-1, kind="stable").astype(np.int64)[..., : self.count]
        return np.stack([order, np.take_along_axis(keys.astype(np.int64), order, -1)], -2)

    def kernel(self) -> TileCode:
        from .kernels.sorting import smallest_keys
        from .tile_code import Tiles

        grid = (Tiles(product(self.keys.shape[:-1]), 1),)
        inputs = {"keys": self.keys.type}
        return smallest_keys.code(inputs, self.type, grid, LENGTH=self.keys.shape[-1], COUNT=self.count)


# --- builders ----------------------------------------------------------------------


class SortResult(NamedTuple):
    """Sorted elements and their original positions."""

    values: Value
    indices: Value


def argsort(x: Value, axis: int = -1, descending: bool = False) -> Value:
    """Return the stable order of elements along an axis."""
    if not x.type.rank:
        return zeros((), int64, x.device)
    n = normal_axis(axis, x.type.rank, "sort")
    keys = SortKey(moveaxis(x, n, -1), descending)
    if keys.dtype is int32:
        return moveaxis(_order(keys), -1, n)
    # Two stable passes: by the low words (as unsigned numbers), then by the high ones.
    low = bitwise_xor(cast(keys, int32), -(1 << 31))
    by_low = _order(low)
    by_high = _order(take_along(cast(shift_right(keys, 32), int32), by_low, -1))
    return moveaxis(take_along(by_low, by_high, -1), -1, n)


def _order(keys: Value) -> Value:
    return select(SortedKeys(keys), -2, 0)


def sort(x: Value, axis: int = -1, descending: bool = False) -> SortResult:
    """Sort elements along an axis; the sort is stable, and NaN is greatest."""
    order = argsort(x, axis, descending)
    return SortResult(take_along(x, order, axis), order)


def topk(x: Value, k: int, axis: int = -1, largest: bool = True) -> SortResult:
    """Return the k greatest (smallest) elements along an axis, in order."""
    n = normal_axis(axis, x.type.rank, "topk")
    extent = x.shape[n] if x.type.rank else 1
    if k < 0 or (isinstance(extent, int) and k > extent):
        raise ArgumentError(f"topk: axis {axis} of {shown(x.shape)} has {extent} elements, and k is {k}")
    order = _first_indices(x, k, n, largest) if x.type.rank else argsort(x)
    return SortResult(take_along(x, order, n), order)


def _first_indices(x: Value, k: int, axis: int, descending: bool) -> Value:
    """Return the first k positions of `argsort`, without a full sort if that is less work."""
    keys = SortKey(moveaxis(x, axis, -1), descending)
    extent = keys.shape[-1]
    if keys.dtype is int32 and 0 < k <= MAX_SELECTED and isinstance(extent, int) and 4 * k <= extent:
        return moveaxis(select(SmallestKeys(keys, k), -2, 0), -1, axis)
    return narrow(argsort(x, axis, descending), axis, 0, k)


def kthvalue(x: Value, k: int, axis: int = -1, keepdim: bool = False) -> SortResult:
    """Return the k-th smallest element along an axis, counting from 1."""
    n = normal_axis(axis, x.type.rank, "kthvalue")
    extent = x.shape[n] if x.type.rank else 1
    if k < 1 or (isinstance(extent, int) and k > extent):
        raise ArgumentError(f"kthvalue: axis {axis} of {shown(x.shape)} has {extent} elements, and k is {k}")
    order = argsort(x, n)
    if not x.type.rank:
        return SortResult(x, order)
    return _take(x, n, narrow(order, n, k - 1, 1), keepdim)


def median(x: Value, axis: int = -1, keepdim: bool = False) -> SortResult:
    """Return the median along an axis, the lower one of two; NaN if there is one."""
    n = normal_axis(axis, x.type.rank, "median")
    order = argsort(x, n)
    if not x.type.rank:
        return SortResult(x, order)
    extent = x.shape[n]
    if not isinstance(extent, int) or extent == 0:
        raise ShapeError(f"median: axis {axis} of {shown(x.shape)} needs a known number of elements, at least one")
    middle = narrow(order, n, (extent - 1) // 2, 1)
    if x.dtype.is_float:
        last = narrow(order, n, extent - 1, 1)
        middle = where(isnan(take_along(x, last, n)), last, middle)
    return _take(x, n, middle, keepdim)


def _take(x: Value, axis: int, place: Value, keepdim: bool) -> SortResult:
    found = take_along(x, place, axis)
    return SortResult(found, place) if keepdim else SortResult(squeeze(found, axis), squeeze(place, axis))


class SortedRuns(NamedTuple):
    """Sorted elements with the starts of runs of equal ones, before `unique` knows the number of runs."""

    values: Value
    starts: Value
    """Whether an element is the first of its run."""
    order: Value


def sorted_runs(x: Value) -> SortedRuns:
    """Sort all elements and mark the first of each run. `masked_select(values, starts, count)` are the unique ones."""
    values, order = sort(reshape(x, (product(x.shape),)))
    length = values.shape[0]
    if length == 0:
        return SortedRuns(values, cast(order, bool_), order)
    changes = ne(narrow(values, 0, 1, length - 1), narrow(values, 0, 0, length - 1))
    first = fill(True, (1,), bool_, x.device)
    return SortedRuns(values, cat([first, changes]), order)
