"""Write the nodes of an ONNX graph, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..ir.graph import Value
from ..ir.size import Dim
from .messages import ATTRIBUTE_FIELDS, AttributeProto, NodeProto, TensorProto
from .problems import Problems
from .tensors import NUMBERS

FIELDS = {field: number for number, field in ATTRIBUTE_FIELDS.items()}
Writing = Callable[[Any, "GraphWriter"], str]
"""Writes the nodes for a value of one class; returns the name of the result."""


class CannotWrite(Exception):
    """A value for which there are no operators."""


class GraphWriter:
    """Collects the nodes and constants of a graph, and knows the names of values."""

    def __init__(self, rules: Mapping[type[Value], Writing], problems: Problems) -> None:
        self.rules = rules
        self.problems = problems
        self.nodes: list[NodeProto] = []
        self.constants: dict[str, TensorProto] = {}
        self.names: dict[Value, str] = {}
        self.deferred: dict[Value, Callable[[], str]] = {}
        """Values that nodes are written for when somebody asks: a peephole often makes them needless."""
        self.other_forms: dict[Value, dict[tuple[Dim, ...], str]] = {}
        """Names of values with the same elements in other shapes."""
        self.sizes: dict[Dim, tuple[str, int]] = {}
        """Where sizes that vary are found: an input and its axis."""
        self._made: dict[bytes, str] = {}

    def write(self, value: Value) -> None:
        """Write a value, the inputs of which have been written."""
        rule = self.rules.get(type(value))
        try:
            if rule is None:
                raise CannotWrite("there is no ONNX operator for it")
            name = rule(value, self)
        except CannotWrite as reason:
            self.problems.add(f"{type(value).__name__} {value}", str(reason))
            name = "?"
        if name:
            self.names[value] = name

    def name(self, value: Value) -> str:
        """Return the name of a value."""
        if value not in self.names and value in self.deferred:
            self.names[value] = self.deferred[value]()
        return self.names.get(value, "?")

    def node(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        """Write a node with one output; return the output's name."""
        name = f"{op_type}_{len(self.nodes)}"
        made = [_attribute(key, value) for key, value in attributes.items() if value is not None]
        self.nodes.append(NodeProto([*inputs], [name], name, op_type, made))
        return name

    def constant(self, value: Any, dtype: Any = np.int64) -> str:
        """Return the name of a constant."""
        array = np.asarray(value, dtype)
        key = array.tobytes() + str((array.dtype, array.shape)).encode()
        if key not in self._made:
            name = self._made[key] = f"constant_{len(self._made)}"
            self.constants[name] = tensor_of(array, name)
        return self._made[key]

    def shape(self, sizes: Sequence[Dim], spare: bool = False) -> str:
        """Return the name of a vector of sizes; with `spare` one that varies is left to Reshape."""
        varying = [size for size in sizes if not isinstance(size, int)]
        if len(varying) <= spare:
            return self.constant([size if isinstance(size, int) else -1 for size in sizes])
        parts = [self.constant([size]) if isinstance(size, int) else self.size(size) for size in sizes]
        return self.node("Concat", *parts, axis=0)

    def size(self, size: Dim) -> str:
        """Return the name of a vector with a size that varies."""
        if size not in self.sizes:
            raise CannotWrite(f"the size {size} is not one of an input")
        name, axis = self.sizes[size]
        return self.node("Gather", self.node("Shape", name), self.constant([axis]), axis=0)

    def reshaped(self, value: Value, sizes: Sequence[Dim]) -> str:
        """Return the name of a value's elements in another shape."""
        wanted = tuple(sizes)
        if value.shape == wanted:
            return self.name(value)
        known = self.other_forms.setdefault(value, {})
        if wanted not in known:
            known[wanted] = self.node("Reshape", self.name(value), self.shape(wanted, spare=True), allowzero=1)
        return known[wanted]


def _attribute(name: str, value: Any) -> AttributeProto:
    match value:
        case int():
            field = "i"
        case float():
            field = "f"
        case str():
            field, value = "s", value.encode()
        case _:
            field, value = "ints", [*value]
    made = AttributeProto(name, type=FIELDS[field])
    setattr(made, field, value)
    return made


def tensor_of(array: np.ndarray, name: str) -> TensorProto:
    """Return an array as a tensor of a file."""
    kinds = {dtype.numpy: number for dtype, number in NUMBERS.items() if dtype is not None}
    dense = np.ascontiguousarray(array)
    return TensorProto([*array.shape], kinds[array.dtype], name=name, raw_data=dense.tobytes())


def needed(nodes: list[NodeProto], outputs: Sequence[str]) -> list[NodeProto]:
    """Leave out nodes the outputs of which nobody reads."""
    wanted, kept = set(outputs), []
    for node in reversed(nodes):
        if wanted & set(node.output):
            wanted |= set(node.input)
            kept.append(node)
    return kept[::-1]
