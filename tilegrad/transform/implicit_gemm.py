"""Rewrite convolutions as matrix products over packed rows (implicit GEMM), for targets that copy operands
asynchronously.

On these targets the cost of an operand is its memory layout: computing the address of each element takes longer than
the products. So the input is padded and stored once in the order (groups, images, *positions, channels), and the
weights accordingly; then the convolution is a product of matrices (`ops/packed_rows.py`). With a stride, positions
modulo the stride become channels.

The padding of a row also serves as the padding of the next one. Windows that begin in the padding are computed with the
others and not stored.
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
"""Bytes of the channels of a position up to which taps of neighbouring rows become channels."""
LINES_MULTIPLE, MIN_LINES = 512, 8192
"""Padded number of lines, and the number of lines from which it is padded: sums over them are split."""
PART_LINES, MAX_PARTS = 64, 8
"""Lines that the parts of a split sum are a multiple of, and the largest number of parts considered."""
TILE_HEIGHT, TILE_WIDTHS = 128, (256, 240, 192)
"""Tile sizes of weight gradients."""
MIN_GROUP_CHANNELS = 8
"""Channels of a group from which grouped convolutions become products: with fewer most products would be zeros."""


def implicit_gemm(graph: Graph, target: TargetModel = TargetModel()) -> Graph:
    """Rewrite convolutions of known sizes as products over packed rows.

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
    """Rewrite a convolution as a product over packed rows; None for anything else."""
    piece = target.matmul.async_copy_bytes
    match value:
        case Convolve(x, w, axes) if _fits(value, w, axes):
            return _forward(x, w, axes, piece, value.precision)
        case ConvolveBack(y, weights, axes) if _fits(value, weights, axes) and all(a.stride == 1 for a in axes):
            flipped = flip(weights, tuple(range(3, weights.type.rank)))
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
    """Return the padding of the transposed convolution, negative where windows only see padding."""
    return (axis.taps - 1) * axis.dilation - axis.padding


def _transposed(axis: Sliding) -> Sliding:
    """Return the windows of the transposed convolution."""
    return Sliding(axis.count, axis.extent, axis.taps, 1, _transposed_padding(axis), axis.dilation)


def _known(extent: Dim) -> int:
    """Narrow the type of an extent that `_fits` has checked."""
    assert isinstance(extent, int)
    return extent


class Grid(NamedTuple):
    """The layout of an axis: `before` positions of padding, `steps` of `stride` positions of which the first `phases`
    meet taps, and taps counted in steps. Of `folded` taps, if any, each is a channel.
    """

    before: int
    steps: int
    taps: int
    stride: int = 1
    phases: int = 1
    folded: int = 0


