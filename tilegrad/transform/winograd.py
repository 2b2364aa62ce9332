"""Compute convolutions with 3 x 3 or 5 x 5 taps by Winograd's algorithm.

Overlapping windows share products (Winograd, 1980; Lavin and Gray, 2016). Tiles of 6 x 6 elements give 4 x 4 results of
9 taps by 36 products instead of 144, and 2 x 2 results of 25 taps by 36 instead of 100: tiles and weights are
transformed to values of polynomials at six points, multiplied there, and transformed back. So a convolution becomes 36
matrix products (tiles, channels) times (channels, outputs); its gradients (`ops/convolution.py`) likewise:

    Convolve        y = R' (L x L' * U w U') R        with 4 results of 6 elements and 3 taps
    ConvolveBack    the same with transposed weights
    ConvolveWeight  w of x and y: as above with 3 results of 6 elements and 4 "taps", summed over tiles

The points 0, 3/4, -3/4, 3/2, -3/2 and infinity have half the rounding error of 0, 1, -1, 2, -2 and infinity. All
elements of a tile share their errors: at `highest`, tiles with elements of very different magnitudes, or that are not
finite, are summed directly (`ops/odd_tiles.py`), and weight gradients, which sum over all tiles, are not transformed.
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
"""Interpolation points besides infinity."""
SIDE = 6
"""Side of a tile, in elements: with 3 taps it has 4 results, with 5 it has 2."""
TAPS = (3, 5)

INPUT_CYCLES, OUTPUT_CYCLES, WEIGHT_CYCLES = 3.5, 4.0, 4.0
"""Cycles to transform an element, a product and a weight (one core of a Zen 3 and of a Sapphire Rapids; 4 x 48 channels
of 32 x 32 to 16 x 512 of 7 x 7).
"""
MULTIPLIES_PER_CYCLE = 16
"""Approximate multiply-adds of a core per cycle, also with vectors of 512 bits or six products in a matrix unit, whose
operands must be packed.
"""
MATRIX_UNIT_MULTIPLIES = 29
"""Multiply-adds of a core per cycle at `high`, with three products in a matrix unit."""
MAX_TIME_RATIO = 0.85
"""Largest ratio to the time of the direct convolution that is worth the memory."""
MAX_TILE_BYTES = 320 << 20
"""Largest size of the tiles of a convolution, in bytes."""


def evaluation_matrix(terms: int) -> Matrix:
    """Return the matrix that evaluates a polynomial at all points: a row for each point.

    >>> evaluation_matrix(2)
    ((1.0, 0.0), (1.0, 0.75), (1.0, -0.75), (1.0, 1.5), (1.0, -1.5), (0.0, 1.0))
    """
    return (*[tuple([float(p**n) for n in range(terms)]) for p in POINTS], (*(0.0,) * (terms - 1), 1.0))


def scaled_evaluation_matrix(terms: int) -> Matrix:
    """Return the evaluation matrix with the rows divided by the factors that `interpolation_matrix` lacks."""
    scales = [prod([p - q for q in POINTS if q != p], start=Fraction(1)) for p in POINTS]
    return tuple(
        [
            tuple([n / float(s) for n in row])
            for row, s in zip(evaluation_matrix(terms), [*scales, Fraction(1)], strict=True)
        ]
    )


def interpolation_matrix() -> Matrix:
    """Return the coefficients of the polynomials that vanish at all points but one: a row for each point.

    >>> interpolation_matrix()[0]
    (1.265625, 0.0, -2.8125, 0.0, 1.0, 0.0)
    """
    rows = [[q for q in POINTS if q != p] for p in POINTS]
    return tuple([tuple(map(float, (*_polynomial(row), *[0] * (5 - len(row))))) for row in [*rows, list(POINTS)]])


def _polynomial(places: Sequence[Fraction]) -> list[Fraction]:
    """Return the coefficients of the polynomial with the given zeros, constant term first."""
    found = [Fraction(1)]
    for zero in places:
        found = [a - zero * b for a, b in zip([Fraction(0), *found], [*found, Fraction(0)], strict=True)]
    return found


def transposed(matrix: Matrix) -> Matrix:
    return tuple(zip(*matrix, strict=True))


def winograd(graph: Graph, target: TargetModel) -> Graph:
    """Compute convolutions of few taps by Winograd's algorithm where the cost model says that it pays."""
    return rewrite(graph, lambda value, _: as_winograd(value, target), of=CONVOLUTIONS)


def _has_plain_planes(value: Value) -> bool:
    """Whether a convolution has float32 planes of known size, and square windows with stride and dilation 1."""
    axes = value.axes  # type: ignore[attr-defined]
    dims = (*value.shape, *(n for x in value.inputs for n in x.shape))
    known = all(type(n) is int and n > 0 for n in dims)
    return known and value.dtype is float32 and len(axes) == 2 and all(_is_plain(a, axes[0].taps) for a in axes)


