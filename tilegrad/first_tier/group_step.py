"""Make the step that computes a group: by ready kernels of the device, or by a program of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from ..compiler import compile
from ..ir.dtype import DType
from ..ir.graph import TensorType, Value
from ..ir.position import row_major
from ..ir.scalar import Expr, Index, Position, Read, cast, const, reduce
from ..ops.base import Elementwise
from ..ops.broadcasting import Fill, Reduction, Reshape, accumulator
from ..ops.movement import Cat
from ..runtime.cache_pressure import shrinkers
from ..runtime.device import Device
from ..runtime.executable import Runner
from .node_groups import Key, NodeGroup, RecordedStructure, graph_of, is_view
from .reference_step import reference_runner
from .strided_sources import IDENTITIES, StridedSource, view_of

MAX_STEPS = 4096
"""Steps kept for later structures."""


MAX_BYTES = 1 << 62
"""Bytes of a result that words of 64 bits can describe; the compiler tells users of larger ones."""
PROGRAM = "a program of its own"


class ReadyKernels(Protocol):
    """Kernels of a device that take sizes, strides and numbers as data: nothing is compiled for a group.

    Runners take the buffers of the sources in order, and return one new buffer.
    """

    def elements(
        self, type: TensorType, element: Expr, indices: Sequence[Index], sources: Mapping[Any, StridedSource]
    ) -> Runner | None:
        """Return a runner for the element of a tensor at some indices, or None if it is not interpreted."""

    def pointwise(
        self,
        kind: object,
        type: TensorType,
        element: Callable[[Sequence[Index]], Expr],
        sources: Sequence[StridedSource],
    ) -> Runner | None:
        """Return a runner for a pointwise expression of strided sources, or None if there is no template for it."""

    def reduction(
        self,
        kind: object,
        type: TensorType,
        axes: Sequence[int],
        element: Callable[[Sequence[Index], Sequence[Index]], Expr],
        sources: Sequence[StridedSource],
    ) -> Runner | None:
        """Return a runner for a reduction of a pointwise expression along some axes of its sources, or None if there is
        no template for it. `element` takes the indices of the result and those of what is reduced.
        """

    def copies(self, type: TensorType, parts: Sequence[tuple[StridedSource, int]]) -> Runner | None:
        """Return a runner that copies strided sources to slices of a result, each to a first element; None if another
        road is faster.
        """

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
    bytes: Any = value.type.bytes
    if kernels is None or value.user_defined or len(group.roots) > 1 or bytes > MAX_BYTES:
        return None
    number_of = {number: n for n, number in enumerate(group.sources)}
    if value.opaque:
        run = reference_runner(recorded, group.roots[0], number_of, place)
        return None if run is None else GroupStep(_label(recorded, group), "numpy", run)
    if value.contracts:
        x, y = [recorded.sources[n] for n in recorded.inputs[group.roots[0]]]
        if x is None or y is None:
            return None
        run = kernels.product(value, _renumbered(x, number_of), _renumbered(y, number_of))
        return None if run is None else GroupStep(_label(recorded, group), "generic product", run)
    type, parts = _copied_parts(recorded, group.roots[0])
    run = kernels.copies(type, [(_renumbered(s, number_of), at) for s, at in parts]) if parts else None
    if run is not None:
        return GroupStep(_label(recorded, group), "copied", run)
    run = _on_template(recorded, group, kernels, number_of)
    if run is not None:
        return GroupStep(_label(recorded, group), "interpreted", run)
    run = reference_runner(recorded, group.roots[0], number_of, place)
    if run is not None:
        return GroupStep(_label(recorded, group), "numpy", run)
    indices = [Index(f"i{n}", extent) for n, extent in enumerate(value.shape)]
    sources: dict[StridedSource, StridedSource] = {}
    element = _ElementExpression(recorded, group, sources, number_of).at(group.roots[0], tuple(indices))
    run = kernels.elements(value.type, element, indices, sources)
    return None if run is None else GroupStep(_label(recorded, group), "interpreted", run)


def _copied_parts(recorded: RecordedStructure, root: int) -> tuple[TensorType, list[tuple[StridedSource, int]]]:
    """List the strided sources that a view or a concatenation copies, each with the place of its first element, and the
    type of the result as these see it; empty if a part is computed.
    """
    value, inputs = recorded.values[root], recorded.inputs[root]
    sources = [recorded.sources[x] for x in inputs]
    if is_view(value):
        moved = None if sources[0] is None else _elements_of(value, sources[0])
        if moved is None or moved.item_bytes != value.dtype.bytes:
            return value.type, []
        return TensorType(value.dtype, moved.shape, value.device), [(moved, 0)]
    if not isinstance(value, Cat):
        return value.type, []
    found, place = [], 0
    step: Any = row_major(value.shape)[value.axis]
    for source in sources:
        if source is None:
            return value.type, []
        found.append((source, place))
        place += source.shape[value.axis] * step
    return value.type, found


def _elements_of(value: Value, x: StridedSource) -> StridedSource | None:
    """Return the elements of a view in their order: a reshape has those of its input, whatever their strides."""
    moved = view_of(value, x)
    return x if moved is None and isinstance(value, Reshape) else moved


class _PointwiseExpression:
    """The expression of a group of pointwise values, apart from its sizes: equal `kind`, equal expression."""

    def __init__(self, recorded: RecordedStructure, members: Sequence[int], result: int) -> None:
        self.recorded = recorded
        moved = self._moved(result) if result in members else None
        shape: Any = recorded.values[result].shape
        self.shape: tuple[int, ...] = shape if moved is None else moved.shape
        self.reads: dict[StridedSource, int] = {}
        self.types: list[DType] = []
        """Of each read."""
        self.ops: list[tuple[Value, list[int]]] = []
        """Values with their operands: numbers of values, or -1 - n for read number n."""
        self._place: dict[int, int] = {}
        for number in members:
            operands = self._operands(number)
            self._place[number] = len(self.ops)
            self.ops.append((recorded.values[number], operands))
        self.result = self._operand(result)

    def _moved(self, number: int) -> StridedSource | None:
        """Return the elements of a member that is a view of memory."""
        value = self.recorded.values[number]
        source = self.recorded.sources[self.recorded.inputs[number][0]] if is_view(value) else None
        return None if source is None else _elements_of(value, source)

    def _operands(self, number: int) -> list[int]:
        moved = self._moved(number)
        if moved is not None:
            return [self._read(moved, self.recorded.values[number])]
        return [self._operand(x) for x in self.recorded.inputs[number]]

    def _operand(self, number: int) -> int:
        known = self._place.get(number)
        if known is not None:
            return known
        source: Any = self.recorded.sources[number]
        return self._read(source.broadcast(self.shape), self.recorded.values[number])

    def _read(self, source: StridedSource, value: Value) -> int:
        known = self.reads.get(source)
        if known is None:
            known = self.reads[source] = len(self.types)
            self.types.append(value.dtype)
        return -1 - known

    @property
    def kind(self) -> Key:
        ops = [
            (type(v), v.attributes[0] if isinstance(v, Fill) else () if is_view(v) else v.attributes, v.dtype, *n)
            for v, n in self.ops
        ]
        return (tuple(self.types), self.result, *ops)

    def at(self, indices: Sequence[Index]) -> Expr:
        """Return the element at some indices; the source of a read is its number."""
        made: list[Expr] = []
        position = tuple(indices)

        def operand(n: int) -> Expr:
            return made[n] if n >= 0 else Read(-1 - n, position, self.types[-1 - n])

        for value, operands in self.ops:
            given = [operand(n) for n in operands]
            if isinstance(value, Elementwise):
                made.append(value.scalar(*given))
            else:
                made.append(const(value.value, value.dtype) if isinstance(value, Fill) else given[0])
        return operand(self.result)


def _computed_members(recorded: RecordedStructure, group: NodeGroup) -> list[int]:
    """List the members that are no views of what is in memory."""
    return [n for n in group.members if recorded.sources[n] is None or n in group.roots]


def _is_pointwise(recorded: RecordedStructure, number: int, root: int) -> bool:
    """Whether the elements of a member come from those at the same positions, or from strided ones."""
    value = recorded.values[number]
    if is_view(value):
        source = recorded.sources[recorded.inputs[number][0]]
        if source is None:
            return isinstance(value, IDENTITIES)
        return (view_of(value, source) if number != root else _elements_of(value, source)) is not None
    return isinstance(value, Fill) or (isinstance(value, Elementwise) and type(value).element is Elementwise.element)


def _on_template(
    recorded: RecordedStructure, group: NodeGroup, kernels: ReadyKernels, number_of: Mapping[int, int]
) -> Runner | None:
    """Run a group of pointwise values, or a reduction of them, by a template that is bound to sizes and strides."""
    root, members = group.roots[0], _computed_members(recorded, group)
    value = recorded.values[root]
    reduces = isinstance(value, Reduction) and type(value).element is Reduction.element
    if reduces:
        members.remove(root)
    if not all(_is_pointwise(recorded, n, root) for n in members):
        return None
    result = recorded.inputs[root][0] if reduces else root
    expression = _PointwiseExpression(recorded, members, result)
    sources = [_renumbered(source, number_of) for source in expression.reads]
    if not isinstance(value, Reduction):
        return kernels.pointwise(expression.kind, TensorType(value.dtype, expression.shape), expression.at, sources)
    kind = (type(value), value.dtype, recorded.values[result].dtype, expression.kind)
    element = partial(_reduced, value, expression)
    return kernels.reduction(kind, value.type, value.axes, element, sources)


def _reduced(
    value: Reduction, expression: _PointwiseExpression, outer: Sequence[Index], inner: Sequence[Index]
) -> Expr:
    """Return the element of a reduction of a pointwise expression."""
    made = cast(expression.at((*outer, *inner)), accumulator(value.x.dtype))
    for index in reversed(inner):
        made = reduce(value.fn, index, made)
    return cast(made, value.result_dtype)


def _renumbered(source: StridedSource, number_of: Mapping[int, int]) -> StridedSource:
    """Replace the number of a source by its place among those of the group."""
    return source._replace(source=number_of[source.source])


def _label(recorded: RecordedStructure, group: NodeGroup) -> str:
    """Name the ops of a group that are not views."""
    named = _computed_members(recorded, group)
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
