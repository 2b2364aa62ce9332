"""Compile a graph to an executable: every stage is one line of `run_stages`.

    graph -> (passes of transform/) -> schedule -> program -> executable

Each stage is kept with its time, prints, and is reported as unchanged when it is. Programs are cached on disk for later
processes: `runtime/programs.py`.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import cached_property, partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from .config import VERSION, settings
from .deferred import part
from .errors import DeviceError
from .ir.graph import Graph
from .ir.node import Node
from .ir.program import Program
from .runtime import events
from .runtime.buffer import DeviceBuffer
from .runtime.choice import Lock, LockEntry
from .runtime.device import Device, LaunchListener, device
from .runtime.executable import Executable
from .runtime.garbage_collection import collected_seldom
from .runtime.singletons import lock as new_lock
from .runtime.target_model import TargetModel

if TYPE_CHECKING:
    from .runtime.programs import ProgramKey

Artifact = TypeVar("Artifact")


class Stage(Node):
    """The artefact of one stage, and the time it took."""

    name: str
    artifact: object
    changed: bool
    seconds: float
    skipped: str = ""
    """Why a pass did not run."""

    @property
    def text(self) -> str:
        """The artifact, or why there is no new one."""
        return str(self.artifact) if self.changed else f"({self.skipped or 'unchanged'})"

    def __str__(self) -> str:
        return f"--- {self.name} ({self.seconds * 1e3:.1f} ms) ---\n{self.text}"


class Stages:
    """All stages in order. Print it, or one stage of it: `stages["fuse"]`."""

    def __init__(self) -> None:
        self.made: list[Stage] = []

    def keep(self, name: str, make: Callable[[], Artifact], previous: object = None, skipped: str = "") -> Artifact:
        start = time.perf_counter()
        artifact = make()
        self.made.append(Stage(name, artifact, artifact is not previous, time.perf_counter() - start, skipped))
        return artifact

    def __getitem__(self, name: str) -> Stage:
        return next(stage for stage in self.made if stage.name == name)

    @property
    def program(self) -> Program:
        """The artefact of the last stage."""
        program = self.made[-1].artifact
        assert isinstance(program, Program)
        return program

    def __str__(self) -> str:
        return "\n\n".join(map(str, self.made))


class Compiled:
    """A compiled graph."""

    def __init__(
        self,
        program: Program,
        executable: Executable,
        make_stages: Callable[[], Stages],
        device: str,
        elsewhere: tuple[int, ...] = (),
        lock: Lock = Lock(),
        again: Callable[[], Compiled] | None = None,
    ) -> None:
        self.device = device
        self.program = program
        self.executable = executable
        self.elsewhere = elsewhere
        """The inputs (single numbers) on another device: `brought` copies them for each call."""
        self.lock = lock
        """The kernel choices in `kernels.lock` when it was compiled."""
        self.again = again or (lambda: self)
        """Recompiles it, with the kernel choices of then."""
        self._make_stages = make_stages
        executable.origin = weakref.ref(self)

    @cached_property
    def stages(self) -> Stages:
        """The artefact of each stage; for a program from the disk cache the stages are run now."""
        return self._make_stages()

    def brought(self, inputs: Sequence[DeviceBuffer]) -> list[DeviceBuffer]:
        """Return the buffers of the inputs, with those from other devices copied to the program's device."""
        place, found = device(self.device), list(inputs)
        for n in self.elsewhere:
            if found[n].device is not place:
                found[n] = place.number_from(found[n])
        return found


class Job(NamedTuple):
    """A graph, with everything else that its program depends on."""

    graph: Graph
    target: TargetModel
    updates: Mapping[int, int] = {}
    """Outputs, by number, that update an input in place."""
    name: str = "program"
    lock: Lock = Lock()
    """Tuned kernel choices."""
    fit: int = 0
    """Bytes that the program may take; 0: any number."""
    constant_inputs: tuple[int, ...] = ()
    """Inputs that seldom change between calls (`Executable.hoisted`)."""

    @property
    def key(self) -> ProgramKey | None:
        """The key of the program in the disk cache, if it may be there."""
        if settings().use:
            return None
        name_of = part("runtime.programs", "name_of")
        if name_of is None:
            return None
        choices = (self.target, self.lock.digest, self.fit, self.constant_inputs)
        return name_of(self.graph, self.updates, self.name, *choices)  # type: ignore[no-any-return]


