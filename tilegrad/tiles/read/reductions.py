"""Reductions and scans along an axis, built in and with user-defined combiners."""

from __future__ import annotations

from typing import Any

from ...ir.dtype import DType, bfloat16, bool_, float32, int32, uint32
from ...ir.functions import REDUCERS
from ...ir.tile import Arange, ExpandDims, Reduce, Reshape, Scan
from ...ir.tile_types import Refused
from .arithmetic import binary, numeric_tile, select
from .builtin import Builtin, method
from .shapes import axis_of, dtype_of, flip, select_rows
from .values import SymbolicTile, describe
from .writer import TileWriter


def reduction(w: TileWriter, fn: str, x: SymbolicTile, axis: Any, keep_dims: bool) -> SymbolicTile:
    """Reduce along an axis, or all elements."""
    name = REDUCERS[fn].printed
    rank = len(x.shape)
    if not rank:
        raise Refused(f"tl.{name} runs over an axis of a tile, and this is a single number")
    if axis is None and rank > 1:
        count = 1
        for extent in x.shape:
            count *= extent
        made = w.make(Reduce(fn, w.make(Reshape(x.tile, (count,))).tile, 0))
        return w.make(ExpandDims(made.tile, tuple(range(rank)))) if keep_dims else made
    place = axis_of(0 if axis is None else axis, rank, f"tl.{name}")
    made = w.make(Reduce(fn, x.tile, place))
    return w.make(ExpandDims(made.tile, (place,))) if keep_dims else made


def promoted(w: TileWriter, x: SymbolicTile, name: str, floats: bool = False) -> SymbolicTile:
    """Promote small integers to int32, and bfloat16 (or all 16-bit floats) to float32, as Triton does."""
    dtype = numeric_tile(x, f"tl.{name}").type.dtype
    if dtype is bfloat16 or (floats and dtype.is_float and dtype.bits < 32):
        return w.cast(x, float32)
    if dtype is bool_ or (dtype.is_integer and dtype.bits < 32):
        return w.cast(x, uint32 if dtype.kind == "uint" else int32)
    return x


@method
def sum_(
    w: TileWriter, input: Any, axis: Any = None, keep_dims: bool = False, dtype: DType | None = None
) -> SymbolicTile:
    """Sum along an axis, or all elements."""
    x = numeric_tile(input, "tl.sum")
    x = promoted(w, x, "sum") if dtype is None else w.cast(x, dtype_of(dtype))
    return reduction(w, "add", x, axis, keep_dims)


def _extreme(fn: str, name: str) -> Builtin:
    def extreme(
        w: TileWriter, input: Any, axis: Any = None, return_indices: bool = False,
        return_indices_tie_break_left: bool = True, keep_dims: bool = False,
    ) -> Any:  # fmt: skip
        x = promoted(w, input, name, floats=True)
        if not return_indices:
            return reduction(w, fn, x, axis, keep_dims)
        x = w.held(x, "searched")
        return reduction(w, fn, x, axis, keep_dims), reduction(w, f"arg{name}", x, axis, keep_dims)

    extreme.__name__ = extreme.__qualname__ = f"{name}_"
    extreme.__doc__ = f"The {fn} along an axis, or of all elements; a NaN is passed on."
    return method(extreme)


def _extreme_position(fn: str) -> Builtin:
    def place(
        w: TileWriter, input: Any, axis: Any = None, tie_break_left: bool = True, keep_dims: bool = False
    ) -> SymbolicTile:
        return reduction(w, fn, promoted(w, input, fn, floats=True), axis, keep_dims)

    place.__name__ = place.__qualname__ = fn
    place.__doc__ = "The place of the extreme along an axis: the first one of several, or that of the first NaN."
    return method(place)


max_, min_ = _extreme("maximum", "max"), _extreme("minimum", "min")
argmax, argmin = _extreme_position("argmax"), _extreme_position("argmin")


