"""Simplify algebraically by the rules of `rules.py`, and fold constants."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np

from ..ir.dtype import float32, float64, int32, int64
from ..ir.functions import FUNCTIONS
from ..ir.graph import Graph, Input, Value
from ..ops.base import Elementwise
from ..ops.broadcasting import Expand, Fill, Reduction, accumulator
from ..ops.cast import Cast
from ..ops.control import Where
from ..ops.movement import Cat, Pad
from .rewrite import rewrite
from .rules import RULES, Rule

KINDS = {"float": "f", "int": "i", "uint": "i", "bool": "b"}
CORRECTLY_ROUNDED = (
    "add",
    "sub",
    "mul",
    "div",
    "neg",
    "abs",
    "maximum",
    "minimum",
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
    "sqrt",
)
"""Functions with the same result on every device, which may be folded at compile time."""

EXACT_BITS = {float32: 24, float64: 53, int32: 31, int64: 63}
"""Bits up to which sums of integers of a type are exact."""

_by_op: dict[type[Value], list[Rule]] = {}
for _rule in RULES:
    _by_op.setdefault(type(_rule.pattern), []).append(_rule)


def simplify(graph: Graph) -> Graph:
    """Fold constants and apply algebraic rules until none matches.

    >>> from ..ir.dtype import float32
    >>> from ..ir.graph import TensorType
    >>> from ..ops.arithmetic import mul, neg, sub
    >>> x = Input(TensorType(float32, (3,)), "x")
    >>> print(simplify(Graph((x,), (sub(mul(x, 1.0), neg(x)),))))
    graph(x: f32[3])
      %0: f32[3] = add x x
      return %0
    """
    return rewrite(graph, lambda value, _: _simpler(value))


def _simpler(value: Value) -> Value | None:
    """Apply one rewrite, or return None."""
    folded = _fold(value)
    if folded is not None:
        return folded
    for rule in _by_op.get(type(value), ()):
        found: dict[Value, Value] = {}
        if KINDS[value.dtype.kind] in rule.kinds and _matches(rule.pattern, value, found):
            made = _substituted(rule.result, found, value)
            if made.shape != value.shape:
                made = Expand(made, value.shape)
            return made
    return None


def _matches(pattern: Value, value: Value, found: dict[Value, Value]) -> bool:
    """Match a value with a pattern; bind its wildcards in `found`."""
    if type(pattern) is Input:
        return found.setdefault(pattern, value) is value
    if type(pattern) is Fill:
        constant = constant_of(value)
        return constant is not None and _same(constant, pattern.value)
    return (
        type(pattern) is type(value)
        and pattern.attributes == value.attributes
        and all(_matches(p, x, found) for p, x in zip(pattern.inputs, value.inputs, strict=True))
    )


def _same(x: float, y: float) -> bool:
    return x == y and math.copysign(1, x) == math.copysign(1, y)


def _substituted(result: Value, found: Mapping[Value, Value], value: Value) -> Value:
    if isinstance(result, Input):
        return found[result]
    if isinstance(result, Fill):
        return Fill(_typed(result.value, value), value.type)
    return result.with_inputs([_substituted(x, found, value) for x in result.inputs])


def _typed(number: float, value: Value) -> float:
    return float(number) if value.dtype.is_float else number


def constant_of(value: Value) -> float | None:
    """Return the number that all elements of a value are, if it is known."""
    while value.moves:
        value = value.inputs[0]
    return value.value if type(value) is Fill else None


def _fold(value: Value) -> Value | None:
    """Fold a value without elements or with one known number for all elements."""
    if type(value) is Fill:
        return None
    if 0 in value.shape:
        return Fill(value.dtype.numpy.type(0).item(), value.type)
    if value.moves:
        return _filled(value, constant_of(value))
    fold = _fold_of(type(value))
    return None if fold is None else fold(value)


@cache
def _fold_of(op: type[Value]) -> Callable[[Any], Value | None] | None:
    """Return the function that folds values of an op: tests of base classes are slow, and made once for each op."""
    folds: dict[type, Callable[[Any], Value | None]] = {
        Pad: lambda pad: _filled(pad, _common([constant_of(pad.x), pad.value])),
        Cat: lambda cat: _filled(cat, _common([constant_of(x) for x in cat.tensors])),
        Cast: _fold_cast,
        Where: _fold_where,
        Reduction: lambda reduction: _filled(reduction, _fold_reduction(reduction)),
        Elementwise: lambda value: _filled(value, _evaluated(value)),
    }
    return next((fold for base, fold in folds.items() if issubclass(op, base)), None)


def _filled(value: Value, number: float | int | bool | None) -> Fill | None:
    return None if number is None else Fill(number, value.type)


def _common(numbers: list[float | None]) -> float | None:
    """Return the number that all numbers are equal to, or None."""
    first = numbers[0]
    if first is None or any(n is None or not _same(n, first) for n in numbers):
        return None
    return first


def _evaluated(value: Elementwise) -> float | None:
    if value.fn not in CORRECTLY_ROUNDED or any(x.dtype.bits < float32.bits and x.dtype.is_float for x in value.inputs):
        return None
    numbers = [constant_of(x) for x in value.inputs]
    if any(n is None for n in numbers):
        return None
    evaluate = FUNCTIONS[value.fn].evaluate
    assert evaluate is not None
    typed = [x.dtype.numpy.type(n) for x, n in zip(value.inputs, numbers, strict=True)]
    with np.errstate(all="ignore"):
        made = value.dtype.numpy.type(evaluate(*typed))
    return float(str(made)) if value.dtype is float32 else made.item()


def _fold_where(value: Where) -> Value | None:
    condition = constant_of(value.condition)
    if condition is None:
        return None
    chosen = value.x if condition else value.y
    return chosen if chosen.shape == value.shape else Expand(chosen, value.shape)


def _fold_reduction(value: Reduction) -> float | None:
    """Fold a reduction of equal elements if the order of evaluation does not matter."""
    constant, count = constant_of(value.x), value.count
    if constant is None or type(count) is not int or constant != constant:
        return None
    digits = EXACT_BITS.get(accumulator(value.x.dtype), 0)
    exact = float(constant).is_integer() and abs(constant) * count < 1 << digits and not _same(constant, -0.0)
    match value.fn:
        case "maximum" | "minimum" | "bitand" | "bitor" if count:
            return value.dtype.numpy.type(constant).item()  # type: ignore[no-any-return]
        case "argmax" | "argmin" if count:
            return 0
        case "mul" if constant == 1:
            return constant
        case "add" if exact:
            return value.dtype.numpy.type(constant * count).item()  # type: ignore[no-any-return]
    return None


def _fold_cast(value: Cast) -> Value | None:
    if (
        isinstance(value.x, Cast)
        and value.x.x.dtype is value.dtype
        and is_exact_in(value.x.dtype.short, value.dtype.short)
    ):
        return value.x.x
    constant = constant_of(value.x)
    if constant is None or not math.isfinite(constant):
        return None
    return Fill(value.dtype.numpy.type(value.x.dtype.numpy.type(constant)).item(), value.type)


WIDER = {
    "f16": ("f32", "f64"),
    "bf16": ("f32", "f64"),
    "f32": ("f64",),
    "i8": ("i16", "i32", "i64"),
    "i16": ("i32", "i64"),
    "i32": ("i64", "f64"),
    "u8": ("i16", "i32", "i64", "u16", "u32", "u64", "f32", "f64"),
}
"""Types that represent every element of a type: a cast there and back is exact."""


def is_exact_in(wide: str, narrow: str) -> bool:
    """Return whether a wide type represents every element of a narrow one."""
    return wide in WIDER.get(narrow, ())
