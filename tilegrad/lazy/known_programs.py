"""Find the programs of structures that run compiled by one look-up, without counting and comparing them again."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, TypeAlias

from ..config import settings
from ..ops.broadcasting import Fill, number_key
from ..runtime.cache_pressure import shrinkers
from ..runtime.executable import Runner

Key: TypeAlias = tuple[Any, ...]

MAX_KNOWN_PROGRAMS = 4096


class KnownPrograms(threading.local):
    """The programs that the structures of a thread have reached. They are forgotten when a setting changes, and when
    programs are evicted.

    >>> from ..ir.graph import TensorType
    >>> from ..ir.dtype import float32
    >>> known, three = KnownPrograms(), Fill(3.0, TensorType(float32, ()))
    >>> known.add(("a", "b"), "runner", (3.0, 4.0), frozenset())
    >>> known.find(("a", "c"), []), known.find(("a", "b"), [three, three])
    (None, None)
    """

    def __init__(self) -> None:
        self.found: dict[Key, tuple[Runner, Key, frozenset[int]]] = {}
        self.valid_for: tuple[object, int] = (None, 0)

    def find(self, key: Key, numbers: Sequence[Fill]) -> tuple[Runner, Sequence[Fill]] | None:
        """Return the runner of a structure and the numbers that are passed to it; None if it is not known for these."""
        knobs, evictions = self.valid_for
        if knobs is not settings() or evictions != Evictions.count:
            self.found, self.valid_for = {}, (settings(), Evictions.count)
        found = self.found.get(key)
        if found is None or not numbers:
            return None if found is None else (found[0], ())
        runner, exactly, varied = found
        given = []
        for n, v in enumerate(numbers):
            if n in varied:
                given.append(v)
            elif number_key(v.value) != exactly[n]:
                return None
        return runner, given

    def add(self, key: Key, runner: Runner, exactly: Key, varied: frozenset[int]) -> None:
        """Note the program of a structure with some numbers; those at the indices that varied are passed to it."""
        if len(self.found) >= MAX_KNOWN_PROGRAMS:
            self.found.clear()
        self.found[key] = runner, exactly, varied


class Evictions:
    """Counts the evictions of programs."""

    count = 0


def forget_programs() -> None:
    """Forget the programs of all threads."""
    Evictions.count += 1


known = KnownPrograms()
shrinkers.append(forget_programs)
