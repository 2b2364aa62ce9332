"""Things of which a process has one."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from threading import RLock
from typing import TypeVar

T = TypeVar("T")


def once(make: Callable[[], T]) -> Callable[[], T]:
    """Calls a function the first time only, and gives what it gave. Threads that come meanwhile wait.

    (`functools.cache` lets two threads call it, and throws one result away: no good for code that runs already.)

    >>> @once
    ... def answer() -> int:
    ...     print("computing")
    ...     return 42
    >>> answer(), answer()
    computing
    (42, 42)
    """
    made: list[T] = []
    lock = RLock()

    @wraps(make)
    def given() -> T:
        if not made:
            with lock:
                if not made:
                    made.append(make())
        return made[0]

    return given
