"""Ops that move elements. Their gradients move them back.

Permute <-> Permute        Slice <-> Pad        Cat -> Slices
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar, final

from ..errors import ArgumentError, AxisError, IndexRangeError, ShapeError
from ..ir.graph import Reader, TensorType, Value
from ..ir.scalar import FALSE, TRUE, Expr, Position, apply, const, size
from ..ir.scalar import where as choose
from ..ir.size import Dim, Shape, product
from .base import require_alike
from .broadcasting import (
    ZERO,
    StridedView,
    exact_quotient,
    expand,
    lower_bound,
    normal_axes,
    normal_axis,
    number_key,
    reshape,
    shown,
)

Item = TypeVar("Item")


class Movement(Value):
    """Ops without arithmetic."""

    cost = "free"


@final
class Permute(StridedView):
    """Transposed axes: axis n of the result is axis `axes[n]` of x."""

    moves = True
    x: Value
    axes: tuple[int, ...]

    def infer(self) -> TensorType:
        return self.x.type.with_shape(tuple([self.x.shape[axis] for axis in self.axes]))

    def element(self, position: Position, read: Reader) -> Expr:
        return read(self.x, tuple([position[n] for n in inverse(self.axes)]))

    def gradient(self, upstream: Value) -> Sequence[Value | None]:
        return (Permute(upstream, inverse(self.axes)),)

    def strided(self, strides: Shape) -> tuple[Shape, Dim]:
        return tuple([strides[axis] for axis in self.axes]), 0


@final
class Slice(StridedView):
    """Elements `starts[axis] + n * steps[axis]` along each axis, for n below `sizes[axis]`."""

    moves = True
    x: Value
    starts: Shape
    steps: tuple[int, ...]
    sizes: Shape

    def infer(self) -> TensorType:
        return self.x.type.with_shape(self.sizes)

    def element(self, position: Position, read: Reader) -> Expr:
        axes = zip(position, self.starts, self.steps, strict=True)
        return read(self.x, tuple([p * step + size(start) for p, start, step in axes]))

    def gradient(self, upstream: Value) -> Sequence[Value | None]:
        return (Pad(upstream, self.starts, self.steps, self.x.shape),)

    def strided(self, strides: Shape) -> tuple[Shape, Dim]:
        first: Dim = 0
        for start, stride in zip(self.starts, strides, strict=True):
            first = first + start * stride
        return tuple([step * s for step, s in zip(self.steps, strides, strict=True)]), first

    def __str__(self) -> str:
        axes = zip(self.x.shape, self.starts, self.steps, self.sizes, strict=True)
        return f"slice[{', '.join(_show_slice(*axis) for axis in axes)}]"


@final
class Pad(Movement):
    """x embedded in a constant tensor: element n of an axis at `starts[axis] + n * steps[axis]`."""

    x: Value
    starts: Shape
    steps: tuple[int, ...]
    sizes: Shape
    value: float = 0.0

    def infer(self) -> TensorType:
        return self.x.type.with_shape(self.sizes)

    def element(self, position: Position, read: Reader) -> Expr:
        inside: Expr = TRUE
        at: list[Expr] = []
        for p, start, step, extent in zip(position, self.starts, self.steps, self.x.shape, strict=True):
            distance = p - size(start) if step > 0 else size(start) - p
            place = distance // abs(step)
            inside = inside & (distance >= 0) & (place < size(extent))
            if abs(step) != 1:
                inside = inside & apply("eq", distance % abs(step), ZERO)
            at.append(place)
        outside = const(self.value, self.x.dtype)
        return outside if inside is FALSE else choose(inside, read(self.x, tuple(at)), outside)

    def gradient(self, upstream: Value) -> Sequence[Value | None]:
        return (Slice(upstream, self.starts, self.steps, self.x.shape),)

    @property
    def attributes(self) -> tuple[Any, ...]:  # type: ignore[override]
        return self.starts, self.steps, self.sizes, number_key(self.value)

    def __str__(self) -> str:
        axes = zip(self.sizes, self.starts, self.steps, self.x.shape, strict=True)
        filled = f", value={self.value:g}" if self.value else ""
        return f"pad[{', '.join(_show_slice(*axis) for axis in axes)}{filled}]"


@final
class Cat(Movement):
    """Tensors concatenated along an axis."""

    tensors: tuple[Value, ...]
    axis: int

    def infer(self) -> TensorType:
        first = self.tensors[0]
        for x in self.tensors[1:]:
            others = [n for n in range(first.type.rank) if n != self.axis]
            if x.type.rank != first.type.rank or any(x.shape[n] != first.shape[n] for n in others):
                raise ShapeError(
                    f"cat: {shown(first.shape)} and {shown(x.shape)} do not fit along axis {self.axis}: "
                    "all other axes must be equal"
                )
        require_alike("cat", self.tensors)
        along: Dim = 0
        for x in self.tensors:
            along = along + x.shape[self.axis]
        return first.type.with_shape(replaced(first.shape, self.axis, along))

    def element(self, position: Position, read: Reader) -> Expr:
        starts: list[Dim] = [0]
        for x in self.tensors[:-1]:
            starts.append(starts[-1] + x.shape[self.axis])
        return self._among(0, len(starts), starts, position, read)

    def _among(self, first: int, end: int, starts: Sequence[Dim], position: Position, read: Reader) -> Expr:
        """Select the element among tensors `first` to `end - 1` by bisection."""
        p = position[self.axis]
        if end - first == 1:
            return read(self.tensors[first], replaced(position, self.axis, p - size(starts[first])))
        # a chain for few, which is easier to read; bisection for many, so that a thousand nest ten deep
        middle = first + 1 if end - first <= 4 else (first + end) // 2
        before = self._among(first, middle, starts, position, read)
        return choose(p < size(starts[middle]), before, self._among(middle, end, starts, position, read))

    def gradient(self, upstream: Value) -> Sequence[Value | None]:
        shares: list[Value | None] = []
        start: Dim = 0
        for x in self.tensors:
            shares.append(narrow(upstream, self.axis, start, x.shape[self.axis]) if x.tracked else None)
            start = start + x.shape[self.axis]
        return shares


# --- helpers -----------------------------------------------------------------------------------


def inverse(axes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the inverse permutation.

    >>> inverse((2, 0, 1))
    (1, 2, 0)
    """
    places = [0] * len(axes)
    for place, axis in enumerate(axes):
        places[axis] = place
    return tuple(places)


