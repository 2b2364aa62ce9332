"""Compute layouts: strides of views, `stride`, `is_contiguous` and `view`, and strides of results.

The strides of results are PyTorch's: elementwise operations propagate those of their operands. A result is recorded,
computed and stored row-major, whatever its strides: these are kept on the tensor. `Handle.base` makes it a view of
memory in that order when its memory is used: by kernels of users, C++, DLPack.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, reduce, wraps
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from ..errors import ArgumentError, ShapeError
from ..ir.dtype import DType, bool_, promote
from ..ir.graph import Input, Value
from ..ir.size import Dim, Shape
from ..ops.broadcasting import StridedView, dense, repeated_strides
from .handle import Handle, current, shared, view, wrap
from .storage import kept_separate

if TYPE_CHECKING:
    from ..tensor import Tensor


class Layout(NamedTuple):
    """The address of element (i, j, ...) is offset + i * strides[0] + j * strides[1] + ..., in elements."""

    strides: Shape
    offset: Dim


def layout(x: Handle) -> Layout:
    """Return the layout of a tensor; a tensor that is not a view is dense, unless it has strides."""
    if not x._moves:
        return Layout(x._strides or dense(x._value.shape), 0)
    if x._layout is None:
        whole = Input(x.base().value.type)
        cut: Value = whole
        for move in x._moves:
            cut = move(cut)
        x._layout = _of(cut, whole, x._strides or dense(whole.shape))
    found: Layout = x._layout
    return found


def is_dense(x: Handle) -> bool:
    """Whether the elements are contiguous in row-major order."""
    if not x._moves and x._strides is None:
        return True
    shape, strides = x._value.shape, layout(x).strides
    wide = [n for n, extent in enumerate(shape) if extent != 1]
    return 0 in shape or tuple([strides[n] for n in wide]) == dense(tuple([shape[n] for n in wide]))


def _of(view: Value, whole: Value, own: Shape) -> Layout:
    if view is whole:
        return Layout(own, 0)
    x: Value = view.inputs[0]
    strides, offset = _of(x, whole, own)
    if isinstance(view, StridedView):
        found = view.strided(strides)
        assert found is not None, "a reshape that copies is no view"
        strides, first = found
        offset = offset + first
    return Layout(strides, offset)


# --- strides of results ---------------------------------------------------------------------------


CHANNELS_LAST = {4: (0, 2, 3, 1), 5: (0, 2, 3, 4, 1)}
"""By rank: the axes of (batch, channels, ...) from the outermost in memory to the innermost."""


class MemoryFormat(NamedTuple):
    """A named order of axes in memory."""

    name: str

    def __repr__(self) -> str:
        return f"tilegrad.{self.name}"


contiguous_format, preserve_format = MemoryFormat("contiguous_format"), MemoryFormat("preserve_format")
channels_last, channels_last_3d = MemoryFormat("channels_last"), MemoryFormat("channels_last_3d")
RANKS = {channels_last: 4, channels_last_3d: 5}


class Lying(NamedTuple):
    """The memory layout of an operand of an elementwise operation."""

    shape: tuple[Any, ...]
    strides: tuple[Any, ...]


def strides_of(x: Handle) -> Shape | None:
    """Return the dense strides of a tensor, without the gaps of a view; None if it is row-major."""
    if (not x._moves and x._strides is None) or not _is_sized(x):
        return None
    strides = preserved(x)
    return None if strides is None or strides == dense(x._value.shape) else strides


def propagate_strides(made: Tensor, *operands: Any) -> Tensor:
    """Give an elementwise result the strides that PyTorch computes for it.

    >>> import tilegrad as tg
    >>> x = tg.zeros(2, 3, 4).permute(1, 2, 0)
    >>> x.stride(), (x * 2).stride(), (x + tg.zeros(4, 1)).stride(), (tg.zeros(3, 4, 2) + x).stride()
    ((4, 1, 12), (4, 1, 12), (4, 1, 12), (8, 2, 1))
    """
    for x in operands:
        if getattr(x, "_moves", ()) or getattr(x, "_strides", None):
            if _is_sized(made):
                made._strides = computed(made._value.type.shape, _as_computed(made, operands))
            break
    return made


def _as_computed(made: Handle, operands: Sequence[Any]) -> tuple[Lying, ...]:
    """Return the layouts of operands after type promotion: converted operands are copied first."""
    given = [y for y in operands if y is not None]
    types = {y._value.type.dtype for y in given if isinstance(y, Handle) and y._value.type.shape}
    if not types:
        return ()
    common = types.pop() if len(types) == 1 else reduce(promote, types)
    if made._value.type.dtype.is_float and not common.is_float:
        common = made._value.type.dtype
    return tuple([lying(y) if _is_of(y, common) else _copied(y) for y in given])


def _is_of(x: Any, dtype: DType) -> bool:
    """Whether an operand needs no conversion; numbers and zero-dimensional tensors have no order."""
    if not isinstance(x, Handle) or not x._value.type.shape:
        return True
    return x._value.type.dtype is dtype or x._value.type.dtype is bool_


def _copied(x: Handle) -> Lying:
    shape = x._value.type.shape
    return Lying(shape, preserved(x) or dense(shape))


def like(value: Value, x: Any) -> Tensor:
    """Give a result that has the shape of another tensor its strides, without gaps."""
    made = wrap(value)
    return lay(made, strides_of(x)) if x._moves or x._strides is not None else made


def lay(x: Tensor, strides: Shape | None) -> Tensor:
    """Set the strides of a new tensor; None: row-major."""
    if strides is not None and x._base is None and strides != dense(x._value.shape):
        x._strides = strides
    return x


def _is_sized(x: Handle) -> bool:
    """Whether all extents of a tensor are static."""
    return all(extent.__class__ is int for extent in x._value.type.shape)


def lying(x: Any) -> Lying:
    """Return the layout of an operand; a number is a zero-dimensional tensor."""
    return Lying(x._value.type.shape, layout(x).strides) if isinstance(x, Handle) else Lying((), ())


def preserved(x: Handle) -> Shape | None:
    """Return the strides of a copy of a tensor, as of `clone` and `empty_like`."""
    return without_gaps(lying(x))


def without_gaps(given: Lying) -> Shape | None:
    """Return gap-free strides in the same order of axes; None: row-major."""
    return given.strides if _is_known(given) and leaves_no_gaps(*given) else computed(given.shape, (given,))


def formatted(x: Handle, format: MemoryFormat | None, op: str) -> Shape | None:
    """Return the strides of a copy of a tensor in a memory format; None: row-major."""
    if format is None or format == preserve_format:
        return strides_of(x)
    return None if format == contiguous_format else in_channels_last(_fitting(x, format, op))


def has_format(x: Handle, format: MemoryFormat, op: str = "is_contiguous") -> bool:
    """Whether the elements of a tensor are contiguous in a memory format."""
    if format == contiguous_format:
        return is_dense(x)
    if format == preserve_format:
        raise ArgumentError(f"{op}: preserve_format says nothing of how elements lie; ask for another format")
    given = lying(x)
    return RANKS[format] == len(given.shape) and _is_known(given) and is_in_order(*given, CHANNELS_LAST[RANKS[format]])


def _fitting(x: Handle, format: MemoryFormat, op: str) -> Shape:
    shape = x._value.shape
    if format not in RANKS:
        raise ArgumentError(f"{op}: memory_format is one of PyTorch's memory formats, not {format!r}")
    if len(shape) != RANKS[format]:
        raise ShapeError(f"{op}: {format.name} is for tensors of {RANKS[format]} dimensions, not for shape {shape}")
    return shape


def suggested(x: Handle) -> MemoryFormat:
    """Return the memory format that PyTorch infers from strides: `suggest_memory_format`."""
    if not suggests_channels_last(x):
        return contiguous_format
    return channels_last if len(x._value.shape) == 4 else channels_last_3d


def in_channels_last(shape: Shape) -> Shape:
    """Return the strides of (batch, channels, ...) with the channels innermost."""
    return in_order(shape, CHANNELS_LAST[len(shape)])


def in_memory_order(x: Any) -> Any:
    """Return a tensor whose elements are in memory in the order of its strides: itself, or a copy if its elements have
    to stay row-major (parameters and what shares their memory). A write to the copy also writes to the tensor
    (`stands_for`).
    """
    if x._strides is not None:
        x.base()
    if x._strides is None:
        return x
    whole = wrap(kept_separate(current(x.base())))
    whole._strides = x._strides
    whole.base()
    made: Any = whole
    for move in x._moves:
        made = view(made, move)
    made.stands_for = x
    return made


def suggests_channels_last(x: Handle) -> bool:
    """Whether layers should return channels-last results, as an operand is: PyTorch's `suggest_memory_format`."""
    if not x._moves and x._strides is None:
        return False
    given = lying(x)
    order = CHANNELS_LAST.get(len(given.shape))
    if order is None or not _is_known(given):
        return False
    least: Any = 0
    for axis in reversed(order):
        stride, extent = given.strides[axis], given.shape[axis]
        if stride < least or extent == 0 or given.strides[1] == 0:
            return False
        if axis == 0 and least == given.strides[1]:  # (batch, 1, 1, 1) lies in both orders
            return False
        least = stride * extent
    return True


