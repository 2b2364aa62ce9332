"""Translate elementwise ops to Python, for tensors of a few elements, where Python's results are those of kernels.

What an op means stands in its class (`Elementwise.scalar`). Functions that are rounded at most once have the same
results everywhere: Python computes with floats of 64 bits, which is enough to round sums, products, quotients and
square roots of float32 numbers correctly. Exponentials and the like have none here; integers that wrap around raise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from ctypes import c_float
from functools import lru_cache
from itertools import product
from typing import Any

from ..ir.dtype import DType, bool_, float32, float64
from ..ir.position import row_major
from ..ir.scalar import Apply, Const, Expr, Read
from ..ops.base import Elementwise
from ..ops.broadcasting import Reduction

Elementary = Callable[..., list[Any]]
"""Applies an op to the elements of its operands."""

MAX_FUNCTIONS = 512
"""Ops, with their attributes and dtypes, whose functions are kept."""
MAX_EXACT_INTEGER = 1 << 53
"""Magnitude up to which every integer is a Python float."""

EXACT = {
    "maximum": "({0} if {0} > {1} or {0} != {0} else {1})", "minimum": "({0} if {0} < {1} or {0} != {0} else {1})",
    "eq": "({} == {})", "ne": "({} != {})", "lt": "({} < {})", "le": "({} <= {})", "gt": "({} > {})",
    "ge": "({} >= {})", "where": "({1} if {0} else {2})", "bitand": "({} & {})", "bitor": "({} | {})",
    "bitxor": "({} ^ {})",
}  # fmt: skip
"""Functions without rounding, for all dtypes."""
OF_FLOATS = {
    "neg": "(-{})", "abs": "abs({})", "copysign": "copysign({}, {})", "isnan": "({0} != {0})",
    "isinf": "(abs({}) == inf)", "floor": "copysign(floor({0}), {0})", "ceil": "copysign(ceil({0}), {0})",
    "trunc": "copysign(trunc({0}), {0})", "round": "copysign(round({0}), {0})",
}  # fmt: skip
ROUNDED = {"add": "({} + {})", "sub": "({} - {})", "mul": "({} * {})", "div": "({} / {})", "sqrt": "sqrt({})"}
"""Functions of floats that are rounded once."""
OF_INTEGERS = {
    "add": "({} + {})", "sub": "({} - {})", "mul": "({} * {})", "floordiv": "({} // {})", "mod": "({} % {})",
    "neg": "(-{})", "abs": "abs({})", "invert": "(~{})",
}  # fmt: skip
"""Functions that may wrap around: storing the result raises then."""


def _exact_float(number: int) -> float:
    if not -MAX_EXACT_INTEGER <= number <= MAX_EXACT_INTEGER:
        raise OverflowError("rounded twice")
    return float(number)


def _rounded(number: float) -> float:
    return c_float(number).value


NAMES = {
    "copysign": math.copysign, "floor": math.floor, "ceil": math.ceil, "trunc": math.trunc, "round": round,
    "sqrt": math.sqrt, "inf": math.inf, "nan": math.nan, "rounded": _rounded, "exact_float": _exact_float,
}  # fmt: skip


TRANSLATED = {"", *EXACT, *OF_FLOATS, *ROUNDED, *OF_INTEGERS}
"""Functions of which Python has one, and ops that are more than a function."""


class _Untranslatable(Exception):
    """Python has no function with these results."""


_found: dict[Any, Elementary | None] = {}


def python_function(value: Elementwise) -> Elementary | None:
    """Return the function that computes an op from the elements of its inputs; None if Python has none.

    >>> from tilegrad.ir.graph import Input, TensorType
    >>> from tilegrad.ops.arithmetic import absolute
    >>> python_function(absolute(Input(TensorType(float32, (2,)))))([-1.5, 2.0])
    [1.5, 2.0]
    """
    if value.fn not in TRANSLATED:
        return None
    key = value.__class__, value.attributes, tuple([x.type.dtype for x in value.inputs])
    try:
        return _found[key]
    except KeyError:
        if len(_found) >= MAX_FUNCTIONS:
            _found.clear()
        made = _found[key] = _translated(value)
        return made
    except TypeError:  # attributes that are no keys
        return None


def _translated(value: Elementwise) -> Elementary | None:
    names = [f"x{n}" for n in range(len(value.inputs))]
    try:
        body = _source(
            value.scalar(*[Read(n, (), x.type.dtype) for n, x in zip(names, value.inputs, strict=True)]), True
        )
    except (_Untranslatable, ValueError):  # constants that the dtype has not: an error when it is computed
        return None
    given, each = ", ".join(f"{n}s" for n in names), ", ".join(names)
    together = f"zip({given})" if len(names) > 1 else given
    return eval(f"lambda {given}: [{body} for {each} in {together}]", NAMES)  # type: ignore[no-any-return]


def _source(e: Expr, is_root: bool = False) -> str:
    """Write an expression in Python; what is not stored is rounded to its dtype where it is computed."""
    match e:
        case Read(name, _, _):
            return str(name)
        case Const(number, dtype):
            return repr(_rounded(number) if dtype is float32 else number)
        case Apply("cast", (x,), dtype):
            return _cast(_source(x), x.dtype, dtype, is_root)
        case Apply(fn, args, dtype):
            return _applied(fn, args, dtype, is_root)
    raise _Untranslatable


def _applied(fn: str, args: tuple[Expr, ...], dtype: DType, is_root: bool) -> str:
    of = args[-1].dtype
    is_float = of is float32 or of is float64
    given = [_source(x) for x in args]
    if fn in EXACT:
        return EXACT[fn].format(*given)
    if is_float and fn in OF_FLOATS:
        return OF_FLOATS[fn].format(*given)
    if is_float and fn in ROUNDED:
        made = ROUNDED[fn].format(*given)
        return made if is_root or dtype is float64 else f"rounded({made})"
    if of is bool_ and fn == "invert":
        return f"(not {given[0]})"
    if of.is_integer and is_root and fn in OF_INTEGERS:
        return OF_INTEGERS[fn].format(*given)
    raise _Untranslatable


def _cast(x: str, of: DType, to: DType, is_root: bool) -> str:
    if to is bool_:
        return f"({x} != 0)"
    if to is float64 or to is float32:
        made = x if of.is_float else f"exact_float({x})"
        return made if is_root or to is float64 or of is float32 else f"rounded({made})"
    if to.is_integer and is_root:
        return f"int({x})"
    raise _Untranslatable


# --- reductions --------------------------------------------------------------------------------


def _extreme(choose: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
    def extreme(numbers: list[Any]) -> Any:
        unordered = [x for x in numbers if x != x]
        if unordered:
            return unordered[0]
        found = choose(numbers)
        if found == 0 and len({math.copysign(1, x) for x in numbers if x == 0}) > 1:
            raise ValueError("the sign of the result depends on the order")
        return found

    return extreme


def _position(choose: Callable[[list[Any]], Any]) -> Callable[[list[Any]], int]:
    def position(numbers: list[Any]) -> int:
        unordered = [n for n, x in enumerate(numbers) if x != x]
        return unordered[0] if unordered else numbers.index(choose(numbers))

    return position


REDUCTIONS: dict[str, Callable[[list[Any]], Any]] = {
    "maximum": _extreme(max), "minimum": _extreme(min), "argmax": _position(max), "argmin": _position(min),
    "bitand": all, "bitor": any,
}  # fmt: skip
"""Reductions whose results do not depend on the order of the elements."""
COMPUTED = TRANSLATED | REDUCTIONS.keys()
"""Functions of ops that may be computed."""


def python_reduction(value: Reduction) -> Elementary | None:
    """Return the function that reduces the elements of the input of an op; None if Python has none.

    >>> from tilegrad.ir.graph import Input, TensorType
    >>> from tilegrad.ops.reduction import amax
    >>> python_reduction(amax(Input(TensorType(float32, (2, 2))), 0))([1.0, 2.0, 3.0, 0.0])
    [3.0, 2.0]
    """
    reduce = sum if value.fn == "add" and value.x.type.dtype.is_integer else REDUCTIONS.get(value.fn)
    if reduce is None:
        return None
    shape: Any = value.x.type.shape
    groups = _groups(shape, value.axes)
    return lambda numbers: [reduce([numbers[n] for n in group]) for group in groups]


@lru_cache(MAX_FUNCTIONS)
def _groups(shape: Any, axes: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Return for each result the numbers of the elements that are reduced to it."""
    strides: Any = row_major(shape)
    along = [range(0, extent * stride, stride or 1) for extent, stride in zip(shape, strides, strict=True)]
    kept, over = [x for axis, x in enumerate(along) if axis not in axes], [along[axis] for axis in axes]
    return [tuple([sum(at) + sum(of) for of in product(*over)]) for at in product(*kept)]