@method
def xor_sum(w: TileWriter, input: Any, axis: Any = None, keep_dims: bool = False) -> SymbolicTile:
    """Combine the elements along an axis by exclusive or."""
    x = numeric_tile(input, "tl.xor_sum")
    if not x.type.dtype.is_integer:
        raise Refused(f"tl.xor_sum takes integers, and not {describe(x)}")
    return tree_reduction(w, (x,), axis, _Xor(), keep_dims)  # type: ignore[no-any-return]


class _Xor:
    """The combiner x ^ y, inlined."""

    def inlined(self, w: TileWriter, args: tuple[Any, ...]) -> Any:
        return binary(w, "bitxor", *args)


def _logical(fn: str, name: str) -> Builtin:
    def logical(w: TileWriter, input: Any, axis: Any = None, keep_dims: bool = False) -> SymbolicTile:
        return reduction(w, fn, w.cast(numeric_tile(input, f"tl.{name}"), bool_), axis, keep_dims)

    logical.__name__ = logical.__qualname__ = f"{name}_"
    logical.__doc__ = f"Whether {name} of the elements along an axis are true."
    return method(logical)


all_, any_ = _logical("bitand", "all"), _logical("bitor", "any")
reduce_or = any_


def _scanned(fn: str, name: str) -> Builtin:
    def scanned(
        w: TileWriter, input: Any, axis: Any = 0, reverse: bool = False, dtype: DType | None = None
    ) -> SymbolicTile:
        x = promoted(w, input, name) if dtype is None else w.cast(numeric_tile(input, name), dtype_of(dtype))
        place = axis_of(axis, len(x.shape), f"tl.{name}")
        if reverse:
            x = flip.run(w, (x, place), {})
        made = w.make(Scan(fn, x.tile, place))
        return flip.run(w, (made, place), {}) if reverse else made

    scanned.__name__ = scanned.__qualname__ = name
    scanned.__doc__ = f"The {name[3:]} of the elements along an axis up to each."
    return method(scanned)


cumsum, cumprod = _scanned("add", "cumsum"), _scanned("mul", "cumprod")
cummax, cummin = _scanned("maximum", "cummax"), _scanned("minimum", "cummin")


# --- with functions of the user's ----------------------------------------------------------------


def _scan_or_reduce(w: TileWriter, input: Any, what: str) -> tuple[SymbolicTile, ...]:
    parts = input if isinstance(input, tuple) else (input,)
    tiles = tuple([w.held(numeric_tile(x, what), "taken") for x in parts])
    if any(x.shape != tiles[0].shape for x in tiles) or not tiles[0].shape:
        raise Refused(f"{what} takes tiles of one shape, and not {', '.join(map(describe, tiles))}")
    return tiles


def inline_combiner(
    w: TileWriter, fn: Any, x: tuple[SymbolicTile, ...], y: tuple[SymbolicTile, ...]
) -> tuple[SymbolicTile, ...]:
    """Inline the combiner on two groups of values, x before y."""
    made = w.inline(fn, (*x, *y))
    made = made if isinstance(made, tuple) else (made,)
    if len(made) != len(x):
        raise Refused(
            f"the function combines {len(x)} and {len(x)} values, and returns {len(made)}: it must return {len(x)}"
        )
    for new, old in zip(made, x, strict=True):
        if not isinstance(new, SymbolicTile) or new.shape != old.shape:
            raise Refused(f"the function returns {describe(new)} for {describe(old)}: it must return what it was given")
    return tuple([w.held(w.cast(new, old.type.dtype), "both") for new, old in zip(made, x, strict=True)])


