"""Element functions and conversions as C++ expressions.

float16, bfloat16 and 8-bit floats are computed in float and rounded after each function. Integers of less than 32 bits
are truncated to their type, since C++ computes in int. Signed overflow is undefined in C++ and wraps here: except in
positions, integer arithmetic calls functions that compute unsigned.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ....ir.dtype import FLOAT8, DType, bfloat16, bool_, float8_e4m3fn, float8_e5m2, float16, float32, float64
from ....ir.functions import convert
from .checked_indices import RECORD
from .hardware import REGISTER_BITS

TERNARY, OR, AND, BITOR, BITXOR, BITAND, EQUAL, COMPARE, SHIFT, SUM, PRODUCT, UNARY, ATOM = range(13)
"""Precedence of C++ operators."""

TYPES = {
    "bool": "bool",
    "uint8": "uint8",
    "uint16": "uint16",
    "uint32": "uint32",
    "uint64": "uint64",
    "int8": "int8",
    "int16": "int16",
    "int32": "int",
    "int64": "int64",
    "float16": "float",
    "bfloat16": "float",
    "float8_e4m3fn": "float",
    "float8_e5m2": "float",
    "float32": "float",
    "float64": "double",
}
"""C++ types in which elements are computed."""

LOW_PRECISION_FLOATS = {float16: "half", bfloat16: "bfloat16", float8_e4m3fn: "float8_e4m3", float8_e5m2: "float8_e5m2"}
"""Floats computed as float, with their types in memory."""

MEMORY = TYPES | {"bool": "uint8"} | {d.name: name for d, name in LOW_PRECISION_FLOATS.items()}
"""C++ types of elements in memory."""


class Text(NamedTuple):
    """A C++ expression and the precedence of its outermost operator."""

    text: str
    binds: int = ATOM

    def within(self, binds: int) -> str:
        """Return the text, in parentheses if its precedence is lower than that of the context."""
        return self.text if self.binds >= binds else f"({self.text})"

    def __str__(self) -> str:
        return self.text


def literal(value: float | int | bool, dtype: DType) -> Text:
    """Return a number of a dtype.

    >>> from ....ir.dtype import int64, uint32
    >>> [literal(*x).text for x in ((0.1, float32), (-3, int64), (1 << 31, uint32), (float("-inf"), float64))]
    ['0.1f', '-3ll', '2147483648u', '-infinity<double>()']
    """
    if dtype is bool_:
        return Text("true" if value else "false")
    if dtype.is_float:
        return _float(float(value), dtype)
    value = int(value)
    if dtype.bits < REGISTER_BITS:
        return Text(f"{TYPES[dtype.name]}({value})")
    wide = {"uint32": "u", "uint64": "ull", "int64": "ll"}.get(dtype.name, "")
    if value == dtype.min < 0:
        return Text(f"{value + 1}{wide} - 1", SUM)
    return Text(f"{value}{wide}", UNARY if value < 0 else ATOM)


def _float(value: float, dtype: DType) -> Text:
    if dtype is not float64:
        value = rounded(value, dtype)
    name = "double" if dtype is float64 else "float"
    if not math.isfinite(value):
        text = f"not_a_number<{name}>()" if value != value else f"{'-' if value < 0 else ''}infinity<{name}>()"
        return Text(text, UNARY if value < 0 else ATOM)
    text = repr(value)
    if dtype is not float64:
        text = next(t for n in range(1, 18) if rounded(float(t := f"{value:.{n}g}"), float32) == value)
    if not any(c in text for c in ".e"):
        text += ".0"
    suffix = "" if dtype is float64 else "f"
    return Text(text + suffix, UNARY if text.startswith("-") else ATOM)


def rounded(value: float, dtype: DType) -> float:
    """Round to the nearest number of a dtype.

    >>> rounded(1 / 3, bfloat16), rounded(70000.0, float16)
    (0.333984375, inf)
    """
    if dtype in FLOAT8:
        return float(convert(value, dtype))
    if not math.isfinite(value) or dtype is float64:
        return value
    try:
        if dtype is float16:
            return float(struct.unpack("e", struct.pack("e", value))[0])
        single = struct.pack("f", value)
    except OverflowError:
        return math.copysign(math.inf, value)
    if dtype is bfloat16:
        bits = int(struct.unpack("I", single)[0])
        bits += 0x7FFF + (bits >> 16 & 1)
        single = struct.pack("I", bits & 0xFFFF0000)
    return float(struct.unpack("f", single)[0])


def call(name: str, *args: Text | str) -> Text:
    return Text(f"{name}({', '.join(map(str, args))})")


def binary(symbol: str, binds: int, x: Text, y: Text, *, free: bool = True) -> Text:
    """Return `x symbol y`; unless `free`, a right operand of the same precedence gets parentheses."""
    return Text(f"{x.within(binds)} {symbol} {y.within(binds if free else binds + 1)}", binds)


# --- one rule for each function ------------------------------------------------------------------

FunctionWriter = Callable[[DType, Sequence[Text], bool], Text]
"""Writes a function: (common dtype of the arguments, arguments, whether it computes a position)."""

_LIBRARY = (
    "exp exp2 expm1 log log2 log10 log1p sqrt sin cos tan asin acos atan atan2 sinh cosh tanh asinh acosh atanh erf "
    "erfc floor ceil trunc"
).split()
_EXACT = frozenset("neg abs maximum minimum copysign floor ceil trunc round where".split())
"""Functions whose results need no rounding: they are representable if the arguments are."""


def library(name: str, dtype: DType) -> str:
    """Return a function of the mathematics library for float or double."""
    return name if dtype is float64 else f"{name}f"


def _arithmetic(symbol: str, binds: int, wrapping: str) -> FunctionWriter:
    def rule(dtype: DType, args: Sequence[Text], position: bool) -> Text:
        if dtype.kind == "int" and dtype.bits >= REGISTER_BITS and not position:
            return call(wrapping, *args)
        # float arithmetic is not associative: keep the parentheses
        return binary(symbol, binds, args[0], args[1], free=symbol != "-" and not dtype.is_float)

    return rule


def _neg(dtype: DType, args: Sequence[Text], position: bool) -> Text:
    if dtype.kind == "int" and dtype.bits >= REGISTER_BITS and not position:
        return call("minus", f"{TYPES[dtype.name]}(0)", args[0])
    return Text(f"-{args[0].within(ATOM)}", UNARY)


def _abs(dtype: DType, args: Sequence[Text], position: bool) -> Text:
    if dtype.kind == "uint":
        return args[0]
    return call(library("fabs", dtype) if dtype.is_float else "absolute", *args)


def _helper(name: str) -> FunctionWriter:
    return lambda dtype, args, position: call(name, *args)


def _library(name: str) -> FunctionWriter:
    return lambda dtype, args, position: call(library(name, dtype), *args)


def _fmod(dtype: DType, args: Sequence[Text], position: bool) -> Text:
    return call(library("fmod", dtype), *args) if dtype.is_float else call("remainder_of", *args)


def _truncdiv(dtype: DType, args: Sequence[Text], position: bool) -> Text:
    if dtype.is_float:
        return call(library("trunc", dtype), binary("/", PRODUCT, args[0], args[1], free=False))
    return call("quotient", *args)


def _pow(dtype: DType, args: Sequence[Text], position: bool) -> Text:
    return call(library("pow", dtype), *args) if dtype.is_float else call("power", *args)


def _compare(symbol: str) -> FunctionWriter:
    binds = EQUAL if symbol in ("==", "!=") else COMPARE
    return lambda dtype, args, position: binary(symbol, binds, args[0], args[1], free=False)


def _logical(symbol: str, binds: int, word: str, word_binds: int) -> FunctionWriter:
    def rule(dtype: DType, args: Sequence[Text], position: bool) -> Text:
        if dtype is bool_:
            return binary(word, word_binds, args[0], args[1])
        return Text(f"{args[0].within(SHIFT)} {symbol} {args[1].within(SHIFT)}", binds)

    return rule


def _bitxor(dtype: DType, args: Sequence[Text], position: bool) -> Text:
    if dtype is bool_:
        return binary("!=", EQUAL, args[0], args[1], free=False)
    return Text(f"{args[0].within(SHIFT)} ^ {args[1].within(SHIFT)}", BITXOR)


_WRITERS: dict[str, FunctionWriter] = {
    "add": _arithmetic("+", SUM, "plus"),
    "sub": _arithmetic("-", SUM, "minus"),
    "mul": _arithmetic("*", PRODUCT, "times"),
    "div": lambda dtype, args, position: binary("/", PRODUCT, args[0], args[1], free=False),
    "floordiv": _helper("floor_divide"),
    "mod": _helper("modulo"),
    "truncdiv": _truncdiv,
    "fmod": _fmod,
    "pow": _pow,
    "neg": _neg,
    "abs": _abs,
    "maximum": _helper("maximum"),
    "minimum": _helper("minimum"),
    "fma": lambda dtype, args, position: binary("+", SUM, binary("*", PRODUCT, args[0], args[1], free=False), args[2]),
    "mulhi": lambda dtype, args, position: call("__umulhi", *args),
    "copysign": _library("copysign"),
    "eq": _compare("=="),
    "ne": _compare("!="),
    "lt": _compare("<"),
    "le": _compare("<="),
    "gt": _compare(">"),
    "ge": _compare(">="),
    "isnan": lambda dtype, args, position: call("is_nan", *args),
    "isinf": lambda dtype, args, position: call("is_infinite", *args),
    "bitand": _logical("&", BITAND, "&&", AND),
    "bitor": _logical("|", BITOR, "||", OR),
    "bitxor": _bitxor,
    "invert": lambda dtype, args, position: Text(("!" if dtype is bool_ else "~") + args[0].within(UNARY), UNARY),
    "shl": _helper("shift_left"),
    "shr": _helper("shift_right"),
    "round": _library("rint"),
    "rsqrt": lambda dtype, args, position: call("inverse_root", *args),
    "sigmoid": lambda dtype, args, position: call("sigmoid", *args),
    "inside": lambda dtype, args, position: call("clamp_index", *args, RECORD),
    "where": lambda dtype, args, position: Text(
        f"{args[0].within(OR)} ? {args[1].within(OR)} : {args[2].within(TERNARY)}", TERNARY
    ),
    **{name: _library(name) for name in _LIBRARY},
}


FAST_LOW_PRECISION = {
    "exp": (("__expf", float16), ("__expf", bfloat16)),
    "sigmoid": (("half_precision_sigmoid", float16), ("half_precision_sigmoid", bfloat16)),
    "tanh": (("half_precision_tanh", bfloat16),),
    "erf": (("half_precision_erf", float16), ("half_precision_erf", bfloat16)),
}
"""Fast functions that are accurate enough for 16-bit results."""
FAST_BEFORE_ROUNDING = {"exp": "approximate_exp", "erf": "approximate_erf"}
"""Fast functions, accurate to some millionths, for float32 results that are rounded to 16 bits afterwards."""


def apply_function(fn: str, dtype: DType, args: Sequence[Text], position: bool = False) -> Text:
    """Apply a function of FUNCTIONS; all arguments have this dtype, except the condition of `where`.

    >>> from ....ir.dtype import int32
    >>> x, y = Text("x"), Text("y + 1", SUM)
    >>> print(*[apply_function("mul", dtype, [x, y]) for dtype in (float32, bfloat16, int32)], sep="; ")
    x * (y + 1); as_bfloat16(x * (y + 1)); times(x, y + 1)
    """
    short = next((name for name, narrow in FAST_LOW_PRECISION.get(fn, ()) if narrow is dtype), None)
    made = call(short, *args) if short else _WRITERS[fn](dtype, args, position)
    if fn in ("eq", "ne", "lt", "le", "gt", "ge", "isnan", "isinf"):
        return made
    if dtype in LOW_PRECISION_FLOATS and fn not in _EXACT:
        return narrowed(made, dtype)
    if dtype.is_integer and dtype.bits < REGISTER_BITS:
        return call(TYPES[dtype.name], made)
    return made


def narrowed(x: Text, dtype: DType) -> Text:
    """Round a float to a narrower type."""
    return call(f"as_{LOW_PRECISION_FLOATS[dtype]}", x)


def cast(x: Text, source: DType, target: DType) -> Text:
    """Convert between dtypes; a float beyond an integer's range saturates."""
    if source is target:
        return x
    if target is bool_:
        return binary("!=", EQUAL, x, literal(0, source), free=False)
    if source.is_float and target.is_integer:
        wide = {"uint32": "int64", "int64": "int64", "uint64": "uint64"}.get(target.name, "int")
        made = call(f"whole<{wide}>", x)
        return made if TYPES[target.name] == wide else call(TYPES[target.name], made)
    if target in LOW_PRECISION_FLOATS:
        return _to_low_precision(x, source, target)
    if source in LOW_PRECISION_FLOATS and target is float32:
        return x
    return call(TYPES[target.name], x)


