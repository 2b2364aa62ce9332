"""Things of which a process has one."""

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
"""Those that are held while the process forks."""


_locks.add(making)
_forking = RLock()


def lock() -> Any:
    """A lock that nobody holds in a forked child: forking waits for it."""
    return guarded(RLock())


def guarded(lock: Any) -> Any:
    """The same for a lock of somebody else, which one thread can take several times."""
    _locks.add(lock)
    return lock


def _take_all() -> None:
    """Takes all locks, whatever order others take them in: who finds one taken lets go of the rest, and waits for it.

    Modules that other threads import are waited for, too: a child would wait for them for ever.
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
    """The locks of modules that other threads import now."""
    locks = [found() for found in list(getattr(_bootstrap, "_module_locks", {}).values())]
    return [x for x in locks if x is not None and getattr(x, "owner", None) not in (None, get_ident())]


def _try_all(first: Any) -> bool:
    """Takes all locks; False if one is taken: it is the last in `_taken` then, and not held."""
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
    alone = lock()

    @wraps(make)
    def given() -> T:
        if not made:
            with alone:
                if not made:
                    made.append(make())
        return made[0]

    return given
