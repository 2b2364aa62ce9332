"""The whole compiler on one page: every stage is one line of `compile`.

    graph -> (passes of transform/) -> schedule -> program -> executable

Each stage is kept with the time it took, prints, and is said to be unchanged when it is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from .config import settings
from .ir.graph import Graph
from .ir.node import Node
from .ir.program import Program
from .runtime.device import Device, Executable, device
from .schedule.assemble import assemble
from .schedule.fuse import fuse
from .schedule.order import order
from .transform.pipeline import PASSES

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

    def __str__(self) -> str:
        return "\n\n".join(map(str, self.made))


class Compiled(Node):
    """A graph that is ready to run."""

    program: Program
    executable: Executable
    stages: Stages


def compile(graph: Graph, updates: Mapping[int, int] = {}, name: str = "program", on: Device | None = None) -> Compiled:
    """Compiles a graph. `updates` says which outputs (by number) are new values of which inputs: those are
    written in place. The device is the one that the outputs are on."""
    stages = Stages()
    graph = stages.keep("graph", lambda: graph)
    for transform in PASSES:
        graph = stages.keep(transform.__name__, partial(transform, graph), graph)
    found = stages.keep("fuse", lambda: fuse(graph))
    schedule = stages.keep("order", lambda: order(found, updates), found)
    program = stages.keep("program", lambda: assemble(schedule, updates, name))
    if settings().use:
        from .schedule.replace import replace

        program = stages.keep("replace", lambda: replace(program), program)
    target = on or device(_device_of(graph))
    executable = stages.keep("load", lambda: target.load(program))
    return Compiled(program, executable, stages)


def _device_of(graph: Graph) -> str:
    places: Sequence[str] = [v.device for v in graph.outputs]
    return places[0] if places else "cpu"
