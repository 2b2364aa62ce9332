"""The functions for which there is no instruction, as formulas on vectors: exponentials, logarithms, trigonometry.

Written once for every width; float16 and bfloat16 go through float32. No call of a C library, no branch but where
an argument is so great that its reduction needs long integers. `ACCURACY` says how far a result may be from the
exact one, in units of the last place of the exact one; special values are those of C99's Annex F.
"""

from __future__ import annotations

from collections.abc import Callable

from ..emit import Builder, Type, Value
from . import division, error, exponential, inverse, logarithm, power, trigonometric
from .vector import Vector, convert

Formula = Callable[..., Vector]

FORMULAS: dict[str, Formula] = {
    "exp": exponential.exp,
    "exp2": exponential.exp2,
    "expm1": exponential.expm1,
    "sigmoid": exponential.sigmoid,
    "tanh": exponential.tanh,
    "sinh": exponential.sinh,
    "cosh": exponential.cosh,
    "log": logarithm.log,
    "log2": logarithm.log2,
    "log10": logarithm.log10,
    "log1p": logarithm.log1p,
    "asinh": logarithm.asinh,
    "acosh": logarithm.acosh,
    "atanh": logarithm.atanh,
    "sin": trigonometric.sin,
    "cos": trigonometric.cos,
    "tan": trigonometric.tan,
    "asin": inverse.asin,
    "acos": inverse.acos,
    "atan": inverse.atan,
    "atan2": inverse.atan2,
    "erf": error.erf,
    "erfc": error.erfc,
    "pow": power.power,
    "fmod": division.fmod,
}

IN_FLOAT64 = frozenset({"tan", "atan2", "erfc", "asinh", "acosh", "atanh"})
"""Computed in float64 for float32 too: what is rare may be slower, and is right to the last digit."""


def has(fn: str, type: Type) -> bool:
    """Whether there is a formula for elements of this type."""
    return fn in FORMULAS and type.element in ("float", "double")


def emit(b: Builder, fn: str, args: tuple[Value, ...]) -> Value:
    """The function `fn` of vectors or scalars of one float type."""
    return formula(fn, *[Vector(b, x) for x in args]).value


def formula(fn: str, *args: Vector) -> Vector:
    if fn in IN_FLOAT64 and args[0].element == "float":
        return convert(FORMULAS[fn](*[convert(x, "double") for x in args]), "float")
    return FORMULAS[fn](*args)
