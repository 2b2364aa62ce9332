"""Bind the nodes of a graph to functions of tensors.

A rule is a function: its positional arguments are the inputs of the operator, the keyword-only ones its attributes.
Some keywords are no attributes: `outputs` is the number of outputs that the node names, `version` that of the
operators, `training` whether the module is in training mode.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from inspect import Parameter, signature
from typing import Any, NamedTuple

from .messages import AttributeProto, GraphProto, NodeProto, TensorProto, attribute_value
from .tensors import array_of
from .values import CONVERSIONS, as_tensor

Function = Callable[..., Any]
GIVEN = ("outputs", "version", "training")
"""Keywords that are no attributes."""
TENSORS = "Tensor"


class RuleArguments(NamedTuple):
    """The arguments of a rule."""

    inputs: tuple[str, ...]
    """How each input is converted: the names of annotations."""
    required: int
    more: str | None
    """How any number of further inputs is converted, if the operator takes them."""
    attributes: frozenset[str]
    wanted: frozenset[str]
    """Attributes without a default."""
    given: tuple[str, ...]

    def conversion(self, n: int) -> str:
        """Return how the n-th input is converted."""
        return self.inputs[n] if n < len(self.inputs) else self.more or TENSORS


def _kind(annotation: Any) -> str:
    words = str(annotation).replace("None", "").replace("|", " ").split()
    return words[0].rpartition(".")[2] if words and isinstance(annotation, str) else TENSORS


@cache
def arguments_of(function: Function) -> RuleArguments:
    """Read the signature of a rule."""
    parameters = list(signature(function).parameters.values())
    places = [p for p in parameters if p.kind in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)]
    more = [p for p in parameters if p.kind is Parameter.VAR_POSITIONAL]
    keywords = [p for p in parameters if p.kind is Parameter.KEYWORD_ONLY]
    return RuleArguments(
        tuple(_kind(p.annotation) for p in places),
        sum(p.default is Parameter.empty for p in places),
        _kind(more[0].annotation) if more else None,
        frozenset(p.name for p in keywords if p.name not in GIVEN),
        frozenset(p.name for p in keywords if p.default is Parameter.empty and p.name not in GIVEN),
        tuple(p.name for p in keywords if p.name in GIVEN),
    )


def convert(value: Any, kind: str, device: Any) -> Any:
    """Convert an input for an argument with the given annotation."""
    if value is None:
        return None
    return CONVERSIONS[kind](value) if kind in CONVERSIONS else as_tensor(value, device)


def settings(node: NodeProto, folder: str | None) -> dict[str, Any]:
    """Return the attributes of a node as Python values: texts, numbers, lists, arrays, graphs."""
    return {a.name: _plain(a, folder) for a in node.attribute}


def _plain(attribute: AttributeProto, folder: str | None) -> Any:
    value = attribute_value(attribute)
    if isinstance(value, (bytes, memoryview)):
        return bytes(value).decode("utf-8", "replace")
    if isinstance(value, TensorProto):
        return array_of(value, folder)
    if isinstance(value, list) and value and isinstance(value[0], (bytes, memoryview)):
        return [bytes(text).decode("utf-8", "replace") for text in value]
    return value


def mismatch(node: NodeProto, function: Function) -> list[str]:
    """List what a node has that its operator does not take, or lacks."""
    takes = arguments_of(function)
    found, count = [], len(node.input)
    while count and not node.input[count - 1]:
        count -= 1
    if count < takes.required or (count > len(takes.inputs) and takes.more is None):
        most = "" if takes.more else f" to {len(takes.inputs)}"
        found.append(f"{count} inputs, where {takes.required}{most} are wanted")
    names = {a.name for a in node.attribute}
    found += [f"an unknown attribute {name!r}" for name in sorted(names - takes.attributes)]
    found += [f"the attribute {name!r} is missing" for name in sorted(takes.wanted - names)]
    return found


def graphs_in(node: NodeProto) -> list[tuple[str, GraphProto]]:
    """Return the graphs that a node has as attributes."""
    return [(a.name, a.g) for a in node.attribute if a.g is not None]