def _to_low_precision(x: Text, source: DType, target: DType) -> Text:
    if source in FLOAT8 and target is float16:
        return x
    if source in LOW_PRECISION_FLOATS or source is float32:
        return narrowed(x, target)
    exact = source is bool_ or (source.bits == 8 and target.bits == 16)
    return call("float", x) if exact else narrowed(call("float", x), target)


def bitcast(x: Text, source: DType, target: DType) -> Text:
    """Reinterpret bits as another dtype."""
    inner = call("stored<" + MEMORY[source.name] + ">", x) if source in LOW_PRECISION_FLOATS else x
    made = call(f"same_bits<{MEMORY[target.name]}>", inner)
    return call("number", made) if target in LOW_PRECISION_FLOATS else made


def from_memory(memory: Text, dtype: DType) -> Text:
    """Convert an element from its memory type to the type it is computed in."""
    if MEMORY[dtype.name] == TYPES[dtype.name]:
        return memory
    if dtype is bool_:
        return Text(f"{memory.within(COMPARE)} != 0", EQUAL)
    return Text(f"number({memory})")


def to_memory(value: Text, dtype: DType) -> Text:
    """Convert a computed element to its memory type."""
    if MEMORY[dtype.name] == TYPES[dtype.name] or dtype is bool_:
        return value
    return Text(f"stored<{MEMORY[dtype.name]}>({value})")
