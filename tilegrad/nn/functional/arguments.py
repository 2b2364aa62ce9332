"""What a function says where an array or a list stands in the place of a tensor."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import Any

from ...errors import ArgumentError, TilegradError
from ...functions.promotion import kind_of
from ...tensor import Tensor

__all__ = ["tensors_only"]


def tensors_only(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which tells a wrong argument by its name. Of calls that succeed only the first argument is looked
    at: a tensor of another library has methods of the same names.

    >>> import tilegrad as tg
    >>> tg.nn.functional.relu([1.0, 2.0])
    Traceback (most recent call last):
    tilegrad.errors.ArgumentError: relu: input is a list, not a tensor; wrap it: tilegrad.tensor(...)
    """

    @wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        if args and not isinstance(args[0], Tensor):
            _refuse(name, function, args, kwargs)
        try:
            return function(*args, **kwargs)
        except TilegradError:
            raise
        except (AttributeError, TypeError):
            _refuse(name, function, args, kwargs)
            raise

    # where pickle finds it
    checked.__module__, checked.__name__, checked.__qualname__ = "tilegrad.nn.functional", name, name
    return checked


def _refuse(function_name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raises if an argument that is declared as a tensor is something else."""
    declared = signature(function)
    try:
        given = declared.bind_partial(*args, **kwargs).arguments
    except TypeError:
        return
    for name, value in given.items():
        wanted = declared.parameters[name].annotation
        if not isinstance(value, Tensor) and (wanted == "Tensor" or (wanted == "Tensor | None" and value is not None)):
            raise ArgumentError(
                f"{function_name}: {name} is {kind_of(value)}, not a tensor; wrap it: tilegrad.tensor(...)"
            ) from None
