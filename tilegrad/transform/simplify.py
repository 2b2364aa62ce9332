"""Algebraic simplification: the rules of `rules.py`, applied until none fits; and arithmetic on constants."""

from __future__ import annotations

import math
from collections.abc import Mapping

from ..ir.functions import FUNCTIONS
from ..ir.graph import Graph, Input, Value
from ..ir.location import working_for
from ..ops.base import Elementwise
from ..ops.broadcasting import Expand, Fill, Reshape
from ..ops.cast import Cast
from ..ops.movement import Permute
from .rules import RULES, Rule
from .share import moved

KINDS = {"float": "f", "int": "i", "uint": "i", "bool": "b"}
EXACT = ("add", "sub", "mul", "div", "neg", "abs", "maximum", "minimum", "eq", "ne", "lt", "le", "gt", "ge", "sqrt")
"""Functions that are computed alike everywhere, so that a constant may be computed now."""

_by_op: dict[type[Value], list[Rule]] = {}
for _rule in RULES:
    _by_op.setdefault(type(_rule.pattern), []).append(_rule)


def simplify(graph: Graph) -> Graph:
    """Values that are known without computing them, or with less.

    >>> from ..ir.dtype import float32
    >>> from ..ir.graph import TensorType
    >>> from ..ops.arithmetic import mul, neg, sub
    >>> x = Input(TensorType(float32, (3,)), "x")
    >>> print(simplify(Graph((x,), (sub(mul(x, 1.0), neg(x)),))))
    graph(x: f32[3])
      %0: f32[3] = add x x
      return %0
    """
    new: dict[Value, Value] = {}
    given = set(graph.inputs)
    for value in graph.values():
        if value in given or isinstance(value, Input):
            new[value] = value
            continue
        made = moved(value, tuple([new[x] for x in value.inputs]))
        with working_for(value.location):
            for _ in range(8):
                simpler = _simpler(made)
                if simpler is None:
                    break
                made = simpler
        new[value] = made
    if all(x is y for x, y in new.items()):
        return graph
    return Graph(graph.inputs, tuple(new[v] for v in graph.outputs))


def _simpler(value: Value) -> Value | None:
    """One step: the value in a simpler form, or None."""
    folded = _folded(value)
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
    """Whether a value has the form of a pattern; `found` gets what the wildcards stand for."""
    if isinstance(pattern, Input):
        return found.setdefault(pattern, value) is value
    if isinstance(pattern, Fill):
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
    """The number that all elements of a value are, where that is plain."""
    while isinstance(value, Expand | Reshape | Permute):
        value = value.x
    return value.value if isinstance(value, Fill) else None


def _folded(value: Value) -> Value | None:
    """A value all of whose elements are one number that can be computed now, or that has none; a cast that
    changes nothing."""
    if 0 in value.shape and not isinstance(value, Fill):
        return Fill(value.dtype.numpy.type(0).item(), value.type)
    if isinstance(value, Expand | Reshape | Permute):
        constant = constant_of(value)
        return None if constant is None else Fill(constant, value.type)
    if isinstance(value, Cast):
        return _folded_cast(value)
    if not isinstance(value, Elementwise) or value.fn not in EXACT or value.dtype.bits < 32:
        return None
    numbers = [constant_of(x) for x in value.inputs]
    if any(n is None for n in numbers):
        return None
    evaluate = FUNCTIONS[value.fn].evaluate
    assert evaluate is not None
    typed = [x.dtype.numpy.type(n) for x, n in zip(value.inputs, numbers, strict=True)]
    return Fill(value.dtype.numpy.type(evaluate(*typed)).item(), value.type)


def _folded_cast(value: Cast) -> Value | None:
    if isinstance(value.x, Cast) and value.x.x.dtype is value.dtype and _holds(value.x.dtype.short, value.dtype.short):
        return value.x.x
    constant = constant_of(value.x)
    if constant is None or (isinstance(constant, float) and not math.isfinite(constant)):
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
"""Types that hold every element of a type: a cast there and back gives the element."""


def _holds(wide: str, narrow: str) -> bool:
    return wide in WIDER.get(narrow, ())