@lru_cache(4096)
def computed(shape: Shape, given: tuple[Lying, ...]) -> Shape | None:
    """Compute the strides of an elementwise result; None: row-major.

    Operands that agree keep theirs. Otherwise axes are sorted by the strides of the first operand that distinguishes
    them.
    """
    if not all(_is_known(x) for x in given) or not all(isinstance(extent, int) for extent in shape):
        return None
    if all(x.shape == shape for x in given):
        if all(is_in_order(*x) for x in given):
            return None
        if len(shape) == 4 and all(is_in_order(*x, CHANNELS_LAST[4]) for x in given):
            return in_channels_last(shape)
        if all(x.strides == given[0].strides and leaves_no_gaps(*x) for x in given):
            return given[0].strides
    order = _sorted_axes(shape, [repeated_strides(*x, shape) for x in given])
    if order == list(range(len(shape))):
        return None
    return _spread(shape, order)


def _is_known(x: Lying) -> bool:
    return all(isinstance(n, int) for n in (*x.shape, *x.strides))


def _sorted_axes(shape: tuple[Any, ...], strides: Sequence[tuple[Any, ...]]) -> list[int]:
    """Sort axes from the outermost to the innermost. Insertion sort, since not all pairs are comparable."""
    order = list(range(len(shape)))[::-1]
    for n in range(1, len(order)):
        at = n
        for before in range(n - 1, -1, -1):
            sign = _compared(order[before], order[at], shape, strides)
            if sign > 0:
                order[before], order[at] = order[at], order[before]
                at = before
            elif sign < 0:
                break
    return order[::-1]


