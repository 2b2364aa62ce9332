"""Convolutions with 3 x 3 or 5 x 5 taps as products of fewer numbers, where that is faster.

Windows that overlap have products in common (Winograd, 1980; Lavin and Gray, 2016). Of 6 x 6 elements and 9 taps, 4 x 4
results take 36 products instead of 144, of 25 taps, 2 x 2 results take 36 instead of 100, if both are transformed
before and the products after them: they are values of polynomials at six points, of which products are those of the
values. So a convolution becomes 36 products of matrices, (tiles, channels) times (channels, outputs), and the two
others of `ops/convolution.py` in the same way:

    Convolve        y = R' (L x L' * U w U') R        with 4 results of 6 elements and 3 taps
    ConvolveBack    the same of turned weights
    ConvolveWeight  w of x and y: as above with 3 results of 6 elements and 4 "taps", summed over tiles

The points 0, 3/4, -3/4, 3/2, -3/2 and infinity have half the error of 0, 1, -1, 2, -2 and infinity. Elements of a tile
share their errors: at `highest`, tiles whose elements are not of a size, or not finite, are summed directly
(`ops/odd_tiles.py`), and weights' gradients, to which all tiles are added, are as they were.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import prod

from ..ir.dtype import float32
from ..ir.graph import Graph, Value
from ..ir.precision import Precision
from ..ops.arithmetic import absolute
from ..ops.broadcasting import Reshape, reduce_sum, reshape
from ..ops.contraction import contract
from ..ops.convolution import CONVOLUTIONS, Convolve, ConvolveBack, ConvolveWeight, Windows
from ..ops.movement import Permute, narrow, pad, permute
from ..ops.odd_tiles import FilterLayout, IrregularTiles, RepairedTiles
from ..ops.sliding import Sliding
from ..ops.winograd_tiles import Matrix, TileStrides, TransformedTiles
from ..runtime.target_model import TargetModel
from .rewrite import rewrite

POINTS = tuple([Fraction(n, 4) for n in (0, 3, -3, 6, -6)])
"""And infinity."""
SIDE = 6
"""Elements of a tile along an axis: with 3 taps it has 4 results, with 5 it has 2."""
TAPS = (3, 5)

INPUT_CYCLES, OUTPUT_CYCLES, WEIGHT_CYCLES = 3.5, 4.0, 4.0
"""Cycles that an element takes to be transformed, that a product takes to be transformed back, and that a weight takes
(measured on one core of a Zen 3 and of a Sapphire Rapids, from 4 x 48 channels of 32 x 32 to 16 x 512 of 7 x 7)."""
MULTIPLIES_PER_CYCLE = 16
"""Products that a core adds up in a cycle, about: there also where vectors of 512 bits could do twice as many, and in
six products of parts in a matrix unit, which must be packed."""
MATRIX_UNIT_MULTIPLIES = 29
"""The same at `high`, of three products of parts."""
MAX_TIME_RATIO = 0.85
"""The share of the time up to which it is worth the memory."""
MAX_TILE_BYTES = 320 << 20
"""Bytes that the tiles of a convolution may take."""


def evaluation_matrix(terms: int) -> Matrix:
    """The matrix that makes values of a polynomial of so many terms: a row for each point.

    >>> evaluation_matrix(2)
    ((1.0, 0.0), (1.0, 0.75), (1.0, -0.75), (1.0, 1.5), (1.0, -1.5), (0.0, 1.0))
    """
    return (*[tuple([float(p**n) for n in range(terms)]) for p in POINTS], (*(0.0,) * (terms - 1), 1.0))


def scaled_evaluation_matrix(terms: int) -> Matrix:
    """The same, each row divided by what `interpolation_matrix` has too much there."""
    scales = [prod([p - q for q in POINTS if q != p], start=Fraction(1)) for p in POINTS]
    return tuple(
        [
            tuple([n / float(s) for n in row])
            for row, s in zip(evaluation_matrix(terms), [*scales, Fraction(1)], strict=True)
        ]
    )


def interpolation_matrix() -> Matrix:
    """The polynomials that are 0 at all points but one, by their coefficients: a row for each point.

    >>> interpolation_matrix()[0]
    (1.265625, 0.0, -2.8125, 0.0, 1.0, 0.0)
    """
    rows = [[q for q in POINTS if q != p] for p in POINTS]
    return tuple([tuple(map(float, (*_polynomial(row), *[0] * (5 - len(row))))) for row in [*rows, list(POINTS)]])


def _polynomial(places: Sequence[Fraction]) -> list[Fraction]:
    """The coefficients of the polynomial with these zeros, the first that of no power."""
    found = [Fraction(1)]
    for zero in places:
        found = [a - zero * b for a, b in zip([Fraction(0), *found], [*found, Fraction(0)], strict=True)]
    return found


def transposed(matrix: Matrix) -> Matrix:
    return tuple(zip(*matrix, strict=True))


def winograd(graph: Graph, target: TargetModel) -> Graph:
    """Compute convolutions of few taps by Winograd's algorithm, where the target model says that it pays."""
    return rewrite(graph, lambda value, _: as_winograd(value, target), of=CONVOLUTIONS)


