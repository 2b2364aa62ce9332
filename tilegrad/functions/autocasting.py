"""Apply autocast: choose the dtype of each function, and convert its operands.

Products (matmul, linear, convolutions, attention) take their operands in the low type: PyTorch's list for CPUs. Losses,
softmax, normalisations and sums take float32: PyTorch's list for CPUs and, because it costs nothing where kernels are
fused, the longer one for GPUs. Everything else computes in the type that it is given.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from ..errors import ArgumentError
from ..ir.dtype import DType, bfloat16, float16, float32
from ..ir.graph import Value
from ..ir.precision import PRECISIONS, Precision
from ..lazy.handle import Handle, read_outside, state, wrap
from ..ops.cast import cast

if TYPE_CHECKING:
    from ..tensor import Tensor

P = ParamSpec("P")
R = TypeVar("R")

NARROW = (float16, bfloat16)
CASTABLE = (*NARROW, float32)
"""Dtypes that autocast converts. float64 is left alone, as in PyTorch."""


class Arithmetic(threading.local):
    """The autocast state of each thread."""

    low: tuple[tuple[str, DType], ...] = ()
    """Low-precision dtype of each kind of device for which autocast is on."""


arithmetic = Arithmetic()
_precision: Precision = "highest"


def get_float32_matmul_precision() -> str:
    """Return the precision of float32 matrix products: 'highest', 'high' or 'medium'."""
    note()
    return _precision


def set_float32_matmul_precision(precision: str) -> None:
    """Set the precision of float32 products (matmul, linear, convolutions, attention, recurrent layers).

    'highest': float32. 'high': at least as three products of bfloat16 parts are. 'medium': at least as in bfloat16.
    """
    global _precision
    note()
    _precision = _checked(precision)


def _checked(precision: str) -> Precision:
    if precision not in PRECISIONS:
        raise ArgumentError(f"the precision of float32 products is 'highest', 'high' or 'medium', not {precision!r}")
    return precision


def product_precision(dtype: DType, asked: str | None = None) -> Precision:
    """Return the precision of products of a dtype: that of the call, else that of the process."""
    chosen = None if asked is None else _checked(asked)
    if dtype is not float32:
        return "highest"
    if chosen is None and state.trace is not None:
        note()
    return chosen or _precision


def _now() -> tuple[Any, ...]:
    return (*arithmetic.low, _precision)


def note() -> None:
    """Record the autocast state as part of the key of a jitted function.

    The first time in a trace, before anything could have been changed within it, this is what its caller has on.
    """
    read_outside(_now)


def low_type(device: str) -> DType | None:
    """Return the low-precision dtype of products on a device; None where autocast is off."""
    if state.trace is not None:
        note()
    kind = device.partition(":")[0]
    for name, dtype in arithmetic.low:
        if name == kind:
            return dtype
    return None


def lowered(values: Sequence[Value]) -> list[Value]:
    """Convert the operands of a product to the low-precision dtype where autocast is on."""
    if not arithmetic.low and state.trace is None:
        return list(values)
    low = low_type(values[0].device)
    return list(values) if low is None else [cast(v, low) if v.dtype in CASTABLE else v for v in values]


def widened(value: Value) -> Value:
    """Convert an operand to float32 where autocast is on."""
    if not arithmetic.low and state.trace is None:
        return value
    return cast(value, float32) if low_type(value.device) is not None and value.dtype in NARROW else value


def low(x: Tensor) -> Tensor:
    """Convert a term that is added to a product to the dtype of the product, where autocast is on."""
    value = x.value
    (small,) = lowered([value])
    return x if small is value else wrap(small)


def in_float32(fn: Callable[P, R]) -> Callable[P, R]:
    """Wrap a function so that autocast converts its tensors to float32."""

    @wraps(fn)
    def wide(*args: P.args, **kwargs: P.kwargs) -> R:
        if not arithmetic.low and state.trace is None:
            return fn(*args, **kwargs)
        return fn(*map(_wide, args), **{name: _wide(x) for name, x in kwargs.items()})

    return wide


def _wide(x: Any) -> Any:
    if not isinstance(x, Handle):
        return x
    value = x.value
    wide = widened(value)
    return x if wide is value else wrap(wide)
