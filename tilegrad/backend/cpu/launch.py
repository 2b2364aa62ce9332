"""Launch users' kernels one at a time.

A launch with the grid and scalar arguments of an earlier one finds its task table, and costs one call of a native
function. The first launches measure the time, which decides how finely the grid is partitioned.
"""

from __future__ import annotations

import struct
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from math import prod

from ...errors import RuntimeFault
from ...ir.dtype import DType
from ...ir.tile import Kernel
from ...runtime import events
from ...runtime.buffer import DeviceBuffer
from ...tiles.pipeline import run_passes
from . import native
from .build import build_kernels, kernel_assembly, shown_ir
from .costs import ASSUMED_INSTANCE_NS, RELEASE_LOCK_NS
from .partition import NativeCall, partition
from .task_table import ArgumentPatch, TaskTable

MAX_TABLES = 256
"""Most task tables that a launch keeps."""
MEASURED_RUNS = 3
"""Measured runs of a launch, beginning with its second."""


def launched_ir(kernel: Kernel) -> str:
    """Return the LLVM IR of a kernel as it is launched."""
    return shown_ir(run_passes(kernel, "cpu", users=True))


def launched_assembly(kernel: Kernel) -> str:
    """Return the assembly of a kernel as it is launched."""
    return kernel_assembly(run_passes(kernel, "cpu", users=True))


class LaunchedKernel:
    """A compiled kernel of a user."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = run_passes(kernel, "cpu", users=True)
        self.code = build_kernels([self.kernel])
        self.pointers = [slot for slot, p in enumerate(self.kernel.parameters) if p.pointer]
        self.numbers = [(slot, p.dtype) for slot, p in enumerate(self.kernel.parameters) if not p.pointer]
        self.tables: OrderedDict[tuple[tuple[int, ...], ...], BoundLaunch] = OrderedDict()

    def __call__(self, arguments: Sequence[DeviceBuffer | int], grid: tuple[int, ...]) -> None:
        """Run all instances of a grid."""
        parameters = self.kernel.parameters
        if len(arguments) != len(parameters):
            raise RuntimeFault(f"{self.kernel.name} takes {len(parameters)} arguments, not {len(arguments)}")
        if 0 in grid:
            return
        numbers = tuple([argument_word(arguments[slot], dtype) for slot, dtype in self.numbers])  # type: ignore[arg-type]
        key = (grid, numbers)
        prepared = self.tables.get(key)
        if prepared is None:
            prepared = self.tables[key] = BoundLaunch(self, grid, numbers)
            if len(self.tables) > MAX_TABLES:
                self.tables.popitem(last=False)
        addresses = [arguments[slot].address for slot in self.pointers]  # type: ignore[union-attr]
        if events.listeners:
            bytes = sum([arguments[slot].bytes for slot in self.pointers])  # type: ignore[union-attr, misc]
            prepared.run(addresses, bytes, self.kernel.origin)
        elif prepared.tuned is None:
            prepared.run(addresses)
        else:
            prepared.tuned(*addresses)


class BoundLaunch:
    """A kernel with its grid and its scalar arguments: only the addresses of buffers differ from run to run."""

    def __init__(self, launcher: LaunchedKernel, grid: tuple[int, ...], numbers: tuple[int, ...]) -> None:
        kernel = launcher.kernel
        self.code = launcher.code
        self.patches = [ArgumentPatch(datum, 0, slot) for datum, slot in enumerate(launcher.pointers)]
        instances = prod(grid)
        slots = [0] * len(kernel.parameters) + [*grid, 1, 1, 1][:3]
        for (slot, _), number in zip(launcher.numbers, numbers, strict=True):
            slots[slot] = number
        self.call = NativeCall(
            kernel.name, launcher.code[kernel], tuple(slots), instances, instances * ASSUMED_INSTANCE_NS
        )
        self.runs = 0
        self.table: TaskTable | None = None
        self.tuned: Callable[..., None] | None = None
        """The runner after the last partitioning."""

    def prepared(self) -> Callable[..., None]:
        """Return the runner, partitioned by the time estimated so far."""
        if self.table is None:
            team = native.team()
            segments = partition([self.call], team.threads)
            long = self.call.nanoseconds > RELEASE_LOCK_NS
            self.table = TaskTable(team, [self.call], segments, self.patches, len(self.patches), long=long)
        return self.table.run

    def run(self, addresses: Sequence[int], bytes: int = 0, origin: str = "") -> None:
        run = self.prepared()
        start = time.monotonic_ns()
        run(*addresses)
        stop = time.monotonic_ns()
        if events.listeners:
            events.emit("launch", self.call.name, "cpu", start, stop, bytes, origin=origin)
        if 1 <= self.runs <= MEASURED_RUNS:
            self.learn(float(stop - start))
        self.runs += 1
        if self.runs > MEASURED_RUNS:
            self.tuned = self.prepared()

    def learn(self, nanoseconds: float) -> None:
        """Record the time of a run, for the next partitioning."""
        assert self.table is not None
        spent = nanoseconds * len(self.table.segments[0].lanes)
        if self.runs > 1:
            spent = min(spent, self.call.nanoseconds)
        self.call = self.call._replace(nanoseconds=spent)
        if self.runs == MEASURED_RUNS:
            self.table = None


def argument_word(value: float, dtype: DType) -> int:
    """Encode a scalar argument as the 8-byte word that a kernel reads."""
    if dtype.is_float:
        bits = struct.pack("<d" if dtype.bits == 64 else "<f" if dtype.bits == 32 else "<e", value)
        return int.from_bytes(bits, "little")
    wrapped = int(value) & ((1 << 64) - 1)
    return wrapped - (1 << 64) if wrapped >> 63 else wrapped
