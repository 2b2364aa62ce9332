"""Mixed precision: low-precision products (`autocast`), and scaled gradients of float16 (`GradScaler`)."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from ..errors import ArgumentError, DTypeError
from ..functions.autocasting import CASTABLE, NARROW, arithmetic, low_type, note
from ..ir.dtype import DType, bfloat16
from ..runtime.device import device
from .scaler import GradScaler

P = ParamSpec("P")
R = TypeVar("R")

__all__ = ["CASTABLE", "GradScaler", "autocast", "get_autocast_dtype", "is_autocast_enabled"]


class autocast:
    """Compute products in a low-precision dtype, within a block or a decorated function.

    Parameters stay in float32, and so do their gradients. With `enabled=False` a block within computes as ever.

    >>> import tilegrad as tg
    >>> x = tg.ones(2, 3)
    >>> with tg.autocast("cpu", tg.bfloat16):
    ...     y = x @ x.t()
    ...     y.dtype, y.softmax(-1).dtype
    (tilegrad.bfloat16, tilegrad.float32)
    """

    def __init__(
        self,
        device_type: str,
        dtype: DType | None = None,
        enabled: bool = True,
        cache_enabled: bool | None = None,
    ) -> None:
        if not isinstance(device_type, str):
            raise ArgumentError(f"autocast: the kind of device comes first, as in autocast('cpu'), not {device_type!r}")
        self.device_type = device_type.partition(":")[0]
        # the error that lists the devices, if there is none; a script may leave one out that is elsewhere
        low = device(self.device_type).low if enabled else bfloat16
        self.dtype = dtype or low
        if enabled and self.dtype not in NARROW:
            raise DTypeError(f"autocast computes in bfloat16 or float16, not in {self.dtype!r}; leave it out for that")
        self.enabled = enabled
        self.before: list[tuple[tuple[str, DType], ...]] = []

    def __enter__(self) -> autocast:
        note()
        low = arithmetic.low
        self.before.append(low)
        others = tuple(entry for entry in low if entry[0] != self.device_type)
        arithmetic.low = (*others, (self.device_type, self.dtype)) if self.enabled else others
        return self

    def __exit__(self, *_: object) -> None:
        arithmetic.low = self.before.pop()

    def __call__(self, fn: Callable[P, R]) -> Callable[P, R]:
        @wraps(fn)
        def within(*args: P.args, **kwargs: P.kwargs) -> R:
            with autocast(self.device_type, self.dtype, self.enabled):
                return fn(*args, **kwargs)

        return within


def is_autocast_enabled(device_type: str = "cpu") -> bool:
    """Test whether autocast is on for a kind of device."""
    return low_type(device_type) is not None


def get_autocast_dtype(device_type: str = "cpu") -> Any:
    """Return the dtype in which autocast computes products; None where it is off."""
    return low_type(device_type)


def __dir__() -> list[str]:
    return __all__
