"""Builtins of `tl`: Python functions that run on symbolic values while a kernel is read."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import update_wrapper
from typing import TYPE_CHECKING, Any

from ...errors import KernelError
from ...ir.tile_types import Refused

if TYPE_CHECKING:
    from .writer import TileWriter


class Builtin:
    """A function that can be called inside kernels only; it gets the kernel's writer as its first argument."""

    def __init__(self, fn: Callable[..., Any], name: str = "") -> None:
        update_wrapper(self, fn)
        self.fn = fn
        self.name = name or fn.__name__.rstrip("_")
        self.__name__ = self.name

    def __getattr__(self, name: str) -> Any:
        if name != "__signature__":
            raise AttributeError(name)
        whole = inspect.signature(self.fn)
        self.__signature__ = made = whole.replace(parameters=list(whole.parameters.values())[1:])
        return made

    def __call__(self, *_: Any, **__: Any) -> Any:
        raise KernelError(f"tl.{self.name} is called in kernels only: in a function marked @tilegrad.kernel")

    def run(self, w: TileWriter, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the builtin while a kernel is read."""
        try:
            return self.fn(w, *args, **kwargs)
        except TypeError:
            try:
                self.__signature__.bind(*args, **kwargs)
            except TypeError as error:
                raise Refused(f"tl.{self.name}: {error}; it takes {self.__signature__}") from None
            raise

    def __repr__(self) -> str:
        return f"<tl.{self.name}>"


class BoundBuiltin:
    """A builtin bound to its first argument: `x.sum`."""

    def __init__(self, builtin: Builtin, x: Any) -> None:
        self.builtin, self.x = builtin, x

    def run(self, w: TileWriter, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self.builtin.run(w, (self.x, *args), kwargs)


METHODS: dict[str, Builtin] = {}
"""Builtins that are also methods of tiles, by name."""


def builtin(fn: Callable[..., Any]) -> Builtin:
    """Register a function as a builtin of `tl`."""
    return Builtin(fn)


def method(fn: Callable[..., Any]) -> Builtin:
    """Register a function as a builtin of `tl` and as a method of tiles."""
    made = METHODS[fn.__name__.rstrip("_")] = Builtin(fn)
    return made
