"""Generate guarded fast calls: functions that check their inputs, gather memory, run, and wrap the results.

A loop over arguments and results takes longer than a small program runs. So the calls of one program or foreign
function are generated once as straight-line source, unrolled. A call that a guard rejects returns `miss`, and the
caller takes the general path.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from types import CodeType
from typing import Any

MISS = object()
"""Returned by the fast path of a call that it does not handle."""
MAX_SOURCES = 256
"""Number of sources whose compiled code is kept: programs that are bound to new sizes have the same source."""


class GuardedCall:
    """The source of a function under construction, and the objects that it names.

    >>> call = GuardedCall("root", ["x"], miss="no root")
    >>> call.guard("x.__class__ is float", "x >= 0")
    >>> y = call.let("y", f"{call.bind('power', pow)}(x, 0.5)")
    >>> call.add(f"return {y}")
    >>> print(call.source())
    def root(x):
        if not (x.__class__ is float and x >= 0): return miss
        y0 = power0(x, 0.5)
        return y0
    >>> root = call.made()
    >>> root(4.0), root(-1.0)
    (2.0, 'no root')
    """

    def __init__(self, name: str, parameters: Sequence[str] = (), miss: Any = None, **objects: Any) -> None:
        self.name = name
        self.parameters = parameters
        self.objects = {"miss": miss, **objects}
        """The global names of the function."""
        self._lines: list[str] = []
        self._depth = 1
        self._counts: Counter[str] = Counter()
        self._bound: dict[tuple[str, int], str] = {}

    def bind(self, hint: str, thing: Any) -> str:
        """Name an object: `hint` and a number, the same for the same object."""
        key = hint, id(thing)
        if key not in self._bound:
            name = self._bound[key] = self._fresh(hint)
            self.objects[name] = thing
        return self._bound[key]

    def let(self, hint: str, source: str) -> str:
        """Assign an expression to a new local variable, and return its name."""
        name = self._fresh(hint)
        self.add(f"{name} = {source}")
        return name

    def unpack(self, hint: str, count: int, source: str) -> list[str]:
        """Assign the items of a sequence to new local variables."""
        names = [self._fresh(hint) for _ in range(count)]
        if names:
            self.add(f"{packed(names)[1:-1]} = {source}")
        return names

    def guard(self, *conditions: str) -> None:
        """Return `miss` unless all conditions hold."""
        if conditions:
            self.add(f"if not ({' and '.join(conditions)}): return miss")

    def add(self, *lines: str) -> None:
        """Append lines at the current indentation."""
        self._lines += ["    " * self._depth + line for line in lines]

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Indent what is added within, under a compound statement."""
        self.add(f"{head}:")
        self._depth += 1
        yield
        self._depth -= 1

    @contextmanager
    def missing(self, *errors: str) -> Iterator[None]:
        """Return `miss` if what is added within raises one of these errors."""
        with self.block("try"):
            yield
        self.add(f"except ({', '.join(errors)}): return miss")

    def source(self) -> str:
        return "\n".join([f"def {self.name}({', '.join(self.parameters)}):", *self._lines])

    def made(self) -> Callable[..., Any]:
        """Compile the function."""
        exec(_code(self.source()), self.objects)
        return self.objects[self.name]  # type: ignore[no-any-return]

    def _fresh(self, hint: str) -> str:
        number = self._counts[hint]
        self._counts[hint] += 1
        return f"{hint}{number}"


def packed(names: Sequence[str]) -> str:
    """Write a tuple as source.

    >>> packed(["x"]), packed([])
    ('(x,)', '()')
    """
    return f"({', '.join(names)}{',' if len(names) == 1 else ''})"


@lru_cache(MAX_SOURCES)
def _code(source: str) -> CodeType:
    """Compile a source, once for all calls that differ only in their objects."""
    return compile(source, "<string>", "exec")
