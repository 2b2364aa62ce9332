"""Find ops by their printed names, and check attributes that come from a file."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from math import prod
from typing import Any

from .. import ops
from ..errors import ShapeError
from ..ir.dtype import DType
from ..ir.graph import Input, TensorType, Value
from ..ir.precision import PRECISIONS
from ..ir.size import Size
from ..ops.joint import JointOutput, Recompute
from ..ops.recurrence_sizes import GATES
from ..ops.sliding import Adaptive, Sliding, WindowAxis

WINDOW_CLASSES: dict[str, type[WindowAxis]] = {"Adaptive": Adaptive, "Sliding": Sliding}
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


NOT_IN_FILES = (Input, JointOutput, Recompute)
"""Inputs have lines of their own; the others carry rules in Python, or follow from a gradient."""

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


@cache
def op_classes() -> dict[str, type[Value]]:
    """Return the ops that files may have, by name."""
    for module in pkgutil.iter_modules(ops.__path__, ops.__name__ + "."):
        if not module.ispkg:
            importlib.import_module(module.name)
    found = {}
    for cls in _subclasses(Value):  # type: ignore[type-abstract]
        attributes = [cls.annotations[name] for name in cls.attribute_fields]
        ours = cls.__module__.startswith(ops.__name__ + ".")
        if ours and cls not in NOT_IN_FILES and not inspect.isabstract(cls) and all(a in CHECKS for a in attributes):
            found[cls.op] = cls
    return found


def _subclasses(cls: type[Value]) -> Iterator[type[Value]]:
    for sub in cls.__subclasses__():
        yield sub
        yield from _subclasses(sub)


def check_value(value: Value) -> None:
    """Raise unless a movement op stays within its input: `infer` trusts those that the library makes."""
    shape, own = value.inputs[0].shape if value.inputs else (), value.__dict__
    if (axes := own.get("axes")) is not None and all(type(n) is int for n in axes):
        _require_axes(value, axes, len(shape))
    if (axis := own.get("axis")) is not None and type(axis) is int:
        _require_axes(value, (axis,), len(shape))
    starts, steps, sizes = (own.get(name) for name in ("starts", "steps", "sizes"))
    if starts is not None and steps is not None and sizes is not None:
        whole, part = (shape, sizes) if value.moves else (sizes, shape)
        if not len(whole) == len(part) == len(starts) == len(steps) or 0 in steps:
            raise ShapeError("starts, steps and sizes are not one for each axis")
        for start, step, count, extent in zip(starts, steps, part, whole, strict=True):
            _require_range(value, start, step, count, extent)


def _require_axes(value: Value, axes: Iterable[int], rank: int) -> None:
    found = tuple(axes)
    if len(set(found)) < len(found) or not all(0 <= n < rank for n in found):
        raise ShapeError(f"axes {found} are not axes of {rank}, each once")


def _require_range(value: Value, start: Any, step: int, count: Any, extent: Any) -> None:
    numbers = [x for x in (start, count, extent) if isinstance(x, Size)]
    names = {name for x in numbers for name in x.names()}
    for size in (2, 3, 101) if names else (2,):
        sizes = dict.fromkeys(names, size)
        first, n, whole = (x.value(sizes) if isinstance(x, Size) else x for x in (start, count, extent))
        last = first + (n - 1) * step
        if n > 0 and value.moves and not (0 <= first < whole and 0 <= last < whole):
            raise ShapeError(f"elements {first} to {last} are asked for on an axis of {whole}")
