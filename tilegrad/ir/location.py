"""Where in the user's code something was made."""

from __future__ import annotations

import sys
from pathlib import Path
from types import CodeType
from typing import NamedTuple

PACKAGE = str(Path(__file__).parent.parent)


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

    def __str__(self) -> str:
        return f"{Path(self.file).name}:{self.line}"


_inside: dict[str, bool] = {}


def user_location() -> Location | None:
    """The innermost place on the stack that is not in this package."""
    frame = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        inside = _inside.get(file)
        if inside is None:
            inside = _inside[file] = file.startswith((PACKAGE, "<string>"))
        if not inside:
            if file.startswith("<doctest"):
                return None
            return Location(frame.f_code, frame.f_lasti)
        frame = frame.f_back  # type: ignore[assignment]
    return None


_origin: Location | None = None


def current_location() -> Location | None:
    """The user's line that is being worked for."""
    return _origin if _origin is not None else user_location()


class working_for:
    """What is made inside belongs to this line of the user, not to the line that happens to run."""

    def __init__(self, location: Location | None) -> None:
        self.location = location

    def __enter__(self) -> None:
        global _origin
        self.previous, _origin = _origin, self.location

    def __exit__(self, *_: object) -> None:
        global _origin
        _origin = self.previous
