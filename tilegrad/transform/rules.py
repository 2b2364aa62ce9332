"""Algebraic rewrite rules as data.

Each rule holds for every element, including NaN, infinities and both zeros: so there is no `x * 0 -> 0` for floats, and
`x + 0 -> x` only for -0.0. One property test checks all rules.
"""

from __future__ import annotations

from ..ir.dtype import DType, bool_, float32, int32
from ..ir.graph import Input, TensorType, Value
from ..ir.node import Node
from ..ops.arithmetic import absolute, add, div, maximum, minimum, mul, neg, sub
from ..ops.bits import bitwise_and, bitwise_not, bitwise_or, bitwise_xor
from ..ops.broadcasting import fill
from ..ops.control import where
from ..ops.exponential import Power


class Rule(Node):
    """A rewrite of `pattern` to `result` for element kinds in `kinds` (b, i, f). Inputs are wildcards."""

    pattern: Value
    result: Value
    kinds: str

    def __str__(self) -> str:
        return f"{shown(self.pattern)} -> {shown(self.result)}"


def shown(value: Value) -> str:
    """Format a pattern on one line."""
    return f"{value}({', '.join(map(shown, value.inputs))})" if value.inputs else str(value)


def _wildcards(dtype: DType) -> list[Value]:
    return [Input(TensorType(dtype, ()), name) for name in "xyz"]


x, y, z = _wildcards(float32)
i, j, _ = _wildcards(int32)
p, q, condition = _wildcards(bool_)


def number(value: float, like: Value = x) -> Value:
    """Make a constant of the type of a wildcard."""
    return fill(value, (), like.dtype)


FLOAT = (
    Rule(mul(x, 1.0), x, "f"),
    Rule(mul(1.0, x), x, "f"),
    Rule(mul(x, -1.0), neg(x), "f"),
    Rule(mul(-1.0, x), neg(x), "f"),
    Rule(div(x, 1.0), x, "f"),
    Rule(div(x, -1.0), neg(x), "f"),
    Rule(sub(x, 0.0), x, "f"),
    Rule(add(x, -0.0), x, "f"),
    Rule(add(-0.0, x), x, "f"),
    Rule(neg(neg(x)), x, "f"),
    Rule(sub(x, neg(y)), add(x, y), "f"),
    Rule(add(x, neg(y)), sub(x, y), "f"),
    Rule(add(neg(x), y), sub(y, x), "f"),
    Rule(mul(neg(x), neg(y)), mul(x, y), "f"),
    Rule(div(neg(x), neg(y)), div(x, y), "f"),
    Rule(absolute(neg(x)), absolute(x), "f"),
    Rule(absolute(absolute(x)), absolute(x), "f"),
    Rule(Power(x, number(1.0)), x, "f"),
    Rule(Power(x, number(2.0)), mul(x, x), "f"),
    Rule(Power(x, number(0.0)), number(1.0), "f"),
    Rule(maximum(x, x), x, "f"),
    Rule(minimum(x, x), x, "f"),
    Rule(maximum(maximum(x, y), y), maximum(x, y), "f"),
    Rule(minimum(minimum(x, y), y), minimum(x, y), "f"),
    Rule(where(condition, x, x), x, "f"),
)

INTEGER = (
    Rule(mul(i, 1), i, "i"),
    Rule(mul(1, i), i, "i"),
    Rule(mul(i, 0), number(0, i), "i"),
    Rule(mul(0, i), number(0, i), "i"),
    Rule(add(i, 0), i, "i"),
    Rule(add(0, i), i, "i"),
    Rule(sub(i, 0), i, "i"),
    Rule(sub(i, i), number(0, i), "i"),
    Rule(neg(neg(i)), i, "i"),
    Rule(add(i, neg(j)), sub(i, j), "i"),
    Rule(bitwise_and(i, i), i, "i"),
    Rule(bitwise_or(i, i), i, "i"),
    Rule(bitwise_xor(i, i), number(0, i), "i"),
    Rule(bitwise_not(bitwise_not(i)), i, "i"),
    Rule(maximum(i, i), i, "i"),
    Rule(minimum(i, i), i, "i"),
    Rule(where(condition, i, i), i, "i"),
)

LOGICAL = (
    Rule(bitwise_and(p, p), p, "b"),
    Rule(bitwise_or(p, p), p, "b"),
    Rule(bitwise_not(bitwise_not(p)), p, "b"),
    Rule(bitwise_and(p, number(True, p)), p, "b"),
    Rule(bitwise_or(p, number(False, p)), p, "b"),
    Rule(where(bitwise_not(condition), p, q), where(condition, q, p), "bif"),
)

RULES: tuple[Rule, ...] = FLOAT + INTEGER + LOGICAL
