"""Say on a terminal what takes long, as a compilation of more than a second; elsewhere print nothing."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread

PATIENCE_S = 1.0
"""Seconds after which work is announced."""
REFRESH_S = 0.5
_busy: list[str] = []


@contextmanager
def announced(what: str) -> Iterator[None]:
    """Show a line with the seconds so far while the block runs, if it runs long; the line is erased in the end. Work
    within other announced work is part of it.
    """
    if _busy or not sys.stderr.isatty():
        yield
        return
    _busy.append(what)
    done = Event()
    shows = Thread(target=_show, args=(what, done), name="announce", daemon=True)
    shows.start()
    try:
        yield
    finally:
        done.set()
        shows.join()
        _busy.clear()


def _show(what: str, done: Event) -> None:
    start = time.monotonic()
    if done.wait(PATIENCE_S):
        return
    while True:
        sys.stderr.write(f"\r\x1b[K{what}: {time.monotonic() - start:.0f} s")
        sys.stderr.flush()
        if done.wait(REFRESH_S):
            break
    sys.stderr.write("\r\x1b[K")
    sys.stderr.flush()
