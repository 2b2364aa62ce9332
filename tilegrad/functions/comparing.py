"""Define element-wise comparisons."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..errors import ArgumentError, DTypeError
from ..ir.dtype import bool_
from ..ir.graph import Value
from ..lazy.handle import Handle
from ..lazy.layout import elementwise
from ..ops import comparison
from ..ops.broadcasting import fill
from .declared import publish
from .promotion import Operand, RangeError, pair, value_of

if TYPE_CHECKING:
    from ..tensor import Tensor


def _compared(op: Callable[[Value, Value], Value], input: Operand, other: Operand, name: str) -> Tensor:
    """Compare. A number outside the range of the dtype is less, or greater, than all elements."""
    try:
        return elementwise(op(*pair(input, other, name)), input, other)
    except RangeError as beyond:
        number, x = (other, input) if isinstance(input, Handle) else (input, other)
        if not isinstance(x, Handle) or isinstance(number, Handle):
            raise
        above = (beyond.number > 0) == (number is other)
        truth = above if name in ("lt", "le") else not above if name in ("gt", "ge") else name == "ne"
        return elementwise(fill(truth, x.value.shape, bool_, x.value.device), input, other)


def eq(input: Operand, other: Operand) -> Tensor:
    """Compare element-wise: input == other."""
    return _compared(comparison.eq, input, other, "eq")


def ne(input: Operand, other: Operand) -> Tensor:
    """Compare element-wise: input != other."""
    return _compared(comparison.ne, input, other, "ne")


def lt(input: Operand, other: Operand) -> Tensor:
    """Compare element-wise: input < other."""
    return _compared(comparison.lt, input, other, "lt")


def le(input: Operand, other: Operand) -> Tensor:
    """Compare element-wise: input <= other."""
    return _compared(comparison.le, input, other, "le")


def gt(input: Operand, other: Operand) -> Tensor:
    """Compare element-wise: input > other."""
    return _compared(comparison.gt, input, other, "gt")


def ge(input: Operand, other: Operand) -> Tensor:
    """Compare element-wise: input >= other."""
    return _compared(comparison.ge, input, other, "ge")


def isnan(input: Tensor) -> Tensor:
    """Test each element for NaN."""
    return elementwise(comparison.isnan(value_of(input, "isnan")), input)


def isinf(input: Tensor) -> Tensor:
    """Test each element for an infinity."""
    return elementwise(comparison.isinf(value_of(input, "isinf")), input)


def isfinite(input: Tensor) -> Tensor:
    """Test each element for being neither infinite nor NaN."""
    return elementwise(comparison.isfinite(value_of(input, "isfinite")), input)


def isclose(input: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> Tensor:
    """Test which elements differ by at most atol + rtol * |other|."""
    if input.dtype is not other.dtype:
        raise DTypeError(f"isclose: {input.dtype.name} beside {other.dtype.name}; convert one: y.to(x.dtype)")
    if rtol < 0 or atol < 0:
        raise ArgumentError(f"isclose: rtol={rtol} and atol={atol} must not be negative")
    equal = input == other
    if input.dtype is not bool_:
        equal = equal | (isfinite(other) & ((input - other).abs() <= atol + rtol * other.abs()))
    return equal | (isnan(input) & isnan(other)) if equal_nan else equal


def allclose(input: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> bool:
    """Test whether all elements are close (see `isclose`)."""
    return bool(isclose(input, other, rtol, atol, equal_nan).all())


def equal(input: Tensor, other: Tensor) -> bool:
    """Test whether two tensors have the same shape and equal elements."""
    return input.shape == other.shape and bool((input == other).all())


def compared(fn: Callable[[Operand, Operand], Tensor]) -> Callable[[Tensor, Any], Tensor]:
    """Return the operator `==` or `!=`, for which None, strings and lists are unequal instead of an error."""

    def compare(self: Tensor, other: Any) -> Tensor:
        if other is None or isinstance(other, (str, bytes, list, tuple, dict)):
            return NotImplemented  # type: ignore[no-any-return]
        return fn(self, other)

    return compare


greater, greater_equal, less, less_equal, not_equal = gt, ge, lt, le, ne

publish(globals(), internal=("compared",))