def replaced(items: tuple[Item, ...], position: int, item: Item) -> tuple[Item, ...]:
    return (*items[:position], item, *items[position + 1 :])


def _show_slice(extent: Dim, start: Dim, step: int, count: Dim) -> str:
    """Format a slice as Python does."""
    if (start, step, count) == (0, 1, extent):
        return ":"
    stop = start + count * step
    end = "" if stop == extent or (step < 0 and stop == -1) else f"{stop}"
    return f"{start}:{end}" + ("" if step == 1 else f":{step}")


# --- permutations -------------------------------------------------------------------------


def permute(x: Value, axes: Sequence[int]) -> Value:
    order = tuple([normal_axis(axis, x.type.rank, "permute") for axis in axes])
    if sorted(order) != list(range(x.type.rank)):
        raise AxisError(f"permute: {shown(tuple(axes))} does not name each of the {x.type.rank} axes of x once")
    return x if order == tuple(range(x.type.rank)) else Permute(x, order)


def transpose(x: Value, axis1: int = -2, axis2: int = -1) -> Value:
    """Swap two axes."""
    rank = max(x.type.rank, 1)
    i, j = normal_axis(axis1, rank, "transpose"), normal_axis(axis2, rank, "transpose")
    if not x.shape:
        return x
    order = list(range(x.type.rank))
    order[i], order[j] = j, i
    return permute(x, order)


def moveaxis(x: Value, source: int | Sequence[int], destination: int | Sequence[int]) -> Value:
    """Move axes to other places; the others keep their order."""
    sources = [source] if isinstance(source, int) else source
    destinations = [destination] if isinstance(destination, int) else destination
    start = [normal_axis(n, x.type.rank, "movedim") for n in sources]
    end = [normal_axis(n, x.type.rank, "movedim") for n in destinations]
    if len(start) != len(end) or len(set(start)) != len(start) or len(set(end)) != len(end):
        raise AxisError(f"movedim: cannot move axes {source} to {destination}: one place for each axis")
    rest = iter([n for n in range(x.type.rank) if n not in start])
    placed = dict(zip(end, start, strict=True))
    return permute(x, [placed[n] if n in placed else next(rest) for n in range(x.type.rank)])


