"""Define the functions on single elements: one table shared by the scalar and the tile language.

A backend implements this table and no other arithmetic. `evaluate` defines each function on numpy values; integer
division by zero gives 0, and `maximum`/`minimum` propagate NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np

from .dtype import FLOAT8, DType, bfloat16, bool_, float8_e4m3fn, float16, float32
from .precision import product

Result = Literal["same", "bool", "last", "given"]


class ElementFunction(NamedTuple):
    """One function on elements."""

    name: str
    arity: int
    evaluate: Callable[..., Any] | None
    result: Result = "same"
    """The type of the result: that of the arguments, bool, that of the last argument, or named in the node."""
    symbol: str = ""
    """The operator it is printed as, if any."""
    domain: str = "bif"
    """Accepted arguments: b(ool), i(nteger), f(loat)."""
    in_kernels: bool = True
    """Whether the tile language has it."""
    expensive: bool = False
    """Whether one element takes many instructions."""

    def show(self, args: list[str]) -> str:
        """Print an application to printed arguments."""
        if self.symbol and len(args) == 2:
            return f"({args[0]} {self.symbol} {args[1]})"
        return f"{self.symbol}{args[0]}" if self.symbol else f"{self.name}({', '.join(args)})"


def _safely(divide: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Divide integers; the result is 0 where the divisor is 0."""

    def divided(x: Any, y: Any) -> Any:
        if np.issubdtype(np.asarray(y).dtype, np.integer):
            y = np.asarray(y)
            zero = y == 0
            return np.where(zero, np.zeros_like(y), divide(x, np.where(zero, np.ones_like(y), y)))
        return divide(x, y)

    return divided


def _truncated_division(x: Any, y: Any) -> Any:
    if np.issubdtype(np.asarray(y).dtype, np.integer):
        quotient = np.floor_divide(x, y)
        return quotient + ((quotient * y != x) & ((np.asarray(x) < 0) != (np.asarray(y) < 0))).astype(quotient.dtype)
    return np.trunc(np.divide(x, y))


def _erf(x: Any) -> Any:
    import math

    return np.vectorize(math.erf, otypes=[np.float64])(np.asarray(x, np.float64)).astype(np.asarray(x).dtype)


def _erfc(x: Any) -> Any:
    import math

    return np.vectorize(math.erfc, otypes=[np.float64])(np.asarray(x, np.float64)).astype(np.asarray(x).dtype)


def _sigmoid(x: Any) -> Any:
    x = np.asarray(x)
    wide = x.astype(np.float64)
    return np.where(
        wide >= 0, 1 / (1 + np.exp(-np.abs(wide))), np.exp(-np.abs(wide)) / (1 + np.exp(-np.abs(wide)))
    ).astype(x.dtype)


def _mulhi(x: Any, y: Any) -> Any:
    return (np.asarray(x, np.uint64) * np.asarray(y, np.uint64) >> np.uint64(32)).astype(np.uint32)


def _shift_left(x: Any, y: Any) -> Any:
    bits = np.asarray(x).dtype.itemsize * 8
    inside = (np.asarray(y) >= 0) & (np.asarray(y) < bits)
    return np.where(inside, np.left_shift(x, np.where(inside, y, 0)), 0).astype(np.asarray(x).dtype)


def _shift_right(x: Any, y: Any) -> Any:
    x, y = np.asarray(x), np.asarray(y)
    bits = x.dtype.itemsize * 8
    inside = (y >= 0) & (y < bits)
    if x.dtype.kind == "u":
        return np.where(inside, np.right_shift(x, np.where(inside, y, 0)), 0).astype(x.dtype)
    return np.right_shift(x, np.where(inside, y, bits - 1)).astype(x.dtype)


def _power(x: Any, y: Any) -> Any:
    """Raise integers to a power with wrap-around; a negative exponent gives the integer part of 1 / x**n."""
    x, y = np.asarray(x), np.asarray(y)
    if x.dtype.kind not in "iu":
        return np.power(x, y)
    base, exponent, result = x.copy() + y * 0, np.where(y < 0, 0, y) + x * 0, np.ones_like(x + y)
    while np.any(exponent > 0):
        result = np.where(exponent & 1, result * base, result)
        base, exponent = base * base, exponent >> 1
    if y.dtype.kind == "u":
        return result
    inverse = np.where(x == 1, 1, np.where(x == -1, np.where(y & 1, -1, 1), 0)).astype(x.dtype)
    return np.where(y < 0, inverse, result).astype(x.dtype)


