"""Rounding ops, with zero gradients as in PyTorch."""

from __future__ import annotations

from typing import final

from ..ir.graph import Value
from .arithmetic import div, mul, sub
from .base import Unary, zeros_like


class Rounding(Unary):
    """Ops that round to an integer."""

    def share_x(self, upstream: Value) -> Value | None:
        return zeros_like(upstream)


@final
class Floor(Rounding):
    fn = "floor"


@final
class Ceil(Rounding):
    fn = "ceil"


@final
class Round(Rounding):
    """Round to the nearest integer, ties to even."""

    fn = "round"


@final
class Trunc(Rounding):
    fn = "trunc"


def floor(x: Value) -> Value:
    return Floor(x) if x.dtype.is_float else x


def ceil(x: Value) -> Value:
    return Ceil(x) if x.dtype.is_float else x


def trunc(x: Value) -> Value:
    return Trunc(x) if x.dtype.is_float else x


def round_digits(x: Value, decimals: int = 0) -> Value:
    """Round to a number of decimal digits (before the point, if negative), ties to even."""
    if not x.dtype.is_float:
        return x
    if decimals == 0:
        return Round(x)
    scale = 10.0 ** abs(decimals)
    return div(Round(mul(x, scale)), scale) if decimals > 0 else mul(Round(div(x, scale)), scale)


def frac(x: Value) -> Value:
    """Return the fractional part, with the sign of x."""
    return sub(x, trunc(x))
