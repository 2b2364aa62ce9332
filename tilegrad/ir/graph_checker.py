"""Check a graph: types follow from the ops, there are no cycles, and every value read is an input or computed."""

from __future__ import annotations

from ..errors import CompileError, TilegradError
from .graph import Graph, Input, Value
from .size import Size


def check_graph(graph: Graph) -> Graph:
    """Return the graph itself; raise CompileError, naming the value, if a pass has broken it.

    >>> from .dtype import float32
    >>> from .graph import TensorType
    >>> x = Input(TensorType(float32, (3,)), "x")
    >>> check_graph(Graph((), (x,)))
    Traceback (most recent call last):
    tilegrad.errors.CompileError: x: f32[3] is read, but is no input of the graph
    """
    if len(set(graph.inputs)) < len(graph.inputs):
        raise CompileError("an input is given twice")
    _check_order(graph)
    given = set(graph.inputs)
    for value in graph.values():
        if value not in given:
            _check_value(value)
    return graph


def _check_order(graph: Graph) -> None:
    """Detect cycles by depth-first search (`topological` would not report them)."""
    given = set(graph.inputs)
    done: set[Value] = set()
    path: set[Value] = set()
    stack: list[tuple[Value, bool]] = [(v, False) for v in graph.outputs]
    while stack:
        value, finished = stack.pop()
        if finished:
            path.discard(value)
            done.add(value)
        elif value in path:
            raise CompileError(f"{value}: {value.type} is computed from itself")
        elif value not in done and value not in given:
            path.add(value)
            stack.append((value, True))
            stack.extend((x, False) for x in value.inputs)


def _check_value(value: Value) -> None:
    if isinstance(value, Input) and value.buffer is None:
        raise CompileError(f"{value}: {value.type} is read, but is no input of the graph")
    where = f", made at {value.location}" if value.location else ""
    try:
        inferred = value.infer()
    except TilegradError as error:
        raise CompileError(f"{value}{where} refuses its inputs: {error}") from error
    if inferred != value.type:
        raise CompileError(f"{value}{where} says that it is {value.type}, but its inputs make it {inferred}")
    for extent in value.shape:
        if not isinstance(extent, Size) and (type(extent) is not int or extent < 0):
            raise CompileError(f"{value}{where} has an extent {extent!r}")
