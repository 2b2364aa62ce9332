"""Represent the tuned parameters of a kernel: its loop strategy and its tile sizes.

    choice ::= strategy name=number ...        m=64 n=128 k=196      across height=32 width=32

A choice is parsed from its printed form, which `kernels.lock` stores. The candidates for a group and the default are in
`schedule/options.py`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

WORD = re.compile(r"(?P<name>[a-z]+)=(?P<number>[1-9]\d*)|(?P<strategy>[a-z]+)")


class Choice(NamedTuple):
    """The loop strategy of a kernel and its tile sizes by name.

    >>> print(chosen("across", height=32, width=16))
    across height=32 width=16
    >>> parse_choice("m=64 n=128 k=196").size("n")
    128
    """

    strategy: str
    sizes: tuple[tuple[str, int], ...]

    def size(self, name: str, otherwise: int = 1) -> int:
        """Return a size by its name."""
        return next((number for known, number in self.sizes if known == name), otherwise)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the sizes."""
        return tuple([name for name, _ in self.sizes])

    def __str__(self) -> str:
        return " ".join(
            [*([self.strategy] if self.strategy else []), *(f"{name}={number}" for name, number in self.sizes)]
        )


def chosen(strategy: str = "", **sizes: int) -> Choice:
    """Build a choice."""
    return Choice(strategy, tuple(sizes.items()))


def parse_choice(text: str) -> Choice:
    """Parse the printed form of a choice; a `ValueError` names the mistake."""
    strategy, sizes = "", {}
    for n, word in enumerate(text.split()):
        found = WORD.fullmatch(word)
        if found is None or (found["strategy"] and n):
            raise ValueError(f"{word!r} is no size: write name=number, as in m=64")
        if found["strategy"]:
            strategy = found["strategy"]
        elif found["name"] in sizes:
            raise ValueError(f"{found['name']} occurs twice")
        else:
            sizes[found["name"]] = int(found["number"])
    return chosen(strategy, **sizes)


def power(number: int) -> int:
    """Round up to a power of two.

    >>> power(1), power(5), power(64)
    (1, 8, 64)
    """
    return 1 << max(0, number - 1).bit_length()


class LockEntry(NamedTuple):
    """A line: the kernel's name, its choice, and the measurement."""

    name: str
    choice: Choice
    note: str = ""
    line: int = 0


class Lock(NamedTuple):
    """The choices for one version on one machine by kernel digest, and the file they come from."""

    path: Path | None = None
    entries: Mapping[str, LockEntry] = {}

    @property
    def digest(self) -> str:
        """A hash of the choices; empty if there are none."""
        if not self.entries:
            return ""
        text = ", ".join(f"{digest} {entry.choice}" for digest, entry in sorted(self.entries.items()))
        return hashlib.sha256(text.encode()).hexdigest()

    def place(self, entry: LockEntry) -> str:
        """Describe the location of an entry for messages."""
        return f"{self.path}, line {entry.line}" if entry.line else str(self.path or "the tuner")
