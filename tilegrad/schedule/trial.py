"""Run a single kernel on random memory, to measure choices against one another."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from itertools import cycle
from typing import Any

import numpy as np

from ..ir.graph import Value
from ..ir.program import Launch, Program, ProgramBuffer
from ..ir.size import Size, known
from ..runtime.buffer import DeviceBuffer as Memory
from ..runtime.choice import Choice
from ..runtime.device import Device
from .assemble import launch_of
from .compare import difference
from .group import Group
from .lower import lower
from .options import names_of

SPREAD_BYTES = 64 << 20
"""Bytes over which copies of the operands of a small kernel are spread, so that no cache holds all of them."""
MAX_COPIES = 8
"""Most copies of the operands of a kernel."""
DRAWN_ELEMENTS = (1 << 20) + 7
"""Random elements that are drawn for a tensor; a larger one repeats them, at a length that aligns with no row."""
WARM_UP_RUNS = 5
"""Warm-up runs: they touch fresh memory, and a CPU repartitions its work by their times."""
CLOCK_SECONDS = 1e-7
"""Resolution of the clock, in seconds: a launch is never taken to be shorter."""
MIN_SECONDS = 1e-3
"""Shortest measurement, in seconds."""


class Trial:
    """The kernel of a group in several choices, all on the same memory."""

    def __init__(
        self, group: Group, overwritten: Mapping[Value, Value], sizes: Mapping[str, int], place: Device
    ) -> None:
        self.group = group
        self.sizes = sizes
        self.place = place
        names = names_of(group)
        self.names = names | {new: names[old] for new, old in overwritten.items() if new in names and old in names}
        self.buffers = {self.names[v]: ProgramBuffer(self.names[v], v.type, "input") for v in names}
        self.arrays = self._random()
        self.stored = tuple(dict.fromkeys(self.names[v] for v in group.stored))
        self.copies = [self._memory() for _ in range(self._count())]
        self.rounds = self._rounds()
        """Copies of the operands that the launches of each run use."""
        self.inputs = cycle([self.given(copies) for copies in self.rounds])
        """Number of the next run, over all contenders, so that none finds in a cache what another has just read."""

    def _random(self) -> dict[str, Any]:
        """Draw elements of every tensor; integers may be positions, and are small enough to be inside of any axis."""
        rng = np.random.default_rng(0)
        shapes = {name: tuple([known(d, self.sizes) for d in b.type.shape]) for name, b in self.buffers.items()}
        below = max(1, min((extent for shape in shapes.values() for extent in shape), default=1))
        arrays = {}
        for name, b in self.buffers.items():
            dtype, shape = b.type.dtype, shapes[name]
            count = min(DRAWN_ELEMENTS, int(np.prod(shape)))
            if dtype.is_float:
                drawn: Any = rng.standard_normal(count, np.float32)
            else:
                drawn = rng.integers(0, min(below, int(dtype.max) + 1), count)
            arrays[name] = np.resize(drawn.astype(dtype.numpy), shape)
        return arrays

    def _count(self) -> int:
        bytes = sum(int(array.nbytes) for array in self.arrays.values())
        return max(1, min(MAX_COPIES, SPREAD_BYTES // max(1, bytes)))

    def _rounds(self) -> list[list[int]]:
        """Return the copies for each run: one launch on each copy, or several launches that wait for each other."""
        together, copies = self.place.target.launches_per_sample, len(self.copies)
        if together == 1:
            return [[copy] for copy in range(copies)]
        return [[entry % copies for entry in range(together)]]

    def _memory(self) -> dict[str, Memory]:
        return {name: self.place.from_host(array) for name, array in self.arrays.items()}

    def contender(self, choice: Choice | None) -> Contender:
        """Compile the kernel for a choice: a program that launches it once for each of `rounds`."""
        launch = launch_of(lower(self.group, self.names, self.place.target, choice), self.names)
        buffers: dict[str, ProgramBuffer] = {}
        steps = []
        for copy in self.rounds[0]:
            new = {name: name if name in self.stored else f"{name}_{copy}" for name in self.buffers}
            buffers |= {new[name]: b.replaced(name=new[name]) for name, b in self.buffers.items()}
            arguments = tuple([new[a] if isinstance(a, str) else a for a in launch.arguments])
            steps.append(launch.replaced(arguments=arguments))
        sizes = {n for b in self.buffers.values() for d in b.type.shape if isinstance(d, Size) for n in d.names()}
        names = tuple(buffers)
        program = Program(
            launch.kernel.name, tuple(sorted(sizes)), tuple(buffers.values()), names, self.stored, tuple(steps)
        )
        return Contender(self, choice, launch, program)

    def given(self, copies: Sequence[int], stored: Mapping[str, Memory] | None = None) -> list[Memory]:
        """Return the memory for a run over some of the copies; all its launches write to the same."""
        own = self.copies[copies[0]] if stored is None else stored
        found = {}
        for copy in copies:
            for name in self.buffers:
                found[name if name in self.stored else f"{name}_{copy}"] = (
                    own[name] if name in self.stored else self.copies[copy][name]
                )
        return list(found.values())

    def results(self, contender: Contender) -> dict[str, Any]:
        """Return the results of one run of a contender."""
        made = {name: self.place.from_host(self.arrays[name]) for name in self.stored}
        contender.runner(self.given(self.rounds[0], made))
        self.place.synchronize()
        return {n: self.place.to_host(m, self.buffers[n].type.dtype, self.arrays[n].shape) for n, m in made.items()}

    def first_difference(self, expected: Mapping[str, Any], contender: Contender) -> str:
        """Describe where the results of a contender are wrong; empty if they are right."""
        got = self.results(contender)
        found = (difference(array, got[name], self.buffers[name]) for name, array in expected.items())
        return next((text for text in found if text), "")


class Contender:
    """A kernel that is ready to run."""

    def __init__(self, trial: Trial, choice: Choice | None, launch: Launch, program: Program) -> None:
        self.choice = choice
        self.launch = launch
        self.place = trial.place
        self.runner = trial.place.load(program).bound({name: trial.sizes[name] for name in program.sizes})
        self.launches = len(trial.rounds[0])
        self.inputs = trial.inputs
        self.times: list[float] = []

    def run(self) -> None:
        """Launch it several times."""
        self.runner(next(self.inputs))


def measured(contender: Contender, clock: Callable[[], float] = time.perf_counter) -> float:
    """Measure the seconds of a launch, as the mean of enough launches for the clock."""
    if not contender.times:
        for _ in range(WARM_UP_RUNS):
            contender.run()
    once = _seconds(contender, 1, clock)
    inputs = int(MIN_SECONDS / max(once * contender.launches, CLOCK_SECONDS))
    return _seconds(contender, inputs, clock) if inputs > 1 else once


def _seconds(contender: Contender, inputs: int, clock: Callable[[], float]) -> float:
    contender.place.synchronize()
    start = clock()
    for _ in range(inputs):
        contender.run()
    contender.place.synchronize()
    return (clock() - start) / (inputs * contender.launches)