def _compared(a: int, b: int, shape: tuple[Any, ...], strides: Sequence[tuple[Any, ...]]) -> int:
    """Compare two axes by the first operand that is repeated along neither: below 0 if the first is the inner one."""
    for own in strides:
        if own[a] == 0 or own[b] == 0:
            continue
        if own[a] != own[b]:
            return -1 if own[a] < own[b] else 1
        if shape[a] > shape[b]:
            return 1
    return 0


def in_order(shape: Shape, order: Sequence[int]) -> Shape:
    """Return contiguous strides for an order of axes, outermost first."""
    return _spread(tuple([extent if extent != 0 else 1 for extent in shape]), order)


def _spread(shape: tuple[Any, ...], order: Sequence[int]) -> Shape:
    strides: list[Any] = [0] * len(shape)
    step: Any = 1
    for axis in reversed(order):
        strides[axis] = step
        step = step * shape[axis]
    return tuple(strides)


def is_in_order(shape: tuple[Any, ...], strides: tuple[Any, ...], order: Sequence[int] | None = None) -> bool:
    """Whether elements are contiguous for an order of axes, outermost first; by default the given order."""
    axes = range(len(shape)) if order is None else order
    if order is None and 0 in shape:
        return True
    step: Any = 1
    for axis in reversed(axes):
        if shape[axis] != 1:
            if strides[axis] != step:
                return False
            step = step * shape[axis]
    return True


def leaves_no_gaps(shape: tuple[Any, ...], strides: tuple[Any, ...]) -> bool:
    """Whether elements are contiguous for some order of axes; an empty axis counts as in PyTorch."""
    if len(shape) == 1 and shape[0] == 0:
        return True
    step: Any = 1
    for stride, extent in sorted([(s, n) for n, s in zip(shape, strides, strict=True) if n >= 2]):
        if stride != step:
            return False
        step = step * extent
    return True


# --- functions that do not work element by element ------------------------------------------------

F = TypeVar("F", bound=Callable[..., Any])


def row_by_row(function: F) -> F:
    """Decorate a function whose results are row-major, though intermediate results need not be."""

    @wraps(function)
    def kept(*args: Any, **kwargs: Any) -> Any:
        return with_strides(function(*args, **kwargs), lambda _: None, args)

    return cast(F, kept)


def with_strides(result: Any, strides: Callable[[Any], Any], args: Sequence[Any]) -> Any:
    """Give results other strides; an argument that is returned is copied."""
    if isinstance(result, tuple):
        parts = [with_strides(x, strides, args) for x in result]
        return type(result)(*parts) if hasattr(result, "_fields") else tuple(parts)
    if not isinstance(result, Handle):
        return result
    if any(result is x for x in args):
        result = wrap(kept_separate(result.value))
    elif result._base is not None:
        result = shared(result.value)
    result._strides = None
    return lay(result, strides(result._value.shape))
