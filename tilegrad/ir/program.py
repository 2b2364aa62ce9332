"""Define the program language: the order of kernels, their memory, devices and streams.

    program  ::= Program(name, sizes, buffers, inputs, outputs, steps, arena)
    buffer   ::= ProgramBuffer(name, type, role, offset, alias)
    step     ::= Allocate(buffer) | Launch(kernel, arguments, grid, stream) | Copy(source, target) | Free(buffer)
               | Foreign(work, inputs, outputs, stream) | Record(event, stream) | Wait(event, stream)
    argument ::= the name of a buffer | a size

`sizes` are the symbols of axes that vary from call to call; everything else is static. Before memory is planned a
program has `Allocate` and `Free` steps; afterwards temporaries have an offset in the arena, and outputs that are
updated in place name the input whose memory they reuse (`alias`).
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Literal, TypeAlias

from .graph import TensorType
from .node import Structure
from .size import Dim, known
from .tile import Kernel

Role = Literal["input", "output", "temporary", "constant"]

MAX_INSTANCES = (2**31 - 1, 65535, 65535)
"""Largest grid extent along each axis on the strictest device, in instances."""


class ProgramBuffer(Structure):
    """Memory for one tensor, row-major and dense."""

    name: str
    type: TensorType
    role: Role
    offset: Dim | None = None
    alias: str | None = None


class Tiles(Structure):
    """A grid extent: the number of tiles of a given extent that cover an axis."""

    extent: Dim
    tile: int

    def count(self, sizes: Mapping[str, int]) -> int:
        return -(-known(self.extent, sizes) // self.tile)

    def __str__(self) -> str:
        return str(self.extent) if self.tile == 1 else f"cdiv({self.extent}, {self.tile})"


Argument: TypeAlias = "str | Dim"


class Allocate(Structure):
    buffer: str


class Free(Structure):
    buffer: str


class Launch(Structure):
    kernel: Kernel
    arguments: tuple[Argument, ...]
    grid: tuple[Tiles, ...]
    stream: int = 0
    work: float = 0.0
    """Estimated operations per instance; decides how instances are partitioned among threads."""
    users: bool = False
    """Whether a user wrote the kernel, whose masks then only guard the borders."""


class Copy(Structure):
    source: str
    target: str
    stream: int = 0


class Foreign(Structure):
    """A call of external code (`runtime/external_work.py`). An output that is updated in place is in both lists."""

    work: Any
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    stream: int = 0


class Record(Structure):
    event: int
    stream: int


class Wait(Structure):
    event: int
    stream: int


Step: TypeAlias = "Allocate | Launch | Copy | Foreign | Free | Record | Wait"


def name_of(step: Launch | Foreign) -> str:
    """Return the name of a kernel or of its placeholder."""
    return step.kernel.name if isinstance(step, Launch) else str(step.work)


def uses(step: Step) -> tuple[str, ...]:
    """Return the buffers that a step reads and writes.

    >>> uses(Copy("x", "y")), uses(Free("x"))
    (('x', 'y'), ())
    """
    match step:
        case Launch(_, arguments):
            return tuple([a for a in arguments if isinstance(a, str)])
        case Copy(source, target):
            return source, target
        case Foreign(_, inputs, outputs):
            return (*inputs, *outputs)
    return ()


class Program(Structure):
    name: str
    sizes: tuple[str, ...]
    buffers: tuple[ProgramBuffer, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    steps: tuple[Step, ...]
    arena: Dim = 0
    """The size of the arena of temporaries, in bytes."""

    def buffer(self, name: str) -> ProgramBuffer:
        return next(b for b in self.buffers if b.name == name)

    def __str__(self) -> str:
        return import_module(f"{__package__}.program_printer").show_program(self)  # type: ignore[no-any-return]
