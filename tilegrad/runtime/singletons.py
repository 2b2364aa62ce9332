"""Create process-wide singletons, safe under threads and fork."""

from __future__ import annotations

import _imp
import os
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from importlib import _bootstrap
from threading import RLock, get_ident
from typing import Any, TypeVar
from weakref import WeakSet

from ..ir.node import making

T = TypeVar("T")

_locks: WeakSet[Any] = WeakSet()
_taken: list[Any] = []
"""Locks held while the process forks."""


_locks.add(making)
_forking = RLock()


def lock() -> Any:
    """Make a lock that no forked child finds held: forking waits for it."""
    return guarded(RLock())


def guarded(lock: Any) -> Any:
    """Register an existing reentrant lock in the same way."""
    _locks.add(lock)
    return lock


def _take_all() -> None:
    """Acquire all locks in any order without deadlock: on contention release everything, then wait for that lock.

    The import locks of other threads are awaited too: a child would wait for them for ever.
    """
    _forking.acquire()
    contended = None
    while True:
        for importing in _imports():
            with suppress(RuntimeError):  # they wait for this thread
                importing.acquire()
                importing.release()
        if not _try_all(contended):
            contended = _taken.pop()
            _release_all()
            continue
        _imp.acquire_lock()  # nobody begins to import something from now on
        if not _imports():
            return
        _imp.release_lock()
        _release_all()


def _imports() -> list[Any]:
    """List the locks of modules that other threads are importing."""
    locks = [found() for found in list(getattr(_bootstrap, "_module_locks", {}).values())]
    return [x for x in locks if x is not None and getattr(x, "owner", None) not in (None, get_ident())]


def _try_all(first: Any) -> bool:
    """Try to acquire all locks; on failure the contended one is last in `_taken`, not held."""
    if first is not None:
        first.acquire()
        _taken.append(first)
    for each in list(_locks):
        if each is not first:
            _taken.append(each)
            if not each.acquire(blocking=False):
                return False
    return True


def _release_all() -> None:
    while _taken:
        _taken.pop().release()


def _go_on() -> None:
    _imp.release_lock()
    _release_all()
    _forking.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_take_all, after_in_parent=_go_on, after_in_child=_go_on)


def once(make: Callable[[], T]) -> Callable[[], T]:
    """Memoise a function without arguments. Concurrent callers wait for the first call.

    (`functools.cache` may run it twice and drop one result, which is wrong if the dropped one is already in use.)

    >>> @once
    ... def answer() -> int:
    ...     print("computing")
    ...     return 42
    >>> answer(), answer()
    computing
    (42, 42)
    """
    made: list[T] = []
    alone = lock()

    @wraps(make)
    def given() -> T:
        if not made:
            with alone:
                if not made:
                    made.append(make())
        return made[0]

    return given
