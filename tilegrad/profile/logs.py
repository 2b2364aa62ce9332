"""`tg.logging`: levels by module, verbose logs, and checks; nothing is printed until a level is set.

Built on Python's logging: the logger of a module is `tilegrad.<module>`, so that whatever collects logs of a program
collects these. A level is a word (debug, info, warning, error, off) or the number of a verbose log (`v(3)`).
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, NoReturn

from ..errors import ArgumentError
from ..runtime import events

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40, "fatal": 50, "off": 100}
ROOT = "tilegrad"
FORM = "%(levelname).1s %(asctime)s.%(msecs)03d %(name)s] %(message)s"
VERBOSE = {**{n: 20 - n for n in range(1, 10)}, 0: 20}
"""The levels of Python's logging for verbose logs: `v(1)` is just below info."""
_root = logging.getLogger(ROOT)
_root.addHandler(logging.NullHandler())
_root.propagate = False
_state: dict[str, Any] = {"handler": None, "listens": False}


def logger(module: str = "") -> logging.Logger:
    """Return the logger of a module, as `jitted` or `my.model`."""
    return logging.getLogger(f"{ROOT}.{module}" if module else ROOT)


def level_of(word: str | int) -> int:
    """Return the number of a level.

    >>> level_of("warning"), level_of(3), level_of("9")
    (30, 17, 11)
    """
    text = str(word).strip().lower()
    if text.isdigit() and int(text) in VERBOSE:
        return VERBOSE[int(text)]
    if text not in LEVELS:
        near = get_close_matches(text, LEVELS, 1)
        guess = f" (did you mean {near[0]}?)" if near else ""
        raise ArgumentError(f"logging: {word!r} is no level{guess}: {', '.join(LEVELS)}, or a number from 0 to 9")
    return LEVELS[text]


def set_level(level: str | int, module: str = "") -> None:
    """Print from this level on, of one module or of all, to standard error."""
    number = level_of(level)
    logger(module).setLevel(number)
    if _state["handler"] is None:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter(FORM, "%H:%M:%S"))
        _root.addHandler(handler)
        _state["handler"] = handler
    _listen()


def _listen() -> None:
    """Listen to compilations while somebody wants to read of them: listening costs a little."""
    wanted = logger("compile").isEnabledFor(logging.DEBUG)
    if wanted and not _state["listens"]:
        events.listeners.append(_on_event)
    elif not wanted and _state["listens"]:
        events.listeners.remove(_on_event)
    _state["listens"] = wanted


def _on_event(event: events.TimedEvent) -> None:
    if event.kind == "compile":
        logger("compile").debug("%s for %s: %.1f ms", event.name, event.device, event.seconds * 1e3)


def configure(text: str) -> None:
    """Set levels as in `info`, or `compile=debug,model=3`.

    >>> configure("off")
    """
    for part in filter(None, (part.strip() for part in text.split(","))):
        module, equals, level = part.rpartition("=")
        set_level(level, module if equals else "")


def flags(arguments: Sequence[str] | None = None) -> list[str]:
    """Take `--v=9`, `--vmodule=model=3,data=1` and `--log=LEVELS` from a command line; what is left.

    >>> flags(["train.py", "--rate=0.1"])
    ['train.py', '--rate=0.1']
    """
    left = []
    for argument in sys.argv if arguments is None else arguments:
        name, equals, value = argument.partition("=")
        if name in ("--v", "--vmodule", "--log"):
            if not equals or not value:
                raise ArgumentError(f"{name} wants a value: {name}={'9' if name == '--v' else 'compile=debug'}")
            configure(value)
        else:
            left.append(argument)
    return left


def v(level: int, message: object, *args: object, module: str = "") -> None:
    """Log verbosely: printed if the level is set to this number or more."""
    logger(module).log(level_of(level), str(message), *args, stacklevel=2)


def _of(name: str) -> Callable[..., None]:
    def log(message: object, *args: object, module: str = "") -> None:
        logger(module).log(LEVELS[name], str(message), *args, stacklevel=2)

    log.__name__ = log.__qualname__ = name
    log.__doc__ = f"Log at level {name}."
    return log


debug, info, warning, error = (_of(name) for name in ("debug", "info", "warning", "error"))


class CheckError(AssertionError):
    """A check of the user's that failed."""


def fatal(message: object, *args: object, module: str = "") -> NoReturn:
    """Log, and raise CheckError."""
    logger(module).log(LEVELS["fatal"], str(message), *args, stacklevel=2)
    raise CheckError(str(message) % args if args else str(message))


def check(condition: Any, message: str = "") -> None:
    """CheckError unless something is true; unlike `assert` it is never left out."""
    if not condition:
        raise CheckError(message or "CHECK failed")


def _comparing(word: str, holds: Callable[[Any, Any], Any]) -> Callable[..., None]:
    def compare(x: Any, y: Any, message: str = "") -> None:
        if not holds(x, y):
            raise CheckError(f"CHECK failed: {x!r} {word} {y!r}" + (f": {message}" if message else ""))

    compare.__doc__ = f"CheckError, with both, unless x {word} y."
    return compare


CHECKS: Mapping[str, Callable[..., None]] = {
    "CHECK": check,
    "CHECK_EQ": _comparing("==", lambda x, y: x == y),
    "CHECK_NE": _comparing("!=", lambda x, y: x != y),
    "CHECK_LT": _comparing("<", lambda x, y: x < y),
    "CHECK_LE": _comparing("<=", lambda x, y: x <= y),
    "CHECK_GT": _comparing(">", lambda x, y: x > y),
    "CHECK_GE": _comparing(">=", lambda x, y: x >= y),
}
