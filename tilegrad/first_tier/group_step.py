"""Make the step that computes a group: by ready kernels of the device, or by a program of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from ..compiler import compile
from ..ir.graph import TensorType, Value
from ..ir.scalar import Expr, Index, Position, Read
from ..runtime.cache_pressure import shrinkers
from ..runtime.device import Device
from ..runtime.executable import Runner
from .node_groups import Key, NodeGroup, RecordedStructure, graph_of
from .strided_sources import IDENTITIES, StridedSource

MAX_STEPS = 4096
"""Steps kept for later structures."""


PROGRAM = "a program of its own"


class ReadyKernels(Protocol):
    """Kernels of a device that take sizes, strides and numbers as data: nothing is compiled for a group.

    Runners take the buffers of the sources in order, and return one new buffer.
    """

    def elements(
        self, type: TensorType, element: Expr, indices: Sequence[Index], sources: Mapping[Any, StridedSource]
    ) -> Runner | None:
        """Return a runner for the element of a tensor at some indices, or None if it is not interpreted."""

    def product(self, value: Value, x: StridedSource, y: StridedSource) -> Runner | None:
        """Return a runner for a sum of products, or None if no kernel has its form."""


class GroupStep:
    """A group that is ready to run: `run` returns new memory for each root."""

    def __init__(self, label: str, road: str, run: Runner) -> None:
        self.label = label
        self.road = road
        """The kernels that it runs on."""
        self.run = run
        self.is_program = road == PROGRAM
        """Whether a program runs it, which reports its launches itself."""

    def __str__(self) -> str:
        return f"{self.label} ({self.road})"


_steps: dict[Key, GroupStep] = {}


def step_of(recorded: RecordedStructure, group: NodeGroup, key: Key, place: Device) -> GroupStep:
    """Find or make the step of a group."""
    known = _steps.get(key)
    if known is None:
        if len(_steps) >= MAX_STEPS:
            _forget_half()
        known = _steps[key] = _ready_step(recorded, group, place) or _compiled_step(recorded, group)
    return known


def _forget_half() -> None:
    """Evict the older half of the steps."""
    for key in list(_steps)[: (len(_steps) + 1) // 2]:
        del _steps[key]


shrinkers.append(_forget_half)


def _ready_step(recorded: RecordedStructure, group: NodeGroup, place: Device) -> GroupStep | None:
    """Run a group on ready kernels of the device, if it has them."""
    kernels: ReadyKernels | None = place.ready_kernels
    value = recorded.values[group.roots[0]]
    if kernels is None or value.opaque or value.user_defined or len(group.roots) > 1:
        return None
    number_of = {number: n for n, number in enumerate(group.sources)}
    if value.contracts:
        x, y = [recorded.sources[n] for n in recorded.inputs[group.roots[0]]]
        if x is None or y is None:
            return None
        run = kernels.product(value, _renumbered(x, number_of), _renumbered(y, number_of))
        return None if run is None else GroupStep(_label(recorded, group), "generic product", run)
    indices = [Index(f"i{n}", extent) for n, extent in enumerate(value.shape)]
    sources: dict[StridedSource, StridedSource] = {}
    element = _ElementExpression(recorded, group, sources, number_of).at(group.roots[0], tuple(indices))
    run = kernels.elements(value.type, element, indices, sources)
    return None if run is None else GroupStep(_label(recorded, group), "interpreted", run)


def _renumbered(source: StridedSource, number_of: Mapping[int, int]) -> StridedSource:
    """Replace the number of a source by its place among those of the group."""
    return source._replace(source=number_of[source.source])


def _label(recorded: RecordedStructure, group: NodeGroup) -> str:
    """Name the ops of a group that are not views."""
    named = [n for n in group.members if recorded.sources[n] is None or n in group.roots]
    words = [recorded.values[n].op for n in (named[-1:] if len(group.roots) > 1 else named)]
    return " ".join(words) if len(words) <= 3 else f"{words[0]} .. {words[-1]}"


class _ElementExpression:
    """Composes the element expression of a group from the rules of its ops."""

    def __init__(
        self,
        recorded: RecordedStructure,
        group: NodeGroup,
        sources: dict[StridedSource, StridedSource],
        number_of: Mapping[int, int],
    ) -> None:
        self.recorded = recorded
        self.root = group.roots[0]
        self.sources = sources
        self.number_of = number_of
        self.known: dict[tuple[int, Position], Expr] = {}

    def at(self, number: int, position: Position) -> Expr:
        """Return the element of a value at a position."""
        known = self.known.get((number, position))
        if known is None:
            known = self.known[number, position] = self._composed(number, position)
        return known

    def _composed(self, number: int, position: Position) -> Expr:
        recorded = self.recorded
        value, source = recorded.values[number], recorded.sources[number]
        if source is not None and number != self.root:
            own = _renumbered(source, self.number_of)
            self.sources[own] = own
            return Read(own, position, value.dtype)
        inputs = recorded.inputs[number]
        if isinstance(value, IDENTITIES):
            return self.at(inputs[0], position)
        places = dict(zip(value.inputs, inputs, strict=True))
        return value.element(position, lambda x, at: self.at(places[x], at))


def _compiled_step(recorded: RecordedStructure, group: NodeGroup) -> GroupStep:
    """Compile a program for a group alone."""
    label = _label(recorded, group)
    compiled = compile(graph_of(recorded, group), name=recorded.values[group.roots[-1]].op)
    runner = compiled.executable.bound()

    def run(buffers: Sequence[Any]) -> Sequence[Any]:
        return runner(compiled.brought(buffers) if compiled.elsewhere else buffers)

    return GroupStep(label, PROGRAM, run)  # type: ignore[arg-type]
