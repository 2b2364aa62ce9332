"""Check every program and kernel, and count the work without doing it. All elements are 0."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import NamedTuple

import numpy as np

from ...errors import RuntimeFault
from ...ir.dtype import DType
from ...ir.program import Copy, Foreign, Launch, Program
from ...ir.program_checker import check_program
from ...ir.size import known
from ...ir.tile import Kernel
from ...ir.tile_checker import check
from ...runtime.buffer import DeviceBuffer
from ...runtime.device import Device
from ...runtime.executable import CompiledKernel, Executable, Runner


class Counts(NamedTuple):
    """Work that a device would have done."""

    programs: int = 0
    kernels: int = 0
    """Launches; a kernel that is launched twice counts twice."""
    instances: int = 0
    copies: int = 0
    bytes: int = 0
    """Bytes of the buffers that kernels and copies take, once for each step."""

    def __add__(self, other: tuple[int, ...]) -> Counts:  # type: ignore[override]
        return Counts(*(x + y for x, y in zip(self, other, strict=True)))


class NullDevice(Device):
    """A device that checks and counts. `counts` grow with every run; set them to `Counts()` to reset."""

    runs = False

    def __init__(self, name: str = "null") -> None:
        super().__init__(name)
        self.counts = Counts()

    def allocate(self, bytes: int) -> DeviceBuffer:
        return DeviceBuffer(self, bytes)

    def from_host(self, array: np.ndarray) -> DeviceBuffer:
        return DeviceBuffer(self, array.nbytes)

    def to_host(self, buffer: DeviceBuffer, dtype: DType, shape: Sequence[int]) -> np.ndarray:
        return np.zeros(shape, dtype.numpy)

    def overwrite(self, target: DeviceBuffer, source: DeviceBuffer) -> None:
        pass

    def compile(self, kernel: Kernel) -> CompiledKernel:
        check(kernel)

        def compiled(arguments: Sequence[DeviceBuffer | int], grid: tuple[int, ...]) -> None:
            if len(arguments) != len(kernel.parameters):
                raise RuntimeFault(f"{kernel.name} takes {len(kernel.parameters)} arguments, not {len(arguments)}")
            moved = sum(a.bytes for a in arguments if isinstance(a, DeviceBuffer))
            self.counts += Counts(kernels=1, instances=int(np.prod(grid, dtype=np.int64)), bytes=moved)

        return compiled

    def load(self, program: Program, constant_inputs: Set[str] = frozenset()) -> Executable:
        check_program(program)
        return NullExecutable(self, program)


class NullExecutable(Executable):
    """A program that has passed the checks."""

    def __init__(self, device: NullDevice, program: Program) -> None:
        super().__init__(program)
        self.device = device

    def bound(self, sizes: Mapping[str, int] = {}) -> Runner:
        program, known_sizes = self.program, dict(sizes)
        once = counted(program, known_sizes)

        def runner(inputs: Sequence[DeviceBuffer]) -> tuple[DeviceBuffer, ...]:
            self.device.counts += once
            given = dict(zip(program.inputs, inputs, strict=True))
            made: dict[str, DeviceBuffer] = {}
            for name in program.outputs:
                b = program.buffer(name)
                old = given.get(b.alias or name)
                made.setdefault(name, old or self.device.allocate(known(b.type.bytes, known_sizes)))
            return tuple([made[name] for name in program.outputs])

        return runner


def counted(program: Program, sizes: Mapping[str, int] = {}) -> Counts:
    """Count the work of one run of a program."""
    total = Counts(programs=1)
    bytes = {b.name: known(b.type.bytes, sizes) for b in program.buffers}
    for step in program.steps:
        match step:
            case Launch(_, arguments, grid):
                moved = sum(bytes[name] for name in {a for a in arguments if isinstance(a, str)})
                instances = int(np.prod([tiles.count(sizes) for tiles in grid], dtype=np.int64))
                total += Counts(kernels=1, instances=instances, bytes=moved)
            case Foreign():
                moved = sum(bytes[name] for name in {*step.inputs, *step.outputs})
                total += Counts(kernels=1, instances=1, bytes=moved)
            case Copy(source, target):
                total += Counts(copies=1, bytes=bytes[source] + bytes[target])
    return total
