"""Define execution contexts: a program with memory of its own, so that several callers run it at the same time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from .buffer import DeviceBuffer


class ExecutionContext(NamedTuple):
    """A program on memory of its own, for one caller at a time."""

    run: Callable[..., None]
    """Runs it, given the addresses of the inputs that vary from call to call, then those of the outputs."""
    profiled: Callable[..., None]
    """Does so with times for those who listen."""
    check: Callable[[], None] | None
    """Raises the error of a run, if errors are possible."""


class ContextFactory(ABC):
    """A program with bound sizes, of which execution contexts are made."""

    arena: int
    """Bytes of temporaries that each context needs."""
    outputs: Sequence[int]
    """Bytes of each output that a run writes."""
    results: Sequence[int]
    """For each result of the program, its number among the inputs and, after these, the outputs."""

    @property
    @abstractmethod
    def is_parallel(self) -> bool:
        """Whether there is work for several threads."""

    @abstractmethod
    def allocated(self, bytes: int) -> int:
        """Return the bytes that the device's pool takes for a request."""

    @abstractmethod
    def learn(self, inputs: Sequence[DeviceBuffer]) -> None:
        """Run on examples of all inputs to measure launches, by which contexts are divided among threads."""

    @abstractmethod
    def context(
        self, constants: Mapping[int, DeviceBuffer], arena: DeviceBuffer | None, is_single_threaded: bool
    ) -> ExecutionContext:
        """Make a context: `constants` are inputs that stay the same, by number.

        A context of one thread runs at the same time as all others; those on all threads take turns.
        """
