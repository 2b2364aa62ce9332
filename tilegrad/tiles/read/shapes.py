"""Builtins that create tiles and change their shape."""

from __future__ import annotations

from typing import Any

from ...ir import tile as ir
from ...ir.dtype import DType, bool_, float32, uint64
from ...ir.tile_types import Refused
from ...ir.tile_types import broadcast as meeting_shape
from .arithmetic import binary, common_dtype, convert, numeric_tile, select
from .builtin import builtin, method
from .memory import pointer_from_address
from .values import MissingDtype, PointerType, SymbolicTile, describe
from .writer import TileWriter, in_dtype, static_int, static_shape


def dtype_of(x: Any) -> DType:
    """Return an operand that must be a dtype."""
    if isinstance(x, MissingDtype):
        raise Refused(f"there are no elements of {x}: tensors have float16, bfloat16 or int8 where memory is scarce")
    if not isinstance(x, DType):
        raise Refused(f"here an element type must stand, such as tl.float32, and not {describe(x)}")
    return x


def convert_or_point(w: TileWriter, x: Any, dtype: Any, bitcast: bool) -> Any:
    """Convert elements to a dtype, or an address to a pointer."""
    return (
        pointer_from_address(w, x, dtype.element_ty)
        if isinstance(dtype, PointerType)
        else convert(w, x, dtype_of(dtype), bitcast)
    )


def tile_of(x: Any, what: str) -> SymbolicTile:
    """Return an operand that must be a tile, of pointers or numbers."""
    if not isinstance(x, SymbolicTile):
        raise Refused(f"{what} takes a tile, and not {describe(x)}")
    return x


def axis_of(x: Any, rank: int, what: str) -> int:
    """Normalise an axis: negative ones count from the end."""
    axis = static_int(x, f"the axis of {what}")
    if not -rank <= axis < rank:
        raise Refused(f"{what}: there is no axis {axis} in a tile of {rank} axes")
    return axis % rank


@builtin
def program_id(w: TileWriter, axis: Any) -> SymbolicTile:
    """Return the index of this program in the grid along an axis (0, 1 or 2)."""
    return w.make(ir.ProgramId(static_int(axis, "the axis of tl.program_id")))


@builtin
def num_programs(w: TileWriter, axis: Any) -> SymbolicTile:
    """Return the number of programs in the grid along an axis."""
    return w.make(ir.NumPrograms(static_int(axis, "the axis of tl.num_programs")))


@builtin
def arange(w: TileWriter, start: Any, end: Any) -> SymbolicTile:
    """Return the integers from start to end - 1: of any length, not only Triton's powers of two."""
    first, last = static_int(start, "the start of tl.arange"), static_int(end, "the end of tl.arange")
    if last <= first:
        raise Refused(f"tl.arange({first}, {last}) has no elements: the end must be greater than the start")
    return w.make(ir.Arange(first, last))


@builtin
def full(w: TileWriter, shape: Any, value: Any, dtype: Any) -> SymbolicTile:
    """Return a tile filled with one number."""
    found = dtype_of(dtype)
    if isinstance(value, SymbolicTile) and value.shape:
        raise Refused(f"tl.full takes one number, and not {describe(value)}")
    if isinstance(value, float) and found.is_integer:
        value = int(value)
    return w.make(ir.Full(static_shape(shape), w.operand(value, found), found))


@builtin
def zeros(w: TileWriter, shape: Any, dtype: Any = float32) -> SymbolicTile:
    """Return a tile of zeros."""
    return zero(w, static_shape(shape), dtype_of(dtype))


@builtin
def zeros_like(w: TileWriter, input: Any) -> SymbolicTile:
    """Return zeros with the shape and type of a tile."""
    x = numeric_tile(input, "tl.zeros_like")
    return zero(w, x.shape, x.type.dtype)


def zero(w: TileWriter, shape: tuple[int, ...], dtype: DType) -> SymbolicTile:
    return w.make(ir.Full(shape, ir.Literal(in_dtype(False if dtype is bool_ else 0, dtype)), dtype))


@method
def cast(w: TileWriter, input: Any, dtype: Any, fp_downcast_rounding: Any = None, bitcast: bool = False) -> Any:
    """Convert elements to a dtype, by value or (`bitcast`) by bits."""
    return convert_or_point(w, input, dtype, bitcast)


