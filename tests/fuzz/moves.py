"""Moves of a random graph. Each adds a value, or raises `Unfit`."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from tests.fuzz.graphs import Drawing, Unfit
from tilegrad.ir.dtype import bfloat16, bool_, float16, float32, float64, int32, int64, uint8
from tilegrad.ir.graph import Input, TensorType, Value
from tilegrad.ir.size import product
from tilegrad.ops import (
    activation,
    arithmetic,
    bits,
    comparison,
    contraction,
    control,
    convolution,
    creation,
    divisor,
    exponential,
    indexing,
    likelihood,
    movement,
    pooling,
    random,
    reduction,
    rounding,
    scan,
    selection,
    sorting,
    special,
    statistics,
    windows,
)
from tilegrad.ops import trigonometric as trigonometry
from tilegrad.ops.arithmetic import absolute, add, mul, sub
from tilegrad.ops.broadcasting import expand, fill, reduce_sum, reshape
from tilegrad.ops.cast import bitcast, cast, detach
from tilegrad.ops.comparison import isfinite, isinf, isnan
from tilegrad.ops.sliding import Adaptive, Sliding, WindowAxis
from tilegrad.ops.trigonometric import tanh

Move = Callable[[Drawing], Value]
MOVES: list[Move] = []


def move(times: int = 1) -> Callable[[Move], Move]:
    """Add a move to the table with a weight."""

    def register(function: Move) -> Move:
        MOVES.extend([function] * times)
        return function

    return register


# --- one element of one -------------------------------------------------------------------------

SMOOTH: tuple[Callable[[Value], Value], ...] = (
    tanh,
    lambda x: exponential.exp(arithmetic.neg(exponential.sqrt(add(mul(x, x), 1.0)))),
    activation.sigmoid,
    trigonometry.sin,
    trigonometry.cos,
    trigonometry.erf,
    trigonometry.erfc,
    trigonometry.atan,
    activation.gelu,
    lambda x: mul(x, activation.sigmoid(x)),
    lambda x: likelihood.binary_cross_entropy(activation.sigmoid(x), activation.sigmoid(mul(x, -0.5))),
    lambda x: exponential.exp(tanh(x)),
    lambda x: exponential.exp2(tanh(x)),
    lambda x: exponential.expm1(tanh(x)),
    lambda x: exponential.log(add(mul(x, x), 0.5)),
    lambda x: exponential.log2(add(mul(x, x), 0.5)),
    lambda x: exponential.log10(add(mul(x, x), 0.5)),
    lambda x: exponential.log1p(mul(x, x)),
    lambda x: exponential.sqrt(add(mul(x, x), 1.0)),
    lambda x: exponential.rsqrt(add(mul(x, x), 0.5)),
    lambda x: exponential.power(add(mul(x, x), 0.5), 1.5),
    lambda x: trigonometry.tan(tanh(x)),
    lambda x: trigonometry.sinh(tanh(x)),
    lambda x: trigonometry.cosh(tanh(x)),
    trigonometry.asinh,
    lambda x: trigonometry.acosh(add(mul(x, x), 1.5)),
    lambda x: trigonometry.atanh(mul(tanh(x), 0.9)),
    lambda x: trigonometry.asin(mul(tanh(x), 0.9)),
    lambda x: trigonometry.acos(mul(tanh(x), 0.9)),
    lambda x: special.erfinv(mul(tanh(x), 0.9)),
    lambda x: special.lgamma(add(mul(x, x), 0.5)),
    lambda x: special.BesselI(tanh(x), 0),
    lambda x: special.digamma(add(mul(x, x), 0.5)),
    lambda x: special.polygamma(1, add(mul(x, x), 0.5)),
)


@move(8)
def smooth(d: Drawing) -> Value:
    x = d.real()
    return d.add(SMOOTH[d.below(len(SMOOTH))](x), 99, max(1.0, d.spans[x].largest))


@move(2)
def kinks(d: Drawing) -> Value:
    """Functions whose slope jumps: of exact elements only where gradients are compared."""
    x = d.pick(lambda x: x.dtype.is_float and (not d.smooth or d.exact(x)))
    made = (arithmetic.neg, absolute, activation.relu, lambda x: arithmetic.clamp(x, -1.0, 1.5))
    return d.like(made[d.below(4)](x), x)


@move(3)
def jumps(d: Drawing) -> Value:
    x = d.jumpable(kinds=("float",))
    made = (
        arithmetic.sign,
        rounding.floor,
        rounding.ceil,
        rounding.trunc,
        rounding.round_digits,
        isnan,
        isfinite,
        isinf,
    )
    return d.like(made[d.below(8)](x), x)


@move(2)
def whole(d: Drawing) -> Value:
    x = d.jumpable(kinds=("int", "uint", "bool"))
    made = (bits.bitwise_not, lambda x: bits.bitwise_xor(x, x), lambda x: cast(x, float64), lambda x: cast(x, int64))
    return d.add(made[d.below(4)](x), 30, 30.0)


@move()
def divisors(d: Drawing) -> Value:
    x = d.jumpable(kinds=("int", "uint"))
    return d.like(divisor.gcd(x, d.partner(x)), x)


@move()
def neighbours(d: Drawing) -> Value:
    x = d.jumpable(kinds=("float",))
    return d.add(special.nextafter(x, d.partner(x)), 99, d.spans[x].largest)


@move(4)
def converted(d: Drawing) -> Value:
    """Another element type; to one that holds fewer digits only what stays exact, or is inexact anyway."""
    x = d.pick()
    to = (float32, float64, float16, bfloat16, int32, int64, bool_, uint8)[d.below(8 if not d.smooth else 4)]
    if not to.is_float and (not d.exact(x) or d.spans[x].largest > 6 or (to is uint8 and x.dtype.is_float)):
        raise Unfit
    if d.smooth and (not x.dtype.is_float or to.bits < 32):
        raise Unfit
    return d.like(cast(x, to), x)


@move()
def bits_read(d: Drawing) -> Value:
    x = d.jumpable(kinds=("float",))
    return d.add(bitcast(x, {64: int64, 32: int32}.get(x.dtype.bits, int64)), 64, 64.0)


@move()
def cut_off(d: Drawing) -> Value:
    x = d.pick()
    return d.like(detach(x), x)


# --- one element of two -------------------------------------------------------------------------


@move(8)
def linear(d: Drawing) -> Value:
    x = d.pick(lambda x: x.dtype is not bool_)
    y = d.partner(x)
    return d.like((add, sub)[d.below(2)](x, y), x, y, more=1)


@move(6)
def products(d: Drawing) -> Value:
    x = d.pick(lambda x: x.dtype is not bool_)
    y = d.partner(x)
    a, b = d.spans[x], d.spans[y]
    return d.add(mul(x, y), a.bits + b.bits, max(a.largest, 0) + max(b.largest, 0))


@move(4)
def with_number(d: Drawing) -> Value:
    x = d.pick(lambda x: x.dtype.is_float)
    number = (1.0, -1.0, 0.0, 2.0, -0.0, 0.5)[d.below(6)]
    made = (add, sub, mul, lambda x, n: sub(n, x), lambda x, n: mul(n, x), lambda x, n: add(n, x))[d.below(6)]
    return d.like(made(x, number), x, more=1)


@move()
def with_whole_number(d: Drawing) -> Value:
    x = d.jumpable(kinds=("int",))
    return d.like((add, sub, mul, bits.bitwise_and)[d.below(4)](x, d.below(3)), x, more=2)


@move(3)
def quotients(d: Drawing) -> Value:
    x = d.real()
    y = d.partner(x)
    made = (
        lambda: arithmetic.div(x, add(mul(y, y), 1.0)),
        lambda: trigonometry.atan2(x, add(mul(y, y), 1.0)),
        lambda: arithmetic.hypot(x, add(mul(y, y), 1.0)),
        lambda: exponential.power(add(mul(x, x), 0.5), tanh(y)),
        lambda: exponential.logaddexp(x, y),
    )[d.below(5)]
    return d.add(made(), 99, max(d.spans[x].largest, 2 * d.spans[y].largest, 0) + 1)


@move(2)
def extremes(d: Drawing) -> Value:
    x = d.pick(lambda x: not d.smooth or d.exact(x))
    y = d.partner(x)
    if d.smooth and not d.exact(y):
        raise Unfit
    return d.like((arithmetic.maximum, arithmetic.minimum)[d.below(2)](x, y), x, y)


@move(3)
def compared(d: Drawing) -> Value:
    x = d.jumpable()
    y = d.partner(x)
    if not d.exact(y):
        raise Unfit
    made = (comparison.lt, comparison.le, comparison.eq, comparison.ne, comparison.gt, comparison.ge)
    return d.add(made[d.below(6)](x, y), 1, 0)


@move(2)
def division_with_rest(d: Drawing) -> Value:
    x = d.jumpable(kinds=("float", "int"))
    y = d.partner(x)
    if not d.exact(y) or x.dtype.bits < 32 or d.spans[x].largest > 20:
        raise Unfit
    divisor = arithmetic.maximum(absolute(y), 2 if not x.dtype.is_float else 2.0)
    made = (arithmetic.floor_divide, arithmetic.trunc_divide, arithmetic.remainder, arithmetic.fmod)
    return d.like(made[d.below(4)](x, divisor), x, y)


@move(2)
def logic(d: Drawing) -> Value:
    x = d.jumpable(kinds=("int", "bool", "uint"))
    y = d.partner(x)
    made = (bits.bitwise_and, bits.bitwise_or, bits.bitwise_xor, bits.shift_left, bits.shift_right)
    n = d.below(5)
    if n > 2:
        if x.dtype is bool_:
            raise Unfit
        y = bits.bitwise_and(y, 3)
    return d.add(made[n](x, y), 30, 30.0)


@move()
def signs(d: Drawing) -> Value:
    x = d.jumpable(kinds=("float",))
    y = d.partner(x)
    if not d.exact(y):
        raise Unfit
    return d.like(arithmetic.copysign(x, y), x)


@move(3)
def choice(d: Drawing) -> Value:
    x = d.pick()
    y = d.partner(x)
    condition = d.pick(lambda c: c.dtype is bool_)
    return d.like(control.where(condition, x, y), x, y)


# --- sums and other reductions ------------------------------------------------------------------


def axes_of(d: Drawing, x: Value) -> tuple[int, ...]:
    return tuple(n for n in range(x.type.rank) if d.below(2)) or (d.below(x.type.rank),)


def depth(d: Drawing, x: Value, axes: tuple[int, ...]) -> float:
    return math.log2(max(1, d.extent(product(x.shape[a] for a in axes))))


@move(6)
def sums(d: Drawing) -> Value:
    x = d.pick(lambda x: x.type.rank > 0 and x.dtype is not bool_)
    axes = axes_of(d, x)
    return d.like(reduce_sum(x, axes, bool(d.below(2))), x, more=depth(d, x, axes))


@move(3)
def averages(d: Drawing) -> Value:
    x = d.real(1)
    axes, keep = axes_of(d, x), bool(d.below(2))
    if d.extent(product(x.shape[a] for a in axes)) < 2:
        raise Unfit
    n = d.below(4)
    made = (
        lambda: statistics.mean(x, axes, keep),
        lambda: exponential.sqrt(add(statistics.var(x, axes, 1, keep), 1.0)),
        lambda: statistics.logsumexp(x, axes, keep),
        lambda: reduction.reduce_prod(mul(tanh(x), 0.5), axes, keep),
    )[n]
    return d.add(made(), 99, d.spans[x].largest * (2 if n == 1 else 1) + 1)


@move(3)
def most(d: Drawing) -> Value:
    x = d.jumpable(1) if d.below(2) else d.pick(lambda x: x.type.rank > 0 and (not d.smooth or d.exact(x)))
    axes = axes_of(d, x)
    return d.like((reduction.amax, reduction.amin)[d.below(2)](x, axes, bool(d.below(2))), x)


@move(2)
def places(d: Drawing) -> Value:
    x = d.jumpable(1)
    axis = d.below(x.type.rank)
    return d.add((reduction.argmax, reduction.argmin)[d.below(2)](x, axis, bool(d.below(2))), 10, 10.0)


@move()
def truths(d: Drawing) -> Value:
    x = d.jumpable(1)
    x = x if x.dtype is bool_ else comparison.ne(x, d.below(2) if not x.dtype.is_float else 0.5)
    return d.add((reduction.reduce_any, reduction.reduce_all)[d.below(2)](x, axes_of(d, x), bool(d.below(2))), 1, 0)


@move(2)
def softmax(d: Drawing) -> Value:
    x = d.real(1)
    return d.add((activation.softmax, activation.log_softmax)[d.below(2)](x, d.below(x.type.rank)), 99, 4.0)


@move(3)
def scans(d: Drawing) -> Value:
    x = d.pick(lambda x: x.type.rank > 0 and x.dtype is not bool_ and (d.exact(x) or x.dtype.is_float))
    axis = d.below(x.type.rank)
    n = d.below(7)
    if n < 2:
        return d.like(scan.cumsum(x, axis), x, more=depth(d, x, (axis,)))
    if n == 2:
        return d.add(scan.cumprod(tanh(x), axis)) if x.dtype.is_float else d.add(scan.cumprod(x, axis), 64, 64.0)
    if not d.exact(x) or d.smooth:
        raise Unfit
    values, found = (scan.cummax if n % 2 else scan.cummin)(x, axis)
    return d.like(values, x) if n < 5 else d.add(found, 10, 10.0)


# --- products -----------------------------------------------------------------------------------


@move(6)
def matrix_product(d: Drawing) -> Value:
    x = d.pick(lambda x: x.type.rank > 0 and x.dtype in (float64, float32, int64))
    y = d.pick(lambda y: y.type.rank > 0 and y.dtype is x.dtype and x.shape[-1] in y.shape)
    at = y.shape.index(x.shape[-1])
    order = [n for n in range(y.type.rank) if n != at]
    order.insert(max(0, len(order) - 1), at)
    a, b = d.spans[x], d.spans[y]
    more = depth(d, x, (x.type.rank - 1,))
    made = contraction.matmul(x, movement.permute(y, order))
    return d.add(made, a.bits + b.bits + math.ceil(more), max(a.largest, 0) + max(b.largest, 0) + more)


@move(2)
def weights(d: Drawing) -> Value:
    """A product with a new matrix."""
    x = d.real(1)
    w = d.given((x.shape[-1], (3, 1, 16, 70)[d.below(4)]), x.dtype)
    a, more = d.spans[x], depth(d, x, (x.type.rank - 1,))
    return d.add(contraction.matmul(x, w), a.bits + 5 + math.ceil(more), max(a.largest, 0) + 3 + more)


@move()
def outer(d: Drawing) -> Value:
    x = d.pick(lambda x: x.type.rank == 1 and x.dtype.is_float)
    y = d.pick(lambda y: y.type.rank == 1 and y.dtype is x.dtype)
    a, b = d.spans[x], d.spans[y]
    return d.add(contraction.outer(x, y), a.bits + b.bits, max(a.largest, 0) + max(b.largest, 0))


# --- movement -----------------------------------------------------------------------------------


@move(3)
def reshaped(d: Drawing) -> Value:
    x = d.pick(lambda x: x.type.rank > 0)
    n = d.below(4)
    axis = d.below(x.type.rank)
    if n == 0:
        return d.like(movement.flatten(x), x)
    if n == 1:
        return d.like(movement.unsqueeze(x, d.below(x.type.rank + 1)), x)
    extent = x.shape[axis]
    if n == 2 and axis + 1 < x.type.rank:
        return d.like(movement.flatten(x, axis, axis + 1), x)
    parts = [k for k in (2, 3, 5, 7) if isinstance(extent, int) and extent and extent % k == 0]
    if not parts:
        return d.like(movement.squeeze(x), x)
    k = parts[d.below(len(parts))]
    return d.like(reshape(x, (*x.shape[:axis], k, extent // k, *x.shape[axis + 1 :])), x)


@move(3)
def permuted(d: Drawing) -> Value:
    x = d.pick(lambda x: x.type.rank > 1)
    order = list(range(x.type.rank))
    for n in range(len(order)):
        k = n + d.below(len(order) - n)
        order[n], order[k] = order[k], order[n]
    return d.like(movement.permute(x, order), x)


@move(2)
def repeated(d: Drawing) -> Value:
    x = d.pick(lambda x: x.type.rank < 4)
    shape = tuple(3 if extent == 1 and d.below(2) else extent for extent in x.shape)
    return d.like(expand(x, (2, *shape) if d.below(2) else shape), x)


@move(4)
def sliced(d: Drawing) -> Value:
    x = d.pick(lambda x: x.type.rank > 0)
    axis = d.below(x.type.rank)
    start, step = (None, 0, 1, 2, -1, -3)[d.below(6)], (1, 2, -1, 3, -2)[d.below(5)]
    return d.like(movement.slice_axis(x, axis, start, None, step), x)


@move(2)
def flipped(d: Drawing) -> Value:
    x = d.pick(lambda x: x.type.rank > 0)
    return d.like(movement.flip(x, d.below(x.type.rank)), x)


@move(3)
def padded(d: Drawing) -> Value:
    x = d.pick(lambda x: x.type.rank > 0)
    axis = d.below(x.type.rank)
    widths = [(d.below(3), d.below(3)) if n == axis else (0, 0) for n in range(x.type.rank)]
    filled = (0, 1)[d.below(2)] if x.dtype is not bool_ else False
    return d.like(movement.pad(x, widths, filled), x)


@move(3)
def joined(d: Drawing) -> Value:
    x = d.pick(lambda x: x.type.rank > 0)
    axis = d.below(x.type.rank)

    def fits(y: Value) -> bool:
        return y.dtype is x.dtype and y.shape[:axis] == x.shape[:axis] and y.shape[axis + 1 :] == x.shape[axis + 1 :]

    y = d.pick(lambda y: y.type.rank == x.type.rank and fits(y))
    return d.like(movement.cat((x, y, x)[: 2 + d.below(2)], axis), x, y)


@move()
def stacked(d: Drawing) -> Value:
    x = d.pick()
    y = d.pick(lambda y: y.type == x.type)
    return d.like(movement.stack((x, y), d.below(x.type.rank + 1)), x, y)


@move()
def turned(d: Drawing) -> Value:
    x = d.pick(lambda x: x.type.rank > 0)
    return d.like(movement.roll(x, 1 + d.below(4), d.below(x.type.rank)), x)


@move()
def again(d: Drawing) -> Value:
    x = d.pick(lambda x: x.type.rank > 0)
    return d.like(movement.repeat_interleave(x, 2, d.below(x.type.rank)), x)


@move(2)
def corners(d: Drawing) -> Value:
    x = d.pick(lambda x: x.type.rank > 1)
    offset = d.below(3) - 1
    made = (windows.tril, windows.triu, windows.diagonal)[d.below(3)]
    return d.like(made(x, offset), x)


@move()
def on_diagonal(d: Drawing) -> Value:
    x = d.pick(lambda x: x.type.rank > 0)
    return d.like(windows.diagonal_embed(x, d.below(3) - 1), x)


@move(2)
def windowed(d: Drawing) -> Value:
    x = d.pick(lambda x: x.type.rank > 0)
    return d.like(windows.unfold(x, d.below(x.type.rank), 2 + d.below(2), 1 + d.below(2)), x)


# --- convolution, pooling -----------------------------------------------------------------------


@move(3)
def convolved(d: Drawing) -> Value:
    """Windows along the last axis; the one before has the channels. With n = 1 the other way."""
    x = d.real(1)
    extent, channels = x.shape[-1], x.shape[-2] if x.type.rank > 1 else 1
    n, taps, stride, dilation = d.below(2), 1 + d.below(3), 1 + d.below(3), 1 + d.below(2)
    padding = d.below(taps)
    more = dilation * (taps - 1) + 1 - 2 * padding
    groups = 2 if isinstance(channels, int) and channels % 2 == 0 and d.below(2) else 1
    if not isinstance(extent, int) or not extent or (other := (extent - 1) * stride + more if n else extent - more) < 1:
        raise Unfit
    within = channels if groups == 1 else channels // groups
    x = d.like(reshape(x, (product(x.shape[:-2]), groups, within, extent)), x)
    if n:
        w = d.given((groups, within, 3, taps), x.dtype)
        made = convolution.convolve_back(x, w, (Sliding(other, extent, taps, stride, padding, dilation),))
    else:
        w = d.given((groups, 3, within, taps), x.dtype)
        made = convolution.Convolve(x, w, (Sliding(extent, other // stride + 1, taps, stride, padding, dilation),))
    a, deep = d.spans[x], math.log2(max(1, taps * d.extent(within)))
    return d.add(made, a.bits + 5 + math.ceil(deep), max(a.largest, 0) + 3 + deep)


def windows_over(d: Drawing, extent: object) -> WindowAxis:
    """Windows for pooling: each has an element that exists."""
    if not isinstance(extent, int) or extent == 0:
        raise Unfit
    if d.below(3) == 0:
        return Adaptive(extent, 1 + d.below(5))
    taps, stride = 1 + d.below(3), 1 + d.below(3)
    padding = d.below(taps // 2 + 1)
    if extent + 2 * padding < taps:
        raise Unfit
    return Sliding(extent, (extent + 2 * padding - taps) // stride + 1, taps, stride, padding)


@move(2)
def in_windows(d: Drawing) -> Value:
    x = d.real(1)
    axes = (windows_over(d, x.shape[-1]),)
    patches = pooling.Im2col(x, axes)
    if d.below(2):
        return d.add(pooling.average_pool(x, axes, padding=False), 99, d.spans[x].largest)
    if d.below(2):
        return d.like(patches, x)
    return d.like(pooling.Col2im(patches, axes), x, more=math.log2(axes[0].width * axes[0].cover))


@move(2)
def most_in_windows(d: Drawing) -> Value:
    x = d.pick(lambda x: x.type.rank > 0 and x.dtype.is_float and (not d.smooth or d.exact(x)))
    return d.like(pooling.max_pool(x, (windows_over(d, x.shape[-1]),)), x)


@move(2)
def places_in_windows(d: Drawing) -> Value:
    x = d.jumpable(1, ("float", "int"))
    axes = (windows_over(d, x.shape[-1]),)
    numbers, n = pooling.WindowArgmax(x, axes), d.below(3)
    if n == 0:
        return d.add(pooling.pool_indices(x, axes), 10, 10.0)
    chosen = pooling.WindowGather(x, numbers, axes)
    return d.like(chosen, x) if n == 1 else d.like(pooling.WindowScatter(chosen, numbers, axes), x, more=axes[0].cover)


# --- indexing, sorting, creation, random --------------------------------------------------------


def places_in(d: Drawing, extent: object) -> Value:
    """Whole numbers that are places in an axis."""
    if not isinstance(extent, int) or extent == 0:
        raise Unfit
    if d.below(2):
        return arithmetic.remainder(add(creation.positions((3, 5, 16)[d.below(3)]), d.below(9)), extent)
    return arithmetic.remainder(d.pick(lambda x: x.dtype is int64 and x.type.rank < 3), extent)


def places_like(x: Value, axis: int) -> Value:
    """Something of the shape of x to be sorted along an axis."""
    shape = [x.shape[axis] if n == axis else 1 for n in range(x.type.rank)]
    return expand(reshape(creation.positions(x.shape[axis]), shape), x.shape)


@move(3)
def indexed(d: Drawing) -> Value:
    x = d.pick(lambda x: x.type.rank > 0)
    axis = d.below(x.type.rank)
    return d.like(indexing.index(x, (places_in(d, x.shape[axis]),), (axis,)), x)


@move(2)
def taken_along(d: Drawing) -> Value:
    x = d.pick(lambda x: x.type.rank > 0)
    axis = d.below(x.type.rank)
    extent = x.shape[axis]
    if not isinstance(extent, int) or not extent:
        raise Unfit
    if not d.below(2):
        return d.like(
            indexing.take_along(
                x, sorting.argsort(x if d.exact(x) and not d.smooth else places_like(x, axis), axis), axis
            ),
            x,
        )
    place = d.pick(lambda y: y.dtype is int64 and y.type.rank == x.type.rank)
    return d.like(indexing.take_along(x, arithmetic.remainder(place, extent), axis), x)


@move(2)
def scattered(d: Drawing) -> Value:
    x = d.pick(lambda x: x.type.rank > 0 and x.dtype is not bool_)
    axis = d.below(x.type.rank)
    index = places_in(d, x.shape[axis])
    if index.type.rank != 1 or (d.smooth and not x.dtype.is_float):
        raise Unfit
    source = indexing.index(x, (index,), (axis,))
    more = depth(d, index, (0,)) + 1
    return d.like(indexing.index_add(x, axis, index, source), x, more=more)


@move(2)
def sorted_along(d: Drawing) -> Value:
    x = d.jumpable(1)
    axis, descending = d.below(x.type.rank), bool(d.below(2))
    if d.below(2):
        return d.like(sorting.sort(x, axis, descending).values, x)
    return d.add(sorting.argsort(x, axis, descending), 10, 10.0)


@move(2)
def largest(d: Drawing) -> Value:
    x = d.jumpable(1)
    axis = d.below(x.type.rank)
    extent = x.shape[axis]
    if not isinstance(extent, int) or not extent:
        raise Unfit
    found = sorting.topk(x, 1 + d.below(min(extent, 2)), axis, bool(d.below(2)))
    return d.like(found.values, x) if d.below(2) else d.add(found.indices, 10, 10.0)


@move()
def hot(d: Drawing) -> Value:
    index = d.pick(lambda x: x.dtype is int64 and x.type.rank < 3)
    return d.add(selection.one_hot(arithmetic.remainder(index, 5), 5), 1, 0)


@move()
def chosen(d: Drawing) -> Value:
    """Draw as many places as there are true elements, which is known only if the drawing chooses them."""
    x = d.pick(lambda x: x.type.rank == 1 and isinstance(x.shape[0], int) and x.shape[0] > 1)
    extent = x.shape[0]
    mask = comparison.lt(creation.positions(extent), 2)
    return d.like(selection.masked_select(x, mask, 2), x)


@move(2)
def numbered(d: Drawing) -> Value:
    x = d.pick(lambda x: x.type.rank > 0)
    made = creation.positions(x.shape[d.below(x.type.rank)])
    return d.add(made, 10, 8.0)


@move()
def size_of(d: Drawing) -> Value:
    x = d.pick(lambda x: x.type.rank > 0)
    return d.add(creation.SizeValue(product(x.shape), float64), 16, 14.0)


@move()
def constants(d: Drawing) -> Value:
    x = d.pick()
    number = (0, 1, -2)[d.below(3)] if x.dtype.kind in ("float", "int") else d.below(2)
    typed = float(number) if x.dtype.is_float else bool(number) if x.dtype is bool_ else number
    return d.add(fill(typed, x.shape, x.dtype), 2, 1.0)


@move()
def random_numbers(d: Drawing) -> Value:
    if d.smooth:
        raise Unfit
    state = Input(TensorType(int64, (2,)), "state")
    d.inputs.append(state)
    d.arrays.append(np.array([7, 1 << 33]))
    x = d.pick()
    if d.below(2):
        return d.add(cast(random.rand(state, x.shape, float32), float64), 24, 0.0)
    return d.add(random.randint(state, 0, 9, x.shape), 4, 4.0)