def as_winograd(value: Value, target: TargetModel) -> Value | None:
    """A convolution as products of transformed tiles, if it has 3 x 3 or 5 x 5 taps, that is allowed, and it pays."""
    if not isinstance(value, CONVOLUTIONS):
        return None
    axes, precision = value.axes, value.precision
    if target.matrix_unit is not None and precision == "medium":
        return None  # products of rounded numbers take no time there, and transforms would make their errors larger
    if value.dtype is not float32 or len(axes) != 2 or not all(_is_plain(a, axes[0].taps) for a in axes):
        return None
    dims = (*value.shape, *(n for x in value.inputs for n in x.shape))
    if not all(type(n) is int and n > 0 for n in dims):
        return None
    match value:
        case Convolve(x, w, axes) if _pays(x.shape, w.shape, axes, precision, target):
            return _convolved(x, w, axes, precision)
        case ConvolveBack(y, w, axes) if _pays(y.shape, w.shape, _transposed_windows(axes), precision, target):
            return reshape(_convolved(y, w, _transposed_windows(axes), precision, back=True), value.shape)
        case ConvolveWeight(x, y, axes) if precision != "highest":
            return (
                _weight_gradient(x, y, axes, precision)
                if _pays(x.shape, value.shape, axes, precision, target)
                else None
            )
    return None


def _is_plain(axis: Sliding, taps: int) -> bool:
    plain = axis.stride == 1 and axis.dilation == 1 and 0 <= axis.padding < taps
    return plain and axis.taps == taps and taps in TAPS


def _transposed_windows(axes: Windows) -> Windows:
    """The windows of the way back, over what windows made."""
    return tuple([Sliding(a.count, a.extent, a.taps, 1, a.taps - 1 - a.padding) for a in axes])


def _pays(x: Sequence[object], w: Sequence[object], axes: Windows, precision: Precision, target: TargetModel) -> bool:
    """Whether it takes fewer cycles: those of products, and those of transforming what goes in and what comes out."""
    (images, _, channels, *_), outputs = map(_known, x), _known(w[1])
    results = prod([_known(a.count) for a in axes])
    tiles = images * prod(_tiles(axes))
    bytes = SIDE**2 * tiles * _known(x[1]) * (channels + outputs) * 4
    least = target.matmul.winograd_min_channels
    if not least or min(channels, outputs) < least or bytes > MAX_TILE_BYTES:
        return False
    in_unit = target.matrix_unit is not None and precision != "highest" and target.matrix_unit.max_bf16_parts > 1
    rate = MATRIX_UNIT_MULTIPLIES if in_unit else MULTIPLIES_PER_CYCLE
    direct = images * results * axes[0].taps ** 2 * channels * outputs / rate
    fewer = SIDE**2 * tiles * (channels * outputs / rate + INPUT_CYCLES * channels + OUTPUT_CYCLES * outputs)
    fewer += SIDE**2 * channels * outputs * WEIGHT_CYCLES
    return fewer < MAX_TIME_RATIO * direct


def _known(extent: object) -> int:
    """An extent that `as_winograd` has looked at."""
    assert isinstance(extent, int)
    return extent


def _results(axes: Windows) -> int:
    """Results of a tile along each axis."""
    return SIDE + 1 - axes[0].taps