@method
def to_(w: TileWriter, input: Any, dtype: Any, fp_downcast_rounding: Any = None, bitcast: bool = False) -> Any:
    """Convert elements to a dtype, by value or (`bitcast`) by bits."""
    return convert_or_point(w, input, dtype, bitcast)


@builtin
def seed_of(w: TileWriter, seed: Any) -> SymbolicTile:
    """Convert a seed to an unsigned 64-bit number in the kernel (sums of seeds wrap)."""
    if isinstance(seed, SymbolicTile):
        return w.cast(seed, uint64)
    return w.named(w.make(ir.Full((), ir.Literal(static_int(seed, "a seed") % 2**64), uint64)), "seed")


@method
def broadcast_to(w: TileWriter, input: Any, *shape: Any) -> SymbolicTile:
    """Broadcast a tile along axes of extent 1."""
    return broadcast_axes(w, input, static_shape(_listed(shape)))


def broadcast_axes(w: TileWriter, x: Any, shape: tuple[int, ...]) -> SymbolicTile:
    made = w.tile(x)
    if made.shape == shape:
        return made
    if not made.shape and not made.type.pointer:
        return w.make(ir.Full(shape, made.tile, made.type.dtype))
    if len(made.shape) < len(shape):
        made = w.with_rank(made, len(shape))
    return w.make(ir.BroadcastTo(made.tile, shape))


@builtin
def broadcast(w: TileWriter, input: Any, other: Any) -> tuple[SymbolicTile, SymbolicTile]:
    """Broadcast two tiles to their common shape."""
    x, y = w.tile(input), w.tile(other)
    shape = broadcast_shape(x, y)
    return broadcast_axes(w, x, shape), broadcast_axes(w, y, shape)


def broadcast_shape(*tiles: SymbolicTile) -> tuple[int, ...]:
    return meeting_shape(tiles[0].tile, *[x.shape for x in tiles])


@method
def reshape(w: TileWriter, input: Any, *shape: Any, can_reorder: bool = False) -> SymbolicTile:
    """Reshape a tile in row-major order."""
    x = tile_of(input, "tl.reshape")
    wanted = _listed(shape)
    extents = static_shape(wanted) if -1 not in wanted else _inferred(x, wanted)
    return w.make(ir.Reshape(x.tile, extents)) if extents != x.shape else x


def _listed(shape: tuple[Any, ...]) -> tuple[Any, ...]:
    return shape[0] if len(shape) == 1 and isinstance(shape[0], tuple) else shape


