"""Pools of inferencers: callers take one for each request, and wait when all are in use."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ..errors import ArgumentError

if TYPE_CHECKING:
    from .engine import Engine
    from .inferencer import Inferencer


class InferencerPool:
    """At most `cap` inferencers of an engine, each with activations and a stream of its own, made when first needed.

    >>> import tilegrad as tg
    >>> pool = InferencerPool(tg.engine(tg.nn.Linear(2, 1).eval(), tg.ones(1, 2)), 2)
    >>> pool(tg.ones(1, 2)).shape, pool.made
    ((1, 1), 1)
    """

    def __init__(self, engine: Engine, cap: int) -> None:
        if not isinstance(cap, int) or isinstance(cap, bool) or cap < 1:
            raise ArgumentError(f"a pool has at least 1 inferencer, not {cap!r:.40}")
        self.engine = engine
        self.cap = cap
        self.made = 0
        """Inferencers made so far."""
        self._free: list[Inferencer] = []
        self._places = threading.Semaphore(cap)
        self._lock = threading.Lock()

    @contextmanager
    def inferencer(self) -> Iterator[Inferencer]:
        """Lend an inferencer, the one that was used last (its data is in the cache); wait while all are in use."""
        with self._places:
            with self._lock:
                found = self._free.pop() if self._free else None
                self.made += found is None
            found = found or self.engine.inferencer()
            try:
                yield found
            finally:
                self._free.append(found)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call a free inferencer."""
        with self.inferencer() as infer:
            return infer(*args, **kwargs)
