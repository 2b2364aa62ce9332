"""Define executables: compiled programs that are ready to run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from ..errors import RuntimeFault
from ..ir.size import known
from .buffer import DeviceBuffer

if TYPE_CHECKING:
    from ..ir.program import Program

CompiledKernel: TypeAlias = "Callable[[Sequence[DeviceBuffer | int], tuple[int, ...]], None]"
"""Runs all instances of a grid: called with the kernel's arguments in order, and the grid's extents."""

Runner: TypeAlias = "Callable[[Sequence[DeviceBuffer]], tuple[DeviceBuffer, ...]]"
"""Computes outputs from inputs for fixed sizes, without checks."""


class Executable(ABC):
    """A compiled program on its device."""

    hoisted: HoistedProgram | None = None
    """Parts of the program to be hoisted: their results are further inputs, recomputed only when their own inputs
    change.
    """

    origin: Any = None
    """A weak reference to the compilation (`compiler.Compiled`) that it belongs to, for profiles."""

    def __init__(self, program: Program) -> None:
        self.program = program

    @abstractmethod
    def bound(self, sizes: Mapping[str, int] = {}) -> Runner:
        """Specialise to sizes: return the fastest function that runs the program; it does not check its inputs.

        Outputs are new buffers, except those with an `alias`: these are the buffer of that input, updated in place.
        """

    def run(self, inputs: Sequence[DeviceBuffer], sizes: Mapping[str, int] = {}) -> tuple[DeviceBuffer, ...]:
        """Check the inputs, run the program, and return its outputs."""
        self.check(inputs, sizes)
        return self.bound(sizes)(inputs)

    def check(self, inputs: Sequence[DeviceBuffer], sizes: Mapping[str, int]) -> None:
        """Raise an error unless the inputs match the program's."""
        program = self.program
        if len(inputs) != len(program.inputs):
            raise RuntimeFault(f"{program.name} takes {len(program.inputs)} inputs, not {len(inputs)}")
        missing = [name for name in program.sizes if name not in sizes]
        if missing:
            raise RuntimeFault(f"{program.name} wants to know the size {', '.join(missing)}")
        for name, given in zip(program.inputs, inputs, strict=True):
            wanted = known(program.buffer(name).type.bytes, sizes)
            if given.bytes < wanted:
                type = program.buffer(name).type
                raise RuntimeFault(f"{program.name}: input {name} is {type}, {wanted} bytes, but has {given.bytes}")


class HoistedProgram(NamedTuple):
    """A part of a program whose inputs are constant between calls, so that it is hoisted out of them."""

    executable: Executable
    inputs: tuple[int, ...]
    """Indices of the program's inputs that it reads. Its results are appended to the inputs of the remaining program.
    """

    @property
    def bytes(self) -> int:
        """Size of its results, in bytes."""
        program = self.executable.program
        return sum([known(program.buffer(name).type.bytes, {}) for name in program.outputs])