def _grids(axes: Windows, channels: int, room: int) -> list[Grid]:
    """Choose the layout of all axes. If there are few channels, the taps of the last axis but one become channels,
    which makes products longer.
    """
    found = [_grid(a) for a in axes]
    if len(axes) > 1 and axes[-2].dilation == 1 and axes[-2].taps > 1:
        if channels * math.prod(g.phases for g in found) <= room:
            axis, grid = axes[-2], found[-2]
            taps = -(-axis.taps // axis.stride)
            found[-2] = grid._replace(steps=_known(axis.count), taps=1, folded=taps)
    return found


def _grid(axis: Sliding) -> Grid:
    """Describe the grid of padded rows that covers the windows of an axis.

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
    """A packed tensor (groups, elements): lines of `channels` elements, `grid` lines an image."""

    value: Value
    grid: tuple[int, ...]
    channels: int


def _pack(x: Value, axes: Sequence[Grid], slack: int, piece: int) -> PackedTensor:
    """Pack x (images, groups, channels, *positions), followed by at least `slack` lines of zeros."""
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
    """Return the lines of zeros behind all images that `_missing_lines` needs.

    >>> _slack_lines(128, (13, 13)), _slack_lines(2, (13, 13))
    (512, 0)
    """
    return LINES_MULTIPLE if images * math.prod(grid) >= MIN_LINES else 0


def _missing_lines(lines: int, pieces: int = LINES_MULTIPLE // PART_LINES) -> int:
    """Return the lines of zeros that pad the lines of all images to whole parts.

    >>> _missing_lines(128 * 169), _missing_lines(128 * 169, 7), _missing_lines(2 * 169)
    (384, 320, 0)
    """
    return -lines % (PART_LINES * pieces) if lines >= MIN_LINES else 0


def _part_count(lines: int, outputs: int, run: int, sums: int, workers: int) -> int:
    """Return the number of parts of a sum over lines that balances the tiles of several matrices over the workers.

    >>> _part_count(128 * 784, 256, 480, 5, 132), _part_count(128 * 169, 384, 768, 3, 132)
    (6, 7)
    >>> _part_count(128 * 3024, 96, 144, 1, 132)
    8
    """

    def rounds(pieces: int, width: int) -> int:
        """Return the time of the worker with most tiles, in columns times lines."""
        tiles = -(-outputs // TILE_HEIGHT) * -(-run // width) * sums * pieces
        return -(-tiles // workers) * width * -(-lines // (PART_LINES * pieces))

    return min(range(1, MAX_PARTS + 1), key=lambda pieces: min(rounds(pieces, width) for width in TILE_WIDTHS))


def _split_strides(x: Value, axes: Sequence[Grid]) -> tuple[Value, list[str]]:
    """Split each spatial axis into steps and the phases that meet taps; return the names of the axes."""
    cut = [n for extent, a in zip(x.shape[3:], axes, strict=True) for n in (extent // a.stride, a.stride)]
    x = reshape(x, (*x.shape[:3], *cut))
    for n, a in enumerate(axes):
        x = narrow(x, 4 + 2 * n, 0, a.phases)
    return x, ["outer", "group", "channel", *[f"{what} {n}" for n in range(len(axes)) for what in ("step", "phase")]]


def _channels_last(x: Value, names: list[str], first: list[str], axes: Sequence[Grid]) -> Value:
    """Permute some axes to the front and merge all others into one axis of channels."""
    line = _channel_axes(axes)
    x = permute(x, [names.index(name) for name in (*first, *line)])
    return reshape(x, (*x.shape[: len(first)], -1))


def _channel_axes(axes: Sequence[Grid]) -> list[str]:
    """Return the names of the axes that make up the channels of a line."""
    taps = [f"tap {n}" for n, a in enumerate(axes) if a.folded]
    return [*taps, *[f"phase {n}" for n in range(len(axes))], "channel"]


def _pad_channels(x: Value, piece: int) -> Value:
    """Pad the last axis with zeros to whole asynchronous copies."""
    each = max(1, piece // x.dtype.bytes)
    extent = x.shape[-1]
    assert isinstance(extent, int)
    return pad(x, [(0, 0)] * (x.type.rank - 1) + [(0, -extent % each)])


def _pack_input(x: Value, axes: Windows, grids: Sequence[Grid], piece: int) -> PackedTensor:
    lines = pitches(tuple([g.steps for g in grids]))
    slack = sum((g.taps - 1) * a.dilation * n for g, a, n in zip(grids, axes, lines, strict=True))
    return _pack(x, grids, slack, piece)


def _loop_taps(axes: Windows, grids: Sequence[Grid], channels: int) -> tuple[tuple[int, ...], int]:
    """Return the taps that are looped over and the length of a contiguous run: taps of the last axis are contiguous if
    they are not dilated.
    """
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
    """Pack weights (groups, outputs, channels, *taps) as (groups, outputs, *taps, run)."""
    more = [(0, (g.folded or g.taps) * g.stride - a.taps) for g, a in zip(grids, axes, strict=True)]
    w, names = _split_strides(pad(w, [(0, 0)] * 3 + more), grids)
    names = [name.replace("step", "tap") if grids[int(name[-1])].folded else name for name in names[3:]]
    names = ["group", "outer", "channel", *names]
    steps = [f"step {n}" for n, g in enumerate(grids) if not g.folded]
    return PackedRows(_pad_channels(_channels_last(w, names, ["group", "outer", *steps], grids), piece))


def _weight_gradient(x: Value, y: Value, axes: Windows, target: TargetModel, precision: Precision) -> Value:
    """Compute the gradient of weights (groups, outputs, channels, *taps) over packed rows."""
    piece, pieces = target.matmul.async_copy_bytes, LINES_MULTIPLE // PART_LINES
    grids = _grids(axes, _known(x.shape[2]), MAX_FOLDED_BYTES // x.dtype.bytes)
    rows = _pack_input(x, axes, grids, piece)
    back = [_grid(_transposed(a)) if a.stride == 1 and _transposed_padding(a) >= 0 else Grid(0, 0, 0) for a in axes]
    whole = not any(g.folded for g in grids)
    pitch = 1
    if precision == "high" and y.dtype is float32:
        upstream, first = _pack_channels_first(y, rows.grid), 0
        pitch = _known(upstream.value.shape[1]) // _known(y.shape[2])
    elif whole and tuple([b.steps for b in back]) == rows.grid:  # shared with the gradient of the input
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
    """Pack y (images, groups, channels, *positions) with a row for each channel: float32 operands need contiguous
    summed axes.
    """
    images, lines = _known(y.shape[0]), math.prod(grid)
    least = -(-_missing_lines(images * lines) // lines)
    more = next(n for n in range(least, least + LINE_MULTIPLE) if (images + n) * lines % LINE_MULTIPLE == 0)
    y = pad(y, [(0, more), (0, 0), (0, 0), *[(0, n - _known(e)) for n, e in zip(grid, y.shape[3:], strict=True)]])
    y = permute(y, [1, 2, 0, *range(3, y.type.rank)])
    return PackedTensor(PackedRows(y), grid, 1)


def _unpack_weights(w: Value, channels: int, axes: Windows, grids: Sequence[Grid], pitch: int) -> Value:
    """Unpack weights to (groups, outputs, channels, *taps)."""
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
    for n, g in enumerate(grids):  # phases without taps have gradient 0 and are cut off
        w = pad(w, [(0, g.stride - g.phases if m == 4 + 2 * n else 0) for m in range(w.type.rank)])
    w = reshape(w, (*w.shape[:3], *[(g.folded or g.taps) * g.stride for g in grids]))
    for n, axis in enumerate(axes):
        w = narrow(w, 3 + n, 0, axis.taps)
    return w


def _axis_size(name: str, grids: Sequence[Grid]) -> int:
    """Return the extent of a named channel axis."""
    kind, number = name.split()
    grid = grids[int(number)]
    return grid.folded if kind == "tap" else grid.phases
