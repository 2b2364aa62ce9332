"""The whole compiler on one page: every stage is one line of `compile`.

    graph -> (passes of transform/) -> schedule -> program -> executable

Each stage is kept with the time it took, prints, and is said to be unchanged when it is. What a process has compiled,
the next one finds on the disk: `runtime/programs.py`.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import TypeVar

from .config import VERSION, settings
from .errors import DeviceError
from .ir.graph import Graph
from .ir.node import Node
from .ir.program import Program
from .runtime import events, programs
from .runtime.buffer import Buffer
from .runtime.device import Device, device
from .runtime.executable import Executable
from .runtime.lock import Entry, Lock, lock_of
from .runtime.once import lock as new_lock
from .runtime.target_model import TargetModel

Artifact = TypeVar("Artifact")


class Stage(Node):
    """What one stage made, and how long that took."""

    name: str
    artifact: object
    changed: bool
    seconds: float

    def __str__(self) -> str:
        head = f"--- {self.name} ({self.seconds * 1e3:.1f} ms) ---"
        return f"{head}\n{self.artifact}" if self.changed else f"{head}\n(unchanged)"


class Stages:
    """What the compiler made, in order. Print it, or one stage of it: `stages["fuse"]`."""

    def __init__(self) -> None:
        self.made: list[Stage] = []

    def keep(self, name: str, make: Callable[[], Artifact], previous: object = None) -> Artifact:
        start = time.perf_counter()
        artifact = make()
        self.made.append(Stage(name, artifact, artifact is not previous, time.perf_counter() - start))
        return artifact

    def __getitem__(self, name: str) -> Stage:
        return next(stage for stage in self.made if stage.name == name)

    @property
    def program(self) -> Program:
        """What the last stage made."""
        program = self.made[-1].artifact
        assert isinstance(program, Program)
        return program

    def __str__(self) -> str:
        return "\n\n".join(map(str, self.made))


class Compiled:
    """A graph that is ready to run."""

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
        """The inputs (single numbers) that are on another device: `brought` copies them for each call."""
        self.lock = lock
        """The choices for kernels that were settled when it was compiled."""
        self.again = again or (lambda: self)
        """Compiles it anew: with the choices that are settled then."""
        self._make_stages = make_stages
        executable.origin = weakref.ref(self)

    @cached_property
    def stages(self) -> Stages:
        """What each stage made; if the program came from the disk, they are gone through now."""
        return self._make_stages()

    def brought(self, inputs: Sequence[Buffer]) -> list[Buffer]:
        """The memory of the inputs, with those from elsewhere copied to the device of the program."""
        place, found = device(self.device), list(inputs)
        for n in self.elsewhere:
            if found[n].device is not place:
                found[n] = place.number_from(found[n])
        return found


def compile(
    graph: Graph,
    updates: Mapping[int, int] = {},
    name: str = "program",
    on: Device | None = None,
    fit: int = 0,
    steady: tuple[int, ...] = (),
) -> Compiled:
    """Compiles a graph, or finds its program on the disk. `updates` says which outputs (by number) are new values of
    which inputs: those are written in place. The device is the one that the outputs are on. If `fit` is not 0, the
    program takes at most so many bytes. `steady` inputs are mostly what they were the last time (`Executable.steady`).
    """
    with _one_at_a_time, events.timed("compile", name, "cpu"):
        return _compiled(graph, updates, name, on or device(_device_of(graph)), fit, steady)


_one_at_a_time = new_lock()


def _compiled(
    graph: Graph, updates: Mapping[int, int], name: str, place: Device, fit: int, steady: tuple[int, ...]
) -> Compiled:
    elsewhere = inputs_elsewhere(graph, place.name)
    lock = lock_for(place)
    kept = None if settings().use else programs.name_of(graph, updates, name, place.target, lock.digest, fit, steady)
    program = None if kept is None else programs.read(kept)
    stages = None
    if program is None:
        stages = compiled_in_stages(graph, updates, name, place.target, lock, fit, steady)
        program = stages.program
        if kept is not None:
            programs.write(kept, program)
    executable = place.load_for(program, {program.inputs[n] for n in steady}) if steady else place.load(program)
    made = lambda: stages or compiled_in_stages(graph, updates, name, place.target, lock, fit, steady)  # noqa: E731
    again = lambda: compile(graph, updates, name, place, fit, steady)  # noqa: E731
    return Compiled(program, executable, made, place.name, elsewhere, lock, again)


def lock_for(place: Device) -> Lock:
    """The choices that are settled for the kernels of a device."""
    known = (place.name, settings().lock)
    if known not in _locks:
        _locks[known] = lock_of(VERSION, lambda: place.machine)
    return _locks[known]


def settle(place: Device, found: Mapping[str, Entry]) -> None:
    """What is compiled from now on has these choices, too."""
    lock = lock_for(place)
    _locks[place.name, settings().lock] = lock._replace(entries={**lock.entries, **found})


_locks: dict[tuple[str, str], Lock] = {}


def compiled_in_stages(
    graph: Graph,
    updates: Mapping[int, int],
    name: str,
    target: TargetModel,
    lock: Lock,
    fit: int = 0,
    steady: tuple[int, ...] = (),
) -> Stages:
    """The road from a graph to its program."""
    from .schedule.assemble import assemble
    from .schedule.fuse import fuse
    from .schedule.order import order
    from .transform.expand import expand, has_declared
    from .transform.hoist_constants import apart
    from .transform.pipeline import PASSES, fitted

    stages = Stages()
    graph = stages.keep("graph", lambda: graph)
    if has_declared(graph):
        graph = stages.keep("expand", partial(expand, graph), graph)
    for transform in PASSES:
        graph = stages.keep(transform.__name__, partial(fitted(transform, target), graph), graph)
    if steady:
        graph = stages.keep("apart", partial(apart, graph, {graph.inputs[n] for n in steady}), graph)
    if fit:
        graph = stages.keep("rematerialise", partial(_fitted, graph, updates, target, fit), graph)
    found = stages.keep("fuse", lambda: fuse(graph, target))
    schedule = stages.keep("order", lambda: order(found, updates), found)
    program = stages.keep("program", lambda: assemble(schedule, updates, name, lock))
    if settings().use:
        from .schedule.replace import replace

        program = stages.keep("replace", lambda: replace(program), program)
    return stages


def _fitted(graph: Graph, updates: Mapping[int, int], target: TargetModel, fit: int) -> Graph:
    """The graph such that its program takes at most so many bytes."""
    from .schedule.planned import planned
    from .transform.rematerialise import rematerialise

    return rematerialise(graph, lambda trial: planned(trial, updates, target), fit)


def inputs_elsewhere(graph: Graph, place: str) -> tuple[int, ...]:
    """The inputs that are on another device than the program. Only single numbers may be."""
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