def _inferred(x: SymbolicTile, wanted: tuple[Any, ...]) -> tuple[int, ...]:
    known, whole = 1, 1
    for extent in x.shape:
        whole *= extent
    for extent in wanted:
        known *= static_int(extent, "every extent") if extent != -1 else 1
    return tuple([whole // known if extent == -1 else extent for extent in wanted])


@method
def ravel(w: TileWriter, x: Any, can_reorder: bool = False) -> SymbolicTile:
    """Flatten a tile."""
    return reshape.run(w, (x, -1), {})  # type: ignore[no-any-return]


@method
def expand_dims(w: TileWriter, input: Any, axis: Any) -> SymbolicTile:
    """Insert axes of extent 1."""
    x = w.tile(input)
    places = axis if isinstance(axis, tuple) else (axis,)
    rank = len(x.shape) + len(places)
    axes = tuple(sorted(axis_of(place, rank, "tl.expand_dims") for place in places))
    return w.make(ir.ExpandDims(x.tile, axes))


@method
def permute(w: TileWriter, input: Any, *dims: Any) -> SymbolicTile:
    """Permute the axes."""
    x = tile_of(input, "tl.permute")
    order = [axis_of(axis, len(x.shape), "tl.permute") for axis in _listed(dims)]
    return w.make(ir.Trans(x.tile, tuple(order)))


@method
def trans(w: TileWriter, input: Any, *dims: Any) -> SymbolicTile:
    """Permute the axes; by default transpose the last two."""
    x = tile_of(input, "tl.trans")
    rank = len(x.shape)
    if not dims and rank < 2:
        raise Refused(f"tl.trans exchanges two axes, and {describe(x)} has {rank}")
    order = _listed(dims) or (*range(rank - 2), rank - 1, rank - 2)
    return permute.run(w, (x, order), {})  # type: ignore[no-any-return]


@method
def gather(w: TileWriter, input: Any, index: Any, axis: Any) -> SymbolicTile:
    """Gather elements along an axis at the positions in `index`."""
    x, i = numeric_tile(input, "tl.gather"), numeric_tile(index, "tl.gather")
    return w.make(ir.GatherAlongAxis(x.tile, i.tile, axis_of(axis, len(x.shape), "tl.gather")))


def select_rows(w: TileWriter, x: SymbolicTile, axis: int, index: ir.Tile, count: int) -> SymbolicTile:
    """Select the elements along an axis at the positions in a one-dimensional tile."""
    rank = len(x.shape)
    shape = (*x.shape[:axis], count, *x.shape[axis + 1 :])
    if rank > 1:
        index = ir.BroadcastTo(ir.ExpandDims(index, tuple([n for n in range(rank) if n != axis])), shape)
    return w.make(ir.GatherAlongAxis(x.tile, index, axis))


@method
def flip(w: TileWriter, x: Any, dim: Any = None) -> SymbolicTile:
    """Reverse the elements along an axis (the last by default)."""
    value = numeric_tile(x, "tl.flip")
    axis = axis_of(-1 if dim is None else dim, len(value.shape), "tl.flip")
    count = value.shape[axis]
    index = binary(w, "sub", count - 1, w.make(ir.Arange(0, count)))
    return select_rows(w, w.held(value, "flipped"), axis, index.tile, count)


@builtin
def join(w: TileWriter, a: Any, b: Any) -> SymbolicTile:
    """Stack two tiles along a new last axis."""
    x, y = w.tile(a), w.tile(b)
    shape = broadcast_shape(x, y)
    both = [w.make(ir.ExpandDims(broadcast_axes(w, z, shape).tile, (len(shape),))) for z in (x, y)]
    second = w.make(ir.Arange(0, 2))
    return select(w, binary(w, "eq", second, 0), *both)


@method
def split(w: TileWriter, a: Any) -> tuple[SymbolicTile, SymbolicTile]:
    """Split a tile into two along a last axis of extent 2."""
    x = numeric_tile(a, "tl.split")
    if not x.shape or x.shape[-1] != 2:
        raise Refused(f"tl.split takes a tile whose last axis has extent 2, and not {describe(x)}")
    kept = w.held(x, "pair")
    parts = [
        select_rows(w, kept, len(x.shape) - 1, ir.Full((1,), ir.Literal(n), w.make(ir.Arange(0, 1)).type.dtype), 1)
        for n in (0, 1)
    ]
    first, second = [w.make(ir.Reshape(part.tile, x.shape[:-1])) for part in parts]
    return first, second


@builtin
def interleave(w: TileWriter, a: Any, b: Any) -> SymbolicTile:
    """Interleave the elements of two tiles along the last axis."""
    both = join.run(w, (a, b), {})
    shape = both.shape
    return w.make(ir.Reshape(both.tile, (*shape[:-2], shape[-2] * 2)))


@builtin
def cat(w: TileWriter, input: Any, other: Any, can_reorder: bool = False, dim: Any = 0) -> SymbolicTile:
    """Concatenate two tiles along an axis, in order."""
    dtype = common_dtype((input, other))
    x, y = w.cast(numeric_tile(input, "tl.cat"), dtype), w.cast(numeric_tile(other, "tl.cat"), dtype)
    axis = axis_of(dim, len(x.shape), "tl.cat")
    if x.shape[:axis] + x.shape[axis + 1 :] != y.shape[:axis] + y.shape[axis + 1 :]:
        raise Refused(f"tl.cat joins tiles that differ along axis {axis} only, and not {describe(x)} and {describe(y)}")
    first, second = x.shape[axis], y.shape[axis]
    at = w.named(w.make(ir.Arange(0, first + second)), "at")
    low = w.named(binary(w, "lt", at, first), "low")
    left = select(w, low, at, 0)
    right = select(w, low, 0, binary(w, "sub", at, first))
    parts = [select_rows(w, w.held(z, "part"), axis, i.tile, first + second) for z, i in ((x, left), (y, right))]
    others = tuple([n for n in range(len(x.shape)) if n != axis])
    chosen = w.make(ir.ExpandDims(low.tile, others)) if others else low
    return select(w, chosen, *parts)