def _tiles(axes: Windows) -> list[int]:
    """How many tiles there are along each axis."""
    return [-(-_known(a.count) // _results(axes)) for a in axes]


def _convolved(x: Value, w: Value, axes: Windows, precision: Precision, back: bool = False) -> Value:
    """x (images, groups, channels, *positions) and w (groups, outputs, channels, *taps): as `Convolve` gives it.

    On the way back taps are in reverse order.
    """
    images, groups, outputs = _known(x.shape[0]), _known(x.shape[1]), _known(w.shape[1])
    (tall, wide), side, taps = _tiles(axes), _results(axes), axes[0].taps
    lying, begins = _padded_input(x, axes)
    squares = (groups, images, tall, wide)
    weights, axis = _weights_in_memory(w)
    equation = "abgitjc,abgoc->abgitjo" if axis == 1 else "abgitjc,abgco->abgitjo"
    made = contract(
        _transformed_tiles(lying, begins, interpolation_matrix(), squares),
        _transformed_weights(weights, back),
        equation,
        precision,
    )
    given = _matrix_layout(squares, outputs)
    apart = _row_major((groups, images, tall, side * side * wide * outputs))[:3]
    results = TileStrides((*apart, side * outputs), side * wide * outputs, outputs, 1)
    matrix, shape = transposed(evaluation_matrix(side)), (groups, images, side * tall, side * wide, outputs)
    whole: Value
    if precision == "highest":
        w = _unreshaped(weights)
        flags, how = _irregular_tiles(lying, w, squares, begins, taps), FilterLayout(taps, axis == 2, back)
        whole = RepairedTiles(made, flags, lying, w, matrix, squares, outputs, given, results, begins, shape, how)
    else:
        whole = TransformedTiles(made, matrix, squares, outputs, given, results, shape)
    whole = permute(whole, (1, 0, 4, 2, 3))
    return narrow(narrow(whole, 3, 0, axes[0].count), 4, 0, axes[1].count)


def _weights_in_memory(w: Value) -> tuple[Value, int]:
    """Weights (groups, outputs, channels, *taps) as they are in memory, and which axis of these has the outputs."""
    match w:
        case Permute(x, (0, 2, 1, 3, 4)):
            return x, 2
    return w, 1


def _irregular_tiles(lying: Value, w: Value, squares: tuple[int, ...], begins: TileStrides, taps: int) -> Value:
    """Which tiles have to be summed directly."""
    sums, weight = reduce_sum(absolute(lying), (4,)), reduce_sum(absolute(w))
    channels = _known(lying.shape[4])
    apart = TileStrides(
        tuple([n // channels for n in begins.squares]), begins.row // channels, begins.column // channels, 1
    )
    return IrregularTiles(sums, weight, squares, apart, SIDE, taps)


def _unreshaped(w: Value) -> Value:
    """What a value is in memory, where its shape does not matter."""
    while isinstance(w, Reshape):
        w = w.x
    return w


def _row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """How far apart elements are along each axis."""
    return tuple([prod(shape[n + 1 :]) for n in range(len(shape))])


def _matrix_layout(squares: tuple[int, ...], lanes: int) -> TileStrides:
    """Where elements are that lie as matrices, one for each place in a square: (6, 6, *squares, lanes)."""
    apart = _row_major((SIDE, SIDE, *squares, lanes))
    return TileStrides(apart[2:-1], apart[0], apart[1], 1)


def _padded_input(x: Value, axes: Windows) -> tuple[Value, TileStrides]:
    """The input with its padding, channels last, and where tiles are in it."""
    tiles, results = _tiles(axes), _results(axes)
    ends = [n * results + a.taps - 1 - a.padding - _known(a.extent) for a, n in zip(axes, tiles, strict=True)]
    return _padded(x, [(a.padding, end) for a, end in zip(axes, ends, strict=True)], results)


def _padded(x: Value, reach: Sequence[tuple[int, int]], step: int) -> tuple[Value, TileStrides]:
    """x padded so far, channels last: (groups, images, rows, columns, channels), and squares `step` apart in it."""
    lying = permute(pad(x, [(0, 0)] * 3 + list(reach)), (1, 0, 3, 4, 2))
    apart = _row_major(tuple(map(_known, lying.shape)))
    return lying, TileStrides((*apart[:2], step * apart[2], step * apart[3]), apart[2], apart[3], 1)


def _transformed_tiles(lying: Value, given: TileStrides, matrix: Matrix, squares: tuple[int, ...]) -> Value:
    """Squares, transformed: (6, 6, *squares, channels)."""
    channels = _known(lying.shape[4])
    made = _matrix_layout(squares, channels)
    return TransformedTiles(lying, matrix, squares, channels, given, made, (SIDE, SIDE, *squares, channels))


def _transformed_weights(w: Value, back: bool) -> Value:
    """Weights, transformed: (6, 6, groups, outputs, channels), or whatever their axes before taps are."""
    groups, one, other, taps = map(_known, w.shape[:4])
    lanes = one * other
    matrix = scaled_evaluation_matrix(taps)
    made = TransformedTiles(
        _unreshaped(w),
        tuple([row[::-1] for row in matrix]) if back else matrix,
        (groups,),
        lanes,
        TileStrides((lanes * taps**2,), taps, 1, taps**2),
        _matrix_layout((groups,), lanes),
        (SIDE, SIDE, groups, lanes),
    )
    return reshape(made, (SIDE, SIDE, groups, one, other))


def _weight_gradient(x: Value, y: Value, axes: Windows, precision: Precision) -> Value:
    """The gradient for weights (groups, outputs, channels, *taps)."""
    groups, outputs, channels = _known(x.shape[1]), _known(y.shape[2]), _known(x.shape[2])
    tiles, results, taps = _tiles(axes), _results(axes), axes[0].taps
    squares = (groups, _known(x.shape[0]), *tiles)
    ends = [(0, n * results - _known(a.count)) for a, n in zip(axes, tiles, strict=True)]
    upstream = _transformed_tiles(*_padded(y, ends, results), scaled_evaluation_matrix(results), squares)
    lying = _transformed_tiles(*_padded_input(x, axes), interpolation_matrix(), squares)
    made = contract(upstream, lying, "abgitjo,abgitjc->abgoc", precision)
    lanes = outputs * channels
    given, made_at = _matrix_layout((groups,), lanes), TileStrides((lanes * taps**2,), taps, 1, taps**2)
    shape = (groups, outputs, channels, taps, taps)
    return TransformedTiles(made, transposed(evaluation_matrix(taps)), (groups,), lanes, given, made_at, shape)
