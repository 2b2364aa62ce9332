"""Run programs step by step, on any device that can compile a kernel.

Used by the reference device and by simple devices; the CPU and CUDA have runners of their own.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ..ir.program import Allocate, Copy, Foreign, Free, Launch, Program, Record, Wait
from ..ir.size import known
from . import events
from .buffer import DeviceBuffer
from .executable import CompiledKernel, Executable, Runner
from .external_work import with_known_sizes

if TYPE_CHECKING:
    from .device import Device


class StepExecutable(Executable):
    """Interprets the steps of a program in order.

    Buffers are allocated when a step first writes them; arena offsets are ignored, so that a memory plan that lets two
    live buffers overlap gives a different result here than on the CPU.
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
        with_known_sizes = dict(sizes)

        def runner(inputs: Sequence[DeviceBuffer]) -> tuple[DeviceBuffer, ...]:
            return self._walk(inputs, with_known_sizes)

        return runner

    def _walk(self, inputs: Sequence[DeviceBuffer], sizes: Mapping[str, int]) -> tuple[DeviceBuffer, ...]:
        program = self.program
        declared = {b.name: b for b in program.buffers}
        memory = dict(zip(program.inputs, inputs, strict=True))

        def place(name: str) -> DeviceBuffer:
            """Return the memory of a buffer, allocated on first use."""
            if name not in memory:
                owner = name
                while owner not in memory and (above := declared[owner].alias):
                    owner = above
                if owner not in memory:
                    memory[owner] = self.device.allocate(known(declared[owner].type.bytes, sizes))
                memory[name] = memory[owner]
            return memory[name]

        ran: list[tuple[events.Launched, int]] = []
        start = events.now()
        for step in program.steps:
            match step:
                case Allocate(buffer):
                    place(buffer)
                case Free(buffer):
                    memory.pop(buffer, None)
                case Copy(source, target):
                    self.device.overwrite(place(target), place(source))
                    self._note(ran, "copy", target, place(target).bytes)
                case Launch():
                    arguments = [place(a) if isinstance(a, str) else known(a, sizes) for a in step.arguments]
                    self.kernels[step.kernel](arguments, tuple([tiles.count(sizes) for tiles in step.grid]))
                    bytes = sum([a.bytes for a in dict.fromkeys(arguments) if isinstance(a, DeviceBuffer)])
                    self._note(ran, "launch", step.kernel.name, bytes)
                case Foreign():
                    name = self._call(step, [place(name) for name in (*step.inputs, *step.outputs)], sizes)
                    self._note(ran, "launch", name, 0)
                case Record() | Wait():
                    pass  # steps run in order
        if events.listeners:
            launches = events.Launches(program.name, self.device.name, [x for x, _ in ran], weakref.ref(self), sizes)
            events.emit_run(events.Run(launches, start, events.now(), [start, *(stop for _, stop in ran)]))
        return tuple([place(name) for name in program.outputs])

    def _note(self, ran: list[tuple[events.Launched, int]], kind: events.Kind, name: str, bytes: int) -> None:
        """Note a step that has ended, if somebody listens."""
        if events.listeners:
            self.device.synchronize()
            ran.append((events.Launched(kind, name, len(ran) + 1, bytes), events.now()))

    def _call(self, step: Foreign, buffers: Sequence[DeviceBuffer], sizes: Mapping[str, int]) -> str:
        """Run foreign work on memory that the CPU can access."""
        declared = {b.name: b.type for b in self.program.buffers}
        types = [with_known_sizes(declared[name], sizes) for name in (*step.inputs, *step.outputs)]
        count = len(step.inputs)
        prepared = step.work.prepared(types[:count], types[count:], self.device.name)
        prepared.run([self.device.address(b) for b in buffers])
        return str(prepared.name)