_LIST = (
    # arithmetic
    ElementFunction("add", 2, np.add, symbol="+", domain="if"),
    ElementFunction("sub", 2, np.subtract, symbol="-", domain="if"),
    ElementFunction("mul", 2, np.multiply, symbol="*", domain="if"),
    # float32 numbers multiplied for a sum at a precision (`precision.py`); in kernels `tl.dot` has one
    ElementFunction("mul_high", 2, lambda x, y: product(x, y, "high"), domain="f", in_kernels=False),
    ElementFunction("mul_medium", 2, lambda x, y: product(x, y, "medium"), domain="f", in_kernels=False),
    ElementFunction("div", 2, np.divide, symbol="/", domain="f", expensive=True),
    ElementFunction("floordiv", 2, _safely(np.floor_divide), symbol="//", domain="if"),
    ElementFunction("mod", 2, _safely(np.mod), symbol="%", domain="if"),
    ElementFunction("truncdiv", 2, _safely(_truncated_division), domain="if"),
    ElementFunction("fmod", 2, _safely(np.fmod), domain="if"),
    ElementFunction("pow", 2, _power, domain="if", expensive=True),
    ElementFunction("neg", 1, np.negative, symbol="-", domain="if"),
    ElementFunction("abs", 1, np.abs, domain="if"),
    ElementFunction("maximum", 2, np.maximum),
    ElementFunction("minimum", 2, np.minimum),
    ElementFunction("fma", 3, lambda x, y, z: x * y + z, domain="f"),
    ElementFunction("mulhi", 2, _mulhi, domain="i"),  # the upper 32 bits of a product of two uint32
    ElementFunction("copysign", 2, np.copysign, domain="f"),
    # comparison
    ElementFunction("eq", 2, np.equal, "bool", "=="),
    ElementFunction("ne", 2, np.not_equal, "bool", "!="),
    ElementFunction("lt", 2, np.less, "bool", "<"),
    ElementFunction("le", 2, np.less_equal, "bool", "<="),
    ElementFunction("gt", 2, np.greater, "bool", ">"),
    ElementFunction("ge", 2, np.greater_equal, "bool", ">="),
    ElementFunction("isnan", 1, np.isnan, "bool", domain="f"),
    ElementFunction("isinf", 1, np.isinf, "bool", domain="f"),
    # bits; on bool these are the logical functions
    ElementFunction("bitand", 2, np.bitwise_and, symbol="&", domain="bi"),
    ElementFunction("bitor", 2, np.bitwise_or, symbol="|", domain="bi"),
    ElementFunction("bitxor", 2, np.bitwise_xor, symbol="^", domain="bi"),
    ElementFunction("invert", 1, np.invert, symbol="~", domain="bi"),
    ElementFunction("shl", 2, _shift_left, symbol="<<", domain="i"),
    ElementFunction("shr", 2, _shift_right, symbol=">>", domain="i"),
    # rounding
    ElementFunction("floor", 1, np.floor, domain="f"),
    ElementFunction("ceil", 1, np.ceil, domain="f"),
    ElementFunction("round", 1, np.round, domain="f"),  # ties to even
    ElementFunction("trunc", 1, np.trunc, domain="f"),
    # exponential and logarithmic
    ElementFunction("exp", 1, np.exp, domain="f", expensive=True),
    ElementFunction("exp2", 1, np.exp2, domain="f", expensive=True),
    ElementFunction("expm1", 1, np.expm1, domain="f", expensive=True),
    ElementFunction("log", 1, np.log, domain="f", expensive=True),
    ElementFunction("log2", 1, np.log2, domain="f", expensive=True),
    ElementFunction("log10", 1, np.log10, domain="f", expensive=True),
    ElementFunction("log1p", 1, np.log1p, domain="f", expensive=True),
    ElementFunction("sqrt", 1, np.sqrt, domain="f", expensive=True),
    ElementFunction("rsqrt", 1, lambda x: 1 / np.sqrt(x), domain="f", expensive=True),
    ElementFunction("sigmoid", 1, _sigmoid, domain="f", expensive=True),
    # trigonometric and hyperbolic
    ElementFunction("sin", 1, np.sin, domain="f", expensive=True),
    ElementFunction("cos", 1, np.cos, domain="f", expensive=True),
    ElementFunction("tan", 1, np.tan, domain="f", expensive=True),
    ElementFunction("asin", 1, np.arcsin, domain="f", expensive=True),
    ElementFunction("acos", 1, np.arccos, domain="f", expensive=True),
    ElementFunction("atan", 1, np.arctan, domain="f", expensive=True),
    ElementFunction("atan2", 2, np.arctan2, domain="f", expensive=True),
    ElementFunction("sinh", 1, np.sinh, domain="f", expensive=True),
    ElementFunction("cosh", 1, np.cosh, domain="f", expensive=True),
    ElementFunction("tanh", 1, np.tanh, domain="f", expensive=True),
    ElementFunction("asinh", 1, np.arcsinh, domain="f", expensive=True),
    ElementFunction("acosh", 1, np.arccosh, domain="f", expensive=True),
    ElementFunction("atanh", 1, np.arctanh, domain="f", expensive=True),
    ElementFunction("erf", 1, _erf, domain="f", expensive=True),
    ElementFunction("erfc", 1, _erfc, domain="f", expensive=True),
    # choice and conversion
    ElementFunction("where", 3, np.where, "last"),
    # an index, the extent of its axis and the number of a place in the program (`runtime/index_faults.py`): the nearest
    # element that there is; an index that is outside is reported
    ElementFunction("inside", 3, lambda x, extent, _: np.maximum(np.minimum(x, extent - 1), 0), domain="i"),
    ElementFunction("cast", 1, None, "given"),
    ElementFunction("bitcast", 1, None, "given"),
)

