"""Where in the user's code something was made."""

from __future__ import annotations

import os
import sys
from threading import get_ident
from types import CodeType, FrameType
from typing import NamedTuple

from .. import errors

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LIBRARY = os.path.dirname(os.path.abspath(os.__file__)) + os.sep
"""Python's own modules: that `copy.deepcopy` calls us is not the user's line."""
INSTALLED = os.path.join(LIBRARY, "site-packages")
DEMO = os.path.join(PACKAGE, "demo")
"""Written as a user would: its lines are shown."""


class Location(NamedTuple):
    """A place in a user's file; the line is looked up only when it is shown."""

    code: CodeType
    instruction: int

    @property
    def file(self) -> str:
        return self.code.co_filename

    @property
    def line(self) -> int:
        lines = list(self.code.co_positions())
        return lines[self.instruction // 2][0] or self.code.co_firstlineno

    @property
    def derived(self) -> bool:
        """Whether the line was not computed there, but differentiated."""
        return isinstance(self, Derived)

    def __bool__(self) -> bool:
        """Whether there is a file to open: an example in a docstring has none."""
        return not self.file.startswith("<doctest")

    def __str__(self) -> str:
        return f"{os.path.basename(self.file)}:{self.line}"


class Derived(Location):
    """The line of the user whose derivative something belongs to."""

    __slots__ = ()


def derived(location: Location | None) -> Derived | None:
    """The place of what the derivative of a line is computed with."""
    return None if location is None else _new(Derived, location)


class _Inside(dict[str, bool]):
    """Whether a file is part of this package (or written by it), or of Python."""

    def __missing__(self, file: str) -> bool:
        ours = file.startswith((PACKAGE, "<string>", "<frozen")) and not file.startswith(DEMO)
        inside = self[file] = ours or (file.startswith(LIBRARY) and not file.startswith(INSTALLED))
        return inside


_inside = _Inside()
_frame, _new = sys._getframe, tuple.__new__


def user_location() -> Location | None:
    """The innermost place on the stack that is not in this package."""
    return _outside(_frame(1))


def _outside(frame: FrameType | None) -> Location | None:
    while frame is not None:
        code = frame.f_code
        if not _inside[code.co_filename]:
            return _new(Location, (code, frame.f_lasti))
        frame = frame.f_back
    return None


_origins: dict[int, Location] = {}
"""What threads work for, if it is not the line that they run."""


def current_location() -> Location | None:
    """The user's line that is being worked for. Every value asks: this is `user_location` written out."""
    if _origins:
        origin = _origins.get(get_ident())
        if origin is not None:
            return origin
    frame: FrameType | None = _frame(1)
    while frame is not None:
        code = frame.f_code
        if not _inside[code.co_filename]:
            return _new(Location, (code, frame.f_lasti))
        frame = frame.f_back
    return None


class working_for:
    """What is made inside belongs to this line of the user, not to the line that happens to run."""

    def __init__(self, location: Location | None) -> None:
        self.location = location

    def __enter__(self) -> None:
        thread = get_ident()
        self.previous = _origins.get(thread)
        self._now(thread, self.location)

    def __exit__(self, *_: object) -> None:
        self._now(get_ident(), self.previous)

    def _now(self, thread: int, location: Location | None) -> None:
        if location is None:
            _origins.pop(thread, None)
        else:
            _origins[thread] = location


errors.locate = current_location
