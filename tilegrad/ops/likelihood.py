"""Binary cross entropy with finite gradients at probabilities 0 and 1."""

from __future__ import annotations

from typing import final

from ..ir.graph import Value
from ..ir.scalar import Expr, apply, const
from .arithmetic import div, maximum, mul, sub
from .base import Binary
from .cast import cast, widened
from .exponential import log, log1p

MIN_LOGARITHM = -100.0
"""Lower bound of logarithms, which keeps the loss finite, as in PyTorch."""
MIN_VARIANCE = 1e-12
"""Lower bound of x (1 - x) in the gradient."""


@final
class BinaryCrossEntropy(Binary):
    """-(y log x + (1 - y) log(1 - x)) for a probability x and a target y.

    The gradient (x - y) / (x (1 - x)) is computed as one quotient: of two terms, one would be 0 * infinity at x = 0 or
    1, which a sigmoid reaches from 17 on.
    """

    takes = "f"
    cost = "expensive"

    def scalar(self, *elements: Expr) -> Expr:
        x, y = elements
        least, one = const(MIN_LOGARITHM, x.dtype), const(1.0, x.dtype)
        right = apply("maximum", apply("log", x), least)
        wrong = apply("maximum", apply("log1p", -x), least)
        return -(y * right + (one - y) * wrong)

    def share_x(self, upstream: Value) -> Value | None:
        spread = maximum(mul(self.x, sub(1.0, self.x)), MIN_VARIANCE)
        return mul(upstream, div(sub(self.x, self.y), spread))

    def share_y(self, upstream: Value) -> Value | None:
        wrong = maximum(log1p(mul(self.x, -1.0)), MIN_LOGARITHM)
        return mul(upstream, sub(wrong, maximum(log(self.x), MIN_LOGARITHM)))


def binary_cross_entropy(x: Value, y: Value) -> Value:
    """Compute the loss; half precision in float32, where `MIN_VARIANCE` is not 0."""
    return cast(BinaryCrossEntropy(widened(x), widened(y)), x.dtype)
