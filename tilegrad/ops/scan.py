"""Cumulative sums, products and extremes along an axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, final

from ..ir.dtype import DType, bool_, int64, uint8
from ..ir.graph import Reader, TensorType, Value
from ..ir.scalar import Expr, Position, cast, fresh_index, scan
from ..ir.size import Dim, Shape, product
from .arithmetic import add, maximum, mul, sub
from .bits import bitwise_and
from .broadcasting import accumulator, fill_like, normal_axis, reduce_sum, require, reshape
from .cast import cast as cast_value
from .cast import detach, widened
from .comparison import eq, isfinite, le
from .control import masked, where
from .creation import positions, zeros
from .exponential import exp, log
from .movement import cat, flip, narrow, pad, replaced, select, unsqueeze

MAX_PAIRWISE = 64
"""Elements up to which the gradient of a cumulative product or extreme is computed over all pairs."""


class ScanOp(Value):
    """Ops whose element is a reduction of all elements of x up to its position on an axis."""

    fn: ClassVar[str]
    takes: ClassVar[str] = "if"
    cost = "expensive"
    x: Value
    axis: int

    def infer(self) -> TensorType:
        require(self.takes, self.x.dtype, self.op)
        return self.x.type.with_dtype(self.result_dtype)

    @property
    def result_dtype(self) -> DType:
        return self.x.dtype

    def element(self, position: Position, read: Reader) -> Expr:
        k = fresh_index(self.x.shape[self.axis])
        body = cast(read(self.x, replaced(position, self.axis, k)), accumulator(self.x.dtype))
        return cast(scan(self.fn, k, body, position[self.axis]), self.result_dtype)


@final
class Cumsum(ScanOp):
    """Cumulative sum; half precision is accumulated in float32."""

    fn = "add"

    def gradient(self, upstream: Value) -> Sequence[Value | None]:
        return (flip(Cumsum(flip(upstream, self.axis), self.axis), self.axis),)


@final
class Cumprod(ScanOp):
    """Cumulative product; half precision is multiplied in float32."""

    fn = "mul"

    def gradient(self, upstream: Value) -> Sequence[Value | None]:
        """x[i] is a factor of all products from i on, with the product of the others as its derivative.

        These n * n factors are computed without dividing: elements may be 0.
        """
        axis, rank, n = self.axis, self.x.type.rank, self.x.shape[self.axis]
        if isinstance(n, int) and n > MAX_PAIRWISE:
            x = widened(self.x)
            before: Value = self if x is self.x else Cumprod(x, axis)
            first = fill_like(narrow(x, axis, 0, 1), 1.0)
            after = _reverse_recurrence(narrow(x, axis, 1, n - 1), widened(upstream), axis, n)
            return (cast_value(mul(cat([first, narrow(before, axis, 0, n - 1)], axis), after), self.x.dtype),)
        own = reshape(positions(n, self.x.device), _along(axis, rank + 1, n))
        other = reshape(positions(n, self.x.device), _along(axis + 1, rank + 1, n))
        factors = where(eq(own, other), 1.0, unsqueeze(self.x, axis))
        weighted = mul(Cumprod(factors, axis + 1), unsqueeze(upstream, axis))
        return (reduce_sum(masked(le(own, other), weighted), axis + 1),)


def _reverse_recurrence(factors: Value, sums: Value, axis: int, n: int) -> Value:
    """Solve y[i] = x[i] + f[i] * y[i + 1] by doubling, without dividing.

    Factors may be bools: whether the next result is added.
    """
    taken, both = (masked, bitwise_and) if factors.dtype is bool_ else (mul, mul)
    for d in (1 << step for step in range((n - 1).bit_length())):
        head = add(narrow(sums, axis, 0, n - d), taken(factors, narrow(sums, axis, d, n - d)))
        sums = cat([head, narrow(sums, axis, n - d, d)], axis)
        if 2 * d < n:
            factors = both(narrow(factors, axis, 0, n - 2 * d), narrow(factors, axis, d, n - 2 * d))
    return sums


class ScanExtreme(ScanOp):
    """Cumulative maximum or minimum; the gradient goes to its last position."""

    place: ClassVar[type[ScanOp]]
    takes = "bif"

    def gradient(self, upstream: Value) -> Sequence[Value | None]:
        axis, rank, n = self.axis, self.x.type.rank, self.x.shape[self.axis]
        if isinstance(n, int) and n > MAX_PAIRWISE:
            found = self.place(self.x, axis)
            kept = eq(narrow(found, axis, 1, n - 1), narrow(found, axis, 0, n - 1))
            own = reshape(positions(n, self.x.device), _along(axis, rank, n))
            total = masked(eq(found, own), _reverse_recurrence(kept, widened(upstream), axis, n))
            return (cast_value(total, self.x.dtype),)
        places = unsqueeze(self.place(self.x, axis), axis)
        own = reshape(positions(n, self.x.device), _along(axis, rank + 1, n))
        return (reduce_sum(masked(eq(own, places), unsqueeze(upstream, axis)), axis + 1),)


class ScanArgExtreme(ScanOp):
    """Position of the cumulative maximum or minimum, the last of ties."""

    takes = "bif"
    differentiable = False

    @property
    def result_dtype(self) -> DType:
        return int64

    def gradient(self, upstream: Value) -> Sequence[Value | None]:
        return (None,)


@final
class CumArgmax(ScanArgExtreme):
    fn = "argmax"


@final
class CumArgmin(ScanArgExtreme):
    fn = "argmin"


@final
class Cummax(ScanExtreme):
    fn = "maximum"
    place = CumArgmax


@final
class Cummin(ScanExtreme):
    fn = "minimum"
    place = CumArgmin


def _along(axis: int, rank: int, n: Dim) -> Shape:
    """Return the shape of a value that varies along one axis only."""
    ones: Shape = (1,) * rank
    return replaced(ones, axis, n)


def cumsum(x: Value, axis: int) -> Value:
    n = normal_axis(axis, x.type.rank, "cumsum")
    return Cumsum(x, n) if x.shape else x


def cumprod(x: Value, axis: int) -> Value:
    n = normal_axis(axis, x.type.rank, "cumprod")
    return Cumprod(x, n) if x.shape else x


def cummax(x: Value, axis: int) -> tuple[Value, Value]:
    """Return the cumulative maxima and their positions."""
    return _scan(x, axis, Cummax, CumArgmax)


def cummin(x: Value, axis: int) -> tuple[Value, Value]:
    """Return the cumulative minima and their positions."""
    return _scan(x, axis, Cummin, CumArgmin)


def _scan(x: Value, axis: int, values: type[ScanOp], places: type[ScanOp]) -> tuple[Value, Value]:
    n = normal_axis(axis, x.type.rank, "cummax")
    if not x.shape:
        return x, zeros((), int64, x.device)
    if x.dtype is bool_:
        small = cast_value(x, uint8)
        return cast_value(values(small, n), bool_), places(small, n)
    return values(x, n), places(x, n)


LOGCUMSUMEXP_BLOCK = 16
"""Elements of a block of `logcumsumexp`, in which all pairs are computed."""


def logcumsumexp(x: Value, axis: int) -> Value:
    """Compute the log of the cumulative sum of exp(x), each relative to its own maximum to avoid overflow.

    Blocks are computed by themselves and combined with the result of all blocks before.
    """
    n = normal_axis(axis, x.type.rank, "logcumsumexp")
    return cast_value(_scan_logs(widened(x), n), x.dtype) if x.shape else x


def _scan_logs(x: Value, n: int) -> Value:
    extent = x.shape[n]
    if not isinstance(extent, int) or extent <= 2 * LOGCUMSUMEXP_BLOCK:
        return _compared_logs(x, n)
    blocks, nothing = -(-extent // LOGCUMSUMEXP_BLOCK), float("-inf")
    behind = [(0, blocks * LOGCUMSUMEXP_BLOCK - extent) if k == n else (0, 0) for k in range(x.type.rank)]
    whole = pad(x, behind, nothing)
    inner = _compared_logs(reshape(whole, (*x.shape[:n], blocks, LOGCUMSUMEXP_BLOCK, *x.shape[n + 1 :])), n + 1)
    upto = _scan_logs(select(inner, n + 1, LOGCUMSUMEXP_BLOCK - 1), n)
    first = [(1, 0) if k == n else (0, 0) for k in range(x.type.rank)]
    before = unsqueeze(pad(narrow(upto, n, 0, blocks - 1), first, nothing), n + 1)
    made = _logaddexp(before, inner)
    return narrow(reshape(made, whole.shape), n, 0, extent)


def _logaddexp(x: Value, y: Value) -> Value:
    """Compute log(exp(x) + exp(y)), without a gradient where both are -inf."""
    greatest = detach(maximum(x, y))
    shift = where(isfinite(greatest), greatest, 0.0)
    return _shifted_log(add(exp(sub(x, shift)), exp(sub(y, shift))), shift)


def _shifted_log(total: Value, shift: Value) -> Value:
    none = eq(total, 0.0)
    return add(where(none, float("-inf"), log(where(none, 1.0, total))), shift)


def _compared_logs(x: Value, n: int) -> Value:
    """Compute logcumsumexp with n * n exponentials along an axis of n elements."""
    greatest = detach(cummax(x, n)[0])
    shift = where(isfinite(greatest), greatest, 0.0)
    extent, rank = x.shape[n], x.type.rank + 1
    upto = reshape(positions(extent, x.device), _along(n, rank, extent))
    own = reshape(positions(extent, x.device), _along(n + 1, rank, extent))
    earlier = le(own, upto)
    powers = exp(where(earlier, sub(unsqueeze(x, n), unsqueeze(shift, n + 1)), float("-inf")))
    if n + 1 < x.type.rank:
        return _shifted_log(reduce_sum(powers, n + 1), shift)
    rows = reshape(powers, (product(x.shape), extent))  # one axis: GPUs process short axes one after the other
    return _shifted_log(reshape(reduce_sum(rows, 1), x.shape), shift)
