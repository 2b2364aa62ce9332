"""Element-wise functions and matrix products."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ...ir.dtype import DType, bool_, float32, uint32
from ...ir.precision import PRECISIONS, TRITON
from ...ir.tile import Apply, Dot, ExpandDims, Reduce
from ...ir.tile_types import Refused, dot_dtype
from .arithmetic import apply, binary, common_dtype, invert, numeric_tile, select
from .builtin import METHODS, Builtin, builtin, method
from .shapes import dtype_of
from .values import SymbolicTile, describe, is_number
from .writer import TileWriter

UNARY = (
    "exp exp2 expm1 log log2 log10 log1p sqrt rsqrt sigmoid sin cos tan asin acos atan sinh cosh tanh asinh acosh "
    "atanh erf erfc floor ceil round trunc isnan isinf"
).split()
BINARY = ("atan2", "copysign", "fmod", "pow")


def floating_operand(w: TileWriter, x: Any, name: str) -> SymbolicTile:
    """Return an operand of a floating-point function, converted if it must be."""
    if is_number(x):
        return w.tile(float(x))
    found = numeric_tile(x, f"tl.{name}")
    if not found.type.dtype.is_float:
        raise Refused(f"tl.{name} takes floats, and this is {describe(found)}: convert it with .to(tl.float32)")
    return found


def _unary(fn: str, name: str = "") -> Builtin:
    def function(w: TileWriter, x: Any) -> SymbolicTile:
        found = floating_operand(w, x, function.__name__)
        return apply(w, fn, found.type.dtype, found)

    function.__name__ = function.__qualname__ = name or fn
    function.__doc__ = f"{name or fn} of each element."
    made = METHODS[name or fn] = builtin(function)
    return made


def _binary(fn: str, name: str = "") -> Builtin:
    def function(w: TileWriter, x: Any, y: Any) -> SymbolicTile:
        found = [floating_operand(w, z, function.__name__) for z in (x, y)]
        dtype = common_dtype((x, y))
        return apply(w, fn, dtype if dtype.is_float else float32, *found)

    function.__name__ = function.__qualname__ = name or fn
    function.__doc__ = f"{name or fn} of the elements of two tiles."
    return builtin(function)


_made: dict[str, Builtin] = {fn: _unary(fn) for fn in UNARY} | {fn: _binary(fn) for fn in BINARY}
exp, exp2, log, log2, sqrt, rsqrt = (_made[n] for n in ("exp", "exp2", "log", "log2", "sqrt", "rsqrt"))
sin, cos, erf, floor, ceil, sigmoid = (_made[n] for n in ("sin", "cos", "erf", "floor", "ceil", "sigmoid"))
sqrt_rn = _unary("sqrt", "sqrt_rn")


@method
def abs_(w: TileWriter, x: Any) -> Any:
    """Return the absolute value."""
    if is_number(x):
        return abs(x)
    found = numeric_tile(x, "tl.abs")
    return found if found.type.dtype.kind in ("uint", "bool") else apply(w, "abs", found.type.dtype, found)


def _joined(w: TileWriter, fn: str, operands: tuple[Any, ...]) -> Any:
    if all(is_number(x) for x in operands):
        return (max if fn == "maximum" else min)(operands)
    whole = operands[0]
    for x in operands[1:]:
        for z in (whole, x):
            if not is_number(z):
                numeric_tile(z, f"tl.{fn}")
        whole = apply(w, fn, common_dtype((whole, x)), whole, x)
    return whole


@builtin
def maximum(w: TileWriter, x: Any, y: Any, propagate_nan: Any = None) -> Any:
    """Return the greater of two elements. NaN propagates, whatever `propagate_nan` says."""
    return _joined(w, "maximum", (x, y))


@builtin
def minimum(w: TileWriter, x: Any, y: Any, propagate_nan: Any = None) -> Any:
    """Return the smaller of two elements. NaN propagates, whatever `propagate_nan` says."""
    return _joined(w, "minimum", (x, y))


@builtin
def clamp(w: TileWriter, x: Any, min: Any, max: Any, propagate_nan: Any = None) -> Any:
    """Clamp the elements to [min, max]."""
    return _joined(w, "minimum", (_joined(w, "maximum", (x, min)), max))


@builtin
def fma(w: TileWriter, x: Any, y: Any, z: Any) -> SymbolicTile:
    """Compute x * y + z."""
    return apply(w, "fma", common_dtype((x, y, z)), x, y, z)


@builtin
def fdiv(w: TileWriter, x: Any, y: Any, ieee_rounding: bool = False) -> Any:
    """Divide floats."""
    return binary(w, "div", floating_operand(w, x, "fdiv"), floating_operand(w, y, "fdiv"))


@builtin
def div_rn(w: TileWriter, x: Any, y: Any) -> Any:
    """Divide floats, rounded to nearest."""
    return binary(w, "div", floating_operand(w, x, "div_rn"), floating_operand(w, y, "div_rn"))


@builtin
def cdiv(w: TileWriter, x: Any, div: Any) -> Any:
    """Divide, rounded up."""
    if is_number(x) and is_number(div):
        return -(-x // div)
    return binary(w, "floordiv", binary(w, "add", x, binary(w, "sub", div, 1)), div)


@builtin
def umulhi(w: TileWriter, x: Any, y: Any) -> SymbolicTile:
    """Return the high half of the unsigned product of two integers."""
    dtype = common_dtype((x, y))
    if not (dtype.is_integer and dtype.bits == 32):
        raise Refused(f"tl.umulhi takes integers of 32 bits, and these are {dtype.name}: convert with .to(tl.uint32)")
    made = apply(w, "mulhi", uint32, x, y)
    return made if dtype is uint32 else w.cast(made, dtype)


@method
def where(w: TileWriter, condition: Any, x: Any, y: Any) -> SymbolicTile:
    """Select x where the condition holds, else y; both are computed."""
    return select(w, condition, x, y)


@method
def logical_and(w: TileWriter, x: Any, y: Any) -> Any:
    """Whether both elements are nonzero."""
    return binary(w, "bitand", *[w.cast(w.tile(z), bool_) for z in (x, y)])


@method
def logical_or(w: TileWriter, x: Any, y: Any) -> Any:
    """Whether either element is nonzero."""
    return binary(w, "bitor", *[w.cast(w.tile(z), bool_) for z in (x, y)])


@method
def logical_not(w: TileWriter, x: Any) -> Any:
    """Whether the element is 0."""
    return invert(w, w.cast(w.tile(x), bool_))


@builtin
def dot(
    w: TileWriter, input: Any, other: Any, acc: Any = None, input_precision: str | None = None, allow_tf32: Any = None,
    max_num_imprecise_acc: Any = None, out_dtype: Any = float32,
) -> SymbolicTile:  # fmt: skip
    """Multiply two matrices and add `acc`; float32 operands are multiplied in full precision by default."""
    x, y = numeric_tile(input, "tl.dot"), numeric_tile(other, "tl.dot")
    if x.type.dtype is not y.type.dtype:
        raise Refused(
            f"tl.dot takes two tiles of one type, and not {describe(x)} and {describe(y)}: convert one with .to(...)"
        )
    if len(x.shape) == 3 and len(y.shape) == 3 and x.shape[0] == y.shape[0] and x.shape[2] == y.shape[1]:
        return _products(w, x, y, acc, dtype_of(out_dtype))
    if len(x.shape) != 2 or len(y.shape) != 2 or x.shape[1] != y.shape[0]:
        raise Refused(
            f"tl.dot takes tiles [m, k] and [k, n], or [b, m, k] and [b, k, n], and not {list(x.shape)} and "
            f"{list(y.shape)}"
        )
    inner = dot_dtype(x.type.dtype)
    wanted = inner if inner is not float32 else dtype_of(out_dtype)
    total = _accumulator(w, acc, (x.shape[0], y.shape[1]), wanted, inner)
    made = w.make(Dot(x.tile, y.tile, total, _precision(input_precision, allow_tf32)))
    return made if wanted is inner else w.cast(w.held(made, "product"), wanted)


def _products(w: TileWriter, x: SymbolicTile, y: SymbolicTile, acc: Any, wanted: DType) -> SymbolicTile:
    """Multiply batches of matrices as sums of element products: correct but slow."""
    inner = dot_dtype(x.type.dtype)
    wanted = inner if inner is not float32 else wanted
    total = _accumulator(w, acc, (*x.shape[:2], y.shape[2]), wanted, inner)
    left = w.make(ExpandDims(w.cast(x, inner).tile, (3,)))
    right = w.make(ExpandDims(w.cast(y, inner).tile, (1,)))
    made = w.make(Reduce("add", apply(w, "mul", inner, left, right).tile, 2))
    if total is not None:
        made = w.make(Apply("add", (made.tile, total)))
    return made if wanted is inner else w.cast(w.held(made, "product"), wanted)


def _accumulator(w: TileWriter, acc: Any, shape: tuple[int, ...], wanted: DType, inner: DType) -> Any:
    if acc is None:
        return None
    found = numeric_tile(acc, "the accumulator of tl.dot")
    if found.shape != shape:
        raise Refused(f"the accumulator is {describe(found)}, and the product has shape {list(shape)}")
    if found.type.dtype not in (wanted, inner):
        raise Refused(
            f"the accumulator is {describe(found)}, and the product {wanted.name}: say out_dtype, or convert it"
        )
    return w.cast(found, inner).tile


def _precision(word: str | None, allow_tf32: Any) -> Any:
    if word is None:
        return "highest"
    if word in PRECISIONS:
        return word
    if word not in TRITON:
        raise Refused(f"input_precision is one of {', '.join([*PRECISIONS, *TRITON])}, and not {word!r}")
    return TRITON[word]


def _all() -> dict[str, Any]:
    """Return the names of `tl.math`, which `libdevice` has too."""
    own = {name: fn for name, fn in globals().items() if isinstance(fn, Builtin)}
    renamed = {"abs": abs_, "fabs": abs_, "max": maximum, "min": minimum, "rint": _made["round"], "div_rn": div_rn}
    return {**_made, **own, **renamed}


math = SimpleNamespace(**_all())
PropagateNan = SimpleNamespace(NONE=0, ALL=1)
"""Values of `propagate_nan`; accepted, but NaN always propagates."""
