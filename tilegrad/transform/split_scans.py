"""Split scans along few long axes into parts, so that all cores have work.

Each part is scanned by itself and combined with the reduction of all parts before it: elements are read twice and
written once.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from ..ir.functions import identity
from ..ir.graph import Graph, Value
from ..ops.arithmetic import add, maximum, minimum, mul
from ..ops.base import Operand
from ..ops.bits import bitwise_or
from ..ops.broadcasting import Reduction, Sum, expand, fill, reshape
from ..ops.cast import cast, widened
from ..ops.comparison import ge, isnan, le
from ..ops.control import where
from ..ops.creation import positions
from ..ops.movement import cat, narrow, pad
from ..ops.reduction import Max, Min, Prod
from ..ops.scan import CumArgmax, CumArgmin, Cummax, Cummin, Cumprod, Cumsum, ScanArgExtreme, ScanOp
from ..runtime.target_model import TargetModel
from .rewrite import rewrite

MIN_EXTENT = 1 << 15
"""Elements of an axis from which three kernels take less time than one instance."""
CONTIGUOUS_LENGTHS, STRIDED_LENGTHS = (1024, 8192), (64, 512)
"""Shortest and longest part along a contiguous and along a strided axis, in elements."""
REDUCTION: dict[type[ScanOp], type[Reduction]] = {Cumsum: Sum, Cumprod: Prod, Cummax: Max, Cummin: Min}
COMBINE: dict[type[ScanOp], Callable[[Operand, Operand], Value]] = {
    Cumsum: add,
    Cumprod: mul,
    Cummax: maximum,
    Cummin: minimum,
}


def split_scans(graph: Graph, target: TargetModel) -> Graph:
    """Split scans along few long axes into parts, one for each instance."""
    return rewrite(graph, lambda value, _: split_scan(value, target), of=ScanOp)


def split_scan(value: Value, target: TargetModel) -> Value | None:
    """Rewrite a scan of few long rows as scans of parts; None for anything else.

    >>> from ..ir.dtype import float32
    >>> from ..ir.graph import Graph, Input, TensorType
    >>> from ..backend.cuda.costs import gpu_model
    >>> x = Input(TensorType(float32, (1 << 20,)), "x")
    >>> print(split_scan(Cumsum(x, 0), gpu_model(132)).type)
    f32[1048576]
    """
    if not isinstance(value, ScanOp) or not all(type(d) is int for d in value.shape):
        return None
    x, axis = value.x, value.axis
    shape: tuple[int, ...] = x.shape  # type: ignore[assignment]
    columns = prod(shape[axis + 1 :])
    instances = prod(shape[:axis]) * -(-columns // target.column_tile_width)
    if shape[axis] < MIN_EXTENT or instances >= target.workers:
        return None
    if isinstance(value, ScanArgExtreme):
        return _scan_places(value)
    length = _part_length(
        shape[axis],
        target.min_instances // max(1, instances),
        *(CONTIGUOUS_LENGTHS if columns == 1 else STRIDED_LENGTHS),
    )
    return cast(_scan_parts(value, widened(x), axis, length), value.dtype)


def _part_length(extent: int, parts: int, least: int, most: int) -> int:
    """Choose the length of a part, close to extent / parts and a divisor of the extent if possible.

    >>> [_part_length(extent, 528, 1024, 8192) for extent in (1 << 26, 1 << 20, 1000003)]
    [8192, 2048, 2048]
    """
    wanted = min(most, max(least, 1 << (extent // max(1, parts)).bit_length()))
    return next((n for n in range(wanted, wanted // 2, -1) if extent % n == 0), wanted)


def _scan_parts(value: ScanOp, x: Value, axis: int, length: int) -> Value:
    """Scan parts of x, and combine them with the reduction of all parts before."""
    kind = type(value)
    extent = x.shape[axis]
    assert type(extent) is int
    parts = -(-extent // length)
    nothing = identity(kind.fn, x.dtype)
    if parts * length != extent:
        x = pad(x, [(0, parts * length - extent) if n == axis else (0, 0) for n in range(x.type.rank)], nothing)
    cut = reshape(x, (*x.shape[:axis], parts, length, *x.shape[axis + 1 :]))
    whole = kind(REDUCTION[kind](cut, (axis + 1,), True), axis)
    first = fill(nothing, (*cut.shape[:axis], 1, 1, *cut.shape[axis + 2 :]), x.dtype, x.device)
    before = cat([first, narrow(whole, axis, 0, parts - 1)], axis)
    made = COMBINE[kind](expand(before, cut.shape), kind(cut, axis + 1))
    return narrow(reshape(made, x.shape), axis, 0, extent)


def _scan_places(value: ScanArgExtreme) -> Value:
    """Scan positions: the last position of the extreme so far is the maximum of the positions where it is attained."""
    x, axis = value.x, value.axis
    greatest = isinstance(value, CumArgmax)
    assert greatest or isinstance(value, CumArgmin)
    extreme = (Cummax if greatest else Cummin)(x, axis)
    met = (ge if greatest else le)(x, extreme)
    if x.dtype.is_float:
        met = bitwise_or(met, isnan(x))
    along = positions(x.shape[axis], x.device)
    place = reshape(along, tuple([d if n == axis else 1 for n, d in enumerate(x.shape)]))
    return Cummax(where(met, expand(place, x.shape), 0), axis)
