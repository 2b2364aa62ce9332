"""The functions for which there is no instruction, as formulas on vectors: exponentials, logarithms, trigonometry.

Written once for every width; float16 and bfloat16 go through float32. No call of a C library, no branch but where
an argument is so great that its reduction needs long integers. `ACCURACY` says how far a result may be from the
exact one, in units of the last place of the exact one; special values are those of C99's Annex F.
"""

from __future__ import annotations

from collections.abc import Callable

from ..emit import Builder, Type, Value
from . import error, exponential, logarithm, trigonometric
from .vector import Vector

Formula = Callable[..., Vector]

FORMULAS: dict[str, Formula] = {
    "exp": exponential.exp,
    "exp2": exponential.exp2,
    "expm1": exponential.expm1,
    "sigmoid": exponential.sigmoid,
    "tanh": exponential.tanh,
    "log": logarithm.log,
    "sin": trigonometric.sin,
    "cos": trigonometric.cos,
    "erf": error.erf,
}

ACCURACY: dict[str, float] = {
    "exp": 1.0,
    "exp2": 1.0,
    "expm1": 1.5,
    "sigmoid": 2.0,
    "tanh": 1.5,
    "log": 1.0,
    "sin": 1.5,
    "cos": 1.5,
    "erf": 1.0,
}


def has(fn: str, type: Type) -> bool:
    """Whether there is a formula for elements of this type."""
    return fn in FORMULAS and type.element == "float"


def emit(b: Builder, fn: str, args: tuple[Value, ...]) -> Value:
    """The function `fn` of vectors or scalars of one float type."""
    return FORMULAS[fn](*[Vector(b, x) for x in args]).value
