"""Detect whether a traced function draws random numbers, reads a clock or reads a file.

A program would repeat the first answer for ever, so such a function runs without one. Random generators are compared
before and after; clocks and files show only when called, so calls are profiled if the function mentions them at all.
"""

from __future__ import annotations

import pickle
import random
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import BuiltinFunctionType, FrameType, FunctionType
from typing import Any

from .tracing import NoProgram

CLOCKS = frozenset("time datetime secrets uuid _io io posix nt os pathlib random".split())
"""Modules whose functions return something else each time."""
ASKED = frozenset("time _io posix nt".split())
SILENT = frozenset("sleep fspath getpid write flush".split())
"""Functions of these modules that do not affect results."""


def is_asked(x: Any) -> bool:
    """Whether an object is a function or class of a clock, of files, or the like."""
    if isinstance(x, BuiltinFunctionType):
        module = x.__module__ or type(x.__self__).__module__
    else:
        module = x.__module__ if isinstance(x, FunctionType | type) else ""
    return module in CLOCKS


@contextmanager
def same_again(asks: bool, drawn: Sequence[Any], unseen: str) -> Iterator[None]:
    """Run a function in the block; refuse a program for it if another run would get other answers, or if it depends on
    something that cannot be compared (`unseen`).

    Generators are restored, for the run that follows.
    """
    if unseen:
        raise NoProgram(unseen)
    generators = [random, *drawn]
    if "numpy.random" in sys.modules:
        generators.append(sys.modules["numpy.random"].mtrand._rand)
    before = [_state(x) for x in generators]
    found: list[str] = []
    if asks:
        outer = sys.getprofile()
        sys.setprofile(lambda frame, event, called: found.append(_asked(frame, event, called)))
    try:
        yield
    finally:
        if asks:
            sys.setprofile(outer)
    for x, state in zip(generators, before, strict=True):
        if pickle.dumps(_state(x)) != pickle.dumps(state):
            for other, old in zip(generators, before, strict=True):
                _put_back(other, old)
            name = "numpy.random" if type(x).__module__.startswith("numpy") else "random"
            raise NoProgram(f"it draws from `{name}`: draw by tg.rand and its like, or give the numbers as arguments")
    names = [name for name in found if name]
    if names:
        raise NoProgram(f"it asks `{names[0]}`, which answers otherwise each time: give that as an argument")


def _asked(frame: FrameType, event: str, called: Any) -> str:
    """Return the name of a clock or the like that the user's code calls, directly or through the standard library."""
    if event != "c_call" or not isinstance(called, BuiltinFunctionType):
        return ""
    kind = called.__self__
    by_class = (
        isinstance(kind, type) and kind.__module__ == "datetime" and called.__name__ in ("now", "utcnow", "today")
    )
    of_file = type(kind).__module__ == "_io" and called.__name__.startswith("read")
    if not (by_class or of_file or called.__module__ in ASKED or called is input) or called.__name__ in SILENT:
        return ""
    at: FrameType | None = frame
    while at is not None and at.f_globals.get("__name__", "").partition(".")[0] in sys.stdlib_module_names:
        at = at.f_back
    ours = at is not None and at.f_globals.get("__name__", "").partition(".")[0] == "tilegrad"
    return "" if ours else called.__name__


def _state(generator: Any) -> Any:
    if hasattr(generator, "getstate"):
        return generator.getstate()
    return generator.get_state() if hasattr(generator, "get_state") else generator.bit_generator.state


def _put_back(generator: Any, state: Any) -> None:
    if hasattr(generator, "setstate"):
        generator.setstate(state)
    elif hasattr(generator, "set_state"):
        generator.set_state(state)
    else:
        generator.bit_generator.state = state
