"""Evaluate scalar expressions with numpy: all positions at once, one array axis for each index."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...ir.functions import FUNCTIONS, REDUCERS, convert, identity
from ...ir.scalar import Apply, Const, Expr, Index, Read, Reduce, Scan, Symbol, walk
from ...ir.size import Size, known


def evaluate(e: Expr, indices: tuple[Index, ...], array: Callable[[Any], Any], sizes: dict[str, int]) -> Any:
    """Evaluate an expression at all values of some indices; `array` returns the memory of what is read.

    >>> from ...ir.dtype import float32
    >>> from ...ir.scalar import reduce
    >>> i, k = Index("i", 2), Index("k", 3)
    >>> x = np.arange(6, dtype=np.float32).reshape(2, 3)
    >>> evaluate(reduce("add", k, Read("x", (i, k), float32)), (i,), lambda source: x, {})
    array([ 3., 12.], dtype=float32)
    """
    order = list(indices) + [p for p in walk(e) if isinstance(p, Index) and p not in indices]
    axis = {index: n for n, index in enumerate(order)}
    extent = {index: known(index.extent, sizes) for index in order}
    made: dict[Expr, Any] = {}
    with np.errstate(all="ignore"):
        for part in walk(e):
            made[part] = _value(part, made, axis, extent, array, sizes)
    result = made[e]
    shape = tuple(extent[i] for i in indices)
    result = result.reshape(result.shape[: len(indices)])
    return np.broadcast_to(result, shape).astype(e.dtype.numpy, order="C")


def _value(
    e: Expr,
    made: dict[Expr, Any],
    axis: dict[Index, int],
    extent: dict[Index, int],
    array: Callable[[Any], Any],
    sizes: dict[str, int],
) -> Any:
    rank = len(axis)
    match e:
        case Const(value, dtype):
            return np.full((1,) * rank, value, dtype.numpy)
        case Index():
            shape = [1] * rank
            shape[axis[e]] = extent[e]
            return np.arange(extent[e], dtype=np.int64).reshape(shape)
        case Symbol(name):
            return np.full((1,) * rank, known(Size.named(name), sizes), np.int64)
        case Read(source, position, dtype):
            memory = array(source)
            if memory.size == 0:
                return np.zeros(np.broadcast_shapes((1,) * rank, *(made[p].shape for p in position)), dtype.numpy)
            at = [np.clip(made[p], 0, n - 1) for p, n in zip(position, memory.shape, strict=True)]
            return np.asarray(memory[tuple(at)]).reshape(np.broadcast_shapes((1,) * rank, *(p.shape for p in at)))
        case Apply("cast", (x,), dtype):
            return convert(made[x], dtype)
        case Apply("bitcast", (x,), dtype):
            return np.ascontiguousarray(made[x]).view(dtype.numpy).reshape(made[x].shape)
        case Apply(fn, args, dtype):
            function = FUNCTIONS[fn].evaluate
            assert function is not None
            return np.asarray(function(*(made[a] for a in args))).astype(dtype.numpy, copy=False)
        case Reduce(fn, index, body, dtype):
            return _reduced(fn, _spread(made[body], axis[index], extent[index]), axis[index], dtype.numpy, body)
        case Scan(fn, index, body, at, _):
            return _scanned(fn, _spread(made[body], axis[index], extent[index]), axis[index], made[at])
    raise NotImplementedError(e)


def _spread(x: Any, axis: int, extent: int) -> Any:
    shape = list(x.shape)
    shape[axis] = extent
    return np.broadcast_to(x, shape)


def _reduced(fn: str, x: Any, axis: int, dtype: Any, body: Expr) -> Any:
    if x.shape[axis] == 0:
        shape = tuple(1 if n == axis else s for n, s in enumerate(x.shape))
        return np.full(shape, identity(fn, body.dtype), dtype)
    if fn in ("argmax", "argmin"):
        return np.expand_dims(REDUCERS[fn].evaluate(x, axis=axis), axis).astype(dtype)
    return REDUCERS[fn].evaluate(x, axis=axis, keepdims=True).astype(dtype)


def _scanned(fn: str, x: Any, axis: int, at: Any) -> Any:
    if fn in ("argmax", "argmin"):
        better = np.greater_equal if fn == "argmax" else np.less_equal
        best = np.maximum.accumulate(x, axis) if fn == "argmax" else np.minimum.accumulate(x, axis)
        here = np.arange(x.shape[axis]).reshape([-1 if n == axis else 1 for n in range(x.ndim)])
        running = np.maximum.accumulate(np.where(better(x, best) | np.isnan(x), here, 0), axis)
    else:
        accumulate = REDUCERS[fn].accumulate
        assert accumulate is not None
        running = accumulate(x, axis=axis, dtype=x.dtype)
    shape = np.broadcast_shapes(tuple(1 if n == axis else s for n, s in enumerate(x.shape)), at.shape)
    running = np.broadcast_to(running, tuple(x.shape[n] if n == axis else s for n, s in enumerate(shape)))
    return np.take_along_axis(running, np.broadcast_to(at, shape), axis)
