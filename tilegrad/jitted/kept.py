"""What a program computes from captured tensors alone, such as packed weights: kept from one call to the next.

It is computed again when one of them was written to, or was given other memory; and in every call as long as others
can write to that memory without our knowing (`runtime/exposed.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

from ..lazy.storage import Storage
from ..runtime.buffer import Buffer
from ..runtime.executable import Steady
from ..runtime.exposed import Exposures, rely_on


class Kept:
    """The memory of such values, and for which state of the tensors they are right."""

    def __init__(self, steady: Steady, storages: Sequence[Storage]) -> None:
        self.steady = steady
        self.storages = storages
        """Of the tensors that they are computed from."""
        self._run = steady.executable.bound()
        self._made: tuple[int, tuple[Buffer, ...]] = (-1, ())
        """Both at once: threads may call a program at the same time."""

    def state(self) -> int:
        """A number that grows with every write: as users count them, and with those that they do not see."""
        return sum([s.version + s.changes for s in self.storages]) + Exposures.count

    def buffers(self, given: Sequence[Buffer]) -> tuple[Buffer, ...]:
        """The memory of the values, for the inputs of a call; they are computed if they have changed."""
        state = self.state()
        known, made = self._made
        if known == state:
            return made
        sources = [given[n] for n in self.steady.inputs]
        made = self._run(sources)
        self._made = (state if rely_on(sources) else -1, made)
        return made
