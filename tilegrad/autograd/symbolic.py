"""Differentiate formulas symbolically, to show why programs are not differentiated in this way.

A formula is a tree. Its derivative repeats subtrees (the product rule copies both factors), so derivatives of deep
formulas grow much faster than the formulas; `growth` measures it. Reverse-mode differentiation of a graph, which shares
subexpressions, adds a constant factor.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, NamedTuple, TypeAlias

from ..errors import GradientError
from ..ir.node import Structure


class Formula(Structure):
    """Numbers, variables, and operators; written with Python's operators."""

    sign: ClassVar[str] = ""

    def __add__(self, other: Operand) -> Formula:
        return plus(self, formula(other))

    def __radd__(self, other: Operand) -> Formula:
        return plus(formula(other), self)

    def __sub__(self, other: Operand) -> Formula:
        return plus(self, times(Number(-1.0), formula(other)))

    def __rsub__(self, other: Operand) -> Formula:
        return formula(other) - self

    def __neg__(self) -> Formula:
        return times(Number(-1.0), self)

    def __mul__(self, other: Operand) -> Formula:
        return times(self, formula(other))

    def __rmul__(self, other: Operand) -> Formula:
        return times(formula(other), self)

    def __truediv__(self, other: Operand) -> Formula:
        return times(self, power(formula(other), -1.0))

    def __rtruediv__(self, other: Operand) -> Formula:
        return formula(other) / self

    def __pow__(self, exponent: float) -> Formula:
        return power(self, float(exponent))

    def __str__(self) -> str:
        return shown(self)


Operand: TypeAlias = "Formula | float"


class Number(Formula):
    value: float


class Variable(Formula):
    name: str


class Plus(Formula):
    x: Formula
    y: Formula


class Times(Formula):
    x: Formula
    y: Formula


class ConstantPower(Formula):
    x: Formula
    exponent: float


class Call(Formula):
    """A known function applied to a formula."""

    name: str
    x: Formula


class Known(NamedTuple):
    """A function of one number with its derivative."""

    evaluate: Callable[[float], float]
    derivative: Callable[[Formula], Formula]


FUNCTIONS: dict[str, Known] = {
    "exp": Known(math.exp, lambda x: exp(x)),
    "log": Known(math.log, lambda x: 1 / x),
    "sin": Known(math.sin, lambda x: cos(x)),
    "cos": Known(math.cos, lambda x: -sin(x)),
    "tanh": Known(math.tanh, lambda x: 1 - tanh(x) ** 2),
}


def formula(x: Operand) -> Formula:
    """Convert a number to a formula."""
    return x if isinstance(x, Formula) else Number(float(x))


def plus(x: Formula, y: Formula) -> Formula:
    match x, y:
        case Number(a), Number(b):
            return Number(a + b)
        case (Number(0.0), other) | (other, Number(0.0)):
            return other
    return Plus(x, y)


def times(x: Formula, y: Formula) -> Formula:
    match x, y:
        case Number(a), Number(b):
            return Number(a * b)
        case (Number(0.0), _) | (_, Number(0.0)):
            return Number(0.0)
        case (Number(1.0), other) | (other, Number(1.0)):
            return other
    return Times(x, y)


def power(x: Formula, exponent: float) -> Formula:
    if exponent == 0.0:
        return Number(1.0)
    return x if exponent == 1.0 else ConstantPower(x, exponent)


def exp(x: Formula) -> Formula:
    return Call("exp", x)


def log(x: Formula) -> Formula:
    return Call("log", x)


def sin(x: Formula) -> Formula:
    return Call("sin", x)


def cos(x: Formula) -> Formula:
    return Call("cos", x)


def tanh(x: Formula) -> Formula:
    return Call("tanh", x)


def variables(names: str) -> tuple[Variable, ...]:
    """Make variables with these names."""
    return tuple(Variable(name) for name in names.split())


def differentiate(f: Formula, x: Variable) -> Formula:
    """Differentiate a formula by a variable.

    >>> (x,) = variables("x")
    >>> print(differentiate(x**2 * sin(x), x))
    2 * x * sin(x) + x^2 * cos(x)
    """
    match f:
        case Number():
            return Number(0.0)
        case Variable():
            return Number(float(f == x))
        case Plus(a, b):
            return differentiate(a, x) + differentiate(b, x)
        case Times(a, b):
            return differentiate(a, x) * b + a * differentiate(b, x)
        case ConstantPower(a, n):
            return n * power(a, n - 1) * differentiate(a, x)
        case Call(name, a):
            return FUNCTIONS[name].derivative(a) * differentiate(a, x)
    raise GradientError(f"there is no rule for the derivative of {f!r}")


def evaluate(f: Formula, values: Mapping[str, float]) -> float:
    """Evaluate a formula for values of its variables."""
    match f:
        case Number(value):
            return value
        case Variable(name):
            return values[name]
        case Plus(a, b):
            return evaluate(a, values) + evaluate(b, values)
        case Times(a, b):
            return evaluate(a, values) * evaluate(b, values)
        case ConstantPower(a, n):
            return float(evaluate(a, values) ** n)
        case Call(name, a):
            return FUNCTIONS[name].evaluate(evaluate(a, values))
    raise GradientError(f"{f!r} has no value")


def size(f: Formula) -> int:
    """Count the numbers, variables and operators of a formula."""
    match f:
        case Plus(a, b) | Times(a, b):
            return 1 + size(a) + size(b)
        case ConstantPower(a, _):
            return 2 + size(a)
        case Call(_, a):
            return 1 + size(a)
    return 1


class FormulaSizes(NamedTuple):
    """Sizes of formulas and of their derivatives, by depth."""

    depths: tuple[int, ...]
    formulas: tuple[int, ...]
    derivatives: tuple[int, ...]

    def __str__(self) -> str:
        rows = zip(self.depths, self.formulas, self.derivatives, strict=True)
        return "\n".join(["depth formula derivative", *(f"{d:5} {f:7} {g:10}" for d, f, g in rows)])


def growth(step: Callable[[Formula], Formula], depths: Sequence[int] = range(1, 8)) -> FormulaSizes:
    """Measure how formulas, made by iterating a step, and their derivatives grow with depth.

    >>> print(growth(lambda f: f * (1 - f), range(1, 5)))
    depth formula derivative
        1       7          9
        2      19         41
        3      43        129
        4      91        353
    """
    (x,) = variables("x")
    formulas = []
    for depth in depths:
        f: Formula = x
        for _ in range(depth):
            f = step(f)
        formulas.append(f)
    return FormulaSizes(tuple(depths), tuple(map(size, formulas)), tuple(size(differentiate(f, x)) for f in formulas))


def shown(f: Formula, outer: int = 0) -> str:
    """Print a formula; `outer` is the precedence of its context."""
    match f:
        case Number(value):
            text, own = f"{value:g}", 4 if value >= 0 else 0
        case Variable(name):
            text, own = name, 4
        case Plus(a, b):
            text, own = f"{shown(a, 1)} + {shown(b, 1)}", 1
        case Times(a, b):
            text, own = f"{shown(a, 2)} * {shown(b, 2)}", 2
        case ConstantPower(a, n):
            text, own = f"{shown(a, 4)}^{n:g}", 3
        case Call(name, a):
            text, own = f"{name}({shown(a)})", 4
        case _:
            raise AssertionError(f)
    return f"({text})" if own < outer else text
