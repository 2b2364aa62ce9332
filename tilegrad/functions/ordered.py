"""Decorators that say how the results of functions lie which do not work element by element: as PyTorch's do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, TypeVar, cast

from ..lazy.handle import Handle, shared, wrap
from ..lazy.storage import kept_separate
from ..lazy.strides import in_channels_last, lay, strides_of, suggests_channels_last

F = TypeVar("F", bound=Callable[..., Any])


def keeping_strides(function: F) -> F:
    """A function whose results have the strides of its first argument."""

    @wraps(function)
    def kept(*args: Any, **kwargs: Any) -> Any:
        x: Any = args[0] if args else kwargs.get("input")
        result = function(*args, **kwargs)
        strides = strides_of(x) if isinstance(x, Handle) else None
        return _laid(result, lambda shape: strides if shape == x._value.shape else None, (x,))

    return cast(F, kept)


def row_by_row(function: F) -> F:
    """A function whose results lie row by row, though what it computes on the way need not."""

    @wraps(function)
    def kept(*args: Any, **kwargs: Any) -> Any:
        return _laid(function(*args, **kwargs), lambda _: None, args)

    return cast(F, kept)


def keeping_format(*places: int) -> Callable[[F], F]:
    """A function whose results have the channels innermost if one of the arguments at these places has, be that a
    tensor or a list of them that all have; else they lie row by row."""

    def decorated(function: F) -> F:
        @wraps(function)
        def kept(*args: Any, **kwargs: Any) -> Any:
            given = [args[n] for n in places if n < len(args)] or [kwargs.get("input")]
            result = function(*args, **kwargs)
            last = any(map(_has_channels_last, given))
            return _laid(result, in_channels_last if last else lambda _: None, args)

        return cast(F, kept)

    return decorated


def _has_channels_last(given: Any) -> bool:
    if isinstance(given, Handle):
        return suggests_channels_last(given)
    parts = given if isinstance(given, (tuple, list)) else ()
    return len(parts) > 0 and all(isinstance(x, Handle) and suggests_channels_last(x) for x in parts)


def _laid(result: Any, strides: Callable[[Any], Any], args: Sequence[Any]) -> Any:
    """Results with other strides than they have; of what is an argument a copy."""
    if isinstance(result, tuple):
        parts = [_laid(x, strides, args) for x in result]
        return type(result)(*parts) if hasattr(result, "_fields") else tuple(parts)
    if not isinstance(result, Handle):
        return result
    if any(result is x for x in args):
        result = wrap(kept_separate(result.value))
    elif result._base is not None:
        result = shared(result.value)
    result._strides = None
    return lay(result, strides(result._value.shape))
