"""Arguments under other names that PyTorch takes: `axis` for `dim` as in numpy, and sizes in one piece."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def in_one_piece(name: str) -> Callable[[Callable[P, R]], Callable[..., R]]:
    """A function of sizes, given one by one or as one sequence, which may be given by name.

    >>> import tilegrad as tg
    >>> tg.zeros(size=(2, 3)).flip(dims=(0, 1)).shape
    (2, 3)
    """

    def taught(fn: Callable[P, R]) -> Callable[..., R]:
        @wraps(fn)
        def named(*args: Any, **kwargs: Any) -> R:
            return fn(*args, kwargs.pop(name), **kwargs) if name in kwargs else fn(*args, **kwargs)

        return named

    return taught


def numpy_names(fn: Callable[P, R]) -> Callable[P, R]:
    """A function that is understood as numpy's is.

    >>> import tilegrad as tg
    >>> tg.ones(2, 3).sum(axis=1, keepdims=True)
    tensor([[3.],
            [3.]])
    """

    @wraps(fn)
    def named(*args: P.args, **kwargs: P.kwargs) -> R:
        if "axis" in kwargs and "dim" not in kwargs:
            kwargs["dim"] = kwargs.pop("axis")
        if "keepdims" in kwargs and "keepdim" not in kwargs:
            kwargs["keepdim"] = kwargs.pop("keepdims")
        return fn(*args, **kwargs)

    return named