# --- axes of extent 1, merged and split axes -----------------------------------------------------


def unsqueeze(x: Value, axis: int) -> Value:
    """Insert an axis of extent 1."""
    n = normal_axis(axis, x.type.rank + 1, "unsqueeze")
    return reshape(x, (*x.shape[:n], 1, *x.shape[n:]))


def squeeze(x: Value, axes: int | Sequence[int] | None = None) -> Value:
    """Remove axes of extent 1: all, or those named."""
    named = normal_axes(axes, x.type.rank, "squeeze")
    return reshape(x, [extent for n, extent in enumerate(x.shape) if n not in named or extent != 1])


def flatten(x: Value, start: int = 0, end: int = -1) -> Value:
    """Merge consecutive axes."""
    if not x.shape:
        return reshape(x, (1,))
    i, j = normal_axis(start, x.type.rank, "flatten"), normal_axis(end, x.type.rank, "flatten")
    if i > j:
        raise AxisError(f"flatten: the first axis, {start}, comes after the last, {end}")
    merged: Dim = 1
    for extent in x.shape[i : j + 1]:
        merged = merged * extent
    return reshape(x, (*x.shape[:i], merged, *x.shape[j + 1 :]))


def unflatten(x: Value, axis: int, sizes: Sequence[Dim]) -> Value:
    """Split an axis; one size may be -1."""
    n = normal_axis(axis, x.type.rank, "unflatten")
    inner = tuple(sizes)
    if -1 in inner:
        missing = exact_quotient(x.shape[n], product(extent for extent in inner if extent != -1))
        if missing is None:
            raise ShapeError(f"unflatten: axis {axis} of {shown(x.shape)} cannot be split into {shown(inner)}")
        inner = tuple([missing if extent == -1 else extent for extent in inner])
    return reshape(x, (*x.shape[:n], *inner, *x.shape[n + 1 :]))


# --- slices ---------------------------------------------------------------------------------------


def narrow(x: Value, axis: int, start: Dim, length: Dim) -> Value:
    """Return `length` elements of an axis from `start` on."""
    n = normal_axis(axis, x.type.rank, "narrow")
    extent = x.shape[n]
    if isinstance(start, int) and isinstance(length, int) and isinstance(extent, int):
        start = start + extent if start < 0 else start
        if start < 0 or length < 0 or start + length > extent:
            raise IndexRangeError(
                f"narrow: elements {start} to {start + length} are not all in axis {axis} of {shown(x.shape)}"
            )
    return _sliced(x, n, start, 1, length)


def slice_axis(
    x: Value, axis: int, start: int | None = None, stop: int | None = None, step: int | None = None
) -> Value:
    """Slice an axis as `x[start:stop:step]` does."""
    n = normal_axis(axis, x.type.rank, "slice")
    extent = x.shape[n]
    if step == 0:
        raise ArgumentError("slice: the step must not be 0")
    if isinstance(extent, int):
        chosen = range(*slice(start, stop, step).indices(extent))
        return _sliced(x, n, chosen.start if chosen else 0, chosen.step if chosen else 1, len(chosen))
    return _slice_any_size(x, n, start, stop, 1 if step is None else step)


def _slice_any_size(x: Value, axis: int, start: int | None, stop: int | None, step: int) -> Value:
    """Slice an axis of symbolic size, if the result is the same for all sizes."""
    extent = x.shape[axis]
    if (start, stop, step) == (None, None, -1):
        return _sliced(x, axis, extent - 1, -1, extent)
    first = 0 if start is None else start if start >= 0 else extent + start
    end = extent if stop is None else stop if stop >= 0 else extent + stop
    if step != 1 or lower_bound(extent) < max(abs(start or 0), abs(stop or 0)) or lower_bound(end - first) < 0:
        raise ShapeError(
            f"slice: axis {axis} of {shown(x.shape)} varies, and {start}:{stop}:{step} may not fit: "
            "it can be as short as 2; fix its size"
        )
    return _sliced(x, axis, first, 1, end - first)