def compile(
    graph: Graph,
    updates: Mapping[int, int] = {},
    name: str = "program",
    on: Device | None = None,
    fit: int = 0,
    constant_inputs: tuple[int, ...] = (),
) -> Compiled:
    """Compile a graph for the device of its outputs, or find its program in the disk cache: see `Job`."""
    place = on or device(_device_of(graph))
    announced = part("runtime.announce", "announced") or nullcontext
    with _one_at_a_time, announced(f"compiling {name} for {place.name}"), collected_seldom():
        elsewhere = inputs_elsewhere(graph, place.name)
        job = Job(graph, place.target, updates, name, lock_for(place), fit, constant_inputs)
        key = job.key
        program = None if key is None else part("runtime.programs", "read")(key)
        stages = None
        with place.compiling() as listener:
            if program is None:
                with events.timed("compile", name, "cpu"):
                    stages = run_stages(job, None if constant_inputs or settings().use else listener)
                program = stages.program
                if key is not None:
                    part("runtime.programs", "write")(key, program)
            executable = place.load(program, frozenset([program.inputs[n] for n in constant_inputs]))
    again = partial(compile, graph, updates, name, place, fit, constant_inputs)
    return Compiled(program, executable, lambda: stages or run_stages(job), place.name, elsewhere, job.lock, again)


_one_at_a_time = new_lock()


def lock_for(place: Device) -> Lock:
    """Return the kernel choices of a device."""
    known = (place.name, settings().lock)
    if known not in _locks:
        lock_of = part("runtime.lock", "lock_of")
        _locks[known] = Lock() if lock_of is None else lock_of(VERSION, lambda: place.machine)
    return _locks[known]


def add_choices(place: Device, found: Mapping[str, LockEntry]) -> None:
    """Add kernel choices for all later compilations."""
    lock = lock_for(place)
    _locks[place.name, settings().lock] = lock._replace(entries={**lock.entries, **found})


_locks: dict[tuple[str, str], Lock] = {}


def run_stages(job: Job, listener: LaunchListener | None = None) -> Stages:
    """Run the stages of the compiler; `listener` learns of each launch as soon as it is made."""
    from .schedule.assemble import assemble
    from .schedule.fuse import fuse
    from .schedule.order import order
    from .transform.pipeline import PASSES

    stages, target = Stages(), job.target
    graph = stages.keep("graph", lambda: job.graph)
    if any(value.user_defined for value in graph.values()):
        from .transform.expand import expand

        graph = stages.keep("expand", partial(expand, graph), graph)
    for step in PASSES:
        skipped = "" if step.applies(target) else f"skipped on {_device_of(graph)}"
        graph = stages.keep(step.name, partial(step, graph, target), graph, skipped)
    if job.constant_inputs:
        from .transform.hoist_constants import hoist_constants

        constant = {graph.inputs[n] for n in job.constant_inputs}
        graph = stages.keep("hoist_constants", partial(hoist_constants, graph, constant), graph)
    if job.fit:
        graph = stages.keep("rematerialise", partial(_fitted, graph, job), graph)
    found = stages.keep("fuse", lambda: fuse(graph, target))
    schedule = stages.keep("order", lambda: order(found, job.updates), found)
    program = stages.keep("program", lambda: assemble(schedule, job.updates, job.name, job.lock, listener))
    if settings().use:
        from .schedule.replace import replace

        program = stages.keep("replace", lambda: replace(program), program)
    return stages


def _fitted(graph: Graph, job: Job) -> Graph:
    """Rematerialise values so that the graph's program fits a byte budget."""
    from .schedule.planned import planned
    from .transform.rematerialise import rematerialise

    return rematerialise(graph, lambda trial: planned(trial, job.updates, job.target), job.fit)


def inputs_elsewhere(graph: Graph, place: str) -> tuple[int, ...]:
    """List the inputs on another device than the program's. Only single numbers may be."""
    used = set(graph.values())
    for x in (*graph.inputs, *graph.outputs):
        if x.device != place and (x.shape or x in graph.outputs) and x in used:
            raise DeviceError(
                f"tensors on two devices would be in one program: {x.dtype.name} {list(x.shape)} on {x.device}, and "
                f"the result on {place}; move one, as in y.to({place!r})"
            )
    return tuple([n for n, x in enumerate(graph.inputs) if x.device != place and not x.shape])


def _device_of(graph: Graph) -> str:
    places: Sequence[str] = [v.device for v in graph.outputs]
    return places[0] if places else "cpu"
