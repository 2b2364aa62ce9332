"""Say on a terminal what takes long, as a compilation of more than half a second; elsewhere print nothing."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread

PATIENCE_S = 0.5
"""Seconds after which work is announced."""
REFRESH_S = 0.5
ERASE_LINE = "\r\x1b[K"
_busy: list[Announcement] = []


class Announcement:
    """Work that is announced, and how far it is."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.progress = ""

    def line(self, seconds: float) -> str:
        """Return the line to show, cut to the width of the terminal."""
        progress = f", {self.progress}" if self.progress else ""
        return f"{self.what}: {seconds:.0f} s{progress}"[: shutil.get_terminal_size().columns - 1]


@contextmanager
def announced(what: str) -> Iterator[None]:
    """Show a line with the seconds so far while the block runs, if it runs long; the line is erased in the end. Work
    within other announced work is part of it.
    """
    if _busy or not _is_terminal():
        yield
        return
    work, done = Announcement(what), Event()
    shows = Thread(target=_show, args=(work, done), name="announce", daemon=True)
    try:
        _busy.append(work)
        shows.start()
        yield
    finally:
        _busy.clear()
        done.set()
        if shows.ident is not None:
            shows.join()


def note_progress(text: str) -> None:
    """Note how far the announced work is."""
    if _busy:
        _busy[0].progress = text


def _is_terminal() -> bool:
    """Whether errors go to a terminal that can erase a line."""
    return sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


def _show(work: Announcement, done: Event) -> None:
    start = time.monotonic()
    if done.wait(PATIENCE_S):
        return
    while True:
        sys.stderr.write(ERASE_LINE + work.line(time.monotonic() - start))
        sys.stderr.flush()
        if done.wait(REFRESH_S):
            break
    sys.stderr.write(ERASE_LINE)
    sys.stderr.flush()
