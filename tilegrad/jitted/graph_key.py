"""Key what a graph computes, so that graphs can be compared that differ only in which numbers are inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..ir.graph import Graph, TensorType, Value
from ..ops.arithmetic import Abs, Add, Div, FloorDivide, Mul, Neg, Remainder, Sub
from ..ops.broadcasting import Expand, Fill, Reshape
from ..ops.cast import Cast, Detach
from ..ops.declared import Declared, DeclaredMeaning
from ..ops.exponential import Power
from ..ops.external_call import ExternalCall
from ..runtime.buffer import DeviceBuffer
from ..runtime.device import device

FOLDED: dict[type[Value], Callable[..., Any]] = {
    Add: np.add, Sub: np.subtract, Mul: np.multiply, Div: np.true_divide, FloorDivide: np.floor_divide,
    Remainder: np.remainder, Power: np.power, Neg: np.negative, Abs: np.abs,
}  # fmt: skip


def graph_key(graph: Graph, numbers: Mapping[Value, float], constants: Sequence[DeviceBuffer]) -> tuple[Any, ...]:
    """Return a key of what a graph computes: equal for graphs that differ only in which numbers are inputs.

    `numbers` are inputs with the numbers that they represent; the last inputs hold constants.

    >>> from ..ir.dtype import float32, float64
    >>> from ..ir.graph import Input, TensorType
    >>> x, n = Input(TensorType(float32, (3,)), "x"), Input(TensorType(float64, ()), "n")
    >>> varied = Graph((x, n), (Mul(x, Cast(Mul(n, n), float32)),))
    >>> fixed = Graph((x,), (Mul(x, Fill(2.25, TensorType(float32, ()))),))
    >>> known = graph_key(fixed, {}, ())
    >>> graph_key(varied, {n: 1.5}, ()) == known, graph_key(varied, {n: 2.0}, ()) == known
    (True, False)
    """
    keys: dict[Value, Any] = {}
    given = [x for x in graph.inputs if x not in numbers]
    for n, x in enumerate(given):
        held = n - (len(given) - len(constants))
        keys[x] = n, x.type, "" if held < 0 else _elements(constants[held], x.type)
    known: dict[Value, Any] = {x: np.asarray(number, x.dtype.numpy) for x, number in numbers.items()}
    order: list[Any] = []
    with np.errstate(all="ignore"):
        for value in graph.values():
            if value in keys:
                continue
            number = known[value] if value in known else _folded(value, known)
            if number is not None:
                known[value] = number
                keys[value] = "number", number.tobytes(), value.type
                continue
            order.append((*_op_key(value, known), *[keys[x] for x in value.inputs if not _in_work(value, x, known)]))
            keys[value] = len(order)
    return (*order, *[keys[x] for x in graph.outputs])


def _op_key(value: Value, known: Mapping[Value, Any]) -> tuple[Any, ...]:
    """Key the op of a value.

    External work may have a number in code that is loaded separately: it is keyed by its name, and a user's operator by
    its reference and its device code, which may depend on the number.
    """
    if isinstance(value, Declared):
        meant: DeclaredMeaning = value.meaning
        numbers = {n: known[x].item() for n, x in enumerate(value.arguments) if x in known and not x.type.shape}
        graphs = meant.reference(), meant.code(value.device)
        computed = [graph_key(g, {g.inputs[n]: x for n, x in numbers.items()}, ()) for g in graphs]
        return Declared, meant.name, meant.results, value.place, *computed
    if isinstance(value, ExternalCall):
        return ExternalCall, value.work.name, value.results, value.starts, value.place
    return type(value), value.attributes


def _in_work(value: Value, x: Value, known: Mapping[Value, Any]) -> bool:
    """Whether an argument of external work is a number that may be compiled into it."""
    return isinstance(value, (Declared, ExternalCall)) and x in known


def _folded(value: Value, known: Mapping[Value, Any]) -> Any:
    """Fold a constant value to the one number of all its elements; None if it depends on inputs."""
    numpy: Any = value.dtype.numpy
    if isinstance(value, Fill):
        return np.asarray(value.value, numpy)
    if not value.inputs or not all(x in known for x in value.inputs):
        return None
    if isinstance(value, Cast):
        return known[value.x].astype(numpy)
    if isinstance(value, (Expand, Reshape, Detach)):
        return known[value.inputs[0]]
    fold = FOLDED.get(type(value))
    return None if fold is None else np.asarray(fold(*[known[x] for x in value.inputs]), numpy)


def _elements(buffer: DeviceBuffer, type: TensorType) -> Any:
    shape: Any = type.shape
    array = device(type.device).view(buffer, type.dtype, shape)
    return id(buffer) if array is None else hash(array.tobytes())
