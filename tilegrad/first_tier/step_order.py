"""Order the steps of a plan so that memory is released early: a sum runs as soon as what it sums is there.

The recorded order goes depth first from the wanted values: the gradients of a network's weights would wait for one
another, and keep every activation and every upstream gradient meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

SMALL_SHARE = 4
"""A result is small if it has at most one part in so many of the bytes of one source."""


class StepSlots(NamedTuple):
    """The slots that a step reads, each once, and those that it writes."""

    sources: tuple[int, ...]
    roots: tuple[int, ...]


def early_order(steps: Sequence[StepSlots], bytes: Sequence[int], kept: frozenset[int]) -> list[int]:
    """Return the numbers of steps in an order in which a step runs as soon as it can, if it then releases as much
    memory as it takes, or makes little of much. `bytes` are those of the slots; `kept` are not released.

    Each of two tensors is summed before the next is made:

    >>> steps = [StepSlots((0,), (1,)), StepSlots((0,), (2,)), StepSlots((1,), (3,)), StepSlots((2,), (4,))]
    >>> early_order(steps, [64, 64, 64, 4, 4], frozenset({0, 3, 4}))
    [0, 2, 1, 3]
    """
    return _Ordering(steps, bytes, kept).order


class _Ordering:
    """Steps that have run, what the others wait for, and what still reads each slot."""

    def __init__(self, steps: Sequence[StepSlots], bytes: Sequence[int], kept: frozenset[int]) -> None:
        self.steps, self.bytes, self.kept = steps, bytes, kept
        self.readers: dict[int, list[int]] = {}
        self.waiting = [0] * len(steps)
        """Number of sources that a step waits for; -1 once it has run."""
        made = {root for step in steps for root in step.roots}
        for number, step in enumerate(steps):
            for slot in step.sources:
                self.readers.setdefault(slot, []).append(number)
                self.waiting[number] += slot in made
        self.left = {slot: len(readers) for slot, readers in self.readers.items()}
        """Number of readers of a slot that have not run."""
        self.order: list[int] = []
        for number in range(len(steps)):
            if not self.waiting[number]:
                self._run(number)

    def _run(self, first: int) -> None:
        """Run a step, and those that should follow at once."""
        steps, waiting, left = self.steps, self.waiting, self.left
        stack = [first]
        while stack:
            number = stack.pop()
            if waiting[number]:
                continue
            waiting[number] = -1
            self.order.append(number)
            candidates = []
            for slot in steps[number].sources:
                left[slot] -= 1
                if left[slot] == 1 and slot not in self.kept:
                    candidates += [n for n in self.readers[slot] if waiting[n] == 0]  # would release it
            for slot in steps[number].roots:
                for reader in self.readers.get(slot, ()):
                    waiting[reader] -= 1
                    if not waiting[reader]:
                        candidates.append(reader)
            stack += [n for n in reversed(candidates) if self._is_early(n)]

    def _is_early(self, number: int) -> bool:
        sources, roots = self.steps[number]
        taken = sum([self.bytes[slot] for slot in roots])
        if taken * SMALL_SHARE <= max([self.bytes[slot] for slot in sources], default=0):
            return True
        return taken <= sum([self.bytes[n] for n in sources if self.left[n] == 1 and n not in self.kept])
