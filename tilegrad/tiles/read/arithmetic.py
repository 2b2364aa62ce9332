"""Type-check and build operators on tiles and numbers, with Triton's promotion rules.

A Python number takes the type of the tile operand unless its kind (bool, integer, float) is higher. Two tiles promote
to the wider type; a signed and an unsigned integer of one width to the unsigned type; float16 and bfloat16 to float32.
Quotients are floats, float32 at least. `//` and `%` truncate towards zero, as in C.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from ...ir.dtype import DType, bfloat16, bool_, float16, float32, float64
from ...ir.tile import Apply, Bitcast, Literal
from ...ir.tile_types import Refused, TileType
from .values import Operand, SymbolicTile, describe, is_number, number_dtype
from .writer import TileWriter, in_dtype

KINDS = {"bool": 0, "uint": 1, "int": 1, "float": 2}
PYTHON_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "pow": operator.pow,
    "bitand": operator.and_,
    "bitor": operator.or_,
    "bitxor": operator.xor,
    "shl": operator.lshift,
    "shr": operator.rshift,
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}
"""Implementations of the operators on Python numbers, for constant folding."""
COMPARISONS = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})
SYMBOLS = {"add": "+", "sub": "-", "mul": "*", "div": "/", "floordiv": "//", "mod": "%", "bitand": "&", "bitor": "|"}


def promoted_dtype(x: Operand, y: Operand, division: bool = False) -> DType:
    """Return the common dtype of two operands."""
    a, b = _dtype_of(x), _dtype_of(y)
    if is_number(x) != is_number(y):
        number, tile = (a, b) if is_number(x) else (b, a)
        if KINDS[number.kind] <= KINDS[tile.kind]:
            return float32 if division and tile in (float16, bfloat16) else tile
    for wide in (float64, float32):
        if wide in (a, b):
            return wide
    if float16 in (a, b) or bfloat16 in (a, b):
        return _with_half(a, b, division)
    return _integers(a, b)


def _with_half(a: DType, b: DType, division: bool) -> DType:
    """Return the common dtype of a 16-bit float and another dtype of at most 16 bits or of integers."""
    if division or (a is not b and a.is_float and b.is_float):
        return float32
    return a if a.is_float else b


def _dtype_of(x: Operand) -> DType:
    return x.type.dtype if isinstance(x, SymbolicTile) else number_dtype(x)


def _integers(a: DType, b: DType) -> DType:
    if bool_ in (a, b):
        return b if a is bool_ else a
    if a.kind == b.kind:
        return a if a.bits >= b.bits else b
    unsigned, signed = (a, b) if a.kind == "uint" else (b, a)
    return unsigned if unsigned.bits >= signed.bits else signed


def binary(w: TileWriter, fn: str, x: Any, y: Any) -> Any:
    """Apply a binary operator to two operands; fold constants."""
    if is_number(x) and is_number(y):
        return _of_numbers(fn, x, y)
    wrong = [z for z in (x, y) if not isinstance(z, SymbolicTile) and not is_number(z)]
    if wrong:
        raise Refused(f"{describe(wrong[0])} is neither a tile nor a number: there is no {SYMBOLS.get(fn, fn)} for it")
    if _is_pointer(x) or _is_pointer(y):
        return offset_pointer(w, fn, x, y)
    if fn in ("add", "sub", "mul", "floordiv") and is_number(y) and _is_identity(fn, x, y):
        return x
    if fn in ("add", "mul") and is_number(x) and _is_identity(fn, y, x):
        return y
    return _of_tiles(w, fn, x, y)


def _of_tiles(w: TileWriter, fn: str, x: Operand, y: Operand) -> Any:
    dtype = promoted_dtype(x, y, fn in ("div", "mod", "floordiv"))
    if fn == "div" and not dtype.is_float:
        dtype = float32
    if fn in ("floordiv", "mod"):
        fn = _division_names(fn, dtype)
    if fn in ("add", "sub", "mul") and dtype is bool_:
        raise Refused(f"{SYMBOLS[fn]} of two truth values: convert them with .to(tl.int32), or join them with & and |")
    return apply(w, fn, dtype, x, y)


def _of_numbers(fn: str, x: Any, y: Any) -> Any:
    try:
        return PYTHON_OPERATORS[fn](x, y)
    except (ZeroDivisionError, TypeError, OverflowError, ValueError) as error:
        raise Refused(str(error)) from None


def _is_identity(fn: str, tile: SymbolicTile, number: Any) -> bool:
    """Whether x + 0, x * 1 and the like can be replaced by x without changing its type."""
    return tile.type.dtype.is_integer and not isinstance(number, float) and number == (0 if fn in ("add", "sub") else 1)


def _division_names(fn: str, dtype: DType) -> str:
    """Return the names of the functions for `//` and `%` in a dtype."""
    if dtype.is_float:
        if fn == "floordiv":
            raise Refused("// is for integers, and these are floats: write tl.floor(x / y)")
        return "fmod"
    if dtype.kind == "int":
        return "truncdiv" if fn == "floordiv" else "fmod"
    return fn


def apply(w: TileWriter, fn: str, dtype: DType, *operands: Operand) -> SymbolicTile:
    """Convert operands to a dtype and apply a scalar function; at least one operand is a tile."""
    return w.make(Apply(fn, tuple([w.operand(x, dtype) for x in operands])))


def offset_pointer(w: TileWriter, fn: str, x: Any, y: Any) -> SymbolicTile:
    """Offset a pointer by a number of elements."""
    pointer, distance = (x, y) if _is_pointer(x) else (y, x)
    if fn not in ("add", "sub") or _is_pointer(distance) or (pointer is not x and fn == "sub"):
        raise Refused("to a pointer integers can be added and subtracted, and nothing else be done")
    if isinstance(distance, SymbolicTile):
        if not distance.type.dtype.is_integer:
            raise Refused(f"a pointer moves by integers, and not by {describe(distance)}")
        return w.make(Apply(fn, (pointer.tile, distance.tile)))
    if not isinstance(distance, int) or isinstance(distance, bool):
        raise Refused(f"a pointer moves by integers, and not by {distance!r}")
    return pointer if distance == 0 else w.make(Apply(fn, (pointer.tile, Literal(distance))))


def _is_pointer(x: Any) -> bool:
    """Whether an operand is a tile of addresses."""
    return isinstance(x, SymbolicTile) and x.type.pointer


def compare(w: TileWriter, fn: str, x: Any, y: Any) -> Any:
    """Compare two operands; constants that are not numbers can be compared too (`x.dtype == tl.float16`)."""
    if isinstance(x, SymbolicTile) or isinstance(y, SymbolicTile):
        return binary(w, fn, x, y)
    if not (is_number(x) and is_number(y)) and fn not in ("eq", "ne"):
        raise Refused(f"{describe(x)} and {describe(y)} have no order")
    return PYTHON_OPERATORS[fn](x, y)


def negate(w: TileWriter, x: Any) -> Any:
    """Negate x."""
    if not isinstance(x, SymbolicTile):
        return -x
    return w.make(Apply("neg", (numeric_tile(x, "-x").tile,)))


def invert(w: TileWriter, x: Any) -> Any:
    """Invert the bits of integers, or negate truth values."""
    if isinstance(x, bool):
        return not x
    if not isinstance(x, SymbolicTile):
        return ~x
    return w.make(Apply("invert", (numeric_tile(x, "~x").tile,)))


def to_bool(w: TileWriter, x: Any) -> Any:
    """Convert a tile or number to truth values: x != 0."""
    if not isinstance(x, SymbolicTile):
        return bool(x)
    return w.cast(numeric_tile(x, "a condition"), bool_)


def numeric_tile(x: Any, role: str) -> SymbolicTile:
    """Return an operand that must be a tile of numbers, not of pointers."""
    if not isinstance(x, SymbolicTile):
        raise Refused(f"{role} takes a tile, and not {describe(x)}")
    if x.type.pointer:
        raise Refused(f"{role} takes numbers, and this is a pointer: read through it with tl.load")
    return x


def convert(w: TileWriter, x: Any, dtype: DType, bitcast: bool = False) -> Any:
    """Convert elements to a dtype, by value or (`bitcast`) by bits."""
    if not isinstance(dtype, DType):
        raise Refused(f"{describe(dtype)} is no element type: write tl.float32, tl.int64, ...")
    if not isinstance(x, SymbolicTile):
        if dtype.is_integer and not isinstance(x, float):
            return in_dtype(x, dtype)
        x = w.tile(x)
    if bitcast:
        return x if x.type.dtype is dtype else w.make(Bitcast(numeric_tile(x, "a bitcast").tile, dtype))
    return w.cast(x, dtype)


def common_dtype(operands: tuple[Operand, ...]) -> DType:
    """Return the common dtype of several operands; tiles take precedence over numbers."""
    ordered = sorted(operands, key=is_number)
    whole = ordered[0]
    dtype = whole.type.dtype if isinstance(whole, SymbolicTile) else number_dtype(whole)
    for x in ordered[1:]:
        dtype = promoted_dtype(whole, x)
        whole = SymbolicTile(Literal(0), TileType(dtype)) if isinstance(whole, SymbolicTile) else whole
    return dtype


def select(w: TileWriter, condition: Any, x: Operand, y: Operand) -> SymbolicTile:
    """Select x where the condition holds, else y."""
    if isinstance(condition, bool | int):
        return w.tile(x if condition else y)
    dtype = common_dtype((x, y))
    if any(isinstance(z, SymbolicTile) and z.type.pointer for z in (x, y)):
        if not all(isinstance(z, SymbolicTile) and z.type.pointer for z in (x, y)):
            raise Refused("tl.where chooses between two pointers, or between two numbers")
        raise Refused("tl.where does not choose between pointers: choose between the offsets, or load under masks")
    return w.make(Apply("where", (to_bool(w, condition).tile, w.operand(x, dtype), w.operand(y, dtype))))