def tree_reduction(w: TileWriter, input: Any, axis: Any, fn: Any, keep_dims: bool) -> Any:
    """Reduce by a tree: combine neighbours in pairs until one is left."""
    tiles = _scan_or_reduce(w, input, "tl.reduce")
    rank = len(tiles[0].shape)
    if axis is None and rank > 1:
        tiles = tuple([w.named(w.make(Reshape(x.tile, (_count(x),))), "flat") for x in tiles])
        made = tree_reduction(w, tiles, 0, fn, False)
        parts = made if isinstance(made, tuple) else (made,)
        whole = [w.make(ExpandDims(x.tile, tuple(range(rank)))) if keep_dims else x for x in parts]
        return tuple(whole) if isinstance(made, tuple) else whole[0]
    place = axis_of(0 if axis is None else axis, rank, "tl.reduce")
    count = tiles[0].shape[place]
    while count > 1:
        half = count // 2
        pairs = [[_every_second(w, x, place, first, half) for x in tiles] for first in (0, 1)]
        made = inline_combiner(w, fn, tuple(pairs[0]), tuple(pairs[1]))
        if count % 2:  # the last one waits
            last = [select_rows(w, x, place, _sequence(w, count - 1, 1), 1) for x in tiles]
            made = tuple([_appended(w, x, y, place) for x, y in zip(made, last, strict=True)])
        tiles, count = made, half + count % 2
    results = [_without(w, x, place, keep_dims) for x in tiles]
    return tuple(results) if isinstance(input, tuple) and len(results) > 1 else results[0]


def _count(x: SymbolicTile) -> int:
    count = 1
    for extent in x.shape:
        count *= extent
    return count


def _sequence(w: TileWriter, start: int, count: int, step: int = 1) -> Any:
    """Return the tile start, start + step, ..."""
    if step == 1:
        return w.make(Arange(start, start + count)).tile
    made = binary(w, "mul", w.make(Arange(0, count)), step)
    return (binary(w, "add", made, start)).tile


def _every_second(w: TileWriter, x: SymbolicTile, axis: int, first: int, count: int) -> SymbolicTile:
    return w.named(select_rows(w, x, axis, _sequence(w, first, count, 2), count), "pair")


def _appended(w: TileWriter, x: SymbolicTile, last: SymbolicTile, axis: int) -> SymbolicTile:
    """Append one element along an axis."""
    count = x.shape[axis] + 1
    at = w.named(w.make(Arange(0, count)), "at")
    inside = w.named(binary(w, "lt", at, count - 1), "inside")
    index = w.named(select(w, inside, at, 0), "index")
    body = select_rows(w, x, axis, index.tile, count)
    others = tuple([n for n in range(len(x.shape)) if n != axis])
    chosen = w.make(ExpandDims(inside.tile, others)) if others else inside
    return w.named(select(w, chosen, body, last), "longer")


def _without(w: TileWriter, x: SymbolicTile, axis: int, keep_dims: bool) -> SymbolicTile:
    return x if keep_dims else w.make(Reshape(x.tile, (*x.shape[:axis], *x.shape[axis + 1 :])))


@method
def reduce(w: TileWriter, input: Any, axis: Any, combine_fn: Any, keep_dims: bool = False) -> Any:
    """Reduce tiles along an axis by a kernel function of two groups of values, in order."""
    return tree_reduction(w, input, axis, combine_fn, keep_dims)


@method
def associative_scan(w: TileWriter, input: Any, axis: Any, combine_fn: Any, reverse: bool = False) -> Any:
    """Scan tiles along an axis by a kernel function: inclusive prefixes (suffixes with `reverse`)."""
    tiles = _scan_or_reduce(w, input, "tl.associative_scan")
    place = axis_of(axis, len(tiles[0].shape), "tl.associative_scan")
    count = tiles[0].shape[place]
    distance = 1
    while distance < count:
        at = w.named(w.make(Arange(0, count)), "at")
        inside = binary(w, "lt", at, count - distance) if reverse else binary(w, "ge", at, distance)
        inside = w.named(inside, "inside")
        other = binary(w, "add", at, distance) if reverse else binary(w, "sub", at, distance)
        index = w.named(select(w, inside, other, at), "index")
        shifted = tuple([w.named(select_rows(w, x, place, index.tile, count), "shifted") for x in tiles])
        made = inline_combiner(w, combine_fn, shifted, tiles)
        others = tuple([n for n in range(len(tiles[0].shape)) if n != place])
        chosen = w.make(ExpandDims(inside.tile, others)) if others else inside
        tiles = tuple([w.named(select(w, chosen, new, old), "run") for new, old in zip(made, tiles, strict=True)])
        distance *= 2
    return tiles if isinstance(input, tuple) and len(tiles) > 1 else tiles[0]