FUNCTIONS: dict[str, ElementFunction] = {f.name: f for f in _LIST}


class Reducer(NamedTuple):
    """A function that can reduce an axis."""

    fn: str
    printed: str
    """Its name in the tile language."""
    scan: str
    evaluate: Callable[..., Any]
    accumulate: Callable[..., Any] | None


REDUCERS: dict[str, Reducer] = {
    "add": Reducer("add", "sum", "cumsum", np.add.reduce, np.add.accumulate),
    "mul": Reducer("mul", "prod", "cumprod", np.multiply.reduce, np.multiply.accumulate),
    "maximum": Reducer("maximum", "max", "cummax", np.maximum.reduce, np.maximum.accumulate),
    "minimum": Reducer("minimum", "min", "cummin", np.minimum.reduce, np.minimum.accumulate),
    "bitand": Reducer("bitand", "all", "", np.bitwise_and.reduce, None),
    "bitor": Reducer("bitor", "any", "", np.bitwise_or.reduce, None),
    "argmax": Reducer("argmax", "argmax", "", np.argmax, None),
    "argmin": Reducer("argmin", "argmin", "", np.argmin, None),
}


def accumulation_dtype(dtype: DType) -> DType:
    """Return the dtype in which a reduction accumulates."""
    return float32 if dtype in (float16, bfloat16) else dtype


def identity(fn: str, dtype: DType) -> float | int | bool:
    """Return the result of a reduction over no elements."""
    least = -float("inf") if dtype.is_float else dtype.min
    greatest = float("inf") if dtype.is_float else dtype.max
    if dtype is bool_:
        least, greatest = False, True
    values = {
        "add": 0,
        "mul": 1,
        "maximum": least,
        "minimum": greatest,
        "bitand": -1 if dtype.kind == "int" else dtype.max,
        "bitor": 0,
        "argmax": 0,
        "argmin": 0,
    }
    value = values[fn]
    return bool(value) if dtype is bool_ else float(value) if dtype.is_float else int(value)


def convert(x: Any, dtype: DType) -> Any:
    """Convert as `cast` does: to bool is `!= 0`; a float outside an integer's range is machine-defined."""
    with np.errstate(all="ignore"):
        if dtype in FLOAT8:
            x = np.asarray(x).astype(np.float32)
        if dtype is float8_e4m3fn:  # numpy's makes NaN of what is too large
            x = np.clip(x, -dtype.max, dtype.max)
        return np.asarray(x).astype(dtype.numpy)
