"""Define element-wise arithmetic, logic and rounding."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..errors import ArgumentError, DTypeError
from ..ir.dtype import bfloat16, bool_, float16, float32, int64, uint8
from ..ir.graph import Value
from ..lazy.handle import Handle
from ..lazy.layout import like
from ..lazy.storage import kept_separate
from ..ops import arithmetic as ops
from ..ops import bits, exponential
from ..ops.broadcasting import Fill
from ..ops.cast import cast, to_bool
from ..ops.control import where as choose
from .comparing import isnan
from .declared import publish
from .pointwise import Ops, binary, elementwise, few, unary
from .promotion import (
    Number,
    Operand,
    as_number,
    constant,
    floating,
    floating_pair,
    floats_of,
    holds,
    kind_of,
    numbers_of,
    pair,
    refuse_zeros,
    refused,
    result_type,
    together,
    value_of,
)

if TYPE_CHECKING:
    from ..tensor import Tensor

rounding = Ops("rounding")

SIXTEEN_BIT_FLOATS = frozenset((float16, bfloat16))
"""Floats that are computed with as float32."""

# --- sums, products, quotients -----------------------------------------------------------------


def add(input: Operand, other: Operand, *, alpha: Number = 1) -> Tensor:
    """Compute input + alpha * other."""
    if alpha.__class__ is int and alpha == 1 and (made := few.combined(operator.add, input, other)) is not None:
        return made
    _check_alpha(alpha, input, other, "add")
    if alpha != 1:
        other = _times(other, alpha, input)
    x, y = pair(input, other, "add")
    return elementwise(ops.Add(x, y) if x.type.dtype is not bool_ else bits.bitwise_or(x, y), input, other)


def _times(other: Operand, alpha: Number, input: Operand) -> Operand:
    """Multiply the second summand by alpha, in the dtype of the sum."""
    if not isinstance(other, Handle):
        return other * alpha
    met = result_type(input, other)
    if met is bool_:
        return mul(other, bool(alpha))
    return mul(other if other.dtype is met else like(cast(other.value, met), other), alpha)


def _check_alpha(alpha: Number, input: Operand, other: Operand, op: str) -> None:
    if isinstance(alpha, bool) and any(isinstance(x, Handle) and x.dtype is not bool_ for x in (input, other)):
        raise DTypeError(f"{op}: alpha={alpha} goes with bools only; give a number")
    if isinstance(alpha, float):
        kinds = [x.value.dtype.kind for x in (input, other) if isinstance(x, Handle)]
        if kinds and "float" not in kinds and not (isinstance(input, float) or isinstance(other, float)):
            raise DTypeError(f"{op}: alpha={alpha} does not go with integers; convert one: x.float()")


def sub(input: Operand, other: Operand, *, alpha: Number = 1) -> Tensor:
    """Compute input - alpha * other."""
    if alpha.__class__ is int and alpha == 1 and (made := few.combined(operator.sub, input, other)) is not None:
        return made
    _check_alpha(alpha, input, other, "sub")
    for x in (input, other):
        if isinstance(x, Handle) and x._value.type.dtype is bool_:
            raise DTypeError("sub: there is no minus for bool elements; use x ^ y, or tilegrad.logical_not(x)")
    if alpha != 1:
        other = _times(other, alpha, input)
    return elementwise(ops.Sub(*pair(input, other, "sub")), input, other)


def rsub(input: Tensor, other: Operand, *, alpha: Number = 1) -> Tensor:
    """Compute other - alpha * input."""
    value_of(input, "rsub")
    return sub(other, input, alpha=alpha)


def mul(input: Operand, other: Operand) -> Tensor:
    """Compute input * other."""
    if (made := few.combined(operator.mul, input, other)) is not None:
        return made
    x, y = pair(input, other, "mul")
    product = _scaled(ops.Mul, x, y, input, other) if x.type.dtype is not bool_ else bits.bitwise_and(x, y)
    return elementwise(product, input, other)


def _scaled(op: Callable[[Value, Value], Value], x: Value, y: Value, input: Operand, other: Operand) -> Value:
    """Multiply or divide. A number keeps its precision and range with elements of 16 bits, as in PyTorch: 0.001 * 1e5
    is 100 in float16, which has no 1e5.
    """
    dtype = x.type.dtype
    if dtype not in SIXTEEN_BIT_FLOATS or (isinstance(input, Handle) and isinstance(other, Handle)):
        return op(x, y)
    number = y if isinstance(input, Handle) else x
    if not isinstance(number, Fill) or holds(dtype, number.value):
        return op(x, y)
    exact = constant(number.value, float32, number.device)
    return cast(op(*(exact if v is number else cast(v, float32) for v in (x, y))), dtype)


def _divided(input: Operand, other: Operand, op: str) -> tuple[Value, Value]:
    """Promote the operands of an integer division; an integer divisor of 0 raises."""
    x, y = pair(input, other, op)
    if x.type.dtype.kind in ("int", "uint"):
        refuse_zeros(y, x, op)
    return x, y


def div(input: Operand, other: Operand, *, rounding_mode: str | None = None) -> Tensor:
    """Divide. Integers give floating-point numbers, unless `rounding_mode` is "floor" or "trunc"."""
    match rounding_mode:
        case None:
            if (made := few.combined(operator.truediv, input, other)) is not None:
                return made
            return elementwise(_scaled(ops.Div, *floating_pair(input, other, "div"), input, other), input, other)
        case "floor":
            return floor_divide(input, other)
        case "trunc":
            return elementwise(ops.trunc_divide(*_divided(input, other, "div")), input, other)
    raise ArgumentError(f"div: rounding_mode is None, 'floor' or 'trunc', not {rounding_mode!r}")


floor_divide = binary(ops.floor_divide, _divided, "Divide and round down.")
remainder = binary(
    ops.remainder,
    _divided,
    "Compute the remainder of a division rounded down; it has the sign of the divisor, as Python's %.",
)
fmod = binary(
    ops.fmod,
    _divided,
    "Compute the remainder of a division rounded towards 0; it has the sign of the dividend, as C's %.",
)


def pow(input: Operand, exponent: Operand) -> Tensor:
    """Raise input to the power of `exponent`."""
    if isinstance(input, Handle):
        number = None if isinstance(exponent, Handle) else as_number(exponent)
        if number is not None:
            return elementwise(_power_by_number(input.value, number), input)
    return elementwise(exponential.power(*pair(input, exponent, "pow")), input, exponent)


def _power_by_number(x: Value, exponent: Number) -> Value:
    x = cast(x, result_type(x, exponent))
    if x.dtype.is_integer and exponent < 0:
        raise DTypeError(
            f"pow: integers cannot be raised to the power {exponent}: the result is no integer; use "
            f"x.float() ** {exponent}"
        )
    return exponential.power(x, exponent if x.dtype.is_float else constant(exponent, x.dtype, x.device))


def neg(input: Tensor) -> Tensor:
    """Compute -input."""
    if isinstance(input, Handle) and (made := few.changed(operator.neg, input)) is not None:
        return made
    x = value_of(input, "neg")
    if x.dtype is bool_:
        raise DTypeError("neg: there is no minus for bool elements; use ~x, or tilegrad.logical_not(x)")
    return elementwise(ops.neg(x), input)


def positive(input: Tensor) -> Tensor:
    """Return the tensor itself; bools raise."""
    numbers_of(input, "positive")
    return input


abs = unary(ops.absolute, numbers_of, "Compute the absolute value.", "abs")
sign = unary(ops.sign, value_of, "Compute the sign: -1, 0 or 1.")
signbit = unary(ops.signbit, value_of, "Test whether the sign bit is set.")
reciprocal = unary(ops.reciprocal, floating, "Compute 1 / input.")


def square(input: Tensor) -> Tensor:
    """Compute input * input."""
    x = value_of(input, "square")
    return elementwise(ops.square(cast(x, int64) if x.dtype is bool_ else x), input)


hypot = binary(ops.hypot, pair, "Compute sqrt(input ** 2 + other ** 2) without overflow.", takes="Tensor Tensor")
copysign = binary(
    ops.copysign, floating_pair, "Return the magnitude of input with the sign of other.", takes="Tensor Operand"
)


def lerp(input: Tensor, end: Tensor, weight: Operand) -> Tensor:
    """Interpolate linearly: input + weight * (end - input)."""
    if isinstance(weight, Handle):
        return elementwise(ops.lerp(*together([input, end, weight], "lerp")), input, end, weight)
    x, y = pair(input, end, "lerp")
    return elementwise(ops.lerp(x, y, weight), input, end)


def addcmul(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Number = 1) -> Tensor:
    """Compute input + value * tensor1 * tensor2."""
    x, y, z = together([input, tensor1, tensor2], "addcmul")
    factor = _factor(value, "addcmul")
    return elementwise(ops.addcmul(x, y, z, int(factor) if x.dtype.is_integer else factor), input, tensor1, tensor2)


def addcdiv(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Number = 1) -> Tensor:
    """Compute input + value * tensor1 / tensor2."""
    x, y, z = together([input, tensor1, tensor2], "addcdiv")
    return elementwise(ops.addcdiv(x, y, z, _factor(value, "addcdiv")), input, tensor1, tensor2)


def _factor(value: object, op: str) -> Number:
    """Return a factor as a Python number; a tensor of one element is converted."""
    found = as_number(value.item() if hasattr(value, "item") else value)
    if found is None:
        raise ArgumentError(f"{op}: value is {kind_of(value)}, not a number")
    return found


# --- the greater and the less ------------------------------------------------------------------


maximum = binary(
    ops.maximum, pair, "Compute the element-wise maximum; NaN if either element is NaN.", takes="Tensor Tensor"
)
minimum = binary(
    ops.minimum, pair, "Compute the element-wise minimum; NaN if either element is NaN.", takes="Tensor Tensor"
)


def clamp(input: Tensor, min: Operand | None = None, max: Operand | None = None) -> Tensor:
    """Limit each element to [min, max]; either bound may be left out."""
    if min is None and max is None:
        raise ArgumentError("clamp: at least one of min and max is needed")
    bounds = [bound for bound in (min, max) if bound is not None]
    x, *limits = together([input, *bounds], "clamp")
    low, high = (limits[0] if min is not None else None), (limits[-1] if max is not None else None)
    tensors = [input, *[bound for bound in bounds if isinstance(bound, Handle)]]
    if x.dtype is bool_:
        x = x if low is None else bits.bitwise_or(x, low)
        return elementwise(x if high is None else bits.bitwise_and(x, high), *tensors)
    return elementwise(ops.clamp(x, low, high), *tensors)


def clamp_min(input: Tensor, min: Operand) -> Tensor:
    """Limit each element to at least `min`."""
    value_of(input, "clamp_min")
    return clamp(input, min=min)


def clamp_max(input: Tensor, max: Operand) -> Tensor:
    """Limit each element to at most `max`."""
    value_of(input, "clamp_max")
    return clamp(input, max=max)


def where(condition: Tensor, input: Operand | None = None, other: Operand | None = None) -> Tensor:
    """Select from input where the condition holds, else from other. With the condition alone, return the indices where
    it holds.
    """
    if (input is None) != (other is None):
        raise ArgumentError("where: takes a condition alone, or with input and other")
    if input is None or other is None:
        from .selecting import nonzero

        return nonzero(condition, as_tuple=True)  # type: ignore[return-value]
    test = value_of(condition, "where")
    test = cast(test, bool_) if test.dtype is uint8 else test  # PyTorch's old masks
    if test.dtype is not bool_:
        raise DTypeError(
            f"where: the condition must be bool, not {test.dtype.name}; compare it with something, as in x != 0"
        )
    if isinstance(input, Handle) or isinstance(other, Handle):
        return elementwise(choose(test, *pair(input, other, "where")), condition, input, other)
    first, second = as_number(input), as_number(other)
    if first is None or second is None:
        raise refused("where", input if first is None else other)
    dtype = result_type(first, second)
    chosen = choose(test, constant(first, dtype, test.device), constant(second, dtype, test.device))
    return elementwise(chosen, condition)


def where_method(self: Tensor, condition: Tensor, other: Operand) -> Tensor:
    """Keep the elements where the condition holds, and take those of other elsewhere."""
    return where(condition, self, other)


def heaviside(input: Tensor, values: Tensor) -> Tensor:
    """Compute the step function: 0 below 0, 1 above, `values` at 0."""
    x, y = value_of(input, "heaviside"), value_of(values, "heaviside")
    if x.dtype is not y.dtype:
        raise DTypeError(f"heaviside: {x.dtype.name} beside {y.dtype.name}; convert one, as in values.to(x.dtype)")
    return elementwise(ops.heaviside(x, y), input, values)


# --- logic and bits ----------------------------------------------------------------------------


def _truth(input: Tensor, op: str) -> Value:
    return to_bool(value_of(input, op))


def _truths(input: Tensor, other: Tensor, op: str) -> tuple[Value, Value]:
    return _truth(input, op), _truth(other, op)


logical_and = binary(bits.logical_and, _truths, "Test whether both elements are nonzero.", takes="Tensor Tensor")
logical_or = binary(bits.logical_or, _truths, "Test whether at least one element is nonzero.", takes="Tensor Tensor")
logical_xor = binary(bits.logical_xor, _truths, "Test whether exactly one element is nonzero.", takes="Tensor Tensor")
logical_not = unary(bits.logical_not, _truth, "Test whether the element is zero.")
bitwise_and = binary(bits.bitwise_and, pair, "Compute input & other.")
bitwise_or = binary(bits.bitwise_or, pair, "Compute input | other.")
bitwise_xor = binary(bits.bitwise_xor, pair, "Compute input ^ other.")
bitwise_not = unary(bits.bitwise_not, value_of, "Compute ~input.")
bitwise_left_shift = binary(bits.shift_left, pair, "Compute input << other.", "bitwise_left_shift")
bitwise_right_shift = binary(bits.shift_right, pair, "Compute input >> other.", "bitwise_right_shift")


# --- rounding ----------------------------------------------------------------------------------


floor = unary(rounding.floor, numbers_of, "Round down to an integer.")
ceil = unary(rounding.ceil, numbers_of, "Round up to an integer.")
trunc = unary(rounding.trunc, numbers_of, "Round towards 0.")


def round(input: Tensor, *, decimals: int = 0) -> Tensor:
    """Round to `decimals` decimals, halves to the even neighbour."""
    return elementwise(rounding.round_digits(numbers_of(input, "round"), decimals), input)


frac = unary(rounding.frac, floats_of, "Compute the fractional part: input - trunc(input).")


def nan_to_num(input: Tensor, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None) -> Tensor:
    """Replace NaN by `nan` and infinities by `posinf` and `neginf`; without them, by the largest and smallest finite
    numbers.
    """
    x = value_of(input, "nan_to_num")
    if not x.dtype.is_float:
        return like(kept_separate(x), input)
    high, low = (x.dtype.max if posinf is None else posinf), (x.dtype.min if neginf is None else neginf)
    finite = where(isnan(input), nan, input)
    finite = where(input == float("inf"), high, finite)
    return where(input == float("-inf"), low, finite)


def reflected(fn: Callable[[Operand, Operand], Tensor]) -> Callable[[Tensor, Operand], Tensor]:
    """Return an operator with exchanged operands, as Python calls it for `2 / x`."""

    def exchanged(self: Tensor, other: Operand) -> Tensor:
        return fn(other, self)

    return exchanged


subtract, multiply, divide, true_divide, negative, absolute = sub, mul, div, div, neg, abs
clip, fix = clamp, trunc

publish(globals(), internal=("where_method", "reflected"))
