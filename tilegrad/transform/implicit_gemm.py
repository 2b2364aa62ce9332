"""Convolutions are laid out for devices: for those that copy operands in pieces while they multiply, in rows; where
products take most of the time and 3 x 3 taps may be computed by fewer of them, in tiles (`winograd.py`).

In rows, what an operand costs is how it lies in memory: computing where each element is takes longer than the
products. So the input gets its padding and the order (groups, images, *positions, channels) once, in memory, and so do
the weights; what is left are products of matrices (`ops/packed_rows.py`). Windows that are a stride apart become
neighbours: the positions of a stride are channels.

The rows of an image are as far apart as they need be for the padding of one to be that of the next; windows that
would begin in it are computed with the others, and not stored.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from ..ir.dtype import float32
from ..ir.graph import Graph, Value
from ..ir.precision import Precision
from ..ir.size import Dim
from ..ops.broadcasting import reshape
from ..ops.convolution import CONVOLUTIONS, Convolve, ConvolveBack, ConvolveWeight, Windows
from ..ops.movement import flip, moveaxis, narrow, pad, permute
from ..ops.packed_rows import PackedConvolve, PackedConvolveWeight, PackedRows, pitches
from ..ops.pooling import Im2col
from ..ops.sliding import Sliding
from ..runtime.target_model import TargetModel
from .contiguous_k import LINE_MULTIPLE
from .rewrite import rewrite

MAX_FOLDED_BYTES = 64
"""Of the channels of a position, up to which those of neighbouring rows are put beside them."""
LINES_MULTIPLE, MIN_LINES = 512, 8192
"""Of which the number of lines is a multiple where there are many: sums over them are cut into pieces."""
PART_LINES, MAX_PARTS = 64, 8
"""Lines of which such a piece has a multiple, and how many pieces lines are made even for."""
TILE_HEIGHT, TILE_WIDTHS = 128, (256, 240, 192)
"""The tiles of gradients for weights."""
MIN_GROUP_CHANNELS = 8
"""Channels of a group, where there are several: products with fewer are mostly zeros."""


def implicit_gemm(graph: Graph, target: TargetModel = TargetModel()) -> Graph:
    """The graph with convolutions as products of lines, where the target model says so; elsewhere see `overlaid`.

    >>> from ..ir.dtype import bfloat16
    >>> from ..ir.graph import Input, TensorType
    >>> from ..backend.cuda.costs import gpu_model
    >>> x = Input(TensorType(bfloat16, (2, 1, 8, 6)), "x")
    >>> w = Input(TensorType(bfloat16, (1, 16, 8, 3)), "w")
    >>> made = Convolve(x, w, (Sliding(6, 6, 3, 1, 1),))
    >>> print(implicit_gemm(Graph((x, w), (made,)), gpu_model(132)))
    graph(x: bf16[2,1,8,6], w: bf16[1,16,8,3])
      ...
    """
    return rewrite(graph, lambda value, _: _as_gemm(value, target), of=CONVOLUTIONS)


def _as_gemm(value: Value, target: TargetModel) -> Value | None:
    """A convolution as products of lines, if it is one, and all of its extents are known; other products `along`, and
    gradients of tables `row_sums`."""
    piece = target.matmul.async_copy_bytes
    match value:
        case Convolve(x, w, axes) if _fits(value, w, axes):
            return _forward(x, w, axes, piece, value.precision)
        case ConvolveBack(y, turned, axes) if _fits(value, turned, axes) and all(a.stride == 1 for a in axes):
            flipped = flip(turned, tuple(range(3, turned.type.rank)))
            made = _forward(y, flipped, tuple(map(_transposed, axes)), piece, value.precision)
            return reshape(made, value.shape)
        case ConvolveWeight(x, y, axes) if _fits(value, value, axes):
            return _weight_gradient(x, y, axes, target, value.precision)
    return None


def _fits(value: Value, weight: Value, axes: Windows) -> bool:
    dims = (*value.shape, *weight.shape, *(x for v in value.inputs for x in v.shape))
    if not all(type(d) is int and d > 0 for d in dims) or any(a.stride > 1 < a.dilation for a in axes):
        return False
    groups, outputs, channels = weight.shape[:3]
    return groups == 1 or min(outputs, channels) >= MIN_GROUP_CHANNELS  # type: ignore[type-var,operator]


def _transposed_padding(axis: Sliding) -> int:
    """How many taps of a window, but for the padding, are behind its first one: the padding of the way back, negative
    where windows begin with nothing but padding."""
    return (axis.taps - 1) * axis.dilation - axis.padding


def _transposed(axis: Sliding) -> Sliding:
    """The windows of the way back, over what windows made."""
    return Sliding(axis.count, axis.extent, axis.taps, 1, _transposed_padding(axis), axis.dilation)


def _known(extent: Dim) -> int:
    """An extent that `_fits` has looked at."""
    assert isinstance(extent, int)
    return extent


class Grid(NamedTuple):
    """How an axis is laid out: `before` positions of padding, `steps` of `stride` positions of which the first
    `phases` meet taps, and taps as counted in steps. Of `folded` taps, if any, each is a channel of its own."""

    before: int
    steps: int
    taps: int
    stride: int = 1
    phases: int = 1
    folded: int = 0


def _grids(axes: Windows, channels: int, room: int) -> list[Grid]:
    """How axes are laid out. With few channels those of the taps of the last axis but one are put beside each other,
    so that products are long."""
    found = [_grid(a) for a in axes]
    if len(axes) > 1 and axes[-2].dilation == 1 and axes[-2].taps > 1:
        if channels * math.prod(g.phases for g in found) <= room:
            axis, grid = axes[-2], found[-2]
            taps = -(-axis.taps // axis.stride)
            found[-2] = grid._replace(steps=_known(axis.count), taps=1, folded=taps)
    return found


def _grid(axis: Sliding) -> Grid:
    """
    >>> _grid(Sliding(26, 26, 5, 1, 2))
    Grid(before=2, steps=28, taps=5, stride=1, phases=1, folded=0)
    >>> _grid(Sliding(224, 54, 11, 4))
    Grid(before=0, steps=56, taps=3, stride=4, phases=4, folded=0)
    """
    assert isinstance(axis.extent, int)
    assert isinstance(axis.count, int)
    if axis.stride > 1:
        taps = -(-axis.taps // axis.stride)
        return Grid(axis.padding, axis.count + taps - 1, taps, axis.stride, min(axis.stride, axis.taps))
    reach = axis.count + (axis.taps - 1) * axis.dilation
    return Grid(axis.padding, max(axis.padding + axis.extent, reach - axis.padding, axis.count), axis.taps)


class PackedTensor(NamedTuple):
    """A tensor in memory: (groups, numbers), lines of `channels`, `grid` of them an image."""

    value: Value
    grid: tuple[int, ...]
    channels: int


def _pack(x: Value, axes: Sequence[Grid], slack: int, piece: int) -> PackedTensor:
    """x (images, groups, channels, *positions) in rows, at least `slack` lines longer than its images."""
    grid = tuple([a.steps for a in axes])
    images = -(-(slack + _slack_lines(_known(x.shape[0]), grid)) // math.prod(grid))
    widths = [(0, images), (0, 0), (0, 0)]
    for a, extent in zip(axes, x.shape[3:], strict=True):
        assert isinstance(extent, int)
        reach = a.steps + max(0, a.folded - 1)
        widths.append((a.before, reach * a.stride - a.before - extent))
    x, names = _split_strides(pad(x, widths), axes)
    for n, a in enumerate(axes):
        if a.folded:
            at = names.index(f"step {n}")
            windows = Sliding(x.shape[at], a.steps, a.folded)
            x = Im2col(moveaxis(x, at, -1), (windows,))
            names = [*names[:at], *names[at + 1 :], f"tap {n}", f"step {n}"]
    steps = [f"step {n}" for n in range(len(axes))]
    x = _pad_channels(_channels_last(x, names, ["group", "outer", *steps], axes), piece)
    channels = x.shape[-1]
    assert isinstance(channels, int)
    return PackedTensor(PackedRows(x), grid, channels)


def _slack_lines(images: int, grid: tuple[int, ...]) -> int:
    """Lines of zeros behind those of all images: room for `_missing_lines`.

    >>> _slack_lines(128, (13, 13)), _slack_lines(2, (13, 13))
    (512, 0)
    """
    return LINES_MULTIPLE if images * math.prod(grid) >= MIN_LINES else 0


def _missing_lines(lines: int, pieces: int = LINES_MULTIPLE // PART_LINES) -> int:
    """Lines of zeros behind those of all images, which make their number even: a multiple of whole pieces.

    >>> _missing_lines(128 * 169), _missing_lines(128 * 169, 7), _missing_lines(2 * 169)
    (384, 320, 0)
    """
    return -lines % (PART_LINES * pieces) if lines >= MIN_LINES else 0


def _part_count(lines: int, outputs: int, run: int, sums: int, workers: int) -> int:
    """Into how many pieces lines can be cut so that workers share the tiles of so many matrices of sums evenly.

    >>> _part_count(128 * 784, 256, 480, 5, 132), _part_count(128 * 169, 384, 768, 3, 132)
    (6, 7)
    >>> _part_count(128 * 3024, 96, 144, 1, 132)
    8
    """

    def rounds(pieces: int, width: int) -> int:
        """Columns that the worker with most tiles computes, times lines."""
        tiles = -(-outputs // TILE_HEIGHT) * -(-run // width) * sums * pieces
        return -(-tiles // workers) * width * -(-lines // (PART_LINES * pieces))

    return min(range(1, MAX_PARTS + 1), key=lambda pieces: min(rounds(pieces, width) for width in TILE_WIDTHS))


def _split_strides(x: Value, axes: Sequence[Grid]) -> tuple[Value, list[str]]:
    """Each axis behind the third as two: steps, and the positions of a step that matter; and what axes are then."""
    cut = [n for extent, a in zip(x.shape[3:], axes, strict=True) for n in (extent // a.stride, a.stride)]
    x = reshape(x, (*x.shape[:3], *cut))
    for n, a in enumerate(axes):
        x = narrow(x, 4 + 2 * n, 0, a.phases)
    return x, ["outer", "group", "channel", *[f"{what} {n}" for n in range(len(axes)) for what in ("step", "phase")]]


def _channels_last(x: Value, names: list[str], first: list[str], axes: Sequence[Grid]) -> Value:
    """Some axes first, and then as one what else is a channel of its own."""
    line = _channel_axes(axes)
    x = permute(x, [names.index(name) for name in (*first, *line)])
    return reshape(x, (*x.shape[: len(first)], -1))


def _channel_axes(axes: Sequence[Grid]) -> list[str]:
    """What the channels of a line are made of."""
    taps = [f"tap {n}" for n, a in enumerate(axes) if a.folded]
    return [*taps, *[f"phase {n}" for n in range(len(axes))], "channel"]


def _pad_channels(x: Value, piece: int) -> Value:
    """With zeros behind the last axis, so that it takes whole pieces of memory."""
    each = max(1, piece // x.dtype.bytes)
    extent = x.shape[-1]
    assert isinstance(extent, int)
    return pad(x, [(0, 0)] * (x.type.rank - 1) + [(0, -extent % each)])


def _pack_input(x: Value, axes: Windows, grids: Sequence[Grid], piece: int) -> PackedTensor:
    lines = pitches(tuple([g.steps for g in grids]))
    slack = sum((g.taps - 1) * a.dilation * n for g, a, n in zip(grids, axes, lines, strict=True))
    return _pack(x, grids, slack, piece)


def _loop_taps(axes: Windows, grids: Sequence[Grid], channels: int) -> tuple[tuple[int, ...], int]:
    """The taps that are gone through one by one, and how far each runs along a row: where taps of the last axis are
    neighbours, through all of them."""
    taps = tuple([g.taps for g in grids])
    return ((*taps[:-1], 1), channels * taps[-1]) if axes[-1].dilation == 1 else (taps, channels)


def _forward(x: Value, w: Value, axes: Windows, piece: int, precision: Precision) -> Value:
    grids = _grids(axes, _known(x.shape[2]), MAX_FOLDED_BYTES // x.dtype.bytes)
    rows = _pack_input(x, axes, grids, piece)
    taps, run = _loop_taps(axes, grids, rows.channels)
    made = PackedConvolve(
        rows.value,
        _pack_weights(w, axes, grids, piece),
        _known(x.shape[0]),
        rows.grid,
        rows.channels,
        _known(w.shape[1]),
        taps,
        run,
        tuple([_known(a.count) for a in axes]),
        tuple([a.dilation for a in axes]),
        precision,
    )
    return made


def _pack_weights(w: Value, axes: Windows, grids: Sequence[Grid], piece: int) -> Value:
    """Weights (groups, outputs, channels, *taps) in the order of rows: (groups, outputs, *taps, run)."""
    more = [(0, (g.folded or g.taps) * g.stride - a.taps) for g, a in zip(grids, axes, strict=True)]
    w, names = _split_strides(pad(w, [(0, 0)] * 3 + more), grids)
    names = [name.replace("step", "tap") if grids[int(name[-1])].folded else name for name in names[3:]]
    names = ["group", "outer", "channel", *names]
    steps = [f"step {n}" for n, g in enumerate(grids) if not g.folded]
    return PackedRows(_pad_channels(_channels_last(w, names, ["group", "outer", *steps], grids), piece))


def _weight_gradient(x: Value, y: Value, axes: Windows, target: TargetModel, precision: Precision) -> Value:
    """The gradient for weights (groups, outputs, channels, *taps)."""
    piece, pieces = target.matmul.async_copy_bytes, LINES_MULTIPLE // PART_LINES
    grids = _grids(axes, _known(x.shape[2]), MAX_FOLDED_BYTES // x.dtype.bytes)
    rows = _pack_input(x, axes, grids, piece)
    back = [_grid(_transposed(a)) if a.stride == 1 and _transposed_padding(a) >= 0 else Grid(0, 0, 0) for a in axes]
    whole = not any(g.folded for g in grids)
    pitch = 1
    if precision == "high" and y.dtype is float32:
        upstream, first = _pack_channels_first(y, rows.grid), 0
        pitch = _known(upstream.value.shape[1]) // _known(y.shape[2])
    elif whole and tuple([b.steps for b in back]) == rows.grid:  # then it is what the way back for the input reads, too
        upstream = _pack_input(y, tuple(map(_transposed, axes)), back, piece)
        first = sum(b.before * n for b, n in zip(back, pitches(rows.grid), strict=True))
    else:
        upstream, first = _pack(y, [Grid(0, steps, 1) for steps in rows.grid], 0, piece), 0
    taps, run = _loop_taps(axes, grids, rows.channels)
    lines = _known(x.shape[0]) * math.prod(rows.grid)
    if pitch == 1:
        sums = _known(x.shape[1]) * math.prod(taps)
        pieces = _part_count(lines, _known(y.shape[2]), run, sums, target.workers)
    made: Value = PackedConvolveWeight(
        rows.value,
        upstream.value,
        lines + _missing_lines(lines, pieces),
        rows.grid,
        (rows.channels, upstream.channels),
        _known(y.shape[2]),
        first,
        taps,
        run,
        tuple([a.dilation for a in axes]),
        precision,
        pitch,
    )
    return _unpack_weights(made, _known(x.shape[2]), axes, grids, rows.channels)


def _pack_channels_first(y: Value, grid: tuple[int, ...]) -> PackedTensor:
    """y (images, groups, channels, *positions) with a row of lines for each channel: numbers of 32 bits are multiplied
    so, along what is summed."""
    images, lines = _known(y.shape[0]), math.prod(grid)
    least = -(-_missing_lines(images * lines) // lines)
    more = next(n for n in range(least, least + LINE_MULTIPLE) if (images + n) * lines % LINE_MULTIPLE == 0)
    y = pad(y, [(0, more), (0, 0), (0, 0), *[(0, n - _known(e)) for n, e in zip(grid, y.shape[3:], strict=True)]])
    y = permute(y, [1, 2, 0, *range(3, y.type.rank)])
    return PackedTensor(PackedRows(y), grid, 1)


def _unpack_weights(w: Value, channels: int, axes: Windows, grids: Sequence[Grid], pitch: int) -> Value:
    """Weights in the order of rows as (groups, outputs, channels, *taps)."""
    rank = len(axes)
    line = _channel_axes(grids)
    sizes = [channels if name == "channel" else _axis_size(name, grids) for name in line]
    steps = [n for n, g in enumerate(grids) if not g.folded]
    w = reshape(w, (*w.shape[:2], *[grids[n].taps for n in steps], pitch))
    w = narrow(w, w.type.rank - 1, 0, math.prod(sizes))
    w = reshape(w, (*w.shape[:-1], *sizes))
    names = ["group", "outer", *[f"tap {n}" for n in steps], *line]
    order = ["group", "outer", "channel", *[f"{what} {n}" for n in range(rank) for what in ("tap", "phase")]]
    w = permute(w, [names.index(name) for name in order])
    for n, g in enumerate(grids):  # the positions of a step that met no tap come back as 0, and are cut off
        w = pad(w, [(0, g.stride - g.phases if m == 4 + 2 * n else 0) for m in range(w.type.rank)])
    w = reshape(w, (*w.shape[:3], *[(g.folded or g.taps) * g.stride for g in grids]))
    for n, axis in enumerate(axes):
        w = narrow(w, 3 + n, 0, axis.taps)
    return w


def _axis_size(name: str, grids: Sequence[Grid]) -> int:
    """How many channels a line has of one kind."""
    kind, number = name.split()
    grid = grids[int(number)]
    return grid.folded if kind == "tap" else grid.phases
