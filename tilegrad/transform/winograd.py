"""Convolutions with 3 x 3 taps as products of fewer numbers, where that is faster and less than float32 will do.

Windows that overlap have products in common (Winograd, 1980; Lavin and Gray, 2016). Of 6 x 6 elements and 9 taps, 4 x 4
results take 36 products instead of 144, if both are transformed before and the products after them: they are values of
polynomials at six points, of which products are those of the values. So a convolution becomes 36 products of matrices,
(tiles, channels) times (channels, outputs), and the two others of `ops/convolution.py` in the same way:

    Convolve        y = R' (L x L' * U w U') R        with 4 results of 6 elements and 3 taps
    ConvolveBack    the same of turned weights
    ConvolveWeight  w of x and y: as above with 3 results of 6 elements and 4 "taps", summed over tiles

The points 0, 3/4, -3/4, 3/2, -3/2 and infinity have half the error of 0, 1, -1, 2, -2 and infinity. What elements of
different sizes, or infinities, do to each other within a tile is why products at `highest` are left alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import prod

from ..ir.dtype import float32
from ..ir.graph import Value
from ..ops.broadcasting import reshape
from ..ops.contraction import contract
from ..ops.convolution import Convolve, ConvolveBack, ConvolveWeight, Windows
from ..ops.movement import flip, narrow, pad, permute
from ..ops.sliding import Sliding
from ..ops.transformed import Matrix, Places, Transformed
from ..runtime.grain import Products

POINTS = tuple([Fraction(n, 4) for n in (0, 3, -3, 6, -6)])
"""And infinity."""
SIDE, RESULTS, TAPS = 6, 4, 3
"""Elements, results and taps of a tile along an axis."""

INTO, BACK, WEIGHTS = 3.5, 4.0, 4.0
"""Cycles that an element takes to be transformed, that a product takes to be transformed back, and that a weight takes
(measured on one core of a Zen 3 and of a Sapphire Rapids, from 4 x 48 channels of 32 x 32 to 16 x 512 of 7 x 7)."""
RATE = 16
"""Products that a core adds up in a cycle, about: there also where vectors of 512 bits could do twice as many."""
GAIN = 0.85
"""The share of the time up to which it is worth the memory."""


def values_at(terms: int) -> Matrix:
    """The matrix that makes values of a polynomial of so many terms: a row for each point.

    >>> values_at(2)
    ((1.0, 0.0), (1.0, 0.75), (1.0, -0.75), (1.0, 1.5), (1.0, -1.5), (0.0, 1.0))
    """
    return (*[tuple([float(p**n) for n in range(terms)]) for p in POINTS], (*(0.0,) * (terms - 1), 1.0))


def scaled_values_at(terms: int) -> Matrix:
    """The same, each row divided by what `interpolated` has too much there."""
    scales = [prod([p - q for q in POINTS if q != p], start=Fraction(1)) for p in POINTS]
    return tuple(
        [tuple([n / float(s) for n in row]) for row, s in zip(values_at(terms), [*scales, Fraction(1)], strict=True)]
    )


def interpolated() -> Matrix:
    """The polynomials that are 0 at all points but one, by their coefficients: a row for each point.

    >>> interpolated()[0]
    (1.265625, 0.0, -2.8125, 0.0, 1.0, 0.0)
    """
    rows = [[q for q in POINTS if q != p] for p in POINTS]
    return tuple([tuple(map(float, (*_with_zeros(row), *[0] * (5 - len(row))))) for row in [*rows, list(POINTS)]])


def _with_zeros(places: Sequence[Fraction]) -> list[Fraction]:
    """The coefficients of the polynomial with these zeros, the first that of no power."""
    found = [Fraction(1)]
    for zero in places:
        found = [a - zero * b for a, b in zip([Fraction(0), *found], [*found, Fraction(0)], strict=True)]
    return found


def turned(matrix: Matrix) -> Matrix:
    return tuple(zip(*matrix, strict=True))


def by_fewer_products(value: Value, products: Products) -> Value | None:
    """A convolution as products of transformed tiles, if it has 3 x 3 taps, that is allowed, and it pays."""
    if not isinstance(value, Convolve | ConvolveBack | ConvolveWeight) or value.precision == "highest":
        return None
    axes = value.axes
    if value.dtype is not float32 or len(axes) != 2 or not all(map(_is_plain, axes)):
        return None
    dims = (*value.shape, *(n for x in value.inputs for n in x.shape))
    if not all(type(n) is int and n > 0 for n in dims):
        return None
    match value:
        case Convolve(x, w, axes) if _pays(x.shape, w.shape, axes, products):
            return _convolved(x, w, axes)
        case ConvolveBack(y, w, axes) if _pays(y.shape, w.shape, _ways_back(axes), products):
            return reshape(_convolved(y, flip(w, (3, 4)), _ways_back(axes)), value.shape)
        case ConvolveWeight(x, y, axes) if _pays(x.shape, value.shape, axes, products):
            return _weight(x, y, axes)
    return None


def _is_plain(axis: Sliding) -> bool:
    return axis.taps == TAPS and axis.stride == 1 and axis.dilation == 1 and 0 <= axis.padding < TAPS


def _ways_back(axes: Windows) -> Windows:
    """The windows of the way back, over what windows made."""
    return tuple([Sliding(a.count, a.extent, a.taps, 1, a.taps - 1 - a.padding) for a in axes])


def _pays(x: Sequence[object], w: Sequence[object], axes: Windows, products: Products) -> bool:
    """Whether it takes fewer cycles: those of products, and those of transforming what goes in and what comes out."""
    (images, _, channels, *_), outputs = map(_number, x), _number(w[1])
    if min(channels, outputs) < products.transformed:
        return False
    results = prod([_number(a.count) for a in axes])
    tiles = images * prod(_tiles(axes))
    direct = images * results * TAPS**2 * channels * outputs / RATE
    fewer = SIDE**2 * tiles * (channels * outputs / RATE + INTO * channels + BACK * outputs)
    fewer += SIDE**2 * channels * outputs * WEIGHTS
    return fewer < GAIN * direct


def _number(extent: object) -> int:
    """An extent that `by_fewer_products` has looked at."""
    assert isinstance(extent, int)
    return extent


def _tiles(axes: Windows) -> list[int]:
    """How many tiles there are along each axis."""
    return [-(-_number(a.count) // RESULTS) for a in axes]


def _convolved(x: Value, w: Value, axes: Windows) -> Value:
    """x (images, groups, channels, *positions) and w (groups, outputs, channels, *taps): as `Convolve` gives it."""
    images, groups, outputs = _number(x.shape[0]), _number(x.shape[1]), _number(w.shape[1])
    tall, wide = _tiles(axes)
    made = contract(_elements(x, axes), _weights(w), "abgitjc,abgoc->abgitjo")
    given = _beside((groups, images, tall, wide), outputs)
    results = Places(
        _row_major((groups, images, tall, RESULTS * RESULTS * wide * outputs))[:3] + (RESULTS * outputs,),
        RESULTS * wide * outputs,
        outputs,
        1,
    )
    shape = (groups, images, RESULTS * tall, RESULTS * wide, outputs)
    whole: Value = Transformed(
        made, turned(values_at(RESULTS)), (groups, images, tall, wide), outputs, given, results, shape
    )
    whole = permute(whole, (1, 0, 4, 2, 3))
    return narrow(narrow(whole, 3, 0, axes[0].count), 4, 0, axes[1].count)


def _row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """How far apart elements are along each axis."""
    return tuple([prod(shape[n + 1 :]) for n in range(len(shape))])


def _beside(squares: tuple[int, ...], lanes: int) -> Places:
    """Where elements are that lie as matrices, one for each place in a square: (6, 6, *squares, lanes)."""
    apart = _row_major((SIDE, SIDE, *squares, lanes))
    return Places(apart[2:-1], apart[0], apart[1], 1)


def _elements(x: Value, axes: Windows) -> Value:
    """Tiles of the input, transformed: (6, 6, groups, images, tiles, tiles, channels)."""
    reach = [
        (a.padding, n * RESULTS + TAPS - 1 - a.padding - _number(a.extent))
        for a, n in zip(axes, _tiles(axes), strict=True)
    ]
    return _tiled(x, reach, interpolated(), _tiles(axes))


def _tiled(x: Value, reach: Sequence[tuple[int, int]], matrix: Matrix, tiles: Sequence[int]) -> Value:
    """Squares of x, which is padded so far, 4 apart from each other: transformed, (6, 6, groups, images, *tiles,
    channels)."""
    lying = permute(pad(x, [(0, 0)] * 3 + list(reach)), (1, 0, 3, 4, 2))
    groups, images, rows, columns, channels = map(_number, lying.shape)
    apart = _row_major((groups, images, rows, columns, channels))
    given = Places((*apart[:2], RESULTS * apart[2], RESULTS * apart[3]), apart[2], apart[3], 1)
    squares = (groups, images, *tiles)
    made = _beside(squares, channels)
    return Transformed(lying, matrix, squares, channels, given, made, (SIDE, SIDE, *squares, channels))


def _weights(w: Value) -> Value:
    """Weights, transformed: (6, 6, groups, outputs, channels)."""
    groups, outputs, channels = map(_number, w.shape[:3])
    lanes, taps = outputs * channels, TAPS * TAPS
    given = Places((lanes * taps,), TAPS, 1, taps)
    while w.op == "reshape":  # only where they lie matters
        (w,) = w.inputs
    made = Transformed(
        w, scaled_values_at(TAPS), (groups,), lanes, given, _beside((groups,), lanes), (SIDE, SIDE, groups, lanes)
    )
    return reshape(made, (SIDE, SIDE, groups, outputs, channels))


def _weight(x: Value, y: Value, axes: Windows) -> Value:
    """The gradient for weights (groups, outputs, channels, *taps)."""
    groups, outputs, channels = _number(x.shape[1]), _number(y.shape[2]), _number(x.shape[2])
    tiles = _tiles(axes)
    reach = [(0, n * RESULTS - _number(a.count)) for a, n in zip(axes, tiles, strict=True)]
    upstream = _tiled(y, reach, scaled_values_at(RESULTS), tiles)
    made = contract(upstream, _elements(x, axes), "abgitjo,abgitjc->abgoc")
    lanes, taps = outputs * channels, TAPS * TAPS
    results = Places((lanes * taps,), TAPS, 1, taps)
    shape = (groups, outputs, channels, TAPS, TAPS)
    return Transformed(made, turned(values_at(TAPS)), (groups,), lanes, _beside((groups,), lanes), results, shape)
