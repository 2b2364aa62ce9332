"""Make the functions of one, two and three dimensions from one definition, and check the sizes of their windows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeAlias, TypeVar

from ...errors import ArgumentError, ShapeError
from ...functions.declared import LARGEST
from ...functions.promotion import kind_of
from ...ir.graph import Value
from ...ir.size import Dim
from ...lazy.kept_formats import keeping_format
from ...ops.broadcasting import exact_quotient, lower_bound, shown
from ...ops.movement import squeeze, unsqueeze

Each: TypeAlias = "int | Sequence[int]"
"""One number for all axes, or one per axis."""
AXES = {1: "L", 2: "H, W", 3: "D, H, W"}
"""Names of the spatial axes, by their number."""
F = TypeVar("F", bound=Callable[..., Any])


def for_ranks(
    define: Callable[[int], F],
    ranks: Sequence[int] = (1, 2, 3),
    channels_last: Collection[int] = (),
    operands: Sequence[int] = (0,),
) -> tuple[F, ...]:
    """Return a function for each number of spatial axes, which `define` defines: `f` of two axes is named `f2d`.

    In its docstring {rank}, {axes} and {taps} become the number of spatial axes, their names, and "taps" for each; only
    the first function keeps the example. Those of the ranks in `channels_last` return channels-last results if one of
    the operands is.

    >>> def define(rank):
    ...     def area(size):
    ...         "Return the area of ({axes})."
    ...         return size ** rank
    ...     return area
    >>> area1d, area2d, area3d = for_ranks(define)
    >>> area2d.__name__, area2d.__doc__, area2d(3)
    ('area2d', 'Return the area of (H, W).', 9)
    """
    made = []
    for rank in ranks:
        function: Any = define(rank)
        function.__doc__ = doc_of_rank(function.__doc__, rank, rank == ranks[0])
        name = function.__name__ = function.__qualname__ = f"{function.__name__}{rank}d"
        function.__code__ = function.__code__.replace(co_name=name, co_qualname=name)  # profiles and tracebacks show it
        made.append(keeping_format(*operands)(function) if rank in channels_last else function)
    return tuple(made)


def doc_of_rank(doc: str, rank: int, has_example: bool) -> str:
    """Fill in the docstring of a function or class of a number of spatial axes."""
    text = doc if has_example else doc.partition("\n")[0]
    for word, meant in (("{rank}", str(rank)), ("{axes}", AXES[rank]), ("{taps}", ", ".join(["taps"] * rank))):
        text = text.replace(word, meant)
    return text


def _is_integer(n: object) -> bool:
    return not isinstance(n, (bool, type)) and hasattr(n, "__index__")


def each(value: Each, axes: int, name: str, op: str, least_value: int = 1) -> tuple[int, ...]:
    """Return one number per axis.

    >>> each(3, 2, "stride", "conv2d"), each((1, 2), 2, "stride", "conv2d")
    ((3, 3), (1, 2))
    """
    numbers = tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else (value,)
    numbers = tuple([n.__index__() if _is_integer(n) else n for n in numbers])
    if len(numbers) == 1:
        numbers *= axes
    if any(type(n) is not int for n in numbers):
        raise ArgumentError(f"{op}: {name}={value!r}: give a whole number, or one for each of the {axes} axes")
    if len(numbers) != axes:
        raise ArgumentError(
            f"{op}: {name}={value!r} has {len(numbers)} numbers; give one, or one for each of {axes} axes"
        )
    if min(numbers) < least_value:
        raise ArgumentError(f"{op}: {name}={value!r}: give numbers of at least {least_value}")
    if max(numbers) >= LARGEST:
        raise ArgumentError(f"{op}: {name} is {kind_of(max(numbers))}, which is too large")
    return numbers


def batched(x: Value, axes: int, op: str) -> tuple[Value, bool]:
    """Add a batch axis where there is none; return whether there was one."""
    if x.type.rank not in (axes + 1, axes + 2):
        raise ShapeError(
            f"{op}: an input of the shape {shown(x.shape)} has {x.type.rank} axes; it takes (batch, channels"
            f"{', length' if axes == 1 else ', height, width' if axes == 2 else ', depth, height, width'}), with or "
            "without the batch"
        )
    return (x, True) if x.type.rank == axes + 2 else (unsqueeze(x, 0), False)


def unbatched(x: Value, had_batch: bool) -> Value:
    return x if had_batch else squeeze(x, 0)


def window_count(
    extent: Dim, taps: int, stride: int, padding: int, dilation: int, op: str, shape: Sequence[Dim], ceil: bool = False
) -> Dim:
    """Count the windows that fit on an axis with total padding `padding`; `ceil` includes a last partial one."""
    room = extent + padding - (dilation * (taps - 1) + 1)
    if lower_bound(room) < (1 - stride if ceil else 0):
        raise ShapeError(
            f"{op}: windows of {dilation * (taps - 1) + 1} do not fit: an axis of the input of the shape "
            f"{shown(tuple(shape))} has {extent} elements, {extent + padding} with padding; use a smaller kernel or "
            "dilation, or more padding"
        )
    if isinstance(room, int):
        return (room + (stride - 1 if ceil else 0)) // stride + 1
    count = exact_quotient(room + stride, stride)
    if count is None:
        raise ShapeError(
            f"{op}: how many windows {stride} apart lie on an axis of {extent} elements, a size that varies, is not "
            "known; fix the size of the axis, or use a stride of 1"
        )
    return count
