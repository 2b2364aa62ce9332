"""Things of which a process has one."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import wraps
from threading import RLock
from typing import TypeVar

T = TypeVar("T")


def lock() -> AbstractContextManager[bool]:
    """A lock that nobody holds in a forked child: forking waits for it.

    Those that are made later are taken first, so an outer lock must be made after the locks inside it.
    """
    made = RLock()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=made.acquire, after_in_parent=made.release, after_in_child=made.release)
    return made


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
