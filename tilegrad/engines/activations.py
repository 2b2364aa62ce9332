"""Run plans on activations of one caller: memory for temporaries and for batches that are padded."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..ir.dtype import int64
from ..runtime import events
from ..runtime.buffer import DeviceBuffer
from ..runtime.device import Device, device
from ..runtime.execution_context import ExecutionContext
from .plans import Plan

if TYPE_CHECKING:
    from .engine import Engine

Array = np.ndarray[Any, Any]


class CallPart(NamedTuple):
    """Rows of a call that one run of a plan computes; for fewer rows than the plan has, it is padded."""

    plan: Plan
    start: int
    rows: int
    is_padded: bool


def _address_getter() -> Callable[[Array], int]:
    """Return a function that gives the address of an array's first element.

    It reads the field of the array object, which is found by looking for a known address: numpy's own ways to ask for
    it take longer than a small network.
    """
    probe, words = np.empty(1), device("cpu").address_space(int64)
    known = probe.__array_interface__["data"][0]
    fields = [] if words is None else [n for n in range(2, 5) if words[(id(probe) >> 3) + n] == known]
    if words is None or len(fields) != 1:
        return lambda x: x.__array_interface__["data"][0]
    field = fields[0]

    def address_of(x: Array) -> int:
        return words[(id(x) >> 3) + field]

    return address_of


address_of = _address_getter()


class Activations:
    """The memory of one caller on a device whose memory the host can access, and the contexts on it."""

    def __init__(self, engine: Engine, place: Device) -> None:
        self.engine = engine
        self.device = place
        self.memory: DeviceBuffer | None = None
        self._contexts: dict[tuple[Plan, bool], ExecutionContext] = {}

    def reserve(self, bytes: int) -> bool:
        """Grow the memory if it is too small; return whether contexts must be made again."""
        if (0 if self.memory is None else self.memory.bytes) >= bytes:
            return False
        self._contexts.clear()
        self.memory = None  # first, so that the pool may reuse it
        self.memory = self.device.allocate(bytes)
        return True

    def direct(self, part: CallPart) -> Callable[..., None] | None:
        """Return the function that runs a part which is a whole call, if there is no more to do than to run it."""
        plan = part.plan
        if part.is_padded or plan.is_parallel or plan.copied or plan.written != list(range(len(plan.outputs))):
            return None
        context = self._context(plan, True)
        return None if context.check is not None else context.run

    def run(self, part: CallPart, given: Sequence[Array], results: Sequence[Array]) -> None:
        """Compute rows of the results from rows of the arguments."""
        plan = part.plan
        is_single = not plan.is_parallel or self.engine.calls > 1
        context = self._contexts.get((plan, is_single)) or self._context(plan, is_single)
        data = [*given, *[results[n] for n in plan.written]]
        addresses = [*map(address_of, data)]
        run = context.profiled if events.listeners else context.run
        if part.is_padded:
            self._run_padded(run, part, data, addresses)
        else:
            if part.start:
                addresses = [at + x.nbytes // len(x) * part.start for at, x in zip(addresses, data, strict=True)]
            run(*addresses)
        if context.check is not None:
            context.check()

    def _context(self, plan: Plan, is_single: bool) -> ExecutionContext:
        """Make the context of a plan on this memory."""
        assert plan.contexts is not None
        while len(self._contexts) >= 2 * self.engine.max_plans:
            del self._contexts[next(iter(self._contexts))]
        made = self._contexts[plan, is_single] = plan.contexts.context(plan.constants, self.memory, is_single)
        return made

    def _run_padded(
        self, run: Callable[..., None], part: CallPart, data: Sequence[Array], addresses: Sequence[int]
    ) -> None:
        """Run on copies of the rows that are followed by zeros, and copy the results back."""
        assert self.memory is not None
        places = [self.memory.address + offset for offset in part.plan.padded_offsets]
        rows, batch = part.rows, part.plan.rows
        sizes = [x.nbytes // len(x) for x in data]
        count = len(part.plan.arguments)
        for n in range(count):
            ctypes.memmove(places[n], addresses[n] + sizes[n] * part.start, sizes[n] * rows)
            ctypes.memset(places[n] + sizes[n] * rows, 0, sizes[n] * (batch - rows))
        run(*places[:-1])
        for n in range(count, len(data)):
            ctypes.memmove(addresses[n] + sizes[n] * part.start, places[n], sizes[n] * rows)
