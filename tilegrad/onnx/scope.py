"""Interpret graphs: each node calls the function of its operator on the values that earlier nodes made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..errors import TilegradError
from .messages import GraphProto, NodeProto
from .problems import OnnxError, Problems
from .rules import Function, RuleArguments, arguments_of, convert, graphs_in, mismatch, settings
from .tensors import ELEMENT_TYPES, array_of
from .values import Narrow

Environment = dict[str, Any]
"""Values by their names; a graph within a node sees those around it, too."""


class RunState(NamedTuple):
    """What nodes know of the module that runs them."""

    device: Any
    training: bool


class NodeCall(NamedTuple):
    """A node with the function of its operator."""

    node: NodeProto
    function: Function
    takes: RuleArguments
    attributes: dict[str, Any]
    graphs: dict[str, Scope]
    version: int
    dropped: tuple[str, ...]
    """Values that no later node reads."""

    def run(self, values: Environment, around: RunState) -> None:
        """Compute the outputs of the node."""
        node, takes = self.node, self.takes
        given = [values[name] if name else None for name in node.input]
        inputs = [convert(value, takes.conversion(n), around.device) for n, value in enumerate(given)]
        keywords = self.attributes | {name: graph.bound(values, around) for name, graph in self.graphs.items()}
        for name in takes.given:
            keywords[name] = getattr(around, name, None) if name == "training" else getattr(self, name)
        made = self.function(*inputs, **keywords)
        results = made if isinstance(made, tuple) and not isinstance(made, Narrow) else (made,)
        for name, value in zip(node.output, results, strict=False):
            if name:
                values[name] = value
        for name in self.dropped:
            values.pop(name, None)

    @property
    def outputs(self) -> int:
        """The number of outputs that somebody may read."""
        return len(self.node.output)


class Scope:
    """A graph that is ready to run."""

    def __init__(self, graph: GraphProto) -> None:
        self.graph = graph
        self.constants: Environment = {}
        self.steps: list[NodeCall] = []
        self.inputs = [value.name for value in graph.input]
        self.outputs = [value.name for value in graph.output]

    def run(self, values: Environment, around: RunState) -> list[Any]:
        """Run all nodes; return the outputs."""
        for step in self.steps:
            try:
                step.run(values, around)
            except TilegradError as problem:
                problem.add_note(f"in {step.node.title}")
                raise
        return [values[name] for name in self.outputs]

    def bound(self, outer: Environment, around: RunState) -> Callable[..., list[Any]]:
        """Return the graph as a function of its inputs; it sees the values around it."""

        def body(*inputs: Any) -> list[Any]:
            return self.run(outer | self.constants | dict(zip(self.inputs, inputs, strict=False)), around)

        return body


class Context(NamedTuple):
    """What compiling a graph needs to know."""

    rules: dict[tuple[str, str], Function]
    versions: dict[str, int]
    upgrade: Callable[[NodeProto, int], list[NodeProto]]
    folder: str | None
    problems: Problems


def compiled(graph: GraphProto, about: Context, known: frozenset[str] = frozenset()) -> Scope:
    """Bind each node of a graph to its function; what is wrong is added to the problems."""
    scope = Scope(graph)
    for tensor in graph.initializer:
        try:
            scope.constants[tensor.name] = constant(array_of(tensor, about.folder), tensor.data_type)
        except TilegradError as problem:
            about.problems.add(f"initializer {tensor.name!r}", str(problem))
            scope.constants[tensor.name] = None
    if graph.sparse_initializer:
        about.problems.add("the graph", "sparse initializers are not supported")
    names = {*known, *scope.inputs, *scope.constants}
    if len(set(scope.inputs)) != len(scope.inputs):
        about.problems.add("the graph", "two inputs have one name")
    made: set[str] = set()
    for given in graph.node:
        for node in about.upgrade(given, about.versions.get(given.domain, 1)):
            _check_names(node, names | made, made, about)
            step = _bound(node, about, frozenset(names | made))
            made |= {name for name in node.output if name}
            if step is not None:
                scope.steps.append(step)
    for name in scope.outputs:
        if name not in names | made:
            about.problems.add("the graph", f"nothing makes the output {name!r}")
    scope.steps = _dropping(scope.steps, {*scope.outputs}, made)
    return scope


def constant(array: np.ndarray, number: int) -> Any:
    """Return a constant; one of a type that only ONNX has knows its type."""
    array.flags.writeable = False
    kind = ELEMENT_TYPES[number]
    return array if kind.is_own else Narrow(array, kind.name)


def _check_names(node: NodeProto, names: set[str], made: set[str], about: Context) -> None:
    for name in node.input:
        if name and name not in names:
            about.problems.add(node.title, f"reads {name!r}, which no earlier node makes")
    for name in node.output:
        if name and name in made:
            about.problems.add(node.title, f"makes {name!r}, which an earlier node has made")


def _bound(node: NodeProto, about: Context, known: frozenset[str]) -> NodeCall | None:
    function = about.rules.get((node.domain, node.op_type))
    if function is None:
        about.problems.add(node.title, "the operator is not supported")
        return None
    for words in mismatch(node, function):
        about.problems.add(node.title, words)
    try:
        attributes = settings(node, about.folder)
    except OnnxError as problem:
        about.problems.add(node.title, str(problem))
        attributes = {}
    graphs = {name: compiled(graph, about, known) for name, graph in graphs_in(node)}
    plain = {name: value for name, value in attributes.items() if name not in graphs}
    version = about.versions.get(node.domain, 1)
    return NodeCall(node, function, arguments_of(function), plain, graphs, version, ())


def _dropping(steps: list[NodeCall], kept: set[str], made: set[str]) -> list[NodeCall]:
    """Say at each step which values are read for the last time, so that their memory is free."""
    seen: set[str] = set(kept)
    found: list[NodeCall] = []
    for step in reversed(steps):
        read = {name for name in reads(step) if name in made}
        found.append(step._replace(dropped=tuple(sorted(read - seen))))
        seen |= read
    return found[::-1]


def reads(step: NodeCall) -> Sequence[str]:
    """Return the names that a node reads, also those that graphs in it read from around it."""
    inner = [name for scope in step.graphs.values() for child in scope.steps for name in reads(child)]
    ends = [name for scope in step.graphs.values() for name in scope.outputs]
    return [name for name in (*step.node.input, *inner, *ends) if name]
