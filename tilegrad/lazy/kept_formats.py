"""Give results of functions that do not work element by element the strides or the memory format of arguments."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

from .handle import Handle
from .layout import in_channels_last, strides_of, suggests_channels_last, with_strides

F = TypeVar("F", bound=Callable[..., Any])


def keeping_strides(function: F) -> F:
    """Decorate a function whose results have the strides of its first argument."""

    @wraps(function)
    def kept(*args: Any, **kwargs: Any) -> Any:
        x: Any = args[0] if args else kwargs.get("input")
        result = function(*args, **kwargs)
        strides = strides_of(x) if isinstance(x, Handle) else None
        return with_strides(result, lambda shape: strides if shape == x._value.shape else None, (x,))

    return cast(F, kept)


def keeping_format(*places: int) -> Callable[[F], F]:
    """Decorate a function whose results are channels-last if one of the arguments at these positions is, be it a tensor
    or a list of tensors; else they are row-major.
    """

    def decorated(function: F) -> F:
        @wraps(function)
        def kept(*args: Any, **kwargs: Any) -> Any:
            given = [args[n] for n in places if n < len(args)] or [kwargs.get("input")]
            result = function(*args, **kwargs)
            last = any(map(_has_channels_last, given))
            return with_strides(result, in_channels_last if last else lambda _: None, args)

        return cast(F, kept)

    return decorated


def _has_channels_last(given: Any) -> bool:
    if isinstance(given, Handle):
        return suggests_channels_last(given)
    parts = given if isinstance(given, (tuple, list)) else ()
    return len(parts) > 0 and all(isinstance(x, Handle) and suggests_channels_last(x) for x in parts)
