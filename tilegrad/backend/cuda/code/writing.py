"""The lines of a kernel, its C++ names, and its shared memory."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from .hardware import VECTOR_BYTES
from .prelude import NAMES

KEYWORDS = frozenset(
    "alignas alignof and and_eq asm auto bitand bitor bool break case catch char class compl const constexpr "
    "const_cast continue decltype default delete do double dynamic_cast else enum explicit export extern false "
    "float for friend goto if inline int long mutable namespace new noexcept not not_eq nullptr operator or or_eq "
    "private protected public register reinterpret_cast return short signed sizeof static static_assert "
    "static_cast struct switch template this thread_local throw true try typedef typeid typename union unsigned "
    "using virtual void volatile wchar_t while xor xor_eq threadIdx blockIdx blockDim gridDim warpSize asm main "
    "shared thread before below here upto min max char8_t char16_t char32_t NULL".split()
)
RESERVED = re.compile(r"(v|c\d*(_\d+)?|at\d*|n|program_\d|grid_\d|parts\d*|__\w+|\w+f)$")
"""Names that generated code uses itself, and library functions (which end in f)."""
LIBRARY = frozenset("exp exp2 expm1 log log2 log10 log1p sqrt sin cos tan asin acos atan atan2 sinh cosh tanh".split())


LOOP_HEADER = re.compile(r"< (\d+); (?:\+\+\w+|\w+ \+= (\d+))\)$")
MAX_UNROLLED, UNROLL_FACTOR = 64, 8
"""Largest trip count of a completely unrolled loop, and the unroll factor of longer ones: complete unrolling of very
large tiles would take the compiler forever.
"""


def unrolling(head: str) -> str:
    """Return the unroll directive of a loop over the elements of a thread.

    >>> unrolling("for (int c = 0; c < 16; ++c)"), unrolling("for (int c = 0; c < 4096; c += 4)")
    ('#pragma unroll', '#pragma unroll 8')
    """
    found = LOOP_HEADER.search(head)
    iterations = int(found[1]) // int(found[2] or 1) if found else 0
    return "#pragma unroll" if iterations <= MAX_UNROLLED else f"#pragma unroll {UNROLL_FACTOR}"


class Names:
    """Assigns C++ names to the variables of a kernel."""

    def __init__(self) -> None:
        self.called: dict[str, str] = {}
        self.taken: set[str] = set()

    def of(self, name: str) -> str:
        if name not in self.called:
            refused = name in KEYWORDS or name in NAMES or name in LIBRARY or RESERVED.match(name) is not None
            self.called[name] = self.fresh(f"{name}_" if refused else name)
        return self.called[name]

    def fresh(self, stem: str) -> str:
        name, n = stem, 1
        while name in self.taken:
            n += 1
            name = f"{stem}{'_' if stem[-1:].isdigit() else ''}{n}"
        self.taken.add(name)
        return name


class Lines:
    """Indented lines of C++."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 1

    def add(self, text: str) -> None:
        self.lines.append("    " * self.depth + text if text else "")

    def extend(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.add(line)

    @contextmanager
    def block(self, head: str, unrolled: bool = False) -> Iterator[None]:
        """Write statements in braces; without a header they only form a scope."""
        if unrolled:
            self.add(unrolling(head))
        self.add(f"{head} {{" if head else "{")
        self.depth += 1
        start = len(self.lines)
        yield
        self.depth -= 1
        if len(self.lines) == start + 1 and head.startswith(("for", "if")) and not _opens(self.lines[start]):
            self.lines[start - 1] = self.lines[start - 1][:-2]  # one statement needs no braces
        else:
            self.add("}")


def _opens(line: str) -> bool:
    """Return whether a line could capture a following `else`, or is a directive."""
    return line.strip().startswith(("if", "for", "while", "#", "}"))


class SharedMemory:
    """Allocates shared memory for values exchanged between threads.

    Small requests alternate between two halves: a thread that writes to one has passed the barrier after the other was
    written, so every thread has read the previous contents of this one. Large requests need a barrier of their own.
    """

    MAX_HALF_BYTES = 4096

    def __init__(self) -> None:
        self.half_bytes = 0
        """Bytes of each half."""
        self.last: int | None = 0
        """The half used last; None if unknown."""
        self.first: int | None = None
        """The half used first since the loop began."""
        self.large_bytes = 0
        self.large_in_use = False
        """Whether the large region may still be read."""
        self.held_bytes = 0
        """Bytes that stay allocated over the statements of a loop."""
        self.separate = False
        """Whether the large region is used while bytes are held: otherwise the regions may overlap."""
        self.large_allocations = 0
        """Number of allocations of the large region."""

    def take(self, bytes: int) -> tuple[str, bool]:
        """Return the name of a region of this size, and whether a barrier must precede writes to it."""
        if bytes > self.MAX_HALF_BYTES:
            self.large_bytes = max(self.large_bytes, bytes)
            self.large_allocations += 1
            needs_barrier, self.large_in_use = self.large_in_use, True
            return "large", needs_barrier
        self.half_bytes = max(self.half_bytes, -(-bytes // VECTOR_BYTES) * VECTOR_BYTES)
        needs_barrier = self.last is None
        self.last = 0 if self.last != 0 else 1
        if self.first is None:
            self.first = self.last
        return f"half_{self.last}", needs_barrier

    @property
    def places(self) -> dict[str, int]:
        """Offsets of the regions, and (`end`) the total size."""
        held = self.large_bytes if self.separate else 0
        halves = max(self.large_bytes, held + self.held_bytes)
        return {
            "large": 0,
            "held": held,
            "half_0": halves,
            "half_1": halves + self.half_bytes,
            "end": halves + 2 * self.half_bytes,
        }