def as_winograd(value: Value, target: TargetModel) -> Value | None:
    """Rewrite a convolution as products of transformed tiles; None where the taps, the precision or the cost do not
    allow it.
    """
    if not isinstance(value, CONVOLUTIONS):
        return None
    axes, precision = value.axes, value.precision
    if target.matrix_unit is not None and precision == "medium":
        return None  # rounded products are cheap in the matrix unit, and transforms would amplify their errors
    if not _has_plain_planes(value):
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
    """Return the windows of the transposed convolution."""
    return tuple([Sliding(a.count, a.extent, a.taps, 1, a.taps - 1 - a.padding) for a in axes])


def _pays(x: Sequence[object], w: Sequence[object], axes: Windows, precision: Precision, target: TargetModel) -> bool:
    """Compare the cycles of transforms and fewer products with those of the direct products."""
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
    """Narrow the type of an extent that `as_winograd` has checked."""
    assert isinstance(extent, int)
    return extent


def _results(axes: Windows) -> int:
    """Return the results of a tile along each axis."""
    return SIDE + 1 - axes[0].taps


def _tiles(axes: Windows) -> list[int]:
    """Return the number of tiles along each axis."""
    return [-(-_known(a.count) // _results(axes)) for a in axes]


def _convolved(x: Value, w: Value, axes: Windows, precision: Precision, back: bool = False) -> Value:
    """Convolve x (images, groups, channels, *positions) with w (groups, outputs, channels, *taps); `back` reverses the
    taps.
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
    part_strides = _row_major((groups, images, tall, side * side * wide * outputs))[:3]
    results = TileStrides((*part_strides, side * outputs), side * wide * outputs, outputs, 1)
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
    """Return weights (groups, outputs, channels, *taps) in their memory layout, and the axis of the outputs in it."""
    match w:
        case Permute(x, (0, 2, 1, 3, 4)):
            return x, 2
    return w, 1


def _irregular_tiles(lying: Value, w: Value, squares: tuple[int, ...], begins: TileStrides, taps: int) -> Value:
    """Mark the tiles that must be summed directly."""
    sums, weight = reduce_sum(absolute(lying), (4,)), reduce_sum(absolute(w))
    channels = _known(lying.shape[4])
    part_strides = TileStrides(
        tuple([n // channels for n in begins.squares]), begins.row // channels, begins.column // channels, 1
    )
    return IrregularTiles(sums, weight, squares, part_strides, SIDE, taps)


def _unreshaped(w: Value) -> Value:
    """Strip reshapes from a value."""
    while isinstance(w, Reshape):
        w = w.x
    return w


def _row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the row-major strides of a shape."""
    return tuple([prod(shape[n + 1 :]) for n in range(len(shape))])


def _matrix_layout(squares: tuple[int, ...], lanes: int) -> TileStrides:
    """Return the strides of tiles stored as matrices, one for each place in a tile: (6, 6, *squares, lanes)."""
    part_strides = _row_major((SIDE, SIDE, *squares, lanes))
    return TileStrides(part_strides[2:-1], part_strides[0], part_strides[1], 1)


def _padded_input(x: Value, axes: Windows) -> tuple[Value, TileStrides]:
    """Pad the input, store it channels-last, and return the strides of its tiles."""
    tiles, results = _tiles(axes), _results(axes)
    ends = [n * results + a.taps - 1 - a.padding - _known(a.extent) for a, n in zip(axes, tiles, strict=True)]
    return _padded(x, [(a.padding, end) for a, end in zip(axes, ends, strict=True)], results)


def _padded(x: Value, reach: Sequence[tuple[int, int]], step: int) -> tuple[Value, TileStrides]:
    """Pad x and permute it to (groups, images, rows, columns, channels); return it with the strides of tiles `step`
    apart.
    """
    lying = permute(pad(x, [(0, 0)] * 3 + list(reach)), (1, 0, 3, 4, 2))
    part_strides = _row_major(tuple(map(_known, lying.shape)))
    return lying, TileStrides(
        (*part_strides[:2], step * part_strides[2], step * part_strides[3]), part_strides[2], part_strides[3], 1
    )


def _transformed_tiles(lying: Value, given: TileStrides, matrix: Matrix, squares: tuple[int, ...]) -> Value:
    """Transform tiles to (6, 6, *squares, channels)."""
    channels = _known(lying.shape[4])
    made = _matrix_layout(squares, channels)
    return TransformedTiles(lying, matrix, squares, channels, given, made, (SIDE, SIDE, *squares, channels))


def _transformed_weights(w: Value, back: bool) -> Value:
    """Transform weights to (6, 6, groups, outputs, channels), or in their order of axes."""
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
    """Compute the gradient of weights (groups, outputs, channels, *taps)."""
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
