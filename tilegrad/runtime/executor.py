"""Runs programs step by step, on any device that can compile a kernel.

The reference device and small devices use it; the CPU and CUDA have runners of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ..ir.program import Allocate, Copy, Foreign, Free, Launch, Program, Record, Wait
from ..ir.size import known
from . import events
from .buffer import Buffer
from .executable import CompiledKernel, Executable, Runner
from .work import settled

if TYPE_CHECKING:
    from .device import Device


class StepExecutable(Executable):
    """A program whose steps are walked, one after the other.

    Buffers come from the device when a step first writes them: offsets in the arena are not used, so that a
    plan that lets two live buffers overlap gives another result here than where the plan is followed.
    """

    def __init__(self, device: Device, program: Program) -> None:
        super().__init__(program)
        self.device = device
        launches = [step for step in program.steps if isinstance(step, Launch)]
        self.kernels: dict[object, CompiledKernel] = {}
        for step in launches:
            if step.kernel not in self.kernels:
                with events.timed("compile", step.kernel.name, device.name):
                    self.kernels[step.kernel] = device.compile(step.kernel)

    def bound(self, sizes: Mapping[str, int] = {}) -> Runner:
        settled = dict(sizes)

        def runner(inputs: Sequence[Buffer]) -> tuple[Buffer, ...]:
            return self._walk(inputs, settled)

        return runner

    def _walk(self, inputs: Sequence[Buffer], sizes: Mapping[str, int]) -> tuple[Buffer, ...]:
        program = self.program
        declared = {b.name: b for b in program.buffers}
        memory = dict(zip(program.inputs, inputs, strict=True))

        def place(name: str) -> Buffer:
            """The memory of a buffer, made now if this is the first that is heard of it."""
            if name not in memory:
                owner = name
                while owner not in memory and (above := declared[owner].alias):
                    owner = above
                if owner not in memory:
                    memory[owner] = self.device.allocate(known(declared[owner].type.bytes, sizes))
                memory[name] = memory[owner]
            return memory[name]

        for step in program.steps:
            match step:
                case Allocate(buffer):
                    place(buffer)
                case Free(buffer):
                    memory.pop(buffer, None)
                case Copy(source, target):
                    start = events.now()
                    self.device.overwrite(place(target), place(source))
                    if events.listeners:
                        events.emit("copy", target, self.device.name, start, events.now(), place(target).bytes)
                case Launch():
                    self._launch(
                        step, [place(a) if isinstance(a, str) else known(a, sizes) for a in step.arguments], sizes
                    )
                case Foreign():
                    self._call(step, [place(name) for name in (*step.inputs, *step.outputs)], sizes)
                case Record() | Wait():
                    pass  # steps run in order
        return tuple([place(name) for name in program.outputs])

    def _call(self, step: Foreign, buffers: Sequence[Buffer], sizes: Mapping[str, int]) -> None:
        """Foreign work, on memory that the CPU reaches."""
        declared = {b.name: b.type for b in self.program.buffers}
        types = [settled(declared[name], sizes) for name in (*step.inputs, *step.outputs)]
        count = len(step.inputs)
        prepared = step.work.prepared(types[:count], types[count:], self.device.name)
        start = events.now()
        prepared.run([self.device.address(b) for b in buffers])
        if events.listeners:
            events.emit("launch", prepared.name, self.device.name, start, events.now())

    def _launch(self, step: Launch, arguments: Sequence[Buffer | int], sizes: Mapping[str, int]) -> None:
        grid = tuple([tiles.count(sizes) for tiles in step.grid])
        start = events.now()
        self.kernels[step.kernel](arguments, grid)
        if events.listeners:
            self.device.synchronize()
            events.emit("launch", step.kernel.name, self.device.name, start, events.now())
