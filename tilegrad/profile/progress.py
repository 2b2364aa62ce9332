"""`tg.progress`: show how far a loop is, how fast, and the last metrics; nothing where no terminal is."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any, Generic, TypeVar

from ..tensor import Tensor

T = TypeVar("T")
REFRESH_S = 0.1
"""Seconds between two prints of the line."""


class progress(Generic[T]):
    """Iterates over something and shows a line with the rate, the time that is left and the last metrics.

    >>> for batch in progress([1, 2, 3], "training"):
    ...     pass
    """

    def __init__(
        self, over: Iterable[T], name: str = "", total: int | None = None, *, show: bool | None = None
    ) -> None:
        self.over = over
        self.name = name
        self.total = total if total is not None else _length(over)
        self.show = sys.stderr.isatty() if show is None else show
        self.done = 0
        self.values: dict[str, Any] = {}
        self._printed = 0.0

    def __len__(self) -> int:
        if self.total is None:
            raise TypeError(f"progress: {type(self.over).__name__} has no length")
        return self.total

    def metrics(self, **values: Any) -> None:
        """Show these numbers from now on. Tensors are read only when the line is printed."""
        self.values.update(values)

    def __iter__(self) -> Iterator[T]:
        self.done, self._began = 0, time.monotonic()
        try:
            for item in self.over:
                yield item
                self.done += 1
                if self.show and time.monotonic() - self._printed > REFRESH_S:
                    self._print()
        finally:
            if self.show and self.done:
                self._print()
                sys.stderr.write("\n")

    def _print(self) -> None:
        self._printed = time.monotonic()
        sys.stderr.write(f"\r\x1b[K{self.line(self._printed - self._began)}")
        sys.stderr.flush()

    def line(self, seconds: float) -> str:
        """Format the line as shown after `seconds`.

        >>> shown = progress(range(8), "epoch 1")
        >>> shown.done = 2
        >>> shown.metrics(loss=0.25)
        >>> shown.line(4.0)
        'epoch 1  2/8  0.5/s  12 s left  loss 0.25'
        """
        rate = self.done / seconds if seconds > 0 else 0.0
        parts = [self.name, f"{self.done}/{self.total}" if self.total is not None else str(self.done), f"{rate:.3g}/s"]
        if self.total is not None and rate and self.done < self.total:
            parts.append(f"{(self.total - self.done) / rate:.0f} s left")
        parts += [f"{name} {_number(value)}" for name, value in self.values.items()]
        return "  ".join(part for part in parts if part).translate(PRINTABLE)


PRINTABLE = dict.fromkeys([*range(32), 127], " ")
"""Control characters in names of metrics must not move the cursor."""


def _length(over: Any) -> int | None:
    try:
        return len(over)
    except (TypeError, NotImplementedError):
        return None


def _number(x: Any) -> str:
    value = x.item() if isinstance(x, Tensor) and x.numel() == 1 else x
    return f"{value:.4g}" if isinstance(value, float) else str(value)