def _sliced(x: Value, axis: int, start: Dim, step: int, count: Dim) -> Value:
    if (start, step, count) == (0, 1, x.shape[axis]):
        return x
    starts = replaced((0,) * x.type.rank, axis, start)
    steps = replaced((1,) * x.type.rank, axis, step)
    return Slice(x, starts, steps, replaced(x.shape, axis, count))


def select(x: Value, axis: int, index: int) -> Value:
    """Return the elements at one index of an axis, without the axis."""
    n = normal_axis(axis, x.type.rank, "select")
    extent = x.shape[n]
    if not x.shape or (isinstance(extent, int) and not -extent <= index < extent):
        raise IndexRangeError(f"index {index} is outside axis {axis} of {shown(x.shape)}")
    at = _sliced(x, n, index if index >= 0 else extent + index, 1, 1)
    return reshape(at, (*x.shape[:n], *x.shape[n + 1 :]))


def flip(x: Value, axes: int | Sequence[int]) -> Value:
    """Reverse axes."""
    for n in normal_axes(axes, x.type.rank, "flip"):
        x = _sliced(x, n, x.shape[n] - 1, -1, x.shape[n]) if x.shape[n] not in (0, 1) else x
    return x


def _split_axis(x: Value, axis: int, op: str) -> int:
    if not x.type.rank:
        raise ShapeError(f"{op}: a tensor without dimensions has no parts; reshape it to (1,)")
    return normal_axis(axis, x.type.rank, op)


def split(x: Value, sizes: int | Sequence[int], axis: int = 0) -> tuple[Value, ...]:
    """Split an axis into parts of the given sizes, or of one size (the last part may be smaller)."""
    n = _split_axis(x, axis, "split")
    extent = x.shape[n]
    if not isinstance(extent, int):
        raise ShapeError(f"split: axis {axis} of {shown(x.shape)} varies; split an axis of fixed size")
    if isinstance(sizes, int):
        if sizes < 0 or (sizes == 0 and extent):
            raise ArgumentError(f"split: parts of {sizes} elements")
        whole = [min(sizes, extent - start) for start in range(0, extent, sizes or 1)] or [0]
    else:
        whole = list(sizes)
        if sum(whole) != extent or min(whole, default=0) < 0:
            raise ShapeError(
                f"split: sizes {whole} add up to {sum(whole)}, axis {axis} of {shown(x.shape)} has {extent}"
            )
    starts = [sum(whole[:k]) for k in range(len(whole))]
    return tuple([narrow(x, n, start, length) for start, length in zip(starts, whole, strict=True)])


