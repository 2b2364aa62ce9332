"""Find ops by their printed names, and check attributes that come from a file."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from math import prod
from typing import Any

from .. import ops
from ..errors import ShapeError
from ..ir.dtype import DType
from ..ir.graph import Graph, TensorType, Value
from ..ir.precision import PRECISIONS
from ..ir.size import Size, known
from ..ops.recurrence_sizes import GATES
from ..ops.sliding import Adaptive, Sliding, WindowAxis

WINDOW_CLASSES: dict[str, type[WindowAxis]] = {"Adaptive": Adaptive, "Sliding": Sliding}
TRIED_SIZES = (2, 3, 101)
"""Sizes for which the ops of a file are tried when it is read."""
MAX_EXTENT = 1 << 48
"""Bound of sizes in files: products of a few stay countable."""


def _is_dim(x: Any) -> bool:
    return isinstance(x, Size) or (type(x) is int and abs(x) <= MAX_EXTENT)


def _is_count(x: Any) -> bool:
    return isinstance(x, Size) or (type(x) is int and 0 <= x <= MAX_EXTENT)


def _are(x: Any, check: Callable[[Any], bool]) -> bool:
    return isinstance(x, tuple) and all(map(check, x))


def _is_window(x: Any) -> bool:
    if not isinstance(x, WindowAxis):
        return False
    if not all(_is_count(x.__dict__[name]) for name in x.fields):
        return False
    return not isinstance(x, Sliding) or (x.stride > 0 and x.dilation > 0 and x.taps > 0)


def _is_type(x: Any) -> bool:
    if not isinstance(x, TensorType) or not _are(x.shape, _is_count):
        return False
    return prod(extent for extent in x.shape if isinstance(extent, int)) <= MAX_EXTENT


def _is_int(x: Any) -> bool:
    return type(x) is int and abs(x) <= MAX_EXTENT


CHECKS: dict[str, Callable[[Any], bool]] = {
    "bool": lambda x: type(x) is bool,
    "int": _is_int,
    "float": lambda x: type(x) in (int, float, bool),
    "str": lambda x: type(x) is str and len(x) < 1000,
    "Dim": _is_dim,
    "Shape": lambda x: _are(x, _is_count),
    "tuple[int, ...]": lambda x: _are(x, _is_int),
    "DType": lambda x: isinstance(x, DType),
    "TensorType": _is_type,
    "Precision": lambda x: x in PRECISIONS,
    "Ties": lambda x: x in ("share", "share or nan", "first"),
    "CellKind": lambda x: x in GATES,
    "Windows": lambda x: _are(x, _is_window) and all(isinstance(axis, Sliding) for axis in x),
    "WindowAxes": lambda x: _are(x, _is_window),
    "WindowAxis": _is_window,
    "Check | None": lambda x: x is None,
    "tuple[Check | None, ...]": lambda x: _are(x, lambda y: y is None),
}
"""For each annotation of an attribute, whether an object fits. Ops with others are not in files."""


OP_MODULES: dict[str, str] = {
    "activation": "gelu gelu_slope relu sigmoid",
    "arithmetic": (
        "abs add clamp copysign div floor_divide fmod hypot maximum minimum mul neg remainder sign sub trunc_divide"
    ),
    "attention": "attention",
    "attention_gradient": "attention_gradient",
    "bits": "bit_and bit_or bit_xor invert shift_left shift_right",
    "broadcasting": "expand fill reshape sum",
    "cast": "bitcast cast detach",
    "comparison": "equal greater greater_equal is_finite is_inf is_nan less less_equal not_equal",
    "contraction": "contract",
    "control": "checked_index where",
    "convolution": "convolve convolve_back convolve_weight",
    "counting": "partial_histograms",
    "creation": "iota size_value",
    "digits": "digit_counts sort_by_digit",
    "divisor": "gcd",
    "exact_sums": "exact_sums",
    "exponential": "exp exp2 expm1 log log10 log1p log2 power rsqrt sqrt",
    "indexing": "gather scatter scatter_along take_along",
    "likelihood": "binary_cross_entropy",
    "movement": "cat pad permute slice",
    "packed_rows": "materialised packed_convolve packed_rows",
    "pooling": "col2im im2col max_pool pool_index window_argmax window_counts window_gather window_scatter",
    "random": "philox",
    "ranges": "range_reduce",
    "recurrence": "recurrence recurrence_gradient",
    "reduction": "all any argmax argmin max min prod",
    "rounding": "ceil floor round trunc",
    "scan": "cum_argmax cum_argmin cummax cummin cumprod cumsum",
    "searching": "search_sorted",
    "segment_sums": "segment_starts segment_sums",
    "selection": "compact",
    "sorting": "smallest_keys sort_key sorted_keys",
    "special": "bessel_i digamma erfinv lgamma nextafter polygamma",
    "tiled_attention": "tiled_attention tiled_key_gradient tiled_query_gradient",
    "trigonometric": "acos acosh asin asinh atan atan2 atanh cos cosh erf erfc sin sinh tan tanh",
    "windows": "diagonal diagonal_embed fold unfold",
}
"""The ops of each module: a file loads the modules of its ops alone. A test compares it with the classes."""


@cache
def op_class(name: str) -> type[Value] | None:
    """Return the class of an op that files may have; None if there is none."""
    module = next((module for module, names in OP_MODULES.items() if name in names.split()), None)
    if module is None:
        return None
    found = vars(importlib.import_module(f"{ops.__name__}.{module}")).values()
    return next(x for x in found if isinstance(x, type) and issubclass(x, Value) and x.__dict__.get("op") == name)


def op_names() -> list[str]:
    """List the ops that files may have."""
    return " ".join(OP_MODULES.values()).split()


def check_value(value: Value) -> None:
    """Raise unless a movement op stays within its input: `infer` trusts those that the library makes.

    Where sizes vary, this is tried for a few of them; `check_sizes` checks the sizes of a call.
    """
    shape, own = value.inputs[0].shape if value.inputs else (), value.__dict__
    if (axes := own.get("axes")) is not None and all(type(n) is int for n in axes):
        _require_axes(value, axes, len(shape))
    if (axis := own.get("axis")) is not None and type(axis) is int:
        _require_axes(value, (axis,), len(shape))
    views = list(_views(value))
    names = {n for row in views for x in row if isinstance(x, Size) for n in x.names()}
    for size in TRIED_SIZES if names else TRIED_SIZES[:1]:
        _check_views(views, dict.fromkeys(names, size))


def check_sizes(graph: Graph, sizes: Mapping[str, int]) -> None:
    """Raise unless all movement ops of a graph stay within their inputs for the sizes of a call."""
    for value in graph.values():
        _check_views(_views(value), sizes)


def _views(value: Value) -> Iterator[tuple[Any, int, Any, Any]]:
    """Yield start, step, count and extent of each axis of a view of an input."""
    starts, steps, sizes = (value.__dict__.get(name) for name in ("starts", "steps", "sizes"))
    if starts is None or steps is None or sizes is None:
        return
    shape = value.inputs[0].shape
    if not len(shape) == len(sizes) == len(starts) == len(steps) or 0 in steps:
        raise ShapeError("starts, steps and sizes are not one for each axis")
    if value.moves:
        yield from zip(starts, steps, sizes, shape, strict=True)


def _check_views(views: Iterable[tuple[Any, int, Any, Any]], sizes: Mapping[str, int]) -> None:
    for start, step, count, extent in views:
        first, n, whole = (known(x, sizes) for x in (start, count, extent))
        last = first + (n - 1) * step
        if n < 0 or (n > 0 and not (0 <= first < whole and 0 <= last < whole)):
            raise ShapeError(f"elements {first} to {last} are asked for on an axis of {whole}")


def _require_axes(value: Value, axes: Iterable[int], rank: int) -> None:
    found = tuple(axes)
    if len(set(found)) < len(found) or not all(0 <= n < rank for n in found):
        raise ShapeError(f"axes {found} are not axes of {rank}, each once")
