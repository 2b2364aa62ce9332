"""Switch the recording of gradients: context managers and decorators."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from ..lazy.handle import mode, read_outside

P = ParamSpec("P")
R = TypeVar("R")


class Recording:
    """Records gradients or not, within the block or the decorated function."""

    enabled = True

    def __init__(self) -> None:
        self.before: list[tuple[bool, bool]] = []

    def __enter__(self) -> None:
        self.before.append((mode.enabled, mode.inference))
        mode.enabled = self.enabled

    def __exit__(self, *_: object) -> None:
        mode.enabled, mode.inference = self.before.pop()

    def __call__(self, fn: Callable[P, R]) -> Callable[P, R]:
        @wraps(fn)
        def within(*args: P.args, **kwargs: P.kwargs) -> R:
            with self.again():
                return fn(*args, **kwargs)

        return within

    def again(self) -> Recording:
        """Copy itself, for one call of a decorated function."""
        return type(self)()


class _OrBare(type):
    """Metaclass that lets `@no_grad` work as `@no_grad()`."""

    def __call__(cls, *args: Any) -> Any:
        if len(args) == 1 and callable(args[0]) and not isinstance(args[0], bool):
            return super().__call__()(args[0])
        return super().__call__(*args)


class no_grad(Recording, metaclass=_OrBare):
    """Disables recording.

    >>> import tilegrad as tg
    >>> x = tg.ones(2, requires_grad=True)
    >>> with tg.no_grad():
    ...     print((x * 2).requires_grad)
    False
    """

    enabled = False


class enable_grad(Recording, metaclass=_OrBare):
    """Enables recording, also within no_grad."""


class inference_mode(Recording, metaclass=_OrBare):
    """Disables recording (`inference_mode(False)`: enables it)."""

    def __init__(self, mode: bool = True) -> None:
        super().__init__()
        self.enabled = not mode

    def __enter__(self) -> None:
        super().__enter__()
        mode.inference = not self.enabled

    def again(self) -> Recording:
        return inference_mode(not self.enabled)


class set_grad_enabled(Recording):
    """Sets recording from the call on, or within a block."""

    def __init__(self, mode: bool) -> None:
        super().__init__()
        self.enabled = mode
        self.outside = _switch(mode)

    def __enter__(self) -> None:
        self.before.append(self.outside)
        mode.enabled = self.enabled

    def __call__(self, fn: Callable[P, R]) -> Callable[P, R]:
        mode.enabled, mode.inference = self.outside
        return super().__call__(fn)

    def again(self) -> Recording:
        return set_grad_enabled(self.enabled)


def _switch(enabled: bool) -> tuple[bool, bool]:
    before = mode.enabled, mode.inference
    mode.enabled = enabled
    return before


def is_grad_enabled() -> bool:
    """Whether gradients are recorded."""
    return mode.enabled


def is_inference_mode_enabled() -> bool:
    """Whether inference_mode is on."""
    read_outside(_inference)
    return mode.inference


def _inference() -> bool:
    return mode.inference