def chunk(x: Value, count: int, axis: int = 0) -> tuple[Value, ...]:
    """Split an axis into at most `count` parts of equal size, except the last."""
    extent = x.shape[normal_axis(axis, x.type.rank, "chunk")]
    if count <= 0:
        raise ArgumentError(f"chunk: into {count} parts")
    if not isinstance(extent, int):
        part = exact_quotient(extent, count)
        if part is None:
            raise ShapeError(f"chunk: axis {axis} of {shown(x.shape)} varies, and may not have {count} equal parts")
        return tuple([narrow(x, axis, part * k, part) for k in range(count)])
    return split(x, -(-extent // count), axis) if extent else tuple([x] * count)


# --- concatenation ------------------------------------------------------------------------


def cat(tensors: Sequence[Value], axis: int = 0) -> Value:
    """Concatenate tensors along an axis; those of shape (0,) are ignored, as in PyTorch."""
    if not tensors:
        raise ArgumentError("cat: no tensors")
    some = [x for x in tensors if x.shape != (0,)] or [tensors[0]]
    if not some[0].shape:
        raise ShapeError("cat: a tensor without axes cannot be concatenated; use stack")
    n = normal_axis(axis, some[0].type.rank, "cat")
    return some[0] if len(some) == 1 else Cat(tuple(some), n)


def stack(tensors: Sequence[Value], axis: int = 0) -> Value:
    """Stack tensors of one shape along a new axis."""
    if not tensors:
        raise ArgumentError("stack: no tensors")
    for x in tensors:
        if x.shape != tensors[0].shape:
            raise ShapeError(f"stack: {shown(tensors[0].shape)} and {shown(x.shape)} are not equal")
    n = normal_axis(axis, tensors[0].type.rank + 1, "stack")
    return Cat(tuple([unsqueeze(x, n) for x in tensors]), n) if len(tensors) > 1 else unsqueeze(tensors[0], n)


def pad(x: Value, widths: Sequence[tuple[int, int]], value: float = 0) -> Value:
    """Pad axes with a constant; negative widths cut off."""
    if len(widths) != x.type.rank:
        raise ShapeError(f"pad: {len(widths)} pairs of widths for the {x.type.rank} axes of {shown(x.shape)}")
    for n, (before, after) in enumerate(widths):
        cut = max(0, -before) + max(0, -after)
        if cut:
            extent = x.shape[n]
            if isinstance(extent, int) and extent < cut:
                raise ShapeError(f"pad: ({before}, {after}) cuts more from axis {n} of {shown(x.shape)} than is there")
            x = _sliced(x, n, max(0, -before), 1, x.shape[n] - cut)
    if all(before <= 0 and after <= 0 for before, after in widths):
        return x
    grown = [extent + max(0, a) + max(0, b) for extent, (a, b) in zip(x.shape, widths, strict=True)]
    starts = tuple([max(0, before) for before, _ in widths])
    number = float(value) if x.dtype.is_float else value
    return Pad(x, starts, (1,) * x.type.rank, tuple(grown), number)


def roll(x: Value, shifts: int | Sequence[int], axes: int | Sequence[int] | None = None) -> Value:
    """Rotate elements along axes."""
    if axes is None:
        if not isinstance(shifts, int):
            raise ArgumentError("roll: several shifts need as many axes")
        return reshape(roll(reshape(x, (-1,)) if x.shape else reshape(x, (1,)), shifts, 0), x.shape)
    distances = [shifts] if isinstance(shifts, int) else list(shifts)
    places = [axes] if isinstance(axes, int) else list(axes)
    if len(distances) != len(places):
        raise ArgumentError(f"roll: {len(distances)} shifts for {len(places)} axes")
    for distance, axis in zip(distances, places, strict=True):
        x = _roll_axis(x, distance, axis)
    return x


def _roll_axis(x: Value, distance: int, axis: int) -> Value:
    n = normal_axis(axis, x.type.rank, "roll")
    extent = x.shape[n] if x.shape else 1
    if isinstance(extent, int):
        moved: Dim = distance % extent if extent else 0
    elif lower_bound(extent) < abs(distance):
        raise ShapeError(f"roll: axis {axis} of {shown(x.shape)} varies, and may be shorter than {distance}")
    else:
        moved = distance if distance >= 0 else extent + distance
    if moved == 0:
        return x
    return Cat((_sliced(x, n, extent - moved, 1, moved), _sliced(x, n, 0, 1, extent - moved)), n)


def repeat(x: Value, counts: Sequence[int]) -> Value:
    """Repeat the whole tensor along each axis; further counts add leading axes."""
    if len(counts) < x.type.rank:
        raise ShapeError(f"repeat: {len(counts)} counts for the {x.type.rank} axes of {shown(x.shape)}")
    if any(isinstance(count, int) and count < 0 for count in counts):
        raise ShapeError(f"repeat: a count of {list(counts)} is negative")
    shape = (1,) * (len(counts) - x.type.rank) + x.shape
    interleaved = [n for extent in shape for n in (1, extent)]
    wide = [n for count, extent in zip(counts, shape, strict=True) for n in (count, extent)]
    whole = [count * extent for count, extent in zip(counts, shape, strict=True)]
    return reshape(expand(reshape(x, interleaved), wide), whole)


def repeat_interleave(x: Value, count: int, axis: int | None = None) -> Value:
    """Repeat each element next to itself."""
    if axis is None:
        x, axis = reshape(x, (-1,)) if x.shape else reshape(x, (1,)), 0
    if isinstance(count, int) and count < 0:
        raise ShapeError(f"repeat_interleave: the count {count} is negative")
    n = normal_axis(axis, x.type.rank, "repeat_interleave")
    wide = (*x.shape[: n + 1], count, *x.shape[n + 1 :])
    return reshape(expand(unsqueeze(x, n + 1), wide), (*x.shape[:n], x.shape[n] * count, *x.shape[n + 1 :]))
