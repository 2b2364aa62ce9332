"""Check a program: kernels get the arguments they declare, and memory is written before it is read.

Steps of one stream run in order; steps of different streams are ordered by events only. A step is ordered after another
only if every schedule that respects this runs it later; the predecessors of each step are kept as a bit set.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..errors import CompileError, KernelError
from .program import MAX_INSTANCES, Allocate, Copy, Foreign, Free, Launch, Program, ProgramBuffer, Record, Step, Wait
from .program_printer import show_step
from .size import Dim, Size
from .tile import Kernel, TileParameter
from .tile_access import Accesses, accesses
from .tile_checker import check as check_kernel


def check_program(program: Program) -> None:
    """Raise CompileError, naming the step, if the program is wrong."""
    _ProgramChecker(program).check()


class _ProgramChecker:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.buffers = {b.name: b for b in program.buffers}
        self.kernels: dict[Kernel, Accesses] = {}
        self.writers: dict[str, int] = {}
        """The steps that have written each memory, as a bit set."""
        self.readers: dict[str, int] = {}
        self.holder: dict[str, str] = {}
        """The buffer whose elements each memory holds now."""
        self.streams: dict[int, int] = {}
        self.events: dict[int, int] = {}
        self.freed: set[str] = set()
        self.allocated: set[str] = set()
        self.before: list[int] = []

    def error(self, reason: str, step: int | None = None) -> CompileError:
        where = "" if step is None else f", step {step} ({show_step(self.program.steps[step])})"
        return CompileError(f"program {self.program.name}{where}: {reason}")

    def check(self) -> None:
        self.declarations()
        for number, step in enumerate(self.program.steps):
            self.step(number, step)
        written = {self.memory(b.name) for b in self.program.buffers if b.name in self.writers or b.role == "input"}
        for name in self.program.outputs:
            if self.memory(name) not in written and self.buffers[name].type.count != 0:
                raise self.error(f"the output {name} is never written")
        self.overlaps()

    def declarations(self) -> None:
        program = self.program
        if len(self.buffers) < len(program.buffers):
            raise self.error("two buffers have one name")
        for name in (*program.inputs, *program.outputs):
            if name not in self.buffers:
                raise self.error(f"there is no buffer {name}")
        for b in program.buffers:
            unknown = {n for d in b.type.shape if isinstance(d, Size) for n in d.names()} - set(program.sizes)
            if unknown:
                raise self.error(f"the size {', '.join(sorted(unknown))} of buffer {b.name} is not declared")
            if b.role == "input" and b.name not in program.inputs:
                raise self.error(f"buffer {b.name} is an input that nobody gives")
            if b.alias is not None and self.aliased(b).type.bytes != b.type.bytes:
                raise self.error(f"{b.name} does not fit in the memory of {b.alias}")

    def aliased(self, b: ProgramBuffer) -> ProgramBuffer:
        target = self.buffers.get(b.alias or "")
        if target is None or target.alias is not None:
            raise self.error(f"{b.name} is in the memory of {b.alias}, which has none of its own")
        return target

    def memory(self, name: str) -> str:
        """Resolve aliases: return the buffer that owns the memory."""
        return self.buffers[name].alias or name

    def step(self, number: int, step: Step) -> None:
        stream = getattr(step, "stream", 0)
        self.before.append(self.streams.get(stream, 0))
        match step:
            case Allocate(buffer):
                self.known(number, buffer)
                if buffer in self.allocated:
                    raise self.error(f"{buffer} is allocated already", number)
                self.allocated.add(buffer)
            case Free(buffer):
                self.known(number, buffer)
                self.freed.add(buffer)
            case Launch():
                self.launch(number, step)
            case Copy(source, target):
                if self.known(number, source).type.bytes != self.known(number, target).type.bytes:
                    raise self.error("the two buffers differ in size", number)
                self.read(number, source)
                self.write(number, target)
            case Foreign(_, inputs, outputs):
                self.foreign(number, inputs, outputs)
            case Record(event):
                self.events[event] = self.before[number]
            case Wait(event):
                if event not in self.events:
                    raise self.error(f"event {event} has not been recorded", number)
                self.before[number] |= self.events[event]
        self.streams[stream] = self.before[number] | 1 << number

    def foreign(self, number: int, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        for name in (*inputs, *outputs):
            self.known(number, name)
        for name in inputs:
            self.read(number, name)
        for name in outputs:
            self.write(number, name)

    def launch(self, number: int, step: Launch) -> None:
        parameters = step.kernel.parameters
        if len(parameters) != len(step.arguments):
            raise self.error(f"the kernel takes {len(parameters)} arguments, and not {len(step.arguments)}", number)
        for p, argument in zip(parameters, step.arguments, strict=True):
            self.argument(number, p, argument)
        self.grid(number, step)
        found = self.accesses(number, step.kernel)
        names = {p.name: a for p, a in zip(parameters, step.arguments, strict=True) if isinstance(a, str)}
        for name, buffer in names.items():
            own = name in found.stored and self.buffers[buffer].role in ("temporary", "output")
            if name in found.loaded and not own:  # else it reads what it has written itself
                self.read(number, buffer)
        for name, buffer in names.items():
            if name in found.stored:
                self.write(number, buffer)

    def argument(self, number: int, p: TileParameter, argument: str | Dim) -> None:
        if isinstance(argument, str) != p.pointer:
            raise self.error(f"`{p.name}` takes a {'buffer' if p.pointer else 'number'}, not {argument}", number)
        if isinstance(argument, str) and self.known(number, argument).type.dtype is not p.dtype:
            dtype = self.buffers[argument].type.dtype
            raise self.error(f"`{p.name}` points to {p.dtype}, and {argument} is of {dtype}", number)
        if not isinstance(argument, str) and not p.dtype.is_integer:
            raise self.error(f"`{p.name}` is a number of {p.dtype}, and sizes are integers", number)

    def grid(self, number: int, step: Launch) -> None:
        if len(step.grid) > 3:
            raise self.error(f"a grid has at most 3 axes, and not {len(step.grid)}", number)
        for tiles, most in zip(step.grid, MAX_INSTANCES, strict=False):
            if tiles.tile < 1 or (not isinstance(tiles.extent, Size) and not 0 <= tiles.count({}) <= most):
                raise self.error(f"the grid has {tiles} instances along an axis, where 0 to {most} can be", number)

    def accesses(self, number: int, kernel: Kernel) -> Accesses:
        if kernel not in self.kernels:
            try:
                self.kernels[kernel] = accesses(kernel, check_kernel(kernel))
            except KernelError as error:
                raise self.error(str(error), number) from None
        return self.kernels[kernel]

    def known(self, number: int, name: str) -> ProgramBuffer:
        if name not in self.buffers:
            raise self.error(f"there is no buffer {name}", number)
        if name in self.freed:
            raise self.error(f"{name} has been freed", number)
        return self.buffers[name]

    def read(self, number: int, name: str) -> None:
        memory = self.memory(name)
        writers = self.writers.get(memory, 0)
        empty = 0 in self.buffers[memory].type.shape  # there is nothing to write
        if not writers and not empty and self.buffers[memory].role not in ("input", "constant"):
            raise self.error(f"reads {name}, which nobody has written", number)
        if self.holder.get(memory, name) != name:
            raise self.error(f"reads {name}, which {self.holder[memory]} has overwritten", number)
        self.ordered(number, writers, f"reads {name}", "writes")
        self.readers[memory] = self.readers.get(memory, 0) | 1 << number

    def write(self, number: int, name: str) -> None:
        memory = self.memory(name)
        b = self.buffers[memory]
        if b.role == "constant" or (b.role == "input" and name not in self.program.outputs):
            raise self.error(f"writes {name}, which is only read", number)
        others = (self.writers.get(memory, 0) | self.readers.get(memory, 0)) & ~(1 << number)
        self.ordered(number, others, f"writes {name}", "uses")
        self.holder[memory] = name
        self.writers[memory] = self.writers.get(memory, 0) | 1 << number

    def ordered(self, number: int, others: int, what: str, they: str) -> None:
        at_once = others & ~self.before[number]
        if at_once:
            other = next(_bits(at_once))
            raise self.error(f"{what}, while step {other} {they} it on another stream: wait for an event", number)

    def overlaps(self) -> None:
        """Allow two temporaries to share memory only if all steps of one come after all steps of the other."""
        placed: list[tuple[int, int, str, int]] = []
        for b in self.program.buffers:
            if b.offset is None or isinstance(b.offset, Size) or isinstance(b.type.bytes, Size):
                continue
            end = b.offset + b.type.bytes
            if not isinstance(self.program.arena, Size) and end > self.program.arena:
                raise self.error(f"{b.name} ends at byte {end} of an arena of {self.program.arena}")
            placed.append((b.offset, end, b.name, self.writers.get(b.name, 0) | self.readers.get(b.name, 0)))
        placed.sort()
        for n, (_, end, name, steps) in enumerate(placed):
            for start, _, other, others in placed[n + 1 :]:
                if start >= end:
                    break
                if not (self.after(steps, others) or self.after(others, steps)):
                    raise self.error(f"{name} and {other} have the same memory at the same time")

    def after(self, steps: int, others: int) -> bool:
        return all(not others & ~self.before[n] for n in _bits(steps))


def _bits(number: int) -> Iterator[int]:
    while number:
        low = number & -number
        yield low.bit_length() - 1
        number ^= low
