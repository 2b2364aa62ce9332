"""Define element-wise comparisons."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..errors import ArgumentError, DTypeError
from ..ir.dtype import bool_
from ..ir.graph import Value
from ..lazy.handle import Handle
from ..ops import comparison
from ..ops.broadcasting import fill
from .declared import publish
from .pointwise import elementwise, few, named, unary
from .promotion import Operand, RangeError, pair, value_of

if TYPE_CHECKING:
    from ..tensor import Tensor


def _comparison(op: Callable[[Value, Value], Value], symbol: str) -> Callable[..., Tensor]:
    """Return a comparison. A number outside the range of the dtype is less, or greater, than all elements."""
    name = op.__name__
    compared: Callable[[Any, Any], bool] = vars(operator)[name]

    def compare(input: Operand, other: Operand) -> Tensor:
        if isinstance(input, Handle) and (made := few.combined(compared, input, other)) is not None:
            return made
        try:
            return elementwise(op(*pair(input, other, name)), input, other)
        except RangeError as beyond:
            number, x = (other, input) if isinstance(input, Handle) else (input, other)
            if not isinstance(x, Handle) or isinstance(number, Handle):
                raise
            above = (beyond.number > 0) == (number is other)
            truth = above if name in ("lt", "le") else not above if name in ("gt", "ge") else name == "ne"
            return elementwise(fill(truth, x.value.shape, bool_, x.value.device), input, other)

    return named(compare, name, f"Compare element-wise: input {symbol} other.")


eq, ne = _comparison(comparison.eq, "=="), _comparison(comparison.ne, "!=")
lt, le = _comparison(comparison.lt, "<"), _comparison(comparison.le, "<=")
gt, ge = _comparison(comparison.gt, ">"), _comparison(comparison.ge, ">=")
isnan = unary(comparison.isnan, value_of, "Test each element for NaN.")
isinf = unary(comparison.isinf, value_of, "Test each element for an infinity.")
isfinite = unary(comparison.isfinite, value_of, "Test each element for being neither infinite nor NaN.")


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
