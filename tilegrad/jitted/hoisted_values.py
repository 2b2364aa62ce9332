"""Cache hoisted values, such as packed weights, that a program computes from captured tensors alone.

They are recomputed when a tensor was written to or given other memory; and in every call while foreign code can write
to that memory unnoticed (`runtime/exposure.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

from ..lazy.storage import Storage
from ..runtime.buffer import DeviceBuffer
from ..runtime.executable import HoistedProgram
from ..runtime.exposure import Exposures, rely_on
from .memory import CapturedInput


class HoistedValues:
    """The buffers of hoisted values, and the versions of the tensors that they were computed from."""

    def __init__(self, hoisted: HoistedProgram, inputs: Sequence[CapturedInput]) -> None:
        self.hoisted = hoisted
        self.inputs = inputs
        """The captured tensors that they depend on."""
        self._run = hoisted.executable.bound()
        self._made: tuple[Sequence[Storage], int, tuple[DeviceBuffer, ...]] = ((), -1, ())
        """Storages, versions and buffers as one object: threads may call a program at the same time."""
        self.find_storages()

    def find_storages(self) -> None:
        """Look up the storages of the captured tensors; the values are recomputed in the next call."""
        self.storages = [x.base.storage for x in self.inputs]

    def buffers(self, given: Sequence[DeviceBuffer]) -> tuple[DeviceBuffer, ...]:
        """Return the buffers for a call, recomputed if a storage has changed, visibly or through `.data`."""
        storages = self.storages
        state = sum([s.version + s.changes for s in storages]) + Exposures.count
        known, before, made = self._made
        if known is storages and before == state:
            return made
        sources = [given[n] for n in self.hoisted.inputs]
        made = self._run(sources)
        self._made = (storages, state if rely_on(sources) else -1, made)
        return made
