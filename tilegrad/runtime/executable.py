"""Programs that are ready to run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from ..errors import RuntimeFault
from ..ir.size import known
from .buffer import Buffer

if TYPE_CHECKING:
    from ..ir.program import Program

CompiledKernel: TypeAlias = "Callable[[Sequence[Buffer | int], tuple[int, ...]], None]"
"""Runs all instances of a grid: called with the kernel's arguments in order, and the extents of the grid."""

Runner: TypeAlias = "Callable[[Sequence[Buffer]], tuple[Buffer, ...]]"
"""A program whose sizes are settled: outputs from inputs, nothing checked."""


class Executable(ABC):
    """A program that is ready to run on its device."""

    steady: Steady | None = None
    """What it wants to be given besides its inputs: made of some of them, as long as these stay as they are."""

    origin: Any = None
    """A weak reference to the compilation (`compiler.Compiled`) that it belongs to, for profiles."""

    def __init__(self, program: Program) -> None:
        self.program = program

    @abstractmethod
    def bound(self, sizes: Mapping[str, int] = {}) -> Runner:
        """The program with its sizes settled, the fastest way to call it: the inputs are not checked again.

        Outputs are new buffers, but those with an `alias` are the buffer of that input, written in place.
        """

    def run(self, inputs: Sequence[Buffer], sizes: Mapping[str, int] = {}) -> tuple[Buffer, ...]:
        """Checks the inputs, runs the program, and returns its outputs."""
        self.check(inputs, sizes)
        return self.bound(sizes)(inputs)

    def check(self, inputs: Sequence[Buffer], sizes: Mapping[str, int]) -> None:
        """Raises unless these are the inputs that the program wants."""
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


class Steady(NamedTuple):
    """A part of a program that need not run in every call."""

    executable: Executable
    inputs: tuple[int, ...]
    """Which inputs of the whole program it is given. What it makes are inputs of the rest, behind all others."""

    @property
    def bytes(self) -> int:
        """The memory of what it makes."""
        program = self.executable.program
        return sum([known(program.buffer(name).type.bytes, {}) for name in program.outputs])
