"""Reverse-mode differentiation of formulas inside gradient rules of ops.

`transform/autodiff.py` differentiates recorded graphs; this module walks a few values that an op has just made.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..ir.graph import Value, topological
from .arithmetic import add


def pullback(results: Sequence[Value], upstreams: Sequence[Value], inputs: Sequence[Value]) -> list[Value | None]:
    """Return the gradients of inputs of formulas; None where no gradient flows.

    If an input is listed twice, the first one gets the whole gradient.

    >>> from ..ir.dtype import float32
    >>> from ..ir.graph import Graph, Input, TensorType
    >>> from .arithmetic import mul
    >>> x, u = Input(TensorType(float32, (3,)), "x"), Input(TensorType(float32, (3,)), "u")
    >>> from ..ir.node import amend
    >>> amend(x, tracked=True)
    >>> (share,) = pullback([mul(x, x)], [u], [x])
    >>> print(Graph((x, u), (share,)))
    graph(x: f32[3], u: f32[3])
      %0: f32[] = fill[2]
      %1: f32[3] = mul x %0
      %2: f32[3] = mul u %1
      return %2
    """
    given = set(inputs)
    total: dict[Value, Value] = {}
    _add(total, results, upstreams)
    for value in reversed(topological(results, given.__contains__)):
        if value not in given and value in total and value.inputs:
            _add(total, value.inputs, value.gradient(total.pop(value)))
    return [total.pop(x, None) for x in inputs]


def _add(total: dict[Value, Value], values: Sequence[Value], shares: Sequence[Value | None]) -> None:
    for x, share in zip(values, shares, strict=True):
        if share is not None and x.tracked:
            total[x] = add(total[x], share) if x in total else share
