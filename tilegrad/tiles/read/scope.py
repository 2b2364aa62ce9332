"""Scopes of a kernel function while it is read: its local names, closure and globals."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import update_wrapper
from typing import Any

from ...errors import KernelError
from .source import FunctionSource
from .values import constexpr


class TileFunction:
    """A user's function in the tile language, with its signature and source."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        if not inspect.isfunction(fn):
            raise KernelError(f"a kernel is a function defined by def, and not {fn!r:.80}")
        if fn.__name__ == "<lambda>":
            raise KernelError("a kernel is a function defined by def, and not a lambda: it stores what it computes")
        self.fn = fn
        update_wrapper(self, fn)
        self.signature = inspect.signature(fn)
        self.static = frozenset(name for name, p in self.signature.parameters.items() if _is_constexpr(p.annotation))
        self._source: FunctionSource | None = None

    def __call__(self, *_: Any, **__: Any) -> Any:
        raise KernelError(f"{self.fn.__name__} is a function of the tile language: kernels call it")

    @property
    def source_text(self) -> FunctionSource:
        """The function's source, read on first use."""
        if self._source is None:
            self._source = FunctionSource(self.fn)
        return self._source

    @property
    def shown_signature(self) -> str:
        """The signature as the author wrote it."""
        return str(self.signature).replace(constexpr.__module__, "tl")

    def is_static(self, name: str) -> bool:
        """Whether a parameter is a compile-time constant."""
        return name in self.static


def _is_constexpr(annotation: Any) -> bool:
    if isinstance(annotation, str):
        return annotation.split(".")[-1] == "constexpr"
    return annotation is constexpr or isinstance(annotation, constexpr)


class FunctionScope:
    """One call of a function being read: `names` are its values, `mine` the variables that hold each name."""

    def __init__(self, kernel: TileFunction, names: dict[str, Any], captured: dict[tuple[int, str], Any]) -> None:
        self.kernel, self.fn, self.source = kernel, kernel.fn, kernel.source_text
        self.names = names
        self.mine: dict[str, set[str]] = {}
        self.locals = self.source.assigned_names(self.source.tree.body) | set(kernel.signature.parameters)
        self.captured = captured
        self.loops = 0

    def outside(self, name: str) -> tuple[Any] | None:
        """Look up a name in the function's closure, then its module; a tuple of the value, or None."""
        code = self.fn.__code__
        if name in code.co_freevars and self.fn.__closure__ is not None:
            try:
                return (self.fn.__closure__[code.co_freevars.index(name)].cell_contents,)
            except ValueError:
                return None
        return (self.fn.__globals__[name],) if name in self.fn.__globals__ else None

    def note_captured(self, name: str, value: Any) -> None:
        """Record a constant from outside, so that the kernel is read again at a launch where it differs."""
        found = self.outside(name)
        if found is not None:
            self.captured[id(self.kernel), name] = (self, value)
