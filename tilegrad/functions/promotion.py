"""Promote operands to a common dtype, as PyTorch does.

Types have a category: bool, integer, floating-point. Tensors with axes decide; a tensor without axes counts only if its
category is higher, and a Python number only if its category is higher than that of all tensors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from ..config import settings
from ..errors import ArgumentError, DivisionError, DTypeError
from ..ir.dtype import DType, bfloat16, bool_, float16, float32, float64, from_numpy_dtype, int64, promote
from ..ir.graph import Input, TensorType, Value
from ..ir.node import amend
from ..lazy.handle import Handle, read_outside, state
from ..ops.broadcasting import Fill
from ..ops.cast import cast
from ..runtime.device import device

if TYPE_CHECKING:
    from ..tensor import Tensor

Number: TypeAlias = "bool | int | float"
Tensors: TypeAlias = Any
"""Tensors, or one list of them."""
Shapes: TypeAlias = Any
"""A shape, or its sizes."""
Operand: TypeAlias = "Tensor | bool | int | float"

CATEGORY = {"bool": 0, "uint": 1, "int": 1, "float": 2}

_default: DType = float32


def get_default_dtype() -> DType:
    """Return the dtype of floating-point tensors for which none is given."""
    if state.trace is not None:
        read_outside(_default_now)
    return _default


def _default_now() -> DType:
    return _default


def set_default_dtype(d: DType) -> None:
    """Set the dtype of floating-point tensors for which none is given."""
    global _default
    read_outside(_default_now)  # a traced function is compiled for what its caller has
    if d not in (float16, bfloat16, float32, float64):
        raise DTypeError(f"the default dtype must be a floating-point type, not {d!r}")
    _default = d
    _constants.clear()


def number_dtype(x: Number) -> DType:
    """Return the dtype of a Python number."""
    if isinstance(x, bool):
        return bool_
    return int64 if isinstance(x, int) else get_default_dtype()


def result_type(*operands: Any) -> DType:
    """Return the dtype to which tensors and numbers are promoted.

    >>> import tilegrad as tg
    >>> tg.result_type(tg.ones(2, dtype=tg.int32), 1.5), tg.result_type(tg.ones(2, dtype=tg.int8), 3)
    (tilegrad.float32, tilegrad.int8)
    """
    met: list[DType | None] = [None, None, None]  # of tensors with axes, of those without, of numbers
    for x in operands:
        if isinstance(x, DType):
            rank, dtype = 0, x
        elif isinstance(x, (Handle, Value)):
            value = x.value if isinstance(x, Handle) else x
            rank, dtype = (0 if value.type.shape else 1), value.type.dtype
            if value.provenance.is_weak:  # it stands for a Python number
                rank, dtype = 2, int64 if dtype is int64 else get_default_dtype()
        elif isinstance(x, (bool, int, float)):
            rank, dtype = 2, number_dtype(x)
        else:
            raise ArgumentError(f"result_type takes tensors and numbers, not {kind_of(x)}")
        known = met[rank]
        met[rank] = dtype if known is None else promote(known, dtype)
    result = None
    for dtype_or_none in reversed(met):
        result = _stronger(dtype_or_none, result)
    assert result is not None, "result_type of nothing"
    return result


def _stronger(high: DType | None, low: DType | None) -> DType | None:
    """Promote two dtypes of different rank: the lower rank counts only if its category is higher."""
    if high is None or low is None:
        return high if low is None else low
    return low if CATEGORY[low.kind] > CATEGORY[high.kind] else high


def can_cast(from_: DType, to: DType) -> bool:
    """Test whether a result of one dtype may be stored in place in a tensor of another."""
    if not isinstance(from_, DType) or not isinstance(to, DType):
        raise ArgumentError(f"can_cast takes two dtypes, not {kind_of(from_)} and {kind_of(to)}")
    return CATEGORY[from_.kind] <= CATEGORY[to.kind]


def promote_types(type1: DType, type2: DType) -> DType:
    """Return the dtype to which two dtypes are promoted."""
    if not isinstance(type1, DType) or not isinstance(type2, DType):
        raise ArgumentError(f"promote_types takes two dtypes, not {kind_of(type1)} and {kind_of(type2)}")
    return promote(type1, type2)


_constants: dict[tuple[float, DType, str], Value] = {}


def constant(x: Number, dtype: DType, device: str = "cpu") -> Value:
    """Return a number as a value without axes; equal numbers share one value."""
    if x == 0 or x != x:  # 0.0 and -0.0 are equal, NaN equals nothing
        return Fill(_fitting(x, dtype), TensorType(dtype, (), device))
    key = (x, dtype, device)
    found = _constants.get(key)
    if found is None:
        if len(_constants) > 4096:
            _constants.clear()
        found = _constants[key] = Fill(_fitting(x, dtype), TensorType(dtype, (), device))
        amend(found, location=None)  # it belongs to no line more than to another,
        found.note().is_interned = True  # nor to the tensor that was filled with it
    return found


def _fitting(x: Number, dtype: DType) -> Number:
    if dtype.is_float:
        try:
            return float(x)
        except OverflowError:
            raise OverflowError(f"{kind_of(x)} does not fit in {dtype.name}") from None
    if dtype is bool_:
        return bool(x)
    if isinstance(x, float) and not math.isfinite(x):
        raise DTypeError(f"{x} is no {dtype.name}; convert the tensor first, as in x.to(tilegrad.float32)")
    if not dtype.min <= x <= dtype.max:
        if dtype.kind != "uint" or isinstance(x, float) or not -dtype.max <= x < 0:
            raise RangeError(int(x), dtype)
        x += dtype.max + 1  # -1 is the greatest, as in PyTorch
    return int(x)


@lru_cache(4096)
def holds(dtype: DType, x: float) -> bool:
    """Test whether a dtype represents a number exactly.

    >>> holds(float16, 0.5), holds(float16, 0.1), holds(float16, 1e5), holds(float16, math.inf)
    (True, False, False, True)
    """
    with np.errstate(over="ignore"):
        return float(np.float64(x).astype(dtype.numpy)) == x or x != x


class RangeError(DTypeError):
    """A number outside the range of an integer dtype."""

    def __init__(self, number: int, dtype: DType) -> None:
        super().__init__(f"{number} does not fit in {dtype.name}, which holds {dtype.min} to {dtype.max}")
        self.number = number


def kind_of(x: object) -> str:
    """Describe an argument in words for a message."""
    if isinstance(x, int) and abs(x) > 10**30:
        return f"a number of {int(x.bit_length() * 0.30103) + 1} digits"
    if isinstance(x, (str, int, float, type(None))):
        return f"{x!r} ({type(x).__name__})"
    made_by = type(x).__module__.partition(".")[0]
    # tensors of other libraries have the same name as ours
    return f"a {type(x).__name__}" + (f" of {made_by}" if type(x).__name__ == "Tensor" else "")


def as_number(x: Any) -> Number | None:
    """Convert a Python or numpy number to a Python number; None for anything else."""
    if isinstance(x, (bool, int, float)):
        return x
    if type(x).__module__ in ("numpy", "ml_dtypes") and getattr(x, "shape", None) == ():
        return x.item()  # type: ignore[no-any-return]
    return None


TENSORS_ONLY = frozenset(
    "atan2 dist fmax fmin gcd hypot lcm lerp logaddexp logaddexp2 maximum minimum nextafter addcmul addcdiv".split()
)
"""Functions that take no number in place of a tensor, as in PyTorch."""
TENSOR_FIRST = TENSORS_ONLY | frozenset("eq ne lt le gt ge fmod copysign ldexp".split())
"""Functions whose first operand must be a tensor."""


def pair(x: Operand, y: Operand, op: str = "this operation") -> tuple[Value, Value]:
    """Convert two operands to values of one dtype."""
    if isinstance(x, Handle):
        a = x.value
        if isinstance(y, Handle):
            b = y.value
            dtype = a.type.dtype
            if dtype is b.type.dtype:
                return a, b
            met = result_type(a, b)
            return cast(a, met), cast(b, met)
        return _with_number(a, y, op)
    if isinstance(y, Handle):
        return _after_number(x, y.value, op)
    raise ArgumentError(f"{op} needs a tensor; {kind_of(x)} and {kind_of(y)} are none: use tilegrad.tensor(...)")


def floating_pair(x: Operand, y: Operand, op: str) -> tuple[Value, Value]:
    """Convert two operands to floating-point values of one dtype."""
    if isinstance(x, Handle) and not isinstance(y, Handle) and not x.value.type.dtype.is_float:
        return _with_number(cast(x.value, get_default_dtype()), y, op)
    if isinstance(y, Handle) and not isinstance(x, Handle) and not y.value.type.dtype.is_float:
        return _after_number(x, cast(y.value, get_default_dtype()), op)
    if isinstance(x, Handle) and isinstance(y, Handle) and not (x.value.dtype.is_float or y.value.dtype.is_float):
        # each by itself: the type of both would wrap a negative number without axes beside uint8
        return cast(x.value, get_default_dtype()), cast(y.value, get_default_dtype())
    a, b = pair(x, y, op)
    return (a, b) if a.type.dtype.kind == "float" else (cast(a, get_default_dtype()), cast(b, get_default_dtype()))


WRAPPING = ("add", "sub", "mul")
"""Functions with the same result whether operands or results wrap around."""


def _within(number: Number, dtype: DType, op: str) -> Number:
    """Return an integer for `op`, wrapped to the width of a dtype where that does not change the result."""
    if op in WRAPPING and isinstance(number, int) and dtype.is_integer and not dtype.min <= number <= dtype.max:
        if not -(1 << 63) <= number < 1 << 64:
            raise RangeError(number, dtype)
        number = (number - dtype.min) % (1 << dtype.bits) + dtype.min
    return number


def _after_number(x: Any, y: Value, op: str) -> tuple[Value, Value]:
    if op in TENSOR_FIRST:
        raise no_tensor(x, op)
    b, a = _with_number(y, x, op)
    return a, b


def _with_number(x: Value, y: Any, op: str) -> tuple[Value, Value]:
    if op in TENSORS_ONLY:
        raise no_tensor(y, op)
    kind = x.type.dtype.kind
    if kind != "float" or not isinstance(y, (float, int)):
        number = as_number(y)
        if number is None:
            other = _array_operand(y, op, x.device)
            met = result_type(x, other)
            return cast(x, met), cast(other, met)
        y = number
        met = result_type(x, y)
        x = cast(x, met)
        y = _within(y, met, op)
    return x, constant(y, x.type.dtype, x.type.device)


def _array_operand(x: Any, op: str, name: str) -> Value:
    """Copy the elements of a numpy array; a traced function would keep the elements of the first call."""
    if not isinstance(x, np.ndarray) or state.trace is not None:
        raise refused(op, x)
    dtype = from_numpy_dtype(x.dtype.newbyteorder("="))
    if dtype is None:
        raise refused(op, x)
    return held(np.ascontiguousarray(x, dtype.numpy).reshape(x.shape), dtype, name)


def held(array: np.ndarray[Any, Any], dtype: DType, name: str, share: bool = False) -> Value:
    """Return the elements of a dense array on a device, sharing its memory if that is asked for and possible."""
    target = device(name)
    buffer = target.adopt(array) if share else None
    value = Input(TensorType(dtype, array.shape, target.name))
    value.hold(target.from_host(array) if buffer is None else buffer)
    return value


def refused(op: str, x: object) -> ArgumentError:
    """Return the error for an operand that is neither a tensor nor a number."""
    return ArgumentError(f"{op} takes tensors and numbers, not {kind_of(x)}; wrap it: tilegrad.tensor(...)")


def together(operands: Sequence[Operand], op: str) -> list[Value]:
    """Convert several operands, at least one of them a tensor, to values of one dtype."""
    name = next((x.value.type.device for x in operands if isinstance(x, Handle)), "cpu")
    given: list[Value | Number] = []
    for x in operands:
        if op in TENSORS_ONLY and not isinstance(x, Handle):
            raise no_tensor(x, op)
        number = x.value if isinstance(x, Handle) else as_number(x)
        given.append(_array_operand(x, op, name) if number is None else number)
    met = result_type(*given)
    return [cast(x, met) if isinstance(x, Value) else constant(x, met, name) for x in given]


def refuse_zeros(divisor: Value, x: Value, op: str) -> None:
    """Raise for an integer division by 0 if the divisor is known; TILEGRAD_CHECK=division computes it."""
    if isinstance(divisor, Fill):
        zero = divisor.value == 0 and 0 not in x.shape
    else:
        from ..lazy.known_zeros import has_zero  # few programs divide integers by tensors

        sized = state.trace is None and isinstance(divisor.type.count, int) and 0 not in x.shape
        zero = sized and has_zero(divisor, "division" in settings().check)
    if zero:
        raise DivisionError(f"{op}: integers of {x.dtype.name} are divided by 0")


def operands(given: Sequence[Any], op: str) -> list[Value]:
    """Return the values of tensors; numpy arrays may be among them, but not alone."""
    name = next((x.value.type.device for x in given if isinstance(x, Handle)), None)
    if name is None or not any(isinstance(x, np.ndarray) for x in given):
        return [value_of(x, op) for x in given]
    return [x.value if isinstance(x, Handle) else _array_operand(x, op, name) for x in given]


def value_of(x: Any, op: str) -> Value:
    """Return the value of an argument that must be a tensor."""
    if isinstance(x, Handle):
        return x.value
    raise no_tensor(x, op)


def no_tensor(x: Any, op: str) -> ArgumentError:
    """Return the error for an argument that must be a tensor."""
    return ArgumentError(f"{op} takes a tensor, not {kind_of(x)}; wrap it: tilegrad.tensor(...)")


def numbers_of(x: Any, op: str) -> Value:
    """Return the value of an argument whose elements must not be bools."""
    value = value_of(x, op)
    if value.type.dtype is bool_:
        raise DTypeError(f"{op} takes numbers, not bools; convert them first, as in x.int()")
    return value


def floats_of(x: Any, op: str) -> Value:
    """Return the value of an argument whose elements must be floating-point numbers."""
    value = value_of(x, op)
    if value.type.dtype.kind != "float":
        raise DTypeError(
            f"{op} takes floating-point elements, not {value.dtype.name}; convert them first, as in x.float()"
        )
    return value


def floating(x: Any, op: str) -> Value:
    """Convert an argument to floating-point elements: integers and bools get the default dtype."""
    value = x.value if isinstance(x, Handle) else value_of(x, op)
    return value if value.type.dtype.kind == "float" else cast(value, get_default_dtype())
