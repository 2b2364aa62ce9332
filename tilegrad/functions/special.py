"""Define special functions: gamma, Bessel and error functions, divisors, neighbours of floats."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ..errors import ArgumentError, DTypeError
from ..ir.dtype import bool_, float64
from ..ir.graph import Value
from ..lazy.handle import Handle, wrap
from ..lazy.layout import like, row_by_row
from ..ops.cast import cast
from ..ops.comparison import isnan, lt
from ..ops.control import where
from .creation import ones_like
from .declared import publish
from .pointwise import Ops, binary, elementwise, unary
from .promotion import Operand, floating, kind_of, pair, value_of

if TYPE_CHECKING:
    from ..tensor import Tensor


def lgamma(input: Tensor) -> Tensor:
    """Compute the logarithm of the absolute value of the gamma function.

    >>> import tilegrad as tg
    >>> tg.lgamma(tg.tensor([1.0, 4.0])).exp()
    tensor([1., 6.])
    """
    from ..ops import special

    return elementwise(special.lgamma(floating(input, "lgamma")), input)


digamma = unary(Ops("special").digamma, floating, "Compute the derivative of `lgamma`.")


def polygamma(n: int, input: Tensor) -> Tensor:
    """Compute the n-th derivative of `digamma`; for n above 1, NaN from -1 downwards."""
    from ..ops import special

    if not 0 <= n < 2**31:
        raise ArgumentError(f"polygamma: there is no derivative number {kind_of(n)}; they are counted from 0")
    return elementwise(special.polygamma(n, floating(input, "polygamma")), input)


@row_by_row
def mvlgamma(input: Tensor, p: int) -> Tensor:
    """Compute the logarithm of the multivariate gamma function of dimension `p`."""
    x = like(floating(input, "mvlgamma"), input)
    total = lgamma(x)
    for k in range(1, p):
        total = total + lgamma(x - k / 2)
    return total + p * (p - 1) / 4 * math.log(math.pi)


erfinv = unary(Ops("special").erfinv, floating, "Compute the inverse of the error function.")


def i0(input: Tensor) -> Tensor:
    """Compute the modified Bessel function of the first kind of order 0.

    >>> import tilegrad as tg
    >>> i0(tg.tensor([0.0, 1.0]))
    tensor([1.0000, 1.2661])
    """
    from ..ops import special

    return elementwise(special.BesselI(floating(input, "i0"), 0), input)


def angle(input: Tensor) -> Tensor:
    """Compute the angle in the complex plane: pi for negative numbers, 0 for others, NaN for NaN."""
    x = floating(input, "angle")
    return elementwise(where(lt(x, 0.0), math.pi, where(isnan(x), x, 0.0)), input)


def real(input: Tensor) -> Tensor:
    """Return the tensor itself: there are no complex numbers."""
    return input


nextafter = binary(
    Ops("special").nextafter,
    pair,
    "Return the next floating-point number after `input` towards `other`.",
    takes="Tensor Tensor",
)


def fmax(input: Tensor, other: Tensor) -> Tensor:
    """Compute the element-wise maximum, ignoring a NaN in one of the operands."""
    x, y = map(wrap, pair(input, other, "fmax"))
    return elementwise(x.where((x >= y) | y.isnan(), y)._value, input, other)


def fmin(input: Tensor, other: Tensor) -> Tensor:
    """Compute the element-wise minimum, ignoring a NaN in one of the operands."""
    x, y = map(wrap, pair(input, other, "fmin"))
    return elementwise(x.where((x <= y) | y.isnan(), y)._value, input, other)


def sgn(input: Tensor) -> Tensor:
    """Compute the sign: -1, 0 or 1."""
    return input.sign()


def isposinf(input: Tensor) -> Tensor:
    """Test each element for positive infinity."""
    return elementwise(value_of(input, "isposinf"), input) == math.inf


def isneginf(input: Tensor) -> Tensor:
    """Test each element for negative infinity."""
    return elementwise(value_of(input, "isneginf"), input) == -math.inf


def isreal(input: Tensor) -> Tensor:
    """Return true for each element: there are no complex numbers."""
    return ones_like(input, dtype=bool_)


def float_power(input: Operand, exponent: Operand) -> Tensor:
    """Compute input ** exponent in float64."""
    if isinstance(input, Handle) and isinstance(exponent, Handle):
        given = input.value, exponent.value
    else:
        given = pair(input, exponent, "float_power")
    x, y = (wrap(cast(v, float64)) for v in given)
    return elementwise((x**y)._value, input, exponent)


def ldexp(input: Tensor, other: Tensor) -> Tensor:
    """Compute input * 2 ** other."""
    scaled = input * (2.0 ** like(floating(other, "ldexp"), other))
    return scaled.to(input.dtype) if input.dtype.is_float and not other.dtype.is_float else scaled


def gcd(input: Tensor, other: Tensor) -> Tensor:
    """Compute the greatest common divisor of two integers.

    >>> import tilegrad as tg
    >>> tg.gcd(tg.tensor([12, -8, 0]), tg.tensor([18, 12, 5])).tolist()
    [6, 4, 5]
    """
    from ..ops.divisor import gcd as op

    return elementwise(op(*_whole(input, other, "gcd")), input, other)


def lcm(input: Tensor, other: Tensor) -> Tensor:
    """Compute the least common multiple of two integers."""
    x, y = map(wrap, _whole(input, other, "lcm"))
    common = gcd(x, y)
    return elementwise((x // common.clamp(min=1) * y).abs()._value, input, other)


def _whole(input: Tensor, other: Tensor, op: str) -> tuple[Value, Value]:
    x, y = pair(input, other, op)
    if not x.dtype.is_integer:
        raise DTypeError(f"{op} takes whole numbers, not {x.dtype.name}; convert them: x.long()")
    return x, y


publish(globals())
