"""Programs on a GPU: loaded kernels, bound sizes, and patched arguments, launched one by one and later as a graph.

A run patches its buffers' addresses into the arguments and submits the work; it waits for nothing. From its third run
on, a program of several kernels is one CUDA graph (`graphs.py`), in which independent kernels run concurrently.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Mapping, Sequence, Set
from threading import RLock
from typing import TYPE_CHECKING

from ...config import settings
from ...ir.program import Launch, Program
from ...runtime import events
from ...runtime.buffer import DeviceBuffer
from ...runtime.executable import Executable, HoistedProgram, Runner
from ..constant_inputs import parted
from .driver import LibraryCall
from .graphs import ProgramGraph
from .launch_times import timer_of
from .memory import CudaBuffer, class_bytes
from .plan import plan_program, written_buffers
from .queues import DIRECT_RUNS, MARK_INTERVAL, Queue, QueuedWork
from .watching import WATCHED, check_accesses, launches_of, profile_steps

if TYPE_CHECKING:
    from .device import CudaDevice

MAX_BINDINGS = 256
"""Most sets of sizes cached for one program."""


class CudaExecutable(Executable):
    """A compiled program."""

    def __init__(self, device: CudaDevice, program: Program, constant_inputs: Set[str] = frozenset()) -> None:
        if constant_inputs:
            first, rest = parted(program, constant_inputs, written_buffers)
            if first is not None:
                places = tuple([program.inputs.index(name) for name in first.inputs])
                self.hoisted = HoistedProgram(CudaExecutable(device, first), places)
            program = rest
        super().__init__(program)
        self.device = device
        device.start()
        self.functions = device.functions.of([step.kernel for step in program.steps if isinstance(step, Launch)])
        self._bindings: OrderedDict[tuple[int, ...], Runner] = OrderedDict()

    def bound(self, sizes: Mapping[str, int] = {}) -> Runner:
        key = tuple([sizes[name] for name in self.program.sizes])
        runner = self._bindings.get(key)
        if runner is None:
            runner = self._bindings[key] = CudaBinding(self, dict(zip(self.program.sizes, key, strict=True)))
            while len(self._bindings) > MAX_BINDINGS:
                self._bindings.popitem(last=False)
        else:
            self._bindings.move_to_end(key)
        return runner


class CudaBinding:
    """A program with bound sizes: call it with inputs to run it."""

    def __init__(self, executable: CudaExecutable, sizes: Mapping[str, int]) -> None:
        self.device = device = executable.device
        self.name = executable.program.name
        self.executable = weakref.ref(executable)
        self.plan = plan_program(
            executable.program, executable.functions, device.properties, sizes, device.choices.substitute
        )
        self.work = QueuedWork(self.name, tuple([(step.call.name, step.origin) for step in self.plan.steps]))
        self.made = [(bytes, class_bytes(bytes)) for bytes in self.plan.made]
        self.written = [*self.plan.updated, *range(self.plan.inputs, self.plan.inputs + len(self.made))]
        """Indices of the inputs and outputs that a run writes, among all of them."""
        self.is_single = len(self.plan.steps) == 1
        by_library = any(isinstance(step.call, LibraryCall) for step in self.plan.steps)
        self.is_graph = (not self.is_single or by_library) and not self.plan.calls_external
        self.runs = 0
        self.launches: events.Launches | None = None
        """What profiles are told of a run; None until one listens."""
        self.graph: ProgramGraph | None = None
        self.data: list[int] = [0] * len(self.plan.patches)
        """Addresses that the arguments are patched with."""
        self.lock = RLock()
        """Held while arguments are patched and submitted; acquired before a queue's lock."""

    @property
    def can_keep(self) -> bool:
        """Whether the last results are separate memory that the next run may overwrite."""
        inputs, made, results = self.plan.inputs, len(self.made), list(self.plan.results)
        return results[:made] == list(range(inputs, inputs + made)) and all(n < inputs for n in results[made:])

    def __call__(self, inputs: Sequence[DeviceBuffer], kept: Sequence[DeviceBuffer] = ()) -> tuple[DeviceBuffer, ...]:
        """Run the program; `kept` is memory for the last results that nothing else uses."""
        device, plan = self.device, self.plan
        queue = device.queue
        given: Sequence[CudaBuffer] = inputs  # type: ignore[assignment]
        for x in given:
            if x.queue is not queue:
                queue.reads(x)
        for n in plan.updated:
            x = given[n]
            if x.readers or x.queue is not queue:
                queue.writes(x)
        reused: Sequence[CudaBuffer] = kept  # type: ignore[assignment]
        for x in reused:
            if x.readers or x.queue is not queue:
                queue.writes(x)
        take, count = device.memory.take, len(self.made) - len(kept)
        wanted = zip(self.made[:count], self.data[plan.inputs :], strict=False)
        made = [*[take(queue, bytes, size, old) for (bytes, size), old in wanted], *reused]
        everything = [*given, *made]
        if plan.steps:
            if plan.arena:
                queue.reserve_arena(plan.arena)
            number = self._submit(queue, everything)
            for n in self.written:
                everything[n].written = number
        return tuple([everything[n] for n in plan.results])

    def _submit(self, queue: Queue, buffers: Sequence[CudaBuffer]) -> int:
        """Submit the work; return its number on the queue."""
        with self.lock, queue.lock:
            data = [b.address for b in buffers]
            data.append(queue.arena.address if queue.arena is not None else 0)
            self.runs += 1
            if settings().cuda in WATCHED or (self.runs <= DIRECT_RUNS and not events.listeners):
                self.patch(data)
                self._submit_separately(queue)
                return queue.submitted
            number = queue.submitted + 1
            queue.recent.append((number, self.work, number % MARK_INTERVAL == 0))
            if events.listeners:
                self._submit_profiled(queue, data, buffers[: self.plan.inputs])
            elif self.is_graph:
                graph = self._current_graph(data, buffers[: self.plan.inputs])
                if graph is None:
                    self._submit_directly(queue)
                else:
                    self.device.driver.launch_graph(graph.executable, queue.handle)
            else:
                self.patch(data)
                self._submit_directly(queue)
            if number % MARK_INTERVAL == 0:
                self.device.driver.mark(queue.handle, queue.progress, number)
            queue.submitted = number
        return number

    def _submit_separately(self, queue: Queue) -> None:
        """Submit every kernel as a separate item, so that a failing one can be named."""
        driver, watched = self.device.driver, settings().cuda
        for step, kernel in zip(self.plan.steps, self.work.kernels, strict=True):
            number = queue.submitted + 1
            queue.recent.append((number, QueuedWork(self.name, (kernel,)), True))
            if watched == "checked":
                check_accesses(self.device, queue, step)
            driver.start(step.call, queue.handle)
            if watched in WATCHED:
                driver.await_stream(queue.handle)
            driver.mark(queue.handle, queue.progress, number)
            queue.submitted = number

    def patch(self, data: list[int]) -> None:
        """Patch addresses that have changed."""
        if data == self.data:
            return
        steps = self.plan.steps
        for n, address in enumerate(data):
            if address != self.data[n]:
                for step, slot, offset in self.plan.patches[n]:
                    call = steps[step].call
                    call.slots[slot] = address + offset
                    for map, place in call.maps:
                        if map.parameter == slot:
                            self.device.driver.encode(place, map, address + offset)
                self.data[n] = address

    def _submit_directly(self, queue: Queue) -> None:
        launch, stream = self.device.driver.start, queue.handle
        for step in self.plan.steps:
            launch(step.call, stream)

    def _submit_profiled(self, queue: Queue, data: list[int], inputs: Sequence[CudaBuffer]) -> None:
        """Submit the work as it runs without a profile where the GPU's records time it, else step by step."""
        device, steps = self.device, self.plan.steps
        if self.launches is None:
            self.launches = launches_of(device, self.name, steps, self.executable)
        timer = timer_of(device, queue)
        if timer is not None and self.is_graph and self.runs > DIRECT_RUNS and timer.can_time(device, steps):
            timer.run(device, queue, self.launches, steps, self._current_graph(data, inputs))
            return
        self.patch(data)
        if timer is not None:
            timer.run(device, queue, self.launches, steps)
        else:
            profile_steps(device, queue, self.launches, steps)

    def _current_graph(self, data: list[int], inputs: Sequence[CudaBuffer]) -> ProgramGraph | None:
        """Return the graph with the current addresses; None, with patched calls, if the steps are to be submitted."""
        graph = self.graph
        if graph is not None and graph.data == data:
            return graph
        distinct = not self.plan.updated or len({x.address for x in inputs}) == len(inputs)
        may_conflict = graph is not None and graph.distinct and not distinct  # concurrent nodes, because inputs alias
        is_cheaper_directly = self.is_single and data != self.data  # a library call, than updating a graph
        self.patch(data)
        if may_conflict or is_cheaper_directly:
            return None
        if graph is None:
            graph = self.graph = ProgramGraph(self.device, self.plan, distinct, data)
        elif graph.data != data:
            graph.renew(data)
        return graph
