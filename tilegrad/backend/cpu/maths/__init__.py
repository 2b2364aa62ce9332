"""Elementary functions without an instruction, as formulas on vectors: exponentials, logarithms, trigonometry.

One formula serves every vector width; float16 and bfloat16 go through float32. No call of a C library, and no branch
except for arguments so large that range reduction needs long integers. `ACCURACY` bounds the error in units of the last
place; special values are those of C99's Annex F.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from ..emit import Builder, LlvmValue, Type
from .vector import Vector, convert, widened

Formula = Callable[..., Vector]

MODULES = {
    "exponential": "exp exp2 expm1 sigmoid tanh sinh cosh",
    "logarithm": "log log2 log10 log1p asinh acosh atanh",
    "trigonometric": "sin cos tan",
    "inverse": "asin acos atan atan2",
    "error": "erf erfc",
    "power": "pow",
    "division": "fmod",
}
"""The functions of each module, which is imported when code for one of them is emitted."""
FORMULAS = {fn: module for module, names in MODULES.items() for fn in names.split()}

IN_FLOAT64 = frozenset({"tan", "atan2", "erfc", "asinh", "acosh", "atanh"})
"""Functions computed in float64 for float32 too: rare ones may be slower, and are correctly rounded."""


ACCURACY: dict[str, float] = {
    "exp": 1.1,
    "exp2": 1.0,
    "expm1": 1.6,
    "sigmoid": 2.0,
    "tanh": 1.5,
    "sinh": 1.75,
    "cosh": 1.5,
    "log": 1.0,
    "log2": 1.0,
    "log10": 1.0,
    "log1p": 1.6,
    "asinh": 0.51,
    "acosh": 0.51,
    "atanh": 0.51,
    "sin": 1.6,
    "cos": 1.6,
    "tan": 0.51,
    "asin": 1.75,
    "acos": 1.25,
    "atan": 2.0,
    "atan2": 0.51,
    "erf": 1.6,
    "erfc": 0.51,
    "pow": 0.51,
    "fmod": 0.0,
}
"""Maximum error of float32 results over all arguments, in units of the last place."""

ACCURACY_FLOAT64: dict[str, float] = {
    "exp": 1.1,
    "exp2": 1.0,
    "expm1": 1.75,
    "sigmoid": 2.0,
    "tanh": 1.5,
    "sinh": 1.75,
    "cosh": 1.5,
    "log": 1.0,
    "log2": 1.0,
    "log10": 1.0,
    "log1p": 1.25,
    "asinh": 2.0,
    "acosh": 2.0,
    "atanh": 2.0,
    "sin": 1.25,
    "cos": 1.25,
    "tan": 2.5,
    "asin": 1.75,
    "acos": 1.25,
    "atan": 2.0,
    "atan2": 1.5,
    "erf": 1.25,
    "erfc": 3.0,
    "pow": 1.25,
    "fmod": 0.0,
}
"""Maximum error found in float64, where not all arguments can be tried."""


def has(fn: str, type: Type) -> bool:
    """Whether there is a formula for a function and an element type."""
    return fn in FORMULAS and type.element in ("float", "double")


def emit(b: Builder, fn: str, args: tuple[LlvmValue, ...]) -> LlvmValue:
    """Emit a function of vectors or scalars of one float type."""
    return formula(fn, *[Vector(b, x) for x in args]).value


def formula(fn: str, *args: Vector) -> Vector:
    emit_formula: Formula = getattr(import_module(f".{FORMULAS[fn]}", __name__), fn)
    if fn in IN_FLOAT64 and args[0].element == "float":
        return convert(emit_formula(*[widened(x) for x in args]), "float")
    return emit_formula(*args)
