"""Comparisons and tests of elements."""

from __future__ import annotations

import math
from typing import final

from ..ir.graph import Value
from ..ir.scalar import Expr, apply
from .base import Binary, Operand, Unary, pair


class Comparison(Binary):
    """Comparison ops, without gradients."""

    differentiable = False

    def share_x(self, upstream: Value) -> Value | None:
        return None

    def share_y(self, upstream: Value) -> Value | None:
        return None


@final
class Equal(Comparison):
    fn = "eq"


@final
class NotEqual(Comparison):
    fn = "ne"


@final
class Less(Comparison):
    fn = "lt"


@final
class LessEqual(Comparison):
    fn = "le"


@final
class Greater(Comparison):
    fn = "gt"


@final
class GreaterEqual(Comparison):
    fn = "ge"


class Test(Unary):
    """Predicates of one element."""

    differentiable = False

    def share_x(self, upstream: Value) -> Value | None:
        return None


@final
class IsNan(Test):
    fn = "isnan"


@final
class IsInf(Test):
    fn = "isinf"


@final
class IsFinite(Test):
    takes = "f"
    predicate = True

    def scalar(self, *elements: Expr) -> Expr:
        return apply("abs", elements[0]) < math.inf


def eq(x: Operand, y: Operand) -> Value:
    return Equal(*pair(x, y))


def ne(x: Operand, y: Operand) -> Value:
    return NotEqual(*pair(x, y))


def lt(x: Operand, y: Operand) -> Value:
    return Less(*pair(x, y))


def le(x: Operand, y: Operand) -> Value:
    return LessEqual(*pair(x, y))


def gt(x: Operand, y: Operand) -> Value:
    return Greater(*pair(x, y))


def ge(x: Operand, y: Operand) -> Value:
    return GreaterEqual(*pair(x, y))


def isnan(x: Value) -> Value:
    """Return whether elements are NaN; integers never are."""
    return IsNan(x) if x.dtype.is_float else ne(x, x)


def isinf(x: Value) -> Value:
    return IsInf(x) if x.dtype.is_float else ne(x, x)


def isfinite(x: Value) -> Value:
    """Return whether elements are neither infinite nor NaN."""
    return IsFinite(x) if x.dtype.is_float else eq(x, x)
